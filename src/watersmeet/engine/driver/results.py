"""What is known of a tick, and of each query, when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watersmeet.engine.driver.counts import Broken, FarAhead, Rounded
from watersmeet.engine.driver.heavy import KeyShare
from watersmeet.engine.driver.inputs.advances import AdvanceBack
from watersmeet.engine.driver.measured import measured_sides
from watersmeet.engine.messages.reports import SplitKey
from watersmeet.event_time import Watermark
from watersmeet.plan.order.measured import MeasuredSide
from watersmeet.state.manifest import Manifest
from watersmeet.state.traffic import Traffic
from watersmeet.watermark.alignment import Ahead
from watersmeet.watermark.holding import Holding
from watersmeet.watermark.lateness import LateBy
from watersmeet.watermark.tracker import PartitionState

INGEST, DRIVER = "ingest", "driver"


@dataclass(frozen=True)
class QueryResult:
    """Of one query and tick. ``risen_watermarks``: output watermarks that rose; ``output_watermarks``,
    ``input_watermarks``: all of them per key; ``late_below``: likewise, rows of the tick below were late;
    ``state``: retained rows per alias; ``counts``: of this tick,
    per alias (see `engine.tasks.ingest` and matched, padded, released_unmatched, retained); ``account``: the
    same, since the start of the job;
    ``late``: how late the late rows since then were, per alias and column; ``holding``: per alias the silent
    partitions that hold its watermark back; ``idle``: the aliases of which all partitions are idle;
    ``advances_back``: explicit advances that were below their watermarks (see `Options.lenient`);
    ``missing_deletes``: some of the rows that were to be deleted and were not there, as (alias, JSON of the
    columns that the query keeps). ``shed_joined``: rows that joins made for others and that were shed,
    since the start, by the inputs that are joined in them; ``newly_shed_joined``: in this tick. ``heavy``:
    the heaviest keys of what is kept, per side that has some; ``split``: the keys that all tasks shared in
    this tick, per side that tells of them.
    ``rows_out``: rows that went to the sink in this tick, ``total_rows_out``: since the start."""

    risen_watermarks: Mapping[str, Watermark]
    output_watermarks: Mapping[str, Watermark]
    input_watermarks: Mapping[str, Watermark]
    state: Mapping[str, int]
    counts: Mapping[str, Mapping[str, int]]
    account: Mapping[str, Mapping[str, int]]
    rows_out: int
    total_rows_out: int
    matches: int
    state_bytes: int
    late_below: Mapping[str, Watermark] = field(default_factory=dict)
    missing_deletes: tuple[tuple[str, str], ...] = ()
    shed_joined: Mapping[str, int] = field(default_factory=dict)
    newly_shed_joined: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, Mapping[str, LateBy]] = field(default_factory=dict)
    holding: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    advances_back: tuple[AdvanceBack, ...] = ()
    heavy: Mapping[str, tuple[KeyShare, ...]] = field(default_factory=dict)
    split: Mapping[str, tuple[SplitKey, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TickResult:
    """``rows_in``: rows read in this tick, per source; ``broken``: those of them that did not parse,
    ``far_ahead``: those with a time too far ahead, ``rounded``: those with decimals that were rounded, of
    sources that had some; see `RowsRead`. ``held``: the
    sources that are not to be read in the next one. ``tasks``: per query in how many tasks its nodes were
    run, the most of them; 0: the driver did all of it itself. Empty where there are no tasks of Spark's.
    ``traffic``: with the store, per step (`INGEST`, ``query/number`` of a node, `DRIVER`) of each of its
    tasks; what is done behind the back of a tick counts to the next one. Empty where nobody counts. ``read``:
    per source and part of it (``files``, or a topic's partition) how far it was read by then: of files the
    number of Spark's lists of them, of a partition the offset behind the last record. ``began``: of parts of
    which this tick read the first, or went on elsewhere than reading had ended, where that was. Both empty
    where nobody knows. ``seconds``: how long its parts took, on Spark."""

    tick: int
    clock_us: int
    queries: Mapping[str, QueryResult]
    finished: bool
    rows_in: Mapping[str, int]
    broken: Mapping[str, Broken] = field(default_factory=dict)
    far_ahead: Mapping[str, FarAhead] = field(default_factory=dict)
    rounded: Mapping[str, Rounded] = field(default_factory=dict)
    held: Mapping[str, Ahead] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, tuple[Traffic, ...]] = field(default_factory=dict)
    state: Manifest | None = field(default=None, repr=False, compare=False)
    read: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    began: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    def measured(self) -> dict[str, dict[str, MeasuredSide]]:
        """Per query what each of its sides keeps, and how fast rows come: looked up in the state when it is
        asked for."""
        if self.state is None:
            return {}
        return {name: measured_sides(self.state, query) for name, query in self.state.queries.items()}

    def partitions(self) -> dict[str, dict[str, list[Mapping[str, PartitionState]]]]:
        """Per query, input that it reads itself and branch the partitions that are known, by name."""
        queries = {} if self.state is None else self.state.queries
        return {
            name: {
                alias: [branch.partitions for branch in read.branches] for alias, read in query.inputs.items()
            }
            for name, query in queries.items()
        }


def shed_in(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Of counts or an account, the rows that were shed per alias, where there are any."""
    return {alias: of["shed"] for alias, of in counts.items() if of.get("shed")}
