"""Hints of refused joins with tables, of groups and rankings, and of clauses of other systems: each runs when
it is typed, and none leads to the next refusal."""

from __future__ import annotations

import re

import pytest

from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job

DECLARED = """
CREATE TABLE o (id BIGINT, ts TIMESTAMP, v DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)
  WITH ('connector' = 'memory');
CREATE TABLE d (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)
  WITH ('connector' = 'memory');
CREATE TABLE n (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 10) WITH ('connector' = 'memory');
CREATE TABLE items (id BIGINT, name STRING) WITH ('connector' = 'file', 'path' = 'items', 'format' = 'csv');
CREATE TABLE refreshed (id BIGINT, name STRING)
  WITH ('connector' = 'file', 'path' = 'items', 'format' = 'csv', 'refresh' = '5 minutes');
CREATE TABLE keyed (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'memory');
CREATE TABLE ops (id BIGINT, name STRING, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');
CREATE VIEW named AS SELECT id, upper(name) AS name FROM items;
"""


def catch_planning_error(query: str, declared: str = DECLARED) -> WatersmeetError:
    with pytest.raises(WatersmeetError) as caught:
        plan_job(parse_job(declared + query))
    assert not isinstance(caught.value, SeveralErrors), "one cause is one error"
    return caught.value


AS_OF = "items FOR SYSTEM_TIME AS OF PROCTIME()"


@pytest.mark.parametrize(
    ("query", "write", "instead"),
    [
        (
            "SELECT k.name FROM o JOIN items k ON o.id = k.id",
            f"JOIN {AS_OF} AS k ON …",
            f"SELECT k.name FROM o JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT items.name FROM o LEFT JOIN items ON o.id = items.id",
            f"LEFT JOIN {AS_OF} ON …",
            f"SELECT items.name FROM o LEFT JOIN {AS_OF} ON o.id = items.id",
        ),
        (
            "SELECT k.name FROM o FULL JOIN items k ON o.id = k.id",
            f"LEFT JOIN {AS_OF} AS k ON …",
            f"SELECT k.name FROM o LEFT JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT k.name FROM items k JOIN o ON o.id = k.id",
            f"o JOIN {AS_OF} AS k ON …",
            f"SELECT k.name FROM o JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT o.id FROM o LEFT ANTI JOIN items k ON o.id = k.id",
            f"LEFT ANTI JOIN {AS_OF} AS k ON …",
            f"SELECT o.id FROM o LEFT ANTI JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT o.id FROM o WHERE EXISTS (SELECT 1 FROM items k WHERE o.id = k.id)",
            f"FROM {AS_OF} AS k in the sub-query",
            f"SELECT o.id FROM o WHERE EXISTS (SELECT 1 FROM {AS_OF} AS k WHERE o.id = k.id)",
        ),
        (
            "SELECT o.id FROM o WHERE o.id IN (SELECT id FROM items)",
            f"FROM {AS_OF} in the sub-query",
            f"SELECT o.id FROM o WHERE o.id IN (SELECT id FROM {AS_OF})",
        ),
        (
            "SELECT o.id FROM o, items k WHERE o.id = k.id",
            f"JOIN {AS_OF} AS k ON …",
            f"SELECT o.id FROM o JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT id FROM o JOIN items k USING (id) EMIT CHANGES",
            f"JOIN {AS_OF} AS k ON …",
            f"SELECT o.id FROM o JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT k.name FROM o JOIN d ON o.id = d.id AND o.ts = d.ts JOIN items k ON o.id = k.id",
            f"JOIN {AS_OF} AS k ON …",
            f"SELECT k.name FROM o JOIN d ON o.id = d.id AND o.ts = d.ts JOIN {AS_OF} AS k ON o.id = k.id",
        ),
        (
            "SELECT k.name FROM o JOIN named k ON o.id = k.id",
            "JOIN … FOR SYSTEM_TIME AS OF PROCTIME() AS k ON …",
            "SELECT k.name FROM o JOIN named FOR SYSTEM_TIME AS OF PROCTIME() AS k ON o.id = k.id",
        ),
    ],
)
def test_hint_for_stream_joined_with_table_suggests_as_of(query: str, write: str, instead: str) -> None:
    error = catch_planning_error(query)
    assert error.code == "unbounded-state"
    assert re.match(r'"\S+" has no event time, so it is a table', error.message)
    assert f"for a table write {write} (in Python: " in (error.hint or "")
    assert ".as_of()" in str(error)
    plan_job(parse_job(DECLARED + instead))


def test_hint_for_refreshed_table_suggests_as_of_in_python() -> None:
    error = catch_planning_error("SELECT k.name FROM o JOIN refreshed k ON o.id = k.id")
    assert error.code == "not-a-stream"
    assert "JOIN refreshed FOR SYSTEM_TIME AS OF PROCTIME() AS k ON …" in str(error)
    assert "k.as_of()" in str(error)


