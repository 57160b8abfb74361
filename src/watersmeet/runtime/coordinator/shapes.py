"""From a plan, with the types an engine found, to what tasks and the watermark tracker work by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import columns_of, tree_of
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import Origin, Origins, digest_of, origins_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, Producer, SidePlan
from watersmeet.runtime.coordinator.operators.registry import find_driver, find_kind
from watersmeet.runtime.messages.shapes import FeedShape, NodeShape, SideShape
from watersmeet.spec.model import OnIdle
from watersmeet.state.runs.layout import RunKey, RunLayout, StoredColumn, null_column
from watersmeet.types.arrow import sql_name
from watersmeet.watermark.tracker import BranchRules


def job_shapes(
    plan: JobPlan, schemas: Mapping[str, pa.Schema], *, zoned: bool
) -> dict[str, tuple[NodeShape, ...]]:
    """Build the shapes of the nodes of each query; see `node_shapes`."""
    shared: dict[str, SideShape] = {}
    shapes: dict[str, list[NodeShape]] = {}
    for query in plan.queries:
        shapes[query.name] = node_shapes(query, schemas, shared, shapes, zoned=zoned)
    return {name: tuple(own) for name, own in shapes.items()}


def node_shapes(
    query: QueryPlan,
    schemas: Mapping[str, pa.Schema],
    shared: dict[str, SideShape],
    others: Mapping[str, list[NodeShape]] | None = None,
    *,
    zoned: bool,
) -> list[NodeShape]:
    """Build the shapes of the nodes of ``query``, in order.

    Args:
        schemas: per ``query/alias`` of an input or table, the stored columns in native types; for an
            input that only stages feed, only the columns whose types are declared.
        shared: shapes of earlier sides, as ``query/alias``, whose runs are written for several sides;
            the function adds the sides of this query.
        others: the shapes of earlier queries; the function adds to them which of their rows feed this
            query.
        zoned: True if the engine's TIMESTAMPs carry UTC, which distinguishes them from TIMESTAMPs
            without a zone.
    """
    shapes: list[NodeShape] = []
    origins = origins_of(query.alone.nodes)

    def get_producer_shapes(feed: FeedPlan) -> list[NodeShape]:
        """Return the shapes of the query whose node produces the rows of a feed."""
        return shapes if feed.query is None or others is None else others[feed.query]

    of_inputs: dict[str, pa.Schema] = {}
    for node in query.nodes:
        sides = []
        for side in (*node.sides, *node.tables):
            schema = None if side.feed is not None else of_inputs.get(side.copy_of or side.name)
            if schema is None:
                schema = _schema(query, side, schemas, get_producer_shapes, zoned)
            if side.feed is None:
                of_inputs[side.name] = schema
            made = origins.get((node.number, side.name)) or _build_passthrough_origins(side)
            if side.kept_by is not None and others is not None:
                made = _find_stored_origins(side.kept_by, others[side.kept_by.query])
            own = _side_shape(query, node, side, schema, made)
            if side.of_others and not side.sharers:
                own = _widen_for_sharers(own, side, schema)
            if side.sharers:
                if side.sharers[0] == own.arrangement:
                    shared[own.arrangement] = _widen_for_sharers(own, side, schema)
                own = _share_runs(own, shared[side.sharers[0]])
            sides.append(own)
        for place, side in enumerate(node.sides):
            copies = tuple(
                sides[other]
                for other, copy in enumerate(node.sides)
                if copy.copy_of == side.name and copy.kept_by is None
            )
            sides[place] = replace(sides[place], copies=copies)
        kind = find_kind(node)
        shapes.append(kind.driver.shape(query, node, tuple(sides), kind.task))
        for side, shape in zip(node.sides, sides, strict=False):
            for feed in side.feeds:
                fed = _feed_shape(feed, shape, zoned, of_stage=side.feed is None)
                nodes = get_producer_shapes(feed)
                nodes[feed.node] = _add_feed(nodes[feed.node], feed, fed)
    return shapes


def _add_feed(shape: NodeShape, plan: FeedPlan, feed: FeedShape) -> NodeShape:
    """Return the node with a feed added: a destination of its rows."""
    if plan.query is not None:
        assert len(shape.abroad) == plan.place
        return replace(shape, abroad=(*shape.abroad, feed))
    if plan.path is None:
        return replace(shape, feed=feed)
    return replace(shape, path_feeds=(*shape.path_feeds, feed))


def _find_stored_origins(kept_by: Producer, nodes: Sequence[NodeShape]) -> Origins:
    """Return the origins of a side that uses another query's arrangement, as stored there."""
    sides = {shape.name: shape for shape in nodes[kept_by.node].sides}
    stored = {column.name: column for column in sides[kept_by.side].layout.columns}
    return {own: Origin(stored[there].origin, stored[there].text) for own, there in kept_by.names}


