"""A join as data is the join that SQL says, and what is wrong with one is told together."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from watersmeet import (
    JoinSpec,
    PlanError,
    SeveralErrors,
    SpecError,
    WatersmeetError,
    local,
    parse_job,
    plan_job,
)
from watersmeet.local import AllOf, AnyOf, Between, Comparison, Equal, left, right

STREAM = {"t": "BIGINT", "k": "STRING", "v": "BIGINT", "d": "DECIMAL(8,2)"}
HOW = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}
BAND = Between(right("t"), left("t") - 2, left("t") + 3)
BAND_SQL = "b.t BETWEEN a.t - 2 AND a.t + 3"


def spec_of(condition: Any = BAND, how: str = "inner", **more: Any) -> JoinSpec:
    given = {
        "left": STREAM,
        "right": STREAM,
        "left_times": {"t": 4},
        "right_times": {"t": 7},
        "names": ("a", "b"),
    }
    return JoinSpec(condition=condition, how=how, **{**given, **more})


def sql_of(condition: str, how: str) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in STREAM.items())
    sides = ("a",) if how in ("semi", "anti") else ("a", "b")
    outputs = ", ".join(
        f"{side}.{name}" + ("" if len(sides) == 1 else f" AS {side}_{name}")
        for side in sides
        for name in STREAM
    )
    return (
        f"CREATE TABLE a ({columns}, WATERMARK FOR t AS t - 4) WITH ('connector' = 'memory');"
        f"CREATE TABLE b ({columns}, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');"
        "CREATE SINK joined WITH ('connector' = 'memory');"
        f"INSERT INTO joined SELECT {outputs} FROM a {HOW[how]} b ON {condition}"
    )


CONDITIONS = [
    (BAND, BAND_SQL),
    (AllOf(Equal(left("k"), right("k")), BAND), f"a.k = b.k AND {BAND_SQL}"),
    (AllOf(BAND, Equal(left("k"), right("k"), null_safe=True)), f"{BAND_SQL} AND a.k <=> b.k"),
    (
        AllOf(
            Comparison(left("t"), ">", right("t") - 5),
            Comparison(left("t"), "<=", right("t") + 1),
            Equal(left("v"), 1),
        ),
        "a.t > b.t - 5 AND a.t <= b.t + 1 AND a.v = 1",
    ),
    (
        AllOf(BAND, AnyOf(Comparison(left("v"), "<>", right("v")), Equal(left("k"), "x"))),
        f"{BAND_SQL} AND (a.v <> b.v OR a.k = 'x')",
    ),
    (
        AllOf(BAND, Between(left("d"), right("d") - Decimal("1.25"), right("d") + Decimal("0.50"))),
        f"{BAND_SQL} AND a.d BETWEEN b.d - 1.25BD AND b.d + 0.50BD",
    ),
    (AllOf(BAND, Comparison(left("v"), ">=", -1)), f"{BAND_SQL} AND a.v >= -1"),
]


@pytest.mark.parametrize(
    ("condition", "text", "how"),
    [
        pytest.param(
            condition,
            text,
            how,
            id=f"{text}-{how}",
            marks=() if (number + place) % 3 == 0 else pytest.mark.full,
        )
        for number, (condition, text) in enumerate(CONDITIONS)
        for place, how in enumerate(HOW)
    ],
)
def test_join_spec_gives_the_plan_and_rows_of_sql(condition: Any, text: str, how: str, seed: int) -> None:
    spec, planned = spec_of(condition, how), plan_job(parse_job(sql_of(text, how)))
    asked, own = planned.queries[0], spec.plan.queries[0]
    assert own.root.sides[0].kept == asked.root.sides[0].kept
    assert [
        getattr(node, "bounds", None) and [(b.evicted, b.by, b.c) for b in node.bounds] for node in own.nodes
    ] == [
        getattr(node, "bounds", None) and [(b.evicted, b.by, b.c) for b in node.bounds]
        for node in asked.nodes
    ]
    one, other = local.job(spec), local.job(planned)
    rng = random.Random(seed)
    for number in range(6):
        for name in ("a", "b"):
            given = drawn(rng, number * 3)
            one.push(name, given)
            other.push(name, given)
        outputs = [job.tick(end=number == 5) for job in (one, other)]
        results = [output.tables["joined"] for output in outputs]
        assert results[0].equals(results[1])
        assert outputs[0].watermarks == outputs[1].watermarks
        assert outputs[0].late == outputs[1].late


def drawn(rng: random.Random, around: int) -> pa.Table:
    count = rng.randrange(12)
    maybe = [None, 1, 2]
    return pa.table(
        {
            "t": pa.array([around + rng.randrange(-6, 6) for _ in range(count)], pa.int64()),
            "k": pa.array([rng.choice([None, "x", "y"]) for _ in range(count)], pa.string()),
            "v": pa.array([rng.choice(maybe) for _ in range(count)], pa.int64()),
            "d": pa.array([Decimal(rng.randrange(8)) / 4 for _ in range(count)], pa.decimal128(8, 2)),
        }
    )


def test_times_and_constants_of_them() -> None:
    columns = {"at": "TIMESTAMP", "day": "DATE", "x": "DOUBLE", "ok": "BOOLEAN"}
    zone = datetime(2024, 5, 1, 10, tzinfo=UTC)
    spec = JoinSpec(
        left=columns,
        right=columns,
        left_times={"at": timedelta(seconds=10)},
        right_times={"at": "1 minute"},
        condition=AllOf(
            Between(right("at"), left("at"), left("at") + "1 hour"),
            Comparison(left("at"), ">=", zone),
            Comparison(left("day"), "<", date(2024, 6, 1)),
            Comparison(left("x"), ">", 0.5),
            Equal(left("ok"), True),
        ),
        outputs={"at": right("at")},
    )
    assert spec.postponed == {"right.at": {"left.at": 3_600_000_000}, "left.at": {"right.at": 0}}
    job = local.job(spec)
    row = {"at": zone, "day": date(2024, 5, 31), "x": 0.75, "ok": True}
    wrong = [{"at": zone - timedelta(seconds=1)}, {"day": date(2024, 6, 1)}, {"x": 0.5}, {"ok": False}]
    job.push("left", [row, *(row | other for other in wrong)])
    job.push("right", row | {"at": zone + timedelta(minutes=59)})
    assert job.tick().table.num_rows == 1


@pytest.mark.parametrize(
    ("postpone", "told"),
    [
        ({"b.t": {"a.t": 3}}, None),
        ({"b.t": {"a.t": 4}, "a.t": {"b.t": 2}}, None),
        ({"b.t": {"a.t": 2}}, "are needed until b.t is 3 past them, but the postpone value is 2"),
        ({"a.t": {"b.t": -1}}, "are needed until a.t is 2 past them, but the postpone value is -1"),
    ],
)
def test_bounds_that_the_caller_counts_on(postpone: Any, told: str | None) -> None:
    spec = spec_of(postpone=postpone)
    if told is None:
        assert spec.postponed == {"b.t": {"a.t": 3}, "a.t": {"b.t": 2}}
    else:
        with pytest.raises(PlanError, match=told):
            _ = spec.plan
        with pytest.raises(PlanError, match=told):
            local.job(spec)


def test_a_bound_that_nothing_gives() -> None:
    one_sided = AllOf(Equal(left("k"), right("k")), Comparison(left("t"), ">=", right("t") - 3))
    with pytest.raises(WatersmeetError):
        _ = spec_of(one_sided).plan  # no bound for the other side: unbounded
    spec = JoinSpec(
        left=STREAM | {"u": "BIGINT"},
        right=STREAM,
        left_times={"t": 4, "u": 4},
        right_times={"t": 7},
        names=("a", "b"),
        condition=BAND,
        postpone={"b.t": {"a.u": 100}},
    )
    with pytest.raises(PlanError, match="no condition bounds rows"):
        _ = spec.plan


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: {"condition": Equal(left("q"), right("k"))}, 'no column "q"'),
        (lambda: {"condition": "a.k = b.k"}, "is not a condition"),
        (lambda: {"condition": None}, "is not a condition"),
        (lambda: {"condition": AllOf()}, "at least one condition"),
        (lambda: {"condition": AllOf(BAND, "a.k = b.k")}, "is not a condition"),
        (lambda: {"condition": Comparison(left("t"), "==", right("t"))}, "compares nothing"),
        (lambda: {"condition": Equal(left("k"), None)}, "is not a value"),
        (lambda: {"condition": Equal(left("v"), float("nan"))}, "is not a value"),
        (lambda: {"condition": Equal(left("v"), [1])}, "is not a value"),
        (
            lambda: {"condition": Between(left("t"), right("t") - "1 hour", right("t"))},
            "an interval and a number",
        ),
        (lambda: {"condition": Equal(left("t"), right("t") + "1 month")}, "no fixed length"),
        (lambda: {"condition": Equal(left("t"), right("t") + True)}, "is not a length"),
        (lambda: {"how": "cross"}, "how is 'cross'"),
        (lambda: {"how": None}, "how is None"),
        (lambda: {"left": {}}, '"a" has no column "t"'),
        (lambda: {"left": STREAM | {"x": "NUMBER(3)"}}, 'column "x"'),
        (lambda: {"left": STREAM | {"T": "INT"}}, "two columns named"),
        (lambda: {"left": STREAM | {"": "INT"}}, "without a name"),
        (lambda: {"left": STREAM | {"__ws_flag": "INT"}}, "__ws_flag"),
        (lambda: {"left_times": "t"}, "are 't'"),
        (lambda: {"left_times": []}, "time is"),
        (lambda: {"left_times": ["k"]}, "cannot be an event time"),
        (lambda: {"left_times": ["x"]}, 'no column "x"'),
        (lambda: {"left_times": {"t": "1 hour"}}, "must be an integer"),
        (lambda: {"left_times": {"t": -1}}, "is negative"),
        (lambda: {"names": ("a", "A")}, "both sides are named"),
        (lambda: {"names": ("a.b", "c")}, "is not a name"),
        (lambda: {"names": "ab"}, "names is 'ab'"),
        (lambda: {"outputs": {}}, "at least one column"),
        (lambda: {"outputs": {"k": "k"}}, "columns go out as they are"),
        (lambda: {"outputs": {"k": left("t") + 1}}, "columns go out as they are"),
        (lambda: {"outputs": {"k": left("k"), "K": left("t")}}, '"K"'),
        (lambda: {"outputs": {"k": right("k")}, "how": "semi"}, 'unknown input "b"'),
        (lambda: {"postpone": {"b.t": {"a.k": 1}}}, "is not an event time"),
        (lambda: {"postpone": {"b.t": {"a.t": "1 hour"}}}, "write a whole number"),
        (lambda: {"postpone": {"b.t": 3}}, "is not an event time"),
        (lambda: {"options": {"no_such": "1"}}, "unknown setting"),
    ],
)
def test_what_is_wrong_with_a_spec(given: Callable[[], dict[str, Any]], told: str) -> None:
    with pytest.raises(WatersmeetError) as raised:
        _ = spec_of(**given()).plan
    assert told in str(raised.value)


def test_comparisons_that_spark_refuses_are_refused() -> None:
    with pytest.raises(SpecError, match="Spark cannot compare BIGINT with BOOLEAN"):
        spec_of(AllOf(BAND, Equal(left("v"), True)))


def test_a_condition_of_hundreds_of_levels_is_refused() -> None:
    nested: Any = BAND
    for value in range(400):
        nested = AnyOf(nested, AllOf(Equal(left("v"), value), BAND))
    with pytest.raises(SpecError, match="nested too deeply"):
        spec_of(nested)


def test_all_spec_errors_are_reported_together() -> None:
    with pytest.raises(SeveralErrors) as raised:
        spec_of(
            "a.t = b.t", left_times=["x"], right_times=["k"], names=("a", "b.c"), options={"no_such": "1"}
        )
    assert len(raised.value.errors) == 5
    with pytest.raises(SeveralErrors) as raised:
        spec_of(Equal(left("q"), right("r")), postpone={"c.t": {"a.t": 1}})
    assert len(raised.value.errors) == 3


def test_columns_of_one_name() -> None:
    spec = JoinSpec(
        left={"t": "INT", "only": "INT"},
        right={"t": "INT", "other": "INT"},
        left_times=["t"],
        right_times=["t"],
        condition=Equal(left("t"), right("t")),
        names=("a", "b"),
    )
    assert list(spec.outputs_by_name) == ["a_t", "only", "b_t", "other"]


def test_python_boolean_operators_on_conditions_are_refused() -> None:
    """``a and b`` would be b alone."""
    same = Equal(left("k"), right("k"))
    for put_together in (lambda: same and BAND, lambda: AllOf(same, BAND) or BAND, lambda: not BAND):
        with pytest.raises(SpecError, match=r"bad-condition[^|]*AllOf"):
            put_together()


def test_a_store_within_a_file_is_refused(tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/deeper"):
        with pytest.raises(SpecError, match=r"bad-store\W.*file is not a directory"):
            local.job(spec_of(), store=tmp_path / place)
