"""Check expressions for what Spark would reject."""
