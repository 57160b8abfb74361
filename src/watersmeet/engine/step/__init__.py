"""One tick, without Spark and without a clock: ingest, advance, join, commit.

    rows ──ingest──> runs, what was seen ──advance──> watermarks, limits
         ──join──> joined rows, marks ──commit──> manifest

Ingest and join are done by tasks (any number, anywhere, retried at will); advance and commit by one driver.
Tasks write new files and return a report; only what the driver commits becomes state.
"""
