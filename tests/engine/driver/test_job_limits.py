"""Limits of what all queries of a job keep together: of one source, and of all."""

from __future__ import annotations

import pytest

from watersmeet.errors import EngineError, PlanError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

DECLARED = """
CREATE TABLE a (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory'{a});
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory'{b});
CREATE SINK x WITH ('connector' = 'memory');
CREATE SINK y WITH ('connector' = 'memory');
"""
JOIN = "FROM a l {} JOIN b r ON l.k = r.k AND r.t BETWEEN l.t - {} AND l.t + 50;"
ONE = "INSERT INTO x SELECT l.n AS m, r.n " + JOIN.format("LEFT", 50)
SHARED = ONE + "INSERT INTO y SELECT r.n, l.n AS m " + JOIN.format("", 40)


def plan_queries(queries, *, a="", b="", settings=""):
    options = [f", {each}" if each else "" for each in (a, b)]
    return plan_job(parse_job(settings + DECLARED.format(a=options[0], b=options[1]) + queries))


def rows(count, first=0, key="k"):
    return [({"k": key, "t": 1, "n": number}, 1) for number in range(first, first + count)]


def list_stored_rows(job):
    """What two queries keep, of their shared files."""
    return [
        {name: side.stored for name, side in query.nodes[0].arrangements.items()}
        for query in job.driver.manifest.queries.values()
    ]


@pytest.mark.parametrize("queries", [ONE, SHARED])
def test_a_source_may_keep_as_many_rows_as_it_says(queries):
    """Rows that two queries keep in the same files are counted once."""
    job = LocalJob(plan_queries(queries, a="'max_rows' = '5'"), MemoryStore())
    job.tick({"a": rows(5), "b": rows(9)})
    assert all(each["l"] == 5 for each in list_stored_rows(job))
    with pytest.raises(EngineError) as raised:
        job.tick({"a": rows(1, 5)})
    assert raised.value.code == "max-rows"
    assert 'the job retains 6 rows of "a" (l' in str(raised.value)
    assert "more than 'max_rows' of CREATE … \"a\" = 5" in str(raised.value)
    assert raised.value.hint
    assert job.driver.tick == 1


def test_rows_that_queries_keep_in_files_of_their_own_are_counted_for_each():
    other = (
        "INSERT INTO y SELECT r.n, l.n AS m FROM a l JOIN b r ON l.n = r.n AND r.t BETWEEN l.t AND l.t + 9;"
    )
    for most, fails in ((9, True), (10, False)):
        job = LocalJob(plan_queries(ONE + other, a=f"'max_rows' = '{most}'"), MemoryStore())
        if fails:
            with pytest.raises(
                EngineError, match=r'the job retains 10 rows of "a" \(l in "x": 5, l in "y": 5\)'
            ):
                job.tick({"a": rows(5)})
        else:
            job.tick({"a": rows(5)})


def test_released_rows_are_not_counted():
    job = LocalJob(
        plan_queries(SHARED, a="'max_rows' = '5'", settings="SET max_job_rows = 6;"), MemoryStore()
    )
    for tick in range(6):
        row = {"k": "k", "t": 1000 * tick, "n": 1}
        job.tick({"a": [(row, 1)] * 5, "b": [(row, 1)]})


@pytest.mark.parametrize("queries", [ONE, SHARED])
def test_the_job_may_keep_as_many_rows_as_it_says(queries):
    job = LocalJob(plan_queries(queries, settings="SET max_job_rows = 8;"), MemoryStore())
    job.tick({"a": rows(5), "b": rows(3)})
    with pytest.raises(EngineError) as raised:
        job.tick({"b": rows(1)})
    assert raised.value.code == "max-rows"
    assert "the job retains 9 rows in the whole job" in str(raised.value)
    assert "more than max_job_rows = 8" in str(raised.value)
    again = LocalJob(plan_queries(queries, settings="SET max_job_rows = 9;"), job.store)
    again.tick({"b": rows(1)})


