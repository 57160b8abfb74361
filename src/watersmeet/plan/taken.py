"""Rule: which rows several queries of a job make in the same way: one of them makes them for all.

The same are the rows of two queries, of stages of theirs, or those that they group, if what is asked is the
same but for aliases: sources and how they are read, conditions, kinds of join, keys and aggregates of groups;
which columns are asked of them may differ. The first query in the job's order makes them, with the columns
that any needs.

Where only tables are beneath, that may be any part of a query. Where streams are, it is what all joins of a
query come to, for what a stream's rows come to depends on the watermarks of all that they are joined with; or
the rows of a stream of changes that is joined with nothing. Rows that come and go are never those that are
final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.names import node_alias
from watersmeet.plan.asked_beneath import asked_beneath
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.join_inputs import refs
from watersmeet.plan.model.delta import ArrangePlan
from watersmeet.plan.model.job import QueryPlan, Taken, TakenNode
from watersmeet.plan.model.nodes import NodePlan, PassPlan, RestPlan
from watersmeet.plan.model.sides import FeedPlan, SidePlan, joined_name
from watersmeet.plan.nodes.feed import Derived, needed
from watersmeet.plan.nodes.for_others import DerivedColumns, ForOthers, StageKey, column_of
from watersmeet.spec.model import (
    Expr,
    Input,
    Join,
    Query,
    Relation,
    StageBranch,
    inputs_of,
    visible_inputs,
)

Names = Mapping[str, str]
"""Own names -> those of the other query."""

Replan = Callable[[QueryPlan, ForOthers], tuple[QueryPlan, DerivedColumns]]
"""Plans the nodes of a query again, with what others need of its rows."""


@dataclass(frozen=True)
class _Rows:
    """Rows that a query makes: of a stage of it, at node ``node``. ``grouped``: those of its groups; else
    those that come to be grouped, if there are groups. ``final``: they are never taken back; ``timed``:
    streams are beneath."""

    owner: int
    stage: StageKey
    query: Query
    node: int
    grouped: bool
    final: bool
    timed: bool


@dataclass(frozen=True)
class _Same:
    """``own`` are the same rows as those of ``other``, a query before."""

    own: _Rows
    other: _Rows

    @property
    def aliases(self) -> dict[str, str]:
        """Of all inputs beneath."""
        return dict(zip(_aliases(self.own.query), _aliases(self.other.query), strict=True))


MayTake = Callable[[str, int, str, int], bool]
"""Whether a query may take, in place of a node's rows, those of another query's node."""


def with_taken(
    queries: Sequence[QueryPlan],
    replanned: Replan,
    may_take: MayTake,
) -> tuple[QueryPlan, ...]:
    """The queries, each with the rows that it takes of those before."""
    pairs = list(_found(queries, may_take)) if len(queries) > 1 else []
    if not pairs:
        return tuple(queries)
    involved = {same.own.owner for same in pairs} | {same.other.owner for same in pairs}
    asked: dict[int, dict[StageKey, list[Expr]]] = {number: {} for number in involved}
    wide, derived = list(queries), dict[int, DerivedColumns]()
    wanted: list[tuple[_Same, Sequence[str], Mapping[str, Expr]]] = []
    for number in sorted(involved, reverse=True):  # what a query needs of those before depends on those after
        wide[number], derived[number] = replanned(queries[number], asked[number])
        for same in pairs:
            if same.own.owner != number:
                continue
            asked_for = _needed(wide[number], same.own.node)
            own = _exprs(same.own, derived[number].get(same.own.stage, Derived()))
            exprs_there = {name: _of_aliases(expr, same.aliases) for name, expr in own.items()}
            wanted.append((same, asked_for, exprs_there))
            if not same.own.grouped:
                more = asked[same.other.owner].setdefault(same.other.stage, [])
                more += [exprs_there[name] for name in asked_for]
    taken: dict[int, list[Taken]] = {}
    for same, columns, exprs in wanted:
        names = _of_groups(same) if same.own.grouped else {}
        if not same.own.grouped:
            computed = derived[same.other.owner][same.other.stage]
            names = {name: column_of(exprs[name], computed) for name in columns}
        taken.setdefault(same.own.owner, []).append(
            Taken(
                number=same.own.node,
                query=queries[same.other.owner].name,
                node=same.other.node,
                columns=tuple((name, names[name]) for name in columns),
                keys=tuple(_keys_of(wide, same)),
                aliases=tuple(same.aliases.items()),
                nodes=_resting(wide[same.own.owner], wide[same.other.owner], same),
            )
        )
    places: Counter[tuple[str, int]] = Counter()
    return tuple(
        _taking(query, sorted(taken.get(number, ()), key=lambda own: own.number), places)
        for number, query in enumerate(wide)
    )


def _found(queries: Sequence[QueryPlan], may_take: MayTake) -> Iterator[_Same]:
    """What each query can take of those before."""
    made: dict[object, list[_Rows]] = {}

    def first(own: _Rows) -> _Same | None:
        for other in made.get(_key(own), ()):
            same, names = _Same(own, other), (queries[own.owner].name, queries[other.owner].name)
            if may_take(names[0], own.node, names[1], other.node) and _alike(
                queries[own.owner], queries[other.owner], same
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
    first: Callable[[_Rows], _Same | None],
    fresh: list[_Rows],
) -> Iterator[_Same]:
    """What a query, or stage, can take; ``first``: of the first that makes the same. What it makes itself
    comes to be in ``fresh``."""
    node, made = plan.nodes[root], list[_Rows]()
    final, timed = not node.changes, not all(map(_is_kept, query.every))
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


def _is_kept(query: Query) -> bool:
    """Tables alone, which have no time."""
    return all(i.is_table and not i.as_of and not i.event_times for i in query.inputs)


def _is_of_streams(query: Query, *, final: bool) -> bool:
    """Joins of sources; where rows come and go of tables, too, or one stream of changes. (Rows of stages of
    streams may be late, and each query says so of those that it keeps.)"""
    if any(i.as_of for i in query.inputs):
        return False
    if not all(_is_kept(part) for i in query.inputs for stage in i.stages for part in stage.every):
        return False
    return isinstance(query.relation, Join) or not final


def _stage_node(plan: QueryPlan, stage: tuple[str, int]) -> int | None:
    """The last node of a stage."""
    alias, place = stage
    for node in plan.nodes:
        for side in node.sides:
            if side.name == alias and side.feed is None:
                for number, feed in side.stages:
                    if number == place:
                        return feed.node
    return None


def _key(rows: _Rows) -> object:
    """What is equal for rows that are the same, whatever aliases say."""
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
    """``joined_alone``: what is asked of rows that leave the last join does not count."""
    own = _positions(query)
    where = asked_beneath(query) if joined_alone else query.where
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
    """Of a stage as part of something: its columns count."""
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
    """Of all inputs, those of stages too, in one order for queries that are the same."""
    for i in query.inputs:
        yield i.alias
        for stage in i.stages:
            yield from _aliases(stage)


def _needed(plan: QueryPlan, number: int) -> list[str]:
    """The columns that are asked of a node's rows, in one order."""
    parent = plan.parent(number)
    if parent is not None:
        return sorted(needed(parent[2]))
    exprs = [output.expr for output in plan.outputs]
    exprs += [expr for expr in (plan.where, plan.rows_of_key) if expr is not None]
    columns = sorted({name for expr in exprs for _, name in refs(expr)})
    if columns:
        return columns
    return [plan.nodes[number].any_column]


