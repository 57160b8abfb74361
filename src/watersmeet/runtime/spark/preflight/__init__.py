"""Checks before Java starts: all that is known of a run without Spark.

`run` checks the run, `sources` its sources, `state` its state, and `sinks.base.ChecksTarget` its sinks. The
checks leave nothing behind and hold no resources: for example, they create a folder and remove it again to
test whether that is possible. A check rejects only what the run would reject; in doubt the run decides.
"""
