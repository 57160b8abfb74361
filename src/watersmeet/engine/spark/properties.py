"""What tasks are told per tick, as local properties of Spark's jobs: JSON, sent along with every task.

A closure that stays the same is pickled and analysed once; a frame over it is planned from the same tree in
every tick.
"""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from watersmeet.engine.step.tasks import TickStart
from watersmeet.sinks.base import ArrowPart
from watersmeet.sinks.registry import part_from, plain_part

START = "watersmeet.start"
NODE = "watersmeet.node"

_START = TypeAdapter(TickStart)


def start_text(start: TickStart) -> str:
    """``start`` as text, for `start_of`. Where keys fall (``placing``) is not told: that is for tests."""
    return json.dumps(_START.dump_python(start))  # infinite watermarks included, as Python writes them


def start_of(text: str) -> TickStart:
    return _START.validate_python(json.loads(text))


def node_text(work: str, tick: int, part: ArrowPart | None = None) -> str:
    """The work file of a node's tasks, their tick, and what they stage rows with, as text for `node_of`."""
    return json.dumps([work, tick, None if part is None else plain_part(part)])


def node_of(text: str) -> tuple[str, int, ArrowPart | None]:
    work, tick, part = json.loads(text)
    return work, tick, None if part is None else part_from(part)
