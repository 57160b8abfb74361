"""What the rows of a tick depend on: everything of a plan, but for what is named with its reason."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.support.package_paths import find_paths
from watersmeet import conditions as vocabulary
from watersmeet.measure import Measured
from watersmeet.parser.statements import parse_job
from watersmeet.plan.identity.fingerprint import read_row, stored_names, stored_text
from watersmeet.plan.identity.origins import origins_of
from watersmeet.plan.identity.settings import (
    OMITTED,
    OMITTED_OPTIONS,
    differences,
    digest_of,
    settings_of,
)
from watersmeet.plan.model import job, nodes, sides
from watersmeet.plan.planner import plan_job
from watersmeet.spec import model as spec
from watersmeet.spec.secrets import public_option

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

JOB = """
CREATE MAPPING a (k STRING, n BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  TYPE File OPTIONS ('path' = 'in/a', 'format' = 'csv', 'idle_timeout' = '20 seconds');
CREATE MAPPING b (k STRING, n BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  TYPE Kafka OPTIONS ('topic' = 'b', 'bootstrap.servers' = 'x:9092', 'kafka.sasl.jaas.config' = 'one');
CREATE MAPPING out TYPE File OPTIONS ('path' = 'out', 'format' = 'json');
INSERT INTO out SELECT a.k, b.n FROM a LEFT JOIN b
  ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '10' SECONDS WHERE a.n > 0;
"""


def build_settings(text: str) -> dict[str, str]:
    return settings_of(plan_job(parse_job(text)))


def good() -> list[Path]:
    return [path for path in find_paths(GOLDEN, "*.sql") if not path.read_text().startswith("-- fail=")]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if number % 5 == 0 else pytest.mark.full)
        for number, path in enumerate(good())
    ],
)
def test_remarks_and_blanks_do_not_change_the_settings(path):
    text = path.read_text()
    assert build_settings(text) == build_settings("-- a remark\n" + text.replace("\n", "\n\n  "))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("'format' = 'csv'", "'format' = 'csv', 'max_ahead' = '1 day'", 'source "a": max_ahead_us'),
        ("'20 seconds'", "'30 seconds'", 'source "a": idle_timeout_us'),
        ("", "SET on_null_time = 'fail';", "null_time"),
        ("", "SET allowed_lateness = '1 second';", "allowed_lateness"),
        ("", "SET watermark_rule = limit;", "watermark_rule"),
        ("", "SET max_rows = 9; SET at_limit = shed_oldest;", "at_limit"),
        ("", "SET max_rows = 9; SET at_limit = shed_oldest;", "max_rows"),
        ("", "SET max_job_bytes = 9; SET at_limit = shed_oldest;", "max_job_bytes"),
        ("", "SET time_zone = 'America/New_York';", "time_zone"),
        ("- INTERVAL '5' SECONDS", "- INTERVAL '6' SECONDS", "lag of a.t"),
        ("'format' = 'csv'", "'format' = 'csv', 'sep' = ';'", "source \"a\": 'sep'"),
        ("'format' = 'csv'", "'format' = 'json'", "source \"a\": 'format'"),
        ("'format' = 'json'", "'format' = 'csv'", "sink \"out\": 'format'"),
        ("a.n > 0", "a.n > 1", 'joins and inputs of "out"'),
        ("a.n > 0", "a.n > coalesce(b.n, 0)", 'filter of "out"'),
        ("a.k, b.n", "a.k, b.n + 1 AS n", 'columns of "out"'),
        ("'10' SECONDS", "'11' SECONDS", 'joins and inputs of "out"'),
        ("LEFT JOIN", "JOIN", 'joins and inputs of "out"'),
        ("'topic' = 'b'", "'topic' = 'b', 'kafka.isolation.level' = 'read_uncommitted'", "isolation"),
    ],
)
def test_what_rows_depend_on_counts_and_is_named(old, new, named):
    other = JOB.replace(old, new, 1) if old else new + JOB
    assert other != JOB
    before, now = build_settings(JOB), build_settings(other)
    assert digest_of(before) != digest_of(now)
    assert any(named in line for line in differences(before, now))


def test_the_limit_of_a_source_counts_where_its_rows_are_shed():
    """Else it stops a tick, and must be free to be raised."""
    more = JOB.replace("'format' = 'csv'", "'format' = 'csv', 'max_rows' = '9'", 1)
    shedding = "SET max_job_rows = 99; SET at_limit = shed_oldest;"
    assert digest_of(build_settings(JOB)) == digest_of(build_settings(more))
    (line,) = differences(build_settings(shedding + JOB), build_settings(shedding + more))
    assert line.startswith('limits of source "a" (rows, bytes): not set before, [9, null] now')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "SET max_rows = 1000;"),
        ("", "SET max_bytes = '1 GB';"),
        ("", "SET max_rows_per_key = 1000;"),
        ("", "SET max_output_rows_per_tick = 1000;"),
        ("", "SET max_job_rows = 1000;"),
        ("", "SET max_job_bytes = '1 GB';"),
        ("'format' = 'csv'", "'format' = 'csv', 'max_rows' = '5', 'max_bytes' = '1 GB'"),
        ("", "SET max_drift = INTERVAL '1' HOUR;"),
        ("", "SET partitions = 7;"),
        ("'format' = 'csv'", "'format' = 'csv', 'maxFilesPerTrigger' = '3'"),
        ("'format' = 'csv'", "'format' = 'csv', 'rows_per_second' = '3'"),
        ("x:9092", "y:9092"),
        ("= 'one'", "= 'two'"),
        ("SELECT a.k", "SELECT /*+ BROADCAST(b) */ a.k"),
    ],
)
def test_what_rows_do_not_depend_on_may_change(old, new):
    other = JOB.replace(old, new, 1) if old else new + JOB
    assert other != JOB
    assert differences(build_settings(JOB), build_settings(other)) == []


def test_who_is_in_a_url_is_not_in_it_and_all_else_of_the_url_is():
    def build_settings_for_url(place: str) -> dict[str, str]:
        return build_settings(JOB.replace("'in/a'", f"'s3a://{place}'"))

    before = build_settings_for_url("me:x1y@shop/token=5/in")
    assert "x1y" not in str(before)
    assert before == build_settings_for_url("me:other@shop/token=5/in"), "secrets do not count"
    assert before != build_settings_for_url("me:x1y@shop/token=6/in")
    told_of_text = [public_option("query", f"SELECT * FROM a WHERE token={n}") for n in (5, 6)]
    assert told_of_text[0] != told_of_text[1]
    assert public_option("spark.hadoop.x.ConnectionURL", "jdbc:x://db/a;password=x1y;b=2").endswith("***;b=2")


def test_no_secret_is_in_it():
    assert "one" not in str(build_settings(JOB.replace("'one'", "'one-secret'")).values()).replace("None", "")


def test_what_is_left_out_is_there_and_has_a_reason():
    kinds: dict[str, Any] = {
        _stored_name(kind): kind
        for module in (vocabulary, sides, nodes, job, spec)
        for kind in vars(module).values()
        if dataclasses.is_dataclass(kind)
    }
    for (kind, name), reason in OMITTED.items():
        assert name in {field.name for field in dataclasses.fields(kinds[kind])}, (kind, name)
        assert reason
    assert all(OMITTED_OPTIONS.values())
    assert all(name == name.lower() for name in OMITTED_OPTIONS)


def _stored_name(kind: type) -> str:
    try:
        return stored_names(kind).name
    except TypeError:  # it is not stored
        return kind.__name__


@dataclasses.dataclass(frozen=True)
class Widened(Measured):
    width: int = 0


def test_a_class_or_a_field_without_a_stored_name_is_refused():
    with pytest.raises(TypeError, match="Widened has no stored name"):
        stored_text(Widened("a"))
    with pytest.raises(TypeError, match=r"Widened: \['width'\]"):
        read_row(Widened, "Measured column measure")


def test_a_renamed_field_keeps_its_stored_name():
    names = read_row(Widened, "Measured name=column measure size=width")
    assert names.name == "Measured"
    assert names.fields == (("name", "column"), ("measure", "measure"), ("size", "width"))
    assert stored_text(Measured("a")) == "Measured(column='a', measure=Measure(kind='whole', places=0))"


CONDITIONS = """
CREATE MAPPING a (k STRING, n INT, p DECIMAL(8, 2), x DOUBLE, s STRING, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/a', 'format' = 'csv');
CREATE MAPPING b (k STRING, n INT, p DECIMAL(8, 2), x DOUBLE, s STRING, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/b', 'format' = 'csv');
CREATE MAPPING pairs TYPE File OPTIONS ('path' = 'out/pairs', 'format' = 'json');
CREATE MAPPING nearest TYPE File OPTIONS ('path' = 'out/nearest', 'format' = 'json');
INSERT INTO pairs SELECT a.k, b.t FROM a JOIN b ON upper(a.k) <=> b.k AND a.n + 2147483647 > b.n
  AND a.p - 0.5 < b.p AND a.x + 0.5 >= b.x AND a.s <= b.s
  AND b.t > a.t - INTERVAL '1' HOUR AND CAST(b.t AS DATE) <= CAST(a.t AS DATE);
INSERT INTO nearest SELECT a.k, b.t AS at FROM a ASOF LEFT JOIN b MATCH_CONDITION (a.t >= b.t)
  ON a.k = b.k AND b.t > a.t - INTERVAL '1' HOUR;
"""


def test_what_states_say_of_conditions_is_the_same_in_every_version():
    """A newer version goes on from an older one's state, whatever the code's own names."""
    plan = plan_job(parse_job(CONDITIONS))
    assert [query.fingerprint for query in plan.queries] == [
        "d62ad071487872628212ff9428241e6a",
        "cfaef8c297869ffd497a143545a49f15",
    ]
    settings = settings_of(plan)
    assert [settings[f'joins and inputs of "{query.name}"'] for query in plan.queries] == [
        "plan 3e265404c29694db",
        "plan e0c4a6c5e5b245a2",
    ]


NESTED = """
CREATE MAPPING a (k STRING, n INT, m MAP<STRING, INT>, s STRUCT<p: INT, `q, r`: STRING>, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/a', 'format' = 'json');
CREATE MAPPING b (k STRING, n INT, m MAP<STRING, INT>, s STRUCT<p: INT, `q, r`: STRING>, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/b', 'format' = 'json');
CREATE MAPPING pairs TYPE File OPTIONS ('path' = 'out/pairs', 'format' = 'json');
CREATE MAPPING c (k STRING, n INT, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/c', 'format' = 'json');
INSERT INTO pairs SELECT a.k, b.t FROM a JOIN b ON a.m['x'] = b.n
  AND b.t BETWEEN a.t - INTERVAL '1' HOUR AND a.t
  AND a.n + 2147483647 > b.n AND a.m['y'] <> b.n AND a.s < b.s
  JOIN c ON c.n = b.m[a.k] AND c.t BETWEEN a.t - INTERVAL '1' HOUR AND a.t;
"""


def test_what_states_say_of_nested_types_is_the_same_in_every_version():
    """What tasks compute names the types of columns, which are spelt otherwise by now."""
    plan = plan_job(parse_job(NESTED))
    assert plan.queries[0].fingerprint == "9722e3f5b2af1c87a7923b2b3efed5a5"
    assert settings_of(plan)['joins and inputs of "pairs"'] == "plan 53b0ddf0edc403fd"


COMPUTED = """
CREATE MAPPING a (k STRING, n BIGINT, p DECIMAL(8, 2), t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/a', 'format' = 'csv');
CREATE MAPPING b (k STRING, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECONDS) TYPE File OPTIONS ('path' = 'in/b', 'format' = 'csv');
CREATE MAPPING pairs TYPE File OPTIONS ('path' = 'out/pairs', 'format' = 'json');
CREATE MAPPING sums TYPE File OPTIONS ('path' = 'out/sums', 'format' = 'json');
CREATE VIEW v AS SELECT k, t, p * 2 AS twice, timestamp_millis(n) AS at, map(k, p) AS m, NULL AS none,
  upper(k) AS u FROM a
  UNION ALL SELECT k, t, p + 1, date_trunc('hour', t), map(k, p), 'x', k FROM a;
CREATE VIEW w AS SELECT k, window_end AS t, avg(p * 0.2) AS mean, sum(CASE WHEN n > 1 THEN 1 END) AS many
  FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '1' HOUR)) GROUP BY k, window_start, window_end;
INSERT INTO pairs SELECT v.twice, v.at, v.m, v.none, v.u, b.t FROM v JOIN b
  ON v.k = b.k AND b.t BETWEEN v.t - INTERVAL '1' HOUR AND v.t;
INSERT INTO sums SELECT w.mean, w.many, b.t FROM w LEFT JOIN b
  ON w.k = b.k AND b.t BETWEEN w.t - INTERVAL '1' HOUR AND w.t;
"""


def test_what_states_say_of_computed_columns_is_the_same_in_every_version():
    """Of what type they are was not told by versions that knew fewer of Spark's functions."""
    plan = plan_job(parse_job(COMPUTED))
    assert [query.fingerprint for query in plan.queries] == [
        "dc796a2b65e706a7bebb561b8ac78bf8",
        "60dbc0189194a24ca81e017c7c82d7e6",
    ]
    settings = settings_of(plan)
    assert [settings[f'joins and inputs of "{query.name}"'] for query in plan.queries] == [
        "plan ccdfe990c23748e6",
        "plan fe74704ccf8ab847",
    ]
    every = [origins for query in plan.queries for origins in origins_of(query.nodes).values()]
    digests = {name: origins[name].digest[:8] for origins in every for name in origins}
    assert {name: digests[name] for name in ("twice", "at", "m", "none", "u", "mean", "many")} == {
        "twice": "67057365", "at": "4ff14bec", "m": "b8bb578f", "none": "b291bd95", "u": "a0f5175e",
        "mean": "7d5296b3", "many": "4389b011",
    }  # fmt: skip
