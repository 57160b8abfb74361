"""Windows and groups: what is kept of rows, or of partial aggregates, until their windows close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.driver.kinds.base import (
    CommonFields,
    Decided,
    Held,
    Incoming,
    NodeDriver,
    Outgoing,
    risen_to,
)
from watersmeet.engine.driver.kinds.columns import grouped_columns
from watersmeet.engine.messages.shapes import AggregateShape, PartialShape, SideShape
from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.kernel.aggregate import AggregateColumn, aggregate_sql, quoted
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.kernel.partial import AggregateCall, Partials, partials_of
from watersmeet.measure import Measured
from watersmeet.plan.identity.origins import digest_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind
from watersmeet.state.runs.columns import StoredColumn
from watersmeet.types.arrow import sql_name
from watersmeet.watermark.windows import passed_below, release_limit, start_watermark


class WindowDriver(NodeDriver[AggregatePlan, AggregateShape]):
    releases_as_rows = True

    def shape_of(
        self, query: QueryPlan, node: AggregatePlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> AggregateShape:
        (side,) = sides
        kind = side.schema.field(node.time).type
        aggregates = _aggregates(query, node, side)
        return AggregateShape(
            **common,
            by_spark=() if aggregates is not None else _by_spark(node),
            kind=node.kind,
            time=node.time,
            size=node.size,
            slide=node.slide,
            keys=node.keys,
            aggregates=aggregates,
            window_type=window_type(kind),
            partial=_partial(node, side, {column.name: column.type for column in common["columns"]}),
        )

    def leaving(self, node: AggregatePlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """What has to be grouped: the keys, and what the calls mention."""
        return grouped_columns(node, sides)

    def held(self, query: QueryPlan, node: AggregatePlan, side: SidePlan) -> Held:
        held = Held(keys=tuple(column for _, column in node.keys), indexes=(Measured(node.time),))
        if node.kind is WindowKind.SESSION:
            return replace(held, watched=side.event_times)
        return replace(held, releasing=(node.time,))

    def goes_by_new_rows(self, shape: AggregateShape) -> bool:
        """How many rows a session has that closes shows when they are there."""
        return shape.kind is not WindowKind.SESSION and not shape.by_spark

    def decide(self, node: AggregatePlan, given: Incoming) -> Decided:
        key = node.time_key
        watermark = shift(given.watermarks.get(key, NEVER), -given.lateness.get(key, 0))
        if node.kind is WindowKind.SESSION:
            return Decided({key: passed_below(node.size, watermark)})
        return Decided({key: release_limit(node.size, node.slide, watermark)})

    def outputs(self, node: AggregatePlan, given: Outgoing) -> dict[str, Watermark]:
        watermark = given.watermarks.get(node.time_key, NEVER)
        is_session = node.kind is WindowKind.SESSION
        open_from = given.least.get(node.time_key) if is_session else None
        start = start_watermark(0 if is_session else node.size, watermark, open_from)
        return risen_to({WINDOW_START: start, WINDOW_END: watermark}, given.emitted)


def _partial(node: AggregatePlan, side: SideShape, types: Mapping[str, pa.DataType]) -> PartialShape | None:
    """``types``: of keys and arguments."""
    partials = None
    if not node.keeps_rows:
        calls = [
            AggregateCall(
                c.name, c.function, c.columns, tuple(types[a] for a in c.columns), c.distinct, c.filter
            )
            for c in node.calls
        ]
        partials = partials_of(calls)
    if partials is None:
        return None
    fields = [pa.field(node.time, pa.int64()), *(pa.field(key, types[key]) for _, key in node.keys)]
    fields += [pa.field(column.name, column.type) for column in partials.make]
    layout = replace(side.layout, event_times=(node.time,), columns=_partial_columns(node, side, partials))
    return PartialShape(
        side=replace(side, layout=layout, schema=pa.schema(list(dict.fromkeys(fields))), nullable=()),
        width=node.pane,
        aggregates=partials,
    )


def _partial_columns(node: AggregatePlan, side: SideShape, partials: Partials) -> tuple[StoredColumn, ...]:
    """What is kept of groups: the panes' start, the keys, and what is aggregated, which is known by its text
    with the columns' origins, and the origins of partial columns before it, in the place of their names."""
    kept = {column.name: column for column in side.layout.columns}
    start = replace(kept[node.time], origin=digest_of(["pane", kept[node.time].origin]))
    columns = [start, *(kept[key] for _, key in node.keys)]
    origins = {name: column.origin for name, column in kept.items()}
    texts = {name: column.text for name, column in kept.items()}
    for make, combine in zip(partials.make, partials.combine, strict=True):
        meant = [_replaced(step.sql, {**origins, make.name: "itself"}) for step in (make, combine)]
        origins[make.name] = digest_of(["partial", *meant, str(make.type)])
        columns.append(StoredColumn(make.name, origins[make.name], _replaced(make.sql, texts)))
    return tuple(dict.fromkeys(columns))


def _replaced(sql: str, names: Mapping[str, str]) -> str:
    """DuckDB text with something else in the place of the columns' quoted names."""
    for name, other in names.items():
        sql = sql.replace(quoted(name), other)
    return sql


def window_type(kind: pa.DataType) -> pa.DataType:
    """The type of the ends of windows over a time of this type. Windows of dates have ends within days."""
    if pa.types.is_integer(kind):
        return pa.int64()
    return kind if pa.types.is_timestamp(kind) else pa.timestamp("us")


def _aggregates(query: QueryPlan, node: AggregatePlan, side: SideShape) -> tuple[AggregateColumn, ...] | None:
    """The node's aggregates; None: one of them can only be had from Spark."""
    aggregates = []
    for call in node.calls:
        types = [side.schema.field(column).type for column in call.columns]
        own = (
            aggregate_sql(call.function, call.columns, types, call.distinct, call.filter)
            if call.plain
            else None
        )
        if own is None:
            if node is query.root:
                return None
            raise EngineError(
                f'"{query.name}": {call.text} of {", ".join(map(sql_name, types))} needs Spark, so'
                " only the last step of a query can compute it",
                code="aggregate-function",
                hint="cast its argument to another type, or INSERT this aggregate into a sink and read"
                " that in another job",
            )
        aggregates.append(AggregateColumn(call.name, *own))
    return tuple(aggregates)


def _by_spark(node: AggregatePlan) -> tuple[str, ...]:
    """The aggregates that no task computes, as written; where that is a matter of types, all."""
    return tuple(call.text for call in node.calls if not call.plain) or tuple(c.text for c in node.calls)
