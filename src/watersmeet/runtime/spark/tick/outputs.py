"""Write the rows of a tick to the sinks of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from watersmeet.expressions.casts import cast_to
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import TypedTree, UnsupportedExpression
from watersmeet.sinks.base import (
    ArrowPart,
    CallsInTasks,
    NeedsSession,
    Schema,
    ShowsRows,
    Sink,
    StagedPart,
    StagesInState,
    Texts,
    columns_of,
    recorded_inserts,
)
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.staging import staged_by_tasks
from watersmeet.spec.model import Column
from watersmeet.state.manifest import PARTS, Manifest, has_reached_tick
from watersmeet.state.store import Store
from watersmeet.types.json_values import rows_of
from watersmeet.types.sql_type import STRING

# Where the rows of a job go: its sinks, and what is asked of them before the first tick of a run.

UNKNOWN = "it is unknown whether it has some"

LATE_INSERT, BROKEN_INSERT, SHED_INSERT = "late-rows", "broken-records", "shed-rows"
"""Names of the parts of rows set aside; no query may be named so."""

PROGRESS_INSERT = "tick-progress"
"""The same of the rows that say which ticks are complete."""


@dataclass(frozen=True)
class Outputs:
    """Sinks of a job's rows.

    There is one sink per query that is not an index. On request there are sinks for side outputs, and
    for
    a row per tick that reports its completion.
    """

    queries: Mapping[str, Sink]
    late: Sink | None = None
    broken: Sink | None = None
    progress: Sink | None = None
    shed: Sink | None = None

    @property
    def sinks_by_insert(self) -> dict[str, Sink]:
        """Return all sinks, by the name of what goes there."""
        aside = {
            LATE_INSERT: self.late,
            BROKEN_INSERT: self.broken,
            SHED_INSERT: self.shed,
            PROGRESS_INSERT: self.progress,
        }
        return {**self.queries, **{insert: sink for insert, sink in aside.items() if sink is not None}}

    @property
    def sinks(self) -> list[Sink]:
        """Return each sink once: several INSERTs may go to one."""
        return list({id(sink): sink for sink in self.sinks_by_insert.values()}.values())

    def list_inserts(self, sink: Sink) -> list[str]:
        """Return the names of what goes to a sink."""
        return [insert for insert, own in self.sinks_by_insert.items() if own is sink]

    def lend(self, spark: SparkSession, store: Store) -> None:
        """Give the sinks the resources that they need.

        Sinks without a place of their own for staged rows get one, sinks that call functions get tasks, and
        sinks that use Spark get the session.
        """

        def stage_numbered_parts(part: ArrowPart, count: int) -> list[StagedPart]:
            """Stage numbered parts in tasks; see `Numbered`."""
            return staged_by_tasks(spark.range(0, count, 1, count), part)

        for sink in self.sinks:
            if isinstance(sink, NeedsSession):
                sink.use(spark)
            if isinstance(sink, StagesInState):
                sink.stage_in(store)
            if isinstance(sink, CallsInTasks):
                sink.call_in(stage_numbered_parts, partial(has_reached_tick, store))

    def prepare(
        self,
        schemas: Mapping[str, Schema],
        manifest: Manifest | None,
        owner: str,
        *,
        pending: bool,
        set_aside: bool,
    ) -> list[str]:
        """Prepare every sink, so that it checks what it can; see `Sink.prepare` and `Sink.resume`.

        Args:
            schemas: the schemas of the rows, per insert.
            manifest: the newest one.
            owner: the owner of the state.
            pending: an earlier run began the next tick, and this run repeats it.
            set_aside: move parts of later ticks out of the way instead of failing.

        Returns:
            Messages about the parts that were moved.
        """
        for insert, sink in self.sinks_by_insert.items():
            sink.prepare(schemas[insert], owner)
        parts = {} if manifest is None else manifest.parts
        last_parts = {name: (part.tick, part.identity) for name, part in parts.items()}
        tick = 0 if manifest is None else manifest.tick
        resumed = Resumed(tick, pending, last_parts, set_aside)
        return [said for sink in self.sinks for said in sink.resume(self.list_inserts(sink), resumed)]

    def list_possible_outputs(self, store: Store, tick: int, owner: str, *, set_aside: bool) -> list[str]:
        """Return descriptions of sinks that have rows of a tick that an earlier run began.

        They include functions that the job no longer names. Sinks that will move these rows out of the way
        are omitted.

        Args:
            owner: the owner of the state.
        """
        return list(self._iter_possible_outputs(store, tick, owner, set_aside))

    def _iter_possible_outputs(self, store: Store, tick: int, owner: str, set_aside: bool) -> Iterator[str]:
        called = set[str]()
        for sink in self.sinks:
            for insert in self.list_inserts(sink):
                if not sink.idempotent:
                    yield f'"{insert}": {UNKNOWN}'
                elif set_aside and sink.sets_aside:
                    continue
                elif sink.has_part(insert, tick, owner):
                    yield f'"{insert}" has rows of tick {tick}'
                    called |= {insert} if isinstance(sink, CallsInTasks) else set()
        for name, insert in recorded_inserts(store, store.names(PARTS), tick):
            if insert not in called:  # the job was renamed there, or has another sink by that name
                yield f'"{insert}" has rows of tick {tick} (function sink "{name}")'


# The first rows of a tick as a terminal shows them: the driver's own need no frame of Spark's.

_VALUE_TYPES = (
    *(pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_decimal),
    *(pa.types.is_date32, pa.types.is_timestamp, pa.types.is_floating, pa.types.is_binary),
)


def plan_terminal_rows(sink: Sink, own: pa.Schema, schema: StructType, zone: str) -> TerminalRows | None:
    """Plan how a sink shows rows without Spark; None if it does not.

    Args:
        own, schema: the schema of the rows, and that of Spark's equivalent frame.
        zone: the session's time zone, in which texts show times.
    """
    if not isinstance(sink, ShowsRows):
        return None
    if sink.shows_values:
        return (
            TerminalRows(sink, ()) if all(any(is_it(f.type) for is_it in _VALUE_TYPES) for f in own) else None
        )
    try:
        texts = [
            _build_text_column(column, own.field(column.name).type, zone) for column in columns_of(schema)
        ]
    except UnsupportedExpression:
        return None
    return TerminalRows(sink, texts)


class TerminalRows:
    """``texts``: what columns are as texts; none: values are shown as JSON has them."""

    def __init__(self, sink: ShowsRows, texts: Sequence[Computed]) -> None:
        self._sink, self._texts = sink, texts

    def take(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema, insert: str, tick: int, attempt: str
    ) -> None:
        """Stage the rows of a tick, all of which are computed, the first ones to be shown."""
        left, first, total = self._sink.most_shown, list[Texts](), 0
        for batch in rows:
            total += batch.num_rows
            if left and batch.num_rows:
                head = batch.slice(0, left)
                left -= head.num_rows
                first += rows_of(head if not self._texts else self._to_texts(head))
        self._sink.take_shown(insert, tick, attempt, schema.names, first, total)

    def _to_texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = pa.Table.from_batches([batch])
        return pa.record_batch([text.of(rows) for text in self._texts], names=batch.schema.names)


def _build_text_column(column: Column, kind: pa.DataType, zone: str) -> Computed:
    """Return `CAST(… AS STRING)` as tasks compute it. Raises: UnsupportedExpression."""
    name, type_ = column.name, column.type
    if not fits(kind, type_):
        raise UnsupportedExpression(f"{name} is {type_}")
    text = cast_to(TypedTree(("column", name, type_), type_), STRING, zone)
    return Computed(name, tree_of(text.tree), STRING, f"CAST({name} AS STRING)", zoned=False)
