"""Joins with tables as of the tick: what the planner makes of them, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, LookupPlan
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import JoinKind
from watersmeet.spec.secrets import Secret, public, without_secrets, wrap_secret

DECLARED = """
CREATE TABLE a (t BIGINT, k STRING, v INT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, v INT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE files (k STRING, v INT) WITH ('connector' = 'file', 'path' = 'in/files');
CREATE TABLE base (k STRING, v INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d',
  'dbtable' = 'base', 'user' = 'me', 'password' = 'hush');
"""
AS_OF = "FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.k = a.k"


def plan_first_query(query: str, declared: str = DECLARED) -> QueryPlan:
    return plan_job(parse_job(declared + query)).queries[0]


def problem(query: str, declared: str = DECLARED) -> str:
    with pytest.raises(WatersmeetError) as caught:
        plan_first_query(query, declared)
    return str(caught.value)


def lookup(query: str) -> LookupPlan:
    (node,) = (node for node in plan_first_query(query).nodes if isinstance(node, LookupPlan))
    return node


def test_as_of_join_retains_no_stream_rows_and_adds_no_source():
    plan = plan_job(parse_job(f"{DECLARED} SELECT a.t, c.v FROM a LEFT JOIN files {AS_OF}"))
    assert [source.name for source in plan.sources] == ["a"]
    assert [node.source.name for _, node in plan.lookups] == ["files"]
    (node,) = plan.queries[0].nodes
    assert isinstance(node, LookupPlan)
    assert [side.name for side in plan.queries[0].sides] == ["a"]
    assert (node.bounds, node.watermark_keys, node.table.kept) == ((), ("a.t",), ("k", "v"))


def test_only_what_is_needed_is_copied_and_filters_sink():
    found = lookup(f"SELECT a.t FROM a JOIN files {AS_OF} AND a.v > 1 WHERE c.v > 3 AND upper(c.k) = 'X'")
    assert found.table.kept == ("k",)
    assert found.filters == (("a", "a.v > 1"), ("c", "c.v > 3"), ("c", "UPPER(c.k) = 'X'"))
    assert lookup(f"SELECT a.t FROM a SEMI JOIN files {AS_OF}").kind is JoinKind.SEMI
    assert lookup(
        "SELECT 1 AS one FROM a JOIN files FOR SYSTEM_TIME AS OF now() AS c ON TRUE"
    ).table.kept == ("k",)


def test_bounds_of_inner_joins_are_closed_over_it():
    """A table between them, even by a LEFT join, takes nothing off what releases rows."""
    between = f"SELECT a.t FROM a LEFT JOIN files {AS_OF} JOIN b ON b.t = a.t JOIN b d ON d.t = b.t + 1"
    without = "SELECT a.t FROM a JOIN b ON b.t = a.t JOIN b d ON d.t = b.t + 1"
    bounds = [
        [(bound.evicted, bound.by, bound.c) for bound in node.bounds]
        for node in plan_first_query(between).nodes
        if isinstance(node, JoinPlan) and not isinstance(node, LookupPlan)
    ]
    assert bounds == [
        [(b.evicted, b.by, b.c) for b in node.bounds] for node in plan_first_query(without).nodes
    ]


@pytest.mark.parametrize("source", ["files", "base"])
def test_a_table_that_is_joined_like_a_stream(source):
    text = problem(f"SELECT a.t FROM a JOIN {source} c ON c.k = a.k")
    assert "FOR SYSTEM_TIME AS OF" in text
    if source == "base":
        assert '"base" (c) is a table of a database' in text
    refreshed = DECLARED.replace("'path' = 'in/files'", "'path' = 'in/files', 'refresh' = '1 minute'")
    assert "(option 'refresh')" in problem("SELECT * FROM files", refreshed)


def test_a_changelog_is_refused():
    text = problem(f"SET output_mode = changelog; SELECT a.t FROM a JOIN files {AS_OF}")
    assert "(c) is not supported in output_mode changelog" in text


def test_what_tasks_do_not_compute_of_a_pair_spark_does():
    plan = plan_first_query(
        f"SELECT a.t FROM a JOIN files {AS_OF} AND xpath_int(c.k, 'a') < xpath_int(a.k, 'b')", DECLARED
    )
    assert plan.root.residual_exact is None
    assert plan.root.residual_why[0].startswith("xpath_int()")


def test_the_state_does_not_depend_on_the_table():
    def digest(text: str, declared: str = DECLARED) -> str:
        return plan_first_query(text, declared).fingerprint

    query = f"SELECT a.t, c.v FROM a LEFT JOIN files {AS_OF}"
    assert digest(query) == digest(query.replace("c.v", "c.k"))
    assert digest(query) == digest(query.replace("LEFT JOIN", "JOIN") + " AND c.v > 3")
    assert digest(query) == digest(query, DECLARED.replace("in/files", "elsewhere"))
    assert digest(query) == digest(query.replace("a.t, c.v", "a.t, a.v"))
    assert digest(query) != digest(query.replace(" c ON", " d ON").replace("c.", "d."))


def test_a_copy_depends_on_what_is_read():
    query = f"SELECT a.t, c.v FROM a LEFT JOIN base {AS_OF}"

    def digest(text: str, declared: str = DECLARED) -> Any:
        return next(n.table_fingerprint for _, n in plan_job(parse_job(declared + text)).lookups)

    assert digest(query) == digest(query.replace("LEFT JOIN", "JOIN"))
    assert digest(query) == digest(query, DECLARED.replace("'hush'", "'other'"))
    others = [
        digest(query + " AND c.v > 3"),
        digest(query.replace("c.k = a.k", "c.k = a.k || 'x' AND c.v = a.v")),
        digest(query, DECLARED.replace("'dbtable' = 'base'", "'dbtable' = 'base2'")),
        digest(query, DECLARED.replace("//h/d", "//h/e")),
        digest(query, DECLARED.replace("(k STRING, v INT) WITH ('connector' = 'jdbc'", "(k STRING, v BIGINT)"
                                       " WITH ('connector' = 'jdbc'")),
    ]  # fmt: skip
    assert len({digest(query), *others}) == 1 + len(others)


def test_no_password_is_shown():
    job = parse_job(f"{DECLARED} SELECT a.t, c.v FROM a LEFT JOIN base {AS_OF}")
    plan = plan_job(job)
    assert "hush" not in explain(plan)
    assert "hush" not in f"{job!r}{plan!r}"
    source = plan.lookups[0][1].source
    assert source.options["password"] == "hush", "Spark is given it"
    assert isinstance(source.options["password"], Secret)
    assert repr(wrap_secret("url", "jdbc:x://u:p@h/d")) == "'***'"
    assert repr(wrap_secret("url", "jdbc:x://h/d?a=1")) == "'jdbc:x://h/d?a=1'"
    assert (
        without_secrets("jdbc:x://h/d?user=u&Password=p;token=t")
        == "jdbc:x://h/d?user=u&Password=***;token=***"
    )
    for url in ("postgresql://me:p@ss@host/db", "postgresql://me:p@@host/db?api_key=x"):
        assert without_secrets(url).startswith("postgresql://***@host/db")
    assert without_secrets("https://h/d?api_key=x&b=1") == "https://h/d?api_key=***&b=1"


@pytest.mark.parametrize(
    "name",
    ["catalog.header.Authorization", "catalog.header.x-auth", "authorization", "api.key", "apiKey",
     "adls.account-key", "AccountKey", "adls.connection-string"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert public(name, "hush") == "***"
    assert isinstance(wrap_secret(name, "hush"), Secret)


@pytest.mark.parametrize("name", ["header", "catalog.headers", "key.format", "path", "key.columns"])
def test_names_of_no_secrets(name):
    assert public(name, "x") == "x"
