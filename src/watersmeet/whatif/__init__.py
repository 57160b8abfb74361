"""Evaluate other lags, intervals and idle timeouts on a sample of a job's rows.

The result is the late rows, the lost matches and the retained rows of each setting; see `trial`.
"""
