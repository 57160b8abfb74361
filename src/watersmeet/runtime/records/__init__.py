"""Records that have a schema beside them, from bytes to columns: a whole batch at a time, without Spark."""
