"""A job on Spark from its description to its end: session, settings, run."""
