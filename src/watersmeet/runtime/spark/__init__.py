"""Ticks on Spark.

Spark reads, evaluates expressions, schedules, retries and writes. State and matching are vectorised in its
Python tasks, by the same driver and tasks as in this process. Only this folder imports PySpark.
"""
