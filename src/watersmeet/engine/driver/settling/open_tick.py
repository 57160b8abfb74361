"""A tick between its begin and its commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.engine.driver.counts import Broken
from watersmeet.engine.driver.inputs.advances import AdvanceBack
from watersmeet.engine.driver.query_tick import QueryTick
from watersmeet.engine.messages.work import TickStart
from watersmeet.event_time import Watermark
from watersmeet.state.manifest import Manifest
from watersmeet.state.traffic import Traffic
from watersmeet.watermark.tracker import InputState


@dataclass
class OpenTick:
    """``rows_in``, ``broken``: per source, see `counts`; ``inputs``: the watermarks that the tick moves;
    ``late_below``: below which time its rows are late;
    ``manifest``: what it has come to, once it was concluded; ``ingested``: the traffic of ingest tasks with
    the store."""

    start: TickStart
    inputs: dict[str, dict[str, InputState]]
    late_below: dict[str, dict[str, Watermark]]
    queries: dict[str, QueryTick] = field(default_factory=dict)
    rows_in: dict[str, int] = field(default_factory=dict)
    broken: dict[str, Broken] = field(default_factory=dict)
    advances_back: dict[str, tuple[AdvanceBack, ...]] = field(default_factory=dict)
    ended: bool = False
    ingested: tuple[Traffic, ...] = ()
    manifest: Manifest | None = None
