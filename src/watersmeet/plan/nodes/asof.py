"""Rule: an ASOF join takes the nearest right row; which that is, and what makes no sense to ask for.

Times: one comparison of an event time of each side says on which side of the left time the nearest row is
looked for; a second one over the same two times is the tolerance. Equalities are keys, conditions on one side
are as in any join. Anything else over both sides is refused: whether the nearest row is found first, or only
among rows that satisfy it, is answered differently everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from watersmeet.conditions import AsofRule
from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.checks.unbounded_state import example_distance
from watersmeet.plan.conditions.bands import IntervalPart, common_ends, comparisons_of
from watersmeet.plan.conditions.classification import OPERATORS
from watersmeet.plan.conditions.conjuncts import Conjunct, split
from watersmeet.plan.nodes.join import Draft
from watersmeet.plan.nodes.tree import QueryNode
from watersmeet.plan.query_inputs import name_of
from watersmeet.spec.model import Input

CODE = "asof-condition"


def check_asof(drafts: Sequence[Draft], *, changes: bool) -> list[PlanError]:
    """Check the ASOF joins of a query and return the errors.

    Args:
        changes: Rows of the query can be retracted.
    """
    problems: list[PlanError] = []
    for draft in drafts:
        if draft.node.is_asof:
            problems += (
                _sides(draft, changes=changes)
                or list(_condition(draft))
                or list(_unbounded_wait_errors(draft))
            )
    return problems


def asof_of(draft: Draft) -> AsofRule | None:
    """Return the plan of an ASOF join that passes `check_asof`; None for any other join."""
    if not draft.node.is_asof:
        return None
    times = draft.parts.times
    closed = common_ends(times).closed()
    return AsofRule(
        latest=_deciding_part(draft).ends.upper is not None,
        closed_lower=closed.lower,
        closed_upper=closed.upper,
        floors=comparisons_of(part for part in times if part.ends.lower is not None),
        ceilings=comparisons_of(part for part in times if part.ends.upper is not None),
    )


def _deciding_part(draft: Draft) -> IntervalPart:
    """Return the comparison that decides which of two rows is nearer."""
    given = _match_conjuncts(draft.node)
    parts = draft.parts.times
    return next((part for part in parts if given and part.conjunct.text == given[0].text), parts[0])


def _match_conjuncts(node: QueryNode) -> tuple[Conjunct, ...]:
    return split(node.match)


def _names(draft: Draft) -> tuple[str, str]:
    left, right = (" with ".join(i.alias for i in draft.node.inputs(side)) for side in Side)
    return left, right


def _sides(draft: Draft, *, changes: bool) -> list[PlanError]:
    node = draft.node
    left, right = _names(draft)
    if changes:
        tables = [
            i.alias
            for s in Side
            for i in node.inputs(s)
            if any(source.primary_key or source.change_column for source in i.sources)
        ]
        return [
            PlanError(
                f"the ASOF join of {left} with {right} is not supported in output_mode changelog, nor over"
                " rows that may be retracted",
                code="not-yet",
                hint=f"remove PRIMARY KEY, 'op.column' and 'diff.column' from {' and '.join(tables)}: each"
                " version is then a row of a stream"
                if tables
                else "SET output_mode = append, and join streams that have no updates or deletes",
            )
        ]
    child = node.side(Side.RIGHT)
    if not isinstance(child, Input) or any(stage.aggregation is None for stage in child.stages):
        return [
            PlanError(
                f"the right side of an ASOF join must be one input, but {right} is a join, whose rows"
                " with equal times have no order",
                code=CODE,
                hint=f"join {left} with one of them first: (… ASOF JOIN …) JOIN …",
            )
        ]
    return [
        PlanError(
            f"an ASOF join needs an event time on both sides, but {name} has none",
            code=CODE,
            hint=f"declare one for {name}: WATERMARK FOR … AS … - INTERVAL '10' SECOND, or IMPOSE_ORDER",
        )
        for name, side in zip((left, right), Side, strict=True)
        if not any(i.event_times for i in node.inputs(side))
    ]


def _condition(draft: Draft) -> Iterator[PlanError]:
    left, right = _names(draft)
    given, times = _match_conjuncts(draft.node), draft.parts.times
    example = _example(draft)
    by_text = {part.conjunct.text: part for part in times}
    for conjunct in given:
        if conjunct.text not in by_text:
            yield PlanError(
                f"{conjunct.text} in MATCH_CONDITION does not compare an event time of {left} with one"
                f" of {right}{_without_watermark(draft, conjunct)}",
                code=CODE,
                hint=f"write MATCH_CONDITION ({example}), and move equalities and other conditions to ON",
            )
            return
    inequalities = [part for part in times if not isinstance(part.conjunct.expr, exp.EQ)]
    if given and any(part.conjunct.text == given[0].text for part in _closed_parts(times)):
        yield PlanError(
            f"the first comparison in MATCH_CONDITION must be >=, >, <= or <, not {given[0].text}",
            code=CODE,
            hint=f"write MATCH_CONDITION ({example})",
        )
        return
    if not given and len(inequalities) != 1:
        texts = " and ".join(part.conjunct.text for part in inequalities)
        yield PlanError(
            f"an ASOF join of {left} with {right} needs one comparison of their event times, but there"
            f" {f'are {len(inequalities)}: {texts}' if texts else 'is none'}",
            code=CODE,
            hint=f"write MATCH_CONDITION ({example}), right before ON",
        )
        return
    for part in times:
        if part.refs != _deciding_part(draft).refs:
            yield PlanError(
                f"{part.conjunct.text} compares other times than {_deciding_part(draft).conjunct.text}, but"
                " an ASOF join uses one time of each side",
                code=CODE,
                hint="remove it, or move it to WHERE, which filters the matches",
            )
        elif not part.is_exact:
            yield PlanError(
                f"{part.conjunct.text} casts a time to a less precise type, so the nearest row would"
                " not be unique",
                code=CODE,
                hint="compare the times without the cast",
            )
    compared = [conjunct.text for conjunct in draft.parts.residuals]
    compared += [part.conjunct.text for part in draft.parts.bands]
    for text in dict.fromkeys(compared):
        yield PlanError(
            f"{text} compares both sides, so it cannot be used in ON of an ASOF join: it could apply"
            f" before or after the choice of the nearest row of {right}",
            code=CODE,
            hint="move it to WHERE, which filters the matches; ON supports equalities, conditions on"
            " one side and a tolerance",
        )
    if draft.residual is not None and not compared:
        yield PlanError(
            "a condition without columns cannot be used in an ASOF join", code=CODE, hint="remove it"
        )


def _closed_parts(times: Sequence[IntervalPart]) -> Iterator[IntervalPart]:
    """Yield the parts whose text bounds the distance at both ends: an equality or a BETWEEN."""
    texts = [part.conjunct.text for part in times]
    yield from (p for p in times if isinstance(p.conjunct.expr, exp.EQ) or texts.count(p.conjunct.text) > 1)


def _without_watermark(draft: Draft, conjunct: Conjunct) -> str:
    columns = ((column.table, column.name) for column in conjunct.expr.find_all(exp.Column) if column.table)
    names = [name_of(ref) for ref in dict.fromkeys(columns) if not draft.join_inputs.is_event_time(ref)]
    if type(conjunct.expr) not in OPERATORS or not names:
        return ""
    return f" ({', '.join(names)} {'has' if len(names) == 1 else 'have'} no watermark)"


def _example(draft: Draft) -> str:
    first, second = (
        next(name_of((i.alias, i.event_times[0])) for i in draft.node.inputs(side) if i.event_times)
        for side in Side
    )
    return f"{first} >= {second}"


def _unbounded_wait_errors(draft: Draft) -> Iterator[PlanError]:
    """Yield an error if a row could wait without limit for a later row.

    Such a row is resolved when the later row arrives or can no longer arrive.
    """
    if any(part.ends.upper is not None for part in draft.parts.times):
        return
    left, right = _names(draft)
    first, second = _deciding_part(draft).refs
    distance = example_distance(first, second, draft.join_inputs) or "…"
    yield PlanError(
        f"state would grow without limit: a row of {left} without a later row of {right} would be"
        f" retained forever, because nothing limits how much later than {name_of(first)}"
        f" {name_of(second)} may be",
        code="unbounded-state",
        hint=f"add a tolerance to the ON condition: AND {name_of(second)} <= {name_of(first)} + {distance}",
    )
