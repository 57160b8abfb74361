"""Where rows are shed at a limit, and where that is refused."""

from __future__ import annotations

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.planner import plan_job

DECLARED = """
CREATE TABLE a (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE c (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE p (k STRING PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('connector' = 'memory');
CREATE TABLE w (k STRING, n BIGINT) WITH ('connector' = 'memory');
CREATE SINK x WITH ('connector' = 'memory');
CREATE SINK y WITH ('connector' = 'memory');
"""
BAND = "b.t BETWEEN a.t AND a.t + 9"
JOIN = f"SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.k = b.k AND {BAND}"


def plan_with_shedding(query, settings="SET max_rows = 9; SET at_limit = shed_oldest;"):
    return plan_job(parse_job(settings + DECLARED + query))


@pytest.mark.parametrize("kind", ["", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
@pytest.mark.parametrize("keyed", ["a.k = b.k AND ", ""])
def test_joins_of_two_streams(kind, keyed):
    text = explain(plan_with_shedding(f"INSERT INTO x SELECT a.n FROM a {kind} JOIN b ON {keyed}{BAND}"))
    assert "of more rows the oldest are shed: they match no more rows" in text


def test_chains_of_joins_and_joins_of_what_meets_a_table():
    plan_with_shedding(f"INSERT INTO x {JOIN} LEFT JOIN c ON c.k = a.k AND c.t BETWEEN a.t AND a.t + 9")
    with_table = "a JOIN w FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = a.k"
    plan_with_shedding(
        f"INSERT INTO x SELECT a.n, w.n AS m, b.n AS o FROM {with_table} LEFT JOIN b ON a.k = b.k AND {BAND}"
    )


ASOF = "SELECT a.n, b.n AS m FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k"
CHAIN = (
    f"SELECT a.n FROM a JOIN b ON a.k = b.k AND {BAND} JOIN c ON c.n = b.n AND c.t BETWEEN a.t AND a.t + 9"
)
HEAVIEST = "SET max_rows = 9; SET at_limit = shed_heaviest;"
WINDOWS = "SELECT window_end, count(*) AS c FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 9)) GROUP BY 1"


def test_asof_joins_and_delta_joins_shed_the_oldest():
    plan_with_shedding(f"INSERT INTO x {ASOF}")
    plan_with_shedding(
        f"INSERT INTO x {CHAIN}", "SET plan = delta; SET max_bytes = 9; SET at_limit = shed_oldest;"
    )


@pytest.mark.parametrize(
    ("query", "settings", "why"),
    [
        (
            ASOF,
            HEAVIEST,
            "ASOF join, which might match a more distant row .* use shed_oldest",
        ),
        (ASOF, "SET max_rows_per_key = 9; SET at_limit = shed_oldest;", "ASOF join.* at max_rows_per_key"),
        (CHAIN, f"SET plan = delta; {HEAVIEST}", "delta join.* by several keys.*SET plan = 'cascade'"),
        (
            CHAIN.replace("JOIN c ON c.n = b.n AND c.t BETWEEN a.t AND a.t + 9", "JOIN p ON p.k = b.k"),
            "SET plan = delta; SET max_rows = 9; SET at_limit = shed_oldest;",
            "emits changes.* later rows would miss a shed row of a table",
        ),
        (WINDOWS, "SET max_rows = 9; SET at_limit = shed_oldest;", "aggregates: shed rows would be missing"),
        (
            "SELECT p.k, count(*) AS c FROM p GROUP BY p.k EMIT CHANGES",
            "SET max_rows = 9; SET at_limit = shed_oldest;",
            "emits changes: results of a shed row could never",
        ),
        (f"{JOIN} EMIT CHANGES", "SET max_job_rows = 9; SET at_limit = shed_oldest;", "emits changes"),
    ],
)
def test_what_cannot_be_shed_is_refused(query, settings, why):
    with pytest.raises(WatersmeetError, match=why) as raised:
        plan_with_shedding(f"INSERT INTO x {query}", settings)
    assert raised.value.code == "not-shed"
    assert raised.value.hint


LIMITED = DECLARED.replace("'memory');", "'memory', 'max_rows' = '7');", 1)


def test_a_query_that_has_no_row_of_the_limited_source_may_be_any():
    """A window over another one, in the same job; but none over rows of that source."""
    settings = "SET at_limit = shed_oldest;"
    windows = "INSERT INTO y " + WINDOWS.replace("TABLE a", "TABLE c")
    plan_job(parse_job(f"{settings} {LIMITED} INSERT INTO x {JOIN}; {windows}"))
    over_join = f"""
        CREATE VIEW j AS SELECT a.t, a.n FROM a JOIN b ON a.k = b.k AND {BAND};
        INSERT INTO y {WINDOWS.replace("TABLE a", "TABLE j")}"""
    with pytest.raises(WatersmeetError, match="aggregates: shed rows would be missing") as raised:
        plan_job(parse_job(f"{settings} {LIMITED} {over_join}"))
    assert raised.value.code == "not-shed"


TWO_TIMES = """
CREATE TABLE l (k STRING, n BIGINT, t TIMESTAMP,
  WATERMARK FOR n AS n - 5, WATERMARK FOR t AS t - INTERVAL '1' DAY) WITH ('connector' = 'memory');
CREATE TABLE r (k STRING, t TIMESTAMP, n BIGINT,
  WATERMARK FOR t AS t - INTERVAL '1' DAY, WATERMARK FOR n AS n - 5) WITH ('connector' = 'memory');
"""
BY_N = "r.n BETWEEN l.n - 9 AND l.n + 9"
BY_T = "r.t BETWEEN l.t - INTERVAL '3' DAYS AND l.t + INTERVAL '3' DAYS"


@pytest.mark.parametrize("on", [f"{BY_N} AND {BY_T}", f"{BY_T} AND {BY_N}"])
def test_rows_are_old_by_times_that_are_compared(on):
    """Not by the first of each side, which are a number and a TIMESTAMP."""
    join = (
        plan_with_shedding(f"{TWO_TIMES} INSERT INTO x SELECT l.n FROM l JOIN r ON l.k = r.k AND {on}")
        .queries[0]
        .root
    )
    left, right = join.ages
    assert left == right


def test_times_that_are_not_compared_say_of_none_that_it_is_older():
    on = "l.k = r.k AND r.n <= l.n + 9 AND r.t >= l.t - INTERVAL '3' DAYS"
    query = f"{TWO_TIMES} INSERT INTO x SELECT l.n FROM l JOIN r ON {on}"
    plan_with_shedding(query, "SET max_rows = 9; SET at_limit = shed_heaviest;")
    with pytest.raises(
        WatersmeetError, match=r"by times that it does not compare.*; shed_heaviest does"
    ) as raised:
        plan_with_shedding(query)
    assert raised.value.code == "not-shed"


def test_inputs_of_a_delta_join_are_old_by_times_that_are_compared():
    third = TWO_TIMES[TWO_TIMES.index("CREATE TABLE r") :].replace("TABLE r", "TABLE s")
    settings = "SET plan = delta; SET max_rows = 9; SET at_limit = shed_oldest;"
    on_s = (
        "s.n BETWEEN l.n - 9 AND l.n + 9 AND s.t BETWEEN l.t - INTERVAL '3' DAYS AND l.t + INTERVAL '3' DAYS"
    )
    join = f"SELECT l.n FROM l JOIN r ON l.k = r.k AND {BY_T} AND {BY_N} JOIN s ON s.k = r.k AND {on_s}"
    arranged, *_ = plan_with_shedding(f"{TWO_TIMES} {third} INSERT INTO x {join}", settings).queries[0].nodes
    assert arranged.ages in (("n", "n", "n"), ("t", "t", "t"))
    apart = """SELECT l.n FROM l JOIN r ON l.k = r.k AND r.n <= l.n + 9 AND r.t >= l.t - INTERVAL '3' DAYS
      JOIN s ON s.k = r.k AND s.n <= l.n + 9 AND s.t >= l.t - INTERVAL '3' DAYS
        AND s.t BETWEEN r.t - INTERVAL '3' DAYS AND r.t + INTERVAL '3' DAYS"""
    with pytest.raises(
        WatersmeetError, match="has inputs whose rows it evicts by times that it does not compare"
    ):
        plan_with_shedding(f"{TWO_TIMES} {third} INSERT INTO x {apart}", settings)


def test_the_oldest_of_a_chain_count_for_the_job():
    """Joined rows have the times of their inputs."""
    plan_with_shedding(
        f"INSERT INTO x {CHAIN}", "SET plan = cascade; SET max_job_rows = 9; SET at_limit = shed_oldest;"
    )


def test_the_heaviest_key_needs_a_key():
    heaviest = "SET max_rows = 9; SET at_limit = shed_heaviest;"
    plan_with_shedding(f"INSERT INTO x {JOIN}", heaviest)
    with pytest.raises(WatersmeetError, match="without an equality key"):
        plan_with_shedding(f"INSERT INTO x SELECT a.n FROM a JOIN b ON {BAND}", heaviest)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            "SET max_rows = 9; SET at_limit = shed_oldest",
            ["of more rows the oldest are shed: they match no more rows and are not emitted unmatched"],
        ),
        (
            "SET max_bytes = 9; SET at_limit = shed_heaviest",
            ["of more rows those of the heaviest keys are shed: they match no more rows and are not"],
        ),
        (
            "SET max_rows_per_key = 9; SET max_output_rows_per_tick = 8; SET at_limit = shed_oldest",
            [
                "of more rows of one key the oldest of it are shed on that side: they match no more rows",
                "no rows are shed at max_output_rows_per_tick: more stops the job",
            ],
        ),
        (
            "SET max_rows_per_key = 9; SET max_job_bytes = 8; SET at_limit = shed_heaviest",
            [
                "of more rows of one key all of it are shed on that side: they match no more rows",
                'of more rows of the source "a" those of the heaviest keys are shed, whichever joins',
                "of more rows of the whole job those of the heaviest keys are shed, whichever joins",
            ],
        ),
    ],
)
def test_which_limits_shed_and_which_stop(settings, told):
    declared = DECLARED
    if "job_bytes" in settings:
        declared = declared.replace("'memory');", "'memory', 'max_rows' = '7');", 1)
    text = explain(plan_job(parse_job(f"{settings}; {declared} INSERT INTO x {JOIN}")))
    for line in told:
        assert line in text
    assert text.count("are shed") == len(told)


