"""Event files from disk to records, live or long after: discovery of runs, tailing, resynchronising after damage."""
