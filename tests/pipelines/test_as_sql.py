"""A pipeline asks for what SQL asks for: the same query, the same plan."""

from __future__ import annotations

import re

import pytest

from tests.pipelines.texts import CLICKED, edit_pipeline_text
from tests.relations.test_as_sql import plain
from watersmeet import SpecError, explain, parse_job, plan_job
from watersmeet.pipelines import Pipeline

TABLES = """
CREATE TABLE impressions (ad BIGINT, user STRING, at {time}, WATERMARK FOR at AS at - {lag})
    WITH ('connector' = 'memory');
CREATE TABLE clicks (ad BIGINT, user STRING, at {time}, WATERMARK FOR at AS at) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'memory');
SET lateness = join;
"""
JOINED = """
SELECT i.`ad` AS `left_ad`, i.`user` AS `left_user`, i.`at` AS `left_at`,
    c.`ad` AS `right_ad`, c.`user` AS `right_user`, c.`at` AS `right_at`
FROM impressions `impressions` {how} JOIN clicks `clicks` ON i.`ad` = c.`ad` AND i.`user` = c.`user`
AND c.`at` BETWEEN i.`at` {low} AND i.`at` {high}
""".replace("i.", "`impressions`.").replace("c.", "`clicks`.")

PLAIN = [
    ('query = "SELECT ad, user, at, price * 2 AS twice FROM clicks WHERE price > 0"\n', ""),
    ('price = "BIGINT"\n', ""),
    ('output_left_columns = ["ad", "user", "at"]\noutput_right_columns = ["at", "twice"]\n', ""),
]


def both(toml: str, sql: str):
    """The jobs of both, planned."""
    made = Pipeline.from_toml(toml).job()
    return (made.description, made.plan), (job := parse_job(sql), plan_job(job))


def explain_without_text(plan) -> str:
    """EXPLAIN without what is as it was written: the text, and how lengths are spelled."""
    lines = explain(plan).splitlines()
    return re.sub(r"INTERVAL '[-0-9.]+' \w+", "INTERVAL", "\n".join(lines[:1] + lines[2:]))


def same(toml: str, sql: str) -> None:
    (described, plan), (job, planned) = both(toml, sql)
    assert [plain(i.query) for i in described.inserts] == [plain(i.query) for i in job.inserts]
    assert described.options == job.options
    assert [i.sink for i in described.inserts] == [i.sink for i in job.inserts]
    assert [query.fingerprint for query in plan.queries] == [query.fingerprint for query in planned.queries]
    assert explain_without_text(plan) == explain_without_text(planned)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize(
    ("said", "low", "high"),
    [
        ('min_delta = "0 seconds"\nmax_delta = "5 minutes"', "", "+ INTERVAL '300' SECOND"),
        ('time_window = "1500 milliseconds"', "- INTERVAL '1.5' SECOND", "+ INTERVAL '1.5' SECOND"),
        (
            'min_delta = "-7 milliseconds"\nmax_delta = "-5 milliseconds"',
            "- INTERVAL '0.007' SECOND",
            "- INTERVAL '0.005' SECOND",
        ),
    ],
)
def test_joins_of_timestamps(how, said, low, high):
    toml = edit_pipeline_text(
        *PLAIN, ('how = "left"', f'how = "{how}"'), ('min_delta = "0 seconds"\nmax_delta = "5 minutes"', said)
    )
    sql = TABLES.format(time="TIMESTAMP", lag="INTERVAL '10' SECONDS")
    sql += "SET allowed_lateness = INTERVAL '60' SECONDS; SET max_rows = 1000000;"
    sql += f"INSERT INTO out {JOINED.format(how=how, low=low, high=high)}"
    (_, plan), (_, planned) = both(toml, sql)
    assert plan.queries[0].fingerprint == planned.queries[0].fingerprint
    assert explain_without_text(plan) == explain_without_text(planned)


def test_joins_of_epoch_milliseconds():
    toml = edit_pipeline_text(
        *PLAIN,
        ('allowed_lateness = "1 minute"\n', ""),
        *[('at = "TIMESTAMP"', 'at = "BIGINT"')] * 2,
    )
    sql = TABLES.format(time="BIGINT", lag="10000") + "SET max_rows = 1000000;"
    sql += f"INSERT INTO out {JOINED.format(how='LEFT', low='', high='+ 300000')}"
    same(toml, sql)


def test_a_query_is_what_the_join_sees():
    (_, plan), (_, planned) = both(
        CLICKED,
        """
CREATE TABLE impressions
    (ad BIGINT, user STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
    WITH ('connector' = 'memory');
CREATE TABLE clicks (ad BIGINT, user STRING, at TIMESTAMP, price BIGINT) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'memory');
CREATE VIEW paid AS SELECT ad, user, at, price * 2 AS twice FROM clicks WHERE price > 0;
CREATE VIEW ordered AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE paid, DESCRIPTOR(at), INTERVAL '0' SECONDS));
SET lateness = join;
SET allowed_lateness = INTERVAL '60' SECONDS;
INSERT INTO out SELECT impressions.ad AS left_ad, impressions.user AS left_user, impressions.at AS left_at,
    clicks.at AS right_at, clicks.twice AS right_twice
FROM impressions LEFT JOIN ordered clicks ON impressions.ad = clicks.ad AND impressions.user = clicks.user
AND clicks.at BETWEEN impressions.at AND impressions.at + INTERVAL '300' SECONDS""",
    )
    assert plan.queries[0].fingerprint == planned.queries[0].fingerprint


