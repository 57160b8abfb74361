"""Whole jobs on Spark over directories of files: SQL in, rows in a memory sink out."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections import Counter

import duckdb
import pytest

from tests.support.effort import at_effort
from tests.support.phases import PHASES
from watersmeet.errors import EngineError, SpecError, StateError, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.sinks.memory import MemorySink
from watersmeet.state.commits import Commits

pytestmark = pytest.mark.spark

ORDERS = """
CREATE MAPPING orders (order_id BIGINT, order_time TIMESTAMP, item_id BIGINT)
  TYPE File OPTIONS ('path' = '{path}/orders', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING deliveries (delivery_id BIGINT, order_id BIGINT, delivery_time TIMESTAMP)
  TYPE File OPTIONS ('path' = '{path}/deliveries', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE VIEW o AS SELECT * FROM
  TABLE(IMPOSE_ORDER(TABLE orders, DESCRIPTOR(order_time), INTERVAL '0' SECONDS));
CREATE VIEW d AS SELECT * FROM
  TABLE(IMPOSE_ORDER(TABLE deliveries, DESCRIPTOR(delivery_time), INTERVAL '0' SECONDS));
CREATE MAPPING delivered TYPE Memory;
CREATE MAPPING aside TYPE Memory;
"""
LEFT = """
INSERT INTO delivered SELECT o.order_id, d.delivery_id, o.item_id + 1 AS next_item FROM o LEFT JOIN d
  ON d.order_id = o.order_id AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
"""


@pytest.fixture
def job(spark, tmp_path):
    """Runs the job of a SQL text over ``tmp_path``; a new memory sink for every test."""
    from watersmeet.runtime.spark.job.run import build_outputs, run
    from watersmeet.runtime.spark.job.settings import RunSettings

    MemorySink.clear()
    for name in ("orders", "deliveries"):
        (tmp_path / name).mkdir()

    def runner(sql=ORDERS + LEFT, *, checkpoint="checkpoint", **settings):
        asked = parse_job(sql.format(path=tmp_path))
        plan = plan_job(asked)
        chosen = RunSettings(
            str(tmp_path / checkpoint), **{"until_caught_up": True, "partitions": 2, **settings}
        )
        return run(spark, plan, chosen, build_outputs(asked, plan, chosen))

    return runner


@pytest.fixture
def put(tmp_path):
    """Appends a file of records to a source's directory."""

    def write(source: str, *records) -> None:
        folder = tmp_path / source
        staged = tmp_path / f".{source}"
        staged.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
        number = len(list(folder.iterdir()))
        os.utime(staged, (1.6e9 + number, 1.6e9 + number))  # Spark reads the oldest first
        staged.rename(folder / f"{number:04d}.json")

    return write


def order(number: int, at: str, item: int = 100) -> dict:
    return {"order_id": number, "order_time": f"2022-03-01T{at}Z", "item_id": item}


def delivery(number: int, of: int, at: str) -> dict:
    return {"delivery_id": number, "order_id": of, "delivery_time": f"2022-03-01T{at}Z"}


def rows(sink: str = "delivered") -> Counter:
    return Counter(tuple(row.values()) for row in MemorySink.rows(sink))


def test_orders_meet_their_deliveries_and_the_rest_is_padded_once(job, put):
    put("orders", order(1, "10:00:00"), order(2, "11:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    job()
    assert rows() == {(1, 1, 101): 1}
    put("deliveries", delivery(2, 7, "12:30:00"))
    put("orders", order(3, "12:00:00"))
    result = job()
    assert rows() == {(1, 1, 101): 1, (2, None, 101): 1}
    assert not result.finished
    result = job(finish=True)
    assert result.finished
    assert rows() == {(1, 1, 101): 1, (2, None, 101): 1, (3, None, 101): 1}
    account = result.last.queries[next(iter(result.last.queries))].account
    assert account["o"] == {"in": 3, "matched": 1, "padded": 2, "retained": 0}


def test_a_finished_job_takes_no_more_and_finishing_twice_is_nothing(job, put):
    put("orders", order(1, "10:00:00"))
    job(finish=True)
    assert job(finish=True).ticks == 0
    with pytest.raises(StateError, match="finished"):
        job()


def test_an_end_of_input_that_was_intended_is_made_up_for(job, put, tmp_path, monkeypatch):
    from watersmeet.runtime.spark.tick.tick import SparkTicks

    put("orders", order(1, "10:00:00"))
    plain = SparkTicks.run

    def killed(self, driver, reading, host, given):
        if given.end:
            raise EngineError("killed", code="test")
        return plain(self, driver, reading, host, given)

    with monkeypatch.context() as patched:
        patched.setattr(SparkTicks, "run", killed)
        with pytest.raises(EngineError, match="killed"):
            job(finish=True)
    assert rows() == {}
    assert job().finished
    assert rows() == {(1, None, 101): 1}


def test_a_run_that_ended_is_not_kept_by_the_session(job, put):
    from pyspark.sql.streaming import StreamingQuery

    def queries():
        gc.collect()
        return {one.runId for one in gc.get_objects() if isinstance(one, StreamingQuery)}

    before = queries()
    put("orders", order(1, "10:00:00"))
    assert job().ticks == 1
    assert queries() <= before


@pytest.mark.parametrize("where", [pytest.param("conclude", marks=pytest.mark.full), "commit"])
def test_a_tick_that_dies_is_repeated_with_nothing_doubled(job, put, monkeypatch, where):
    put("orders", order(1, "10:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    with monkeypatch.context() as patched:

        def dies(*args, **kwargs):
            raise EngineError("killed", code="test")

        patched.setattr(PHASES[where], where, dies)
        with pytest.raises(EngineError, match="killed"):
            job()
    job()
    assert rows() == {(1, 1, 101): 1}


def test_a_batch_that_was_committed_is_skipped(job, put, tmp_path):
    put("orders", order(1, "10:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    job()
    commits = tmp_path / "checkpoint/spark/commits"
    for file in [*commits.iterdir()]:
        file.unlink()
    result = job()
    assert (result.ticks, rows()) == (0, {(1, 1, 101): 1})


def test_a_lost_part_of_the_checkpoint_is_refused(job, put, tmp_path):
    put("orders", order(1, "10:00:00"))
    job()
    kept = tmp_path / "kept"
    for part, code in (("spark", "spark-checkpoint-lost"), ("state", "state-lost")):
        shutil.copytree(tmp_path / "checkpoint", kept, dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "checkpoint" / part)
        with pytest.raises(StateError) as refused:
            job()
        assert refused.value.code == code
        assert refused.value.hint
        shutil.copytree(kept, tmp_path / "checkpoint", dirs_exist_ok=True)
    job()  # whole again


def test_another_padded_side_is_refused(job, put):
    put("orders", order(1, "10:00:00"))
    job()
    swapped = """
    INSERT INTO delivered SELECT o.order_id, d.delivery_id, o.item_id + 1 AS next_item
      FROM d LEFT JOIN o ON d.order_id = o.order_id
      AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
    """
    with pytest.raises(StateError):
        job(ORDERS + swapped)


def test_broken_and_late_records_are_counted_and_kept(job, put):
    put("orders", order(1, "10:00:00"), "{not json", {**order(9, "10:00:00"), "order_id": "x"})
    put("orders", order(2, "11:00:00"))
    put("orders", order(3, "10:30:00"), order(4, "11:00:00"), {"order_id": 5})
    kept = "SET late_output = aside; SET broken_output = aside;"
    notes: list[str] = []
    result = job(kept + ORDERS + LEFT, finish=True, on_notice=notes.append)
    (said,) = (note for note in notes if "did not parse" in note)
    assert said.startswith('"orders": 2 of 3 records of tick 1 did not parse')
    assert "for example {" in said
    assert ("the value is 'x': declare it STRING" in said) or "it is not a JSON object" in said
    account = result.last.queries[next(iter(result.last.queries))].account["o"]
    assert account == {"in": 7, "broken": 2, "late": 1, "null_time": 1, "padded": 3, "retained": 0}
    kept = {(row["stream"], row["reason"]): row["record"] for row in MemorySink.rows("aside")}
    assert json.loads(kept["orders", "late"])["order_id"] == 3
    assert json.loads(kept["orders", "null_time"]) == {"order_id": 5, "order_time": None, "item_id": None}
    assert len(MemorySink.rows("aside")) == 4


def test_a_tick_in_which_no_record_parses_is_told_of_even_after_others(job, put):
    put("orders", order(1, "10:00:00"), "{not json")
    put("orders", "{neither \x1b[2J", "{nor \x1b[2J")
    put("orders", "{this")
    notes: list[str] = []
    job(ORDERS + LEFT, on_notice=notes.append)
    assert "\x1b" not in "".join(notes)
    told = [note.partition(" did")[0] for note in notes if "did not parse" in note]
    assert told == ['"orders": 1 of 2 records of tick 1', '"orders": 2 of 2 records of tick 2']


def test_a_source_none_of_whose_records_parses_stops_the_job(job, put):
    put("orders", *({**order(n, "10:00:00"), "order_time": "01/03/2026 00:00:13"} for n in range(120)))
    said = r'source "orders": none of the first 120 records .* for example .*01/03/2026'
    with pytest.raises(EngineError, match=said) as refused:
        job(ORDERS + LEFT)
    assert refused.value.code == "all-records-broken"
    assert "'on_broken' = 'count'" in (refused.value.hint or "")
    option = "'timestampFormat' = 'dd/MM/yyyy HH:mm:ss'"
    assert (
        f"order_time is TIMESTAMP, but the value is '01/03/2026 00:00:13': {option}" in refused.value.message
    )
    result = job(
        ORDERS.replace("'json', 'maxFiles", f"'json', {option}, 'maxFiles", 1) + LEFT, checkpoint="b"
    )
    assert result.last.queries[next(iter(result.last.queries))].account["o"]["in"] == 120
    assert not result.last.broken
    counting = ORDERS.replace("'json', 'maxFiles", "'json', 'on_broken' = 'count', 'maxFiles", 1)
    put("orders", order(1, "11:00:00"))
    result = job(counting + LEFT)
    account = result.last.queries[next(iter(result.last.queries))].account["o"]
    assert (account["in"], account["broken"]) == (121, 120)


@pytest.mark.parametrize("good", [0, pytest.param(1, marks=pytest.mark.full)])
def test_few_broken_records_or_a_good_one_among_many_let_the_job_go_on(job, put, good):
    put("orders", *(order(n, "10:00:00") for n in range(good)), *["{not json"] * (99 + 100 * good))
    put("orders", *["{not json"] * 200)
    if not good:  # and there is nothing else
        with pytest.raises(EngineError, match="none of the first 299 records") as refused:
            job(ORDERS + LEFT)
        assert refused.value.code == "all-records-broken"
        put("orders", order(1, "10:00:00"))
    result = job(ORDERS + LEFT)
    account = result.last.queries[next(iter(result.last.queries))].account["o"]
    assert account["broken"] == 299 + 100 * good


def test_rows_that_are_shed_are_counted_and_kept(job, put):
    put("orders", *(order(number, f"10:0{number}:00") for number in range(6)))
    put("deliveries", delivery(1, 5, "10:40:00"))
    limited = "SET max_job_rows = 2; SET at_limit = shed_oldest; SET shed_output = aside;"
    result = job(limited + ORDERS + LEFT, finish=True)
    of_query = result.last.queries[next(iter(result.last.queries))]
    account = of_query.account["o"]
    shed = MemorySink.rows("aside")
    assert account["in"] == 6
    assert sum(account.values()) == 12, "the account adds up"
    assert account["shed"] + of_query.account["d"].get("shed", 0) == len(shed) > 0
    assert {(row["stream"], row["reason"]) for row in shed} <= {
        ("orders", "shed_oldest"),
        ("deliveries", "shed_oldest"),
    }
    numbers = {json.loads(row["record"])["order_id"] for row in shed if row["stream"] == "orders"}
    assert not numbers & {padded[0] for padded in rows() if padded[1] is None}
    assert json.loads(shed[0]["record"])["order_time"].startswith("20")


def test_joined_rows_that_are_shed_name_the_inputs_that_are_in_them(job, put):
    """At each limit at which rows are shed."""
    sql = """
    INSERT INTO delivered SELECT o.order_id, d.delivery_id, e.delivery_id AS other FROM o
      LEFT JOIN d ON d.order_id = o.order_id
        AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR
      LEFT JOIN d e ON e.order_id = o.order_id
        AND e.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '2' HOURS;
    """
    put("orders", *(order(number % 2, f"10:0{number}:00") for number in range(6)))
    put("deliveries", *(delivery(number, 5 + number % 2, "10:40:00") for number in range(6)))
    put("orders", order(1, "12:30:00"))
    put("deliveries", delivery(9, 1, "12:40:00"))
    limits = ("max_rows = 2", "max_rows_per_key = 1", "max_bytes = '1 KB'")
    for limit in at_effort(quick=limits[:1], full=limits):
        MemorySink.clear()
        limited = f"SET {limit}; SET at_limit = shed_oldest; SET shed_output = aside; SET plan = cascade;"
        result = job(limited + ORDERS + sql, finish=True, checkpoint=limit.split()[0])
        of_query = result.last.queries[next(iter(result.last.queries))]
        shed = MemorySink.rows("aside")
        told = Counter(row["input"].rpartition("/")[2] for row in shed)
        joined = told.pop("o with d", 0)
        assert dict(told) == {a: own["shed"] for a, own in of_query.account.items() if own.get("shed")}
        assert of_query.shed_joined == ({"o with d": joined} if joined else {})
        assert joined or told, limit
        for row in (row for row in shed if row["input"].endswith("o with d")):
            assert row["stream"] == "o with d"
            assert json.loads(row["record"])["o.order_time"].startswith("20")
        for own in of_query.account.values():
            assert own["in"] * 2 == sum(own.values()), (limit, own)


def test_a_self_join_and_a_second_query_share_one_source(job, put):
    put("orders", order(1, "10:00:00", 1), order(2, "10:10:00", 1), order(3, "10:20:00", 2))
    sql = (
        ORDERS
        + """
    INSERT INTO delivered SELECT a.order_id, b.order_id AS next FROM o a JOIN o b ON a.item_id = b.item_id
      AND b.order_time BETWEEN a.order_time + INTERVAL '1' SECOND AND a.order_time + INTERVAL '1' HOUR;
    INSERT INTO aside SELECT a.order_id, b.order_id AS near FROM o a JOIN o b
      ON b.order_time BETWEEN a.order_time - INTERVAL '10' MINUTES AND a.order_time + INTERVAL '10' MINUTES
      AND a.order_id <> b.order_id;
    """
    )
    job(sql, finish=True)
    assert rows() == {(1, 2): 1}
    assert rows("aside") == {(1, 2): 1, (2, 1): 1, (2, 3): 1, (3, 2): 1}


def test_keys_of_two_types_meet(job, put):
    put("orders", order(1, "10:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    sql = (
        ORDERS
        + """
    INSERT INTO delivered SELECT o.order_id, d.delivery_id FROM o JOIN d
      ON CAST(o.order_id AS STRING) = d.order_id AND CAST(-0.0 AS DOUBLE) * o.item_id = 0.0 * d.delivery_id
      AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
    """
    )
    job(sql)
    assert rows() == {(1, 1): 1}


def test_the_result_does_not_depend_on_the_partitions(job, put):
    for hour in range(10, 14):
        put("orders", *(order(hour * 100 + n, f"{hour}:{n:02d}:00") for n in range(40)))
        met = range(0, 40, 2)
        put("deliveries", *(delivery(n, hour * 100 + n, f"{hour}:{n + 5:02d}:00") for n in met))
    seen = []
    counts = at_effort(quick=(1, 5), full=(1, 2, 5))
    for count in counts:
        MemorySink.clear()
        job(checkpoint=f"c{count}", partitions=count, finish=True)
        seen.append(rows())
    assert seen == [seen[0]] * len(counts)
    assert sum(seen[0].values()) == 160


def test_a_path_that_is_not_there_is_named(job, tmp_path):
    shutil.rmtree(tmp_path / "orders")
    with pytest.raises(EngineError, match=r"orders.*does not exist"):
        job()


def test_limits_and_failing_expressions_are_readable(job, put):
    put("orders", order(1, "10:00:00"), order(2, "10:01:00"))
    with pytest.raises(WatersmeetError, match="max_rows"):
        job("SET max_rows = 1;" + ORDERS + LEFT)
    failing = LEFT.replace("o.item_id + 1", "raise_error(concat('bad item ', o.item_id))").replace(
        "LEFT JOIN", "JOIN"
    )
    put("deliveries", delivery(1, 1, "10:40:00"))
    with pytest.raises(EngineError, match="bad item 100") as raised:
        job(ORDERS + failing, checkpoint="second")
    assert "Traceback" not in str(raised.value)
    assert "\tat " not in str(raised.value)


@pytest.mark.full
def test_a_generator_gives_the_same_rows_again(job):
    sql = """
    CREATE MAPPING left_side (t TIMESTAMP, k BIGINT, v DOUBLE) TYPE Generator
      OPTIONS ('rate' = '100', 'keys' = '10', 'disorder' = '2', 'rows' = '250', 'seed' = '7');
    CREATE MAPPING right_side (t TIMESTAMP, k BIGINT) TYPE Generator
      OPTIONS ('rate' = '100', 'keys' = '10', 'rows' = '250');
    CREATE MAPPING delivered TYPE Memory;
    INSERT INTO delivered SELECT a.t, a.k, a.v, b.t AS u
    FROM TABLE(IMPOSE_ORDER(TABLE left_side, DESCRIPTOR(t), INTERVAL '2' SECONDS)) a
    JOIN TABLE(IMPOSE_ORDER(TABLE right_side, DESCRIPTOR(t), INTERVAL '2' SECONDS)) b
      ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL '1' SECOND AND a.t + INTERVAL '1' SECOND;
    """
    job(sql, checkpoint="first")
    first = rows()
    assert sum(first.values()) > 1000
    MemorySink.clear()
    result = job(sql, checkpoint="second", finish=True)
    assert rows() == first
    account = result.last.queries[next(iter(result.last.queries))].account
    assert {alias: counts["in"] for alias, counts in account.items()} == {"a": 250, "b": 250}


def test_a_trigger_that_is_none_is_refused(job):
    with pytest.raises(SpecError, match="trigger"):
        job(trigger="now and then")


def test_stopping_lets_the_tick_finish_and_the_next_run_goes_on(spark, put, tmp_path):
    from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
    from watersmeet.runtime.spark.job.run import JobRun, build_outputs
    from watersmeet.runtime.spark.job.settings import RunSettings

    MemorySink.clear()
    (tmp_path / "orders").mkdir()
    (tmp_path / "deliveries").mkdir()
    put("orders", order(1, "10:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    asked = parse_job((ORDERS + LEFT).format(path=tmp_path))
    plan = plan_job(asked)

    def stop(result, seconds, parts):
        current.stop()

    checkpoint = str(tmp_path / "checkpoint")
    settings = RunSettings(checkpoint, trigger="100 milliseconds", on_tick=stop)
    current = JobRun(spark, plan, settings, build_outputs(asked, plan, settings), Checkpoint(checkpoint))
    result = current.execute()
    assert (result.stopped, result.ticks) == (True, 1)
    assert rows() == {(1, 1, 101): 1}


def test_a_directory_that_stays_empty_holds_windows_until_it_is_idle(spark, put, tmp_path):
    from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
    from watersmeet.runtime.spark.job.run import JobRun, build_outputs
    from watersmeet.runtime.spark.job.settings import RunSettings

    MemorySink.clear()
    for name in ("orders", "deliveries"):
        (tmp_path / name).mkdir()
    put("orders", order(1, "10:00:00"), order(2, "12:00:00"))
    windows = """
    INSERT INTO delivered SELECT count(*) AS n, hour(u.window_start) AS h FROM TABLE(TUMBLE(TABLE (
      SELECT order_time AS t FROM o UNION ALL SELECT delivery_time FROM d), DESCRIPTOR(t),
      INTERVAL '1' HOUR)) u
    GROUP BY u.window_start;"""
    declared = ORDERS.replace("'format' = 'json'", "'format' = 'json', 'idle_timeout' = '2 seconds'")
    asked = parse_job((declared + windows).format(path=tmp_path))
    plan = plan_job(asked)
    held = []

    def watched(result, seconds, parts):
        held.append([each.source for each in next(iter(result.queries.values())).holding["u"]])
        if rows() or len(held) == 5:
            current.stop()

    checkpoint = str(tmp_path / "checkpoint")
    settings = RunSettings(checkpoint, trigger="100 milliseconds", on_tick=watched)
    current = JobRun(spark, plan, settings, build_outputs(asked, plan, settings), Checkpoint(checkpoint))
    current.execute()
    assert rows() == {(1, 10): 1}
    assert held == [["deliveries"], []]


def test_an_interrupted_tick_is_repeated_as_it_was_or_not_at_all(job, put, monkeypatch):
    put("orders", order(1, "10:00:00"), order(2, "18:00:00"))
    put("deliveries", delivery(1, 7, "18:00:00"))
    with monkeypatch.context() as patched:

        def dies(*args, **kwargs):
            raise EngineError("killed", code="test")

        patched.setattr(PHASES["commit"], "commit", dies)
        with pytest.raises(EngineError, match="killed"):
            job()
    changed = (ORDERS + LEFT).replace("INTERVAL '0' SECONDS", "INTERVAL '9' HOURS")
    with pytest.raises(StateError, match="interrupted-tick") as refused:
        job(changed)
    for said in ("lag of o.order_time", "32400000000 now", "has rows of tick 1", "--until-caught-up"):
        assert said in str(refused.value)
    with pytest.raises(StateError, match=r'interrupted-tick\W.*columns of "delivered"'):
        job((ORDERS + LEFT).replace(", o.item_id + 1 AS next_item", ""))
    with pytest.raises(
        StateError, match=r"source \"orders\": max_ahead_us: 31536000000000 before, 86400000000 now"
    ):
        job((ORDERS + LEFT).replace("'maxFilesPerTrigger' = '1'", "'max_ahead' = '1 day'", 1))
    more_files = (ORDERS + LEFT).replace("'maxFilesPerTrigger' = '1'", "'maxFilesPerTrigger' = '9'")
    job(more_files)  # of that rows do not depend
    assert rows() == {(1, None, 101): 1}
    job(changed, finish=True)
    assert rows() == {(1, None, 101): 1, (2, None, 101): 1}


def test_an_interrupted_tick_of_which_nothing_is_out_may_be_made_in_another_way(job, put, monkeypatch):
    put("orders", order(1, "10:00:00"), order(2, "18:00:00"))
    put("deliveries", delivery(1, 7, "18:00:00"))
    with monkeypatch.context() as patched:

        def dies(*args, **kwargs):
            raise EngineError("killed", code="test")

        patched.setattr(PHASES["conclude"], "conclude", dies)
        with pytest.raises(EngineError, match="killed"):
            job()
    job((ORDERS + LEFT).replace("INTERVAL '0' SECONDS", "INTERVAL '9' HOURS"))
    assert rows() == {}
    job((ORDERS + LEFT).replace("INTERVAL '0' SECONDS", "INTERVAL '9' HOURS"), finish=True)
    assert rows() == {(1, None, 101): 1, (2, None, 101): 1}


def test_a_restored_checkpoint_does_not_take_newer_parts_for_its_own(job, put, tmp_path):
    """A copy of the checkpoint is put back, and by then there is more to be read than in the tick that the
    sink has a part of."""
    sql = (ORDERS + LEFT).replace(
        "delivered TYPE Memory", "delivered TYPE File OPTIONS ('path' = '{path}/out')"
    )
    sql = sql.replace(", 'maxFilesPerTrigger' = '1'", "")

    def found():
        read = duckdb.sql(f"SELECT order_id, delivery_id FROM read_parquet('{tmp_path}/out/*.parquet')")
        return Counter(read.fetchall())

    put("orders", order(1, "10:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    job(sql)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    put("orders", order(2, "11:00:00"))
    put("deliveries", delivery(2, 2, "11:40:00"))
    job(sql)
    assert found() == {(1, 1): 1, (2, 2): 1}
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    put("orders", order(3, "12:00:00"))
    put("deliveries", delivery(3, 3, "12:40:00"))
    with pytest.raises(EngineError, match="sink-ahead") as refused:
        job(sql)
    assert "tick 2" in str(refused.value)
    assert "--replace-newer-files" in refused.value.hint
    said = []
    job(sql, replace_newer_files=True, on_notice=said.append, finish=True)
    assert found() == {(1, 1): 1, (2, 2): 1, (3, 3): 1}
    assert "a part of" in said[0]


def test_queries_come_to_a_job_that_ran_and_go(job, put, tmp_path, monkeypatch):
    """One stays and goes on; one comes and meets what that retains; one goes and leaves its sink as it is."""
    sinks = ORDERS.replace(
        "delivered TYPE Memory", "delivered TYPE File OPTIONS ('path' = '{path}/delivered')"
    )
    sinks += "".join(
        f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = '{{path}}/{name}');" for name in ("first", "late")
    )
    on = "x.order_id = y.order_id AND y.delivery_time"
    on += " BETWEEN x.order_time AND x.order_time + INTERVAL '1' HOUR"
    first = f"INSERT INTO first SELECT y.delivery_id, x.order_id FROM o x JOIN d y ON {on};"
    late = f"INSERT INTO late SELECT x.item_id, y.delivery_id FROM o x FULL JOIN d y ON {on};"

    def failing(*_):
        raise OSError("power went")

    def found(name):
        files = list((tmp_path / name).rglob("*.parquet"))
        if not files:
            return Counter()
        return Counter(duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/{name}/*.parquet')").fetchall())

    put("orders", order(1, "10:00:00", 7), order(2, "10:00:00", 8))
    put("deliveries", delivery(1, 1, "10:10:00"))
    job(sinks + LEFT + first)
    assert found("first") == {(1, 1): 1}
    with pytest.raises(StateError, match='"late" is new; "first" is not in the job'):
        job(sinks + LEFT + late)
    said = []
    put("orders", order(3, "10:20:00", 9))
    put("deliveries", delivery(2, 2, "10:30:00"), delivery(3, 3, "10:30:00"))
    with monkeypatch.context() as patched:
        patched.setattr(Commits, "commit", failing)
        with pytest.raises(WatersmeetError, match="power went"):  # before the tick that says what changed
            job(sinks + LEFT + late, change_queries=True)
    with pytest.raises(StateError, match='"late" is new; "first" is not in the job'):
        job(sinks + LEFT + late)
    job(sinks + LEFT + late, change_queries=True, on_notice=said.append)
    assert any('"first" is no longer in the job' in text for text in said), said
    assert any('"late" starts with 2 retained rows of x' in text for text in said), said
    put("deliveries", delivery(4, 1, "10:50:00"), delivery(5, 77, "10:50:00"))
    with monkeypatch.context() as patched:
        patched.setattr(Commits, "commit", failing)
        with pytest.raises(WatersmeetError, match="power went"):  # rows are out
            job(sinks + LEFT + late)
    with pytest.raises(StateError, match="interrupted"):
        job(sinks + late, change_queries=True)
    job(sinks + LEFT + late)
    job(sinks + late, change_queries=True)  # there is nothing new, and it is remembered
    job(sinks + late + first, change_queries=True)  # it comes back, to a sink that has parts of it
    put("deliveries", delivery(6, 3, "10:50:30"))
    job(sinks + late + first, finish=True)
    assert found("late") == {(8, 2): 1, (9, 3): 1, (7, 4): 1, (None, 5): 1, (9, 6): 1}
    assert found("delivered") == {(1, 1, 8): 1, (2, 2, 9): 1, (3, 3, 10): 1, (1, 4, 8): 1}
    assert found("first") == {(1, 1): 1, (6, 3): 1}


def test_a_key_whose_type_only_spark_knows(job, put):
    sql = ORDERS.replace(
        "CREATE VIEW o AS SELECT * FROM",
        "CREATE VIEW o AS SELECT order_id, order_time, item_id, mask(CAST(order_id AS STRING)) AS m FROM",
    ).replace(
        "CREATE VIEW d AS SELECT * FROM",
        "CREATE VIEW d AS SELECT delivery_id, delivery_time, mask(CAST(order_id AS STRING)) AS m FROM",
    )
    put("orders", order(1, "10:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"))
    job(
        sql + "INSERT INTO delivered SELECT o.order_id, d.delivery_id FROM o JOIN d ON o.m = d.m "
        "AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;"
    )
    assert rows() == {(1, 1): 1}


def test_options_of_files_whatever_their_letters(job, tmp_path):
    sql = (ORDERS + LEFT).replace(
        "'path' = '{path}/orders', 'format' = 'json'",
        "'PATH' = '{path}/orders', 'Format' = 'csv', 'Header' = 'false'",
    )
    (tmp_path / "orders" / "a.csv").write_text("1,2022-03-01T10:00:00Z,100\n2,2022-03-01T10:00:00Z,100\n")
    assert job(sql, finish=True).finished
    assert rows() == {(1, None, 101): 1, (2, None, 101): 1}


def test_a_union_of_a_join_and_a_stream(job, put):
    """Columns of a branch are computed where they can be: sha2 by Spark, of one input; coalesce by the tasks,
    of both; and a time of either has one type. The state of the join is found again by the next run."""
    sql = (
        ORDERS
        + """
    INSERT INTO delivered SELECT u.at, u.hash, u.number FROM (
      SELECT coalesce(d.delivery_time, o.order_time) AS at, sha2(CAST(o.order_id AS STRING), 256) AS hash,
             d.delivery_id AS number
      FROM o LEFT JOIN d ON d.order_id = o.order_id
        AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR
      UNION ALL SELECT delivery_time, 'none', 0 - delivery_id FROM d WHERE order_id = 9) u
    WHERE u.number IS NULL OR u.number <> -3;
    """
    )
    put("orders", order(1, "10:00:00"), order(2, "11:00:00"))
    put("deliveries", delivery(1, 1, "10:40:00"), delivery(2, 9, "10:50:00"), delivery(3, 9, "10:55:00"))
    job(sql)
    put("deliveries", delivery(4, 7, "12:30:00"))
    result = job(sql, finish=True)
    found = {(f"{row['at']:%H:%M}", row["hash"][:4], row["number"]) for row in MemorySink.rows("delivered")}
    assert found == {("10:40", "6b86", 1), ("10:50", "none", -2), ("11:00", "d473", None)}
    assert len(MemorySink.rows("delivered")) == 3
    account = result.last.queries[next(iter(result.last.queries))].account
    assert account["u"] == {"in": 4, "beneath": 2, "passed": 4, "retained": 0}
    assert account["u.1.o"] == {"in": 2, "matched": 1, "padded": 1, "retained": 0}


def test_a_tick_that_failed_before_any_row_was_shown_is_made_as_the_next_run_is_set(job, put, capsys):
    """The console cannot be asked; what failed by an expression or a limit it has not shown."""
    put("orders", *(order(number, f"10:0{number}:00") for number in range(6)))
    put("deliveries", delivery(1, 5, "10:40:00"))
    shown = ORDERS.replace("delivered TYPE Memory", "delivered TYPE Console")
    with pytest.raises(EngineError) as error:
        job(shown + LEFT.replace("d.delivery_id", "CAST(concat('x', d.delivery_id) AS INT) AS delivery_id"))
    assert error.value.code == "condition-failed"
    with pytest.raises(EngineError) as error:
        job("SET max_rows = 1;" + shown + LEFT)
    assert error.value.code == "max-rows"
    assert "tick 1" not in capsys.readouterr().out
    assert job("SET max_rows = 1; SET at_limit = shed_oldest;" + shown + LEFT).ticks > 0
    assert "delivered, tick 1" in capsys.readouterr().out
