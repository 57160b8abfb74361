"""Parquet files that tasks read by Arrow, where that is to give what Spark's reader gives."""
