"""Share rows, runs and arrangements that several queries of a job have in common.

The first such query in the job's order is the producer: it makes or retains them for all others, the
consumers. Sharing runs in three steps, in this order:

**Rows** (`share_rows`) of two queries, of their stages, or the rows that the queries group. Rows are the
same if the queries are the same but for aliases: sources and how they are read, conditions, kinds of join,
keys and aggregates of groups. The columns that consumers need may differ: the producer has those that any
of them needs. Over tables only, any part of a query can be shared. Over streams, only the result of all
joins of a query can be, because the result of a stream's rows depends on the watermarks of all streams
that they are joined with; or the rows of a changelog stream that is joined with nothing. Rows that can be
retracted are never the same as final rows.

**Runs** (`share_runs`) of sides of joins. They are the same if these are the same: the source (of each
branch), the lags, the flag, event times, keys, indexes and the times by which rows are released, each
compared by the expressions behind it. So aliases, and the columns that a query retains, may differ. If a
source follows other sources while it is idle, these determine which of its rows are late; its runs are
the same within one query only. The producer's ingest writes the runs, with the columns of all consumers.
Each query still records for itself which rows it has released and matched.

**Arrangements** (`share_arrangements`) of inputs of delta joins, whatever the inputs are joined with:
tables of the same source, or of stages that one query makes for both, with the same conditions. Aliases,
the keys by which rows are looked up, and the columns that a query needs may differ. The producer retains
the columns of all, partitions its rows by its own key, indexes them by the keys of all, and passes each
tick's changes to the consumers, which look up its rows as their own. If a producer is removed, its rows are
partitioned by another key (`runtime.coordinator.restore.state_transfer`). Only consumers that need rows
sorted within a key share rows that are sorted so. A row with NULL in a key of one consumer is retained
unless all consumers exclude it, because look-ups never find NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.event_time import Side
from watersmeet.names import is_ours, node_alias, ours
from watersmeet.plan.conditions.conjuncts import join_all, text_of
from watersmeet.plan.conditions.placement import place as place_conditions
from watersmeet.plan.conditions.rewrites import conjuncts_of
from watersmeet.plan.identity.origins import Origins, origins_of, side_origins
from watersmeet.plan.model.job import QueryPlan, RestingNode, ReusedRows
from watersmeet.plan.model.nodes import (
    Arranged,
    ArrangePlan,
    DeltaPlan,
    JoinPlan,
    LookupKey,
    NodePlan,
    PassPlan,
    ReusedPlan,
)
from watersmeet.plan.model.sides import BranchPlan, ColumnOfOthers, FeedPlan, Producer, SidePlan, joined_name
from watersmeet.plan.nodes.feeds import (
    Derived,
    DerivedColumns,
    ForOthers,
    StageKey,
    column_of,
    needed_columns,
)
from watersmeet.plan.nodes.tree import tree_of
from watersmeet.plan.query_inputs import refs
from watersmeet.spec.model import (
    Expr,
    Input,
    Join,
    JoinKind,
    OnIdle,
    OutputMode,
    Query,
    Relation,
    StageBranch,
    inputs_of,
    visible_inputs,
)


def pushed_down_predicate(query: Query) -> Expr | None:
    """Return the part of WHERE that the joins of a query evaluate, independent of its grouping."""
    joined = replace(query, aggregation=None)
    above = {
        text_of(conjunct.expr) for conjunct in place_conditions(tree_of(joined).nodes, query.where).after
    }
    return join_all([c.expr for c in conjuncts_of(query.where) if text_of(c.expr) not in above])


Names = Mapping[str, str]
"""Own names -> those of the other query."""

Replan = Callable[[QueryPlan, ForOthers], tuple[QueryPlan, DerivedColumns]]
"""Plans the nodes of a query again, with what others need of its rows."""


@dataclass(frozen=True)
class _Rows:
    """Rows that one node of a query, or of one of its stages, makes.

    Attributes:
        grouped: The rows are the groups; otherwise, if there are groups, their input rows.
        final: The rows are never retracted.
        timed: Streams are among the inputs below.
    """

    owner: int
    stage: StageKey
    query: Query
    node: int
    grouped: bool
    final: bool
    timed: bool


@dataclass(frozen=True)
class _CommonRows:
    """``own`` are the same rows as those of ``other``, a query before."""

    own: _Rows
    other: _Rows

    @property
    def aliases(self) -> dict[str, str]:
        """Aliases of all inputs below the rows, with the aliases of the other query as values."""
        return dict(zip(_aliases(self.own.query), _aliases(self.other.query), strict=True))


SideKey = tuple[str, int, str]
"""Query, node and name of a side; without a name, the node."""

MayReuse = Callable[[SideKey, SideKey, bool], bool]
"""Whether a consumer may go by the rows that a producer makes or keeps. True: a consumer that begins later
misses some, or the producer has to keep more, columns or rows with NULL in a key."""


def share_rows(
    queries: Sequence[QueryPlan],
    replanned: Replan,
    may_reuse: MayReuse,
) -> tuple[QueryPlan, ...]:
    """Return the queries, in which each one reuses rows of the queries before it."""
    pairs = list(_common_rows(queries, may_reuse)) if len(queries) > 1 else []
    if not pairs:
        return tuple(queries)
    involved = {same.own.owner for same in pairs} | {same.other.owner for same in pairs}
    asked: dict[int, dict[StageKey, list[Expr]]] = {number: {} for number in involved}
    wide, derived = list(queries), dict[int, DerivedColumns]()
    wanted: list[tuple[_CommonRows, Sequence[str], Mapping[str, Expr]]] = []
    for number in sorted(involved, reverse=True):  # what a query needs of those before depends on those after
        wide[number], derived[number] = replanned(queries[number], asked[number])
        for same in pairs:
            if same.own.owner != number:
                continue
            asked_for = _list_needed_columns(wide[number], same.own.node)
            own = _exprs(same.own, derived[number].get(same.own.stage, Derived()))
            exprs_there = {name: _of_aliases(expr, same.aliases) for name, expr in own.items()}
            wanted.append((same, asked_for, exprs_there))
            if not same.own.grouped:
                more = asked[same.other.owner].setdefault(same.other.stage, [])
                more += [exprs_there[name] for name in asked_for]
    taken: dict[int, list[ReusedRows]] = {}
    for same, columns, exprs in wanted:
        rows, there = same.own, same.other
        names = {name: name for name in columns}  # groups that are the same name their columns alike
        if not rows.grouped:
            names = {name: column_of(exprs[name], derived[there.owner][there.stage]) for name in columns}
        keys = (wide[one.owner].nodes[one.node].watermark_keys for one in (rows, there))
        taken.setdefault(rows.owner, []).append(
            ReusedRows(
                queries[there.owner].name,
                there.node,
                "",
                tuple((name, names[name]) for name in columns),
                number=rows.node,
                keys=tuple(zip(*keys, strict=True)),
                aliases=tuple(same.aliases.items()),
                nodes=_resting(wide[rows.owner], wide[there.owner], same),
            )
        )
    in_order = (sorted(taken.get(number, ()), key=lambda own: own.number) for number in range(len(wide)))
    return _renumber_feed_places([_taking(query, own) for query, own in zip(wide, in_order, strict=True)])


def _common_rows(queries: Sequence[QueryPlan], may_reuse: MayReuse) -> Iterator[_CommonRows]:
    """Yield the rows that each query can reuse from the queries before it."""
    made: dict[object, list[_Rows]] = {}

    def first(own: _Rows) -> _CommonRows | None:
        for other in made.get(_key(own), ()):
            same, makers = _CommonRows(own, other), (queries[own.owner], queries[other.owner])
            keys = [(made.name, rows.node, "") for made, rows in zip(makers, (own, other), strict=True)]
            if may_reuse(keys[0], keys[1], not makers[0].nodes[own.node].keeps_table) and _alike(
                *makers, same
            ):
                return same
        return None

    for number, query in enumerate(queries):
        if query.asked is None:
            continue
        fresh: list[_Rows] = []
        yield from _of_query(number, query, None, query.asked.query, query.root.number, first, fresh)
        for rows in fresh:
            made.setdefault(_key(rows), []).append(rows)


def _of_query(
    number: int,
    plan: QueryPlan,
    stage: StageKey,
    query: Query,
    root: int,
    first: Callable[[_Rows], _CommonRows | None],
    fresh: list[_Rows],
) -> Iterator[_CommonRows]:
    """Yield the rows that a query or stage can reuse, and append its own rows to `fresh`.

    Args:
        first: Returns the first earlier rows that are the same, or None.
        fresh: Receives the rows that this query makes itself.
    """
    node, made = plan.nodes[root], list[_Rows]()
    final, timed = not node.changes, not all(map(_is_table_only, query.every))
    if (stage is None and _is_of_streams(query, final=final)) if timed else not final:
        grouped = node.grouped
        if node.is_for_all:
            made.append(_Rows(number, stage, query, root, grouped is not None, final, timed))
        if grouped is not None and grouped.feed is not None:
            made.append(_Rows(number, stage, query, grouped.feed.node, False, final, timed))
    for rows in made:
        same = first(rows)
        if same is not None:
            yield same
            return
        fresh.append(rows)
    for i in () if final else query.inputs:
        for place, branch in enumerate(i.branches):
            if isinstance(branch, StageBranch):
                beneath = _stage_node(plan, (i.alias, place))
                if beneath is not None:
                    yield from _of_query(number, plan, (i.alias, place), branch.stage, beneath, first, fresh)


def _is_table_only(query: Query) -> bool:
    """Return True if the query reads only tables, which have no event time."""
    return all(i.is_table and not i.as_of and not i.event_times for i in query.inputs)


def _is_of_streams(query: Query, *, final: bool) -> bool:
    """Return True if a query's rows come from a join of sources, so that they can be shared.

    If the rows are not ``final``, tables may take part in the join, and one changelog stream may stand alone.
    Rows of stages of streams are excluded, because they may be late, and each query reports late rows that it
    retains.
    """
    if any(i.as_of for i in query.inputs):
        return False
    if not all(_is_table_only(part) for i in query.inputs for stage in i.stages for part in stage.every):
        return False
    return isinstance(query.relation, Join) or not final


def _stage_node(plan: QueryPlan, stage: tuple[str, int]) -> int | None:
    """Return the number of the last node of a stage, or None if the plan has no such stage."""
    alias, place = stage
    for node in plan.nodes:
        for side in node.sides:
            if side.name == alias and side.feed is None:
                for number, feed in side.stages:
                    if number == place:
                        return feed.node
    return None


def _key(rows: _Rows) -> object:
    """Return a key that is equal for the same rows, whatever their aliases are."""
    aggregation = rows.query.aggregation
    groups: object = None
    if aggregation is not None:
        own = _positions(rows.query)
        if rows.grouped:  # whatever HAVING says: that is asked of groups that leave
            keys, calls = (
                tuple((column.name, _text(column.expr, own)) for column in columns)
                for columns in (aggregation.keys, aggregation.aggregates)
            )
            groups = (keys, calls)
    what = "groups" if rows.grouped else "rows"
    return what, rows.final, _relation_key(rows.query, joined_alone=rows.timed and not rows.grouped), groups


def _relation_key(query: Query, *, joined_alone: bool = False) -> object:
    """Return a key of the inputs, joins and predicates of a query that ignores aliases.

    Args:
        joined_alone: Ignore predicates on rows that leave the last join.
    """
    own = _positions(query)
    where = pushed_down_predicate(query) if joined_alone else query.where
    return _part_key(query.relation, own), _text(where, own)


def _part_key(part: Relation, own: Names) -> object:
    if isinstance(part, Input):
        branches: list[object] = []
        for branch in part.branches:
            columns = tuple(map(text_of, branch.columns))
            if isinstance(branch, StageBranch):
                branches.append((_stage_key(branch.stage), columns, _text(branch.above, {})))
            else:
                conditions = _text(branch.beneath, {}), _text(branch.above, {})
                branches.append((branch.source.name, columns, *conditions, branch.lags))
        declared = tuple((column.name, str(column.type)) for column in part.columns)
        return "input", declared, tuple(branches), part.broadcast, part.event_times
    return (
        part.kind.value,
        _part_key(part.left, own),
        _part_key(part.right, own),
        *(_text(expr, own) for expr in (part.on, part.where, part.match)),
        part.plan,
    )


def _stage_key(query: Query) -> object:
    """Return a key of a stage that is part of another relation, which includes its columns."""
    own = _positions(query)
    outputs = tuple((output.name, _text(output.expr, own)) for output in query.outputs)
    aggregation, groups = query.aggregation, None
    if aggregation is not None:
        columns = (*aggregation.keys, *aggregation.aggregates)
        having = None if aggregation.having is None else text_of(aggregation.having)
        groups = (
            repr(aggregation.window),
            repr(aggregation.ranking),
            tuple((c.name, _text(c.expr, own)) for c in columns),
            having,
        )
    return _relation_key(query), outputs, groups


def _positions(query: Query) -> dict[str, str]:
    return {i.alias: str(place) for place, i in enumerate(inputs_of(query.relation))}


def _text(expr: Expr | None, aliases: Names) -> str | None:
    return None if expr is None else text_of(_of_aliases(expr, aliases))


def _of_aliases(expr: Expr, aliases: Names) -> Expr:
    tree = expr.copy()
    for column in list(tree.find_all(exp.Column)):
        if column.table:
            column.set("table", exp.to_identifier(aliases[column.table], quoted=True))
    return tree


def _aliases(query: Query) -> Iterator[str]:
    """Yield the aliases of all inputs, stages included, in the same order for equal queries."""
    for i in query.inputs:
        yield i.alias
        for stage in i.stages:
            yield from _aliases(stage)


def _list_needed_columns(plan: QueryPlan, number: int) -> list[str]:
    """Return the columns that others need of the rows of a node, in one fixed order."""
    parent = plan.parent(number)
    if parent is not None:
        return sorted(needed_columns(parent[2]))
    exprs = [output.expr for output in plan.outputs]
    exprs += [expr for expr in (plan.where, plan.rows_of_key) if expr is not None]
    columns = sorted({name for expr in exprs for _, name in refs(expr)})
    if columns:
        return columns
    return [plan.nodes[number].any_column]


def _exprs(rows: _Rows, derived: Derived) -> dict[str, Expr]:
    """Return the expression over inputs of each column that others may request of the rows."""
    if rows.grouped:
        return {}
    exprs: dict[str, Expr] = {}
    for i in visible_inputs(rows.query.relation):
        for column in i.columns:
            exprs[joined_name(i.alias, column.name)] = _column(i.alias, column.name)
        for name, expr in derived.columns.get(i.alias, {}).items():
            exprs[joined_name(i.alias, name)] = expr.transform(
                lambda e, alias=i.alias: _column(alias, e.name) if isinstance(e, exp.Column) else e
            )
    return exprs


def _column(alias: str, name: str) -> Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def _list_subtree_nodes(plan: QueryPlan, number: int) -> list[NodePlan]:
    """Return a node and all nodes below it, each once, in the same order for equal nodes."""
    nodes: dict[int, NodePlan] = {}

    def walk(node: NodePlan) -> None:
        if node.number in nodes:
            return
        nodes[node.number] = node
        for side in node.sides:
            for feed in side.feeds:
                walk(plan.nodes[feed.node])

    walk(plan.nodes[number])
    return list(nodes.values())


def _alike(plan: QueryPlan, other: QueryPlan, same: _CommonRows) -> bool:
    """Return True if the planner made equal nodes for both, with joins in the same order.

    State stores the rows of joins above other joins by the names of their inputs. For streams these
    names have to be equal; otherwise a run could not resume without the query that makes the rows.
    """
    if same.own.timed and any(own != there for own, there in same.aliases.items()):
        nodes = _list_subtree_nodes(plan, same.own.node)
        feeds = [side.feed for node in nodes for side in node.sides if side.feed is not None]
        if any(feed.path is None for feed in feeds):
            return False
    return _form(plan, same.own) == _form(other, same.other)


def _form(plan: QueryPlan, rows: _Rows) -> object:
    """Return a form of the nodes and their sides that ignores the names of inputs.

    For streams the form includes the bounds that release rows.
    """
    places = {alias: place for place, alias in enumerate(_aliases(rows.query))}
    nodes = _list_subtree_nodes(plan, rows.node)
    numbers = {node.number: place for place, node in enumerate(nodes)}

    def replace_alias_by_place(key: str) -> tuple[int | None, str]:
        alias = max((name for name in places if key.startswith(f"{name}.")), key=len, default="")
        return places.get(alias), key.removeprefix(alias)

    def bounds(node: NodePlan) -> list[object]:
        others = [
            other
            for of in plan.every(ArrangePlan)
            if of.number == node.number
            for retention in of.retentions
            for other in retention.others
        ]
        return [
            (replace_alias_by_place(bound.evicted), replace_alias_by_place(bound.by), bound.c)
            for one in (node, *others)
            for bound in one.bounds
        ]

    return [
        (
            type(node),
            bounds(node) if rows.timed else (),
            [
                (
                    [places.get(i.alias) for i in side.inputs],
                    [numbers[feed.node] for feed in side.feeds],
                    len(side.branches),
                    places.get(side.copy_of or ""),
                    side.padded,
                )
                for side in node.sides
            ],
        )
        for node in nodes
    ]


def _resting(plan: QueryPlan, other: QueryPlan, same: _CommonRows) -> tuple[RestingNode, ...]:
    pairs = zip(
        _list_subtree_nodes(plan, same.own.node), _list_subtree_nodes(other, same.other.node), strict=True
    )
    return tuple(
        RestingNode(
            own.number,
            theirs.number,
            tuple((side.name, there.name) for side, there in zip(own.sides, theirs.sides, strict=True)),
        )
        for own, theirs in pairs
    )


def _taking(query: QueryPlan, taken: Sequence[ReusedRows]) -> QueryPlan:
    """Return the query with its reused nodes replaced by `ReusedPlan`, which does not run.

    A reused root becomes a passthrough node that emits the rows of the other query.
    """
    if not taken:
        return query
    resting = {node.number for own in taken for node in own.nodes}
    by_node = {own.number: own for own in taken}

    def foreign(feed: FeedPlan) -> FeedPlan:
        own = by_node.get(feed.node)
        return feed if own is None else replace(feed, node=own.node, query=own.query, renamed=own.names)

    def redirect_side_feed(feed: FeedPlan) -> FeedPlan:
        own = by_node.get(feed.node)
        return feed if own is None else replace(foreign(feed), event_times=own.keys)

    def side(plan: SidePlan) -> SidePlan:
        branches = tuple(foreign(b) if isinstance(b, FeedPlan) else b for b in plan.branches)
        return replace(
            plan, branches=branches, feed=None if plan.feed is None else redirect_side_feed(plan.feed)
        )

    nodes: list[NodePlan] = []
    for node in query.nodes:
        if node.number not in resting:
            nodes.append(replace(node, sides=tuple(map(side, node.sides))))
        elif node is query.root:
            sides = (side(_passing(node, by_node[node.number])),)
            nodes.append(PassPlan(number=node.number, sides=sides, changes=node.changes))
        else:
            nodes.append(ReusedPlan(number=node.number, sides=(), changes=node.changes))
    return replace(query, nodes=tuple(nodes), taken=tuple(taken), complete=query.nodes)


def _passing(root: NodePlan, taken: ReusedRows) -> SidePlan:
    """Build the side of a node that emits the rows of another query as they arrive."""
    names = tuple(name for name, _ in taken.names)
    return SidePlan(
        name=node_alias(root.number),
        inputs=(Input("", root.columns, (), ()),),
        branches=(),
        feed=FeedPlan(
            node=root.number,
            copied=tuple((name, name) for name in names),
        ),
        event_times=(),
        kept=names,
        carried=names,
        nullable=(),
        padded=False,
        passes=True,
    )


_RunKey = tuple[object, ...]
_Place = tuple[int, int, int]
"""Of a side: the number of its query, of its node, and its own in that."""


def share_runs(queries: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """Return the queries with their sides saying which of them are the same; see `SidePlan.sharers`."""
    plans: dict[_Place, SidePlan] = {}
    places_by_key: dict[_RunKey, list[_Place]] = {}
    for number, query in enumerate(queries):
        for join in query.every(JoinPlan):
            for place, (side, plan) in enumerate(zip(Side, join.sides, strict=True)):
                plans[number, join.number, place] = plan
                key = _run_key(query, join, side)
                if key is not None:
                    places_by_key.setdefault(key, []).append((number, join.number, place))
    for places in places_by_key.values():
        if len(places) > 1:
            names = tuple(f"{queries[place[0]].name}/{plans[place].name}" for place in places)
            plans[places[0]] = _with_columns_of(plans[places[0]], [plans[place] for place in places[1:]])
            plans |= {place: replace(plans[place], sharers=names) for place in places}

    def sharing(number: int, node: NodePlan) -> NodePlan:
        sides = (plans.get((number, node.number, place), own) for place, own in enumerate(node.sides))
        return replace(node, sides=tuple(sides))

    return tuple(
        replace(query, nodes=tuple(sharing(number, node) for node in query.nodes))
        for number, query in enumerate(queries)
    )


def _run_key(query: QueryPlan, node: JoinPlan, side: Side) -> _RunKey | None:
    """Return a key that is equal for sides that store the same rows in the same way.

    A side is not shared if its rows leave before they are released (SEMI, ASOF, changes, limits), if
    its join has no equality key or has BROADCAST, because their tasks hold other parts of it, or if its
    key is computed, because the other side may decide the type of the key.

    Returns:
        None if the side cannot be shared.
    """
    if node.changes or node.asof is not None or query.options.at_limit.sheds:
        return None
    plan = node.side(side)
    keys = [key.column(side) for key in node.keys]
    if not keys or any(map(is_ours, keys)) or node.by_value or node.broadcast is not None:
        return None
    if plan.feed is not None or plan.stages or plan.passes or plan.nullable:
        return None
    if node.kind is JoinKind.SEMI and side is Side.LEFT:
        return None
    origins = side_origins(plan)

    def list_origin_digests(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, origins[name].digest) for name in names)

    evicted = {bound.evicted for bound in node.bounds}
    indexes = node.indexes(side)
    follows = any(branch.source.on_idle is OnIdle.FOLLOW for _, branch in plan.sources)
    return (
        query.name if follows or node.horizon is not None else None,
        tuple(
            (branch.source.name, branch.lags, None if branch.flag is None else text_of(branch.flag))
            for _, branch in plan.sources
        ),
        list_origin_digests(plan.event_times),
        list_origin_digests(keys),
        list_origin_digests(sorted(plan.not_null)),
        tuple((repr(index), origins[index.column].digest) for index in indexes),
        tuple(c for c in plan.event_times if plan.watermark_key(c) in evicted),
    )


def _with_columns_of(owner: SidePlan, others: Sequence[SidePlan]) -> SidePlan:
    """Return the side with the additional columns that other sides retain."""
    there = {side_origins(owner)[name].digest for name in owner.kept}
    columns: list[ColumnOfOthers] = []
    branches = [list(branch.columns) for _, branch in owner.sources]
    for other in others:
        origins = side_origins(other)
        types = {column.name: column.type for column in other.input.columns}
        for name in other.kept:
            origin = origins[name]
            if origin.digest in there:
                continue
            there.add(origin.digest)
            own_name = ours(f"others:{len(columns)}")
            columns.append(ColumnOfOthers(own_name, origin.digest, origin.text, types.get(name)))
            for own, (_, branch) in zip(branches, other.sources, strict=True):
                own.append((own_name, dict(branch.columns)[name]))
    numbered = {number: own for (number, _), own in zip(owner.sources, branches, strict=True)}
    return replace(
        owner,
        of_others=tuple(columns),
        branches=tuple(
            replace(branch, columns=tuple(numbered[number])) if isinstance(branch, BranchPlan) else branch
            for number, branch in enumerate(owner.branches)
        ),
    )


_Way = tuple[str, int | None]
"""Where rows are found in one way: the name of the side, and the number of the further key there (None: its
own)."""

_How = tuple[tuple[object, ...], tuple[object, ...]]
"""A way to find rows: by which columns they are hashed, and by what they are sorted within a hash; of what
these are made."""

_Columns = Mapping[str, object]
"""Per column of a side, of what it is made: the same, whatever the query calls it."""


@dataclass(frozen=True)
class _ArrangedInput:
    """An input of a delta join whose arrangement may be shared.

    Attributes:
        place: number of the query.
        node: number of the node that arranges the inputs.
        path: number of the input among the inputs.
        ways: how the input's rows are found: side, and number of the further key (None: the side's own key).
        keys: the look-up key of each way, with this query's column names.
        origins: origins of its columns, for the state.
        has_bands: some look-ups also search ranges of values.
    """

    place: int
    node: int
    path: int
    side: SidePlan
    columns: _Columns
    ways: Mapping[_How, _Way]
    keys: Mapping[_How, LookupKey]
    origins: Origins
    has_bands: bool

    @property
    def by_side(self) -> dict[str, list[_How]]:
        """The look-up methods of each side, with its own key first."""
        sides: dict[str, list[_How]] = {}
        for how, (name, _) in sorted(self.ways.items(), key=lambda way: way[1][1] is not None):
            sides.setdefault(name, []).append(how)
        return sides

    @property
    def nowhere_null(self) -> set[object]:
        """Columns that must have a value; state does not retain a row with NULL in one of them."""
        return {self.columns[name] for name in _not_null(self.side)}


def share_arrangements(queries: Sequence[QueryPlan], may_reuse: MayReuse) -> tuple[QueryPlan, ...]:
    """Return the queries, whose delta joins share inputs that earlier queries retain."""
    plans, keepers = list(queries), dict[object, list[_ArrangedInput]]()
    for place, query in enumerate(queries):
        if query.options.mode is not OutputMode.CHANGELOG:
            continue
        fresh: list[tuple[object, _ArrangedInput]] = []
        for own in _arranged_inputs(place, query):
            key = _arrangement_key(query, own)
            others = keepers.get(key, [])
            fitting = (n for n, o in enumerate(others) if _fits(query, own, queries[o.place], o, may_reuse))
            number = next(fitting, None)
            if number is None:
                fresh.append((key, own))
                continue
            other = others[number]
            plans[other.place], names, ways = _wider(plans[other.place], other, own)
            others[number] = _with_columns_of_keeper(plans[other.place], replace(other, ways=ways), own)
            plans[place] = _looking(plans[place], own, queries[other.place].name, others[number], names)
        for key, own in fresh:
            keepers.setdefault(key, []).append(own)
    if all(plan is query for plan, query in zip(plans, queries, strict=True)):
        return tuple(queries)
    return _renumber_feed_places(plans)


def _arranged_inputs(place: int, query: QueryPlan) -> Iterator[_ArrangedInput]:
    """Yield the tables of the delta joins that a query makes itself."""
    nodes = query.every(ArrangePlan)
    origins = origins_of(query.alone.nodes) if nodes else {}
    for node in nodes:
        if node.retentions:
            continue  # tables beside streams: each query keeps its own
        for path, side in enumerate(node.leaving):
            columns = _columns(query, side)
            if columns is None:
                continue
            ways, keys, is_clear = dict[_How, _Way](), dict[_How, LookupKey](), True
            for held, arranged in zip(node.sides, node.arranged, strict=True):
                if held is side or held.copy_of == side.name:
                    # runs know by its name what they are sorted by
                    indexes = tuple((repr(index), columns[index.column]) for index in arranged.indexes)
                    for by, key in enumerate([LookupKey(arranged.keys, arranged.key), *arranged.others], -1):
                        how = tuple(columns[name] for name in key.keys), indexes if by < 0 else ()
                        is_clear &= how not in ways  # a view may have one column under two names
                        ways[how], keys[how] = (held.name, None if by < 0 else by), key
            if not is_clear:
                continue
            of_side = origins[node.number, side.name]
            yield _ArrangedInput(
                place, node.number, path, side, columns, ways, keys, of_side, _has_bands(query, node)
            )


def _has_bands(query: QueryPlan, node: ArrangePlan) -> bool:
    joins = [
        lookup.join
        for step in query.every(DeltaPlan)
        if step.arrangements == node.number
        for lookup in step.lookups
    ]
    return any(join.bands or join.values.exact or join.values.real for join in joins)


def _not_null(side: SidePlan) -> set[str]:
    return {*side.not_null, *(name for feed in side.feeds for name in feed.not_null)}


def _columns(query: QueryPlan, side: SidePlan) -> _Columns | None:
    """Return the origin of each column of a side.

    Returns:
        None if no other query could share the side.
    """
    if side.feed is not None or side.event_times or side.passes or side.padded:
        return None
    types = {column.name: str(column.type) for column in side.input.columns}
    parts = [_of_branch(query, branch) for branch in side.branches]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: (types.get(name), tuple(part.get(name) for part in parts)) for name in names}


def _of_branch(query: QueryPlan, branch: BranchPlan | FeedPlan) -> _Columns:
    if isinstance(branch, BranchPlan):
        return {name: text_of(expr) for name, expr in branch.columns}
    there = dict(branch.renamed)
    columns: dict[str, object] = {name: ("column", there.get(c, c)) for name, c in branch.copied}
    return columns | {name: text_of(_rename_columns(expr, there)) for name, expr in branch.computed}


def _rename_columns(expr: Expr, there: Mapping[str, str]) -> Expr:
    return expr.transform(
        lambda e: (
            exp.column(exp.to_identifier(there[e.name], quoted=True))
            if isinstance(e, exp.Column) and e.name in there
            else e
        )
    )


def _arrangement_key(query: QueryPlan, own: _ArrangedInput) -> object:
    """Return a key that is equal for inputs with the same retained rows."""
    side, columns = own.side, own.columns
    branches: list[object] = []
    for branch in side.branches:
        if isinstance(branch, BranchPlan):
            flag = None if branch.flag is None else text_of(branch.flag)
            branches.append((branch.source.name, flag))
        else:
            asked = [
                sorted(repr(columns[name]) for name in names)
                for names in (branch.beneath, branch.filters, branch.conditions)
            ]
            branches.append((branch.query or query.name, branch.node, repr(asked), branch.matchable))
    return tuple(branches)


def _fits(
    query: QueryPlan, own: _ArrangedInput, keeper: QueryPlan, other: _ArrangedInput, may_reuse: MayReuse
) -> bool:
    """Return True if the other input has, or can gain, all indexes and columns that `own` needs."""
    homes = _homes(own, other)
    if homes is None:
        return False
    if own.nowhere_null != other.nowhere_null and (own.has_bands or other.has_bands):
        return False
    held = set(other.columns.values())
    kept = {other.columns[name] for name in _collect_retained_columns(other.side)}
    more = bool({own.columns[name] for name in own.side.kept} - kept or other.nowhere_null - own.nowhere_null)
    more = more or bool(own.ways.keys() - other.ways.keys())
    for name in own.side.kept:
        if own.columns[name] not in held and any(
            isinstance(branch, FeedPlan) and name not in dict(branch.copied) for branch in own.side.branches
        ):
            return False  # computed of what a stage puts out, by names of its own
    return all(
        may_reuse((query.name, own.node, name), (keeper.name, other.node, there), more)
        for name, there in homes.items()
    )


def _homes(own: _ArrangedInput, other: _ArrangedInput) -> dict[str, str] | None:
    """Map each side of an input to the side of the other input that finds its rows.

    That side finds rows in all ways that the input needs, or can gain the missing ones.

    Returns:
        None if a side has no counterpart.
    """
    homes: dict[str, str] = {}
    for name, ways in own.by_side.items():
        is_sorted = bool(ways[0][1])
        there, number = other.ways.get(ways[0], (other.side.name, 0))
        if is_sorted and (ways[0] not in other.ways or number is not None):
            return None
        for how in ways:
            place = other.ways.get(how)
            if place is None and (there != other.side.name or not how[0]):
                return None
            if place is not None and place[0] != there:
                return None
        homes[name] = there
    return homes


def _wider(
    keeper: QueryPlan, other: _ArrangedInput, own: _ArrangedInput
) -> tuple[QueryPlan, dict[str, str], dict[_How, _Way]]:
    """Return the keeper query, extended by the columns and keys that another input needs.

    Returns:
        The query, the names of the columns there, and the ways in which rows are found there.
    """
    side, columns = other.side, other.columns
    by_content = {
        content: name for name, content in columns.items() if name in _collect_retained_columns(side)
    }
    names: dict[str, str] = {}
    more: list[ColumnOfOthers] = []
    branches = list(side.branches)
    for name in own.side.kept:
        content = own.columns[name]
        if content in by_content:
            names[name] = by_content[content]
            continue
        there = name if name not in columns else ours(f"others:{len(side.of_others) + len(more)}")
        origin = own.origins[name]
        types = {column.name: column.type for column in own.side.input.columns}
        more.append(ColumnOfOthers(there, origin.digest, origin.text, types.get(name)))
        branches = [
            _with_column(branch, theirs, name, there)
            for branch, theirs in zip(branches, own.side.branches, strict=True)
        ]
        by_content[content] = names[name] = there

    asked = {name for name in _not_null(side) if columns[name] in own.nowhere_null}

    def wide(held: SidePlan) -> SidePlan:
        if side.name not in (held.name, held.copy_of):
            return held
        return replace(
            held,
            branches=tuple(_restrict_not_null(b, asked) for b in branches) if held.name == side.name else (),
            of_others=(*held.of_others, *more),
            not_null=tuple(name for name in held.not_null if name in asked),
        )

    ways, further = dict(other.ways), list[LookupKey]()
    for how, key in own.keys.items():
        if how not in ways:
            ways[how] = side.name, sum(there == side.name for there, _ in ways.values()) - 1
            columns_there = tuple(names[name] for name in key.keys)
            further.append(LookupKey(columns_there, key.key))

    keeper = _with_sides(keeper, other.node, wide)
    if further:
        node = _arrangements(keeper, other.node)
        held = node.arranged[other.path]
        arranged = list(node.arranged)
        arranged[other.path] = replace(held, others=(*held.others, *further))
        nodes = list(keeper.nodes)
        nodes[other.node] = replace(node, arranged=tuple(arranged))
        keeper = replace(keeper, nodes=tuple(nodes))
    return keeper, names, ways


def _restrict_not_null(branch: BranchPlan | FeedPlan, not_null: set[str]) -> BranchPlan | FeedPlan:
    if isinstance(branch, BranchPlan):
        return branch
    return replace(branch, not_null=tuple(name for name in branch.not_null if name in not_null))


def _with_columns_of_keeper(keeper: QueryPlan, other: _ArrangedInput, own: _ArrangedInput) -> _ArrangedInput:
    """Return an input that an additional query shares, with the columns of its keeper."""
    side = keeper.nodes[other.node].sides[other.path]
    columns = _columns(keeper, side)
    assert columns is not None
    return replace(other, side=side, columns=columns, has_bands=other.has_bands or own.has_bands)


def _collect_retained_columns(side: SidePlan) -> set[str]:
    return {*side.kept, *(column.name for column in side.of_others)}


def _with_column(
    branch: BranchPlan | FeedPlan, theirs: BranchPlan | FeedPlan, name: str, there: str
) -> BranchPlan | FeedPlan:
    """Return a branch with the column `name` of another branch that reads the same rows."""
    if isinstance(branch, BranchPlan):
        assert isinstance(theirs, BranchPlan)
        return replace(branch, columns=(*branch.columns, (there, dict(theirs.columns)[name])))
    assert isinstance(theirs, FeedPlan)
    column = dict(theirs.copied)[name]
    column = dict(theirs.renamed).get(column, column)
    if branch.query is None:
        return replace(branch, copied=(*branch.copied, (there, column)))
    own = next((own for own, other in branch.renamed if other == column), ours(f"of_others:{column}"))
    renamed = dict(branch.renamed) | {own: column}
    return replace(branch, copied=(*branch.copied, (there, own)), renamed=tuple(renamed.items()))


def _looking(
    query: QueryPlan, own: _ArrangedInput, keeper: str, other: _ArrangedInput, names: Mapping[str, str]
) -> QueryPlan:
    """Return the query, which looks up the rows of an input in the query that retains them."""
    columns = tuple((name, names[name]) for name in own.side.kept)
    homes = _homes(own, other)
    assert homes is not None
    alias, there = own.side.name, other.side.name
    feed = FeedPlan(
        node=other.node,
        copied=tuple((name, joined_name(alias, name)) for name, _ in columns),
        path=other.path,
        query=keeper,
        renamed=tuple((joined_name(alias, name), joined_name(there, column)) for name, column in columns),
    )

    def looking(held: SidePlan) -> SidePlan:
        if held.name not in homes:
            return held
        kept_by = Producer(keeper, other.node, homes[held.name], columns)
        return replace(held, branches=(feed,) if held.copy_of is None else (), kept_by=kept_by)

    def looked_up(held: SidePlan, arranged: Arranged) -> Arranged:
        """Return the arrangement with the key that rows are stored by, and all other keys.

        The first key is the storage key if it is one of the input's own keys.
        """
        if held.name not in homes:
            return arranged
        ways = own.by_side[held.name]
        first = [how for how in ways if other.ways[how][1] is None]
        others = [how for how in ways if how not in first]
        key = own.keys[(first or others)[0]]
        indexes = arranged.indexes if ways[0] in first else ()
        return Arranged(key.keys, indexes, key.key, tuple(own.keys[how] for how in others))

    return _with_sides(query, own.node, looking, looked_up)


def _with_sides(
    query: QueryPlan,
    number: int,
    changed: Callable[[SidePlan], SidePlan],
    by_keys: Callable[[SidePlan, Arranged], Arranged] = lambda side, arranged: arranged,
) -> QueryPlan:
    """Return the query with changed sides and look-up keys of one of its arrangements.

    The change also applies to the steps that look rows up in this arrangement.
    """
    node, nodes = _arrangements(query, number), dict[int, NodePlan]()
    for step in query.every(DeltaPlan):
        if step.arrangements == number:
            met_arranged = tuple(map(by_keys, step.met, step.met_arranged))
            nodes[step.number] = replace(
                step,
                met=tuple(replace(met, kept_by=changed(met).kept_by) for met in step.met),
                met_arranged=met_arranged,
                lookups=tuple(
                    replace(lookup, by=_number_of_key(before.keys_of(lookup.by), after))
                    for lookup, before, after in zip(
                        step.lookups, step.met_arranged, met_arranged, strict=True
                    )
                ),
            )
    nodes[number] = replace(
        node,
        sides=tuple(map(changed, node.sides)),
        arranged=tuple(map(by_keys, node.sides, node.arranged)),
    )
    run = tuple(nodes.get(node.number, node) for node in query.nodes)
    return replace(query, nodes=run, complete=query.complete or query.nodes)


def _arrangements(query: QueryPlan, number: int) -> ArrangePlan:
    return next(node for node in query.every(ArrangePlan) if node.number == number)


def _number_of_key(keys: Sequence[str], arranged: Arranged) -> int | None:
    """Return the number of the additional key with these columns.

    Returns:
        None if rows are stored by this key.
    """
    further = [other.keys for other in arranged.others]
    return None if keys == arranged.keys and keys not in further else further.index(tuple(keys))


def _renumber_feed_places(queries: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """Return the queries with renumbered places for rows that feed nodes of other queries."""
    places: dict[tuple[str, int], int] = {}

    def renumber_feed(feed: FeedPlan) -> FeedPlan:
        if feed.query is None:
            return feed
        place = places[feed.query, feed.node] = places.get((feed.query, feed.node), -1) + 1
        return replace(feed, place=place)

    def side(plan: SidePlan) -> SidePlan:
        branches = tuple(renumber_feed(b) if isinstance(b, FeedPlan) else b for b in plan.branches)
        return replace(plan, branches=branches, feed=None if plan.feed is None else renumber_feed(plan.feed))

    return tuple(
        replace(query, nodes=tuple(replace(node, sides=tuple(map(side, node.sides))) for node in query.nodes))
        for query in queries
    )
