"""Send settings to tasks and lists back to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from pyspark import AccumulatorParam

from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.tasks.deferred_conditions import AnswerFile
from watersmeet.sinks.base import ArrowPart
from watersmeet.sinks.registry import part_from, plain_part

# What tasks are told per tick, as local properties of Spark's jobs: JSON, sent along with every task.
#
# A closure that stays the same is pickled and analysed once; a frame over it is planned from the same
# tree in every tick.

START = "watersmeet.start"
NODE = "watersmeet.node"
REREAD = "watersmeet.reread"
"""The sources whose rows ingest passes over: they come from another frame."""

PARTS = "watersmeet.parts"
"""The files that tasks read themselves, see `tick.reading.by_tasks`."""

AnswersByPartition = Mapping[int, Sequence[AnswerFile]]
"""Per partition."""
NO_ANSWERS: AnswersByPartition = {}
NO_SECRETS: Mapping[str, str] = {}

_START = TypeAdapter(TickStart)


def start_text(start: TickStart) -> str:
    """Serialize ``start`` as text, for `parse_start`.

    The places of keys (``placing``) are omitted: they are only for tests.
    """
    return json.dumps(_START.dump_python(start))  # infinite watermarks included, as Python writes them


def parse_start(text: str) -> TickStart:
    return _START.validate_python(json.loads(text))


def names_text(names: Iterable[str]) -> str:
    """Serialize names as text, for `parse_names`."""
    return json.dumps(sorted(names))


@lru_cache(maxsize=2)
def parse_names(text: str | None) -> frozenset[str]:
    return frozenset(json.loads(text) if text else ())


def node_text(
    work: str, tick: int, part: ArrowPart | None = None, answers: AnswersByPartition = NO_ANSWERS
) -> str:
    """Serialize the input of a node's tasks as text, for `parse_node`.

    It contains their work file, the tick, the part with which they stage rows, and the files with the
    results of deferred conditions.
    """
    files_by_partition = {
        str(partition): [list(file) for file in files] for partition, files in answers.items()
    }
    return json.dumps([work, tick, None if part is None else plain_part(part), files_by_partition])


def parse_node(
    text: str, secrets: Mapping[str, str] = NO_SECRETS
) -> tuple[str, int, ArrowPart | None, AnswersByPartition]:
    """Parse the text of `node_text` and return its arguments.

    Args:
        secrets: the secrets of the sink that the part belongs to.
    """
    work, tick, part, files_by_partition = json.loads(text)
    answers = {
        int(partition): [(name, sum_) for name, sum_ in files]
        for partition, files in files_by_partition.items()
    }
    return work, tick, None if part is None else part_from(part, secrets), answers


# An accumulator of lists: how what tasks say beside their rows comes to the driver.


class ListAccumulator(AccumulatorParam[list[Any]]):
    """Lists, put together."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
        value1.extend(value2)
        return value1
