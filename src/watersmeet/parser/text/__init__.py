"""Tokens, dialect and positions in a job's text."""
