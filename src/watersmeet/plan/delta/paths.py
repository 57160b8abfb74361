"""Rule: which joins of a query are run as a delta join, and in which order each path meets the other inputs.

The core is the topmost of inner joins over inputs alone that stand together, three inputs of them or more. Of
two there is no intermediate result, but tables are run so, too, for then queries keep them together
(`plan.arranged`).

The path of an input looks up the one next that is best connected with those it has: by equalities before
intervals before other conditions; of several the one whose arrangement other paths ask for already, then the
one of which fewest rows have one key, where a run has counted that, then the one that is next in the query.
An input of which there is one row at most (by its primary key, above all) is looked up as soon as that is so:
it makes no more rows of those that come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from sqlglot import exp

from watersmeet.conditions import Bound
from watersmeet.event_time import Side
from watersmeet.plan.checks.one_row import input_has_one_row_per
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.placement import Conditions
from watersmeet.plan.delta.counted import NO_COUNTS, Counts
from watersmeet.plan.join_inputs import name_of, refs
from watersmeet.plan.nodes.join import Draft, bounds_in, draft_of
from watersmeet.plan.nodes.tree import ChangesNode, JoinNode, Node, Tree
from watersmeet.spec.model import Expr, Input, Join, JoinKind, PlanChoice, Relation

LEAST_INPUTS = 3


@dataclass(frozen=True)
class Path:
    """How the changes of ``start`` come to results: look-ups of the others, in order. ``drafts``: of the node
    of its changes, then of one join per look-up. ``found_by``: per look-up, the inputs before it whose rows
    say where to look; what rows of others before it say is asked of what is found there."""

    start: Input
    tree: Tree
    conditions: Conditions
    drafts: tuple[Draft, ...]
    found_by: tuple[frozenset[str], ...] = ()

    @property
    def order(self) -> tuple[Input, ...]:
        """The inputs that are looked up."""
        return tuple(draft.node.inputs(Side.RIGHT)[0] for draft in self.drafts[1:])


@dataclass(frozen=True)
class DeltaJoin:
    """The joins ``numbers`` of a query, the last of which is ``root``, as paths: one per input, in the
    query's order."""

    root: int
    numbers: frozenset[int]
    paths: tuple[Path, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(path.start for path in self.paths)

    def has_one_row_per(self, alias: str, columns: Collection[str]) -> bool:
        """Whether values of these columns make a row of an input known; False: nothing says so."""
        return any(i.alias == alias and input_has_one_row_per(i, columns) for i in self.inputs)

    @property
    def releasing(self) -> frozenset[str]:
        """The watermark keys by which rows go."""
        return frozenset(key for path in self.paths for key in self.keys_of(path))

    def keys_of(self, path: Path) -> set[str]:
        """The times of the path's input that each of the other streams bounds."""
        keys = {name_of((path.start.alias, column)) for column in path.start.event_times}
        others = [i for i in path.order if not i.is_table]
        for other in others:
            keys &= {bound.evicted for bound in self.bounds_of(path, other)}
        return keys if others else set()

    def bounds_of(self, path: Path, other: Input) -> tuple[Bound, ...]:
        """By which times of ``other`` rows of the path's input go: whatever follows from all conditions."""
        draft = path.drafts[1 + path.order.index(other)]
        own = {name_of((path.start.alias, column)) for column in path.start.event_times}
        by = {name_of((other.alias, column)) for column in other.event_times}
        return tuple(b for b in bounds_in(draft, path.drafts) if b.evicted in own and b.by in by)


@dataclass(frozen=True)
class NoDelta:
    """Why no joins of a query are run as a delta join; empty: nobody asked."""

    why: str = ""


NO_DELTA = NoDelta()


def delta_join(
    tree: Tree, conditions: Conditions, asked: PlanChoice, *, changes: bool, counts: Counts = NO_COUNTS
) -> DeltaJoin | NoDelta:
    """The joins of a query (or stage) that are run as a delta join.

    Args:
        asked: the query's choice. By itself (`PlanChoice.AUTO`) it is taken where ``changes`` are joined, and
            each look-up has an equality.
        counts: of what is kept of the inputs; keys by which no path finds rows without them are none.
    """
    if asked is PlanChoice.CASCADE:
        return NO_DELTA
    if asked is PlanChoice.AUTO and not changes:
        return NoDelta("results are final, and rows between joins are evicted by their time bounds")
    core = _core(tree)
    if core is None or (len(core.beneath) + 1 < LEAST_INPUTS and not all(i.is_table for i in _leaves(core))):
        return NoDelta("there are fewer than three inputs joined only by inner joins, and no two tables")
    inputs = _leaves(core)
    hinted = [i.alias for i in inputs if i.broadcast]
    if hinted:
        return NoDelta(f"{', '.join(hinted)} is broadcast")
    numbers = frozenset(node.number for node in core.beneath)
    conjuncts = [c for number in sorted(numbers) for c in conditions.joins[number]]
    conjuncts += [c for i in inputs for c in conditions.inputs[i.alias]]
    wanted: dict[str, set[frozenset[str]]] = {}
    orders = [_order(start, inputs, conjuncts, wanted) for start in inputs]
    paths = []
    for start, (order, found_by) in zip(inputs, orders, strict=True):
        if counts.keys:
            order, found_by = _order(start, inputs, conjuncts, wanted, counts)
        path, why = _path(tree, start, order, conjuncts)
        if path is None:
            return NoDelta(why)
        paths.append(replace(path, found_by=found_by))
    delta = DeltaJoin(core.number, numbers, tuple(paths))
    if asked is PlanChoice.AUTO and not all(draft.keys for path in paths for draft in path.drafts[1:]):
        return NoDelta("a look-up would have no equality")
    why = _kept_for_ever(delta)
    return NoDelta(why) if why else delta


def chosen(tree: Tree, of_job: PlanChoice) -> PlanChoice:
    """How the query (or stage) is to be run: as a hint says, the outermost of several, or the job."""
    hints = (node.plan for node in reversed(tree.nodes))
    return next((hint for hint in hints if hint is not None), of_job)


def _core(tree: Tree) -> Node | None:
    """The topmost join of the inner ones."""
    cores = [node for node in tree.nodes if _joins_inputs(node)]
    return max(cores, key=lambda node: len(node.beneath), default=None)


def _joins_inputs(node: Node) -> bool:
    """It and all joins beneath are inner ones, of inputs that are no tables as of the tick."""
    below = (child.as_of if isinstance(child, Input) else not _joins_inputs(child) for child in node.children)
    return node.is_inner and not any(below)


def _leaves(node: Node) -> tuple[Input, ...]:
    """The inputs beneath, in the query's order."""
    below = ((child,) if isinstance(child, Input) else _leaves(child) for child in node.children)
    return tuple(i for inputs in below for i in inputs)


_EQUALITY, _INTERVAL, _OTHER, _NONE = range(4)
_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NullSafeEQ)


