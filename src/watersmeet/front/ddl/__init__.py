"""Declarations and settings: CREATE and SET."""
