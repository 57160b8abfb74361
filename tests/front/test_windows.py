"""SQL with TUMBLE, HOP and SESSION to a description; what is refused, and how that is said."""

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.spec.model import Input, StageBranch, WindowKind
from watersmeet.types.sql_type import BIGINT

DECLARED = """
CREATE TABLE s (k STRING, v BIGINT, d DECIMAL(10,2), t TIMESTAMP, u TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '5' SECOND) WITH ('connector' = 'memory');
CREATE TABLE n (k STRING, t INT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE r (k STRING, w BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE VIEW j AS SELECT s.k, s.v, s.t, r.w, r.t AS rt
  FROM s LEFT JOIN r ON s.k = r.k AND r.t BETWEEN s.t AND s.t + INTERVAL '1' HOUR;
"""
TUMBLE = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '10' MINUTE))"
BY = "GROUP BY window_start, window_end"
MINUTE = 60_000_000
SESSION = (WindowKind.SESSION, MINUTE, 0)
HOP = (WindowKind.HOP, 60 * MINUTE, MINUTE)
ONE_MINUTE = (WindowKind.TUMBLE, MINUTE, MINUTE)


def query_of(sql):
    return parse_job(DECLARED + sql).inserts[0].query


def format_columns(columns):
    return [(column.name, column.expr.sql("spark")) for column in columns]


def over(function):
    return f"SELECT count(*) FROM TABLE({function}) {BY}"


def plan_and_catch_error(sql):
    with pytest.raises(WatersmeetError) as caught:
        query_of(sql)
    return str(caught.value)


def test_expressions_are_cut_at_keys_and_aggregates():
    query = query_of(
        f"SELECT window_start, upper(k) || '!' AS k, sum(v) / count(*) AS mean, count(*) FROM {TUMBLE}"
        f" WHERE v > 0 {BY}, upper(k) HAVING count(*) > 1 AND mean < max(v + 1)"
    )
    found = query.aggregation
    assert found is not None
    assert format_columns(found.keys) == [("key1", "UPPER(s.k)")]
    assert format_columns(found.aggregates) == [
        ("sum1", "SUM(s.v)"),
        ("count2", "COUNT(*)"),
        ("max3", "MAX(s.v + 1)"),
    ]
    assert format_columns(query.outputs) == [
        ("window_start", "window_start"),
        ("k", "key1 || '!'"),
        ("mean", "sum1 / count2"),
        ("count(*)", "count2"),
    ]
    assert found.having is not None
    assert found.having.sql("spark") == "count2 > 1 AND (sum1 / count2) < max3"
    assert query.where is not None
    assert query.where.sql("spark") == "s.v > 0"
    assert isinstance(query.relation, Input)


