"""Rules of numbers."""
