"""Parquet in object stores, exactly once: an object per INSERT and tick."""
