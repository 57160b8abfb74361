"""Decide which joins run as a delta join, and in which order each path meets the other inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from sqlglot import exp

from watersmeet.conditions import Bound
from watersmeet.event_time import Side
from watersmeet.plan.checks.unique_keys import input_has_one_row_per
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.placement import PlacedConditions
from watersmeet.plan.model.nodes import ArrangePlan, CountedKey
from watersmeet.plan.nodes.join import Draft, bounds_in, draft_of
from watersmeet.plan.nodes.tree import ChangesNode, JoinNode, QueryNode, Tree
from watersmeet.plan.query_inputs import name_of, refs
from watersmeet.spec.model import Expr, Input, Join, JoinKind, PlanChoice, Relation

# Rule: by which of its equalities a look-up finds rows. The others are asked of what it finds.
#
# Rows of an input are kept once for each set of columns by which they are found. So a look-up goes by
# few: by those that make one row known at most, if the input has such; and where the equalities come from
# several inputs, by those of one of them that another path goes by alone, if so a copy less is kept. Then
# a path looks at no more rows than it would find if the other equalities were asked in a later step.

Columns = tuple[str, ...]
"""Kept columns of the input that is looked up, in order."""

OneRow = Callable[[str, Collection[str]], bool]
"""Whether an input, by its alias, has at most one row per values of these columns."""

Sources = frozenset[str]
"""Aliases from which the other side of an equality comes."""


@dataclass(frozen=True)
class Equalities:
    """Equalities of a look-up of the input ``alias``, in the order of its columns.

    Each part covers one column of the input.
    """

    alias: str
    parts: tuple[tuple[Sources, str], ...]

    @property
    def columns(self) -> Columns:
        return tuple(dict.fromkeys(column for _, column in self.parts))

    @property
    def by_source(self) -> dict[Sources, Columns]:
        """The columns by the inputs with which they are equated."""
        sources = dict.fromkeys(source for source, _ in self.parts)
        return {
            source: tuple(dict.fromkeys(column for other, column in self.parts if other == source))
            for source in sources
        }


def choose_lookup_keys(lookups: Sequence[Equalities], one_row: OneRow) -> list[Columns]:
    """Return the columns by which each look-up finds rows, for all paths in the query's order."""
    least = [_of_one_row(asked, one_row) or asked.columns for asked in lookups]
    alone: dict[str, dict[Sources, Columns]] = {}
    for asked, columns in zip(lookups, least, strict=True):
        sources = asked.by_source
        if list(sources.values()) == [columns]:
            alone.setdefault(asked.alias, {}).update(sources)
    fewer = [
        _of_one_source(asked, alone.get(asked.alias, {})) if columns == asked.columns else None
        for asked, columns in zip(lookups, least, strict=True)
    ]
    kept = {
        (asked.alias, columns)
        for asked, columns, instead in zip(lookups, least, fewer, strict=True)
        if instead is None
    }
    return [
        columns if instead is None or (asked.alias, columns) in kept else instead
        for asked, columns, instead in zip(lookups, least, fewer, strict=True)
    ]


def _of_one_row(asked: Equalities, one_row: OneRow) -> Columns:
    """Return a minimal set of columns that identifies one row.

    Returns:
        An empty tuple if several rows may match anyway.
    """
    columns = asked.columns
    if not one_row(asked.alias, columns):
        return ()
    for column in columns:
        fewer = tuple(other for other in columns if other != column)
        if fewer and one_row(asked.alias, fewer):
            columns = fewer
    return columns


def _of_one_source(asked: Equalities, alone: dict[Sources, Columns]) -> Columns | None:
    """Return the columns of the best source by which alone some path finds rows.

    The best source has the most columns; among equals, the first one wins.
    """
    sources = asked.by_source
    if len(sources) < 2:
        return None
    usable = [columns for source, columns in alone.items() if sources.get(source) == columns]
    return max(usable, key=len, default=None)


# What a run has counted of the arrangements of delta joins: by it paths look an input up early that has
# few rows of a key.
#
# The plan's own order comes from what is shared and unique. Counts only decide among inputs of which
# these say nothing, and never which keys rows are kept by: stored rows fit whatever the counts.


@dataclass(frozen=True)
class Counts:
    """``keys``: of all arrangements of a query."""

    keys: tuple[CountedKey, ...] = ()

    def rank(self, alias: str, columns: Collection[str]) -> tuple[float, int]:
        """Return (rows per key, rows) of a look-up by these columns.

        Inputs with a lower rank are looked up earlier. Rows per key are rounded to tenths.
        """
        own = [key for key in self.keys if key.alias == alias]
        per_key = [round(key.rows_per_key, 1) for key in own if key.keys and set(key.keys) <= set(columns)]
        rows = max((key.rows for key in own), default=0)
        return min(per_key, default=float(rows)), rows

    def of(self, alias: str, keys: Collection[str]) -> CountedKey | None:
        """Return the counts of one key, or None if it has none."""
        asked = tuple(keys)
        return next((key for key in self.keys if key.alias == alias and key.keys == asked), None)


NO_COUNTS = Counts()


