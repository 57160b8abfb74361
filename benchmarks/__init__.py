"""Side by side with Spark's own stream-stream join: the same files, the same cores, the same rows out."""
