"""`why` gives every row of random joins the fate that a nested-loop oracle sees."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.fates import ROW, Known, fates, number_rows
from tests.support.oracle.case import Refused, Unsupported
from tests.support.partly_known import partly_known
from tests.support.random_cases import random_case
from tests.support.random_lateness import late_case
from tests.support.recorded_cases import RecordedCase
from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.why.answer import Fate
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.ticks import tick_history

CASES = at_effort(quick=18, full=300)
CHUNKS = at_effort(quick=1, full=4)
GAP_CASES = at_effort(quick=12, full=120)
ALL = 1_000_000


def answer_all_rows(case: RecordedCase, alias: str) -> dict[int, Fate]:
    """What is answered for all rows of an input."""
    asked = QuestionPlan.of(Question(alias, most=ALL), case.job, case.plan)
    (answer,) = answers(asked, case.job, tick_history(case.past), case.reread)
    assert answer.more == 0
    assert not answer.notes
    return {fate.row[ROW]: fate for fate in answer.fates}


def differences(fate: Fate, known: Known, other: str) -> list[str]:
    """What an answer says otherwise than the oracle."""
    problems = []
    if fate.tick is None or (fate.tick.number, fate.tick.exact) != (known.came, True):
        problems.append(f"read {fate.tick}, not in tick {known.came}")
    met = {(other, own.row[ROW]): own.tick.number for own in fate.met}
    if known.what != "new":
        wanted, left = known.what, None
    elif known.met:
        wanted = "met" if fate.what == "met" else "joined"
        left = known.left
        missing = len(known.met) - len(met) - fate.more_met
        if missing or any(known.met.get(who) != tick for who, tick in met.items()):
            problems.append(f"met {met} and {fate.more_met} more, not {known.met}")
    else:
        wanted = {None: "retained", "released": "released_unmatched", "filtered": "unmatchable"}.get(
            known.as_what, known.as_what
        )
        left = known.left
    if fate.what != wanted:
        problems.append(f"{fate.what}, not {wanted}")
    if fate.what in ("joined", "padded", "unmatchable", "released_unmatched", "retained"):
        number = None if fate.left is None else fate.left.number
        is_semi = fate.what == "joined" and fate.text.startswith("emitted")
        if number != left and not is_semi:
            problems.append(f"left {fate.left}, not in tick {left}")
    return problems


def run_answerable_case(seed: int) -> tuple[dict[str, Any], RecordedCase, dict[Any, Known]] | None:
    """A case that can be answered for, if the seed gives one."""
    kind = {0: "LEFT SEMI", 1: "LEFT ANTI"}.get(seed % 14)
    drawn = late_case(seed) if seed % 14 == 2 else random_case(seed, **({"kind": kind} if kind else {}))
    case = number_rows(drawn)
    if case.get("options", {}).get("output_mode") == "changelog" or "tables" in case:
        return None
    try:
        known = fates(case)
    except (Refused, Unsupported):
        return None
    run = RecordedCase(case)
    return None if run.problem is not None or not known else (case, run, known)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_row_has_the_fate_that_the_oracle_knows(chunk: int, seed: int) -> None:
    seen: Counter[str] = Counter()
    cases, number = 0, 0
    rare = ("late", "null_time", "filtered", "joined", "padded", "unmatchable", "released_unmatched")
    kinds = (*rare, "retained", "met")
    least = CASES // CHUNKS
    while cases < least or (cases < 10 * least and not all(seen[what] for what in kinds)):
        number += 1
        at = seed + CHUNKS * number + chunk
        ready = run_answerable_case(at)
        if ready is None:
            continue
        case, run, known = ready
        cases += 1
        aliases = sorted({alias for alias, _ in known})
        every = [side.name for side in run.plan.queries[0].sides]
        for alias in aliases:
            (other,) = [own for own in every if own != alias]
            got = answer_all_rows(run, alias)
            wanted = {rid: own for (of, rid), own in known.items() if of == alias}
            assert got.keys() == wanted.keys(), (at, case)
            for rid, fate in got.items():
                problems = differences(fate, wanted[rid], other)
                assert not problems, (at, alias, fate, wanted[rid], problems, case)
                seen[fate.what] += 1
    assert all(seen[what] for what in kinds), seen


def test_a_tick_decides_below_which_times_rows_of_the_next_are_late(seed: int) -> None:
    """With ``lateness = 'join'``, too, where the watermarks of both inputs decide, and are told."""
    compared, late = 0, Counter[bool]()
    while compared < CASES or not late[True]:
        seed += 14
        ready = run_answerable_case(seed - seed % 14 + 2)
        if ready is None:
            continue
        history, (query,) = tick_history(ready[1].past), ready[1].plan.queries
        for key, below in history.late_after(query).items():
            alias, column = key.split(".")
            marks = history.mark(query.name, alias, column, "late_below")
            told = [int(min(max(mark, MIN_TIME), MAX_TIME)) for mark in marks]
            assert below.tolist()[:-1] == told[1:], (seed, key, ready[0])
            compared += 1
        both = any(join.horizon is not None for join in query.every(JoinPlan))
        for side in query.sides:
            for fate in answer_all_rows(ready[1], side.name).values():
                if fate.what == "late":
                    assert ("the least watermark of l.t and r.t" in fate.text) is both, (seed, fate)
                    late[both] += 1


def guesses(fate: Fate, known: Known, other: str) -> list[str]:
    """What is said for certain, and is not so."""
    problems = []
    if fate.tick is not None and (
        fate.tick.number != known.came if fate.tick.exact else fate.tick.number < known.came
    ):
        problems.append(f"read {fate.tick}, not in tick {known.came}")
    if fate.what == "not_known":
        return problems
    for own in fate.met:
        tick = known.met.get((other, own.row[ROW]))
        if tick is None or (own.tick.number != tick if own.tick.exact else own.tick.number < tick):
            problems.append(f"met {own}, not {known.met}")
    wanted = {known.what if known.what != "new" else known.as_what or "retained"}
    wanted = {{"released": "released_unmatched", "filtered": "unmatchable"}.get(w, w) for w in wanted}
    if known.what == "filtered":
        wanted = {"filtered"}
    if known.met:
        wanted = {"joined", "met"}
    if fate.what not in wanted:
        problems.append(f"{fate.what}, not {wanted}")
    if fate.left is not None and fate.what != "met" and not fate.text.startswith("emitted in tick"):
        left = known.left
        if left is None or (fate.left.number != left if fate.left.exact else fate.left.number < left):
            problems.append(f"left {fate.left}, not in tick {left}")
    return problems


def test_what_is_not_known_is_not_guessed(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number, (case, run, known), history, reread in partly_known(seed, 7, run_answerable_case, GAP_CASES):
        every = [side.name for side in run.plan.queries[0].sides]
        for alias, other in (every, every[::-1]):
            asked = QuestionPlan.of(Question(alias, most=ALL), run.job, run.plan)
            if not history.tells_reading:
                continue
            (answer,) = answers(asked, run.job, history, reread)
            for fate in answer.fates:
                own = known[alias, fate.row[ROW]]
                if own.what == "new" and not own.met and own.left and own.left > history.ticks[-1]:
                    own = replace(own, left=None, as_what=None)  # which are not told of
                own = replace(
                    own, met={who: tick for who, tick in own.met.items() if tick <= history.ticks[-1]}
                )
                problems = guesses(fate, own, other)
                assert not problems, (number, alias, fate, own, history.ticks, problems, case)
                seen["not known" if fate.what == "not_known" else "known"] += 1
                seen["late all the same"] += " from tick " in fate.text and fate.what == "late"
                seen["by account"] += fate.what == "joined" and not fate.met
                unseen = reread[
                    run.plan.queries[0].sides[every.index(other)].sources[0][1].source.name
                ].missing
                seen["though some are gone"] += fate.what in ("padded", "released_unmatched") and bool(unseen)
    assert seen["not known"] > GAP_CASES * 5 // 6
    assert seen["known"] > seen["not known"], seen
    assert seen["by account"] > 0, seen
    assert seen["late all the same"] + seen["though some are gone"] > 0, seen
    assert seen["late all the same"] >= at_effort(quick=0, full=6), seen
    assert seen["though some are gone"] >= at_effort(quick=0, full=11), seen
