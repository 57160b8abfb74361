"""Plan the nodes of a delta join: arrangements, lookups, their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from itertools import chain

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.names import copy_name, node_alias
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.delta.paths import Columns, DeltaJoin, Equalities, Path, choose_lookup_keys
from watersmeet.plan.explain.wording import qualify_key
from watersmeet.plan.model.nodes import (
    Arranged,
    ArrangePlan,
    DeltaLookup,
    DeltaPlan,
    JoinPlan,
    LookupKey,
    NodePlan,
    Retention,
)
from watersmeet.plan.model.sides import FeedPlan, SidePlan
from watersmeet.plan.nodes.input_side import InputSide, OfStage, SeveralRoles
from watersmeet.spec.model import Input

# The numbers of nodes, where a delta join has more of them than the joins in whose place it stands.

_ADDED = 1_000_000
_STEPS = 1_000


def provisional(root: int, step: int) -> int:
    """Return the provisional number of a node that sorts before node ``root``.

    It sorts after all nodes that precede the root.
    """
    return _ADDED + root * _STEPS + step


def in_order(nodes: Sequence[NodePlan]) -> tuple[NodePlan, ...]:
    """Sort the nodes so that each follows the nodes below it, and renumber them by position."""
    ordered = sorted(nodes, key=_place)
    numbers = {node.number: place for place, node in enumerate(ordered)}
    if all(number == place for number, place in numbers.items()):
        return tuple(ordered)
    return tuple(_renumber_node(node, numbers) for node in ordered)


def _place(node: NodePlan) -> tuple[int, int]:
    if node.number < _ADDED:
        return node.number, _STEPS
    return divmod(node.number - _ADDED, _STEPS)


@singledispatch
def _renumber_node(node: NodePlan, numbers: Mapping[int, int]) -> NodePlan:
    sides = tuple(_side(side, numbers) for side in node.sides)
    return replace(node, number=numbers[node.number], sides=sides)


@_renumber_node.register
def _(node: DeltaPlan, numbers: Mapping[int, int]) -> NodePlan:
    sides = tuple(_side(side, numbers) for side in node.sides)
    lookups = tuple(
        replace(lookup, join=replace(lookup.join, sides=(side, lookup.join.right)))
        for lookup, side in zip(node.lookups, sides, strict=True)
    )
    return replace(
        node,
        number=numbers[node.number],
        sides=sides,
        arrangements=numbers[node.arrangements],
        lookups=lookups,
        met=tuple(_side(side, numbers) for side in node.met),
    )


def _side(side: SidePlan, numbers: Mapping[int, int]) -> SidePlan:
    branches = tuple(
        _feed(branch, numbers) if isinstance(branch, FeedPlan) else branch for branch in side.branches
    )
    if side.feed is None:
        return replace(side, branches=branches)
    feed = _feed(side.feed, numbers)
    name = node_alias(feed.node) + ("" if feed.path is None else f".{feed.path + 1}")
    return replace(side, branches=branches, feed=feed, name=name)


def _feed(feed: FeedPlan, numbers: Mapping[int, int]) -> FeedPlan:
    return replace(feed, node=numbers[feed.node])


# From the paths of a delta join to its nodes: the arrangements, then a step for each look-up of all
# paths.
#
# Each path is planned as a chain of joins of its own. What its joins keep of the inputs is put together:
# of each input there is one set of columns and conditions, whatever path asks for them, and one
# arrangement. Further keys that paths look it up by are found beside the rows (`kernel.match.probe`),
# in 4 or 8 bytes a row. Where rows are sorted by time or by other values within a key, or there is no
# key, another arrangement has the rows once more.

Roles = dict[str, list[InputSide]]
"""Per alias what the nodes of all paths ask of that input."""


@dataclass(frozen=True)
class PlannedPath:
    """Planned path of a delta join.

    Attributes:
        joins: the look-ups of the path, each with keys in one order.
        equalities: the equalities of each look-up.
    """

    path: Path
    joins: tuple[JoinPlan, ...]
    equalities: tuple[Equalities, ...]


def delta_nodes(
    delta: DeltaJoin,
    planned: Sequence[PlannedPath],
    roles: Roles,
    stage_of: Callable[[Input], OfStage],
) -> tuple[list[NodePlan], list[PlanError]]:
    """Build the nodes of a delta join, and return errors.

    The last node has the number of the root of the joins.

    Args:
        planned: The planned paths, in order.
        stage_of: Plans the stages of an input.
    """
    errors: list[PlanError] = []
    own: list[SidePlan] = []
    for i in delta.inputs:
        role = SeveralRoles.of(roles[i.alias])
        own.append(role.plan(stage_of(i)))
        errors += role.problems(own[-1])
    held = _ArrangedInputs(own)
    asked = list(chain.from_iterable(path.equalities for path in planned))
    hashed = iter(choose_lookup_keys(asked, delta.has_one_row_per))
    lookups_of = [[(join, next(hashed)) for join in path.joins] for path in planned]
    held.begin({join.right.name: (join, keys) for path in lookups_of for join, keys in path}.values())
    places = [[held.place(join, keys) for join, keys in path] for path in lookups_of]
    first, depth = provisional(delta.root, 0), len(delta.inputs) - 1
    arrangements = ArrangePlan(
        number=first,
        sides=tuple(held.sides),
        arranged=tuple(held.arranged),
        filters=tuple(
            (side.title, conjunct.text)
            for side, path in zip(own, delta.paths, strict=True)
            for conjunct in path.conditions.inputs[side.name]
        ),
        bounds=tuple(
            dict.fromkeys(
                bound
                for path in delta.paths
                for other in path.order
                for bound in delta.bounds_of(path, other)
            )
        ),
        retentions=tuple(_retention(delta, path) for path in planned if not path.path.start.is_table),
    )
    nodes: list[NodePlan] = [arrangements]
    inputs = list(delta.inputs)
    for step in range(depth):
        beneath = nodes[-1].number
        lookups = tuple(
            DeltaLookup(
                join=path.joins[step],
                place=places[number][step][0],
                by=places[number][step][1],
                sees_tick=inputs.index(path.path.order[step]) < number,
            )
            for number, path in enumerate(planned)
        )
        nodes.append(
            DeltaPlan(
                number=provisional(delta.root, step + 1) if step < depth - 1 else delta.root,
                sides=tuple(
                    _coming(lookup.join.left, beneath, number) for number, lookup in enumerate(lookups)
                ),
                arrangements=first,
                lookups=lookups,
                met=tuple(held.sides[lookup.place] for lookup in lookups),
                met_arranged=tuple(held.arranged[lookup.place] for lookup in lookups),
                keys=tuple(side.watermark_key(column) for side in own for column in side.event_times),
                path_names=tuple(i.alias for i in inputs),
                is_last=step == depth - 1,
                releasing=frozenset(bound.evicted for bound in arrangements.bounds),
                warnings=tuple(dict.fromkeys(w for lookup in lookups for w in lookup.join.warnings)),
            )
        )
    return nodes, errors


def _coming(side: SidePlan, beneath: int, path: int) -> SidePlan:
    """Return the side of rows of a path on their way to its next look-up."""
    assert side.feed is not None
    name = f"{node_alias(beneath)}.{path + 1}"
    return replace(side, name=name, feed=replace(side.feed, node=beneath, path=path))


_Place = tuple[int, int | None]
"""The number of a side, and that of the further key by which its rows are found (None: their own)."""


@dataclass
class _ArrangedInputs:
    """Inputs of a delta join, followed by copies of inputs that look-ups find in different ways.

    Each further way to look up an input needs a copy, unless a further key of the input's own rows suffices.
    """

    sides: list[SidePlan]
    arranged: list[Arranged] = field(default_factory=list)
    _places: dict[tuple[str, Columns, tuple[object, ...]], _Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sides = list(self.sides)
        self._inputs = len(self.sides)
        self.arranged = [Arranged((), ())] * self._inputs

    def begin(self, last: Iterable[tuple[JoinPlan, Columns]]) -> None:
        """Arrange each table by the key of the last path that looks it up.

        All queries that find rows by this key alone begin with the same arrangement.

        Args:
            last: the join and its keys on the last path, per input.
        """
        for join, keys in last:
            if keys and not join.indexes(Side.RIGHT) and join.right.input.is_table:
                self.place(join, keys)

    def place(self, join: JoinPlan, keys: Columns) -> _Place:
        """Return the place where a join looks up rows of its right side by ``keys``."""
        alias = join.right.name
        how = Arranged(keys, join.indexes(Side.RIGHT), _key(join, keys))
        asked = alias, keys, () if keys else how.indexes  # by a key few rows are left: one order does for all
        if asked in self._places:
            place, by = self._places[asked]
            if by is None:
                indexes = dict.fromkeys([*self.arranged[place].indexes, *how.indexes])
                self.arranged[place] = replace(self.arranged[place], indexes=tuple(indexes))
            if by is None or not how.indexes:
                return place, by
        first = next(n for n, side in enumerate(self.sides[: self._inputs]) if side.name == alias)
        by = None
        is_further = any(name == alias for name, _, _ in self._places)
        if is_further and keys and not how.indexes and self.sides[first].input.is_table:
            own, place = self.arranged[first], first
            by = len(own.others)
            self.arranged[first] = replace(own, others=(*own.others, LookupKey(keys, how.key)))
        elif is_further:
            copies = sum(side.copy_of == alias for side in self.sides)
            copy = replace(self.sides[first], name=copy_name(alias, copies + 2), branches=(), copy_of=alias)
            self.sides.append(copy)
            self.arranged.append(how)
            place = len(self.sides) - 1
        else:
            self.arranged[first], place = how, first
        self._places[asked] = place, by
        return place, by


def _key(join: JoinPlan, keys: Columns) -> str:
    exprs = {key.column(Side.RIGHT): key.expr(Side.RIGHT) for key in join.keys}
    return ", ".join(qualify_key(text_of(exprs[column]), join.right) for column in keys)


def _retention(delta: DeltaJoin, planned: PlannedPath) -> Retention:
    others = []
    for i, join in zip(planned.path.order, planned.joins, strict=True):
        if not i.is_table:
            others.append(replace(join, bounds=delta.bounds_of(planned.path, i)))
    return Retention(planned.path.start.alias, tuple(others))
