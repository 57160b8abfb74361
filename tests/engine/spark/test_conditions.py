"""Conditions that Spark computes over candidate pairs: every kind of join against Spark's own batch joins."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.effort import at_effort
from tests.support.ordered_files import write_rows_file
from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

SOURCES = """
SET time_zone = '{zone}';
CREATE MAPPING ra (id INT, k INT, t TIMESTAMP, s STRING, n INT, dt DATE)
  TYPE File OPTIONS ('path' = '{path}/ra', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING rb (id INT, k INT, t TIMESTAMP, s STRING, n INT, dt DATE)
  TYPE File OPTIONS ('path' = '{path}/rb', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE VIEW a AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE ra, DESCRIPTOR(t), INTERVAL '400' DAY));
CREATE VIEW b AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE rb, DESCRIPTOR(t), INTERVAL '400' DAY));
"""
NEAR = "b.t BETWEEN a.t - INTERVAL '20' HOUR AND a.t + INTERVAL '20' HOUR"
SPARKS = "soundex(regexp_replace(concat(a.s, b.s), '(?!)', '')) <> soundex(b.s)"
QUERIES = {
    "inner_key": f"SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k AND {NEAR} AND {SPARKS}",
    "left_band": f"SELECT a.id, b.id AS other FROM a LEFT JOIN b ON {NEAR} AND {SPARKS}",
    "full_key": f"SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.k = b.k AND {NEAR} AND {SPARKS}",
    "semi": f"SELECT a.id FROM a LEFT SEMI JOIN b ON a.k = b.k AND {NEAR} AND {SPARKS}",
    "anti": f"SELECT a.id FROM a LEFT ANTI JOIN b ON {NEAR} AND {SPARKS}",
    "spread": f"SELECT /*+ BROADCAST(b) */ a.id, b.id AS other FROM a FULL JOIN b ON {NEAR} AND {SPARKS}",
    "hours": f"SELECT a.id, b.id AS other FROM a LEFT JOIN b ON {NEAR} AND hour(a.t) - hour(b.t) > 3",
    "texts": f"SELECT a.id, b.id AS other FROM a JOIN b ON {NEAR} "
    "AND CAST(a.t AS STRING) > CAST(b.dt AS STRING)",
    "days": "SELECT a.id, b.id AS other FROM a JOIN b ON b.t BETWEEN a.t AND a.t + INTERVAL '1' DAY "
    "AND b.t BETWEEN a.dt AND a.dt + INTERVAL '1' DAY",
    "differences": f"SELECT a.id, b.id AS other FROM a JOIN b ON {NEAR} AND datediff(a.t, b.t) = 1",
    "trunc": f"SELECT a.id, b.id AS other FROM a JOIN b ON {NEAR} AND date_trunc('DAY', a.t) < b.t",
    "dates": f"SELECT a.id, b.id AS other FROM a JOIN b ON {NEAR} AND a.dt > b.t",
}


QUICK = ("full_key", "anti", "spread", "texts", "days")
"""Quick effort: by key, by a band alone, broadcast, and conditions that follow the zone."""
QUERIES = {name: query for name, query in QUERIES.items() if name in at_effort(quick=QUICK, full=QUERIES)}
BY_SPARK = {"inner_key", "left_band", "full_key", "semi", "anti", "spread"} & QUERIES.keys()


def rows(rng: random.Random, first: int, count: int) -> list[dict]:
    """Times around both changes of New York's clocks."""
    found = []
    for n in range(first, first + count):
        day = rng.choice(["2024-03-10", "2024-11-03"])
        found.append(
            {
                "id": n,
                "k": rng.choice([1, 2, None]),
                "t": f"{day}T{rng.randrange(24):02}:{rng.randrange(60):02}:00Z",
                "s": rng.choice(["smith", "smyth", "wood", "", "é", None]),
                "n": rng.randrange(-2, 3),
                "dt": rng.choice(["2024-03-09", "2024-03-10", "2024-03-11", "2024-11-03", None]),
            }
        )
    return found


def write_file(folder, number: int, found: list[dict]) -> None:
    folder.mkdir(exist_ok=True)
    write_rows_file(folder / f"{number:03}.json", number, found)


def play(spark, sql: str, checkpoint, **settings):
    from watersmeet.runtime.spark.job.run import build_outputs, run
    from watersmeet.runtime.spark.job.settings import RunSettings

    job = parse_job(sql)
    plan = plan_job(job)
    asked = RunSettings(str(checkpoint), partitions=2, until_caught_up=True, finish=True, **settings)
    run(spark, plan, asked, build_outputs(job, plan, asked))
    return plan


