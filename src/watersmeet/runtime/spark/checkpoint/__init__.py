"""A job's checkpoint directory: Spark's files, the state, small files beside them; restart and rebuild."""