def _exprs(rows: _Rows, derived: Derived) -> dict[str, Expr]:
    """What each column is that rows may be asked for, over inputs."""
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


def _of_groups(same: _Same) -> dict[str, str]:
    """Groups that are the same name their columns alike."""
    own = same.own.query.aggregation
    assert own is not None
    return {column.name: column.name for column in (*own.keys, *own.aggregates)}


def _beneath(plan: QueryPlan, number: int) -> list[NodePlan]:
    """A node, and all beneath it, each once, in one order for nodes that are the same."""
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


def _alike(plan: QueryPlan, other: QueryPlan, same: _Same) -> bool:
    """Whether the planner made the same nodes of both: joins in the same order.

    Rows of joins above others are kept by names of inputs, and of streams these have to be the same: else
    nobody could go on without the query that makes them."""
    if same.own.timed and any(own != there for own, there in same.aliases.items()):
        nodes = _beneath(plan, same.own.node)
        feeds = [side.feed for node in nodes for side in node.sides if side.feed is not None]
        if any(feed.path is None for feed in feeds):
            return False
    if same.own.timed and _bounds(plan, same.own) != _bounds(other, same.other):
        return False
    return _form(plan, same.own) == _form(other, same.other)


def _bounds(plan: QueryPlan, rows: _Rows) -> object:
    """By which rows are released in each node, whatever inputs are called."""
    places = {alias: place for place, alias in enumerate(_aliases(rows.query))}

    def placed(key: str) -> tuple[int | None, str]:
        alias = max((name for name in places if key.startswith(f"{name}.")), key=len, default="")
        return places.get(alias), key.removeprefix(alias)

    kept = {node.number: node.retentions for node in plan.every(ArrangePlan)}
    matching: list[NodePlan] = []
    for node in _beneath(plan, rows.node):
        matching.append(node)
        matching += [other for retention in kept.get(node.number, ()) for other in retention.others]
    return [
        [(placed(bound.evicted), placed(bound.by), bound.c) for bound in node.bounds] for node in matching
    ]


