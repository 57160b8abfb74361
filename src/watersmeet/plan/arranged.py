"""Rule: which inputs of delta joins several queries of a job keep in the same way, whatever they are joined
with: the first of them in the job's order keeps the rows for all.

The same are tables of the same source, or of stages that one query makes for both, with the same conditions
on them; aliases may differ, and by which keys they are looked up, and which columns a query needs. Who keeps
a table keeps the columns of all, lets its rows be found by the keys of all (by its own they are held), and
tells the others what a tick changes of it (`SidePlan.kept_by`); they look its rows up as their own. Whoever
keeps them may go: then they are held by another key (`engine.driver.opening.held_anew`). Rows that are sorted
within a key are for those alone that want them so. A row with a NULL in a key of one of them is kept if it is
none of another's: look-ups find no NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import Origins, origins_of
from watersmeet.plan.model.delta import Arranged, ArrangePlan, DeltaPlan, FoundBy
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import BranchPlan, ColumnOfOthers, FeedPlan, KeptBy, SidePlan, joined_name
from watersmeet.spec.model import Expr, OutputMode

SideKey = tuple[str, int, str]
"""Query, node and name of a side."""

MayShare = Callable[[SideKey, SideKey, bool], bool]
"""Whether a side may go by the rows that another one keeps; True: which has to keep more for that, columns or
rows with NULL in a key."""

_Way = tuple[str, int | None]
"""Where rows are found in one way: the name of the side, and the number of the further key there (None: its
own)."""

_How = tuple[tuple[object, ...], tuple[object, ...]]
"""A way to find rows: by which columns they are hashed, and by what they are sorted within a hash; of what
these are made."""

_Columns = Mapping[str, object]
"""Per column of a side, of what it is made: the same, whatever the query calls it."""


@dataclass(frozen=True)
class _Kept:
    """An input of a delta join. ``path``: its number among the inputs; ``ways``: how its rows are found, and
    where; ``keys``: what is called so here; ``origins``: of its columns, for the state; ``has_bands``: some
    look-ups go by ranges of values, too."""

    place: int
    node: int
    path: int
    side: SidePlan
    columns: _Columns
    ways: Mapping[_How, _Way]
    keys: Mapping[_How, FoundBy]
    origins: Origins
    has_bands: bool

    @property
    def by_side(self) -> dict[str, list[_How]]:
        """Per side the ways in which its rows are found, its own key's first."""
        sides: dict[str, list[_How]] = {}
        for how, (name, _) in sorted(self.ways.items(), key=lambda way: way[1][1] is not None):
            sides.setdefault(name, []).append(how)
        return sides

    @property
    def nowhere_null(self) -> set[object]:
        """Of what a row has to have values, or it is not kept."""
        return {self.columns[name] for name in _not_null(self.side)}


def with_arranged(queries: Sequence[QueryPlan], may_share: MayShare) -> tuple[QueryPlan, ...]:
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
            plans[other.place], names, ways = _wider(plans[other.place], other, own)
            others[number] = _now(plans[other.place], replace(other, ways=ways), own)
            plans[place] = _looking(plans[place], own, queries[other.place].name, others[number], names)
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
            ways, keys, is_clear = dict[_How, _Way](), dict[_How, FoundBy](), True
            for held, arranged in zip(node.sides, node.arranged, strict=True):
                if held is side or held.copy_of == side.name:
                    # runs know by its name what they are sorted by
                    indexes = tuple((repr(index), columns[index.column]) for index in arranged.indexes)
                    for by, key in enumerate([FoundBy(arranged.keys, arranged.key), *arranged.others], -1):
                        how = tuple(columns[name] for name in key.keys), indexes if by < 0 else ()
                        is_clear &= how not in ways  # a view may have one column under two names
                        ways[how], keys[how] = (held.name, None if by < 0 else by), key
            if not is_clear:
                continue
            of_side = origins[node.number, side.name]
            yield _Kept(place, node.number, path, side, columns, ways, keys, of_side, _has_bands(query, node))


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
    """Whether the other has, or can have, all ways in which an input's rows are found, and all columns."""
    homes = _homes(own, other)
    if homes is None:
        return False
    if own.nowhere_null != other.nowhere_null and (own.has_bands or other.has_bands):
        return False
    held = set(other.columns.values())
    kept = {other.columns[name] for name in _kept(other.side)}
    more = bool({own.columns[name] for name in own.side.kept} - kept or other.nowhere_null - own.nowhere_null)
    more = more or bool(own.ways.keys() - other.ways.keys())
    for name in own.side.kept:
        if own.columns[name] not in held and any(
            isinstance(branch, FeedPlan) and name not in dict(branch.copied) for branch in own.side.branches
        ):
            return False  # computed of what a stage puts out, by names of its own
    return all(
        may_share((query.name, own.node, name), (keeper.name, other.node, there), more)
        for name, there in homes.items()
    )


def _homes(own: _Kept, other: _Kept) -> dict[str, str] | None:
    """Per side of an input the one of the other in which its rows are found in all of its ways, or can be;
    None: there is none."""
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


def _wider(keeper: QueryPlan, other: _Kept, own: _Kept) -> tuple[QueryPlan, dict[str, str], dict[_How, _Way]]:
    """The query that keeps an input with the columns and keys that the other needs besides, what these
    columns are called there, and where rows are found then."""
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

    ways, further = dict(other.ways), list[FoundBy]()
    for how, key in own.keys.items():
        if how not in ways:
            ways[how] = side.name, sum(there == side.name for there, _ in ways.values()) - 1
            columns_there = tuple(names[name] for name in key.keys)
            further.append(FoundBy(columns_there, key.key))

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
    homes = _homes(own, other)
    assert homes is not None
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
        if held.name not in homes:
            return held
        kept_by = KeptBy(keeper, other.node, homes[held.name], there, columns)
        return replace(held, branches=(feed,) if held.copy_of is None else (), kept_by=kept_by)

    def looked_up(held: SidePlan, arranged: Arranged) -> Arranged:
        """By the key by which rows are held there, if that is one of its own, and by all others beside it."""
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
    """The query with other sides of one of its arrangements, found in other ways, also where steps look them
    up."""
    node, nodes = _arrangements(query, number), dict[int, NodePlan]()
    for step in query.every(DeltaPlan):
        if step.arrangements == number:
            met_arranged = tuple(map(by_keys, step.met, step.met_arranged))
            nodes[step.number] = replace(
                step,
                met=tuple(replace(met, kept_by=changed(met).kept_by) for met in step.met),
                met_arranged=met_arranged,
                lookups=tuple(
                    replace(lookup, by=_by(before.keys_of(lookup.by), after))
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


def _by(keys: Sequence[str], arranged: Arranged) -> int | None:
    """The number of the further key of these columns; None: rows are held by it."""
    further = [other.keys for other in arranged.others]
    return None if keys == arranged.keys and keys not in further else further.index(tuple(keys))


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