def _order(
    start: Input,
    inputs: Sequence[Input],
    conjuncts: Sequence[Conjunct],
    wanted: dict[str, set[frozenset[str]]],
    counts: Counts = NO_COUNTS,
) -> tuple[list[Input], tuple[frozenset[str], ...]]:
    """In which order the path of ``start`` looks the others up, and per look-up the inputs whose rows say
    where to look. ``wanted``: per alias the keys, as texts, by which paths look it up; this path's are added.
    """
    left, order = [i for i in inputs if i is not start], list[Input]()
    while left:
        had = {start.alias, *(i.alias for i in order)}
        ranked = []
        for i in left:
            own = [c for c in conjuncts if _links(c.expr, had, i.alias)]
            key = frozenset(text for c in own if (text := _key_text(c.expr, i.alias)) is not None)
            strength = min((_strength(c.expr, i.alias) for c in own), default=_NONE)
            unshared = bool(key) and key not in wanted.get(i.alias, set())
            few = counts.rank(i.alias, _key_columns(i, had, conjuncts))
            ranked.append((strength, unshared, few, inputs.index(i), i, key))
        *_, best, key = min(ranked, key=lambda rank: rank[:4])
        wanted.setdefault(best.alias, set()).add(key)
        order.append(best)
        left.remove(best)
    return _single_rows_early(start, order, conjuncts)


def _single_rows_early(
    start: Input, order: Sequence[Input], conjuncts: Sequence[Conjunct]
) -> tuple[list[Input], tuple[frozenset[str], ...]]:
    """The order, with inputs of which there is one row at most as early as that is so. The others are looked
    up by what they were: what an input that comes earlier now equates them with may be in many rows."""
    early = list[tuple[Input, frozenset[str]]]()
    for number, i in enumerate(order):
        had = frozenset({start.alias, *(other.alias for other in order[:number])})
        place, by = len(early), had
        for earlier in range(len(early)):
            sooner = frozenset({start.alias, *(other.alias for other, _ in early[:earlier])})
            if input_has_one_row_per(i, _key_columns(i, sooner, conjuncts)):
                place, by = earlier, sooner
                break
        early.insert(place, (i, by))
    return [i for i, _ in early], tuple(by for _, by in early)


