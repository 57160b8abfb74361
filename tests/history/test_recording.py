"""What is kept of a run is what the run's ticks say, by plain loops over their results."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import watersmeet
from tests.support.recorded import RecordedJob
from watersmeet.errors import EngineError
from watersmeet.event_time import ENDED, NEVER
from watersmeet.history.points import COUNT, END, MAX_PARTITIONS, figures_of
from watersmeet.history.reader import read
from watersmeet.history.segments import FOLDER
from watersmeet.observe.listeners import Listener
from watersmeet.observe.progress import TickReport
from watersmeet.running import RunSettings, run_planned
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.store import MemoryStore

TEXT = """
    SET checkpoint = 'state'; SET spark.executor.memory = '1g';
    SET spark.driver.extraJavaOptions = '-Djavax.net.ssl.trustStorePassword=hunter2';
    SET spark.jars.repositories = 'https://me:hunter2@repository/jars';
    SET spark.hadoop.fs.azure.sas.container.account = 'hunter2';
    CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    CREATE TABLE b (at TIMESTAMP, k STRING, WATERMARK FOR at AS at - INTERVAL '5' SECONDS)
      WITH ('connector' = 'kafka', 'topic' = 'b', 'kafka.bootstrap.servers' = 'x:1', 'format' = 'json',
            'kafka.sasl.jaas.config' = 'hunter2');
    CREATE SINK one WITH ('connector' = 'memory');
    CREATE SINK two WITH ('connector' = 'memory');
    INSERT INTO one SELECT x.t, y.t AS u FROM a x LEFT JOIN a y
      ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 9;
    INSERT INTO two SELECT p.at FROM b p LEFT JOIN b q ON p.k = q.k
      AND q.at BETWEEN p.at + INTERVAL '1' SECOND AND p.at + INTERVAL '9' SECONDS"""

ROWS = [
    {"a": [{"t": 1, "k": "x"}, {"t": 20, "k": "y"}], "b": [{"at": "2026-01-01T00:00:10", "k": "x"}]},
    {"a": [{"t": 3, "k": "x"}, {"t": 50, "k": None}, {"t": None, "k": "z"}], "b": []},
    {
        "a": [{"t": 30, "k": "x"}],
        "b": [{"at": "2026-01-01T00:00:01", "k": "x"}, {"at": "2027-01-01T00:00:00", "k": "x"}],
    },
]
CAUGHT_UP = SimpleNamespace(finished=False, stopped=False)


@pytest.fixture(scope="module")
def recorded_history():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)
    with job.run(CAUGHT_UP):
        for number, rows in enumerate(ROWS):
            job.tick(number * 1_000_000, rows, seconds=0.25 * (number + 1), parts={"ingest": 0.125})
    return job, read(store), store


def test_every_figure_is_that_of_the_tick(recorded_history):
    job, past, _ = recorded_history
    late = 0
    for number, result in enumerate(job.results):

        def value(of, figure, name="last", tick=result.tick):
            (point,) = [p for p in past.series(of, figure).points.to_pylist() if p["first_tick"] == tick]
            return point[name]

        assert value("job", "duration_us", "total") == 250_000 * (number + 1)
        assert value("phase/ingest", "duration_us") == 125_000
        for source, rows in result.rows_in.items():
            assert value(f"source/{source}", "rows_in", "total") == rows
        for query, own in result.queries.items():
            assert value(f"query/{query}", "total_rows_out") == own.total_rows_out
            assert value(f"query/{query}", "state_bytes") == own.state_bytes
            for figure, marks in (("watermark", own.input_watermarks), ("late_below", own.late_below)):
                for key, mark in marks.items():
                    wanted = None if mark == NEVER else END if mark == ENDED else mark
                    assert value(f"time/{query}/{key.replace('.', '/')}", figure) == wanted
            for alias, places in own.account.items():
                for place, rows in places.items():
                    if rows:
                        assert value(f"input/{query}/{alias}", place) == rows
                for column, late_by in own.late.get(alias, {}).items():
                    for bucket, rows in late_by.counts.items():
                        late += rows
                        assert value(f"input/{query}/{alias}", f"late of {column} {bucket}") == rows
    assert late, "some rows are to be late"


def test_recorded_late_threshold_explains_every_late_row(recorded_history):
    """The rows that were late are those below what is kept of their tick."""
    job, past, _ = recorded_history
    below = past.series("time/one/x/t", "late_below").values()
    late = [
        sum(1 for row in rows["a"] if row["t"] is not None and limit is not None and row["t"] < limit)
        for rows, limit in zip(ROWS, [None, *below][-3:], strict=True)
    ]
    counted = [result.queries["one"].counts["x"].get("late", 0) for result in job.results]
    assert late == counted
    assert sum(late)


def test_runs_are_written_down_without_secrets(recorded_history):
    _, past, store = recorded_history
    (run,) = past.runs
    assert run.ended is not None
    assert run.ended.how == "caught up"
    assert run.begun.integer_times == ("time/one/x/t", "time/one/y/t")
    assert run.begun.settings == {
        "checkpoint": "state",
        "spark.executor.memory": "1g",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=***",
        "spark.jars.repositories": "https://***@repository/jars",
        "spark.hadoop.fs.azure.sas.container.account": "***",
    }
    assert "LEFT OUTER JOIN" in run.begun.plan
    assert not any(b"hunter2" in bytes(store.read(name)) for name in store.names(FOLDER))


def test_history_omits_the_state_store_password():
    """It may be in the URL of any setting."""
    store = MemoryStore()
    place = "SET state_store = 'postgresql://me:hunter2@db:5432/shop?pipeline=orders&password=hunter2';"
    kept = "SET spark.archives = 'https://me:hunter2@repo/env.tgz';"
    with RecordedJob(place + kept + TEXT, store).run(CAUGHT_UP):
        pass
    (run,) = read(store).runs
    assert run.begun.settings["state_store"].startswith("postgresql://***@db:5432/shop?pipeline=orders")
    assert "hunter2" not in str(run)
    assert not any(b"hunter2" in bytes(store.read(name)) for name in store.names(FOLDER))


def test_a_run_that_failed_says_with_what():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)

    def run():
        with job.run(CAUGHT_UP):
            job.tick(0, ROWS[0])
            job.watching.notice("the broker is away")
            raise EngineError("no space left", code="full", hint="make room")

    with pytest.raises(EngineError):
        run()
    (run,) = read(store).runs
    assert run.ended is not None
    assert (run.ended.how, run.ended.notices) == ("failed", ("the broker is away",))
    assert "no space left" in str(run.ended.error)
    assert "make room" in str(run.ended.error)


def test_a_run_that_is_interrupted_was_stopped():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)
    with pytest.raises(KeyboardInterrupt), job.run(CAUGHT_UP):
        raise KeyboardInterrupt
    (run,) = read(store).runs
    assert run.ended is not None
    assert (run.ended.how, run.ended.error) == ("stopped", None)


def test_a_run_that_holds_nothing_leaves_nothing():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)
    with pytest.raises(EngineError), job.recording.recording_run(job.say):
        raise EngineError("another run holds the checkpoint", code="held")
    assert not store.names(FOLDER)


def test_the_oldest_runs_are_forgotten(monkeypatch):
    monkeypatch.setattr("watersmeet.history.segments.MAX_RUNS", 3)
    store = MemoryStore()
    for number in range(5):
        with RecordedJob(TEXT, store, clock=lambda number=number: number).run(CAUGHT_UP):
            pass
    assert [run.begun.started_us for run in read(store).runs] == [2, 3, 4]
    assert len([name for name in store.names(FOLDER) if "/run-" in name]) == 6


def test_a_run_is_not_forgotten_for_its_clock_that_went_back(monkeypatch):
    monkeypatch.setattr("watersmeet.history.segments.MAX_RUNS", 3)
    store = MemoryStore()
    for clock in (7, 8, 9, 2):
        with RecordedJob(TEXT, store, clock=lambda clock=clock: clock).run(CAUGHT_UP):
            past = read(store)
            assert clock in [run.begun.started_us for run in past.runs]
    assert not read(store).problems


def test_record_of_newer_version_is_skipped_and_reported():
    store = MemoryStore()
    with RecordedJob(TEXT, store).run(CAUGHT_UP):
        pass
    (name,) = [name for name in store.names(FOLDER) if name.endswith("-begun.json")]
    content = json.loads(verify_checksum(name, bytes(store.read(name))))
    store.delete(name)
    store.write(name, add_checksum(name, json.dumps({**content, "started_us": "noon", "weather": "rain"})))
    past = read(store)
    assert past.runs == []
    assert name in past.problems[0]


def test_watermark_holders_and_hot_keys_are_recorded_on_change():
    store = MemoryStore()
    job = RecordedJob(TEXT, store)
    with job.run(CAUGHT_UP):
        for number in range(3):
            job.tick(number, {"a": [{"t": number, "k": "x"}]})
    told = [(of, figure) for *_, of, figure, text in read(store).told()]
    assert len(told) == len(set(told))


def test_history_write_failure_is_reported_to_all_listeners(monkeypatch, tmp_path):
    class Heard(Listener):
        def __init__(self):
            self.said = []

        def notice(self, said):
            self.said.append(said)

    def run_job(job, plan, settings):
        settings.on_start({}, None)
        return CAUGHT_UP

    def deny_segment_write(*_):
        raise OSError("denied")

    monkeypatch.setattr("watersmeet.running.check_before_java", lambda *_, **__: None)
    monkeypatch.setattr("watersmeet.runtime.spark.job.run.run_job", run_job)
    monkeypatch.setattr("watersmeet.history.segments.begin", deny_segment_write)
    description, heard, said = watersmeet.parse_job(TEXT), Heard(), []
    description.run["checkpoint"] = str(tmp_path)
    plan = watersmeet.plan_job(description)
    settings = RunSettings(str(tmp_path), on_notice=said.append)
    run_planned(description, plan, settings, watchers=[heard])
    assert heard.said == said == ["the history of the job cannot be written: denied"]


def test_what_is_wrong_with_a_history_ends_no_job(monkeypatch):
    store, said = MemoryStore(), []
    job = RecordedJob(TEXT, store, say=said.append)
    with job.run(CAUGHT_UP):
        job.tick(0, ROWS[0])
        monkeypatch.setattr("watersmeet.history.recorder.figures_of", lambda *_: 1 / 0)
        job.tick(1, ROWS[1])
        job.tick(2, ROWS[2])
    (told,) = said
    assert "ZeroDivisionError" in told
    past = read(store)
    assert past.series("job", "duration_us").points.column("last_tick").to_pylist() == [1]
    assert [run.ended.how for run in past.runs if run.ended is not None] == ["caught up"]


def test_nor_does_what_cannot_be_drawn_or_written_down(monkeypatch):
    def fails(_):
        raise RecursionError("too deep")

    monkeypatch.setattr("watersmeet.history.recorder.limits_of", fails)
    said = []
    job = RecordedJob(TEXT, MemoryStore(), say=said.append)
    with job.run(CAUGHT_UP):
        job.tick(10, {})
    assert said == ["the history of the job cannot be written: too deep"]
    monkeypatch.undo()
    store, said = MemoryStore(), []
    with pytest.raises(EngineError, match="no file"), RecordedJob(TEXT, store, say=said.append).run(None):
        raise EngineError("no file a\udcff", code="gone")
    assert (read(store).runs[-1].ended.error, said) == ("EngineError[gone]: no file a\\udcff", [])


def test_how_far_very_many_partitions_were_read_does_not_fill_the_history(recorded_history):
    job, _, _ = recorded_history
    few, many = ({f"b/{n}": 7 for n in range(count)} for count in (MAX_PARTITIONS, MAX_PARTITIONS + 1))
    result = replace(job.results[0], read={"a": few, "b": many}, began={"b": {"b/7": 3}})
    levels = figures_of(TickReport(1, 0.1, (), {}, {}), result).levels
    assert {of for of, figure in levels if figure.startswith("offset ")} == {"source/a"}
    assert levels["source/a", "offset b/7"] == 7
    assert {of for of, figure in levels if figure == COUNT} == {"source/b"}
    assert (
        levels["source/b", "start offset b/7"] == 3
    )  # once, and by it offsets that come twice are told apart
