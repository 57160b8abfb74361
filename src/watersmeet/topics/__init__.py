"""Kafka's topics, looked at once more for people: their records by place, and whether they still are what
they were. By librdkafka: no Spark, no group, and nothing is committed."""
