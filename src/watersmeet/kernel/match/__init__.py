"""Look-ups and pairs: which rows of two sides meet by a condition."""
