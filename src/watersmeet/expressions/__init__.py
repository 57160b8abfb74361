"""Expressions over rows as tasks compute them: exactly what Spark says, ANSI on, in the job's time zone."""