@pytest.mark.parametrize("which", ["source", "job"])
def test_bytes_in_files_are_counted_once(which):
    store = MemoryStore()
    LocalJob(plan_queries(SHARED), store).tick({"a": rows(50), "b": rows(3)})
    names = [name for name in store.names("runs") if which == "job" or ".l-" in name]
    size = sum(store.read(name).size for name in names)

    def plan_with_limit(most):
        if which == "job":
            return plan_queries(SHARED, settings=f"SET max_job_bytes = {most};")
        return plan_queries(SHARED, a=f"'max_bytes' = '{most}'")

    LocalJob(plan_with_limit(size), store).tick({})
    with pytest.raises(EngineError, match=r"in files .*more than") as raised:
        LocalJob(plan_with_limit(size - 1), store).tick({})
    assert raised.value.code == "max-bytes"


def test_files_that_are_merged_are_not_counted_twice():
    """Who shares them has those before for one tick more."""
    settings = "SET max_job_rows = 400;"
    job = LocalJob(plan_queries(SHARED, settings=settings, a="'max_rows' = '300'"), MemoryStore())
    merged = 0
    for tick in range(30):
        job.tick({"a": rows(10, 10 * tick), "b": rows(3)})
        runs = [live for live in job.driver.manifest.runs() if live.merged_from is not None]
        merged += len(runs)
    assert merged, "nothing was merged"
    with pytest.raises(EngineError, match='301 rows of "a"'):
        job.tick({"a": rows(1)})


def test_the_heaviest_keys_are_named():
    job = LocalJob(plan_queries(ONE, settings="SET max_job_rows = 100;"), MemoryStore())
    with pytest.raises(EngineError, match=r"heaviest keys: of l k = .hot. has about 101 rows"):
        job.tick({"a": rows(101, key="hot")})


def test_tables_as_of_the_tick_count(tmp_path):
    for most, fails in ((2, True), (3, False)):
        (tmp_path / "t.json").write_text('{"k": "k", "v": 1}\n' * 3)
        table = f"""
            CREATE TABLE t (k STRING, v BIGINT)
              WITH ('connector' = 'file', 'path' = '{tmp_path}', 'format' = 'json', 'max_rows' = '{most}');
            INSERT INTO x SELECT a.n, t.v FROM a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = t.k;"""
        job = LocalJob(plan_queries(table), MemoryStore())
        if fails:
            with pytest.raises(EngineError, match='the job retains 3 rows of "t"'):
                job.tick({"a": rows(1)})
        else:
            assert len(job.tick({"a": rows(1)}).rows["x"]) == 3


def test_tables_as_of_the_tick_count_where_rows_are_shed_and_stay(tmp_path):
    """What joins keep has the room that is left; a table that is too much alone stops the job."""
    (tmp_path / "t.json").write_text('{"k": "k", "v": 1}\n' * 3)
    table = f"""
        CREATE TABLE t (k STRING, v BIGINT)
          WITH ('connector' = 'file', 'path' = '{tmp_path}', 'format' = 'json');
        INSERT INTO y SELECT a.n, t.v FROM a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = t.k;"""
    for limit, most, left in (
        ("max_job_rows", 5, 2),
        ("max_job_rows", 3, 0),
        ("max_job_bytes", 10_000, None),
    ):
        settings = f"SET {limit} = {most}; SET at_limit = shed_heaviest;"
        job = LocalJob(plan_queries(ONE + table, settings=settings), MemoryStore())
        output = job.tick({"a": [*rows(4), *rows(2, 4, "other")]})
        (node,) = job.driver.manifest.queries["x"].nodes
        if left is not None:
            assert node.arrangements["l"].stored == left
            assert len(output.shed) == 6 - left
    settings = "SET max_job_rows = 2; SET at_limit = shed_heaviest;"
    with pytest.raises(EngineError, match=r"the job retains 3 rows in the whole job \(t") as raised:
        LocalJob(plan_queries(ONE + table, settings=settings), MemoryStore()).tick({"a": rows(1)})
    assert raised.value.code == "max-rows"


def test_a_branch_of_a_union_has_no_limit_of_its_own():
    union = """
        CREATE VIEW u AS SELECT k, t, n FROM a UNION ALL SELECT k, t, n FROM b;
        INSERT INTO x SELECT l.n FROM u l JOIN b r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 5;"""
    with pytest.raises(PlanError, match='"a" has max_rows or max_bytes') as raised:
        plan_queries(union, a="'max_rows' = '5'")
    assert raised.value.code == "limit-in-union"
    plan_queries(union)