def _key_columns(i: Input, had: Collection[str], conjuncts: Sequence[Conjunct]) -> list[str]:
    """Its columns that are equal to something of ``had``."""
    asked = [c.expr for c in conjuncts if _links(c.expr, {*had}, i.alias)]
    sides = [_sides(expr, i.alias) for expr in asked if isinstance(expr, exp.EQ | exp.NullSafeEQ)]
    return [str(own.name) for own, _ in filter(None, sides) if isinstance(own, exp.Column)]


def _aliases(expr: Expr) -> set[str]:
    return {alias for alias, _ in refs(expr)}


def _links(expr: Expr, had: set[str], alias: str) -> bool:
    """It can be asked when ``alias`` joins those that are there, and not before."""
    mentioned = _aliases(expr)
    return alias in mentioned and bool(mentioned & had) and mentioned <= had | {alias}


def _sides(expr: Expr, alias: str) -> tuple[Expr, Expr] | None:
    """(the side of ``alias`` alone, the other) of a comparison."""
    if not isinstance(expr, _COMPARED):
        return None
    for own, other in ((expr.this, expr.expression), (expr.expression, expr.this)):
        if _aliases(own) == {alias} and alias not in _aliases(other):
            return own, other
    return None


def _strength(expr: Expr, alias: str) -> int:
    sides = _sides(expr, alias)
    if sides is not None and isinstance(expr, exp.EQ | exp.NullSafeEQ):
        return _EQUALITY
    return _OTHER if not isinstance(expr, _COMPARED) else _INTERVAL


def _key_text(expr: Expr, alias: str) -> str | None:
    """The side of ``alias`` of an equality."""
    sides = _sides(expr, alias)
    if sides is None or not isinstance(expr, exp.EQ | exp.NullSafeEQ):
        return None
    return str(sides[0])


def _path(
    tree: Tree, start: Input, order: Iterable[Input], conjuncts: Sequence[Conjunct]
) -> tuple[Path | None, str]:
    """The path, its conditions taken apart; or why there is none."""
    numbers = count()
    part: Relation = start
    node: Node = ChangesNode(next(numbers), (start,), (start,), time_zone=tree.time_zone)
    nodes = [node]
    for i in order:
        asked = Join(part, i, JoinKind.INNER, None)
        node = JoinNode(next(numbers), (node, i), (part, i), asked, time_zone=tree.time_zone)
        nodes.append(node)
        part = asked
    conditions = _placed(nodes, start, conjuncts)
    drafts = []
    for own in nodes:
        draft, problems = draft_of(own, conditions.joins[own.number])
        if problems:
            return None, problems[0].message
        drafts.append(draft)
    why = next(_not_looked_up(drafts), None)
    if why is not None:
        return None, why
    query = replace(tree.query, relation=part, where=None, aggregation=None)
    return Path(start, Tree(query, tuple(nodes), {}, time_zone=tree.time_zone), conditions, tuple(drafts)), ""


def _placed(nodes: Sequence[Node], start: Input, conjuncts: Sequence[Conjunct]) -> Conditions:
    """Each conjunct where the last of its inputs is looked up."""
    conditions = Conditions()
    had = [{start.alias}]
    for node in nodes[1:]:
        had.append(had[-1] | {node.inputs(Side.RIGHT)[0].alias})
    for conjunct in conjuncts:
        mentioned = _aliases(conjunct.expr)
        if len(mentioned) == 1:
            conditions.inputs[next(iter(mentioned))].append(conjunct)
            continue
        first = next(n for n, aliases in enumerate(had) if mentioned <= aliases) if mentioned else -1
        conditions.joins[nodes[first].number].append(conjunct)
    return conditions


def _not_looked_up(drafts: Sequence[Draft]) -> Iterator[str]:
    """Why tasks cannot look rows up so."""
    for draft in drafts:
        if not draft.matchable:
            yield "nothing can match"
        for equality in draft.keys:
            if equality.is_open:
                yield f"the type of {equality.text} is not known before the job runs"
        if draft.residual is not None and draft.residual.exact is None:
            yield "a condition needs Spark for candidate pairs"
        if draft.careful is not None and draft.careful.exact is None:
            yield "a condition needs Spark for candidate pairs"


def _kept_for_ever(delta: DeltaJoin) -> str:
    """Why rows of a stream would be kept for ever; empty: they are not."""
    for path in delta.paths:
        if path.start.is_table:
            continue
        others = [i for i in path.order if not i.is_table]
        if not others:
            return f"no other stream bounds rows of {path.start.alias}"
        if not delta.keys_of(path):
            return f"no time of {path.start.alias} is bounded by each of the other streams"
    return ""
