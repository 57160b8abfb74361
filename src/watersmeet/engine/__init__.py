"""Running a plan: a tick as its driver (``driver``) and its tasks (``tasks``, ``nodes``) see it, which knows no
Spark; and where ticks run: in this process (``local``) and on Spark (``spark``).
"""
