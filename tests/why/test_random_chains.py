"""`why` gives every row of random chains of three joined streams the fate that a nested-loop oracle sees.

Where ticks or rows are unknown, it claims nothing false.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.support.asked_alone import check_one
from tests.support.chain_fates import Combined, KnownOfChain, chain_fates
from tests.support.effort import at_effort
from tests.support.fates import ROW, Who, number_rows
from tests.support.oracle.case import Refused, Unsupported
from tests.support.partly_known import partly_known
from tests.support.random_multiway import random_multiway_case
from tests.support.recorded_cases import RecordedCase
from tests.why.test_random_fates import ALL
from watersmeet.plan.model.nodes import DeltaPlan
from watersmeet.why.answer import Fate, Met
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.ticks import TickHistory, tick_history

CASES, GAP_CASES = at_effort(quick=(3, 5), full=(16, 14))
WANTED = ("joined", "padded", "retained", "released_unmatched", "late")
CHAINS = {"inputs": 3, "semi": False, "time": "BIGINT"}


def run_answerable_case(seed: int) -> tuple[dict[str, Any], RecordedCase, dict[Who, KnownOfChain]] | None:
    """A case that can be answered for, if the seed gives one."""
    profile = dict(CHAINS) if seed % 3 else {"inputs": 3, "semi": True, "plan": "cascade"}
    case = number_rows(random_multiway_case(seed, **profile))
    try:
        known = chain_fates(case)
    except (Refused, Unsupported):
        return None
    run = RecordedCase(case)
    return None if run.problem is not None or not known else (case, run, known)


def answer_all_rows(run: RecordedCase, alias: str, history: TickHistory, reread: Any) -> list[Fate]:
    asked = QuestionPlan.of(Question(alias, most=ALL), run.job, run.plan)
    (answer,) = answers(asked, run.job, history, reread)
    return list(answer.fates)


def combine_row_numbers(alias: str, fate: Fate, met: Met) -> Combined:
    others = [(other, None if row is None else row[ROW]) for other, row in met.row.items()]
    return frozenset([(alias, fate.row[ROW]), *others])


def differences(alias: str, fate: Fate, known: KnownOfChain, *, leaves: bool) -> list[str]:
    """What an answer says otherwise than the oracle. ``leaves``: both keep the same rows between joins."""
    if known.what != "new":
        return [] if fate.what == known.what else [f"{fate.what}, not {known.what}"]
    if fate.what in ("on_time", "met"):  # of the right side of a SEMI or ANTI join: see `test_random_hidden`
        return ["put out"] if known.out else []
    problems = []
    out, count = known.out, sum(known.out.values())
    if fate.what == "joined":
        met = Counter((own.tick.number, combine_row_numbers(alias, fate, own)) for own in fate.met)
        if met - out or len(fate.met) + fate.more_met != count:
            problems.append(f"met {met} and {fate.more_met} more, not {out}")
    elif (fate.what in ("padded", "put_out")) != bool(count):
        problems.append(f"{fate.what}, and put out was {out}")
    left = None if fate.left is None else fate.left.number
    if fate.what == "retained" and left is not None:
        problems.append("retained, and left")
    if leaves and left != known.gone:
        problems.append(f"left {left}, not {known.gone}")
    return problems


def test_every_row_of_a_chain_has_the_fate_that_the_oracle_knows(seed: int) -> None:
    seen: Counter[str] = Counter()
    number = cases = 0
    while cases < CASES or (cases < at_effort(quick=10, full=64) and not all(map(seen.get, WANTED))):
        number += 1
        ready = run_answerable_case(seed + number)
        if ready is None:
            continue
        case, run, known = ready
        cases += 1
        history, (query,) = tick_history(run.past), run.plan.queries
        is_delta = bool(query.every(DeltaPlan))
        for alias in sorted({alias for alias, _ in known}):
            fates = answer_all_rows(run, alias, history, run.reread)
            assert len(fates) == sum(own == alias for own, _ in known), (seed + number, alias)
            check_one(run, history, run.reread, alias, fates, random.Random(seed + number))
            for fate in fates:
                own = known[alias, fate.row[ROW]]
                leaves = not is_delta and not query.reordered
                problems = differences(alias, fate, own, leaves=leaves)
                assert not problems, (seed + number, alias, fate, own, problems, case)
                seen[fate.what] += 1
            if is_delta:  # how many it kept says the account of the run
                kept = sum(own.what in ("joined", "retained") and own.left is None for own in fates)
                assert kept == (history.levels(f"input/q/{alias}", "retained")[-1] or 0), seed + number
    assert all(map(seen.get, WANTED)), seen


def test_of_chains_of_which_not_all_is_known_nothing_is_guessed(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number, (case, run, known), history, reread in partly_known(seed, 5, run_answerable_case, GAP_CASES):
        if not history.tells_reading:
            continue
        for alias in sorted({alias for alias, _ in known}):
            for fate in answer_all_rows(run, alias, history, reread):
                own = known[alias, fate.row[ROW]]
                out = {what: tick for tick, what in own.out if tick <= history.ticks[-1]}
                for met in fate.met:
                    tick = out.get(combine_row_numbers(alias, fate, met))
                    wrong = tick is None or (
                        met.tick.number != tick if met.tick.exact else met.tick.number < tick
                    )
                    assert not wrong, (number, alias, fate, own, history.ticks, case)
                is_out = fate.what in ("joined", "padded", "put_out")
                assert not is_out or out, (number, alias, fate, own, history.ticks, case)
                if fate.what in ("retained", "released_unmatched", "unmatchable"):
                    assert not out, (number, alias, fate, own, history.ticks, case)
                seen[fate.what] += 1
    assert seen["not_known"] > GAP_CASES * 10 // 7, seen
    assert seen["joined"] > GAP_CASES // 3, seen
