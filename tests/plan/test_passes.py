"""The passes of the planner together: how often a query goes through them, and which refusal is reported."""

import pytest

from watersmeet.errors import PlanError
from watersmeet.parser.statements import parse_job
from watersmeet.plan import passes
from watersmeet.plan.model.job import KeyRows
from watersmeet.plan.planner import combine_queries, plan_job

STREAM = (
    "CREATE TABLE {} (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');"
)
TABLE = (
    "CREATE TABLE {} (id INT, k STRING) WITH ('connector' = 'file', 'path' = '{}', 'changes' = 'snapshot');"
)
STREAMS = "".join(map(STREAM.format, "abc"))
TABLES = "".join(TABLE.format(name, name) for name in "de")
OF_KEY = """CREATE SINK s (id INT, other INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'postgres', 'url' = 'postgresql://db/shop', 'table' = 's');"""

SINKS = "CREATE SINK x WITH ('connector' = 'memory'); CREATE SINK y WITH ('connector' = 'memory');"


@pytest.fixture
def calls(monkeypatch):
    """The queries whose nodes were planned."""
    seen = []

    def record_planned_query(query, *args, own=passes.plan_nodes):
        seen.append(query)
        return own(query, *args)

    monkeypatch.setattr(passes, "plan_nodes", record_planned_query)
    return seen


def test_a_query_whose_rows_are_counted_per_key_is_planned_once(calls):
    job = f"{TABLES}{OF_KEY}INSERT INTO s SELECT d.id, e.id AS other FROM d JOIN e ON d.k = e.k;"
    (query,) = plan_job(parse_job(job)).queries
    assert query.key_rows is KeyRows.COUNTED
    assert len(calls) == 1


def test_rows_that_cannot_be_counted_per_key_are_not_counted_and_a_warning_says_why():
    """Groups over a stream never end."""
    query = "SELECT a.n AS id, b.n AS other FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3;"
    job = f"SET output_mode = 'changelog'; {STREAMS}{OF_KEY.replace(' INT', ' BIGINT')}INSERT INTO s {query}"
    plan = plan_job(parse_job(job))
    assert plan.queries[0].key_rows is None
    (warning,) = plan.warnings
    assert "does not check (state would grow without limit: groups of" in warning


def test_what_others_need_of_a_query_plans_its_nodes_alone_again(calls, monkeypatch):
    trees = []

    def record_tree_call(*args, own=passes.tree_of, **settings):
        trees.append(args)
        return own(*args, **settings)

    monkeypatch.setattr(passes, "tree_of", record_tree_call)
    query = "SELECT d.id AS {}, e.id AS other FROM d JOIN e ON d.k = e.k;"
    job = f"{TABLES}{SINKS}INSERT INTO x {query.format('one')} INSERT INTO y {query.format('two')}"
    first, second = plan_job(parse_job(job)).queries
    assert [taken.query for taken in second.taken] == [first.name]
    assert (len(calls), len(trees)) == (4, 2)


def test_limits_are_warned_of_whatever_queries_have_of_each_other():
    rated = STREAMS.replace("'connector'", "'rows_per_second' = '10', 'connector'")
    query = "SELECT a.t FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL '9' MINUTE AND a.t;"
    job = f"""SET max_job_rows = 5; {rated.replace("BIGINT", "TIMESTAMP").replace("t - 5", "t")}{SINKS}
      INSERT INTO x {query} INSERT INTO y {query}"""
    plan = plan_job(parse_job(job))
    alone = combine_queries(plan.apart, may_reuse=lambda *of: False)
    assert any(query.taken for query in plan.queries)
    assert not any(query.taken for query in alone.queries)
    for of in (plan, alone):
        assert [text for text in of.warnings if "max_job_rows" in text], of.warnings


def test_where_that_bounds_outer_joins_is_not_hidden_by_a_later_refusal():
    job = f"""{STREAMS} SET lateness = 'join'; SELECT a.t, b.t AS u FROM a LEFT JOIN b ON a.k = b.k
      LEFT JOIN c ON c.k = b.k AND c.t BETWEEN b.t AND b.t + 3 WHERE b.t BETWEEN a.t AND a.t + 5;"""
    with pytest.raises(PlanError) as refused:
        plan_job(parse_job(job))
    assert refused.value.code == "join-lateness"
