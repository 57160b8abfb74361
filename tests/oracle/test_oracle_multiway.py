"""Joins of many inputs, worked out by hand from semantics.md: what the given cases leave open."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.oracle.case import may_still_match, run_case
from tests.support.oracle.query import read_query
from watersmeet.testing.cases import check_case

COLUMNS = {"t": "BIGINT", "k": "BIGINT", "v": "BIGINT"}


def stream(*times: str, **columns: str) -> dict[str, Any]:
    columns = columns or {**COLUMNS, **dict.fromkeys(times, "BIGINT")}
    return {"columns": columns, "time": {t: {"lag": None} for t in times or ("t",)}}


def case(query: str, steps: list[Any], expect: Any = None, **options: Any) -> dict[str, Any]:
    """A case over the streams a, b, c, d, o, r: ``t``, ``k``, ``v``, watermarks by hand."""
    found = {"case": "by-hand", "query": query, "steps": steps, "expect": expect, "options": options}
    found["streams"] = {name: stream() for name in "abcdor"}
    return found


def check(query: str, *told: tuple[dict[str, Any], dict[str, Any]], **options: Any) -> None:
    """Steps, each with what is expected of it."""
    found = case(query, [step for step, _ in told], [want for _, want in told], **options)
    found["options"].setdefault("plan", "cascade")
    assert check_case(found, run_case(found)) == []


def rows(**of: list[dict[str, int]]) -> list[Any]:
    return [[name, row] for name, many in of.items() for row in many]


def test_where_sinks_as_far_as_it_may() -> None:
    """Through a LEFT join to its left side; over its right side only into the inner join above."""
    check(
        "SELECT a.t AS a, b.t AS b, c.t AS c FROM a LEFT JOIN b ON b.t = a.t JOIN c ON c.t = a.t "
        "WHERE a.v > 1 AND b.v IS NULL",
        (
            {
                "rows": rows(
                    a=[{"t": 1, "v": 1}, {"t": 2, "v": 2}, {"t": 3, "v": 3}],
                    b=[{"t": 3, "v": 7}],
                    c=[{"t": 1}, {"t": 2}, {"t": 3}],
                )
            },
            {"rows": [], "state": {"a": 2, "b": 1, "c": 3}},
        ),
        (
            {"advance": {"b.t": 4}},
            {
                "rows": [{"a": 2, "b": None, "c": 2}],
                "watermarks": {"b.t": 3},
                "state": {"a": 0, "b": 1, "c": 3},
            },
        ),
        (
            {"advance": {"a.t": 4, "c.t": 4}},
            {
                "rows": [],
                "watermarks": {"a.t": 4, "b.t": 4, "c.t": 4},
                "state": {"a": 0, "b": 0, "c": 0},
            },
        ),
    )


def test_where_above_outer_joins_only_filters_results() -> None:
    query = "SELECT a.t AS a, b.t AS b FROM a FULL JOIN b ON a.t = b.t WHERE a.v = 1"
    check(
        query,
        ({"rows": rows(a=[{"t": 1, "v": 1}, {"t": 2, "v": 2}], b=[{"t": 2}])}, {"rows": []}),
        ({"advance": {"a.t": 3, "b.t": 3}}, {"rows": [{"a": 1, "b": None}], "state": {"a": 0, "b": 0}}),
    )
    assert len(read_query(case(query, [])).where) == 1


def test_pad_is_a_new_row_of_the_next_join_and_may_wait_there() -> None:
    check(
        "SELECT o.t AS o, d.t AS d, r.t AS r FROM o LEFT JOIN d ON d.t = o.t "
        "LEFT JOIN r ON r.t BETWEEN o.t AND o.t + 2",
        ({"rows": rows(o=[{"t": 5}], r=[{"t": 6}])}, {"rows": [], "state": {"o": 1, "d": 0, "r": 1}}),
        (
            {"advance": {"d.t": 6}},
            {
                "rows": [{"o": 5, "d": None, "r": 6}],
                "watermarks": {"d.t": 6},
                "state": {"o": 0, "d": 0, "r": 1},
            },
        ),
        (
            {"rows": rows(r=[{"t": 7}])},
            {"rows": [{"o": 5, "d": None, "r": 7}], "state": {"o": 0, "d": 0, "r": 2}},
        ),
        ({"advance": {"r.t": 8}}, {"rows": [], "watermarks": {"r.t": 6}, "state": {"o": 0, "d": 0, "r": 2}}),
    )


def test_right_side_in_parentheses_is_a_join_of_its_own() -> None:
    check(
        "SELECT a.t AS a, b.t AS b, c.t AS c FROM a LEFT JOIN (b JOIN c ON c.t = b.t) "
        "ON b.t BETWEEN a.t - 1 AND a.t + 1",
        (
            {"rows": rows(a=[{"t": 5}, {"t": 9}], b=[{"t": 5}])},
            {"rows": [], "state": {"a": 2, "b": 1, "c": 0}},
        ),
        (
            {"rows": rows(c=[{"t": 5}])},
            {"rows": [{"a": 5, "b": 5, "c": 5}], "state": {"a": 2, "b": 1, "c": 1}},
        ),
        (
            {"advance": {"b.t": 11, "c.t": 11}},
            {
                "rows": [{"a": 9, "b": None, "c": None}],
                "watermarks": {"b.t": 5, "c.t": 5},
                "state": {"a": 0, "b": 0, "c": 0},
            },
        ),
    )


def test_using_of_several_joins_is_one_column() -> None:
    """The key of the second join is the merged column of the first: a row of b alone has it too."""
    found = case(
        "SELECT * FROM a FULL JOIN b USING (t, k) JOIN c USING (k) WHERE c.ct BETWEEN b.t AND b.t + 5",
        [
            {"rows": rows(b=[{"t": 5, "k": 1, "w": 20}], c=[{"ct": 6, "k": 1, "x": 30}])},
            {"advance": {"a.t": 6}},
            {"rows": rows(a=[{"t": 7, "k": 1, "v": 1}]), "advance": {"b.t": 8}},
        ],
        [{"rows": []}, {"rows": [{"t": 5, "k": 1, "v": None, "w": 20, "ct": 6, "x": 30}]}, {"rows": []}],
    )
    found["streams"] = {
        "a": stream("t", t="BIGINT", k="BIGINT", v="BIGINT"),
        "b": stream("t", t="BIGINT", k="BIGINT", w="BIGINT"),
        "c": stream("ct", ct="BIGINT", k="BIGINT", x="BIGINT"),
    }
    assert check_case(found, run_case(found)) == []


def test_condition_over_two_inputs_of_a_padded_side_pads_at_once() -> None:
    for query in (
        "SELECT a.t AS a, c.t AS c FROM a JOIN b ON a.t = b.t LEFT JOIN c ON c.t = a.t AND a.v < b.v",
        "SELECT a.t AS a, c.t AS c FROM c RIGHT JOIN (a JOIN b ON a.t = b.t) ON c.t = a.t AND a.v < b.v",
    ):
        check(
            query,
            ({"rows": rows(a=[{"t": 1, "v": 5}], b=[{"t": 1, "v": 3}])}, {"rows": [{"a": 1, "c": None}]}),
            ({"rows": rows(a=[{"t": 2, "v": 2}], b=[{"t": 2, "v": 3}])}, {"rows": []}),
            ({"rows": rows(c=[{"t": 1}, {"t": 2}])}, {"rows": [{"a": 2, "c": 2}]}),
        )


def test_condition_over_a_padded_input_stays_at_the_join_above() -> None:
    """``b.v = 1`` in the ON of an inner join over a LEFT one: pads fail it and are not retained there."""
    query = "SELECT a.t AS a, b.t AS b FROM a LEFT JOIN b ON a.t = b.t JOIN c ON c.t = a.t AND b.v = 1"
    check(
        query,
        ({"rows": rows(a=[{"t": 1}, {"t": 2}], b=[{"t": 1, "v": 1}, {"t": 2, "v": 2}])}, {"rows": []}),
        ({"rows": rows(c=[{"t": 1}, {"t": 2}])}, {"rows": [{"a": 1, "b": 1}]}),
    )
    assert [len(f) for f in read_query(case(query, [])).filters] == [0, 0, 0]


def test_max_rows_counts_the_rows_of_one_join() -> None:
    check(
        "SELECT a.t AS a FROM a JOIN b ON a.t = b.t JOIN c ON c.t = b.t",
        ({"rows": rows(a=[{"t": 1}], b=[{"t": 1}])}, {"rows": []}),
        ({"rows": rows(c=[{"t": 1}])}, {"rows": [{"a": 1}]}),
        ({"rows": rows(c=[{"t": 1}])}, {"error": "max_rows"}),
        max_rows=2,
    )


def test_watermarks_by_rule_limit_pass_from_join_to_join() -> None:
    check(
        "SELECT o.t AS o FROM o JOIN d ON d.t BETWEEN o.t - 1 AND o.t + 3 "
        "JOIN r ON r.t BETWEEN d.t - 1 AND d.t + 4",
        ({"advance": {"o.t": 100, "d.t": 100}}, {"watermarks": {}}),
        ({"advance": {"r.t": 50}}, {"watermarks": {"o.t": 43, "d.t": 46, "r.t": 50}}),
        ({"advance": {"r.t": 200}}, {"watermarks": {"o.t": 97, "d.t": 99, "r.t": 98}}),
        watermark_rule="limit",
    )


def test_allowed_lateness_is_subtracted_once() -> None:
    check(
        "SELECT o.t AS o, r.t AS r FROM o JOIN d ON o.t = d.t JOIN r ON r.t = d.t",
        ({"rows": rows(r=[{"t": 7}, {"t": 8}], d=[{"t": 7}])}, {"state": {"o": 0, "d": 1, "r": 2}}),
        ({"advance": {"o.t": 10, "d.t": 10}}, {"state": {"o": 0, "d": 0, "r": 1}}),
        ({"rows": rows(o=[{"t": 8}], d=[{"t": 8}])}, {"rows": [{"o": 8, "r": 8}], "late": []}),
        allowed_lateness=2,
    )


def test_own_bound_says_that_a_padded_input_is_there() -> None:
    """``r.t >= o.t - 100`` is never TRUE for a pad: o's watermark bounds r, and closer through d."""
    query = (
        "SELECT o.t AS o, d.t AS d, r.t AS r FROM o RIGHT JOIN d ON d.t BETWEEN o.t - 1 AND o.t + 3 "
        "JOIN r ON r.t BETWEEN d.t - 1 AND d.t + 4 AND r.t >= o.t - 100"
    )
    assert read_query(case(query, [])).bounds == {
        (("r", "t"), ("d", "t")): 1,
        (("d", "t"), ("r", "t")): 4,
        (("r", "t"), ("o", "t")): 2,
        (("o", "t"), ("r", "t")): 7,
    }
    check(
        query,
        ({"rows": rows(r=[{"t": 97}, {"t": 98}])}, {"state": {"o": 0, "d": 0, "r": 2}}),
        ({"advance": {"o.t": 100}}, {"rows": [], "state": {"o": 0, "d": 0, "r": 1}}),
        ({"rows": rows(d=[{"t": 97}])}, {"rows": [], "state": {"o": 0, "d": 0, "r": 1}}),
        ({"rows": rows(o=[{"t": 100}], d=[{"t": 99}])}, {"rows": [{"o": 100, "d": 99, "r": 98}]}),
    )