def test_a_second_transform_aggregates_the_join():
    toml = edit_pipeline_text(
        *PLAIN,
        ("[transform.join]", "[[transform]]\n[transform.join]"),
        (
            "[target]\n",
            """[[transform]]
[transform.window]
kind = "hop"
event_time_column = "left_at"
size = "1 minute"
slide = "30 seconds"
group_by = "left_ad"
aggregates = { n = "count(*)", clicked = "count(right_at)" }

[target]
""",
        ),
    )
    sql = TABLES.format(time="TIMESTAMP", lag="INTERVAL '10' SECONDS")
    sql += "SET allowed_lateness = INTERVAL '60' SECONDS;"
    joined = JOINED.format(how="LEFT", low="", high="+ INTERVAL '300' SECONDS")
    sql += f"""CREATE VIEW joined AS {joined};
INSERT INTO out SELECT window_start, window_end, left_ad, count(*) AS n, count(right_at) AS clicked
FROM TABLE(HOP(TABLE joined, DESCRIPTOR(left_at), INTERVAL '60' SECONDS, INTERVAL '30' SECONDS))
GROUP BY window_start, window_end, left_ad"""
    (_, plan), (_, planned) = both(toml, sql)
    assert plan.queries[0].fingerprint == planned.queries[0].fingerprint
    assert [o.name for o in plan.queries[0].outputs] == [o.name for o in planned.queries[0].outputs]


LOOKED_UP = """
name = "named"

[[sources]]
name = "sales"
connection.connector = "memory"
columns = { item = "BIGINT", at = "BIGINT" }
lag = "5 milliseconds"

[[sources]]
name = "items"
connection = { connector = "file", path = "items", format = "csv" }
columns = { id = "BIGINT", name = "STRING" }

[transform.lookups.items]
source = "items"
keys = { item = "id" }
columns = "name"

[transform.window]
event_time_column = "at"
size = "10 milliseconds"
group_by = ["name"]
aggregates = { n = "count(*)" }
allowed_lateness = "3 milliseconds"

[target]
connection = { connector = "memory" }
name = "out"
"""


def test_rows_look_things_up_and_are_counted():
    same_plan = """
CREATE TABLE sales (item BIGINT, at BIGINT, WATERMARK FOR at AS at - 5) WITH ('connector' = 'memory');
CREATE TABLE items (id BIGINT, name STRING) WITH ('connector' = 'file', 'path' = 'items', 'format' = 'csv');
CREATE SINK out WITH ('connector' = 'memory');
CREATE VIEW looked_up AS SELECT sales.item AS item, sales.at AS at, items.name AS name
FROM sales LEFT JOIN items FOR SYSTEM_TIME AS OF now() ON sales.item = items.id;
SET allowed_lateness = 3;
INSERT INTO out SELECT window_start, window_end, name, count(*) AS n
FROM TABLE(TUMBLE(TABLE looked_up, DESCRIPTOR(at), 10)) GROUP BY window_start, window_end, name"""
    (described, plan), (job, planned) = both(LOOKED_UP, same_plan)
    assert plan.queries[0].fingerprint == planned.queries[0].fingerprint
    assert described.options == job.options


def test_a_lag_that_nothing_asks_for_is_refused():
    """Of a table, and of a stream that nothing joins or groups by time."""
    window, _, _ = LOOKED_UP.partition("[transform.window]")[2].partition("[target]")
    of_table = LOOKED_UP.replace('name = "items"\n', 'name = "items"\nlag = "5 milliseconds"\n')
    for text, number in ((of_table, 1), (LOOKED_UP.replace(f"[transform.window]{window}", ""), 0)):
        with pytest.raises(SpecError, match="asks for its event time") as raised:
            Pipeline.from_toml(text)
        assert raised.value.message.startswith(f"sources[{number}].lag has no effect")


@pytest.mark.parametrize("name", ["Sales", "looked_up"])
def test_a_lookup_may_have_any_name(name):
    """That of the stream too, and that which rows have within the job."""
    again = '[transform.lookups.more]\nsource = "items"\nkeys = { item = "id" }\ncolumn_prefix = "more_"\n'
    both_of = LOOKED_UP.replace("[transform.window]", f"{again}\n[transform.window]")
    plan = Pipeline.from_toml(both_of).job().plan
    for old, new in (("lookups.items", f"lookups.{name}"), ("lookups.more", f"lookups.{name}")):
        renamed = Pipeline.from_toml(both_of.replace(old, new)).job().plan
        assert [o.name for o in renamed.queries[0].outputs] == [o.name for o in plan.queries[0].outputs]


def test_kafka_records_give_their_time():
    toml = edit_pipeline_text(
        *PLAIN,
        ('event_time_column = "at"\n', ""),
        *[
            (
                'connector = "memory"',
                'connector = "kafka"\nbootstrap.servers = "b:9092"\ntopic = "t"\nformat = "json"',
            )
        ]
        * 2,
    )
    made = Pipeline.from_toml(toml).job()
    for i in made.description.inserts[0].query.inputs:
        source = i.sources[0]
        assert [(c.name, str(c.type)) for c in source.columns][-1] == ("_event_ts", "TIMESTAMP")
        assert source.options["metadata._event_ts"] == "timestamp"
        assert [time.column for time in source.event_times] == ["_event_ts"]
