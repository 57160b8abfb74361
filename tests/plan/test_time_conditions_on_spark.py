"""Conditions over times, and over what counts them, as the engine decides them against Spark's batch answer.

The tests draw functions of times, units, operators, sides, forms of the comparison, types of constants,
zones, kinds of join, streams and tables. Spark says of each condition which pairs of a cross join it
accepts; the rows of every kind of join follow from the pairs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from tests.support.ordered_files import write_rows_file
from tests.support.ticks import QUERY, arriving
from watersmeet.names import SHOWN_DIFF
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.sinks.memory import MemorySink
from watersmeet.state.store import MemoryStore

ZONES = ("America/New_York", "Asia/Kathmandu")
CHUNKS = 6
CONDITIONS = at_effort(quick=300, full=6000)
JOBS, QUERIES = at_effort(quick=1, full=6), 20
COLUMNS = {"id": "INT", "k": "INT", "t": "TIMESTAMP", "n": "TIMESTAMP_NTZ", "d": "DATE", "i": "BIGINT"}
TIMES = "tndi"
KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")
OPERATORS = ("=", "<", "<=", ">", ">=", "<=>")
NEAR = "l.t BETWEEN r.t - INTERVAL '2' DAY AND r.t + INTERVAL '2' DAY"

# Of each unit: what counts it, and distances worth asking for.
COUNTS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "seconds": (
        ("unix_seconds({t})", "CAST({t} AS BIGINT)", "unix_timestamp({t})", "to_unix_timestamp({t})", "{i}"),
        (0, 1, 30, 59, 60, 3_600, 86_400),
    ),
    "millis": (("unix_millis({t})",), (0, 1, 999, 1_000, 30_000, 86_400_000)),
    "micros": (("unix_micros({t})",), (0, 1, 999_999, 1_000_000, 60_000_000)),
    "days": (
        ("unix_date({d})", "unix_date(CAST({t} AS DATE))", "unix_date(to_date({t}))",
         "unix_date(CAST({n} AS DATE))"),
        (0, 1, 2),
    ),
}  # fmt: skip
DIFFERENCES = (
    ("datediff({a}, {b})", "td nd", (0, 1, 2)),
    ("date_diff({a}, {b})", "td", (0, 1)),
    ("timestampdiff(SECOND, {b}, {a})", "t n", (0, 1, 59, 60)),
    ("timestampdiff(DAY, {b}, {a})", "td n", (0, 1)),
    ("timestampdiff(HOUR, {b}, {a})", "tnd", (0, 1, 24)),
    ("timestampdiff(MILLISECOND, {b}, {a})", "t n", (0, 999, 60_000)),
    ("datediff(DAY, {b}, {a})", "tn", (0, 1)),
    ("date_diff(MINUTE, to_date({b}), {a})", "tn", (0, 1, 60)),
)
OF_DIFFERENCES = (
    "{x} {op} {c}",
    "{c} {op} {x}",
    "-({x}) {op} {c}",
    "({x}) * 1 {op} {c}",
    "-1 * ({x}) {op} {c}",
    "{x} - {c} {op} 0",
    "{x} BETWEEN {c} AND {c2}",
    "{x} BETWEEN -{c2} AND {c}",
    "NOT {x} {op} {c}",
    "NOT ({x} {op} {c} OR {x} < -{c2})",
    "abs({x}) {op} {c}",
    "{c} {op} abs({x})",
    "abs({x}) BETWEEN 0 AND {c2}",
    "NOT abs({x}) > {c2} AND NOT l.k <> r.k",
    "({x} {op} {c} AND l.k = 1) OR (r.k = 2 AND {x} {op} {c})",
    "(l.k = r.k AND {x} {op} {c}) OR (NOT r.k <> l.k AND {x} <= -{c2}) OR l.k = r.k AND r.k = 2",
)
OF_TWO = (
    "{a} {op} {b} + {c}",
    "{a} - {c} {op} {b}",
    "{c} + {b} {op} {a}",
    "{a} BETWEEN {b} - {c} AND {b} + {c2}",
    "{a} + {c} BETWEEN {b} AND {b} + {c2}",
)
OF_TIMES = (
    "{a} {op} {b}",
    "{a} {op} {b} + INTERVAL '{s}' SECOND",
    "{a} - INTERVAL '{s}' SECOND {op} {b}",
    "{a} - {b} {op} INTERVAL '{s}' SECOND",
    "INTERVAL '{s}' SECOND {op} {a} - {b}",
    "-({a} - {b}) {op} INTERVAL '{s}' SECOND",
    "abs({a} - {b}) <= INTERVAL '{s}' SECOND",
    "INTERVAL '{s}' SECOND > abs({a} - {b})",
    "NOT {a} {op} {b} - INTERVAL '{s}' SECOND",
    "NOT ({a} < {b} OR {a} - INTERVAL '{s}' SECOND > {b})",
    "({a} {op} {b} AND l.k = 1 AND r.k = 1) OR ({b} <= {a} AND {a} {op} {b} AND r.k = 2)",
    "{a} {op} {b} + INTERVAL '{y}' DAY",
    "{a} - {b} BETWEEN INTERVAL '0' SECOND AND INTERVAL '{y}' DAY",
    "{a} BETWEEN {b} AND timestampadd(MINUTE, {y}, {b})",
    "date_trunc('{unit}', {a}) {op} {b}",
    "date_trunc('{unit}', {a}) {op} date_trunc('{unit}', {b})",
    "CAST({a} AS DATE) {op} date_add(CAST({b} AS DATE), {y})",
    "CAST({a} AS DATE) {op} CAST({b} AS DATE)",
    "CAST({a} AS DATE) - CAST({b} AS DATE) {op} INTERVAL '{y}' DAY",
)


def draw_conditions(rng: random.Random) -> Iterator[str]:
    while True:
        sides = rng.choice(("lr", "rl"))
        values: dict[str, Any] = {
            "op": rng.choice(OPERATORS),
            "unit": rng.choice(["HOUR", "DAY", "MINUTE", "WEEK"]),
        }
        values |= {"s": rng.choice((0, 1, 30, 60, 86_400)), "y": rng.choice((0, 1, 2))}
        shape = rng.choice(("difference", "count", "count", "two", "times"))
        if shape == "times":
            columns = rng.choice(("tt", "nn", "dd", "tn", "td", "nd", "dt"))
            a, b = (f"{side}.{column}" for side, column in zip(sides, columns, strict=True))
            yield rng.choice(OF_TIMES).format(a=a, b=b, **values)
            continue
        if shape == "difference":
            form, columns, distances = rng.choice(DIFFERENCES)
            own = rng.choice(columns.split())
            a, b = (f"{side}.{rng.choice(own)}" for side in sides)
            x = form.format(a=a, b=b)
        else:
            forms, distances = COUNTS[rng.choice(list(COUNTS))]
            a, b = (rng.choice(forms).format(**{name: f"{side}.{name}" for name in TIMES}) for side in sides)
            x = f"{a} - {b}"
        c, c2 = sorted((rng.choice(distances), rng.choice(distances)))
        values |= {"c": write_constant(rng, c), "c2": write_constant(rng, c2)}
        if shape == "two":
            yield rng.choice(OF_TWO).format(a=a, b=b, **values)
        else:
            yield rng.choice(OF_DIFFERENCES).format(x=x, **values)


def write_constant(rng: random.Random, value: int) -> str:
    """A number in one of the ways, and of one of the types, that it may have."""
    forms = [
        "{0}",
        "{0}L",
        "CAST({0} AS BIGINT)",
        "({1} + 1)",
        "{0} * 1",
        "{0}.0",
        "CAST({0} AS DECIMAL(12, 0))",
    ]
    return rng.choice(forms[:5] * 3 + forms[5:]).format(value, value - 1)


STARTS = ("1969-12-31T23:59:59.5", "2024-03-10T06:59:59", "2024-03-11T03:59:59.75", "2024-11-03T05:30:00")
"""Before 1970; hours in which clocks of New York are changed, and midnight there."""
APART_S = (
    0,
    0,
    0.000001,
    0.25,
    0.999999,
    1,
    30,
    59,
    60,
    60.25,
    3_599,
    3_600,
    24 * 3_600,
    25 * 3_600,
    47 * 3_600,
)


def draw_rows(rng: random.Random, count: int = 14) -> list[dict[str, Any]]:
    """Draw rows in the order of their times, which are all of one instant."""
    starts = [datetime.fromisoformat(start).replace(tzinfo=UTC) for start in STARTS]
    times = sorted(rng.choice(starts) + timedelta(seconds=rng.choice(APART_S)) for _ in range(count))
    return [
        {
            "id": number,
            "k": rng.choice([1, 2, 2]),
            "t": time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "n": time.strftime("%Y-%m-%dT%H:%M:%S.%f"),
            "d": time.strftime("%Y-%m-%d"),
            "i": int(time.timestamp() // 1),
        }
        for number, time in enumerate(times)
    ]


def accepted_pairs(
    spark: Any, zone: str, left: list[dict[str, Any]], right: list[dict[str, Any]], conditions: list[str]
) -> list[set[tuple[int, int]]]:
    """Return the pairs that Spark accepts, per condition."""
    if len(conditions) > 100:  # columns that Spark compiles into one class
        parts = (conditions[first : first + 100] for first in range(0, len(conditions), 100))
        return [pairs for part in parts for pairs in accepted_pairs(spark, zone, left, right, part)]
    spark.conf.set("spark.sql.session.timeZone", zone)
    frames = []
    raw = ", ".join(
        f"{name} {kind if name in ('id', 'k', 'i') else 'STRING'}" for name, kind in COLUMNS.items()
    )
    for side, given in (("l", left), ("r", right)):
        frame = spark.createDataFrame([tuple(row[name] for name in COLUMNS) for row in given], raw)
        casts = [f"CAST({name} AS {kind}) AS {name}" for name, kind in COLUMNS.items()]
        frames.append(frame.selectExpr(*casts).coalesce(1).alias(side))
    answers = [f"({condition}) AS c{number}" for number, condition in enumerate(conditions)]
    found = frames[0].crossJoin(frames[1]).selectExpr("l.id AS li", "r.id AS ri", *answers).collect()
    return [{(row.li, row.ri) for row in found if row[f"c{n}"]} for n in range(len(conditions))]


def expected_rows(
    kind: str, pairs: set[tuple[int, int]], left: set[int], right: set[int]
) -> Counter[tuple[Any, ...]]:
    """Return the rows of a join that accepts these pairs; ``left`` and ``right`` are the ids that stay."""
    pairs = {(a, b) for a, b in pairs if a in left and b in right}
    matched_left, matched_right = {a for a, _ in pairs}, {b for _, b in pairs}
    if kind == "LEFT SEMI":
        return Counter((a,) for a in matched_left)
    if kind == "LEFT ANTI":
        return Counter((a,) for a in left - matched_left)
    found: Counter[tuple[Any, ...]] = Counter(pairs)
    if kind in ("LEFT", "FULL"):
        found.update((a, None) for a in left - matched_left)
    if kind in ("RIGHT", "FULL"):
        found.update((None, b) for b in right - matched_right)
    return found


@dataclass(frozen=True)
class DrawnJoin:
    """A join by a condition, over streams or tables; ``keyed``: rows must have equal keys as well."""

    condition: str
    kind: str
    keyed: bool
    tables: bool

    @classmethod
    def draw(cls, rng: random.Random, condition: str, *, tables: float) -> DrawnJoin:
        return cls(condition, rng.choice(KINDS), rng.random() < 0.4, rng.random() < tables)

    @property
    def on(self) -> str:
        return f"({self.condition}) AND {NEAR}" + (" AND l.k = r.k" if self.keyed else "")

    @property
    def query(self) -> str:
        columns = "l.id" if self.kind in ("LEFT SEMI", "LEFT ANTI") else "l.id, r.id AS other"
        return f"SELECT {columns} FROM l {self.kind} JOIN r ON {self.on}"


GONE = slice(3, 5)
"""Rows that are deleted from tables in the end."""


def engine_rows(
    join: DrawnJoin, left: list[dict[str, Any]], right: list[dict[str, Any]]
) -> Counter[tuple[Any, ...]]:
    """Return all rows that the engine puts out: over streams in two ticks and at their end; over tables,
    from which two rows are deleted in the end, as the sum of the changes."""
    declared: dict[str, Any] = {"columns": COLUMNS}
    if not join.tables:
        declared["time"] = {time: {"lag": 0} for time in TIMES}
    case = {
        "case": join.on,
        "tables" if join.tables else "streams": {"l": declared, "r": declared},
        "query": join.query,
        "options": {"output_mode": "changelog"} if join.tables else {},
    }
    job = LocalJob(plan_job(case_job(case)), MemoryStore())
    found: Counter[tuple[Any, ...]] = Counter()
    for first, last in pairwise([0, 6, max(len(left), len(right))]):
        add(found, job.tick(arriving(l=left[first:last], r=right[first:last])).rows[QUERY])
    if join.tables:
        gone = {name: [(row, -1) for row in side[GONE]] for name, side in (("l", left), ("r", right))}
        add(found, job.tick(gone).rows[QUERY])
    else:
        add(found, job.tick(end=True).rows[QUERY])
    return Counter({row: times for row, times in found.items() if times})


def add(found: Counter[tuple[Any, ...]], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows, or changes of them, to a bag."""
    for row in rows:
        found[tuple(row[name] for name in ("id", "other") if name in row)] += row.get(SHOWN_DIFF, 1)