def _build_passthrough_origins(side: SidePlan) -> Origins:
    """Build the origins of another query's rows that are emitted unchanged and never stored."""
    return {name: Origin(digest_of(["taken", name]), name) for name in side.kept}


def _schema(
    query: QueryPlan,
    side: SidePlan,
    schemas: Mapping[str, pa.Schema],
    beneath: Callable[[FeedPlan], Sequence[NodeShape]],
    zoned: bool,
) -> pa.Schema:
    """Build the schema of a side's stored columns, in native types.

    The engine declares some types; the rows of feeds define the others.
    """
    fed = [_fed_schema(feed, beneath(feed)[feed.node].row_schema, zoned) for feed in side.feeds]
    if side.feed is not None:
        return fed[0]
    declared = schemas.get(f"{query.name}/{side.name}", pa.schema([]))
    for schema in fed:
        for name in (*side.kept, *(other.name for other in side.of_others)):
            if name not in declared.names:
                declared = declared.append(schema.field(name))
    return declared


def _fed_schema(feed: FeedPlan, rows: pa.Schema, zoned: bool) -> pa.Schema:
    """Build the schema of a feed's copied and computed columns, with the side's names."""
    if feed.renamed:
        rows = pa.schema([rows.field(there).with_name(own) for own, there in feed.renamed])
    fields = [rows.field(column).with_name(name) for name, column in feed.copied]
    for column in _build_computed_columns(feed, zoned):
        computed = column.of(_check_planned_types(rows, feed).empty_table())
        fields.append(pa.field(column.name, computed.type))
    return pa.schema(fields)


def _check_planned_types(rows: pa.Schema, feed: FeedPlan) -> pa.Schema:
    """Check a node's row types against those for which ``feed`` was planned.

    Returns:
        The schema of the rows, unchanged.

    Raises:
        EngineError: a column has another type.
    """
    for tree, _ in feed.computed_exact:
        for name, type_ in columns_of(tree).items():
            if not fits(rows.field(name).type, type_):
                raise EngineError(
                    f'column "{name}" has the type {sql_name(rows.field(name).type)}, but the job was'
                    f" planned for {type_}",
                    code="wrong-types",
                    hint="declare the column with the type that the source has, or cast it in a view",
                )
    return rows


def _build_computed_columns(feed: FeedPlan, zoned: bool) -> tuple[Computed, ...]:
    return tuple(
        Computed(name, tree_of(tree), type_, "the expression " + text_of(expr).replace("`", ""), zoned)
        for (name, expr), (tree, type_) in zip(feed.computed, feed.computed_exact, strict=True)
    )


def _feed_shape(feed: FeedPlan, side: SideShape, zoned: bool, *, of_stage: bool) -> FeedShape:
    return FeedShape(
        side=side,
        copied=feed.copied,
        computed=_build_computed_columns(feed, zoned),
        beneath=feed.beneath,
        filters=feed.filters,
        conditions=feed.conditions,
        not_null=feed.not_null,
        matchable=feed.matchable,
        of_stage=of_stage,
        timed=feed.timed,
        renamed=feed.renamed,
        path=feed.path if feed.query is not None else None,
    )


