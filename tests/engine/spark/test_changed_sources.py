"""Sources that come to a job that ran, go, and change their order: Spark's checkpoint follows, and no row is
lost or read twice."""

from __future__ import annotations

import json
from collections import Counter

import duckdb
import pytest

from watersmeet.errors import StateError, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.state.commits import Commits

pytestmark = pytest.mark.spark

STREAMS = "".join(
    f"CREATE TABLE {name} (k INT, t BIGINT, n INT, WATERMARK FOR t AS t - 5)"
    f" WITH ('connector' = 'file', 'path' = '{{path}}/{name}', 'format' = 'json');\n"
    for name in "abc"
)
TABLES = "".join(
    f"CREATE TABLE {name} (k INT, n INT, d INT)"
    f" WITH ('connector' = 'file', 'path' = '{{path}}/{name}', 'format' = 'json', 'diff.column' = 'd');\n"
    for name in ("x", "y")
)
SINKS = "".join(
    f"CREATE TABLE {name}"
    f" WITH ('connector' = 'file', 'path' = '{{path}}/out/{name}', 'format' = 'parquet');\n"
    for name in ("ab", "ca", "xy")
)


def build_join(left: str, right: str) -> str:
    return (
        f"INSERT INTO {left}{right} SELECT {left}.n AS l, {right}.n AS r FROM {left} JOIN {right}"
        f" ON {left}.k = {right}.k AND {right}.t BETWEEN {left}.t - 100 AND {left}.t + 100;\n"
    )


AB, CA = build_join("a", "b"), build_join("c", "a")
XY = "INSERT INTO xy SELECT x.n AS l, y.n AS r FROM x JOIN y ON x.k = y.k EMIT CHANGES;\n"


@pytest.fixture
def job(spark, tmp_path):
    from watersmeet.runtime.spark.job.run import build_outputs, run
    from watersmeet.runtime.spark.job.settings import RunSettings

    for name in "abcxy":
        (tmp_path / name).mkdir()

    def runner(inserts, *, declared=STREAMS + TABLES + SINKS, **settings):
        asked = parse_job((declared + inserts).replace("{path}", str(tmp_path)))
        plan = plan_job(asked)
        chosen = RunSettings(str(tmp_path / "checkpoint"), until_caught_up=True, partitions=2, **settings)
        return run(spark, plan, chosen, build_outputs(asked, plan, chosen))

    return runner


@pytest.fixture
def put(tmp_path):
    numbers = Counter()

    def write(folder, *rows):
        numbers[folder] += 1
        staged = tmp_path / f".{folder}"
        staged.write_text("".join(json.dumps(row) + "\n" for row in rows))
        staged.rename(tmp_path / folder / f"{numbers[folder]:04d}.json")

    return write


def row(n, t, k=1):
    return {"k": k, "t": t, "n": n}


@pytest.fixture
def found(tmp_path):
    def rows(name, columns="l, r"):
        if not list((tmp_path / "out" / name).rglob("*.parquet")):
            return Counter()
        asked = f"SELECT {columns} FROM read_parquet('{tmp_path}/out/{name}/*.parquet')"
        return Counter(duckdb.sql(asked).fetchall())

    return rows


