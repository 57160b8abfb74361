"""A tick between its begin and its commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.engine.driver.counts import RowsRead
from watersmeet.engine.driver.inputs.advances import AdvanceBack
from watersmeet.engine.driver.query_tick import QueryTick
from watersmeet.engine.messages.work import TickStart
from watersmeet.event_time import Watermark
from watersmeet.state.manifest import Manifest
from watersmeet.state.traffic import Traffic
from watersmeet.watermark.tracker import InputState


@dataclass
class OpenTick:
    """``read``: what came of the sources; ``inputs``: the watermarks that the tick moves;
    ``late_below``: below which time its rows are late;
    ``manifest``: what it has come to, once it was concluded; ``ingested``: the traffic of ingest tasks with
    the store."""

    start: TickStart
    inputs: dict[str, dict[str, InputState]]
    late_below: dict[str, dict[str, Watermark]]
    queries: dict[str, QueryTick] = field(default_factory=dict)
    read: RowsRead = field(default_factory=lambda: RowsRead({}, {}, {}, {}))
    advances_back: dict[str, tuple[AdvanceBack, ...]] = field(default_factory=dict)
    ended: bool = False
    ingested: tuple[Traffic, ...] = ()
    manifest: Manifest | None = None
