"""Functions of times and intervals."""
