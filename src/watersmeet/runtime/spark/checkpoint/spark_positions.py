"""What a manifest's ``host`` says of Spark: its query, its batch, and how far each source was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.runtime.spark.checkpoint.directory import Offsets

QUERY_ID, BATCH, OFFSETS, SOURCES, TOPICS = "query_id", "batch", "offsets", "sources", "topics"
"""Of a manifest's ``host``; also `file_lists.KEY` and `read.CHANGED`."""

NOTHING_READ = "-"
"""Spark's text of a source of which no batch has read anything."""

COMPACT_INTERVAL = "spark.sql.streaming.fileSource.log.compactInterval"


def load_end_offsets(host: Mapping[str, Any]) -> list[str] | None:
    """Return Spark's end offsets per source, in the plan's order; None before the first batch.

    Each is a text: `NOTHING_READ` or JSON.
    """
    return str(host[OFFSETS]).split("\n")[2:] if OFFSETS in host else None


def load_offsets(host: Mapping[str, Any]) -> Offsets:
    """Load the offsets of the batch that produced a manifest."""
    return Offsets.of(int(host[BATCH]), str(host[OFFSETS]))
