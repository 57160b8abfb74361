"""What `why` says of rows of chains of joins, in words."""

from __future__ import annotations

import pytest

from tests.why.test_asked import answer_question, run_case
from watersmeet.history.reader import JobHistory
from watersmeet.why.question import Question
from watersmeet.why.rows import Missing, Reread

CHAIN = (
    "SELECT a.t AS t, b.t AS u, c.t AS v FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3 "
    "JOIN c ON c.k = a.k AND c.t BETWEEN a.t - 3 AND a.t + 3"
)
ROWS = [
    [["a", {"t": 10, "k": "x"}], ["b", {"t": 11, "k": "x"}], ["c", {"t": 10, "k": "x"}]],
    [["a", {"t": 20, "k": "y"}], ["b", {"t": 21, "k": "y"}], ["c", {"t": 24, "k": "y"}]],
    [["a", {"t": 30, "k": "p"}], ["c", {"t": 30, "k": "p"}], ["a", {"t": 31, "k": None}]],
    [["a", {"t": 60, "k": "u"}], ["b", {"t": 60, "k": "v"}], ["c", {"t": 60, "k": "w"}]],
]


@pytest.mark.parametrize(
    ("alias", "key", "what", "said"),
    [
        ("a", "x", "joined", "joined with b (t 11, k x) and c (t 10, k x) in tick 1"),
        ("b", "x", "joined", "joined with a (t 10, k x) and c (t 10, k x) in tick 1"),
        (
            "a",
            "y",
            "released_unmatched",
            "joined with b (t 21, k y) in tick 2; that met no row of c; released in tick 4: "
            "no later row can match it",
        ),
        ("c", "y", "released_unmatched", "it met no row of a and b; released in tick 4"),
        ("a", "p", "joined", "joined with c (t 30, k p) in tick 4, with NULLs for b"),
        (
            "a",
            "NULL",
            "released_unmatched",
            "went on with NULLs for b in tick 3; that met no row of c; released in tick 3: no later row "
            "can match it; at its own join it can match nothing: k is NULL",
        ),
        ("a", "u", "retained", "it met no row of b; kept so far, for rows to come may still meet it"),
    ],
)
def test_how_far_a_row_came(alias: str, key: str, what: str, said: str) -> None:
    (fate,) = answer_question(run_case(CHAIN, ROWS), Question(alias, [f"k={key}"])).fates
    assert (fate.what, said in fate.text) == (what, True), fate


def test_unmatched_chain_row_reports_near_misses() -> None:
    (fate,) = answer_question(run_case(CHAIN, ROWS), Question("a", ["k=y"])).fates
    assert [own.row for own in fate.reached] == [{"b": {"t": 21, "k": "y"}}]
    (near,) = fate.near
    assert near.row == {"t": 24, "k": "y"}
    assert near.failed == ["c.t <= a.t + 3: 24 against 23"]


def test_where_leaves_joined_rows_out_and_is_named() -> None:
    run = run_case(f"{CHAIN} WHERE coalesce(b.t, 0) > 11 OR c.t > 90", ROWS)
    (fate,) = answer_question(run, Question("a", ["k=x"])).fates
    assert fate.what == "released_unmatched"
    assert "left out by COALESCE(b.t, 0) > 11 OR c.t > 90: is false" in fate.text


def test_semi_and_anti_join_inputs_report_what_they_matched() -> None:
    query = (
        "SELECT a.t AS t FROM a LEFT SEMI JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3 "
        "LEFT ANTI JOIN c ON c.k = a.k AND c.t BETWEEN a.t - 3 AND a.t + 3"
    )
    run = run_case(query, ROWS)
    (fate,) = answer_question(run, Question("a", ["k=y"])).fates
    assert (fate.what, fate.text) == ("put_out", "emitted in tick 3")
    (fate,) = answer_question(run, Question("a", ["k=x"])).fates
    assert fate.what == "released_unmatched"
    assert "an ANTI join with c did not let it through: it met one; released in tick" in fate.text
    (fate,) = answer_question(run, Question("b", ["k=x"])).fates
    assert fate.what == "met"
    assert fate.text.endswith("in tick 1, so that what it met goes on")
    assert [own.row["a"]["k"] for own in fate.met] == ["x"]


