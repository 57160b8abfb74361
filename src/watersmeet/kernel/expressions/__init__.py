"""Expressions over rows as tasks compute them: trees, the arrays that values are held in, and functions."""