CHANGING = "a stream cannot be joined with a changing table yet"


@pytest.mark.parametrize("emit", ["", " EMIT CHANGES", " EMIT FINAL"])
@pytest.mark.parametrize("table", ["keyed", "ops"])
def test_stream_joined_with_changing_table_is_unsupported(table: str, emit: str) -> None:
    query = f"SELECT o.id FROM o JOIN {table} k ON o.id = k.id{emit}"
    with pytest.raises(WatersmeetError) as caught:
        plan_job(parse_job(DECLARED + query))
    if emit == " EMIT FINAL":
        assert caught.value.code == "append-of-updates"
        return
    assert CHANGING in str(caught.value)
    assert "SYSTEM_TIME" not in str(caught.value), "which is refused for such a table"
    as_of = catch_planning_error(
        f"SELECT o.id FROM o JOIN {table} FOR SYSTEM_TIME AS OF PROCTIME() AS k ON o.id = k.id{emit}"
    )
    assert CHANGING in str(as_of)
    assert "changelog" not in str(as_of)
    assert "EMIT CHANGES" not in str(as_of)


@pytest.mark.parametrize(
    "instead",
    [
        """CREATE TABLE v (id BIGINT, name STRING, at TIMESTAMP, WATERMARK FOR at AS at)
             WITH ('connector' = 'memory');
           SELECT v.name FROM o ASOF JOIN v MATCH_CONDITION (o.ts >= v.at) ON v.id = o.id""",
        """CREATE TABLE own (id BIGINT, ts TIMESTAMP, op STRING)
             WITH ('connector' = 'memory', 'op.column' = 'op');
           SELECT k.name FROM own JOIN keyed k ON k.id = own.id""",
        """CREATE TABLE own (id BIGINT, ts TIMESTAMP, PRIMARY KEY (id) NOT ENFORCED)
             WITH ('connector' = 'memory');
           SELECT k.name FROM own JOIN ops k ON k.id = own.id""",
        "SELECT k.name FROM o JOIN d ON d.id = o.id AND d.ts = o.ts JOIN keyed k ON k.id = o.id",
    ],
)
def test_suggested_alternatives_are_planned(instead: str) -> None:
    plan_job(parse_job(DECLARED + instead))


def test_as_of_table_in_changelog_query_has_a_working_hint() -> None:
    """Of a stream changes are left out; a changing table makes the other one change as well."""
    of_stream = catch_planning_error(f"SELECT o.id FROM o JOIN {AS_OF} AS k ON o.id = k.id EMIT CHANGES")
    assert (of_stream.hint or "").startswith("remove EMIT CHANGES")
    of_table = catch_planning_error(f"SELECT k.name FROM keyed JOIN {AS_OF} AS k ON keyed.id = k.id")
    assert "declare k with 'changes' = 'snapshot' and remove FOR SYSTEM_TIME AS OF" in (of_table.hint or "")
    joined = catch_planning_error("SELECT k.name FROM keyed JOIN items k ON keyed.id = k.id")
    assert "'changes' = 'snapshot'" in (joined.hint or "")
    assert "SYSTEM_TIME" not in str(joined)
    snapshot = DECLARED.replace(
        "'path' = 'items', 'format' = 'csv')",
        "'path' = 'items', 'format' = 'csv', 'changes' = 'snapshot')",
        1,
    )
    plan_job(parse_job(snapshot + "SELECT k.name FROM keyed JOIN items k ON keyed.id = k.id"))
    plan_job(parse_job(snapshot + "SELECT name, count(*) AS n FROM items GROUP BY name"))
    grouped = catch_planning_error("SELECT name, count(*) AS n FROM items GROUP BY name")
    assert "declare items with 'changes' = 'snapshot'" in (grouped.hint or "")


RANKED = (
    "SELECT {columns} FROM (SELECT {columns}, ROW_NUMBER() OVER ({over}) AS rn FROM {table}) WHERE rn = 1"
)


@pytest.mark.parametrize("emit", ["", " EMIT CHANGES"])
@pytest.mark.parametrize(
    ("table", "columns", "over"),
    [
        ("o", "id, ts", "PARTITION BY id ORDER BY ts"),
        ("o", "id, ts, v", "PARTITION BY id ORDER BY ts DESC"),
        ("o", "id, v", "PARTITION BY id, upper(CAST(v AS STRING)) ORDER BY v"),
        ("o", "id, v", "ORDER BY v"),
        ("n", "id, t", "PARTITION BY id ORDER BY t"),
    ],
)
def test_row_number_over_stream_is_rejected_with_a_working_hint(
    table: str, columns: str, over: str, emit: str
) -> None:
    error = catch_planning_error(RANKED.format(columns=columns, over=over, table=table) + emit)
    assert "over a stream, to remove duplicates or to rank rows, is not supported yet" in error.message
    assert "EMIT CHANGES" not in str(error)
    _, _, hinted = (error.hint or "").partition(": ")
    plan_job(parse_job(DECLARED + hinted))


