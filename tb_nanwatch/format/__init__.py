"""What the bytes mean: records, their encoding, framing, and how they sit in event files."""
