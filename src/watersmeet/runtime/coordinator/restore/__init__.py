"""Restore a job's state: checks, changed queries and sources, moved files."""
