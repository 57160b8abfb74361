"""What state depends on changes a fingerprint, and nothing else does."""

from tests.plan.building import INTS, plan_sql, stream
from watersmeet.parser.statements import parse_job
from watersmeet.plan.identity.settings import digest_of, settings_of
from watersmeet.plan.model.nodes import ArrangePlan
from watersmeet.plan.planner import plan_job
from watersmeet.plan.query_evolution import describe_query, differences
from watersmeet.spec.model import Options, OutputMode, WatermarkRule


def fingerprint(sql, left=INTS, options=None):
    return plan_sql(sql, stream("l", left), stream("r", INTS), options=options or Options()).fingerprint


BASE = "SELECT l.t, l.v FROM l JOIN r ON l.t = r.t AND l.k = r.k"


def test_the_same_query_has_the_same_fingerprint_in_every_run():
    assert fingerprint(BASE) == fingerprint(BASE)
    assert len(fingerprint(BASE)) == 32


def test_the_projection_changes_nothing():
    """Which columns there are is said by the stored rows themselves."""
    assert fingerprint(BASE) == fingerprint(BASE.replace("l.t, l.v", "l.t"))
    assert fingerprint(BASE) == fingerprint(BASE, {**INTS, "v": "INT"})
    assert fingerprint(BASE) == fingerprint(BASE.replace("l.t, l.v", "l.v + l.t AS x"))
    assert fingerprint(BASE) == fingerprint(BASE, options=Options(watermark_rule=WatermarkRule.LIMIT))


def test_a_hint_changes_nothing():
    assert fingerprint(BASE) == fingerprint(BASE.replace("SELECT", "SELECT /*+ BROADCAST(r) */"))


def test_what_state_depends_on_changes_it():
    others = [
        BASE.replace("l.t = r.t", "l.t = r.t + 1"),
        BASE.replace("JOIN", "LEFT JOIN"),
        BASE.replace("l.k = r.k", "l.k <=> r.k"),
        BASE + " AND l.v > 3",
        BASE + " AND (l.v > 3 OR r.k = 'a')",
    ]
    found = {fingerprint(sql) for sql in [BASE, *others]}
    found.add(fingerprint(BASE, {**INTS, "*t": "INT"}))
    found.add(fingerprint(BASE, options=Options(output_mode=OutputMode.CHANGELOG)))
    assert len(found) == len(others) + 3


def test_another_meaning_of_the_same_records_changes_it():
    """The offsets that were read say nothing of rows that are made otherwise."""

    def fingerprint_with_format(form):
        sql = f"""
        CREATE TABLE a (k BIGINT PRIMARY KEY NOT ENFORCED, v INT) WITH ('connector' = 'kafka', 'topic' = 'a',
            'bootstrap.servers' = 'x:9092', 'format' = '{form}');
        CREATE TABLE b (k BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
        SELECT a.v FROM a JOIN b ON a.k = b.k"""
        return plan_job(parse_job(sql)).queries[0].fingerprint

    forms = ("debezium-json", "debezium-json', 'debezium.decimals' = 'string", "upsert-json", "json")
    assert len({fingerprint_with_format(form) for form in forms}) == 4


RENAMED = """
CREATE MAPPING s (k INT, n INT, t BIGINT, WATERMARK FOR t AS t - 6) TYPE File
  OPTIONS ('path' = 'in/s', 'format' = 'json');
CREATE MAPPING c (k INT, n INT, t BIGINT, WATERMARK FOR t AS t - 6) TYPE File
  OPTIONS ('path' = 'in/c', 'format' = 'json');
CREATE MAPPING o TYPE File OPTIONS ('path' = 'out/o', 'format' = 'json');
CREATE VIEW v AS SELECT {0}, {1}, t FROM s;
INSERT INTO o SELECT v.t FROM v JOIN c ON v.{2} + 1 = c.k AND c.t BETWEEN v.t AND v.t + 9;
"""


def test_a_key_that_is_computed_says_what_it_is_only_where_names_do():
    """A view may give the names that it is computed of to other columns."""
    of_names = {
        plan_job(parse_job(RENAMED.format(*names, "x"))).queries[0].fingerprint
        for names in (("k AS x", "n AS y"), ("k AS y", "n AS x"))
    }
    assert len(of_names) == 2
    (plain, through_a_view) = (
        plan_job(parse_job(text)).queries[0].fingerprint
        for text in (RENAMED.format("k", "n", "k").replace("FROM v JOIN", "FROM s v JOIN"),
                     RENAMED.format("k", "n", "k"))
    )  # fmt: skip
    assert plain == through_a_view


COPIED = """
CREATE TABLE s (k BIGINT, g BIGINT, t BIGINT, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
CREATE TABLE x (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
CREATE TABLE z (g BIGINT, h BIGINT, t BIGINT, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
CREATE TABLE w (h BIGINT, t BIGINT, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
CREATE VIEW y AS SELECT {0}, t FROM s;
SELECT /*+ PLAN(delta) */ y.t FROM x JOIN y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 5
  JOIN z ON z.g = y.g AND z.t BETWEEN y.t AND y.t + 5
  JOIN w ON w.h = z.h AND w.t BETWEEN z.t AND z.t + 5;
"""


def test_copies_of_an_input_say_what_names_stand_for_as_the_input_does():
    """A stream that is looked up by a second key is kept once more, under a name of its own."""
    plans = [plan_job(parse_job(COPIED.format(names))).queries[0] for names in ("k, g", "k AS g, g AS k")]
    for plan in plans:
        copies = [side.copy_of for side in plan.every(ArrangePlan)[0].sides if side.copy_of is not None]
        assert sorted(copies) == ["y", "z"]
    assert plans[0].fingerprint != plans[1].fingerprint


OF_FILES = """
CREATE TABLE a (k INT, t TIMESTAMP, WATERMARK FOR t AS t)
    WITH ('connector' = 'file', 'path' = '/a', 'format' = 'json');
CREATE TABLE b (k INT, t TIMESTAMP, WATERMARK FOR t AS t)
    WITH ('connector' = 'file', 'path' = '/b', 'format' = 'json');
CREATE SINK s WITH ('connector' = 'file', 'path' = '/s', 'format' = 'json');
INSERT INTO s SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.t = b.t;
"""


def test_a_newer_version_repeats_an_interrupted_tick():
    """By the settings as they were told at first: what came later and is not used is not among them."""
    settings = settings_of(plan_job(parse_job(OF_FILES)))
    assert digest_of(settings) == "8ac8adbd613cbed2d93bb9d2151a7172", settings


def test_another_path_is_named():
    """Of a state that does not say what it read, only that something of it changed."""

    def describe_query_with_path(path):
        return describe_query(
            plan_job(parse_job(RENAMED.format("k", "n", "k").replace("in/s", path))).queries[0]
        )

    old, new = describe_query_with_path("in/s"), describe_query_with_path("in/other")
    assert differences(old, new) == ['the path of "s" was "in/s", now it is "in/other"']
    assert differences({**old, "reads": {}}, new)[0].startswith("a source's options")
