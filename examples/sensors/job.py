"""Which readings came in the five minutes before a machine failed? A failure without any comes out, too.

As calls over streams: of Spark's DataFrames, or declared by their columns alone, for tests.
"""

from __future__ import annotations

from typing import Any

import watersmeet as ws

FAILURES = {"failure": "BIGINT", "machine": "BIGINT", "at": "TIMESTAMP"}
READINGS = {"machine": "BIGINT", "at": "TIMESTAMP", "celsius": "DOUBLE"}


def before(failures: Any = FAILURES, readings: Any = READINGS) -> ws.Relation:
    """``failures``, ``readings``: streaming DataFrames with these columns; or the columns themselves."""
    failed = ws.stream(failures, time="at", lag="5 seconds", name="failures").alias("f")
    read = ws.stream(readings, time="at", lag="5 seconds", name="readings").alias("r")
    near = ws.between("r.at", "f.at", "-5 minutes", "0s")
    joined = failed.join(read, on="r.machine = f.machine", within=near, how="left")
    return joined.select("f.failure", "f.machine", "f.at AS failed_at", "r.at AS read_at", "r.celsius")
