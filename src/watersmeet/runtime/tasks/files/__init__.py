"""Files that tasks read with Arrow."""