# Rule: which joins of a query are run as a delta join, and in which order each path meets the other
# inputs.
#
# The core is the topmost of inner joins over inputs alone that stand together, three inputs of them or
# more. Of two there is no intermediate result, but tables are run so, too, for then queries keep them
# together (`plan.arranged`).
#
# The path of an input looks up the one next that is best connected with those it has: by equalities
# before intervals before other conditions; of several the one whose arrangement other paths ask for
# already, then the one of which fewest rows have one key, where a run has counted that, then the one that
# is next in the query. An input of which there is one row at most (by its primary key, above all) is
# looked up as soon as that is so: it makes no more rows of those that come.

MIN_INPUTS = 3


@dataclass(frozen=True)
class Path:
    """Look-ups of the other inputs, in order, that turn changes of ``start`` into results.

    Attributes:
        drafts: Draft of the node of the changes, then of one join per look-up.
        found_by: Per look-up, the earlier inputs whose rows select its key. Conditions on rows of other
            earlier inputs are evaluated on the rows found.
    """

    start: Input
    tree: Tree
    conditions: PlacedConditions
    drafts: tuple[Draft, ...]
    found_by: tuple[frozenset[str], ...] = ()

    @property
    def order(self) -> tuple[Input, ...]:
        """The inputs that are looked up."""
        return tuple(draft.node.inputs(Side.RIGHT)[0] for draft in self.drafts[1:])


@dataclass(frozen=True)
class DeltaJoin:
    """Joins of a query that are run as paths.

    Attributes:
        root: Number of the last join.
        numbers: Numbers of all joins.
        paths: One path per input, in the order of the query.
    """

    root: int
    numbers: frozenset[int]
    paths: tuple[Path, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(path.start for path in self.paths)

    def has_one_row_per(self, alias: str, columns: Collection[str]) -> bool:
        """Return True if values of these columns identify one row of an input.

        False means that uniqueness cannot be proved.
        """
        return any(i.alias == alias and input_has_one_row_per(i, columns) for i in self.inputs)

    @property
    def releasing(self) -> frozenset[str]:
        """The watermark keys by which rows go."""
        return frozenset(key for path in self.paths for key in self.keys_of(path))

    def keys_of(self, path: Path) -> set[str]:
        """Return the times of the path's input that each of the other streams bounds."""
        keys = {name_of((path.start.alias, column)) for column in path.start.event_times}
        others = [i for i in path.order if not i.is_table]
        for other in others:
            keys &= {bound.evicted for bound in self.bounds_of(path, other)}
        return keys if others else set()

    def bounds_of(self, path: Path, other: Input) -> tuple[Bound, ...]:
        """Return the bounds by which times of ``other`` evict rows of the path's input.

        The bounds include everything that follows from all conditions.
        """
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
    tree: Tree, conditions: PlacedConditions, asked: PlanChoice, *, changes: bool, counts: Counts = NO_COUNTS
) -> DeltaJoin | NoDelta:
    """Plan the joins of a query or stage as a delta join, or return the reason why not.

    Args:
        asked: Choice of the query. `PlanChoice.AUTO` selects a delta join if ``changes`` are joined and
            each look-up has an equality.
        counts: Counts of the retained rows of the inputs. Keys by which no path finds rows without
            these counts are ignored.
    """
    if asked is PlanChoice.CASCADE:
        return NO_DELTA
    if asked is PlanChoice.AUTO and not changes:
        return NoDelta("results are final, and rows between joins are evicted by their time bounds")
    core = _topmost_inner_join(tree)
    if core is None or (len(core.beneath) + 1 < MIN_INPUTS and not all(i.is_table for i in _leaves(core))):
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
    why = _unbounded_reason(delta)
    return NoDelta(why) if why else delta


def choose_strategy(tree: Tree, of_job: PlanChoice) -> PlanChoice:
    """Return the plan choice of the outermost hint, or of the job if there is no hint."""
    hints = (node.plan for node in reversed(tree.nodes))
    return next((hint for hint in hints if hint is not None), of_job)


def _topmost_inner_join(tree: Tree) -> QueryNode | None:
    """Return the topmost of the inner joins, or None if there is none."""
    cores = [node for node in tree.nodes if _joins_inputs(node)]
    return max(cores, key=lambda node: len(node.beneath), default=None)


def _joins_inputs(node: QueryNode) -> bool:
    """Return True if the node and all joins below are inner joins without tables as of the tick."""
    below = (child.as_of if isinstance(child, Input) else not _joins_inputs(child) for child in node.children)
    return node.is_inner and not any(below)


