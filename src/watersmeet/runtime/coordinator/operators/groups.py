"""The driver's half of windows, groups and rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.kernel.aggregate import (
    AggregateCall,
    AggregateColumn,
    Partials,
    aggregate_sql,
    is_ordered,
    partials_of,
    quote_identifier,
)
from watersmeet.kernel.gather import JoinedColumn
from watersmeet.kernel.groups import LIMB, GroupParts, digits_of, group_parts
from watersmeet.kernel.ranks import order_sql, rank_parts
from watersmeet.kernel.slots import hash_columns
from watersmeet.measure import Measured
from watersmeet.plan.identity.origins import digest_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, GroupedPlan, GroupPlan, RankPlan, WindowGroupPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.runtime.coordinator.operators.base import (
    CommonFields,
    NodeDriver,
    NodeInputs,
    NodeLimits,
    Outgoing,
    SideLayout,
    grouped_columns,
    select_begun_watermarks,
)
from watersmeet.runtime.messages.shapes import (
    PANE,
    AggregateShape,
    GroupShape,
    PartialShape,
    RankShape,
    SideShape,
    WindowGroupShape,
)
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind
from watersmeet.state.runs.layout import StoredColumn
from watersmeet.types.arrow import sql_name
from watersmeet.watermark.tracker import last_row_limit, release_limit, start_watermark

# Windows and groups: what is kept of rows, or of partial aggregates, until their windows close.


class WindowDriver(NodeDriver[AggregatePlan, AggregateShape]):
    releases_as_rows = True

    def build_shape(
        self, query: QueryPlan, node: AggregatePlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> AggregateShape:
        (side,) = sides
        kind = side.schema.field(node.time).type
        aggregates = _aggregates(query, node, side)
        return AggregateShape(
            **common,
            by_spark=() if aggregates is not None else _list_spark_aggregates(node),
            kind=node.kind,
            time=node.time,
            size=node.size,
            slide=node.slide,
            keys=node.keys,
            aggregates=aggregates,
            window_type=window_type(kind),
            partial=_build_partial_shape(
                node, side, {column.name: column.type for column in common["columns"]}
            ),
        )

    def leaving(self, node: AggregatePlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """List the columns needed for grouping: the keys and the columns that the calls use."""
        return grouped_columns(node, sides)

    def held(self, query: QueryPlan, node: AggregatePlan, side: SidePlan) -> SideLayout:
        held = SideLayout(keys=tuple(column for _, column in node.keys), indexes=(Measured(node.time),))
        if node.kind is WindowKind.SESSION:
            return replace(held, watched=side.event_times)
        return replace(held, releasing=(node.time,))

    def costs_by_new_rows(self, shape: AggregateShape) -> bool:
        """Return True unless windows are sessions or Spark computes the aggregates.

        The number of rows of a closing session is known only when the rows are read.
        """
        return shape.kind is not WindowKind.SESSION and not shape.by_spark

    def decide(self, node: AggregatePlan, given: NodeInputs) -> NodeLimits:
        key = node.time_key
        watermark = shift(given.watermarks.get(key, NEVER), -given.lateness.get(key, 0))
        if node.kind is WindowKind.SESSION:
            return NodeLimits({key: last_row_limit(node.size, watermark)})
        return NodeLimits({key: release_limit(node.size, node.slide, watermark)})

    def outputs(self, node: AggregatePlan, given: Outgoing) -> dict[str, Watermark]:
        watermark = given.watermarks.get(node.time_key, NEVER)
        is_session = node.kind is WindowKind.SESSION
        open_from = given.least.get(node.time_key) if is_session else None
        start = start_watermark(0 if is_session else node.size, watermark, open_from)
        return select_begun_watermarks({WINDOW_START: start, WINDOW_END: watermark}, given.emitted)


def _build_partial_shape(
    node: AggregatePlan, side: SideShape, types: Mapping[str, pa.DataType]
) -> PartialShape | None:
    """Build the shape of the node's partial aggregates; None if it retains rows instead.

    Args:
        types: the types of keys and arguments.
    """
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
    """List the stored columns of groups: pane start, keys, partial aggregates.

    The origin of a partial aggregate is a digest of its SQL text in which the origins of columns, and
    of the partial columns before it, replace their names.
    """
    kept = {column.name: column for column in side.layout.columns}
    start = replace(kept[node.time], origin=digest_of(["pane", kept[node.time].origin]))
    columns = [start, *(kept[key] for _, key in node.keys)]
    origins = {name: column.origin for name, column in kept.items()}
    texts = {name: column.text for name, column in kept.items()}
    for make, combine in zip(partials.make, partials.combine, strict=True):
        meant = [_replace_columns(step.sql, {**origins, make.name: "itself"}) for step in (make, combine)]
        origins[make.name] = digest_of(["partial", *meant, str(make.type)])
        columns.append(StoredColumn(make.name, origins[make.name], _replace_columns(make.sql, texts)))
    return tuple(dict.fromkeys(columns))


def _replace_columns(sql: str, names: Mapping[str, str]) -> str:
    """Replace the quoted names of columns in DuckDB SQL text."""
    for name, other in names.items():
        sql = sql.replace(quote_identifier(name), other)
    return sql


def window_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of window ends for a time of this type.

    Windows over dates end within days, so their ends are timestamps.
    """
    if pa.types.is_integer(kind):
        return pa.int64()
    return kind if pa.types.is_timestamp(kind) else pa.timestamp("us")


