# ruff: noqa: E501
"""Sums of integers that leave their type, in bands and keys, against Spark's own batch joins.

Which pairs a sum is too great for, Spark says: by ``try_add`` and its like, which are NULL there and otherwise
what the operator is. All those pairs must fail, each by itself; all others give Spark's rows, together.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.ticks import QUERY, arriving, plan_of
from watersmeet.errors import EngineError
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

BITS = {"b": 8, "s": 16, "i": 32, "n": 64}
TYPES = {"b": "TINYINT", "s": "SMALLINT", "i": "INT", "n": "BIGINT", "m": "DECIMAL(12,2)", "x": "DOUBLE"}
COLUMNS = {"t": "BIGINT", "p": "INT", "j": "INT", **TYPES}
STREAMS = {side: {"columns": COLUMNS, "time": {"t": {"lag": 0}}} for side in "lr"}
KINDS = ("JOIN", "LEFT JOIN", "FULL JOIN")


def add(a: str, b: str) -> tuple[str, str]:
    return f"({a} + {b})", f"try_add({a}, {b})"


def sub(a: str, b: str) -> tuple[str, str]:
    return f"({a} - {b})", f"try_subtract({a}, {b})"


def times(a: str, b: str) -> tuple[str, str]:
    return f"{a} * {b}", f"try_multiply({a}, {b})"


def minus(a: str, zero: str) -> tuple[str, str]:
    return f"(-{a})", f"try_subtract({zero}, {a})"


def absolute(a: str, b: str) -> tuple[str, str]:
    """Of the least integer there is none."""
    own, tried = sub(a, b)
    return f"abs({own})", f"IF(try_subtract(try_subtract({a}, {a}), {tried}) IS NULL, NULL, abs({tried}))"


def over(pair: tuple[str, str], cast: str) -> tuple[str, str]:
    return tuple(f"CAST({each} AS {cast})" for each in pair)


CONDITIONS = [
    (add("l.i", "1"), ">", "r.i"),
    (add("l.i", "1"), "<", "r.i"),
    (add("l.i", "2147483647"), ">", "r.i"),
    ("l.i", "<=", sub("r.i", "2147483648")),
    ("l.n", ">", sub("r.n", "2147483648")),
    ("l.i", "<=", sub("r.i", "5")),
    (sub("l.n", "5"), ">=", "r.n"),
    (sub("l.n", "5"), "<", "r.n"),
    ("l.n", "<=", add("r.n", "9223372036854775800")),
    (sub("l.n", "r.n"), "<", "3"),
    (sub("l.i", "r.i"), ">=", "3"),
    (sub("l.i", "r.n"), ">=", "3"),
    (absolute("l.n", "r.n"), "<", "3"),
    (absolute("l.i", "r.i"), "<=", "3"),
    (absolute("l.b", "r.b"), "<", "3Y"),
    (sub("l.b", "r.b"), "<", "3Y"),
    (sub("l.b", "r.b"), "<", "3"),
    (add("l.b", "1"), ">", "r.b"),
    (add("l.b", "1Y"), ">", "r.b"),
    (add("l.b", "1Y"), "<", "r.n"),
    (add("l.s", "1Y"), "<", "r.i"),
    (add("l.s", "1S"), "<", "r.s"),
    (add("l.s", "1"), "<", "r.s"),
    (add("l.i", "1L"), "<", "r.i"),
    (add("CAST(l.i AS BIGINT)", "1"), "<", "r.i"),
    (minus("l.i", "0"), ">=", minus("r.i", "0")),
    (minus("l.n", "0L"), "<", minus("r.n", "0L")),
    (minus("l.b", "0Y"), "<", sub("5", "r.b")),
    (times("l.i", "-1"), "<", sub("3L", "r.i")),
    (times("-1L", "l.n"), ">", sub("7L", "r.n")),
    (add("l.i", "1"), "<", "r.m"),
    (sub("l.i", "1"), ">=", "r.m"),
    (over(sub("l.i", "1"), "DECIMAL(10,0)"), ">", "r.m"),
    (add("l.n", "1"), "<", "r.m"),
    ("l.m", "<=", add("r.i", "7")),
    (add("l.i", "1"), "<", "r.x"),
    (sub("l.n", "1"), ">=", "r.x"),
    ("l.x", "<=", add("r.n", "1")),
    ("l.x", ">", "r.x + 1"),
    (add("l.m", "1"), "<", "r.n"),
]  # fmt: skip


def texts(condition) -> tuple[str, str]:
    """(as it is written, with functions that try)."""
    left, op, right = condition
    sides = [(each, each) if isinstance(each, str) else each for each in (left, right)]
    return f"{sides[0][0]} {op} {sides[1][0]}", f"{sides[0][1]} {op} {sides[1][1]}"


def values() -> list[dict]:
    """Values at the ends of each type and between, of all types in one row; the last row's are NULL."""
    found: list[dict] = []
    for end in range(7):
        row: dict = {}
        for name, bits in BITS.items():
            most = 2 ** (bits - 1) - 1
            row[name] = (most, -most - 1, most - 1, -most + 3, 0, 5, -2)[end]
        row["m"] = (
            "0.00",
            "9999999999.99",
            "-9999999999.99",
            "2147483648.00",
            "-2147483649.00",
            "1.50",
            "6.00",
        )[end]
        row["x"] = (0.0, 1e300, -1e300, 2.0**63, -(2.0**63), 2147483648.0, float("nan"))[end]
        found.append(row)
    found.append(dict.fromkeys(TYPES))
    return found


