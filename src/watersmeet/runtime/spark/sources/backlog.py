"""Reading progress of each source, and its backlog, as far as known without a request.

Files: the backlog as of the last listing of the directory. Kafka: Spark's report of the previous batch has
the newest offsets of that moment; the rows that the present batch reads are subtracted. Rows that arrived
later are not included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.spark.checkpoint.spark_log import SparkFiles
from watersmeet.runtime.spark.checkpoint.spark_positions import NOTHING_READ, load_end_offsets
from watersmeet.spec.model import Source

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Backlog = Mapping[str, tuple[int, str]]
"""By the source's name: how many, of what (``files``, ``rows``)."""


def load_last_report(query: StreamingQuery) -> str | None:
    """Return Spark's progress of the batch before, as JSON; None: there is none yet."""
    progress: Any = query._jsq.lastProgress()
    return None if progress is None else str(progress.json())


def count_backlog_rows(
    report: str | None, sources: Sequence[Source], offsets: Sequence[str]
) -> dict[str, int]:
    """Count the rows of Kafka sources after the current batch.

    Args:
        report: Spark's progress of the previous batch, as JSON; None if there is none yet.
        offsets: the end of the current batch per source, in the plan's order.
    """
    if report is None:
        return {}
    told = json.loads(report).get("sources", [])
    if len(told) != len(sources) or len(offsets) != len(sources):
        return {}
    behind = {}
    for source, progress, text in zip(sources, told, offsets, strict=True):
        newest = _parse_partition_offsets(progress.get("latestOffset"))
        if source.traits.log and newest and text != NOTHING_READ:
            read = _parse_partition_offsets(json.loads(text))
            behind[source.name] = sum(max(0, end - read.get(at, end)) for at, end in newest.items())
    return behind


def _parse_partition_offsets(offsets: Any) -> dict[tuple[str, str], int]:
    """Parse Spark's ``{"topic": {"0": 5}}``, an object or its text; return {} for anything else."""
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    if not isinstance(offsets, dict) or not all(isinstance(offset, dict) for offset in offsets.values()):
        return {}
    return {
        (topic, partition): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


class SourceProgress:
    """Progress of the sources of a run: how far batches have read them, and from where.

    Args:
        host: the fields of the batch that the run continues from.
        kept: the same fields as its manifest has them.
    """

    def __init__(
        self, sources: Sequence[Source], host: Mapping[str, Any], kept: Mapping[str, Any], spark: SparkFiles
    ) -> None:
        self._sources, self._spark = sources, spark
        pairs = zip(sources, load_end_offsets(host) or (), load_end_offsets(kept) or (), strict=False)
        self._went_on = {source.name for source, now, was in pairs if now != was}

    def add_progress(
        self, result: TickResult, host: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> TickResult:
        """Return the result with each source's end position in its batch, as far as ``host`` has it.

        Args:
            before: the host of the previous batch; None if the tick has no batch.
        """
        read: dict[str, dict[str, int]] = {}
        for source, text in zip(self._sources, load_end_offsets(host) or (), strict=False):
            if source.traits.files:
                end = 0 if text == NOTHING_READ else int(json.loads(text)["logOffset"]) + 1
                read[source.name] = {"files": end}
            elif text != NOTHING_READ and source.traits.log:
                read[source.name] = _name_partitions(text)
        began = {} if before is None else self._began(host, before)
        return replace(result, read=read, began=began)

    def _began(self, host: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        """Return the start position of each partition of Kafka sources that need it.

        These are sources whose first rows are in the batch, and sources that continue from another position
        than their last end.
        """
        began: dict[str, dict[str, int]] = {}
        ends = load_end_offsets(before) or [NOTHING_READ] * len(self._sources)
        for number, (source, text) in enumerate(
            zip(self._sources, load_end_offsets(host) or (), strict=False)
        ):
            if not source.traits.log or text == NOTHING_READ:
                continue
            if ends[number] == NOTHING_READ:
                first = self._spark.first_offsets(number)
                if first is not None:
                    began[source.name] = _name_partitions(first)
            elif source.name in self._went_on:
                began[source.name] = _name_partitions(ends[number])
        self._went_on.clear()
        return began


def _name_partitions(text: str) -> dict[str, int]:
    """Return the offsets by partition names, as in `TickResult.read`."""
    return {f"{topic}/{partition}": end for (topic, partition), end in _parse_partition_offsets(text).items()}
