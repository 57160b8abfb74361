"""Ticks on Spark: Spark reads, evaluates expressions, schedules, retries and writes; state and matching are
vectorised in its Python tasks, by the same driver and tasks as in this process. The only folder that imports
PySpark.
"""
