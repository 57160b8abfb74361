"""`why` tells which rows first met a row that only a SEMI or ANTI join of a chain looks at.

A nested-loop oracle runs the query with an inner join in place of the SEMI or ANTI join.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.support.asked_alone import check_one
from tests.support.chain_fates import chain_fates
from tests.support.effort import at_effort
from tests.support.fates import ROW, number_rows
from tests.support.recorded_cases import RecordedCase
from tests.why.test_random_fates import ALL
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.ticks import tick_history

CASES = at_effort(quick=6, full=10)
LEFT = (
    "a JOIN b ON a.k = b.k AND b.t BETWEEN a.t - 2 AND a.t + 4",
    "a LEFT JOIN b ON a.v = b.v AND b.t = a.t",
)
ON = ("c.k = a.k AND c.t BETWEEN a.t - 3 AND a.t + 3", "c.t BETWEEN a.t - 1 AND a.t + 2 AND c.v <> a.v")


def random_case(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    stream = {"columns": {"t": "BIGINT", "k": "STRING", "v": "BIGINT"}, "time": {"t": {"lag": 2}}}

    def row(tick: int) -> dict[str, Any]:
        return {
            "t": 3 * tick + rng.randint(-2, 2),
            "k": rng.choice(["x", "x", "y", None]),
            "v": rng.randrange(3),
        }

    steps = [
        {"rows": [[name, row(tick)] for name in "abccc" for _ in range(rng.randrange(4))]}
        for tick in range(rng.randint(3, 6))
    ]
    kind = rng.choice(["LEFT SEMI", "LEFT ANTI"])
    query = f"SELECT a.v AS v FROM {rng.choice(LEFT)} {kind} JOIN c ON {rng.choice(ON)}"
    case = {"case": "hidden", "streams": dict.fromkeys("abc", stream), "query": query, "steps": steps}
    return number_rows(case)


def number_of(own: tuple[str, Any]) -> tuple[str, int | None]:
    alias, row = own
    return alias, None if row is None else row[ROW]


def test_what_rows_met_that_a_join_only_looks_at(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + CASES):
        case = random_case(number)
        query = case["query"].replace("LEFT SEMI JOIN", "JOIN").replace("LEFT ANTI JOIN", "JOIN")
        shown = chain_fates({**case, "query": query})
        firsts: dict[Any, int] = {}
        for (alias, _), known in shown.items():
            for tick, combined in known.out if alias == "c" else ():
                left = frozenset(own for own in combined if own[0] != "c")
                firsts[left] = min(tick, firsts.get(left, tick))
        run = RecordedCase(case)
        assert run.problem is None, (number, run.problem, case)
        history = tick_history(run.past)
        (answer,) = answers(
            QuestionPlan.of(Question("c", most=ALL), run.job, run.plan), run.job, history, run.reread
        )
        check_one(run, history, run.reread, "c", answer.fates, random.Random(number))
        for fate in answer.fates:
            known = shown["c", fate.row[ROW]]
            if known.what != "new":
                continue
            wanted = Counter(
                (tick, left)
                for tick, combined in known.out.elements()
                if firsts[left := frozenset(own for own in combined if own[0] != "c")] == tick
            )
            met = Counter((own.tick.number, frozenset(map(number_of, own.row.items()))) for own in fate.met)
            problem = (number, fate, wanted, case)
            assert fate.what in (("met",) if wanted else ("on_time", "unmatchable")), problem
            assert not met - wanted, problem
            assert len(fate.met) + fate.more_met == wanted.total(), problem
            assert ("had met one before" in fate.text) == (not wanted and bool(known.out)), problem
            seen[fate.what] += 1
            seen["before"] += "had met one before" in fate.text
    assert all(seen[what] for what in ("met", "on_time", "before")), seen
