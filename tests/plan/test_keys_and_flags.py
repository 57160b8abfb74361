"""Keys of equalities, brought to one type, and rows that match nothing or always."""

import pytest

from tests.plan.building import INTS, STAMPS, plan_sql, plan_two_way_join, stream
from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.conditions.conjuncts import text_of

BOUND = "l.t = r.t AND "


def keys(on, left=INTS, right=INTS):
    time = "ts" if "*ts" in left else "t"
    other = "ts" if "*ts" in right else "t"
    found = plan_two_way_join(f"l.{time} = r.{other} AND {on}", left, right).keys
    return [(text_of(k.left), text_of(k.right), k.columns.left, k.columns.right, k.null_safe) for k in found]


def test_keys_either_way_round_and_once():
    assert keys("r.k = l.k AND l.k = r.k") == [("`k`", "`k`", "k", "k", False)]


def test_null_safe_keys_and_expressions():
    assert keys("l.k <=> r.k AND upper(l.k) = r.k") == [
        ("`k`", "`k`", "k", "k", True),
        ("UPPER(`k`)", "`k`", "__ws_key2", "k", False),
    ]


def test_keys_are_brought_to_one_type():
    assert keys("l.n = r.x", STAMPS, STAMPS) == [("CAST(`n` AS DOUBLE)", "`x`", "__ws_key1", "x", False)]
    assert keys("l.n = r.m", STAMPS, STAMPS) == [
        ("CAST(`n` AS DECIMAL(12, 2))", "CAST(`m` AS DECIMAL(12, 2))", "__ws_key1", "__ws_key1", False)
    ]
    assert keys("l.k = r.n", STAMPS, STAMPS) == [
        ("CAST(`k` AS BIGINT)", "CAST(`n` AS BIGINT)", "__ws_key1", "__ws_key1", False)
    ]


@pytest.mark.parametrize(
    ("on", "text", "target"),
    [
        ("l.k = r.n", "l.k", "BIGINT"),
        ("r.m <=> l.k", "l.k", "DOUBLE"),
        ("upper(l.k) < r.d", "UPPER(l.k)", "DATE"),
        ("(l.n = 1 OR l.k IN (r.n, 'x'))", "l.k", "BIGINT"),
        ("l.ts = r.k", "r.k", "TIMESTAMP"),
    ],
)
def test_comparing_text_with_another_type_warns(on, text, target):
    (warning,) = plan_two_way_join(f"l.ts = r.ts AND {on}", STAMPS, STAMPS).warnings
    assert f"the job stops at a text in {text} that is not a valid {target}" in warning
    assert warning.endswith(f"try_cast({text} AS {target})")


@pytest.mark.parametrize(
    "on", ["l.k = r.k", "l.n = r.m", "l.ts > '2024-01-01'", "try_cast(l.k AS INT) = r.n", "l.k = 'x'"]
)
def test_no_warning_where_no_text_can_fail(on):
    assert plan_two_way_join(f"l.ts = r.ts AND {on}", STAMPS, STAMPS).warnings == ()


def test_computed_numbers_are_brought_to_one_type():
    assert keys("l.n + 1 = r.n", STAMPS, STAMPS)[0][:2] == ("CAST(`n` + 1 AS BIGINT)", "CAST(`n` AS BIGINT)")
    assert keys("l.m * 2 = r.m", STAMPS, STAMPS)[0][:2] == (
        "CAST(`m` * 2 AS DECIMAL(12, 2))",
        "CAST(`m` AS DECIMAL(12, 2))",
    )
    assert keys("CAST(l.x AS INT) = r.n", STAMPS, STAMPS)[0][:2] == ("CAST(`x` AS INT)", "`n`")


def test_computed_days_are_days():
    assert keys("trunc(l.d, 'week') = trunc(r.d, 'MM')", STAMPS, STAMPS)[0][:2] == (
        "TRUNC(`d`, 'WEEK')",
        "TRUNC(`d`, 'MM')",
    )


def test_an_event_time_as_a_key_gets_a_column_of_its_own():
    assert keys("l.t = r.v") == [("`t`", "`v`", "__ws_key1", "v", False)]


@pytest.mark.parametrize("on", ["l.n = r.ts", "l.d = r.n"])
def test_keys_of_types_that_do_not_compare(on):
    with pytest.raises(PlanError, match="wrong-types"):
        keys(on, STAMPS, STAMPS)


def flags(on, kind="", where=""):
    sql = f"SELECT l.t FROM l {kind} JOIN r ON l.t = r.t {on} {where}"
    plan = plan_sql(sql, stream("l", INTS), stream("r", INTS))
    return [None if (f := s.branches[0].flag) is None else text_of(f) for s in plan.sides], plan


