"""What was recorded, as questions can be asked of it: runs, series, tiles of a pyramid, cells."""