def draw_joins(rng: random.Random, count: int, *, tables: float = 0.3) -> list[DrawnJoin]:
    """Draw joins, ``tables`` of them, as a share, over tables."""
    return [
        DrawnJoin.draw(rng, condition, tables=tables) for condition in islice(draw_conditions(rng), count)
    ]


@pytest.mark.spark
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_conditions_over_times_mean_what_spark_says(spark, seed, chunk):
    rng = random.Random(seed * CHUNKS + chunk)
    left, right = draw_rows(rng), draw_rows(rng)
    joins = draw_joins(rng, CONDITIONS // CHUNKS)
    accepted = accepted_pairs(spark, "UTC", left, right, [join.on for join in joins])
    wrong = []
    for join, pairs in zip(joins, accepted, strict=True):
        gone = GONE if join.tables else slice(0)
        stay = [{row["id"] for row in side if row not in side[gone]} for side in (left, right)]
        found, expected = engine_rows(join, left, right), expected_rows(join.kind, pairs, *stay)
        if found != expected:
            wrong.append((join, found - expected, expected - found))
    assert not wrong, f"{len(wrong)} of {len(joins)}: {wrong[:5]}"


SOURCES = """
SET time_zone = '{zone}';
CREATE TABLE rl ({columns}) WITH ('connector' = 'file', 'path' = '{path}/l', 'format' = 'json');
CREATE TABLE rr ({columns}) WITH ('connector' = 'file', 'path' = '{path}/r', 'format' = 'json');
CREATE VIEW l AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE rl, DESCRIPTOR(t), INTERVAL '1' DAY));
CREATE VIEW r AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE rr, DESCRIPTOR(t), INTERVAL '1' DAY));
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("zone", "job"), [(zone, job) for zone in at_effort(quick=ZONES[:1], full=ZONES) for job in range(JOBS)]
)
def test_conditions_follow_the_zone_as_in_spark(spark, seed, tmp_path, zone, job):
    """As one job of many queries, for only Spark has clocks other than UTC's."""
    rng = random.Random(f"{seed} {zone} {job}")
    left, right = draw_rows(rng), draw_rows(rng)
    for name, given in (("l", left), ("r", right)):
        (tmp_path / name).mkdir()
        write_rows_file(tmp_path / name / "0.json", 0, given)
    joins = draw_joins(rng, QUERIES, tables=0)
    MemorySink.clear()
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    text = SOURCES.format(zone=zone, path=tmp_path, columns=columns) + "".join(
        f"CREATE TABLE q{number} WITH ('connector' = 'memory'); INSERT INTO q{number} {join.query};"
        for number, join in enumerate(joins)
    )
    until_caught_up(spark, text, tmp_path / "state", finish=True)
    accepted = accepted_pairs(spark, zone, left, right, [join.on for join in joins])
    wrong = []
    for number, (join, pairs) in enumerate(zip(joins, accepted, strict=True)):
        found: Counter[tuple[Any, ...]] = Counter()
        add(found, MemorySink.rows(f"q{number}"))
        expected = expected_rows(join.kind, pairs, *({row["id"] for row in side} for side in (left, right)))
        if found != expected:
            wrong.append((join, found - expected, expected - found))
    assert not wrong, f"{len(wrong)} of {len(joins)}: {wrong[:5]}"