ROWS = values()
EVERY = [(one, other) for one in range(len(ROWS)) for other in range(len(ROWS))]


@pytest.fixture(scope="module")
def truths(spark):
    """Per condition, per pair: TRUE, FALSE, NULL, or "fails"."""
    raw = ", ".join(["j INT", *(f"{n} {'STRING' if n == 'm' else t}" for n, t in TYPES.items())])
    frame = spark.createDataFrame([(j, *(row[n] for n in TYPES)) for j, row in enumerate(ROWS)], raw)
    frame = frame.selectExpr("j", *(f"CAST({n} AS {t}) AS {n}" for n, t in TYPES.items()))
    pairs = frame.alias("l").crossJoin(frame.alias("r"))
    made = []
    for number, condition in enumerate(CONDITIONS):
        made.append(f"{texts(condition)[1]} AS c{number}")
    rows = pairs.selectExpr("l.j AS a", "r.j AS b", *made).collect()
    return [{(row.a, row.b): _truth(row, row[f"c{n}"]) for row in rows} for n in range(len(CONDITIONS))]


def _truth(row, found):
    """NULL of values that are there: a sum is beyond its type."""
    return "fails" if found is None and max(row.a, row.b) < len(ROWS) - 1 else found


def run_join(on: str, kind: str, pairs, index: int, *, keyed: bool = True, first: str = "l") -> Counter:
    """What comes out of rows of which each has its pair's number as its key, one side's rows before the
    other's, looked up by time or by the band."""
    key = "l.p = r.p AND " if keyed else ""
    plan = plan_of(f"SELECT l.p AS a, r.p AS b FROM l {kind} r ON {key}l.t = r.t AND {on}", STREAMS)
    job = LocalJob(plan, MemoryStore(), partitions=2)
    shape = job.driver.shapes[QUERY][0]
    begin = job.driver.begin

    def begin_with_index(*told, **named):
        tick = begin(*told, **named)
        for task in (shape.left, shape.right):
            tick.start.indexes[task.arrangement] = task.layout.indexes[index].name
        return tick

    job.driver.begin = begin_with_index
    sides = {
        side: [{"t": 0, "p": number, **ROWS[pair[place]]} for number, pair in enumerate(pairs)]
        for place, side in enumerate("lr")
    }
    second = "r" if first == "l" else "l"
    output = [*job.tick(arriving(**{first: sides[first]})).rows[QUERY]]
    output += [*job.tick(arriving(**{second: sides[second]})).rows[QUERY]]
    output += [*job.tick({}, end=True).rows[QUERY]]
    return Counter(tuple(row.values()) for row in output)


def count_expected_rows(kind: str, pairs, truth) -> Counter:
    held = [number for number, pair in enumerate(pairs) if truth[pair] is True]
    rest = [number for number in range(len(pairs)) if number not in held]
    found = Counter((number, number) for number in held)
    found += Counter((number, None) for number in rest if kind != "JOIN")
    found += Counter((None, number) for number in rest if kind == "FULL JOIN")
    return found


@pytest.mark.spark
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, id=texts(own)[0], marks=[pytest.mark.full] if n % 2 else [])
        for n, own in enumerate(CONDITIONS)
    ],
)
def test_sums_in_bands_fail_where_spark_says(number, truths, seed):
    on, truth = texts(CONDITIONS[number])[0], truths[number]
    rng = random.Random(seed + number)
    good = [pair for pair in EVERY if truth[pair] != "fails"]
    bad = [pair for pair in EVERY if truth[pair] == "fails"]
    kind = KINDS[number % len(KINDS)]
    for index, first in ((0, "l"), (-1, "r")):
        assert run_join(on, kind, good, index, first=first) == count_expected_rows(kind, good, truth)
    for number, pair in enumerate(rng.sample(bad, min(len(bad), 4))):
        with pytest.raises(EngineError, match="ARITHMETIC_OVERFLOW") as caught:
            run_join(on, kind, [pair], -(number % 2), keyed=number > 1, first=rng.choice("lr"))
        assert caught.value.code == "condition-failed"