def test_bounds_of_other_than_inner_joins_do_not_close_through_later_joins() -> None:
    """d=1 matched no c: the LEFT join above makes that a pad, and a row of b may still come for it."""
    head = "SELECT a.t AS a FROM a JOIN b ON a.k = b.k AND a.t = b.t"
    inner = read_query(case(f"{head} JOIN c ON c.t = a.t", []))
    outer = read_query(case(f"{head} LEFT JOIN c ON c.t = a.t", []))
    c_by_b = (("c", "t"), ("b", "t"))
    assert c_by_b in inner.joins[1].bounds
    assert c_by_b in outer.joins[1].bounds
    for kind, closes in (("JOIN", True), ("LEFT JOIN", False)):
        query = (
            f"SELECT a.t AS a FROM a JOIN b ON a.t BETWEEN b.t - 50 AND b.t + 50 "
            f"{kind} c ON c.t BETWEEN a.t - 1 AND a.t + 1 AND c.t BETWEEN b.t - 1 AND b.t + 1"
        )
        wanted = 2 if closes else 50
        assert read_query(case(query, [])).joins[0].bounds[("a", "t"), ("b", "t")] == wanted


@pytest.mark.parametrize(
    ("query", "options", "names"),
    [
        # nothing of c ever drops a row of a with b
        ("a LEFT JOIN b ON a.t = b.t LEFT JOIN c ON c.k = b.k AND c.t >= a.t - 1", {},
         ['"a" with "b"', "a.t, b.t"]),
        # c is bounded, but by a time that no join before it puts out
        ("a JOIN e ON a.t BETWEEN e.t - 1 AND e.t + 1 JOIN c ON c.t BETWEEN e.u - 1 AND e.u + 1",
         {"watermark_rule": "limit"}, ['"c"', "c.t"]),
        ("a JOIN b ON a.k = b.k LEFT JOIN c ON c.t = a.t AND c.t = b.t", {}, ['"a"', '"b"']),
    ],
)  # fmt: skip
def test_unbounded_joins_are_refused(query: str, options: dict[str, Any], names: list[str]) -> None:
    found = case(f"SELECT a.t AS a FROM {query}", [], **options)
    found["streams"]["e"] = stream("t", "u")
    (line,) = run_case(found)
    assert "state would grow without limit" in line["error"]
    for name in names:
        assert name in line["error"]


