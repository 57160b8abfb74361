"""What is looked at now and then is what the state says, by plain loops over its rows; and what is written
down of a plan."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import watersmeet
from tests.support.recorded import RecordedJob
from watersmeet.history.plan_document import Drawing, SideFiles, limits_of
from watersmeet.history.points import subject_of
from watersmeet.history.reader import read
from watersmeet.history.recorder import MAX_SAMPLED_PARTITIONS, SAMPLE_US, TickSampler
from watersmeet.state.store import MemoryStore

TEXT = """
    SET max_rows = 10000; SET max_bytes = '1 MB'; SET max_job_rows = 15000;
    CREATE TABLE a (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
      WITH ('connector' = 'memory', 'rows_per_second' = '10', 'max_rows' = '7000');
    CREATE TABLE b (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    CREATE SINK one WITH ('connector' = 'memory');
    CREATE SINK two WITH ('connector' = 'memory');
    INSERT INTO one SELECT x.k, x.t, y.t AS u FROM a x JOIN b y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 90
      WHERE x.k + y.k > 3;
    INSERT INTO two SELECT x.k FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 9"""
CAUGHT_UP = SimpleNamespace(finished=False, stopped=False)
PARTITIONS = 1_000


def test_history_samples_the_slowest_partitions_and_counts_all():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)
    greatest = {str(n): 10_000 - n * n % 997 for n in range(PARTITIONS)}
    with job.run(CAUGHT_UP):
        for name, time in greatest.items():
            job.job.push("a", [{"k": 1, "t": time - 1}, {"k": 1, "t": time}], partition=name)
        job.tick(1, {"b": [{"k": 1, "t": 1}]})
        job.tick(2, {})
        job.tick(2 + SAMPLE_US, {"b": [{"k": 2, "t": 10_050}]})
    past = read(store)
    for alias in ("x", "y"):
        counts = subject_of("partitions", "two", alias)
        assert past.series(counts, "count").values() == [PARTITIONS] * 2, "it is not looked at in every tick"
        assert past.series(counts, "idle").values() == [0, 0]
        kept = [of for of in past.subjects("partition") if of.startswith(f"partition/two/{alias}/")]
        marks = {of.rsplit("/", 1)[1]: past.series(of, "watermark of t").values()[-1] for of in kept}
        wanted = sorted(time - 5 for time in greatest.values())[:MAX_SAMPLED_PARTITIONS]
        assert sorted(marks.values()) == wanted
        assert all(mark == greatest[name] - 5 for name, mark in marks.items())
        assert {past.series(of, "last_row_us").values()[-1] for of in kept} == {1}
    assert past.series(subject_of("partitions", "one", "y"), "count").values() == [1, 1]


def test_the_last_tick_is_looked_at_when_a_run_ends_and_sides_are_as_the_state_has_them():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)
    with job.run(CAUGHT_UP):
        job.tick(1, {"a": [{"k": n % 3, "t": n} for n in range(100)], "b": [{"k": 1, "t": 50}]})
        job.tick(2, {"a": [{"k": 7, "t": 100 + n} for n in range(500)]})
    past, last, kept = read(store), job.results[-1], 0
    for query, sides in last.measured().items():
        for name, side in sides.items():
            of = subject_of("side", query, name)
            assert past.series(of, "retained").values()[-1] == side.retained
            assert past.series(of, "file_bytes").values()[-1] == side.file_bytes
            kept += side.retained
    assert kept > 0
    heavy = {
        subject_of("side", query, side): {key.key: key.rows for key in keys}
        for query, own in last.queries.items()
        for side, keys in own.heavy.items()
    }
    assert past.keys("hot_keys") == heavy
    assert any(heavy.values())
    assert past.series(subject_of("side", "two", "x"), "forecast_rows").values()[-1] > 0
    assert not [told for told in past.told() if told[3] == "hot_keys" and told[2].startswith("side/")]


def test_a_run_that_is_over_before_a_tick_has_nothing_to_look_at():
    store = MemoryStore()
    with RecordedJob(TEXT, store).run(CAUGHT_UP):
        pass
    assert read(store).subjects("side") == []


def test_a_drawing_has_the_subjects_whose_figures_go_along_its_edges():
    plan = watersmeet.plan_job(watersmeet.parse_job(TEXT))
    drawing = Drawing.of_plan(plan)
    nodes = {node.id: node for node in drawing.nodes}
    told = {(nodes[edge.start].lines[0], nodes[edge.end].lines[0], edge.of) for edge in drawing.edges}
    assert ("a (memory)", "input x", "source/a") in told
    assert ("input y", "INNER JOIN", "input/one/y") in told
    assert ("INNER JOIN", 'memory "two"', "query/two") in told
    assert {node.of for node in drawing.nodes if node.lines[0] == "input x"} == {"input/one/x", "input/two/x"}


def test_limits_name_what_counts_for_them():
    limits = limits_of(watersmeet.plan_job(watersmeet.parse_job(TEXT)))
    told = {(limit.owner, limit.name): limit for limit in limits}
    assert told["one", "max_rows"].of == ("side/one/x", "side/one/y")
    assert (told["one", "max_bytes"].most, told["one", "max_bytes"].in_bytes) == (2**20, True)
    assert told["a", "max_rows"].most == 7000
    assert "side/one/y" not in told["a", "max_rows"].of
    assert told["the job", "max_job_rows"].of == ("side/one/x", "side/one/y"), "two's are kept with one's"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("'connector' = 'file', 'path' = '/out/late', 'format' = 'json'", ("/out/late", "json")),
        ("'connector' = 'file', 'path' = 'file:///out/late'", ("/out/late", "parquet")),
        ("'connector' = 'file', 'path' = '/out/late', 'format' = 'csv'", None),
        ("'connector' = 'file', 'path' = 's3://out/late', 'format' = 'parquet'", None),
        ("'connector' = 'memory'", None),
    ],
)
def test_where_late_rows_are_is_written_down_if_it_is_a_folder(options, wanted):
    text = f"CREATE SINK other WITH ('connector' = 'memory'); CREATE SINK late WITH ({options});"
    job = watersmeet.parse_job(f"{text} SET late_output = late; {TEXT}")
    files = SideFiles.of_job(job, "late_output")
    assert (None if files is None else (files.path, files.format)) == wanted
    assert SideFiles.of_job(job, "broken_output") is None


def test_looking_is_due_when_time_has_passed_or_the_clock_was_set_back():
    looks = TickSampler(watersmeet.plan_job(watersmeet.parse_job(TEXT)))

    def at(clock_us):
        return SimpleNamespace(clock_us=clock_us, queries={}, measured=dict, partitions=dict)

    assert looks.is_due(at(SAMPLE_US))
    looks.figures(at(SAMPLE_US))
    assert [looks.is_due(at(us)) for us in (SAMPLE_US, 2 * SAMPLE_US - 1, 2 * SAMPLE_US, 0)] == [0, 0, 1, 1]
