"""Expressions of a query: what is refused in them before anything is planned."""