def _leaves(node: QueryNode) -> tuple[Input, ...]:
    """Return the inputs below a node, in the query's order."""
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
    """Choose the order in which the path of ``start`` looks up the other inputs.

    Args:
        wanted: Keys, as texts, by which paths look up each alias; this call adds the keys of its path.

    Returns:
        The order and, per look-up, the inputs whose rows select its key.
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
    return _move_single_rows_early(start, order, conjuncts)


def _move_single_rows_early(
    start: Input, order: Sequence[Input], conjuncts: Sequence[Conjunct]
) -> tuple[list[Input], tuple[frozenset[str], ...]]:
    """Move inputs with at most one row per look-up as early as this holds.

    The other look-ups retain their sources, because a key from an input that now comes earlier may
    match many rows.
    """
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
    """Return the columns of an input that equal an expression over ``had``."""
    asked = [c.expr for c in conjuncts if _links(c.expr, {*had}, i.alias)]
    sides = [_sides(expr, i.alias) for expr in asked if isinstance(expr, exp.EQ | exp.NullSafeEQ)]
    return [str(own.name) for own, _ in filter(None, sides) if isinstance(own, exp.Column)]


def _aliases(expr: Expr) -> set[str]:
    return {alias for alias, _ in refs(expr)}


def _links(expr: Expr, had: set[str], alias: str) -> bool:
    """Return True if the condition can be evaluated once ``alias`` joins ``had``, not before."""
    mentioned = _aliases(expr)
    return alias in mentioned and bool(mentioned & had) and mentioned <= had | {alias}


def _sides(expr: Expr, alias: str) -> tuple[Expr, Expr] | None:
    """Split a comparison into the side of ``alias`` alone and the other side, or return None."""
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
    """Return the side of ``alias`` of an equality as text, or None."""
    sides = _sides(expr, alias)
    if sides is None or not isinstance(expr, exp.EQ | exp.NullSafeEQ):
        return None
    return str(sides[0])


def _path(
    tree: Tree, start: Input, order: Iterable[Input], conjuncts: Sequence[Conjunct]
) -> tuple[Path | None, str]:
    """Build the path and classify its conditions, or return the reason why there is none."""
    numbers = count()
    part: Relation = start
    node: QueryNode = ChangesNode(next(numbers), (start,), (start,), time_zone=tree.time_zone)
    nodes = [node]
    for i in order:
        asked = Join(part, i, JoinKind.INNER, None)
        node = JoinNode(next(numbers), (node, i), (part, i), asked, time_zone=tree.time_zone)
        nodes.append(node)
        part = asked
    conditions = _place_conditions(nodes, start, conjuncts)
    drafts = []
    for own in nodes:
        draft, problems = draft_of(own, conditions.joins[own.number])
        if problems:
            return None, problems[0].message
        drafts.append(draft)
    why = next(_lookup_problems(drafts), None)
    if why is not None:
        return None, why
    query = replace(tree.query, relation=part, where=None, aggregation=None)
    return Path(start, Tree(query, tuple(nodes), {}, time_zone=tree.time_zone), conditions, tuple(drafts)), ""


def _place_conditions(
    nodes: Sequence[QueryNode], start: Input, conjuncts: Sequence[Conjunct]
) -> PlacedConditions:
    """Place each conjunct at the look-up of the last of its inputs."""
    conditions = PlacedConditions()
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


def _lookup_problems(drafts: Sequence[Draft]) -> Iterator[str]:
    """Yield the reasons why tasks cannot look up rows this way."""
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


def _unbounded_reason(delta: DeltaJoin) -> str:
    """Return the reason why rows of a stream would be retained without limit.

    Returns:
        An empty text if state is bounded.
    """
    for path in delta.paths:
        if path.start.is_table:
            continue
        others = [i for i in path.order if not i.is_table]
        if not others:
            return f"no other stream bounds rows of {path.start.alias}"
        if not delta.keys_of(path):
            return f"no time of {path.start.alias} is bounded by each of the other streams"
    return ""


# How the joins of a query are run, and why: a line for people.


def explain_strategy(
    tree: Tree, delta: DeltaJoin | NoDelta, asked: PlanChoice, arrangements: Sequence[ArrangePlan]
) -> Iterator[str]:
    """Explain the strategy of a query or stage that joins three or more inputs.

    Args:
        asked: Choice of its hint, or of the job.
        arrangements: Arrangements of the query, with its stages.
    """
    by = "by auto" if asked is PlanChoice.AUTO else "as asked"
    if isinstance(delta, DeltaJoin):
        aliases = [i.alias for i in delta.inputs]
        why = " (changes are joined, and each look-up has an equality)" if asked is PlanChoice.AUTO else ""
        kept = " and ".join(["nothing is kept but the inputs' rows", *_besides(arrangements, aliases)])
        yield f"{', '.join(aliases)}: delta, {by}{why}: {kept}"
        return
    joins = [node.children for node in tree.nodes if len(node.children) > 1]
    inputs = [child.alias for both in joins for child in both if isinstance(child, Input) and not child.as_of]
    if len(inputs) >= MIN_INPUTS:
        why = f" ({delta.why})" if delta.why else ""
        yield f"{', '.join(inputs)}: cascade, {by}{why}: each join keeps the rows of those beneath"


def _besides(arrangements: Sequence[ArrangePlan], aliases: Sequence[str]) -> Iterator[str]:
    for node in arrangements:
        if [side.name for side in node.leaving] == list(aliases):
            for side, arranged in zip(node.sides, node.arranged, strict=True):
                yield from (f"{other.key} as a further key of {side.name}" for other in arranged.others)
                if side.copy_of is not None:
                    yield f"{side.copy_of} once more, by {arranged.key or 'no key'}"
