"""Types: as people write them, and of expressions, as far as that is known without Spark."""