def test_sources_come_go_and_change_places(job, put, found, monkeypatch):
    put("a", row(1, 10))
    put("b", row(2, 20))
    job(AB)
    assert found("ab") == {(1, 2): 1}
    with pytest.raises(StateError, match='"ca" is new'):
        job(CA + AB)

    def failing(*_):
        raise OSError("power went")

    put("a", row(3, 30))
    put("c", row(4, 15), row(5, 31))
    put("x", {"k": 1, "n": 6, "d": 1})
    put("y", {"k": 1, "n": 7, "d": 1}, {"k": 1, "n": 8, "d": 1})
    wider = CA + AB + XY  # c, a, b, x, y: other numbers for all
    with monkeypatch.context() as patched:
        patched.setattr(Commits, "commit", failing)
        with pytest.raises(WatersmeetError, match="power went"):
            job(wider, change_queries=True)
    with pytest.raises(StateError, match="--rebuild-spark-checkpoint"):
        job(AB)  # Spark's checkpoint is that of the other job by now
    job(AB, rebuild=True)
    assert found("ab") == {(1, 2): 1, (3, 2): 1}
    said: list[str] = []
    job(wider, change_queries=True, on_notice=said.append)
    assert 'source "c" is new to the job: the job reads it as a new job would' in said
    assert 'query "ca" starts with all rows of c' in said
    assert 'query "ca" starts with 2 retained rows of a' in said
    assert found("ab") == {(1, 2): 1, (3, 2): 1}
    assert found("xy") == {(6, 7): 1, (6, 8): 1}

    put("a", row(9, 40))
    put("b", row(10, 41))
    put("c", row(11, 42))
    put("x", {"k": 1, "n": 6, "d": -1})
    job(XY + CA, change_queries=True)  # b is read no more; x, y, c, a
    assert found("ab") == {(1, 2): 1, (3, 2): 1}
    assert found("ca") == dict.fromkeys(((c, a) for c in (4, 5, 11) for a in (1, 3, 9)), 1)
    assert found("xy", "l, r, _diff") == dict.fromkeys(((6, r, d) for r in (7, 8) for d in (1, -1)), 1)
    assert job(XY + CA).ticks == 0  # nothing is read twice


@pytest.mark.full
def test_changes_of_tables_that_another_query_keeps(job, put, found):
    alone = "INSERT INTO ab SELECT k AS l, n AS r FROM x EMIT CHANGES;\n"
    grouped = "INSERT INTO ca SELECT k AS l, count(*) AS r FROM x GROUP BY k EMIT CHANGES;\n"
    put("x", *({"k": n % 3, "n": n, "d": 1} for n in range(9)))
    put("y", {"k": 1, "n": 70, "d": 1})
    job(alone)
    put("x", {"k": 0, "n": 0, "d": -1})
    job(alone)
    asked = "FROM (SELECT * FROM x WHERE to_char(n, '9') = '1') x"
    with pytest.raises(StateError, match="would need Spark"):
        job(alone + grouped.replace("FROM x", asked), change_queries=True)
    put("x", {"k": 0, "n": 9, "d": 1}, {"k": 2, "n": 2, "d": -1})
    job(XY + alone + grouped, change_queries=True)
    job(XY + alone + grouped)
    assert sum_of(found("ca", "l, r, _diff")) == {(0, 3): 1, (1, 3): 1, (2, 2): 1}
    assert sum_of(found("xy", "l, r, _diff")) == {(n, 70): 1 for n in (1, 4, 7)}
    assert sum(found("ab", "l, r, _diff").values()) == 12


def sum_of(changes):
    total = Counter()
    for (*row, diff), times in changes.items():
        total[tuple(row)] += diff * times
    return +total


def test_a_source_that_reads_elsewhere_is_read_from_its_start(job, put, found, tmp_path):
    put("a", row(1, 10))
    put("b", row(2, 20))
    job(AB)
    (tmp_path / "b").rename(tmp_path / "z")  # the files that were read, in another place
    with pytest.raises(StateError, match='in "ab"'):
        job(AB, declared=(STREAMS + TABLES + SINKS).replace("/b'", "/z'"))
    said: list[str] = []
    moved = (STREAMS + TABLES + SINKS).replace("/b'", "/z'")
    job(AB, declared=moved, change_queries=True, on_notice=said.append)
    assert 'source "b" reads from another place than before: the job reads it as a new job would' in said
    put("a", row(3, 30))
    job(AB, declared=moved)
    assert found("ab") == {(1, 2): 1, (3, 2): 1}  # row 1 is not there any more: the query began anew


@pytest.mark.full
def test_a_bounded_generator_that_comes_is_read_to_its_end(job, put, found):
    alone = "INSERT INTO ab SELECT n AS l, t AS r FROM a;\n"
    for number in range(4):  # as many batches as the generator takes, and more
        put("a", row(number, number))
        job(alone)
    made = (
        "CREATE MAPPING made (n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) TYPE Generator OPTIONS"
        " ('rate' = '100', 'rows' = '250', 'field.n.kind' = 'sequence');\nINSERT INTO ca"
        " SELECT n AS l, t AS r FROM made;\n"
    )
    job(made + alone, change_queries=True, trigger="1 second")
    assert sorted(n for n, _ in found("ca")) == list(range(250))
    assert found("ab") == {(n, n): 1 for n in range(4)}
