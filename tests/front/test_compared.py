"""``'changes' = 'snapshot'``: where it can be said, and what does not go with it."""

from __future__ import annotations

import pytest

from watersmeet import explain, parse_job, plan_job
from watersmeet.errors import WatersmeetError

JDBC = "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://db/x', 'dbtable' = 'c'"
FILE = "'connector' = 'file', 'path' = 'c', 'format' = 'json'"
SNAPSHOT = "'changes' = 'snapshot'"


def plan_table(columns: str, *options: str, query: str = "SELECT id FROM c"):
    return plan_job(parse_job(f"CREATE TABLE c ({columns}) WITH ({', '.join(options)}); {query}"))


@pytest.mark.parametrize("connector", [JDBC, FILE])
def test_it_makes_changes_of_a_table(connector):
    plan = plan_table("id BIGINT PRIMARY KEY NOT ENFORCED, x INT", connector, SNAPSHOT, "'refresh' = '5 s'")
    assert plan.sources == ()
    assert [source.name for source in plan.tables] == ["c"]
    told = explain(plan)
    assert "what it held before is compared with what it holds, looked at every 5 s" in told
    assert "primary key: id; one row of a key, others are broken" in told
    assert "changes" not in plan.tables[0].options


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id BIGINT", [FILE, "'changes' = 'log'"], "option 'changes' is 'log'"),
        ("id BIGINT", ["'connector' = 'kafka', 'topic' = 'c'", SNAPSHOT], "never read completely"),
        ("id BIGINT", ["'connector' = 'generator'", SNAPSHOT], "never read completely"),
        ("id BIGINT, d INT", [FILE, SNAPSHOT, "'diff.column' = 'd'"], "'op.column' and 'diff.column' out"),
        ("id BIGINT", [FILE.replace("json", "debezium-json"), SNAPSHOT], "format debezium-json"),
        ("id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t", [FILE, SNAPSHOT], "WATERMARK FOR"),
        ("id BIGINT PRIMARY KEY NOT ENFORCED, v INT", [FILE, SNAPSHOT, "'sequence.by' = 'v'"], "sequence.by"),
        ("id BIGINT", [FILE, SNAPSHOT, "'tombstones' = '1 day'"], "tombstones"),
        ("id BIGINT", [FILE, SNAPSHOT, "'idle_timeout' = '1 s'"], "idle_timeout"),
        ("id BIGINT", [FILE, SNAPSHOT, "'maxFilesPerTrigger' = '1'"], "it is for streams"),
        ("id MAP<STRING, INT> PRIMARY KEY NOT ENFORCED", [FILE, SNAPSHOT], "cannot be in a primary key"),
        ("id BIGINT PRIMARY KEY NOT ENFORCED", [JDBC], "'changes' = 'snapshot'"),
    ],
)
def test_what_does_not_go_with_it(columns, options, words):
    with pytest.raises(WatersmeetError) as caught:
        plan_table(columns, *options)
    assert words in str(caught.value)


def test_it_is_not_met_as_of_a_tick():
    stream = (
        "CREATE TABLE s (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"
        "SELECT s.id FROM s JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = s.id"
    )
    with pytest.raises(WatersmeetError, match="'changes' = 'snapshot'"):
        plan_table("id BIGINT", FILE, SNAPSHOT, query=stream)


def test_other_tables_of_a_database_are_other_state():
    key = "id BIGINT PRIMARY KEY NOT ENFORCED, x INT"
    prints = {
        plan_table(key, JDBC, SNAPSHOT).queries[0].fingerprint,
        plan_table("id BIGINT, x INT", JDBC, SNAPSHOT).queries[0].fingerprint,
        plan_table(key, JDBC.replace("'c'", "'d'"), SNAPSHOT).queries[0].fingerprint,
    }
    assert len(prints) == 3
    same = plan_table(key, JDBC.replace("db/x", "other/x"), SNAPSHOT, "'refresh' = '1 s'")
    assert same.queries[0].fingerprint in prints
