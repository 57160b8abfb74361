"""Types of expressions in a job's text."""