def _form(plan: QueryPlan, rows: _Rows) -> object:
    places = {alias: place for place, alias in enumerate(_aliases(rows.query))}
    nodes = _beneath(plan, rows.node)
    numbers = {node.number: place for place, node in enumerate(nodes)}
    return [
        (
            type(node),
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


def _keys_of(queries: Sequence[QueryPlan], same: _Same) -> Iterator[tuple[str, str]]:
    """Of the watermarks that come with the rows: (own, there)."""
    own, there = (queries[rows.owner].nodes[rows.node].watermark_keys for rows in (same.own, same.other))
    yield from zip(own, there, strict=True)


def _resting(plan: QueryPlan, other: QueryPlan, same: _Same) -> tuple[TakenNode, ...]:
    pairs = zip(_beneath(plan, same.own.node), _beneath(other, same.other.node), strict=True)
    return tuple(
        TakenNode(
            own.number,
            theirs.number,
            tuple((side.name, there.name) for side, there in zip(own.sides, theirs.sides, strict=True)),
        )
        for own, theirs in pairs
    )


def _taking(query: QueryPlan, taken: Sequence[Taken], places: Counter[tuple[str, int]]) -> QueryPlan:
    """The query with nodes that rest. ``places``: how many take the rows of a node so far."""
    if not taken:
        return query
    resting = {node.number for own in taken for node in own.nodes}
    by_node = {own.number: own for own in taken}

    def foreign(feed: FeedPlan) -> FeedPlan:
        own = by_node.get(feed.node)
        if own is None:
            return feed
        place = places[own.query, own.node]
        places[own.query, own.node] += 1
        return replace(feed, node=own.node, query=own.query, place=place, renamed=own.columns)

    def joined(feed: FeedPlan) -> FeedPlan:
        own = by_node.get(feed.node)
        return feed if own is None else replace(foreign(feed), event_times=own.keys)

    def side(plan: SidePlan) -> SidePlan:
        branches = tuple(foreign(b) if isinstance(b, FeedPlan) else b for b in plan.branches)
        return replace(plan, branches=branches, feed=None if plan.feed is None else joined(plan.feed))

    nodes: list[NodePlan] = []
    for node in query.nodes:
        if node.number not in resting:
            nodes.append(replace(node, sides=tuple(map(side, node.sides))))
        elif node is query.root:
            sides = (side(_passing(node, by_node[node.number])),)
            nodes.append(PassPlan(number=node.number, sides=sides, changes=node.changes))
        else:
            nodes.append(RestPlan(number=node.number, sides=(), changes=node.changes))
    return replace(query, nodes=tuple(nodes), taken=tuple(taken), complete=query.nodes)


def _passing(root: NodePlan, taken: Taken) -> SidePlan:
    """The side of a node that puts out rows of another query's as they come."""
    names = tuple(name for name, _ in taken.columns)
    return SidePlan(
        name=node_alias(root.number),
        inputs=(Input("", root.columns, (), ()),),
        branches=(),
        feed=FeedPlan(
            node=root.number,
            copied=tuple((name, name) for name in names),
            computed=(),
            computed_exact=(),
            beneath=(),
            filters=(),
            conditions=(),
            not_null=(),
            matchable=True,
        ),
        event_times=(),
        kept=names,
        carried=names,
        nullable=(),
        padded=False,
        passes=True,
    )