M, L = 2**31 - 1, 2**63 - 1
LEFT = [(1, M, M, L), (2, 1, None, 1), (3, None, M, L), (4, 7, 7, -L)]
RIGHT = [(2, 2, 2, 2), (9, 9, 9, 9), (4, 8, 8, 8), (3, 8, None, 1)]
JOINS = [
    "l.i + 1 = r.i",
    "l.p = r.p AND l.i + 1 = r.i",
    "l.i < 100 AND l.i + 1 = r.i",
    "l.n + 1 = r.n AND l.p < 0",
    "l.j + 1 = r.j AND l.i = r.i AND l.p > 2",
    "l.j + 1 = r.j AND l.i < r.n AND l.p > 2",
    "l.j * 2 = r.j AND l.p > 1 AND l.i <=> r.i",
    "l.i - r.i = -1 AND l.p = r.p",
    "l.p = r.p AND l.i + 1 > r.i",
    "l.p = r.p AND l.j + 1 < r.i",
    "l.p <> r.p AND l.i + 1 < r.i",
    "l.p > r.p AND l.i + 1 < r.i",
    "l.j + 1 = r.j AND l.n < r.n AND l.i + 0 = r.i AND l.p > 2",
    "l.i + 1 > r.i AND r.i > l.j + 1",
    "l.n - 5 BETWEEN r.n AND r.n + 9223372036854775800",
    "r.n BETWEEN l.n + 10 AND l.n + 20",
    "l.i + (2147483647 + 1) > r.i",
]  # fmt: skip


EARLIER_BANDS = "l.i + 1 < r.i AND l.p > r.p"
"""What other bands rule out is no candidate here, wherever it is written."""


@pytest.fixture(scope="module")
def tables(spark):
    """Rows as literals, joined in this process without a shuffle; not by the optimizer."""
    rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    spark.conf.set("spark.sql.optimizer.excludedRules", rule)
    for name, rows in (("l", LEFT), ("r", RIGHT)):
        made = ", ".join(
            "(" + ", ".join("NULL" if v is None else f"{v}{'L' * (n == 3)}" for n, v in enumerate(row)) + ")"
            for row in rows
        )
        spark.sql(f"SELECT * FROM VALUES {made} AS v(p, i, j, n)").createOrReplaceTempView(name)
    yield
    spark.conf.unset("spark.sql.optimizer.excludedRules")


def outcome(run) -> Counter | str:
    try:
        return run()
    except Exception as error:
        found = str(error)
        assert "ARITHMETIC_OVERFLOW" in found, found
        return "fails"


def ours(on: str, kind: str) -> Counter:
    plan = plan_of(f"SELECT l.p AS a, r.p AS b FROM l {kind} r ON l.t = r.t AND {on}", STREAMS)
    job = LocalJob(plan, MemoryStore(), partitions=2)
    sides = {
        name: [{"t": 0, "p": p, "i": i, "j": j, "n": n} for p, i, j, n in rows]
        for name, rows in (("l", LEFT), ("r", RIGHT))
    }
    output = [*job.tick(arriving(l=sides["l"])).rows[QUERY], *job.tick(arriving(r=sides["r"])).rows[QUERY]]
    output += [*job.tick({}, end=True).rows[QUERY]]
    return Counter(tuple(row.values()) for row in output)


@pytest.mark.full
@pytest.mark.spark
def test_joins_stop_where_sparks_do(spark, tables):
    different = []
    for number, on in enumerate([*JOINS, EARLIER_BANDS]):
        for kind in ("JOIN", KINDS[1 + number % 2]):
            text = f"SELECT l.p, r.p FROM l {kind} r ON {on}"
            theirs = outcome(lambda text=text: Counter(tuple(row) for row in spark.sql(text).collect()))
            own = outcome(lambda kind=kind, on=on: ours(on, kind))
            if theirs != own:
                different.append((on, kind, theirs if theirs == "fails" else repr(theirs)))
    assert {(on, theirs) for on, _, theirs in different} == {(EARLIER_BANDS, "fails")}
