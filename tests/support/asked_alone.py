"""A row that is asked for by itself has the fate that it has among all, though less is run again for it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.support.fates import ROW
from tests.support.recorded_cases import RecordedCase
from watersmeet.why.answer import Fate
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.rows import Reread
from watersmeet.why.ticks import TickHistory


def check_one(
    run: RecordedCase,
    history: TickHistory,
    reread: Mapping[str, Reread],
    alias: str,
    fates: Sequence[Fate],
    rng: random.Random,
) -> None:
    """``fates``: of all rows of the input, one of which is drawn."""
    numbers = sorted({fate.row[ROW] for fate in fates if fate.row.get(ROW) is not None})
    if not numbers:
        return
    number = rng.choice(numbers)
    asked = QuestionPlan.of(Question(alias, [f"{ROW}={number}"], most=len(fates)), run.job, run.plan)
    (answer,) = answers(asked, run.job, history, reread)
    wanted = [fate for fate in fates if fate.row.get(ROW) == number]
    assert list(map(_normalize_fate, answer.fates)) == list(map(_normalize_fate, wanted)), (alias, number)


def _normalize_fate(fate: Fate) -> dict[str, Any]:
    """What is met in one tick is in no order."""
    said = asdict(fate)
    said["met"] = None if fate.more_met else sorted(map(repr, said["met"]))
    return said
