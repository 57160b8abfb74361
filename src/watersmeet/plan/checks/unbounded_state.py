"""Check that a watermark of the other side bounds every side of every join of streams.

The error names the input, its event-time columns, the conjuncts that look like bounds and why they do not
count; the hint is a condition that would suffice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch

from sqlglot import exp

from watersmeet.conditions import Bound
from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.checks.query import (
    instead_of_groups,
    is_whole_table,
    refuse_changing_table,
    refuse_whole_table,
)
from watersmeet.plan.conditions.bands import links_of
from watersmeet.plan.conditions.classification import OPERATORS, classify
from watersmeet.plan.conditions.conjuncts import Conjunct, text_of
from watersmeet.plan.nodes.join import Draft, bounds_in
from watersmeet.plan.nodes.tree import (
    AggregateNode,
    ChangesNode,
    GroupNode,
    IndexNode,
    JoinNode,
    LookupNode,
    PassNode,
    QueryNode,
    RankNode,
    SnapshotNode,
    TableNode,
    UpsertNode,
)
from watersmeet.plan.query_inputs import JoinInputs, Ref, Unit, name_of, refs
from watersmeet.spec.model import (
    WINDOW_END,
    WINDOW_START,
    Branch,
    Clause,
    Input,
    Join,
    Options,
    WatermarkRule,
)
from watersmeet.spec.stages import time_of
from watersmeet.types.intervals import is_calendar


@dataclass(frozen=True)
class Outflow:
    """Keys whose watermarks leave a query or stage, and the errors of the check."""

    keys: frozenset[str]
    errors: tuple[PlanError, ...]


def check_bounded(
    drafts: Sequence[Draft],
    conjuncts: Sequence[Conjunct],
    options: Options,
    stages: Mapping[tuple[str, int], Outflow],
    in_delta: Collection[int] = (),
    delta_keys: Collection[str] = (),
) -> Outflow:
    """Return an error per input or join side whose rows state would retain without limit.

    Args:
        conjuncts: All conjuncts of the query.
        stages: Outflow of the stages below its inputs, by (alias, branch).
        in_delta: Joins that run as a delta join. The planner chooses a delta join only if it retains no
            rows without limit.
        delta_keys: Watermark keys that the delta join evicts rows by.
    """
    inputs = tuple(i for draft in drafts for i in draft.join_inputs.in_order if not i.as_of)
    all_inputs = JoinInputs(tuple({i.alias: i for i in inputs}.values()), time_zone=options.time_zone)
    problems = _Problems()
    put_out: dict[int, set[str]] = {}
    tight_out: dict[int, set[str]] = {}
    for draft in drafts:
        node, bounds = draft.node, bounds_in(draft, drafts)
        coming = {side: _available(draft, side, put_out, stages) for side in node.sides}
        tight = {side: _available(draft, side, tight_out, stages) for side in node.sides}
        if node.number in in_delta:
            tight_out[node.number] = put_out[node.number] = _passed_keys(node, coming)
            if options.watermark_rule is WatermarkRule.LIMIT:
                put_out[node.number] = tight_out[node.number].intersection(delta_keys)
            continue
        put_out[node.number] = _emitted_keys(node, bounds, coming, options.watermark_rule)
        tight_out[node.number] = _emitted_keys(node, bounds, tight, WatermarkRule.TIGHT)
        _check(node, _ArrivingKeys(draft, bounds, coming, tight, all_inputs, conjuncts), problems)
    return Outflow(frozenset(put_out[drafts[-1].node.number]), tuple(problems.of_inputs or problems.joined))


@dataclass
class _Problems:
    """Problems of a query's joins.

    Attributes:
        joined: the problems of rows of joins, reported only if the inputs have none.
    """

    of_inputs: list[PlanError] = field(default_factory=list)
    joined: list[PlanError] = field(default_factory=list)


@dataclass(frozen=True)
class _ArrivingKeys:
    """Watermark keys that reach a node.

    Attributes:
        bounds: Bounds of the sides of the node.
        coming: Keys with a watermark per side, by the watermark rule of the query.
        tight: Keys with a watermark per side, by the rule `tight`.
        join_inputs: Inputs of the query.
        conjuncts: Conjuncts of the query.
    """

    draft: Draft
    bounds: Sequence[Bound]
    coming: Mapping[Side, set[str]]
    tight: Mapping[Side, set[str]]
    join_inputs: JoinInputs
    conjuncts: Sequence[Conjunct]


@singledispatch
def _check(node: QueryNode, given: _ArrivingKeys, problems: _Problems) -> None:
    """Check that a node eventually releases every row that it retains.

    Raises:
        TypeError: No check is registered for this kind of node.
    """
    raise TypeError(f"how rows of {type(node).__name__} are released")


@_check.register(ChangesNode)
@_check.register(PassNode)
@_check.register(LookupNode)
def _(node: QueryNode, given: _ArrivingKeys, problems: _Problems) -> None:
    """Check nothing, because the node retains no rows."""


@_check.register(IndexNode)
@_check.register(SnapshotNode)
@_check.register(TableNode)
@_check.register(UpsertNode)
def _(node: QueryNode, given: _ArrivingKeys, problems: _Problems) -> None:
    """Check nothing, because state retains rows of a table until the table deletes them."""


@_check.register(GroupNode)
@_check.register(RankNode)
def _(node: QueryNode, given: _ArrivingKeys, problems: _Problems) -> None:
    stream = next((i for i in node.inputs(Side.LEFT) if not i.is_table), None)
    if stream is not None:
        problems.of_inputs.append(_unbounded_groups_error(stream))


@_check.register
def _(node: AggregateNode, given: _ArrivingKeys, problems: _Problems) -> None:
    time = name_of(node.timed)
    if time not in given.coming[Side.LEFT]:
        problems.of_inputs.append(
            _unclosed_windows_error(node, node.timed, tight_helps=time in given.tight[Side.LEFT])
        )


@_check.register
def _(node: JoinNode, given: _ArrivingKeys, problems: _Problems) -> None:
    draft, bounds = given.draft, given.bounds
    limitless: list[Input] = []
    for side in Side:
        child, inputs = node.side(side), node.inputs(side)
        if all(i.is_table for i in inputs):
            continue
        if node.is_asof:
            problems.of_inputs += _unbounded_asof_right(draft, side, given.coming[side.other])
            continue
        nullable = draft.may_be_null(side)
        keys = {name_of(ref) for i in inputs for c in i.event_times if (ref := (i.alias, c)) not in nullable}
        if any(bound.evicted in keys and bound.by in given.coming[side.other] for bound in bounds):
            continue
        held = [bound for bound in bounds if bound.evicted in keys and bound.by in given.tight[side.other]]
        if (refusals := _check_table_sides(node, side)) is not None:
            (problems.of_inputs if isinstance(child, Input) else problems.joined).extend(refusals)
        elif held:
            problems.of_inputs.append(_by_limit(draft, side, held[0]))
        elif isinstance(child, Input):
            limitless.append(child)
        else:
            problems.joined.append(_joined_refusal(draft, side, bounds, _place(node.asked)))
    both = _refusal_of_both(limitless, node.asked, given)
    problems.of_inputs += [both] if both else [_refusal(i, node.asked, given) for i in limitless]


def _check_table_sides(node: JoinNode, side: Side) -> list[PlanError] | None:
    """Refuse what no bound can help: rows that meet a table. None: it is a join of streams."""
    child, other, inputs = node.side(side), node.side(side.other), node.inputs(side)
    meets = other if isinstance(other, Input) and is_whole_table(other) else None
    if isinstance(child, Input) and is_whole_table(child):
        return [] if side is Side.LEFT and meets is not None else [refuse_whole_table(child, node, side)]
    if meets is not None:  # what has no event time is refused with its own side, if it is asked at all
        return [refuse_whole_table(meets, node, side.other)] if meets.is_table else []
    tables = node.inputs(side.other)
    if not all(table.is_table for table in tables):
        return None
    rows = _describe_input(child) if isinstance(child, Input) else " with ".join(i.alias for i in inputs)
    times = "; ".join(_times(i) for i in inputs)
    return [refuse_changing_table(rows, " and ".join(i.alias for i in inputs), times, tables[0])]


def _available(
    draft: Draft, side: Side, put_out: Mapping[int, set[str]], stages: Mapping[tuple[str, int], Outflow]
) -> set[str]:
    """Return the keys of a side that have a watermark there.

    A key of a UNION ALL needs a watermark on every branch.
    """
    child = draft.node.side(side)
    if not isinstance(child, Input):
        return put_out[child.number]
    return {
        name_of((child.alias, column))
        for column in child.event_times
        if all(
            isinstance(branch, Branch)
            or ((time := time_of(branch, child, column)) and name_of(time) in stages[child.alias, n].keys)
            for n, branch in enumerate(child.branches)
        )
    }


@singledispatch
def _emitted_keys(
    node: QueryNode, bounds: Sequence[Bound], coming: Mapping[Side, set[str]], rule: WatermarkRule
) -> set[str]:
    """Return the keys whose watermark a node emits; the default passes every key through."""
    return _passed_keys(node, coming)


def _passed_keys(node: QueryNode, coming: Mapping[Side, set[str]]) -> set[str]:
    return {key for side, own in coming.items() if side is Side.LEFT or not node.hides_right for key in own}


@_emitted_keys.register
def _(
    node: JoinNode, bounds: Sequence[Bound], coming: Mapping[Side, set[str]], rule: WatermarkRule
) -> set[str]:
    """Return the keys whose watermark a join emits; by the rule `limit`, only keys with a bound."""
    keys = _passed_keys(node, coming)
    if node.is_asof or rule is WatermarkRule.TIGHT:
        return keys
    both = {key for own in coming.values() for key in own}
    return keys & {bound.evicted for bound in bounds if bound.by in both}


@_emitted_keys.register
def _(
    node: AggregateNode, bounds: Sequence[Bound], coming: Mapping[Side, set[str]], rule: WatermarkRule
) -> set[str]:
    return {WINDOW_START, WINDOW_END}


def _unbounded_asof_right(draft: Draft, side: Side, other: set[str]) -> list[PlanError]:
    """Return an error if the right rows of an ASOF join would never be evicted.

    They are evicted as the watermark of the left time rises, so the other side must provide it.
    """
    times = draft.parts.times[0]
    key = name_of(times.left)
    if side is Side.LEFT or key in other:
        return []
    names = ", ".join(i.alias for i in draft.node.inputs(side))
    return [
        PlanError(
            f"state would grow without limit: rows of {names} could never be dropped, because the joins"
            f" below emit no watermark of {key} with watermark_rule = 'limit'",
            code="unbounded-state",
            hint=_TIGHT,
        )
    ]


def _by_limit(draft: Draft, side: Side, bound: Bound) -> PlanError:
    """Build the error for rows whose bound needs a watermark that the join below does not emit."""
    names = " with ".join(i.alias for i in draft.node.inputs(side))
    others = " with ".join(i.alias for i in draft.node.inputs(side.other))
    return PlanError(
        f"state would grow without limit: rows of {names} can be dropped only when the watermark of"
        f" {bound.by} advances, but with watermark_rule = 'limit' the join of {others} emits none for it",
        code="unbounded-state",
        hint=_TIGHT,
    )


_TIGHT = "SET watermark_rule = tight: it joins the same rows"


def _unclosed_windows_error(node: AggregateNode, time: Ref, *, tight_helps: bool) -> PlanError:
    """Build the error for windows over a time whose watermark a join below does not emit."""
    return PlanError(
        f"{node.window.kind.value} windows over {name_of(time)} would never close: the join"
        " below does not emit a watermark for it",
        code="unbounded-state",
        hint=_TIGHT if tight_helps else "compare it in ON with a time of another input of that join",
    )


def _unbounded_groups_error(stream: Input) -> PlanError:
    """Build the error for groups over all rows of a stream, which could never be dropped."""
    return PlanError(
        f"state would grow without limit: groups of {_describe_input(stream)} could never be "
        "dropped, because a"
        f" row of any group may still arrive; {_times(stream)}",
        code="unbounded-state",
        hint=instead_of_groups(stream),
    )


def _joined_refusal(draft: Draft, side: Side, bounds: Sequence[Bound], place: str) -> PlanError:
    """Build the error for rows of a join that the next join would retain without limit."""
    names = " with ".join(i.alias for i in draft.node.inputs(side))
    times = ", ".join(name_of((i.alias, c)) for i in draft.node.inputs(side) for c in i.event_times)
    others = ", ".join(i.alias for i in draft.node.inputs(side.other))
    why = f"no condition bounds them by a watermark of {others}"
    hint = f"add a condition between a time of {names} and a time of {others} to {place}"
    if bounds:
        first = bounds[0]
        why = f"the watermark or time that bounds them may be NULL ({first.evicted} by {first.by})"
        hint += ", from an input that this join never pads with NULLs"
    return PlanError(
        f"state would grow without limit: rows of {names} could never be dropped in the join with"
        f" {others}, because {why}; event-time columns: {times}",
        code="unbounded-state",
        hint=hint,
    )


def _describe_input(i: Input) -> str:
    sources = " and ".join(f'"{name}"' for name in dict.fromkeys(source.name for source in i.sources))
    made_of = [f"source {sources}"] if sources else []
    made_of += [" with ".join(stage_input.alias for stage_input in stage.inputs) for stage in i.stages]
    return f'input "{i.alias}" ({" and ".join(made_of)})'


def _times(i: Input) -> str:
    columns = ", ".join(name_of((i.alias, column)) for column in i.event_times)
    return f"event-time columns: {columns or 'none'}"


def _refusal_of_both(sides: Sequence[Input], join: Join, given: _ArrivingKeys) -> PlanError | None:
    """Refuse the two sides of a join at once, with the condition that bounds both; None: there is none."""
    if len(sides) != 2 or any("." in i.alias or not i.event_times for i in sides):
        return None
    one, other = sides
    (left, right), inputs = (i.event_times[0] for i in sides), given.join_inputs
    distance = example_distance((one.alias, left), (other.alias, right), inputs)
    if distance is None or any(_reasons(i, given) for i in sides):
        return None
    start = f"{one.alias}.{left}"
    bound = f"{other.alias}.{right} BETWEEN {start} - {distance} AND {start} + {distance}"
    times = ", ".join(name_of((i.alias, column)) for i in sides for column in i.event_times)
    return PlanError(
        "state would grow without limit: no time bound says when rows of "
        f"{_describe_input(one)} and {_describe_input(other)}"
        f" can be dropped; event-time columns: {times}",
        code="unbounded-state",
        hint=_to_add(join, bound),
    )


def _reasons(i: Input, given: _ArrivingKeys) -> list[str]:
    """Return why each condition over an input bounds nothing."""
    joined, inputs = {joined.alias for joined in given.draft.join_inputs.in_order}, given.join_inputs
    aliases = {own.alias for own in inputs.in_order}  # without tables as of the tick
    own = (c for c in given.conjuncts if {alias for alias, _ in refs(c.expr)} <= aliases)
    why = (unbounded_reason(conjunct, i, inputs, joined) for conjunct in own)
    return list(dict.fromkeys(reason for reason in why if reason is not None))


def _refusal(i: Input, join: Join, given: _ArrivingKeys) -> PlanError:
    reasons, inputs = _reasons(i, given), given.join_inputs
    but = "; but " + "; ".join(reasons) if reasons else ""
    return PlanError(
        "state would grow without limit: no time bound says when rows of "
        f"{_describe_input(i)} can be dropped;"
        f" {_times(i)}{but}",
        code="unbounded-state",
        hint=_hint(i, inputs, join),
    )


def _hint(i: Input, inputs: JoinInputs, join: Join) -> str:
    if not i.event_times:
        return (
            f"give {i.alias} an event-time column (WATERMARK FOR … AS … - INTERVAL '10' SECOND, or "
            "IMPOSE_ORDER), on every branch of a UNION ALL"
        )
    others = [o for o in inputs.in_order if o.alias != i.alias and o.event_times]
    if not others:
        names = ", ".join(o.alias for o in inputs.in_order if o.alias != i.alias)
        return (
            f"give {names} an event-time column (WATERMARK FOR …, or IMPOSE_ORDER), and bound {i.alias} by it"
        )
    for other in others:
        for column in i.event_times:
            for by in other.event_times:
                distance = example_distance((i.alias, column), (other.alias, by), inputs)
                if distance is not None:
                    bound = f"{i.alias}.{column} >= {other.alias}.{by} - {distance}"
                    views = [source_input.alias.rpartition(".")[0] for source_input in (i, other)]
                    inside = "; ".join(
                        _describe_scope(source_input)
                        + ("" if views[0] == views[1] else f", which must select {time}")
                        for source_input, time in ((i, column), (other, by))
                        if "." in source_input.alias
                    )
                    return _to_add(join, bound) + (f" ({inside})" if inside else "")
    return "cast the event times of the inputs to the same type in a view"


def _place(join: Join) -> str:
    """Return the clause in which the user must write a condition of a join."""
    if join.clause is Clause.USING:
        return "an ON condition, instead of USING"
    if join.clause is Clause.EXISTS:
        return "WHERE in the sub-query of EXISTS"
    return "WHERE" if join.clause is Clause.NONE else "the ON condition"


def _to_add(join: Join, bound: str) -> str:
    if join.clause is Clause.USING and join.on is not None:
        return f"replace USING with ON {text_of(join.on)} AND {bound}"
    if join.clause is Clause.NONE:
        return f"add it to WHERE: {bound}"
    return f"add to {_place(join)}: AND {bound}"


def _describe_scope(i: Input) -> str:
    """Describe where an input of a view or subquery is declared.

    Inside the view it has its own alias; above the view only its columns are visible.
    """
    view, _, alias = i.alias.rpartition(".")
    above, _, branch = view.rpartition(".")
    if above and branch.isdigit():
        return f"{i.alias} is {alias} in branch {branch} of {above}"
    return f"{i.alias} is {alias} inside of {view}"


def example_distance(evicted: Ref, by: Ref, inputs: JoinInputs) -> str | None:
    """Return an example distance between two event times as SQL text.

    Returns:
        None if the two times are of different kinds.
    """
    units = {inputs.unit(evicted), inputs.unit(by)}
    if units == {Unit.INTEGER}:
        return "10"
    if units == {Unit.DATE}:
        return "INTERVAL '1' DAY"
    return "INTERVAL '1' HOUR" if units <= {Unit.TIMESTAMP, Unit.DATE} else None


def unbounded_reason(conjunct: Conjunct, i: Input, inputs: JoinInputs, joined: Collection[str]) -> str | None:
    """Return the reason why a conjunct with `i` and a time bounds nothing.

    Args:
        joined: The inputs on both sides of the join of `i`.

    Returns:
        None if there is nothing to report.
    """
    mentioned = refs(conjunct.expr)
    aliases = inputs.mentioned(conjunct.expr)
    if i.alias not in aliases or not any(_looks_like_time(ref, inputs) for ref in mentioned):
        return None
    reason = _reason(conjunct, mentioned, aliases, i, inputs, joined)
    return None if reason is None else f"{text_of(conjunct.expr)} does not bound them: {reason}"


def _looks_like_time(ref: Ref, inputs: JoinInputs) -> bool:
    return inputs.is_event_time(ref) or inputs.unit(ref).is_time


def _reason(
    conjunct: Conjunct,
    mentioned: Sequence[Ref],
    aliases: Sequence[str],
    i: Input,
    inputs: JoinInputs,
    joined: Collection[str],
) -> str | None:
    expr = conjunct.expr
    if len(aliases) == 1:
        others = [ref for ref in mentioned if not inputs.is_event_time(ref)]
        return f"it mentions {i.alias} alone" if others or len(mentioned) > 1 else None
    if isinstance(expr, exp.Or):
        return "it is part of an OR"
    if isinstance(expr, exp.Not):
        return "it is negated"
    if type(expr) not in OPERATORS:
        return None
    if any(is_calendar(interval) for interval in expr.find_all(exp.Interval)):
        return "months and years have no fixed length"
    times = [ref for ref in mentioned if inputs.is_event_time(ref)]
    without = [ref for ref in mentioned if not inputs.is_event_time(ref)]
    if len({ref[0] for ref in times}) > 1:
        if without:
            return f"its distance is not constant ({', '.join(map(name_of, without))})"
        return _time_pair_problem(expr, aliases, i, inputs, joined)
    if without:
        return f"{', '.join(map(name_of, without))} has no watermark"
    return None


def _time_pair_problem(
    expr: exp.Expression, aliases: Sequence[str], i: Input, inputs: JoinInputs, joined: Collection[str]
) -> str | None:
    """Return the reason why a comparison of times of several inputs does not bound rows of `i`.

    Returns:
        None if the comparison is not the problem.
    """
    own = JoinInputs(tuple(inputs.input(alias) for alias in aliases), time_zone=inputs.time_zone)
    parts, errors = classify([Conjunct(expr)], own)
    if not parts.times and not errors:
        return "it does not have the form time ± constant"
    above = not set(aliases) <= set(joined)
    if above and any(evicted[0] == i.alias for evicted, _ in links_of(parts.times)):
        others = " and ".join(alias for alias in aliases if alias != i.alias)
        return f"it belongs to a join above that of {i.alias}; join {i.alias} with {others} first"
    return None
