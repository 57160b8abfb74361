"""Rule: which inputs of delta joins several queries of a job keep in the same way, whatever they are joined
with: the first of them in the job's order keeps the rows for all.

The same are tables of the same source, or of stages that one query makes for both, with the same conditions
on them, looked up by the same keys; aliases may differ, and which columns a query needs. Who keeps a table
keeps the columns of all, and tells the others what a tick changes of it (`SidePlan.kept_by`); they look its
rows up as their own. Of an input that is looked up by several keys all have to be there, and the rows held by
the same one of them: whoever keeps them may go. A row with a NULL in
a key of one of them is kept if it is none of another's: look-ups find no NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import Origins, origins_of
from watersmeet.plan.model.delta import ArrangePlan, DeltaPlan
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import BranchPlan, ColumnOfOthers, FeedPlan, KeptBy, SidePlan, joined_name
from watersmeet.spec.model import Expr, OutputMode

SideKey = tuple[str, int, str]
"""Query, node and name of a side."""

MayShare = Callable[[SideKey, SideKey], bool]
"""Whether a side may go by the rows that another one keeps."""

_Way = tuple[str, int | None]

_Columns = Mapping[str, object]
"""Per column of a side, of what it is made: the same, whatever the query calls it."""


@dataclass(frozen=True)
class _Kept:
    """An input of a delta join. ``path``: its number among the inputs; ``sides``: per way in which its rows
    are found, the name of the side, and the number of the further key (None: its own); ``origins``: of its
    columns, for the state; ``has_bands``: some look-ups go by ranges of values, too."""

    place: int
    node: int
    path: int
    side: SidePlan
    columns: _Columns
    sides: Mapping[object, _Way]
    origins: Origins
    has_bands: bool

    @property
    def nowhere_null(self) -> set[object]:
        """Of what a row has to have values, or it is not kept."""
        return {self.columns[name] for name in _not_null(self.side)}


def with_arranged(
    queries: Sequence[QueryPlan], may_share: MayShare = lambda own, other: True
) -> tuple[QueryPlan, ...]:
    """The queries, with inputs of delta joins that others before them keep."""
    plans, keepers = list(queries), dict[object, list[_Kept]]()
    for place, query in enumerate(queries):
        if query.options.mode is not OutputMode.CHANGELOG:
            continue
        fresh: list[tuple[object, _Kept]] = []
        for own in _inputs(place, query):
            key = _key(query, own)
            others = keepers.get(key, [])
            fitting = (n for n, o in enumerate(others) if _fits(query, own, queries[o.place], o, may_share))
            number = next(fitting, None)
            if number is None:
                fresh.append((key, own))
                continue
            other = others[number]
            plans[other.place], names = _wider(plans[other.place], other, own)
            plans[place] = _looking(plans[place], own, queries[other.place].name, other, names)
            others[number] = _now(plans[other.place], other, own)
        for key, own in fresh:
            keepers.setdefault(key, []).append(own)
    if all(plan is query for plan, query in zip(plans, queries, strict=True)):
        return tuple(queries)
    return _placed(plans)


def _inputs(place: int, query: QueryPlan) -> Iterator[_Kept]:
    """The tables of the delta joins that a query makes itself."""
    nodes = query.every(ArrangePlan)
    origins = origins_of(query.alone.nodes) if nodes else {}
    for node in nodes:
        if node.retentions:
            continue  # tables beside streams: each query keeps its own
        for path, side in enumerate(node.leaving):
            columns = _columns(query, side)
            if columns is None:
                continue
            sides: dict[object, _Way] = {}
            for held, arranged in zip(node.sides, node.arranged, strict=True):
                if held is side or held.copy_of == side.name:
                    # runs know by its name what they are sorted by
                    indexes = tuple((repr(index), columns[index.column]) for index in arranged.indexes)
                    for by, keys in enumerate(arranged.every, -1):
                        own = tuple(columns[name] for name in keys)
                        sides[own, indexes if by < 0 else ()] = held.name, None if by < 0 else by
            of_side = origins[node.number, side.name]
            yield _Kept(place, node.number, path, side, columns, sides, of_side, _has_bands(query, node))


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
    """Of what each column of a side is made; None: of nothing that others could have."""
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
    return columns | {name: text_of(_renamed(expr, there)) for name, expr in branch.computed}


def _renamed(expr: Expr, there: Mapping[str, str]) -> Expr:
    return expr.transform(
        lambda e: (
            exp.column(exp.to_identifier(there[e.name], quoted=True))
            if isinstance(e, exp.Column) and e.name in there
            else e
        )
    )


def _key(query: QueryPlan, own: _Kept) -> object:
    """What is equal for inputs of which the same rows are kept."""
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


def _fits(query: QueryPlan, own: _Kept, keeper: QueryPlan, other: _Kept, may_share: MayShare) -> bool:
    """Whether the other has all ways in which an input is held, and can have all of its columns."""
    if not set(own.sides) <= set(other.sides) or _by_side(own, other) is None:
        return False
    if own.nowhere_null != other.nowhere_null and (own.has_bands or other.has_bands):
        return False
    held = set(other.columns.values())
    for name in own.side.kept:
        if own.columns[name] not in held and any(
            isinstance(branch, FeedPlan) and name not in dict(branch.copied) for branch in own.side.branches
        ):
            return False  # computed of what a stage puts out, by names of its own
    return all(
        may_share((query.name, own.node, name), (keeper.name, other.node, other.sides[how][0]))
        for how, (name, _) in own.sides.items()
    )


def _by_side(own: _Kept, other: _Kept) -> dict[str, str] | None:
    """Per side of an input the one of the other that has all of its ways, and is held by the same key; None:
    there is none."""
    held = {name: other.sides[how][0] for how, (name, by) in own.sides.items() if by is None}
    for how, (name, by) in own.sides.items():
        there, number = other.sides[how]
        if there != held[name] or (by is None) != (number is None):
            return None
    return held


def _wider(keeper: QueryPlan, other: _Kept, own: _Kept) -> tuple[QueryPlan, dict[str, str]]:
    """The query that keeps an input with the columns that the other needs besides, and what they are called
    there."""
    side, columns = other.side, other.columns
    by_content = {content: name for name, content in columns.items() if name in _kept(side)}
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
            branches=tuple(_less_asked(b, asked) for b in branches) if held.name == side.name else (),
            of_others=(*held.of_others, *more),
            not_null=tuple(name for name in held.not_null if name in asked),
        )

    return _with_sides(keeper, other.node, wide), names


def _less_asked(branch: BranchPlan | FeedPlan, not_null: set[str]) -> BranchPlan | FeedPlan:
    if isinstance(branch, BranchPlan):
        return branch
    return replace(branch, not_null=tuple(name for name in branch.not_null if name in not_null))


def _now(keeper: QueryPlan, other: _Kept, own: _Kept) -> _Kept:
    """An input that is kept for one more."""
    side = keeper.nodes[other.node].sides[other.path]
    columns = _columns(keeper, side)
    assert columns is not None
    return replace(other, side=side, columns=columns, has_bands=other.has_bands or own.has_bands)


def _kept(side: SidePlan) -> set[str]:
    return {*side.kept, *(column.name for column in side.of_others)}


def _with_column(
    branch: BranchPlan | FeedPlan, theirs: BranchPlan | FeedPlan, name: str, there: str
) -> BranchPlan | FeedPlan:
    """A branch with the column ``name`` of another one that reads the same rows."""
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


def _looking(query: QueryPlan, own: _Kept, keeper: str, other: _Kept, names: Mapping[str, str]) -> QueryPlan:
    """The query, which looks the rows of an input up where another one keeps them."""
    columns = tuple((name, names[name]) for name in own.side.kept)
    by_side = _by_side(own, other)
    assert by_side is not None
    alias, there = own.side.name, other.side.name
    feed = FeedPlan(
        node=other.node,
        copied=tuple((name, joined_name(alias, name)) for name, _ in columns),
        computed=(),
        computed_exact=(),
        beneath=(),
        filters=(),
        conditions=(),
        not_null=(),
        matchable=True,
        path=other.path,
        query=keeper,
        renamed=tuple((joined_name(alias, name), joined_name(there, column)) for name, column in columns),
    )

    def looking(held: SidePlan) -> SidePlan:
        if held.name not in by_side:
            return held
        kept_by = KeptBy(keeper, other.node, by_side[held.name], there, columns)
        return replace(held, branches=(feed,) if held.copy_of is None else (), kept_by=kept_by)

    return _with_sides(query, own.node, looking)


def _with_sides(query: QueryPlan, number: int, changed: Callable[[SidePlan], SidePlan]) -> QueryPlan:
    """The query with other sides of one of its arrangements, also where steps look them up."""

    nodes: dict[int, NodePlan] = {
        step.number: replace(step, met=tuple(replace(met, kept_by=changed(met).kept_by) for met in step.met))
        for step in query.every(DeltaPlan)
        if step.arrangements == number
    }
    nodes[number] = replace(query.nodes[number], sides=tuple(map(changed, query.nodes[number].sides)))
    run = tuple(nodes.get(node.number, node) for node in query.nodes)
    return replace(query, nodes=run, complete=query.complete or query.nodes)


def _placed(queries: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """The queries with the places counted anew to which rows of each node go in other queries."""
    places: dict[tuple[str, int], int] = {}

    def placed(feed: FeedPlan) -> FeedPlan:
        if feed.query is None:
            return feed
        place = places[feed.query, feed.node] = places.get((feed.query, feed.node), -1) + 1
        return replace(feed, place=place)

    def side(plan: SidePlan) -> SidePlan:
        branches = tuple(placed(b) if isinstance(b, FeedPlan) else b for b in plan.branches)
        return replace(plan, branches=branches, feed=None if plan.feed is None else placed(plan.feed))

    return tuple(
        replace(query, nodes=tuple(replace(node, sides=tuple(map(side, node.sides))) for node in query.nodes))
        for query in queries
    )