@pytest.mark.parametrize("emit", ["", " EMIT CHANGES"])
@pytest.mark.parametrize(
    "query", ["SELECT id, count(*) AS n FROM o GROUP BY id", "SELECT DISTINCT id FROM o"]
)
def test_groups_of_a_stream_have_one_hint(query: str, emit: str) -> None:
    error = catch_planning_error(query + emit)
    windows = (error.hint or "").removeprefix("group by a window: ")
    plan_job(parse_job(f"{DECLARED} SELECT id, count(*) AS n {windows.replace('…', 'id')}"))
    changing = DECLARED.replace(
        "v DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND)",
        "v DOUBLE, PRIMARY KEY (id) NOT ENFORCED)",
        1,
    )
    plan_job(parse_job(f"{changing} {query} EMIT CHANGES"))


def hint_of(query: str, code: str) -> str:
    error = catch_planning_error(query)
    assert error.code == code
    assert error.hint is not None
    return error.hint


def test_cumulate_hint_suggests_tumbling_step_windows() -> None:
    windows = (
        "FROM TABLE({}(TABLE o, DESCRIPTOR(ts), INTERVAL '2' MINUTES{})) GROUP BY window_start, window_end"
    )
    query = "SELECT window_start, count(*) AS n " + windows
    hint = hint_of(query.format("CUMULATE", ", INTERVAL '10' MINUTES"), "not-supported")
    assert "TABLE(TUMBLE(TABLE name, DESCRIPTOR(event_time), step))" in hint
    plan_job(parse_job(DECLARED + query.format("TUMBLE", "")))


@pytest.mark.parametrize("window", ["TUMBLE", "HOP"])
def test_window_offset_hint_suggests_shifting_the_event_time(window: str) -> None:
    sizes = "INTERVAL '10' MINUTES" + ", INTERVAL '10' MINUTES" * (window == "HOP")
    query = (
        "SELECT {} AS start, count(*) AS n FROM TABLE({}(TABLE {}, DESCRIPTOR({}), {}))"
        " GROUP BY window_start, window_end"
    )
    hint = hint_of(
        query.format("window_start", window, "o", "ts", f"{sizes}, INTERVAL '5' MINUTES"), "not-supported"
    )
    view = hint.partition(": ")[2].partition("; then")[0].replace("FROM name", "FROM o")
    shifted = query.format("window_start + INTERVAL '5' MINUTES", window, "shifted", "shifted_ts", sizes)
    plan_job(parse_job(f"{DECLARED} {view}; {shifted}"))


@pytest.mark.parametrize("within", ["WITHIN 1 HOUR", "WITHIN 90 MINUTES", "WITHIN (1 HOUR, 2 DAYS)"])
@pytest.mark.parametrize(
    "query", ["SELECT o.id FROM o JOIN d {} ON o.id = d.id", "SELECT o.id FROM o JOIN d ON o.id = d.id {}"]
)
def test_within_hint_suggests_a_between_bound(query: str, within: str) -> None:
    hint = hint_of(query.format(within), "not-supported")
    bound = hint.partition(": ")[2].partition(", where")[0]
    assert bound.startswith("AND d.ts BETWEEN o.ts - INTERVAL '")
    plan_job(parse_job(f"{DECLARED} SELECT o.id FROM o JOIN d ON o.id = d.id {bound}"))
    plan_job(
        parse_job(
            f"{DECLARED} SELECT within.id FROM o within JOIN d ON within.id = d.id AND within.ts = d.ts"
        )
    )


@pytest.mark.parametrize(
    ("written", "option"),
    [
        ("METADATA FROM 'timestamp'", "'metadata.at' = 'timestamp'"),
        ("METADATA FROM 'timestamp' VIRTUAL", "'metadata.at' = 'timestamp'"),
    ],
)
def test_metadata_hint_suggests_a_source_option(written: str, option: str) -> None:
    kafka = (
        "CREATE TABLE m (id BIGINT, at TIMESTAMP {}) WITH ('connector' = 'kafka', 'topic' = 'm',"
        " 'format' = 'json', 'bootstrap.servers' = 'b:1'{}); SELECT id, at FROM m"
    )
    hint = hint_of(kafka.format(written, ""), "not-supported")
    assert option in hint
    plan_job(parse_job(kafka.format("", f", {option}")))
    assert "key, topic, partition, offset, timestamp" in hint_of(
        kafka.format("METADATA FROM 'headers'", ""), "not-supported"
    )


