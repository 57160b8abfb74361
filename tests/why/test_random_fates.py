"""Every row of 300 random joins has the fate that a nested-loop oracle saw it come to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.fates import ROW, Known, fates, numbered
from tests.support.random_cases import random_case
from tests.support.recorded_cases import RecordedCase
from watersmeet.testing.oracle.case import Refused, Unsupported
from watersmeet.why.answer import Fate
from watersmeet.why.asked import Asked, Question, answers
from watersmeet.why.recorded import recorded

CASES, CHUNKS = 300, 4
ALL = 1_000_000


def told(case: RecordedCase, alias: str) -> dict[int, Fate]:
    """What is answered for all rows of an input."""
    asked = Asked.of(Question(alias, most=ALL), case.job, case.plan)
    (answer,) = answers(asked, case.job, recorded(case.past), case.reread)
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
        is_semi = fate.what == "joined" and fate.text.startswith("put out")
        if number != left and not is_semi:
            problems.append(f"left {fate.left}, not in tick {left}")
    return problems


def played(seed: int) -> tuple[dict[str, Any], RecordedCase, dict[Any, Known]] | None:
    """A case that can be answered for, if the seed gives one."""
    kind = {0: "LEFT SEMI", 1: "LEFT ANTI"}.get(seed % 14)
    case = numbered(random_case(seed, **({"kind": kind} if kind else {})))
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
    while cases < CASES // CHUNKS:
        number += 1
        at = seed + CHUNKS * number + chunk
        ready = played(at)
        if ready is None:
            continue
        case, run, known = ready
        cases += 1
        aliases = sorted({alias for alias, _ in known})
        every = [side.name for side in run.plan.queries[0].sides]
        for alias in aliases:
            (other,) = [own for own in every if own != alias]
            got = told(run, alias)
            wanted = {rid: own for (of, rid), own in known.items() if of == alias}
            assert got.keys() == wanted.keys(), (at, case)
            for rid, fate in got.items():
                problems = differences(fate, wanted[rid], other)
                assert not problems, (at, alias, fate, wanted[rid], problems, case)
                seen[fate.what] += 1
    rare = ("late", "null_time", "filtered", "joined", "padded", "unmatchable", "released_unmatched")
    assert all(seen[what] for what in (*rare, "retained", "met")), seen
