"""Explicit advances: promises of whoever gives them. One below the watermark takes a promise back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Watermark, shown_time
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.watermark.tracker import BranchProgress, BranchRules, InputState


@dataclass(frozen=True)
class RegressiveAdvance:
    """An advance below the watermark of ``key`` (``alias.column``): it moved nothing."""

    key: str
    watermark: Watermark
    advance: int


def find_regressive_advances(
    query: QueryPlan,
    inputs: Mapping[str, InputState],
    rules: Mapping[str, list[BranchRules]],
    seen: Mapping[tuple[str, int], BranchProgress],
) -> tuple[RegressiveAdvance, ...]:
    """Find explicit advances of the tick that are below the current watermark.

    Call this before the tick's watermarks move. Branches with ``follow_when_idle`` that are or were
    idle are skipped: an idle source follows the watermark of others and may restart below it.

    Raises:
        EngineError: an advance regresses and the query is not lenient.
    """
    advances: dict[str, RegressiveAdvance] = {}
    for (alias, number), branch_seen in seen.items():
        branch, rule = inputs[alias].branches[number], rules[alias][number]
        if rule.follow_when_idle and (branch.idle or branch_seen.idle is not None):
            continue
        for column, advance in branch_seen.advances.items():
            watermark = branch.watermarks.get(column, NEVER)
            if advance < watermark:
                advances[f"{alias}.{column}"] = RegressiveAdvance(f"{alias}.{column}", watermark, advance)
    if advances and not query.options.lenient:
        integer = {
            side.watermark_key(column.name): not unit_of_type(column.type).is_time
            for side in query.sides
            for column in side.input.columns
        }
        told = [
            f"the watermark of {key} is {shown_time(back.watermark, integer[key])}, but the advance"
            f" sets it to {shown_time(back.advance, integer[key])}"
            for key, back in sorted(advances.items())
        ]
        raise EngineError(
            f"a watermark cannot move back: {'; '.join(told)}",
            code="advance-goes-back",
            hint="SET lenient = true to ignore and report such advances",
        )
    return tuple(advances[key] for key in sorted(advances))
