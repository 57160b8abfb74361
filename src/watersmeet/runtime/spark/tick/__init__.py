"""One tick on Spark: the jobs of ingest and nodes, what tasks are told, and what they say beside rows."""