def test_every_join_is_the_batch_join_in_the_zone(spark, tmp_path, seed):
    zone = "America/New_York"
    rng = random.Random(seed)
    for name, first in (("ra", 0), ("rb", 1000)):
        for number in range(2):
            write_file(tmp_path / name, number, rows(rng, first + 100 * number, 40))
    MemorySink.clear()
    sinks = "".join(f"CREATE MAPPING {name} TYPE Memory;" for name in QUERIES)
    inserts = "".join(f"INSERT INTO {name} {query};" for name, query in QUERIES.items())
    plan = play(spark, SOURCES.format(path=tmp_path, zone=zone) + sinks + inserts, tmp_path / "checkpoint")
    by_spark = [query.name for query in plan.queries if query.root.residual_why]
    assert set(by_spark) >= BY_SPARK
    assert spark.conf.get("spark.sql.session.timeZone") == zone
    columns = "id INT, k INT, t TIMESTAMP, s STRING, n INT, dt DATE"
    for name in ("a", "b"):
        spark.read.schema(columns).json(str(tmp_path / f"r{name}")).createOrReplaceTempView(name)
    different = {}
    for name, query in QUERIES.items():
        expected = Counter(tuple(row) for row in spark.sql(query).collect())
        found = Counter(tuple(row.values()) for row in MemorySink.rows(name))
        assert expected, name
        if found != expected:
            different[name] = (
                len(list((expected - found).elements())),
                len(list((found - expected).elements())),
            )
    assert different == {}


def test_a_condition_that_fails_stops_the_job_and_is_named(spark, tmp_path):
    rng = random.Random(1)
    for name, first in (("ra", 0), ("rb", 1000)):
        write_file(tmp_path / name, 0, rows(rng, first, 20))
    MemorySink.clear()
    query = f"SELECT a.id FROM a LEFT JOIN b ON {NEAR} AND bround(a.n / (b.n - b.n), 1) > 1"
    sql = SOURCES.format(path=tmp_path, zone="UTC") + "CREATE MAPPING o TYPE Memory; INSERT INTO o " + query
    with pytest.raises(EngineError, match=r"b\.n - b\.n.*DIVIDE_BY_ZERO") as caught:
        play(spark, sql, tmp_path / "checkpoint")
    assert caught.value.code == "condition-failed"
    assert MemorySink.rows("o") == []


NUMBERS = [{"id": 1, "s": "1"}, {"id": 2, "s": "x"}, {"id": 3, "s": " 2 "}, {"id": 4, "s": None}]


def numbers(path, condition: str, where: str, on: str) -> str:
    for name in ("ra", "rb"):
        write_file(path / name, 0, [row | {"t": "2024-03-10T00:00:00Z", "n": row["id"]} for row in NUMBERS])
    views = f"""
    CREATE VIEW fa AS SELECT id, s, CAST(s AS INT) AS whole, t FROM a WHERE {condition};
    CREATE MAPPING o TYPE Memory;
    INSERT INTO o SELECT fa.id, b.id AS other FROM fa LEFT JOIN b ON b.t = fa.t AND {on} {where};"""
    return SOURCES.format(path=path, zone="UTC") + views


@pytest.mark.parametrize(
    ("condition", "where", "on"),
    [
        pytest.param("s RLIKE '^[ 0-9]+$'", "", "fa.whole = b.n", marks=pytest.mark.full),
        ("s RLIKE '^[ 0-9]+$'", "", "fa.s = b.n"),
        ("TRUE", "WHERE fa.s RLIKE '^[ 0-9]+$'", "fa.whole = b.n"),
        pytest.param("TRUE", "WHERE fa.s RLIKE '^[ 0-9]+$'", "fa.s = b.n", marks=pytest.mark.full),
    ],
)
def test_a_filter_keeps_casts_from_what_they_would_fail_for(spark, tmp_path, condition, where, on):
    MemorySink.clear()
    play(spark, numbers(tmp_path, condition, where, on), tmp_path / "checkpoint")
    assert Counter(tuple(row.values()) for row in MemorySink.rows("o")) == Counter([(1, 1), (3, 2)])


def test_a_text_that_is_no_number_stops_a_join_with_a_number_as_in_spark(spark, tmp_path):
    MemorySink.clear()
    with pytest.raises(EngineError, match='cannot be cast to "BIGINT"'):
        play(spark, numbers(tmp_path, "TRUE", "", "fa.s = b.n"), tmp_path / "checkpoint")
    assert MemorySink.rows("o") == []