@pytest.mark.parametrize(
    ("function", "window"),
    [
        ("TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '60' SECONDS)", ONE_MINUTE),
        ("HOP(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)", HOP),
        ("HOP(TABLE s, DESCRIPTOR(t), INTERVAL '1' HOUR, INTERVAL '1' MINUTE)", HOP),
        ("SESSION(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE)", SESSION),
        ("SESSION(TABLE s PARTITION BY k, DESCRIPTOR(t), INTERVAL '1' MINUTE)", SESSION),
        ("TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(t), SIZE => INTERVAL '60' SECONDS)", ONE_MINUTE),
        ("TUMBLE(TABLE n, DESCRIPTOR(t), 10)", (WindowKind.TUMBLE, 10, 10)),
        ("TUMBLE((SELECT k, t FROM s WHERE v > 1), DESCRIPTOR(t), INTERVAL '1' MINUTE)", ONE_MINUTE),
        ("TUMBLE(TABLE j, DESCRIPTOR(rt), INTERVAL '1' MINUTE)", ONE_MINUTE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wrapped", ["TABLE({})", "{}"])
def test_windows(function, window, wrapped):
    query = query_of(f"SELECT window_end, k, count(*) AS n FROM {wrapped.format(function)} x {BY}, k")
    assert query.aggregation is not None
    found = query.aggregation.window
    assert (found.kind, found.size, found.slide) == window


@pytest.mark.parametrize("by", ["window_end, upper(k)", "1, 2", "window_start, kk", "window_end, UPPER(s.k)"])
def test_ways_to_group(by):
    query = query_of(f"SELECT window_end, upper(k) AS kk, count(v) FROM {TUMBLE} GROUP BY {by}")
    assert query.aggregation is not None
    assert format_columns(query.aggregation.keys) == [("key1", "UPPER(s.k)")]


def test_an_aggregate_is_a_stage_with_event_times():
    query = query_of(
        "SELECT a.n, b.m FROM"
        f" (SELECT window_start AS ws, window_end, k, count(*) AS n FROM {TUMBLE} {BY}, k) a"
        f" JOIN (SELECT window_end, k, sum(d) AS m FROM {TUMBLE} {BY}, k) b"
        " ON a.window_end = b.window_end AND a.k = b.k"
    )
    a, b = query.inputs
    assert [(c.name, str(c.type)) for c in a.columns] == [
        ("ws", "TIMESTAMP"),
        ("window_end", "TIMESTAMP"),
        ("k", "STRING"),
        ("n", "BIGINT"),
    ]
    assert a.event_times == ("ws", "window_end")
    assert [(c.name, str(c.type)) for c in b.columns][-1] == ("m", "DECIMAL(20,2)")
    (branch,) = b.branches
    assert isinstance(branch, StageBranch)
    assert branch.stage.aggregation is not None


def test_nested_windows_hide_inner_window_columns():
    query = query_of(
        "SELECT window_start, window_end, sum(n) AS n FROM TABLE(TUMBLE("
        f"(SELECT window_end, count(*) AS n FROM {TUMBLE} {BY}), DESCRIPTOR(window_end), INTERVAL '1' HOUR))"
        f" {BY}"
    )
    assert query.aggregation is not None
    assert query.aggregation.window.time.sql() == "tumble.window_end"
    assert format_columns(query.outputs)[1] == ("window_end", "window_end")


OWN = "TABLE(TUMBLE(TABLE own, DESCRIPTOR(t), INTERVAL '1' MINUTE))"
HAS_OWN = """CREATE TABLE own (window_end TIMESTAMP, x STRUCT<window_end: INT>, t TIMESTAMP,
  WATERMARK FOR t AS t) WITH ('connector' = 'memory');"""
BENEATH = f"(SELECT window_start, count(*) AS n FROM {TUMBLE} GROUP BY window_start)"


@pytest.mark.parametrize(
    ("items", "clauses"),
    [
        ("window_start, max(o.Window_End)", "GROUP BY window_start"),
        ("window_start", "WHERE window_end > t GROUP BY window_start"),
        ("window_start", "GROUP BY window_start, window_end"),
        ("window_start", "GROUP BY window_start HAVING max(window_end) > window_start"),
    ],
)
def test_a_column_of_the_rows_by_the_name_of_the_windows_is_ambiguous(items, clauses):
    with pytest.raises(WatersmeetError) as caught:
        query_of(f"{HAS_OWN} SELECT {items} FROM {OWN} o {clauses}")
    assert caught.value.code == "ambiguous-column"
    assert "a column of the rows and the end of their window" in str(caught.value)
    assert " AS own_window_end, in a view" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "refused_by"),
    [
        (BENEATH, None),
        (f"(SELECT b.window_start, n FROM {BENEATH} b JOIN r ON r.t = b.window_start)", None),
        (f"(SELECT window_start, n FROM {BENEATH} UNION ALL SELECT window_start, n FROM {BENEATH})", None),
        (f"(SELECT window_start, n FROM {BENEATH} UNION ALL SELECT t, v FROM s)", "ambiguous-column"),
        ("(SELECT t AS window_start, v AS n FROM s)", "ambiguous-column"),
    ],
)
def test_nested_window_bounds_are_hidden_but_row_columns_are_not(rows, refused_by):
    over_hours = f"TABLE(TUMBLE({rows}, DESCRIPTOR(window_start), INTERVAL '1' HOUR))"
    text = f"SELECT window_start, sum(n) AS n FROM {over_hours} GROUP BY window_start"
    if refused_by is None:
        assert format_columns(query_of(text).outputs)[0] == ("window_start", "window_start")
    else:
        assert f"[{refused_by}]" in plan_and_catch_error(text)


def test_a_column_by_the_name_of_the_windows_that_is_not_mentioned_is_no_problem():
    text = f"{HAS_OWN} SELECT window_start, max(x.window_end) AS m FROM {OWN} GROUP BY window_start"
    assert [name for name, _ in format_columns(query_of(text).outputs)] == ["window_start", "m"]


def test_times_of_narrow_integers_have_wide_windows():
    window = "TABLE(TUMBLE(TABLE n, DESCRIPTOR(t), 10))"
    view = f"(SELECT window_end, count(*) AS c FROM {window} GROUP BY window_end)"
    (first, _) = query_of(f"SELECT 1 FROM {view} x JOIN n ON n.t = x.window_end").inputs
    assert first.columns[0].type == BIGINT


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (f"SELECT k, count(*) FROM {TUMBLE} GROUP BY k", "GROUP BY without the window"),
        (f"SELECT * FROM {TUMBLE}", "TUMBLE needs a GROUP BY"),
        (f"SELECT * FROM {TUMBLE} {BY}", '"*" with GROUP BY'),
        (f"SELECT v FROM {TUMBLE} {BY}", '"s.v" is neither in GROUP BY'),
        (f"SELECT window_end FROM {TUMBLE} {BY} HAVING v > 1", '"s.v" is neither in GROUP BY'),
        (f"SELECT window_end FROM {TUMBLE} WHERE sum(v) > 1 {BY}", "the aggregate sum(v) is not supported"),
        (f"SELECT window_end FROM {TUMBLE} WHERE window_end = t {BY}", '"window_end" cannot be used'),
        (f"SELECT sum(count(*)) FROM {TUMBLE} {BY}", "cannot contain the aggregate function"),
        (f"SELECT max(window_end) FROM {TUMBLE} {BY}", "it has one value per group"),
        (f"SELECT count(*) FROM {TUMBLE} {BY}, sum(v)", "the aggregate function sum()"),
        (f"SELECT count(*) FROM {TUMBLE} {BY}, 7", "there is no such column"),
        (f"SELECT count(*) FROM {TUMBLE} GROUP BY ROLLUP (window_end, k)", "ROLLUP is not supported"),
        (over("TUMBLE(TABLE s, DESCRIPTOR(u), INTERVAL '1' MINUTE)"), '"u" is not an event time'),
        (over("TUMBLE(TABLE s, DESCRIPTOR(tt), INTERVAL '1' MINUTE)"), 'unknown column "tt"'),
        (over("TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '0' MINUTE)"), "must be greater than 0"),
        (over("TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '-1' MINUTE)"), "must be greater than 0"),
        (over("TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MONTH)"), "has no fixed length"),
        (over("TUMBLE(TABLE s, DESCRIPTOR(t), 10)"), "must be an interval"),
        (over("TUMBLE(TABLE n, DESCRIPTOR(t), INTERVAL '1' DAY)"), "must be an integer"),
        (over("HOP(TABLE n, DESCRIPTOR(t), 10)"), "size and slide of HOP"),
        (over("SESSION(TABLE n PARTITION BY k, DESCRIPTOR(t), 10)"), "and GROUP BY differ"),
        (f"SELECT 1 FROM {TUMBLE} x JOIN r ON r.t = x.t {BY}", "a join and TUMBLE"),
        (f"SELECT 1 FROM r JOIN {TUMBLE} x ON r.t = x.t", "without GROUP BY in the same SELECT"),
        (f"SELECT window_end, rank() OVER (ORDER BY k) FROM {TUMBLE} {BY}", "a window function (OVER)"),
        (f"SELECT window_end, rand() FROM {TUMBLE} {BY}", "rand() returns a different value each time"),
        ("SELECT 1 FROM TABLE(WINDOWS(TABLE s, DESCRIPTOR(t)))", "syntax"),
        (f"SELECT count(*) FROM {TUMBLE} GROUP BY TUMBLE(t, INTERVAL '1' HOUR)", "TUMBLE(TABLE name"),
    ],
)  # fmt: skip
def test_refused(sql, words):
    assert words in plan_and_catch_error(sql)