def test_what_is_lacking_is_named_and_joined_rows_are_known_all_the_same() -> None:
    run = run_case(CHAIN, ROWS)
    c = run.reread["c"]
    run.reread["c"] = Reread(c.source, c.portions[:1], (Missing("gone", "steps", None),))
    (fate,) = answer_question(run, Question("a", ["k=x"])).fates
    assert (fate.what, str(fate.met[0].tick)) == ("joined", "in tick 1")
    (fate,) = answer_question(run, Question("a", ["k=y"])).fates
    assert (fate.what, "not all rows of its inputs can be read again" in fate.text) == ("not_known", True)
    run = run_case(CHAIN, ROWS)
    late = JobHistory(
        run.past.points.filter([tick != 2 for tick in run.past.points["first_tick"].to_pylist()])
    )
    (fate,) = answer_question(run, Question("a", ["k=p"]), late).fates
    assert (fate.what, "the history does not have each tick" in fate.text) == ("not_known", True)


def test_of_a_query_that_began_later_than_the_job_what_came_before_is_not_known() -> None:
    run = run_case(CHAIN, ROWS)
    points = run.past.points
    figures, ticks = points["figure"].to_pylist(), points["first_tick"].to_pylist()
    later = [own != ("total_rows_out", 1) for own in zip(figures, ticks, strict=True)]
    (fate,) = answer_question(run, Question("a", ["k=y"]), JobHistory(points.filter(later))).fates
    assert (fate.what, "the query began later than the job" in fate.text) == ("not_known", True)


def test_shed_rows_report_an_unknown_fate() -> None:
    rows = [[[name, {"t": 10 + n, "k": f"k{n}"}] for n in range(9) for name in "abc"]]
    run = run_case(CHAIN, rows, {"max_rows": 3, "at_limit": "shed_oldest", "plan": "cascade"})
    (fate,) = answer_question(run, Question("a", ["k=k1"])).fates
    assert (fate.what, "were shed" in fate.text) == ("not_known", True)


@pytest.mark.parametrize(
    ("condition", "value", "said"),
    [
        ("a.v <> b.v", 3, "a.v <> b.v: both are 3"),
        ("a.v <> b.v", None, "a.v <> b.v: NULL against 3"),
        ("b.v <> a.v + 1", 2, "b.v <> a.v + 1: both are 3"),
        ("a.v * 1e0 <> b.v", 3, "a.v * 1e0 <> b.v: 3.0 equals 3"),
    ],
)
def test_failed_inequality_reports_the_compared_values(condition: str, value: int | None, said: str) -> None:
    columns = {"columns": {"t": "BIGINT", "v": "BIGINT"}, "time": {"t": {"lag": 0}}}
    run = run_case(
        f"SELECT a.t AS t FROM a JOIN b ON b.t = a.t AND {condition}",
        [[["a", {"t": 1, "v": value}], ["b", {"t": 1, "v": 3}]], [["a", {"t": 9, "v": 0}], ["b", {"t": 9}]]],
        a=columns,
        b=columns,
    )
    (fate,) = answer_question(run, Question("a", ["t=1"])).fates
    ((failed,),) = [near.failed for near in fate.near if near.row["t"] == 1]
    assert failed == said


def test_join_with_its_own_where_does_not_claim_no_match() -> None:
    query = (
        "WITH ab AS (SELECT a.t AS t, a.k AS k, b.t AS u FROM a JOIN b ON a.k = b.k "
        "AND b.t BETWEEN a.t AND a.t + 3 WHERE b.t > 11) "
        "SELECT ab.t AS t FROM ab JOIN c ON c.k = ab.k AND c.t BETWEEN ab.t - 3 AND ab.t + 3"
    )
    (fate,) = answer_question(run_case(query, ROWS), Question("ab.a", ["k=x"])).fates
    assert fate.what == "released_unmatched", fate
    assert "met no row" not in fate.text