def test_time_that_no_join_puts_out_is_enough_with_rule_tight() -> None:
    query = "SELECT a.t AS a FROM a JOIN e ON a.t = e.t JOIN c ON c.t BETWEEN e.u - 1 AND e.u + 1"
    found = case(query, [])
    found["streams"]["e"] = stream("t", "u")
    assert read_query(found).joins[1].bounds


def test_what_may_still_match_is_counted_per_input() -> None:
    found = case(
        "SELECT a.t AS a FROM a JOIN b ON a.t = b.t LEFT JOIN c ON c.t = a.t",
        [
            {"rows": rows(a=[{"t": 1}, {"t": 2}], c=[{"t": 1}])},
            {"advance": {"b.t": 2}},
            {"advance": {"a.t": 2}},
        ],
    )
    assert may_still_match(found) == [
        {"a": 2, "b": 0, "c": 1},
        {"a": 1, "b": 0, "c": 0},  # c=1 would need a pair of a and b at 1
        {"a": 1, "b": 0, "c": 0},
    ]


def test_pad_of_a_nested_join_is_retracted_through_the_outer_join() -> None:
    """A pad of the first join goes through the second, and is taken back there, too."""
    found = run_case(
        case(
            "SELECT a.t AS a, b.t AS b, c.t AS c FROM a LEFT JOIN b ON a.t = b.t LEFT JOIN c ON c.t = b.t",
            [{"rows": rows(a=[{"t": 1}], c=[{"t": 1}])}, {"rows": rows(b=[{"t": 1}])}],
            output_mode="changelog",
        )
    )
    assert found[0]["rows"] == [{"a": 1, "b": None, "c": None, "_diff": 1}]
    assert sorted(row["_diff"] for row in found[1]["rows"]) == [-1, 1]
    assert {"a": 1, "b": 1, "c": 1, "_diff": 1} in found[1]["rows"]
