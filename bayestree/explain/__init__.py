"""What a fitted tree says about one row, and how much it depends on each feature."""