def _side_shape(
    query: QueryPlan, node: NodePlan, plan: SidePlan, schema: pa.Schema, origins: Origins
) -> SideShape:
    held = find_driver(node).held(query, node, plan)
    digests = {name: origin.digest for name, origin in origins.items()}
    digests |= {other.name: other.origin for other in plan.of_others}
    feeds = [] if plan.padded else plan.feeds
    never_null = set.intersection(*(set(feed.not_null) for feed in feeds)) if feeds else set()
    nullable = tuple(column for column in plan.nullable if column not in never_null)
    changes = node.changes or find_driver(node).carries_changes
    return SideShape(
        query=query.name,
        name=plan.name,
        layout=RunLayout(
            indexes=held.indexes,
            event_times=plan.event_times,
            releasing=held.releasing,
            by_value=held.by_value,
            ties=held.ties,
            watched=held.watched,
            found_by=tuple(RunKey(digest_of([digests[name] for name in key]), key) for key in held.found_by),
            counts_keys=held.counts_keys,
            key=() if held.by_value else held.keys,
            columns=(
                *(StoredColumn(name, origins[name].digest, origins[name].text) for name in plan.kept),
                *(find_null_column(name, origins[name]) for name in nullable),
            ),
        ),
        schema=pa.schema([schema.field(name) for name in plan.kept]),
        keys=held.keys,
        nullable=nullable,
        padded=plan.padded,
        carried=plan.carried,
        changes=changes,
        passes=plan.passes,
        hides_released=held.hides_released,
        hides_gone=held.hides_gone,
        memory=query.options.max_task_memory,
        not_null=plan.not_null,
        is_kept_elsewhere=plan.kept_by is not None,
        held=digest_of([digests.get(name, name) for name in held.keys]),
        most_per_key=query.options.max_rows_per_key,
        sheds_keys=query.options.at_limit.sheds,
        in_order=held.in_order,
        ranged=held.ranged and (changes or not held.found_by),  # what is kept of changes is written by tasks
    )


def _widen_for_sharers(own: SideShape, plan: SidePlan, schema: pa.Schema) -> SideShape:
    """Return the side with the columns that other sides store of its rows."""
    columns = tuple(StoredColumn(other.name, other.origin, other.text) for other in plan.of_others)
    fields = [schema.field(other.name) for other in plan.of_others]
    return replace(
        own,
        schema=pa.schema([*own.schema, *fields]),
        layout=replace(own.layout, columns=(*own.layout.columns, *columns)),
    )


def _share_runs(own: SideShape, of_all: SideShape) -> SideShape:
    """Return the side with the shared runs that others wrote of its rows.

    Returns the side unchanged if the shared runs lack a column of it in the type that its engine made.
    """
    kinds = {column.origin: of_all.schema.field(column.name).type for column in of_all.layout.columns}
    fit = all(kinds.get(c.origin) == own.schema.field(c.name).type for c in own.layout.columns)
    return replace(own, shared=of_all) if fit else own


def find_null_column(name: str, origin: Origin) -> StoredColumn:
    return StoredColumn(null_column(name), digest_of(["null", origin.digest]), f"{origin.text} IS NULL")


def tracker_rules(query: QueryPlan) -> dict[str, list[BranchRules]]:
    """Return how watermarks are computed, per alias and branch."""
    return {
        side.name: [_branch_rules(query, side, branch) for branch in side.branches] for side in query.sides
    }


def _branch_rules(query: QueryPlan, side: SidePlan, branch: BranchPlan | FeedPlan) -> BranchRules:
    if isinstance(branch, FeedPlan):
        return BranchRules(lags=dict.fromkeys(side.event_times), is_stage=True)
    return BranchRules(
        lags=dict(zip(side.event_times, branch.lags, strict=True)),
        idle_timeout_us=branch.source.idle_timeout_us,
        follow_when_idle=branch.source.on_idle is OnIdle.FOLLOW,
        partitions=branch.source.first_partitions,
        lateness=query.options.allowed_lateness if side.stages else 0,
    )
