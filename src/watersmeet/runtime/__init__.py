"""Running a plan: a tick without Spark, as its driver and its tasks see it, and where ticks run: in this
process (``local``) and on Spark (``spark``).
"""
