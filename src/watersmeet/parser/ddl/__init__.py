"""Parse declarations and settings."""
