"""Execution of a plan.

The package contains the tick without Spark, as its driver and its tasks see it, and the engines that run
ticks: in this process (`local`) and on Spark (`spark`).
"""
