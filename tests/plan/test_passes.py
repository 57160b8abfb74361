"""The passes of the planner together: how often a query goes through them, and which refusal is reported."""

import pytest

from watersmeet.errors import PlanError
from watersmeet.front.sql import parse_job
from watersmeet.plan import passes
from watersmeet.plan.model.job import KeyRows
from watersmeet.plan.planner import plan_job

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


@pytest.fixture
def calls(monkeypatch):
    """The queries whose nodes were planned."""
    seen = []

    def noted(query, *args, own=passes.plan_nodes):
        seen.append(query)
        return own(query, *args)

    monkeypatch.setattr(passes, "plan_nodes", noted)
    return seen


def test_a_query_whose_rows_are_counted_per_key_is_planned_once(calls):
    job = f"{TABLES}{OF_KEY}INSERT INTO s SELECT d.id, e.id AS other FROM d JOIN e ON d.k = e.k;"
    (query,) = plan_job(parse_job(job)).queries
    assert query.key_rows is KeyRows.COUNTED
    assert len(calls) == 1


def test_where_that_bounds_outer_joins_is_not_hidden_by_a_later_refusal():
    job = f"""{STREAMS} SET lateness = 'join'; SELECT a.t, b.t AS u FROM a LEFT JOIN b ON a.k = b.k
      LEFT JOIN c ON c.k = b.k AND c.t BETWEEN b.t AND b.t + 3 WHERE b.t BETWEEN a.t AND a.t + 5;"""
    with pytest.raises(PlanError) as refused:
        plan_job(parse_job(job))
    assert refused.value.code == "join-lateness"
