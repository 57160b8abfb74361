"""Rules of times and intervals."""
