"""SEMI and ANTI joins, worked out by hand from semantics.md."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.test_oracle_multiway import case, check, rows, stream
from tests.support.oracle.case import Refused, Unsupported, run_case
from tests.support.oracle.query import read_query
from watersmeet.testing.cases import check_case

NEAR = "b.t BETWEEN a.t - 1 AND a.t + 1"


@pytest.mark.parametrize("word", ["LEFT SEMI", "SEMI"])
def test_semi_gives_each_left_row_once(word: str) -> None:
    """Two equal left rows are two results, two partners are one; a partner in a later tick is none."""
    check(
        f"SELECT * FROM a {word} JOIN b ON {NEAR}",
        (
            {"rows": rows(a=[{"t": 5}, {"t": 5}, {"t": 6}, {"t": 9}], b=[{"t": 4}, {"t": 5}])},
            {
                "rows": [{"t": 5, "k": None, "v": None}] * 2 + [{"t": 6, "k": None, "v": None}],
                "state": {"a": 1, "b": 2},
            },
        ),
        ({"rows": rows(b=[{"t": 6}])}, {"rows": [], "state": {"a": 1, "b": 3}}),
        (
            {"rows": rows(b=[{"t": 8}])},
            {"rows": [{"t": 9, "k": None, "v": None}], "state": {"a": 0, "b": 4}},
        ),
        (
            {"rows": rows(a=[{"t": 7}])},
            {"rows": [{"t": 7, "k": None, "v": None}], "state": {"a": 0, "b": 4}},
        ),
    )


def test_semi_puts_out_only_the_left_watermark_and_matched_rows_do_not_hold_it() -> None:
    check(
        f"SELECT a.t AS a FROM a SEMI JOIN b ON {NEAR}",
        (
            {"rows": rows(a=[{"t": 5}, {"t": 8}], b=[{"t": 5}]), "advance": {"a.t": 10}},
            {"rows": [{"a": 5}], "watermarks": {"a.t": 8}, "state": {"a": 1, "b": 0}},
        ),
        (  # 8 goes unmatched: silently
            {"advance": {"b.t": 10}},
            {"rows": [], "watermarks": {"a.t": 10}, "state": {"a": 0, "b": 0}},
        ),
    )


def test_semi_of_a_late_partner_is_no_match() -> None:
    check(
        f"SELECT a.t AS a FROM a SEMI JOIN b ON {NEAR}",
        ({"rows": rows(a=[{"t": 5}]), "advance": {"b.t": 5}}, {"rows": [], "state": {"a": 1, "b": 0}}),
        (
            {"rows": rows(b=[{"t": 4}])},
            {
                "rows": [],
                "late": [{"stream": "b", "row": {"t": 4, "k": None, "v": None}}],
                "state": {"a": 1, "b": 0},
            },
        ),
        ({"rows": rows(b=[{"t": 6}])}, {"rows": [{"a": 5}], "state": {"a": 0, "b": 1}}),
    )


def test_semi_watermark_by_rule_limit() -> None:
    check(
        f"SELECT a.t AS a FROM a SEMI JOIN b ON {NEAR}",
        ({"advance": {"a.t": 10}}, {"watermarks": {}}),
        ({"advance": {"b.t": 7}}, {"watermarks": {"a.t": 6}}),
        ({"advance": {"b.t": 20}}, {"watermarks": {"a.t": 10}}),
        watermark_rule="limit",
    )


@pytest.mark.parametrize("word", ["LEFT ANTI", "ANTI"])
def test_anti_gives_what_left_would_pad(word: str) -> None:
    """A row that has matched stays until its release, and goes silently."""
    check(
        f"SELECT a.t AS a FROM a {word} JOIN b ON {NEAR}",
        (
            {"rows": rows(a=[{"t": 5}, {"t": 8}, {"t": 8}, {"t": 9}], b=[{"t": 5}, {"t": 6}])},
            {"rows": [], "state": {"a": 4, "b": 2}},
        ),
        (
            {"rows": rows(b=[{"t": 10}]), "advance": {"a.t": 9}},
            {"rows": [], "watermarks": {"a.t": 5}, "state": {"a": 4, "b": 1}},
        ),
        (
            {"advance": {"b.t": 10}},
            {"rows": [{"a": 8}, {"a": 8}], "watermarks": {"a.t": 9}, "state": {"a": 1, "b": 1}},
        ),
        ({"advance": {"b.t": 11}}, {"rows": [], "watermarks": {}, "state": {"a": 0, "b": 1}}),
    )


def test_restart_gives_nothing_twice() -> None:
    for word, told in (("SEMI", [[{"a": 5}], [], []]), ("ANTI", [[], [], [{"a": 8}]])):
        check(
            f"SELECT a.t AS a FROM a {word} JOIN b ON {NEAR}",
            ({"rows": rows(a=[{"t": 5}, {"t": 8}], b=[{"t": 5}])}, {"rows": told[0]}),
            ({"restart": True}, {"rows": [], "state": {"a": 1 if word == "SEMI" else 2, "b": 1}}),
            ({"rows": rows(b=[{"t": 6}])}, {"rows": told[1]}),
            ({"restart": True}, {}),
            ({"end": True}, {"rows": told[2], "state": {"a": 0, "b": 0}}),
        )


def test_null_keys_match_nothing() -> None:
    one = {"t": 5, "k": None, "v": 1}
    check(
        "SELECT a.v AS v FROM a SEMI JOIN b ON a.k = b.k AND a.t = b.t",
        ({"rows": rows(a=[one, {**one, "k": 1}], b=[one])}, {"rows": [], "state": {"a": 1, "b": 0}}),
    )
    check(
        "SELECT a.v AS v FROM a ANTI JOIN b ON a.k = b.k AND a.t = b.t",
        ({"rows": rows(a=[one, {**one, "k": 1}], b=[one])}, {"rows": [{"v": 1}], "state": {"a": 1, "b": 0}}),
    )
    check(
        "SELECT a.v AS v FROM a SEMI JOIN b ON a.k <=> b.k AND a.t = b.t",
        ({"rows": rows(a=[one, {**one, "k": 1}], b=[one])}, {"rows": [{"v": 1}], "state": {"a": 1, "b": 1}}),
    )
    check(
        "SELECT a.v AS v FROM a ANTI JOIN b ON a.t = b.t",
        ({"rows": rows(a=[{"v": 1}, {"t": 5, "v": 2}])}, {"rows": [], "state": {"a": 1, "b": 0}}),
        ({"end": True}, {"rows": [{"v": 2}]}),
    )


def test_one_sided_conditions() -> None:
    """SEMI filters both sides; ANTI the right one, and puts a left row that fails out at once."""
    told: Any
    for on, word, told in (
        ("a.v > 1", "SEMI", ([{"v": 2}], [{"v": 3}], {"a": 0, "b": 2})),
        ("a.v > 1", "ANTI", ([{"v": 1}], [], {"a": 2, "b": 2})),
        ("b.v > 1", "SEMI", ([{"v": 2}], [], {"a": 2, "b": 1})),
        ("b.v > 1", "ANTI", ([], [], {"a": 3, "b": 1})),
    ):
        query = f"SELECT a.v AS v FROM a {word} JOIN b ON a.t = b.t AND {on}"
        check(
            query,
            (
                {
                    "rows": rows(
                        a=[{"t": 5, "v": 1}, {"t": 6, "v": 2}, {"t": 7, "v": 3}], b=[{"t": 6, "v": 2}]
                    )
                },
                {"rows": told[0]},
            ),
            ({"rows": rows(b=[{"t": 7, "v": 1}])}, {"rows": told[1], "state": told[2]}),
        )
        left = int(on.startswith("a") and word == "SEMI")
        assert [len(f) for f in read_query(case(query, [])).filters] == [left, int(on.startswith("b"))]


def test_where_sinks_into_the_left_side() -> None:
    for word, told in (("SEMI", [{"v": 2}]), ("ANTI", [])):
        query = f"SELECT a.v AS v FROM a {word} JOIN b ON a.t = b.t WHERE a.v > 1"
        check(
            query,
            (
                {"rows": rows(a=[{"t": 5, "v": 1}, {"t": 6, "v": 2}], b=[{"t": 6}])},
                {"rows": told, "state": {"a": 1 - len(told), "b": 1}},
            ),
            ({"end": True}, {"rows": []}),
        )
        assert [len(f) for f in read_query(case(query, [])).filters] == [1, 0]
    query = "SELECT a.v AS v FROM a LEFT JOIN b ON a.t = b.t SEMI JOIN c ON c.t = a.t WHERE b.v IS NULL"
    check(
        query,
        (
            {"rows": rows(a=[{"t": 5, "v": 1}, {"t": 6, "v": 2}], b=[{"t": 5, "v": 0}], c=[{"t": 5}])},
            {"rows": []},
        ),
        ({"rows": rows(c=[{"t": 6}]), "advance": {"b.t": 7}}, {"rows": [{"v": 2}]}),
    )


def test_semi_under_an_inner_join() -> None:
    """Rows come into the join above once each; its watermark is that of the rows that still wait."""
    check(
        "SELECT a.t AS a, c.t AS c FROM a SEMI JOIN b ON a.t = b.t JOIN c ON c.t BETWEEN a.t AND a.t + 2",
        (
            {"rows": rows(a=[{"t": 5}, {"t": 7}], b=[{"t": 5}, {"t": 5}], c=[{"t": 7}])},
            {"rows": [{"a": 5, "c": 7}], "state": {"a": 1, "b": 2, "c": 1}},
        ),
        (
            {"rows": rows(b=[{"t": 5}, {"t": 7}])},
            {"rows": [{"a": 7, "c": 7}], "state": {"a": 0, "b": 4, "c": 1}},
        ),
        (
            {"advance": {"a.t": 8, "b.t": 8, "c.t": 9}},
            {"rows": [], "watermarks": {"a.t": 7, "c.t": 9}, "state": {"a": 0, "b": 0, "c": 0}},
        ),
    )


def test_semi_of_a_join_in_parentheses() -> None:
    """Each pair of a and b that some pair of c and d is there for."""
    check(
        "SELECT a.v AS a, b.v AS b FROM a JOIN b ON a.t = b.t SEMI JOIN (c JOIN d ON c.t = d.t) "
        "ON c.t = a.t AND d.v = b.v",
        (
            {
                "rows": rows(
                    a=[{"t": 5, "v": 1}, {"t": 5, "v": 2}],
                    b=[{"t": 5, "v": 3}, {"t": 5, "v": 4}],
                    c=[{"t": 5}],
                )
            },
            {"rows": []},
        ),
        (
            {"rows": rows(d=[{"t": 5, "v": 3}, {"t": 5, "v": 3}])},
            {"rows": [{"a": 1, "b": 3}, {"a": 2, "b": 3}]},
        ),
        ({"rows": rows(c=[{"t": 5}])}, {"rows": []}),
        ({"rows": rows(d=[{"t": 5, "v": 4}])}, {"rows": [{"a": 1, "b": 4}, {"a": 2, "b": 4}]}),
    )


def test_anti_over_a_left_join() -> None:
    """A pad of the LEFT join is a row of the ANTI join, and may be let go in the same tick."""
    query = (
        "SELECT a.t AS a, b.t AS b FROM a LEFT JOIN b ON b.t = a.t ANTI JOIN c ON c.t BETWEEN a.t AND a.t + 2"
    )
    check(
        query,
        (
            {"rows": rows(a=[{"t": 5}, {"t": 6}, {"t": 9}], b=[{"t": 6}], c=[{"t": 8}])},
            {"rows": [], "state": {"a": 3, "b": 1, "c": 1}},
        ),
        (
            {"advance": {"b.t": 7, "c.t": 8}},
            {"rows": [{"a": 5, "b": None}], "state": {"a": 1, "b": 1, "c": 1}},
        ),
        ({"advance": {"c.t": 12}}, {"rows": []}),
        ({"advance": {"b.t": 10}}, {"rows": [{"a": 9, "b": None}]}),
    )


def test_left_join_over_an_anti_join_pads() -> None:
    check(
        "SELECT a.t AS a, c.t AS c FROM a ANTI JOIN b ON b.t = a.t LEFT JOIN c ON c.t = a.t",
        ({"rows": rows(a=[{"t": 5}, {"t": 6}], b=[{"t": 6}], c=[{"t": 6}])}, {"rows": []}),
        ({"advance": {"b.t": 7}}, {"rows": []}),
        ({"advance": {"c.t": 6}}, {"rows": [{"a": 5, "c": None}]}),
        ({"end": True}, {"rows": []}),
    )


def test_state_is_that_of_the_join_an_input_feeds() -> None:
    """The join above has b alone on its right side too, but gets it from the SEMI join."""
    check(
        "SELECT a.t AS a, b.t AS b FROM a LEFT JOIN (b SEMI JOIN c ON b.t = c.t) ON a.t = b.t",
        (
            {"rows": rows(a=[{"t": 5}], b=[{"t": 5}, {"t": 6}])},
            {"rows": [], "state": {"a": 1, "b": 2, "c": 0}},
        ),
        ({"rows": rows(c=[{"t": 5}])}, {"rows": [{"a": 5, "b": 5}], "state": {"a": 1, "b": 1, "c": 1}}),
    )


def test_using_gives_the_left_column() -> None:
    found = case(
        "SELECT * FROM a SEMI JOIN b USING (t, k) JOIN c USING (k) WHERE c.ct BETWEEN t AND t + 5",
        [{"rows": rows(a=[{"t": 5, "k": 1, "v": 2}], b=[{"t": 5, "k": 1}], c=[{"ct": 6, "k": 1, "x": 3}])}],
        [{"rows": [{"k": 1, "t": 5, "v": 2, "ct": 6, "x": 3}]}],
    )
    found["streams"]["c"] = stream("ct", ct="BIGINT", k="BIGINT", x="BIGINT")
    assert check_case(found, run_case(found)) == []


@pytest.mark.parametrize("word", ["SEMI", "ANTI"])
def test_right_side_is_not_seen_above(word: str) -> None:
    join = f"FROM a {word} JOIN b ON a.t = b.t"
    for query in (
        f"SELECT b.t AS b {join}",
        f"SELECT b.* {join}",
        f"SELECT a.t AS a {join} WHERE b.v > 1",
        f"SELECT a.t AS a {join} JOIN c ON c.t = b.t",
        f"SELECT a.t AS a {join} JOIN b ON a.t = b.t",  # an alias is one input's
    ):
        with pytest.raises(Refused):
            read_query(case(query, []))
    found = case(f"SELECT t AS a {join} WHERE v > 1", [])
    assert [name for name, _, _ in read_query(found).outputs] == ["a"]
    found = case(f"SELECT a.t AS a {join} JOIN c USING (k) WHERE c.t = a.t", [])
    assert len(read_query(found).joins) == 2


def test_bounds_above_a_semi_join_omit_its_right_side() -> None:
    """Beneath: a with b bounds b with c at the join of c. Above: nothing of c."""
    query = (
        "SELECT a.t AS a FROM a JOIN b ON b.t BETWEEN a.t AND a.t + 2 "
        "{word} JOIN c ON c.t BETWEEN b.t AND b.t + 5 AND c.t >= a.t AND c.t <= a.t + 1 "
        "JOIN d ON d.t BETWEEN a.t AND a.t + 3"
    )
    for word in ("SEMI", "ANTI"):
        first, second, third = read_query(case(query.format(word=word), [])).joins
        assert first.bounds == {(("b", "t"), ("a", "t")): 0, (("a", "t"), ("b", "t")): 2}
        assert second.bounds == {
            (("a", "t"), ("c", "t")): 1,
            (("b", "t"), ("c", "t")): 1,
            (("c", "t"), ("a", "t")): 0,
            (("c", "t"), ("b", "t")): 0,
        }
        assert third.bounds == {
            (("a", "t"), ("d", "t")): 3,
            (("b", "t"), ("d", "t")): 3,
            (("d", "t"), ("a", "t")): 0,
            (("d", "t"), ("b", "t")): 2,
        }


@pytest.mark.parametrize("word", ["SEMI", "ANTI"])
def test_unbounded_sides_are_refused(word: str) -> None:
    for on, name in (("a.t >= b.t - 5", '"b"'), ("b.t >= a.t - 5", '"a"'), ("a.k = b.k", '"a"')):
        (line,) = run_case(case(f"SELECT a.t AS a FROM a {word} JOIN b ON {on}", []))
        assert "state would grow without limit" in line["error"]
        assert f"rows of {name} can never" in line["error"]


def test_what_is_not_known() -> None:
    for query, options in (
        ("a SEMI JOIN b ON a.t = b.t", {"output_mode": "changelog"}),
        ("a RIGHT SEMI JOIN b ON a.t = b.t", {}),
    ):
        with pytest.raises(Unsupported):
            run_case(case(f"SELECT a.t AS a FROM {query}", [], **options))
