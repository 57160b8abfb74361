"""Kafka topics as sinks: `sink` is exactly once, `sent` at least once, `records` what both write."""