def test_no_flag_when_every_row_is_a_candidate():
    assert flags("")[0] == [None, None]
    assert flags("AND l.k <=> r.k")[0] == [None, None]


def test_one_sided_conditions_drop_or_pad():
    on = "AND l.v > 1 AND r.v > 2"
    drop, pad = (
        "CASE WHEN NOT COALESCE({}, FALSE) THEN 1 ELSE 0 END",
        "CASE WHEN NOT COALESCE({}, FALSE) THEN 2 ELSE 0 END",
    )
    assert flags(on)[0] == [drop.format("v > 1"), drop.format("v > 2")]
    assert flags(on, "LEFT")[0] == [pad.format("v > 1"), drop.format("v > 2")]
    assert flags(on, "RIGHT")[0] == [drop.format("v > 1"), pad.format("v > 2")]
    assert flags(on, "FULL")[0] == [pad.format("v > 1"), pad.format("v > 2")]


def test_null_keys_and_band_columns_match_nothing():
    assert not_null("AND l.k = r.k") == [("k",), ("k",)]
    assert not_null("AND l.k <=> r.k") == [(), ()]
    assert not_null("AND l.k + 1 = r.k") == [("__ws_key1",), ("__ws_key1",)]
    assert not_null("AND l.v < r.v + 3") == [("v",), ("v",)]
    assert not_null("AND r.t <= l.v") == [("v",), ()]
    assert not_null("AND l.v <> r.v") == [(), ()]


def not_null(on):
    found, plan = flags(on)
    assert found == [None, None]  # tasks see it in the columns
    assert all(set(side.not_null) <= set(side.kept) for side in plan.sides)
    return [side.not_null for side in plan.sides]


@pytest.mark.parametrize(
    "never", ["1 = 2", "NULL", "FALSE", "CAST(NULL AS BOOLEAN)", "'a' = 'b'", "NULL <> 1"]
)
def test_a_constant_that_is_not_true_lets_nothing_match(never):
    found, plan = flags(f"AND {never}", "LEFT")
    assert found == ["2", "2"]
    assert not plan.root.matchable
    assert "is never true" in plan.root.warnings[0]


def test_a_true_constant_is_nothing():
    assert flags("AND 1 < 2 AND TRUE")[0] == [None, None]


def test_where_on_the_preserved_side_is_pushed_the_rest_is_not():
    found, plan = flags("", "LEFT", "WHERE l.v > 1 AND r.v IS NULL")
    assert found == ["CASE WHEN NOT COALESCE(v > 1, FALSE) THEN 1 ELSE 0 END", None]
    assert text_of(plan.where) == "`r.v` IS NULL"
    found, plan = flags("", "FULL", "WHERE l.v > 1")
    assert found == [None, None]
    assert text_of(plan.where) == "`l.v` > 1"


def test_plan_lists_retained_and_carried_columns():
    _, plan = flags("AND l.k = r.k AND (l.v > r.v OR l.k = 'x')")
    assert plan.root.left.kept == ("t", "k", "v")
    assert plan.root.left.carried == ("t",)
    assert plan.root.right.carried == ()
    _, plan = flags("AND upper(l.k) = r.k")
    assert plan.root.left.kept == ("t", "__ws_key1")
    assert [(name, text_of(e)) for name, e in plan.root.left.branches[0].columns] == [
        ("t", "t"),
        ("__ws_key1", "UPPER(k)"),
    ]
    assert plan.root.keys[0].column(Side.LEFT) == "__ws_key1"


LISTS = {
    "*t": "BIGINT",
    "i": "ARRAY<INT>",
    "b": "ARRAY<BIGINT>",
    "m": "ARRAY<DECIMAL(10,2)>",
    "r": "STRUCT<a: INT>",
    "q": "STRUCT<z: INT>",
}


def test_keys_of_arrays_are_compared_as_by_spark():
    assert keys("l.i = r.i", LISTS, LISTS)[0][:2] == ("`i`", "`i`")
    assert keys("l.i = r.b", LISTS, LISTS)[0][:2] == ("CAST(`i` AS ARRAY<BIGINT>)", "`b`")
    assert keys("l.r = r.q", LISTS, LISTS)[0][:2] == ("`r`", "`q`")
    for wrong in ("l.i = r.m", "l.r = r.i"):
        with pytest.raises(PlanError, match="cannot be compared"):
            keys(wrong, LISTS, LISTS)