def test_without_a_limit_nothing_would_be_shed():
    """The number of rows that go out says nothing of rows that are kept, nor does a table's copy."""
    with_table = "SELECT a.n, w.n AS m FROM a JOIN w FOR SYSTEM_TIME AS OF PROCTIME() ON w.k = a.k"
    of_w = "w (k STRING, n BIGINT) WITH ('connector' = 'memory'"
    limited = DECLARED.replace(of_w, f"{of_w}, 'max_rows' = '9'")
    for settings, declared, query in (
        ("SET max_output_rows_per_tick = 9;", DECLARED, JOIN),
        ("", limited, with_table),
    ):
        with pytest.raises(WatersmeetError, match="needs a limit, but none is set") as raised:
            plan_job(parse_job(f"SET at_limit = shed_oldest; {settings} {declared} INSERT INTO x {query}"))
        assert raised.value.code == "bad-setting"


def test_job_limit_rejects_shedding_across_time_units():
    timed = """
    CREATE TABLE d (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' DAY)
      WITH ('connector' = 'memory');
    INSERT INTO y SELECT d.k, e.t FROM d JOIN d e ON d.k = e.k AND e.t BETWEEN d.t AND d.t + INTERVAL '1' DAY;
    """
    both = f"INSERT INTO x {JOIN}; {timed}"
    plan_with_shedding(both, "SET max_rows = 9; SET at_limit = shed_oldest;")
    plan_with_shedding(both, "SET max_job_rows = 9; SET at_limit = shed_heaviest;")
    with pytest.raises(WatersmeetError, match="max_job_rows covers rows with integer times and") as raised:
        plan_with_shedding(both, "SET max_job_rows = 9; SET at_limit = shed_oldest;")
    assert raised.value.code == "not-shed"


def test_queries_that_shed_keep_files_of_their_own():
    both = f"INSERT INTO x {JOIN}; INSERT INTO y {JOIN.replace('+ 9', '+ 5')};"
    assert any(side.sharers for query in plan_with_shedding(both, "").queries for side in query.sides)
    assert not any(side.sharers for query in plan_with_shedding(both).queries for side in query.sides)


@pytest.mark.parametrize("setting", ["late_output", "broken_output", "shed_output", "progress_output"])
def test_side_output_needs_a_sink_of_the_job(setting):
    with pytest.raises(WatersmeetError, match=f'{setting} = "xx", but this job has no such sink') as raised:
        plan_with_shedding(f"SET {setting} = xx; INSERT INTO x {JOIN}")
    assert raised.value.code == "unknown-sink"
    plan_with_shedding(f"SET {setting} = y; INSERT INTO x {JOIN}")


def test_a_job_that_keeps_nothing_may_say_so():
    plan_with_shedding("INSERT INTO x SELECT a.n FROM a")