def _aggregates(query: QueryPlan, node: AggregatePlan, side: SideShape) -> tuple[AggregateColumn, ...] | None:
    """Build the node's aggregates; None if only Spark can compute one of them.

    Raises:
        EngineError: an aggregate needs Spark, and the node is not the last step of the query.
    """
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


def _list_spark_aggregates(node: AggregatePlan) -> tuple[str, ...]:
    """List the aggregates, as written, that no task can compute; all if that depends on types."""
    return tuple(call.text for call in node.calls if not call.plain) or tuple(c.text for c in node.calls)


# Groups over all rows: what is kept of them is hashed by the keys, and no watermark releases it.


class GroupDriver(NodeDriver[GroupPlan, GroupShape]):
    def build_shape(
        self, query: QueryPlan, node: GroupPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> GroupShape:
        (side,) = sides
        types = {column.name: column.type for column in common["columns"]}
        parts = build_group_parts(query, node, types)
        results = parts.result_types
        return GroupShape(
            **common,
            keys=node.keys,
            parts=parts,
            kept=build_group_side(side, [column for _, column in node.keys], parts, types),
            results=tuple((call.name, results[call.name]) for call in node.calls),
        )

    def leaving(self, node: GroupPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """List the columns needed for grouping: the keys and the columns that the calls use."""
        return grouped_columns(node, sides)

    def costs_by_new_rows(self, shape: GroupShape) -> bool:
        return not shape.parts.values  # else by all different values of the groups

    def held(self, query: QueryPlan, node: GroupPlan, side: SidePlan) -> SideLayout:
        return SideLayout(keys=tuple(dict.fromkeys(column for _, column in node.keys)))


def build_group_parts(query: QueryPlan, node: GroupedPlan, types: Mapping[str, pa.DataType]) -> GroupParts:
    """Build the parts of the node's groups to store.

    Args:
        types: the types of the columns.

    Raises:
        EngineError: an aggregate does not support these types.
    """
    parts = group_parts(
        [column for _, column in node.keys],
        [
            AggregateCall(
                c.name, c.function, c.columns, tuple(types[a] for a in c.columns), c.distinct, c.filter
            )
            for c in node.calls
        ],
    )
    if isinstance(parts, str):
        call = next(call for call in node.calls if call.name == parts)
        raise EngineError(
            f'"{query.name}": {call.text} does not support the type'
            f" {', '.join(sql_name(types[a]) for a in call.columns)} where rows of a group can be"
            " retracted",
            code="aggregate-function",
            hint="cast its argument to another type",
        )
    _check_equality(query, node, parts, types)
    return parts


def _check_equality(
    query: QueryPlan, node: GroupedPlan, parts: GroupParts, types: Mapping[str, pa.DataType]
) -> None:
    """Check the types of keys and distinct values: they must support equality.

    Raises:
        EngineError: a type has no equality.
    """
    texts = dict(zip((column for _, column in node.keys), node.key_texts, strict=True))
    for column in (*texts, *parts.values):
        try:
            hash_columns([pa.array([], types[column])], 0)
        except TypeError:
            text = texts.get(column) or next(call.text for call in node.calls if column in call.columns)
            raise EngineError(
                f'"{query.name}": {text.replace("`", "")} is {sql_name(types[column])}, a type whose'
                " values cannot be compared for equality",
                code="wrong-types",
                hint="group by a part of it, such as map_keys(…), or by its text: to_json(…)",
            ) from None


def build_group_side(
    side: SideShape, keys: Sequence[str], parts: GroupParts, types: Mapping[str, pa.DataType]
) -> SideShape:
    """Build the side that stores groups instead of rows.

    The origin of a sum is its text with the origins of columns in place of their names.

    Args:
        keys: the columns that have one value per group.
        types: the types of all columns.
    """
    own = {column.name: column for column in side.layout.columns}
    names = list(dict.fromkeys([*keys, *parts.values]))
    fields = [pa.field(name, types[name]) for name in names]
    columns = [own[name] for name in names]
    if parts.real_sums:
        fields.append(pa.field(LIMB, pa.int16()))
        columns.append(StoredColumn(LIMB, digest_of(["limb"]), "limb"))
    for added in parts.added:
        meant, text = added.sql, added.sql
        for name, column in own.items():
            for written in (quote_identifier(name), quote_identifier(digits_of(name))):
                meant = meant.replace(written, column.origin)
                text = text.replace(written, column.text)
        fields.append(pa.field(added.name, added.type))
        columns.append(StoredColumn(added.name, digest_of(["group", meant, str(added.type)]), text))
    return replace(
        side,
        schema=pa.schema(fields),
        layout=replace(side.layout, event_times=(), columns=tuple(columns)),
        nullable=(),
    )


# Windows whose rows come and go: what is kept of panes and groups until the last window of a pane closes.


class WindowGroupDriver(NodeDriver[WindowGroupPlan, WindowGroupShape]):
    def build_shape(
        self, query: QueryPlan, node: WindowGroupPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> WindowGroupShape:
        (side,) = sides
        types = {column.name: column.type for column in common["columns"]}
        parts = build_group_parts(query, node, types)
        results = parts.result_types
        kept = build_group_side(side, [column for _, column in node.keys], parts, types)
        return WindowGroupShape(
            **common,
            keys=node.keys,
            parts=parts,
            kept=_build_pane_side(kept, node, side),
            results=tuple((call.name, results[call.name]) for call in node.calls),
            kind=node.kind,
            time=node.time,
            size=node.size,
            slide=node.slide,
            pane=node.pane,
            window_type=window_type(side.schema.field(node.time).type),
            is_final=node.is_final,
        )

    def leaving(self, node: WindowGroupPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """List the columns needed for grouping: the keys and the columns that the calls use."""
        return grouped_columns(node, sides)

    def held(self, query: QueryPlan, node: WindowGroupPlan, side: SidePlan) -> SideLayout:
        return SideLayout(keys=tuple(dict.fromkeys(column for _, column in node.keys)))

    def decide(self, node: WindowGroupPlan, given: NodeInputs) -> NodeLimits:
        key = node.time_key
        watermark = shift(given.watermarks.get(key, NEVER), -given.lateness.get(key, 0))
        if node.kind is WindowKind.SESSION:
            return NodeLimits({key: last_row_limit(node.size, watermark)})
        return NodeLimits({node.side.watermark_key(PANE): release_limit(node.size, node.slide, watermark)})

    def outputs(self, node: WindowGroupPlan, given: Outgoing) -> dict[str, Watermark]:
        watermark = given.watermarks.get(node.time_key, NEVER)
        is_session = node.kind is WindowKind.SESSION
        open_from = given.least.get(node.side.watermark_key(PANE)) if is_session else None
        start = start_watermark(0 if is_session else node.size, watermark, open_from)
        return select_begun_watermarks({WINDOW_START: start, WINDOW_END: watermark}, given.emitted)


def _build_pane_side(kept: SideShape, node: WindowGroupPlan, side: SideShape) -> SideShape:
    """Build the side that stores groups per pane.

    The origin of the pane column combines the pane's width and the time's origin. Panes of windows are
    released by a limit. Panes of sessions are times, and tasks look them up in order and by key.
    """
    (time,) = (column for column in side.layout.columns if column.name == node.time)
    is_session = node.kind is WindowKind.SESSION
    stored = StoredColumn(PANE, digest_of(["pane", time.origin, node.pane]), f"panes of {time.text}")
    layout = replace(
        kept.layout,
        event_times=(PANE,),
        releasing=() if is_session else (PANE,),
        watched=(PANE,) if is_session else (),
        indexes=(Measured(PANE),) if is_session else (),
        columns=(stored, *kept.layout.columns),
    )
    return replace(kept, layout=layout, schema=pa.schema([pa.field(PANE, pa.int64()), *kept.schema]))


# The first rows of partitions: what is kept of these is hashed by the partitions' columns, and no
# watermark releases it.


class RankDriver(NodeDriver[RankPlan, RankShape]):
    def build_shape(
        self, query: QueryPlan, node: RankPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> RankShape:
        (side,) = sides
        types = {column.name: column.type for column in common["columns"]}
        for (_, column), text in zip(node.keys, node.key_texts, strict=True):
            if not is_ordered(types[column]):
                raise EngineError(
                    f'"{query.name}": {text.replace("`", "")} is {sql_name(types[column])}, which has'
                    " no order; ROW_NUMBER() orders rows with equal keys by all selected columns",
                    code="wrong-types",
                    hint="remove the column from the SELECT with ROW_NUMBER(), or select it as text:"
                    " to_json(…)",
                )
        columns, partition = dict(node.keys), _partition(node)
        values = [column for column in dict.fromkeys(columns.values()) if column not in partition]
        parts = rank_parts(values)
        order = [(columns[key.name], key.descending, key.nulls_first) for key in node.ranking.order]
        return RankShape(
            **common,
            keys=node.keys,
            parts=parts,
            kept=build_group_side(side, [*partition, *values], parts, types),
            results=((node.ranking.number, pa.int32()),) if node.numbered else (),
            partition=partition,
            order=order_sql(order),
            most=node.most,
        )

    def leaving(self, node: RankPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        return grouped_columns(node, sides)

    def held(self, query: QueryPlan, node: RankPlan, side: SidePlan) -> SideLayout:
        return SideLayout(keys=_partition(node))


def _partition(node: RankPlan) -> tuple[str, ...]:
    columns = dict(node.keys)
    return tuple(dict.fromkeys(columns[name] for name in node.ranking.partition))
