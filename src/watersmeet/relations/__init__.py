"""Joins as a library: relations that calls build, over Spark's DataFrames, without a job's text."""
