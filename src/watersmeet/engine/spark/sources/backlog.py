"""How far each source was read, and how much is there that was not read yet, as far as that is known without
asking for it.

Files: those of the last look at the directory. Kafka: Spark's report of the batch before has the newest
offsets of that moment; what the present batch reads is taken off. Rows that came since are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.spark.checkpoint.host import ends_in
from watersmeet.spec.model import Source

Backlog = Mapping[str, tuple[int, str]]
"""By the source's name: how many, of what (``files``, ``rows``)."""


def rows_behind(report: str | None, sources: Sequence[Source], offsets: Sequence[str]) -> dict[str, int]:
    """Rows of Kafka sources beyond the present batch.

    Args:
        report: Spark's progress of the batch before, as JSON; None: there is none yet.
        offsets: of the present batch, where it ends, per source in the plan's order.
    """
    if report is None:
        return {}
    told = json.loads(report).get("sources", [])
    if len(told) != len(sources) or len(offsets) != len(sources):
        return {}
    behind = {}
    for source, progress, text in zip(sources, told, offsets, strict=True):
        newest = _by_partition(progress.get("latestOffset"))
        if source.traits.log and newest and text != "-":
            read = _by_partition(json.loads(text))
            behind[source.name] = sum(max(0, end - read.get(at, end)) for at, end in newest.items())
    return behind


def _by_partition(offsets: Any) -> dict[tuple[str, str], int]:
    """Spark's ``{"topic": {"0": 5}}``, also as text; empty for what is none."""
    if isinstance(offsets, str):
        offsets = json.loads(offsets)
    if not isinstance(offsets, dict) or not all(isinstance(offset, dict) for offset in offsets.values()):
        return {}
    return {
        (topic, partition): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def with_read(result: TickResult, host: Mapping[str, Any], sources: Sequence[Source]) -> TickResult:
    """The result with how far each source was read by its batch, as far as ``host`` tells it."""
    read: dict[str, dict[str, int]] = {}
    for source, text in zip(sources, ends_in(host) or (), strict=False):
        if source.traits.files:
            end = 0 if text == "-" else int(json.loads(text)["logOffset"]) + 1
            read[source.name] = {"files": end}
        elif text != "-" and source.traits.log:
            read[source.name] = {f"{at[0]}/{at[1]}": end for at, end in _by_partition(text).items()}
    return replace(result, read=read)
