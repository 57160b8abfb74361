"""The tasks' half of each operator."""