def test_match_recognize_hint_suggests_a_self_join() -> None:
    hint = hint_of(
        "SELECT * FROM o MATCH_RECOGNIZE (PARTITION BY id ORDER BY ts MEASURES A.ts AS s PATTERN (A B)"
        " DEFINE B AS B.v > A.v)",
        "not-supported",
    )
    joined = hint.partition(": ")[2].partition(";")[0].replace(" s ", " o ").replace(".k", ".id")
    plan_job(parse_job(f"{DECLARED} SELECT a.id {joined}"))


@pytest.mark.parametrize("format_", ["csv", "json", "parquet", "debezium-json"])
def test_a_format_that_is_named_as_the_connector(format_: str) -> None:
    table = "CREATE TABLE f (id BIGINT, k STRING) WITH ({}, 'path' = 'in'); SELECT id FROM f"
    hint = hint_of(table.format(f"'connector' = '{format_}'"), "unknown-connector")
    options = hint.partition("write ")[2].partition(";")[0]
    assert options == f"'connector' = 'file', 'format' = '{format_}'"
    plan_job(parse_job(table.format(options)))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT window_start, count(*) AS n FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), {}))"
        " GROUP BY window_start, window_end",
        "CREATE TABLE w (at TIMESTAMP, WATERMARK FOR at AS at - {}) WITH ('connector' = 'memory');"
        " SELECT at FROM w",
    ],
)
def test_a_text_that_is_meant_as_an_interval(text: str) -> None:
    hint = hint_of(text.format("'10 minutes'"), "bad-duration")
    assert hint == "write INTERVAL '10 minutes'"
    plan_job(parse_job(DECLARED + text.format(hint.removeprefix("write "))))


@pytest.mark.parametrize(
    "bound",
    [
        "d.ts BETWEEN o.ts AND o.ts + {}",
        "d.ts >= o.ts AND d.ts - {} <= o.ts",
        "d.ts >= o.ts AND {} + o.ts >= d.ts",
        "d.ts >= o.ts AND d.ts - o.ts <= {}",
    ],
)
def test_a_text_that_is_meant_as_an_interval_in_a_condition(bound: str) -> None:
    query = "SELECT o.id FROM o JOIN d ON o.id = d.id AND "
    hint = hint_of(query + bound.format("'10 minutes'"), "wrong-types")
    assert hint == "write INTERVAL '10 minutes'"
    plan_job(parse_job(DECLARED + query + bound.format(hint.removeprefix("write "))))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM o WHERE id IN (SELECT max(id) FROM d)",
        "SELECT id FROM o WHERE id IN (SELECT max(id) FROM d GROUP BY ts)",
        "SELECT id FROM o WHERE EXISTS (SELECT max(d.id) FROM d WHERE d.ts = o.ts)",
    ],
)
def test_aggregate_subquery_hint_suggests_a_windowed_view(query: str) -> None:
    hint = hint_of(query, "not-supported")
    view, _, joined = hint.replace("DESCRIPTOR(…)", "DESCRIPTOR(ts)").partition("; then write ")
    joined = joined.replace("v = …", "v = o.id").replace(
        "…", "w.window_end BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR"
    )
    plan_job(parse_job(f"{DECLARED} {view}; SELECT o.id FROM o {joined}"))
    assert "over the aggregate max(" in catch_planning_error(query).message


def test_names_that_are_empty_are_not_offered() -> None:
    """The rows of a sub-query without a name."""
    error = catch_planning_error(
        "SELECT x.n FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY name) AS n FROM keyed) WHERE n = 1"
    )
    assert error.code == "unknown-table"
    assert 'known: ""' not in str(error)


KEY, OP = ", PRIMARY KEY (id) NOT ENFORCED", ", 'op.column' = 'op'"


@pytest.mark.parametrize(
    ("key", "op", "hint"),
    [
        (KEY, OP, "to join each version of a row (ASOF JOIN), remove PRIMARY KEY and 'op.column'; else"),
        (KEY, "", "to join each version of a row (ASOF JOIN), remove PRIMARY KEY; else remove WATERMARK"),
        ("", OP, "remove PRIMARY KEY, 'op.column' and 'diff.column' from v: each version is then a row"),
    ],
)
def test_versions_of_a_table_are_a_stream(key, op, hint):
    declared = f"""{DECLARED}
        CREATE TABLE v (id BIGINT, at TIMESTAMP, op STRING, WATERMARK FOR at{{key}})
          WITH ('connector' = 'memory'{{op}});"""
    query = "SELECT v.at FROM o LEFT ASOF JOIN v MATCH_CONDITION (o.ts >= v.at) ON v.id = o.id"
    assert hint in catch_planning_error(query, declared.format(key=key, op=op)).hint
    plan_job(parse_job(declared.format(key="", op="") + query))
