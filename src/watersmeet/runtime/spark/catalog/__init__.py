"""What functions Spark has, found out by asking it. For `watersmeet.spec.functions`, which has the answer."""
