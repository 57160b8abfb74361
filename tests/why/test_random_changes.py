"""`why` gives every record of random changing inputs the fate that a nested-loop oracle and counting find.

That is: when its row was there, what removed it, and which output was made with it and retracted.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.support.asked_alone import check_one
from tests.support.changing_fates import (
    ROW,
    KeyedRecord,
    KnownChanges,
    Others,
    as_changes,
    changing_fates,
    keyed_case,
    numbered_changes,
)
from tests.support.effort import at_effort
from tests.support.oracle.case import Refused, Unsupported
from tests.support.partly_known import partly_known
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from tests.support.recorded_cases import RecordedCase
from tests.why.test_random_fates import ALL
from watersmeet.why.answer import Fate
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.ticks import TickHistory, tick_history

CASES, KEYED_CASES, GAP_CASES = at_effort(quick=(3, 5, 8), full=(12, 16, 8))

CAME = ("there", "replaced", "withdrawn", "joined", "padded", "put_out", "retained", "released_unmatched")

OF_KEYS = (
    "there",
    "replaced",
    "withdrawn",
    "never_there",
    "stale",
    "delete",
    "delete_of_nothing",
    "filtered",
)


def answer_all_rows(run: RecordedCase, alias: str, history: TickHistory, reread: Any) -> list[Fate]:
    asked = QuestionPlan.of(Question(alias, most=ALL), run.job, run.plan)
    (answer,) = answers(asked, run.job, history, reread)
    return list(answer.fates)


def others_of(fate: Fate) -> dict[tuple[Others, int, int | None], None]:
    return {
        (
            frozenset((alias, None if row is None else row[ROW]) for alias, row in met.row.items()),
            met.tick.number,
            None if met.until is None else met.until.number,
        ): None
        for met in fate.met
    }


def of_results(fate: Fate, known: KnownChanges, since: int, until: int | None, ticks: int) -> list[str]:
    wanted, got = known.results(since, until, ticks), others_of(fate)
    if any(own not in wanted for own in got) or len(fate.met) + fate.more_met != len(wanted):
        return [f"met {list(got)} and {fate.more_met} more, not {wanted}"]
    return []


def differences(
    fate: Fate, known: KnownChanges, tick: int, diff: int, ticks: int, *, added: bool
) -> list[str]:
    """What the answer of a record of a tick says otherwise, of inputs without primary keys."""
    verdict = known.verdicts.get(tick)
    if verdict is None and fate.what in ("late", "null_time", "filtered"):
        return []  # as many equal ones went in the tick: nobody judged them
    if verdict not in (None, "new"):
        return [] if fate.what == verdict else [f"{fate.what}, not {verdict}"]
    if fate.what == "not_known":
        is_so = known.below_zero() and "more often than they came" in fate.text
        return [] if is_so else [f"not known: {fate.text}"]
    if added:
        what = [] if fate.what in CAME or fate.what == "unmatchable" else [fate.what]
        return [*what, *of_results(fate, known, tick, None, ticks)]
    counts = known.counts(ticks)
    ended = next((t for t in range(tick, ticks + 1) if not counts[t]), None)
    if diff > 0:
        if not counts[tick]:
            return [] if fate.what == "never_there" else [f"{fate.what}, not never there"]
        wanted = "there" if ended is None else "withdrawn"
        left = None if fate.left is None else fate.left.number
        problems = (
            [] if (fate.what, left) == (wanted, ended) else [f"{fate.what} {left}, not {wanted} {ended}"]
        )
        return problems + of_results(fate, known, tick, ended, ticks)
    nothing = counts[tick] - counts[tick - 1] != known.diffs[tick]
    gone = known.diffs[tick] < 0 and counts[tick] == 0 and counts[tick - 1] > 0 and not nothing
    if nothing and counts[tick] == counts[tick - 1] == 0 and "of the" not in fate.text:
        return [] if fate.what == "delete_of_nothing" else [f"{fate.what}, not of nothing"]
    if fate.what != "delete":
        return [f"{fate.what}, not a delete"]
    if gone:
        wanted_met = {own for own in known.results(tick - 1, None, ticks) if own[2] == tick}
        if len(fate.met) + fate.more_met != len(wanted_met):
            return [f"took {fate.met} away, not {wanted_met}"]
    return []


def run_answerable_case(
    seed: int,
) -> tuple[dict[str, Any], RecordedCase, tuple[int, dict[Any, KnownChanges]]] | None:
    """A case that can be answered for, if the seed gives one."""
    if seed % 4 == 0:
        drawn = random_case(seed)
        drawn.setdefault("options", {})["output_mode"] = "changelog"
    elif seed % 4 == 1:
        drawn = random_case(seed, changes=True)
    else:
        drawn = random_multiway_case(seed, changes=True, inputs=3, tables=seed % 4 == 2)
    if seed % 4:
        with_deletes_of_nothing(drawn, random.Random(seed))
    case = numbered_changes(drawn, apart=seed % 4 == 0)
    try:
        known = changing_fates(case)
    except (Refused, Unsupported):
        return None
    run = RecordedCase(case)
    return None if run.problem is not None or not known[1] else (case, run, known)


def with_deletes_of_nothing(case: dict[str, Any], rng: random.Random) -> None:
    """Rows of other ticks are deleted, be they there or not."""
    told = [own for step in case["steps"] for own in step.get("rows", ())]
    for step in case["steps"]:
        if told and "rows" in step and rng.random() < 0.6:
            name, row = rng.choice(told)[:2]
            step["rows"].append([name, row, -1])


def rows_of(case: dict[str, Any], source: str) -> list[tuple[int, dict[str, Any], int]]:
    """The records of a source in order: tick, row, diff."""
    found, tick = [], 0
    for step in case["steps"]:
        if "restart" in step or "rescale" in step:
            continue
        tick += 1
        found += [
            (tick, own[1], own[2] if len(own) > 2 else 1) for own in step.get("rows", ()) if own[0] == source
        ]
    return found


def check(
    number: int, case: Any, run: RecordedCase, ticks: int, known: dict[Any, KnownChanges], seen: Counter[str]
) -> None:
    (query,) = run.plan.queries
    for side in query.sides:
        sources = [branch.source.name for _, branch in side.sources]
        fates = answer_all_rows(run, side.name, tick_history(run.past), run.reread)
        records = [own for source in sources for own in rows_of(case, source)]
        assert len(fates) == len(records)
        check_one(run, tick_history(run.past), run.reread, side.name, fates, random.Random(number))
        added = not side.sources[0][1].source.changes
        for fate, (tick, row, diff) in zip(fates, records, strict=True):
            assert fate.row[ROW] == row[ROW]
            own = known.get((side.name, row[ROW]), KnownChanges())
            problems = differences(fate, own, tick, diff, ticks, added=added)
            assert not problems, (number, side.name, tick, diff, fate, problems, case)
            seen[fate.what] += 1
            seen["taken back"] += any(met.until is not None for met in fate.met)


def test_every_record_of_a_changing_input_has_the_fate_that_the_oracle_knows(seed: int) -> None:
    wanted = ("there", "withdrawn", "delete", "delete_of_nothing", "joined", "late", "filtered", "taken back")
    least = at_effort(quick=3, full=len(wanted))
    seen: Counter[str] = Counter()
    cases = number = 0
    # further cases are drawn until each fate has been seen
    while cases < CASES or (cases < 3 * CASES and sum(seen[what] > 0 for what in wanted) < least):
        number += 1
        ready = run_answerable_case(seed + number)
        if ready is None:
            continue
        case, run, (ticks, known) = ready
        cases += 1
        check(seed + number, case, run, ticks, known, seen)
    assert sum(seen[what] > 0 for what in wanted) >= least, seen


def of_key(fate: Fate, known: KeyedRecord) -> list[str]:
    """What the answer of a record of a primary key says otherwise."""
    if fate.what == "not_known":
        return [] if "is not told" in fate.text and known.what != "there" else [f"not known, and {known}"]
    if fate.what == "filtered":
        return [] if known.what in ("there", "replaced", "withdrawn") else [f"filtered, not {known}"]
    problems = [] if fate.what == known.what else [f"{fate.what}, not {known.what}"]
    if known.what in ("there", "replaced", "withdrawn"):
        left = None if fate.left is None else fate.left.number
        if left != known.left:
            problems.append(f"left in {left}, not {known.left}")
    if known.what == "replaced" and (fate.by is None or fate.by.row[ROW] != known.by):
        problems.append(f"by {fate.by}, not {known.by}")
    if known.took is not None and (fate.instead_of is None or fate.instead_of.row[ROW] != known.took):
        problems.append(f"took {fate.instead_of}, not {known.took}")
    return problems


def check_records(number: int, case: Any, run: RecordedCase, reread: Any, seen: Counter[str]) -> None:
    """Of a `keyed_case`: each record of each table has its fate."""
    changes, records = as_changes(case)
    ticks, known = changing_fates(changes)
    for name, declared in case["tables"].items():
        fates = answer_all_rows(run, name, tick_history(run.past), reread)
        places: Counter[int] = Counter()
        given = rows_of(case, name)
        assert len(fates) == len(given)
        check_one(run, tick_history(run.past), reread, name, fates, random.Random(number))
        for fate, (tick, row, diff) in zip(fates, given, strict=True):
            place, places[tick] = places[tick], places[tick] + 1
            seen[fate.what] += 1
            own = known.get((name, row.get(ROW, -1)), KnownChanges())
            if "primary_key" not in declared:
                problems = differences(fate, own, tick, diff, ticks, added=False)
            else:
                record = records[name, tick, place]
                problems = of_key(fate, record)
                if record.what in ("there", "replaced", "withdrawn") and fate.what != "filtered":
                    problems += of_results(fate, own, tick, record.left, ticks)
            assert not problems, (number, name, tick, row, diff, fate, problems, case)


def test_every_record_of_a_primary_key_has_the_fate_that_counting_knows(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + KEYED_CASES):
        case = keyed_case(number)
        run = RecordedCase(case)
        assert run.problem is None, (number, run.problem, case)
        check_records(number, case, run, run.reread, seen)
    assert sum(seen[what] > 0 for what in OF_KEYS) >= at_effort(quick=5, full=len(OF_KEYS)), seen


def test_of_changes_of_which_not_all_is_known_nothing_is_guessed(seed: int) -> None:
    seen: Counter[str] = Counter()
    for number, (case, run, (_, known)), history, reread in partly_known(
        seed, 3, run_answerable_case, GAP_CASES
    ):
        if not history.tells_reading:
            continue
        ticks = history.ticks[-1]
        for side in run.plan.queries[0].sides:
            added = not side.sources[0][1].source.changes
            for fate in answer_all_rows(run, side.name, history, reread):
                seen[fate.what] += 1
                if fate.what in ("not_known", "not_read", "late", "null_time", "filtered", "ahead"):
                    continue
                assert fate.tick is not None
                assert fate.tick.exact
                own = known.get((side.name, fate.row[ROW]), KnownChanges())
                if added:
                    problems = of_results(fate, own, fate.tick.number, None, ticks)
                elif fate.what in ("there", "withdrawn"):
                    problems = differences(fate, own, fate.tick.number, 1, ticks, added=False)
                else:
                    continue
                assert not problems, (number, side.name, fate, problems, case)
    assert seen["not_known"] > 20, seen
