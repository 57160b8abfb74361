"""What `why` says where it knows less: of other queries than joins of two streams, of older histories, of
times in other zones, and of rows that are ahead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.recorded_cases import RecordedCase
from watersmeet.errors import SpecError, StateError
from watersmeet.history.points import Figures, Points, concat_points, roll_up, subject_of
from watersmeet.history.reader import JobHistory
from watersmeet.runtime.replay import QUERY
from watersmeet.why.answer import Answer
from watersmeet.why.outcomes import answers
from watersmeet.why.question import Question, QuestionPlan, parse_value
from watersmeet.why.rows import UNREAD, Missing, Portion, Reread
from watersmeet.why.ticks import tick_history


def stream(lag: int = 2, **more: Any) -> dict[str, Any]:
    return {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": lag}}, **more}


ROWS = [
    [["a", {"t": 10, "k": "x"}], ["b", {"t": 11, "k": "x"}], ["c", {"t": 10, "k": "x"}]],
    [["a", {"t": 20, "k": "y"}], ["a", {"t": 3, "k": "z"}], ["a", {"t": None, "k": "n"}]],
    [["a", {"t": 40, "k": "u"}], ["b", {"t": 40, "k": "v"}]],
]


def run_case(
    query: str, rows: Any = ROWS, options: Mapping[str, Any] | None = None, **declared: Any
) -> RecordedCase:
    streams = {name: stream() for name in "abc"} | declared
    steps = [{"rows": tick} for tick in rows]
    run = RecordedCase(
        {"case": "c", "streams": streams, "query": query, "steps": steps, "options": options or {}}
    )
    assert run.problem is None, run.problem
    return run


def answer_question(run: RecordedCase, question: Question, past: JobHistory | None = None) -> Answer:
    history = tick_history(run.past if past is None else past)
    (answer,) = answers(QuestionPlan.of(question, run.job, run.plan), run.job, history, run.reread)
    return answer


JOIN = "SELECT a.t AS t, b.t AS u FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT a.t AS t FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3 "
            "ASOF JOIN c MATCH_CONDITION (a.t >= c.t) ON a.k = c.k AND c.t >= a.t - 5",
            "of 2 nodes is not told",
        ),
        (
            "SELECT a.t AS t, b.t AS u FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k "
            "AND b.t >= a.t - 5",
            "its join is not told",
        ),
        (
            "SELECT window_start, a.k AS k, count(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(t), 5) a "
            "GROUP BY window_start, window_end, a.k",
            "is not told",
        ),
    ],
)
def test_other_query_kinds_report_only_ingest_outcomes(query: str, said: str) -> None:
    run = run_case(query)
    (fate,) = answer_question(run, Question("a", ["k=x"])).fates
    assert fate.what == "on_time"
    assert said in fate.text
    assert (
        answer_question(run, Question("a", ["k=z"]))
        .fates[0]
        .text.startswith("late by 5: a.t is 3, and rows below 8")
    )
    assert answer_question(run, Question("a", ["k=n"])).fates[0].what == "null_time"


def test_a_query_that_does_not_join() -> None:
    run = run_case("SELECT a.t AS t FROM a WHERE a.k <> 'y'")
    assert (
        answer_question(run, Question("a", ["k=x"])).fates[0].text == "on time in tick 1, and emitted in it"
    )
    assert answer_question(run, Question("a", ["k=y"])).fates[0].text == "filtered by a.k <> 'y': both are y"


def test_row_matching_an_as_of_table_is_not_reported_as_emitted() -> None:
    case = {
        "case": "c",
        "streams": {"a": stream()},
        "tables": {"p": {"columns": {"k": "STRING", "v": "BIGINT"}}},
        "query": "SELECT a.t AS t, p.v AS v FROM a JOIN p FOR SYSTEM_TIME AS OF PROCTIME() ON p.k = a.k",
        "steps": [{"rows": [["p", {"k": "x", "v": 1}], ["a", {"t": 1, "k": "q"}]]}],
    }
    run = RecordedCase(case)
    assert run.problem is None, run.problem
    (fate,) = answer_question(run, Question("a", ["k=q"])).fates
    assert fate.what == "on_time"
    assert "is not told" in fate.text


@pytest.mark.parametrize(
    ("on", "row", "said"),
    [
        ("b.t >= a.t AND a.n BETWEEN b.n - 1 AND b.n + 1", {"n": None}, "n is NULL"),
        ("a.k = b.k AND b.n >= a.n", {"n": None, "k": None}, "k is NULL; n is NULL"),
        ("a.k = b.k AND a.until >= b.t", {"until": None}, "until is NULL"),
        ("a.k = b.k AND abs(a.n - b.n) <= 3", {"n": None}, "n is NULL"),
        ("a.k = b.k AND a.n > 3", {"n": 1}, "a.n > 3: 1 against 3"),
        ("a.k = b.k AND 1 > 2", {"n": 1}, "the condition of the join holds for no rows at all"),
        ("a.k = b.k AND a.t >= b.t + 9", {"n": 1}, "the condition of the join holds for no rows at all"),
    ],
)
def test_what_lets_a_row_match_nothing_is_named(on: str, row: Mapping[str, Any], said: str) -> None:
    more = {"columns": {"t": "BIGINT", "until": "BIGINT", "k": "STRING", "n": "INT"}}
    rows = [[["a", {"t": 10, "until": 20, "k": "x", "n": 1} | row], ["b", {"t": 11, "k": "x", "n": 1}]]]
    query = f"SELECT a.t AS t, b.t AS u FROM a LEFT JOIN b ON {on} AND b.t BETWEEN a.t AND a.t + 3"
    run = run_case(query, rows, a=stream() | more, b=stream() | more)
    (fate,) = answer_question(run, Question("a", [])).fates
    assert fate.text.endswith(f"at once, because it can match nothing: {said}")


def test_rows_ahead_of_the_clock_are_reported() -> None:
    columns = {"columns": {"t": "TIMESTAMP", "k": "STRING"}, "time": {"t": {"lag": 0}}}
    run = run_case(
        "SELECT x.t AS t FROM a x JOIN a y ON x.k = y.k AND x.t = y.t",
        [[["a", {"t": "1970-01-01T00:00:05", "k": "x"}], ["a", {"t": "1970-01-02T00:00:00", "k": "y"}]]],
        a={**columns, "max_ahead": 10},
    )
    assert answer_question(run, Question("x", ["y"])).fates[0].what == "ahead"
    (fate,) = answer_question(run, Question("x", time="1970-01-01 00:00:05")).fates
    assert fate.what == "joined"


def test_which_rows_were_shed_is_not_known() -> None:
    rows = [[["a", {"t": 10 + n, "k": f"k{n}"}] for n in range(9)]]
    run = run_case(JOIN, rows, {"max_rows": 3, "at_limit": "shed_oldest"})
    (fate,) = answer_question(run, Question("a", ["k1"])).fates
    assert (fate.what, "were shed" in fate.text) == ("not_known", True)


def test_rolled_up_ticks_report_no_unknown_outcome() -> None:
    run = run_case(JOIN)
    first = pc.less_equal(run.past.points.column("first_tick"), 2)
    old, new = run.past.points.filter(first), run.past.points.filter(pc.invert(first))
    past = JobHistory(pa.concat_tables([roll_up(old, 16), new]))
    (fate,) = answer_question(run, Question("a", ["k=u"]), past).fates
    assert (fate.what, str(fate.tick)) == ("retained", "in tick 3")
    (fate,) = answer_question(run, Question("a", ["z"]), past).fates
    assert (
        fate.text
        == "read by tick 2; whether it was late then is not known, for the history does not have each tick"
    )
    (fate,) = answer_question(run, Question("b", ["k=v"]), past).fates
    assert (fate.what, fate.until) == (
        "retained",
        "stays until the watermark of a.t is above 40 (it is 38)",
    )


@pytest.mark.parametrize(
    ("partner", "lost", "what", "said"),
    [
        ("x", None, "joined", "joined with a row of b that cannot be read again"),
        ("z", None, "padded", "emitted unmatched, with NULLs, in tick 2"),
        ("z", "step 2", "padded", "emitted unmatched, with NULLs, in tick 2"),
        ("x", "step 2", "joined", "joined with b (t 11, k x) in tick 1"),
    ],
)
def test_unreadable_rows_leave_counted_outcomes_known(
    partner: str, lost: str | None, what: str, said: str
) -> None:
    """``lost``: what of b cannot be read again; None: all of it, be it where it may."""
    rows = [
        [["a", {"t": 10, "k": "x"}], ["b", {"t": 11, "k": partner}]],
        [["b", {"t": 40, "k": "v"}]],
        [["b", {"t": 41, "k": "x"}], ["a", {"t": 50, "k": "r"}]],
    ]
    run = run_case(JOIN, rows)
    b = run.reread["b"]
    gone = [own for own in b.portions if lost is None or own.place == lost]
    assert gone
    missing = tuple(Missing("gone", own.part, None if lost is None else own.position) for own in gone)
    run.reread["b"] = Reread(b.source, [own for own in b.portions if own not in gone], missing)
    (fate,) = answer_question(run, Question("a", ["x"])).fates
    assert (fate.what, str(fate.left)) == (what, "in tick 2")
    assert fate.text.startswith(said)
    (fate,) = answer_question(run, Question("a", ["r"])).fates
    assert fate.what == "not_known"  # it is there still


def test_unreadable_partner_in_the_release_tick_makes_fate_unknown() -> None:
    rows = [
        [["a", {"t": 10, "k": "x"}], ["a", {"t": 10, "k": "w"}], ["b", {"t": 11, "k": "w"}]],
        [["b", {"t": 40, "k": "v"}]],
    ]
    run = run_case(JOIN, rows)
    b = run.reread["b"]
    missing = Missing("gone", b.portions[1].part, b.portions[1].position)
    run.reread["b"] = Reread(b.source, b.portions[:1], (missing,))
    assert answer_question(run, Question("a", ["x"])).fates[0].what == "not_known"
    (fate,) = answer_question(run, Question("a", ["w"])).fates
    assert (fate.what, len(fate.met)) == ("joined", 1)


def test_records_of_files_that_no_tick_has_read_are_no_partners() -> None:
    run = run_case(JOIN, [*ROWS[:2], [["b", {"t": 40, "k": "v"}]]])
    b = run.reread["b"]
    unread = Portion(b.portions[0].rows.slice(0, 0), "steps", UNREAD, "next", ("broken",))
    run.reread["b"] = Reread(b.source, [*b.portions, unread], (Missing("more", "steps", UNREAD),))
    assert answer_question(run, Question("a", ["y"])).fates[0].what == "padded"
    of_a_tick = replace(b.portions[0], left_out=("broken",))
    run.reread["b"] = Reread(b.source, [of_a_tick, *b.portions[1:]])
    assert answer_question(run, Question("a", ["y"])).fates[0].what == "not_known"


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        (None, "broken"),
        ((2, None), "not_known"),  # of the tick that counted one: which of both it was is not known
        ((0, None), "broken"),
        ((0, 1), "broken"),
        ((0, 3), "not_known"),
        ((9, None), "broken"),
        ((UNREAD, None), "broken"),
        ((None, None), "not_known"),
    ],
)
def test_records_are_broken_for_certain_where_none_of_their_tick_is_missing(missing: Any, what: str) -> None:
    run = run_case(JOIN)
    b = run.reread["b"]
    assert [portion.position for portion in b.portions] == [0, 1, 2]
    left_out = replace(b.portions[2], left_out=("k: odd",))
    gone = () if missing is None else (Missing("gone", left_out.part, *missing),)
    run.reread["b"] = Reread(b.source, [*b.portions[:2], left_out], gone)
    counted = Points()
    counted.add(3, 3, Figures({}, {(subject_of("input", QUERY, "b"), "broken"): 1}))
    past = JobHistory(concat_points([run.past.points, counted.table()]))
    (fate,) = answer_question(run, Question("b", ["k=odd"]), past).fates
    assert fate.what == what


def test_an_older_history_does_not_say_which_tick_read_what() -> None:
    run = run_case(JOIN)
    is_read = pc.starts_with(run.past.points.column("figure").cast(pa.string()), "offset ")
    with pytest.raises(StateError) as refused:
        answer_question(run, Question("a"), JobHistory(run.past.points.filter(pc.invert(is_read))))
    assert refused.value.code == "no-history"


@pytest.mark.parametrize("keys", [["K=x"], ["x"], ["upper(k)=X"], ["UPPER(K)=X", "T=10"]])
def test_names_are_in_whatever_case(keys: list[str]) -> None:
    run = run_case("SELECT A.T AS t FROM a A JOIN b ON upper(A.K) = b.k AND b.t BETWEEN A.t AND A.t + 3")
    if keys == ["x"]:
        keys = ["X"]  # of the key, which is no column
    for alias in ("a", "A"):
        answer = answer_question(run, Question(alias, keys, query="Q"))
        assert [fate.row["k"] for fate in answer.fates] == ["x"]
        assert answer.input == "A"


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (Question("z"), "unknown-input"),
        (Question("a", ["1", "2"]), "wrong-option"),
        (Question("a", ["c=2", "2"]), "wrong-option"),
        (Question("a", query="p"), "unknown-query"),
    ],
)
def test_names_that_are_not_there_are_refused(question: Question, code: str) -> None:
    with pytest.raises(SpecError) as refused:
        answer_question(run_case(JOIN), question)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "kind", "zone", "value"),
    [
        ("7", pa.int32(), "UTC", "7"),
        ("1.50", pa.decimal128(5, 2), "UTC", "1.50"),
        ("2.5", pa.float64(), "UTC", "2.5"),
        ("TRUE", pa.bool_(), "UTC", "True"),
        ("2026-03-01", pa.date32(), "UTC", "2026-03-01"),
        ("2026-03-01 10:00", pa.timestamp("us"), "UTC", "2026-03-01 10:00:00"),
        ("2026-03-01 10:00", pa.timestamp("us"), "Europe/Berlin", "2026-03-01 09:00:00"),
        ("2026-03-01 10:00+02:00", pa.timestamp("us"), "Europe/Berlin", "2026-03-01 08:00:00"),
        ("x", pa.string(), "UTC", "x"),
    ],
)
def test_texts_are_values_of_their_columns(text: str, kind: pa.DataType, zone: str, value: str) -> None:
    assert str(parse_value(text, kind, "k", zone)) == value


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.decimal128(5, 2), pa.bool_(), pa.date32(), pa.timestamp("us")]
)
def test_texts_that_are_none_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(SpecError):
        parse_value("nonsense", kind, "k", "UTC")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("9" * 20, pa.int64()),
        ("300", pa.int8()),
        ("1e999", pa.decimal128(38, 2)),
        ("0.123", pa.decimal128(5, 2)),
        ("0001-01-01", pa.timestamp("us")),
    ],
)
def test_texts_beyond_their_columns_are_refused(text: str, kind: pa.DataType) -> None:
    with pytest.raises(SpecError, match="is not a value of k"):
        parse_value(text, kind, "k", "Europe/Berlin")


def test_rows_have_whatever_values() -> None:
    """Such as JSON has not."""
    columns = {"t": "BIGINT", "x": "DOUBLE", "at": "TIMESTAMP", "s": "STRING"}
    wide = {"columns": columns, "time": {"t": {"lag": 2}}}
    run = run_case(
        "SELECT a.t AS t FROM a JOIN b ON a.x = b.x AND b.t BETWEEN a.t AND a.t + 3 AND b.at < a.at",
        [[["a", {"t": 1, "x": "NaN", "at": "2026-03-01T10:00:00"}], ["b", {"t": 9, "x": 1.5, "at": None}]]],
        a=wide,
        b=wide,
    )
    (fate,) = answer_question(run, Question("a", ["x=nan"])).fates
    assert fate.row == {"t": 1, "x": "NaN", "at": "2026-03-01T10:00:00Z", "s": None}
    assert fate.what == "released_unmatched"
    json.dumps(asdict(fate), allow_nan=False)
