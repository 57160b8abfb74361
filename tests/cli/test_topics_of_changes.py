"""Topics whose records change rows, read again by `why` from their logs as Kafka has them, against what a
nested-loop oracle and plain counting know of every record."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support.changing_fates import ROW, KeyedRecord, as_changes, keyed_case
from tests.support.partly_known import rolled_up
from tests.support.recorded_cases import Reached
from tests.support.topic_cases import TopicCase
from tests.why.test_random_changes import OF_KEYS, answer_all_rows, check_records, rows_of
from watersmeet.cli.why.topics import find_unordered
from watersmeet.history.points import MAX_PARTITIONS
from watersmeet.runtime.replay import CaseStep
from watersmeet.runtime.values import to_table
from watersmeet.why.answer import Fate
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan
from watersmeet.why.rows import UNREAD, Portion
from watersmeet.why.ticks import TickHistory, tick_history

CASES, COMPACTED_CASES = 9, 50
KEYED = {"columns": {"id": "BIGINT", "k": "STRING"}, "primary_key": ["id"]}


def test_every_record_of_a_topic_of_changes_has_its_fate(seed: int, monkeypatch: Any) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + CASES):
        case = keyed_case(number)
        run = TopicCase(case, random.Random(number))
        assert run.problem is None, (number, run.problem, case)
        reread = run.read_again(monkeypatch)
        assert not any(own.missing for own in reread.values())
        check_records(number, case, run, reread, seen)
    assert all(seen[what] for what in OF_KEYS), seen


def run_case(*steps: Any, of: type[TopicCase] = TopicCase) -> TopicCase:
    case = {
        "case": "c",
        "tables": {"a": KEYED, "b": KEYED},
        "query": "SELECT a.id AS id, b.k AS k FROM a JOIN b ON a.k = b.k",
        "options": {"output_mode": "changelog"},
        "steps": [{"rows": rows} for rows in steps],
    }
    run = of(case, random.Random(0))
    assert run.problem is None, run.problem
    return run


def row(name: str, id: int, k: str | None = None) -> Any:
    return [name, {"id": id}, -1] if k is None else [name, {"id": id, "k": k}, 1]


def wrong(fate: Fate, known: KeyedRecord, before: KeyedRecord | None) -> list[str]:
    """What an answer says of a record of a table of which not all is known, and is not so. ``before``: the
    one in whose place its row came."""
    if fate.what == "not_known":
        return []
    if fate.what == "filtered":
        return [] if known.what in ("there", "replaced", "withdrawn") else [f"filtered, not {known}"]
    if "what was there before is not known" in fate.text:
        return [] if known.what in ("delete", "delete_of_nothing") else [f"a delete, not {known}"]
    problems = [] if fate.what == known.what else [f"{fate.what}, not {known.what}"]
    if fate.what in ("replaced", "withdrawn") and (fate.left is None or fate.left.number != known.left):
        problems.append(f"left in {fate.left}, not {known.left}")
    if fate.what == "replaced" and (fate.by is None or fate.by.row[ROW] != known.by):
        problems.append(f"by {fate.by}, not {known.by}")
    if fate.what == "delete" and (fate.instead_of is None or fate.instead_of.row[ROW] != known.took):
        problems.append(f"took {fate.instead_of}, not {known.took}")
    if fate.what in ("there", "replaced", "withdrawn") and "of what is not known" not in fate.text:
        is_told = fate.instead_of is not None
        if is_told != (before is not None):
            problems.append(f"in the place of {fate.instead_of}, not {before}")
    return problems


def known_in_part(case: Any, run: TopicCase, rng: random.Random) -> TickHistory:
    """The logs of tables with primary keys are compacted, or in their midst records have gone; and perhaps
    the first ticks were rolled up."""
    for name, log in run.logs.items():
        if "primary_key" not in case["tables"][name]:
            continue
        if rng.random() < 0.75:
            log.compact(rng.randint(0, log.end), rng)
        elif "sequence_by" in case["tables"][name] and log.records:
            del log.records[rng.choice(list(log.records))]
        if rng.random() < 0.3:
            log.append({"id": rng.randrange(3)}, {"id": 1, "k": "x"} if rng.random() < 0.1 else None)
    return tick_history(rolled_up(run.past, rng) if rng.random() < 0.4 else run.past)


@pytest.mark.full
def test_why_on_compacted_topics_reports_only_certain_fates(seed: int, monkeypatch: Any) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + COMPACTED_CASES):
        rng = random.Random(number)
        case = keyed_case(number)
        case["query"] = case["query"].replace(" SEMI ", " LEFT ").replace(" ANTI ", " LEFT ")
        run = TopicCase(case, rng, spelled=True)
        assert run.problem is None, (number, run.problem, case)
        _, records = as_changes(case)
        ends = {name: log.end for name, log in run.logs.items()}
        history = known_in_part(case, run, rng)
        reread = run.read_again(monkeypatch, ends=ends)
        for name, declared in case["tables"].items():
            if "primary_key" not in declared:
                continue
            given, places = [], Counter[int]()
            for tick, row, _ in rows_of(case, name):
                given.append((tick, records[name, tick, places[tick]], row))
                places[tick] += 1
            by_offset = dict(zip(run.offsets[name], given, strict=True))
            for fate in answer_all_rows(run, name, history, reread):
                offset = int(fate.place.rpartition(" ")[2].replace(",", ""))
                if offset not in by_offset:  # nothing is read of it
                    assert fate.what in ("not_read", "not_known")
                    continue
                tick, known, row = by_offset[offset]
                assert fate.tick is None or not fate.tick.exact or fate.tick.number == tick
                number_of = row.get(ROW, -1)
                before = next((own for _, own, _ in given if own.by == number_of), None)
                problems = wrong(fate, known, before)
                assert not problems, (number, name, tick, fate, known, problems, case, run.logs[name])
                seen[fate.what] += 1
                seen["in part"] += "is not known: not all rows" in fate.text and fate.what != "not_known"
    assert all(seen[what] for what in ("there", "replaced", "delete", "not_known", "in part")), seen


def test_why_on_a_compacted_topic_reports_current_table_rows(monkeypatch: Any) -> None:
    run = run_case(
        [row("a", 1, "x"), row("a", 2, "x"), row("a", 3, "x")],
        [row("a", 1, "w"), row("a", 2)],
        [row("a", 1, "y"), row("b", 5, "y")],
        [row("a", 3), row("a", 4, "z")],
    )
    run.logs["a"].compact(6, random.Random(1))
    assert list(run.logs["a"].records) == [2, 5, 6, 7]
    history, reread = tick_history(run.past), run.read_again(monkeypatch)
    asked = QuestionPlan.of(Question("a"), run.job, run.plan)
    (answer,) = answers(asked, run.job, history, reread)
    because = "what was made of it is not known: not all rows of its inputs can be read again"
    unclear = "in the place of nothing, or of what is not known"
    x, y, gone, z = answer.fates
    assert x.what == "not_known"  # tick 2 lacks records, which might have been of its key
    assert y.text == f"there since tick 3, {unclear}; {because}"
    assert (gone.what, gone.text) == (
        "delete",
        "deleted its key in tick 4; what was there before is not known",
    )
    assert z.text == f"there since tick 4, {unclear}; {because}"
    assert answer.notes[-1] == "of all keys of which a has a row after tick 4 there are records here"
    (nothing,) = answers(
        QuestionPlan.of(Question("a", ["id=2"]), run.job, run.plan), run.job, history, reread
    )
    assert not nothing.fates
    assert nothing.notes[-1] == answer.notes[-1]
    del run.logs["a"].records[7]  # then the table has a row more than is told
    reread = run.read_again(monkeypatch)
    (answer,) = answers(asked, run.job, history, reread)
    assert [fate.what for fate in answer.fates] == ["not_known"] * 3
    assert not any("all keys" in note for note in answer.notes)


def test_topics_of_which_the_state_names_no_partition_are_not_read_yet(monkeypatch: Any) -> None:
    run = run_case([row("a", 1, "x")], [row("a", 1), row("b", 2, "x")])
    reread = run.read_again(monkeypatch, is_read=False)
    assert [own.missing for own in reread.values()] == [(), ()]
    assert [fate.what for fate in answer_all_rows(run, "a", tick_history(run.past), reread)] == [
        "not_read"
    ] * 2


def test_a_row_is_not_there_for_certain_where_it_is_not_known_which_tick_read_a_record(
    monkeypatch: Any,
) -> None:
    class OfManyParts(TopicCase):
        """The topic of a comes to have more partitions than the history tells of."""

        def _reached(self, step: CaseStep) -> tuple[Reached, Reached]:
            began, read = super()._reached(step)
            if len(self.offsets["a"]) > 1 and "a" in read:
                read["a"] = dict(read["a"]) | {f"a/{n}": 1 for n in range(1, MAX_PARTITIONS + 1)}
            return began, read

    run = run_case([row("a", 1, "x")], [row("b", 1, "x")], [row("a", 1, "y")], of=OfManyParts)
    first, second = answer_all_rows(run, "a", tick_history(run.past), run.read_again(monkeypatch))
    assert (first.what, second.what) == ("not_known", "not_known")
    assert first.text.endswith("of some rows it is not known when they were read")


@pytest.mark.parametrize(
    ("parts", "at", "ticks"),
    [
        (["t/0", "t/1"], [0, 0], [1]),
        (["t/0", "t/0"], [0, 0], []),
        (["t/0", "t/1"], [0, 1], []),
        (["t/0", "t/1"], [0, UNREAD], []),
    ],
)
def test_records_of_one_key_in_two_partitions_that_a_tick_read_are_in_no_order(
    parts: list[str], at: list[int], ticks: list[int]
) -> None:
    """``at``: in which of two ticks each was read."""
    run = run_case([row("a", 1, "x")], [row("a", 2, "x")])
    (source,) = [own for own in run.plan.sources if own.name == "a"]
    history = tick_history(run.past)
    rows = to_table(source.columns, [{"id": 7, "k": "x"}], [1])
    portions = [
        Portion(rows, part, position, part, offsets=np.array([position]))
        for part, position in zip(parts, at, strict=True)
    ]

    class Told(TickHistory):
        """A history by which a record stands at its tick."""

        def slot_of(self, source: str, part: str, position: int) -> tuple[int, bool]:
            return position, True

    missing = find_unordered(source, portions, Told(history.past, history.ticks), "UTC")
    assert [own.words.split(" read ")[0] for own in missing] == [f"tick {tick}" for tick in ticks]
