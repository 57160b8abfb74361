"""A source that counts: Spark's rows of a fixed number per batch."""

from __future__ import annotations

from typing import Any

from watersmeet.extensions import SourceDeclaration
from watersmeet_sqlite.options import RampOptions


def read_ramp(spark: Any, source: SourceDeclaration) -> Any:
    """Return a streaming frame with the columns ``id BIGINT`` and ``at TIMESTAMP``."""
    options = RampOptions.of(source.options)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", options.step)
    frame = rows.option("startTimestamp", 1_700_000_000_000).option("advanceMillisPerBatch", 1000).load()
    return frame.selectExpr("value AS id", "timestamp AS at")
