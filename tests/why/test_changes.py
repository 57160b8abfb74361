"""What `why` says, in words, of records of inputs that change, and where it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recorded_cases import RecordedCase
from watersmeet.errors import SpecError
from watersmeet.why import tables
from watersmeet.why.answer import Fate
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan, inputs_of_job
from watersmeet.why.ticks import tick_history

PLACES = {"columns": {"id": "BIGINT", "town": "STRING", "n": "BIGINT"}}
KEYED = {**PLACES, "primary_key": ["id"]}
JOIN = "SELECT p.town AS town, o.id AS id FROM o LEFT JOIN p ON p.id = o.id"


def run_case(query: str, steps: Any, mode: str = "changelog", **tables: Any) -> RecordedCase:
    declared = {"o": PLACES, "p": KEYED} | tables
    case = {
        "case": "c",
        "tables": declared,
        "query": query,
        "options": {"output_mode": mode},
        "steps": [{"rows": rows} for rows in steps],
    }
    run = RecordedCase(case)
    assert run.problem is None, run.problem
    return run


def fates(run: RecordedCase, alias: str, *keys: str) -> list[Fate]:
    (answer,) = answers(
        QuestionPlan.of(Question(alias, keys), run.job, run.plan), run.job, tick_history(run.past), run.reread
    )
    return list(answer.fates)


def row(name: str, id: int | None, town: str | None = None, n: int | None = None, diff: int = 1) -> Any:
    return [name, {"id": id, "town": town, "n": n}, diff]


STEPS = [
    [row("p", 1, "Rye"), row("o", 1), row("o", 2)],
    [row("p", 1, "Ash"), row("o", 2, diff=-1)],
    [row("p", 1, diff=-1), row("p", 7, diff=-1), row("o", 9, diff=-1)],
    [row("p", 1, "Elm"), row("p", 1, "Oak")],
]


def test_update_and_delete_of_a_key_are_reported() -> None:
    first, second, gone, third, last = fates(run_case(JOIN, STEPS), "p", "1")
    assert first.text == (
        "there from tick 1 until tick 2, in which (id 1, town Ash, n NULL) took its place; joined with o "
        "(id 1, town NULL, n NULL) in tick 1, retracted in tick 2"
    )
    assert second.text == (
        "there from tick 2, in the place of (id 1, town Rye, n NULL), until tick 3, in which it was deleted; "
        "joined with o (id 1, town NULL, n NULL) in tick 2, retracted in tick 3"
    )
    assert gone.text == "took (id 1, town Ash, n NULL) away in tick 3, with 1 row of the output"
    assert third.text == "there after no tick: (id 1, town Oak, n NULL) came after it in tick 4"
    assert last.text == "there since tick 4; joined with o (id 1, town NULL, n NULL) in tick 4"
    (nothing,) = fates(run_case(JOIN, STEPS), "p", "7")
    assert nothing.text == "a delete of what was not there in tick 3: not applied"


def test_rows_removed_by_an_equal_delete_are_reported() -> None:
    run = run_case(JOIN, STEPS)
    (joined,) = fates(run, "o", "1")
    assert [(met.row["p"] and met.row["p"]["town"], str(met.tick), str(met.until)) for met in joined.met] == [
        ("Oak", "in tick 4", "None"),
        ("Rye", "in tick 1", "in tick 2"),
        ("Ash", "in tick 2", "in tick 3"),
        (None, "in tick 3", "in tick 4"),
    ]
    padded, gone = fates(run, "o", "2")
    assert padded.text == (
        "there from tick 1 until tick 2, in which it was deleted; emitted unmatched, with NULLs, in tick 1, "
        "retracted in tick 2"
    )
    assert gone.text == "took away an equal row in tick 2, with 1 row of the output"
    (nothing,) = fates(run, "o", "9")
    assert nothing.what == "delete_of_nothing"


def test_equal_rows_are_counted() -> None:
    run = run_case(JOIN, [[row("o", 5, diff=3)], [row("o", 5, diff=-1)], [row("o", 5, diff=-4), row("o", 5)]])
    came, one, more, again = fates(run, "o", "5")
    assert "(one of 3 equal rows, of 2 after tick 2); emitted unmatched" in came.text
    assert one.text == "took away an equal row in tick 2, and left 2"
    assert more.text == "1 of the 4 deletes of equal rows in tick 3 were of what was not there: not applied"
    assert again.text == "there after no tick: as many equal rows went in tick 3"
    zero, came, went = fates(
        run_case(JOIN, [[row("o", 5, diff=0)], [row("o", 5), row("o", 5, diff=-1)]]), "o"
    )
    assert zero.text == "says that nothing comes and nothing goes (in tick 1)"
    assert came.what == "never_there"
    assert went.text == "took away what came in tick 2, too"


def test_near_misses_report_lifetimes_and_failed_conditions() -> None:
    query = "SELECT p.town AS town FROM o JOIN p ON p.id = o.id AND p.n > o.n"
    steps = [[row("p", 1, "Rye", 5)], [row("p", 1, diff=-1), row("o", 1, n=2)], [row("p", 1, "Ash", 1)]]
    (fate,) = fates(run_case(query, steps), "o")
    assert fate.text == "there since tick 2; it met no row of p"
    assert [list(near.failed) for near in fate.near] == [
        ["was there from tick 1 on until tick 2, and not at the same time"],
        ["p.n > o.n: 1 against 2"],
    ]


def test_a_filter_above_a_key_takes_no_record_out_of_the_table() -> None:
    query = "SELECT p.town AS town FROM (SELECT * FROM p WHERE n > 1) p"
    first, second = fates(run_case(query, [[row("p", 1, "Rye", 5)], [row("p", 1, "Rye", 0)]]), "p")
    assert first.text.endswith("took its place; emitted in tick 1, retracted in tick 2")
    assert (second.what, second.text.endswith("; filtered by n > 1: 0 against 1")) == ("filtered", True)


def test_a_sequence_says_which_change_is_older() -> None:
    keyed = {**KEYED, "sequence_by": "n", "tombstones": None}
    steps = [
        [row("p", 1, "Rye", 5)],
        [row("p", 1, "Ash", 4)],
        [row("p", 1, n=9, diff=-1)],
        [row("p", 1, "Elm", 8)],
    ]
    _, stale, _, again = fates(run_case(JOIN, steps, p=keyed), "p")
    assert (
        stale.text
        == "dropped in tick 2: an older change than one that its key has had, (id 1, town Rye, n 5)"
    )
    assert (again.what, "is not known" in again.text) == ("not_known", True)  # the delete was forgotten


def test_a_delete_is_forgotten_in_the_tick_in_which_the_job_forgot_it() -> None:
    keyed = {**KEYED, "sequence_by": "n", "tombstones": 10}
    quiet = [row("o", 2)]  # bears on nothing of p
    rows = [[row("p", 1, "Rye", 5)], [row("p", 1, n=9, diff=-1)], quiet, quiet]
    rows.append([row("p", 1, "Elm", 8)])

    def last(clock: int) -> Fate:
        steps = [{"rows": own, "clock": clock * (number == 2)} for number, own in enumerate(rows)]
        case = {"case": "c", "tables": {"o": PLACES, "p": keyed}, "query": JOIN, "steps": steps}
        *_, fate = fates(RecordedCase(case | {"options": {"output_mode": "changelog"}}), "p")
        return fate

    assert last(5).what == "stale"
    assert last(100).what == "not_known"


def test_of_rows_that_can_match_nothing_deletes_are_applied_as_they_come() -> None:
    came, gone = fates(run_case(JOIN, [[row("o", None)], [row("o", None, diff=-1)]]), "o")
    assert came.text.endswith("retracted in tick 2; it can match nothing: id is NULL")
    assert gone.what == "delete"
    fate, _ = fates(run_case(JOIN, [[row("o", None, diff=-1)], [row("o", None)]]), "o")
    assert "deleted more often than they came" in fate.text


def test_rows_of_a_view_are_equal_in_its_columns() -> None:
    steps = [[row("o", 5, "Rye")], [row("o", 5, "Ash", diff=-1)]]
    came, gone = fates(run_case("SELECT o.id AS id FROM o", steps), "o")
    assert (came.what, gone.what) == ("there", "delete_of_nothing")
    view = "SELECT v.id AS id FROM (SELECT id FROM o) v LEFT JOIN p ON p.id = v.id"
    came, gone = fates(run_case(view, steps), "v")
    assert came.text.startswith("there from tick 1 until tick 2, in which it was deleted; emitted unmatched")
    assert gone.what == "delete"
    twice = "SELECT v.id AS id FROM (SELECT id FROM o) v JOIN o y ON y.id = v.id"
    came, gone = fates(run_case(twice, steps), "v")
    assert (came.what, "does not read" in came.text) == ("not_known", True)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT p.town AS town, count(*) AS n FROM p GROUP BY p.town", "is not told"),
        (
            "SELECT o.id AS id FROM o JOIN (SELECT town, count(*) AS n FROM p GROUP BY town) g ON g.n = o.id",
            "is not told",
        ),
    ],
)
def test_fate_of_grouped_rows_is_not_reported(query: str, said: str) -> None:
    alias = "p" if "FROM p GROUP BY p" in query else "o"
    fate = fates(run_case(query, STEPS), alias, "id=1")[0]
    assert fate.text.startswith("there ")
    assert said in fate.text


def test_keyed_table_accepts_questions() -> None:
    run = run_case(JOIN, STEPS)
    assert [(own.input, own.keys, own.is_told) for own in inputs_of_job(run.job, run.plan)] == [
        ("o", ("id",), True),
        ("p", ("id",), True),
    ]


def test_append_only_rows_report_retracted_output() -> None:
    stream = {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": 0}}}
    run = RecordedCase(
        {
            "case": "c",
            "streams": {"a": stream, "b": stream},
            "query": "SELECT a.t AS t FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3",
            "options": {"output_mode": "changelog"},
            "steps": [
                {"rows": [["a", {"t": 1, "k": "x"}], ["a", {"t": 1, "k": None}]]},
                {"rows": [["b", {"t": 2, "k": "x"}]]},
                {"rows": [["a", {"t": 50, "k": "y"}], ["b", {"t": 50, "k": "z"}]]},
            ],
        }
    )
    met, lone, kept = fates(run, "a")
    assert (met.what, met.text) == (
        "joined",
        "joined with b (t 2, k x) in tick 2; 1 other row of the output; released in tick 3",
    )
    assert (lone.what, lone.left is not None) == ("padded", True)
    assert (kept.what, str(kept.met[0].tick)) == ("padded", "in tick 3")
    dropped, _ = fates(run, "b")
    assert dropped.what == "joined"


def test_replacement_row_reports_the_replaced_row() -> None:
    _, second = fates(run_case(JOIN, [[row("p", 1, "Rye")], [row("p", 1, "Ash")]]), "p")
    assert second.text == "there since tick 2, in the place of (id 1, town Rye, n NULL); it met no row of o"


def test_records_of_a_key_are_replayed_once(monkeypatch: Any) -> None:
    step, steps = tables.KeyStep, list[tables.KeyStep]()

    def record_key_step(*of: Any) -> tables.KeyStep:
        steps.append(step(*of))
        return steps[-1]

    monkeypatch.setattr(tables, "KeyStep", record_key_step)
    told = fates(run_case(JOIN, [[row("p", 1, "Rye", n) for n in range(9)], [row("p", 2)]]), "p")
    assert [fate.what for fate in told] == ["never_there"] * 8 + ["there"] * 2
    assert len(steps) == 9 + 1


def test_delete_reports_that_its_output_was_already_retracted() -> None:
    query = "SELECT p.town AS town FROM o JOIN p ON p.id = o.id"
    steps = [[row("o", 1), row("p", 1, "Rye")], [row("p", 1, diff=-1)], [row("o", 1, diff=-1)]]
    _, gone = fates(run_case(query, steps), "o")
    assert gone.text == "took away an equal row in tick 3, of which nothing was still in the output"
    _, gone = fates(run_case(query, [[row("o", 1)], [row("o", 1, diff=-1)]]), "o")
    assert gone.text == "took away an equal row in tick 2, of which nothing was emitted"


def test_unknown_key_name_is_reported_as_a_value() -> None:
    run = run_case("SELECT p.town AS town FROM o LEFT JOIN p ON p.town = o.town", [[row("p", 1, "Rye")]])
    asked = QuestionPlan.of(Question("p", ("upper(town)=RYE",)), run.job, run.plan)
    (answer,) = answers(asked, run.job, tick_history(run.past), run.reread)
    assert answer.notes == (
        "no such row is among the 1 row of p",
        '--key "upper(town)=RYE" was taken for a value of town: no column or key is called "upper(town)"',
    )


def test_time_question_needs_an_event_time() -> None:
    run = run_case(JOIN, STEPS)
    with pytest.raises(SpecError, match='"p" has no event time'):
        QuestionPlan.of(Question("p", time="2024-01-01"), run.job, run.plan)


@pytest.mark.parametrize("name", ["why_diff", "whatif_row"])
def test_a_column_may_have_any_name(name: str) -> None:
    """Also one that a replay might have for its own."""
    columns = {"id": "BIGINT", name: "BIGINT"}
    table = {"columns": columns}
    steps = [
        [["p", {"id": 1, name: 5}, 1], ["o", {"id": 1, name: 7}, 1]],
        [["p", {"id": 1, name: 5}, -1]],
    ]
    run = run_case(JOIN.replace("p.town", "p.id"), steps, o=table, p=table)
    came, _ = fates(run, "p", "1")
    assert came.text == (
        f"there from tick 1 until tick 2, in which it was deleted; joined with o (id 1, {name} 7) in tick 1, "
        "retracted in tick 2"
    )


@pytest.mark.parametrize(
    ("alias", "keys", "named"),
    [
        ("p", ("1", "RYE"), ("id", "UPPER(town)")),
        ("o", ("2", "RYE"), ("CAST(id + 1 AS BIGINT)", "UPPER(town)", "n")),
        ("r", ("5",), ("n",)),
    ],
)
def test_keys_of_joins_of_changing_inputs_need_no_names(
    alias: str, keys: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """In the order in which the query has them, however the plan has them."""
    query = (
        "SELECT p.town AS town FROM o JOIN p ON p.id = o.id + 1 AND upper(p.town) = upper(o.town) "
        "JOIN r ON r.n = o.n"
    )
    steps = [
        [row("p", 1, "Rye"), row("o", 1, "Rye", 5), row("r", 7, n=5), row("p", 2, "Rye"), row("o", 3, "Rye")]
    ]
    run = run_case(query, steps, r=PLACES)
    (told,) = [own for own in inputs_of_job(run.job, run.plan) if own.input == alias]
    assert told.keys == named
    (fate,) = fates(run, alias, *keys)
    (same,) = fates(run, alias, *(f"{name}={key}" for name, key in zip(named, keys, strict=False)))
    assert fate == same


def test_null_key_is_reported_for_a_join_of_changing_inputs() -> None:
    (fate,) = fates(
        run_case("SELECT p.id AS id FROM o JOIN p ON p.id = o.id", [[row("o", None)]]), "o", "NULL"
    )
    assert fate.text.endswith("it can match nothing: id is NULL")
