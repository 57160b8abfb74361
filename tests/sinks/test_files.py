"""The file sink's publish protocol, with plain directories in Spark's place: kills between any two steps."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks import file_sink
from watersmeet.sinks.file_sink import FileSink
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink

ORIGIN = {"offsets": "a", "clock": "b"}
COLUMNS = (column("k", "STRING"), column("v", "BIGINT"))


class KilledError(BaseException):
    """Stands for kill -9: nothing after it runs."""


class Frame:
    """What a sink sees of a Spark frame; each partition becomes a file, with Spark's clutter beside it."""

    def __init__(self, *partitions: list[dict], error: BaseException | None = None) -> None:
        self._partitions = partitions
        self._error = error
        self.sparkSession = SimpleNamespace(conf=SimpleNamespace(set=lambda name, value: None))
        self.settings: dict[str, str] = {}

    @property
    def write(self):
        return self

    def format(self, name):
        self._format = name
        return self

    def mode(self, mode):
        assert mode == "overwrite"
        return self

    def option(self, name, value):
        self.settings[name] = value
        return self

    def options(self, **options):
        self.settings.update(options)
        return self

    def save(self, uri):
        directory = Path(uri.removeprefix("file://"))
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "_temporary").mkdir()
        schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
        for number, rows in enumerate(self._partitions):
            name = f"part-{number:05d}.parquet"
            parquet.write_table(pa.Table.from_pylist(rows, schema=schema), directory / name)
            (directory / f".{name}.crc").write_bytes(b"crc")
            if self._error is not None:
                raise self._error
        (directory / "_SUCCESS").touch()


def sink_at(path, **options) -> FileSink:
    return make_sink(Sink("out", "file", {"path": str(path), **options}))


def prepare_sink(path, owner=None) -> FileSink:
    sink = sink_at(path)
    sink.prepare(COLUMNS, owner)
    return sink


def visible(path) -> Counter:
    """The rows that readers see, as a bag."""
    return Counter(
        (row["k"], row["v"])
        for file in Path(path).glob("*.parquet")
        for row in parquet.read_table(file).to_pylist()
    )


ROWS = [[{"k": "a", "v": 1}, {"k": "b", "v": 2}], [{"k": "c", "v": 3}]]
BAG = Counter([("a", 1), ("b", 2), ("c", 3)])


def run_tick(sink, attempt, tick=7, insert="delivered"):
    sink.write(Frame(*ROWS), insert, tick, attempt)
    sink.publish(insert, tick, attempt, ORIGIN)


def test_published_part_has_the_rows_and_nothing_else(tmp_path):
    run_tick(prepare_sink(tmp_path), "a1")
    assert visible(tmp_path) == BAG
    assert sorted(os.listdir(tmp_path)) == [
        "_ticks",
        "delivered-000000000007-00000.parquet",
        "delivered-000000000007-00001.parquet",
    ]
    assert os.listdir(tmp_path / "_ticks") == ["delivered-000000000007"]
    assert os.listdir(tmp_path / "_ticks" / "delivered-000000000007") == ["_tick"]


def test_staged_rows_are_invisible(tmp_path):
    prepare_sink(tmp_path).write(Frame(*ROWS), "delivered", 7, "a1")
    assert not visible(tmp_path)
    assert os.listdir(tmp_path) == ["_attempts"]


def test_same_tick_again_stays_as_it_is(tmp_path):
    run_tick(prepare_sink(tmp_path), "a1")
    before = [(p, p.stat().st_mtime_ns) for p in sorted(tmp_path.rglob("*.parquet"))]
    run_tick(prepare_sink(tmp_path), "a2")
    assert [(p, p.stat().st_mtime_ns) for p in sorted(tmp_path.rglob("*.parquet"))] == before
    assert not (tmp_path / "_attempts").exists()


def test_two_inserts_into_one_sink_both_count(tmp_path):
    sink = prepare_sink(tmp_path)
    for insert in ("first", "second"):
        sink.write(Frame(*ROWS), insert, 0, "a1")
    for insert in ("first", "second"):
        sink.publish(insert, 0, "a1", ORIGIN)
    assert visible(tmp_path) == BAG + BAG
    assert sink.parts() == [("first", 0), ("second", 0)]


def test_a_tick_without_rows_publishes_nothing(tmp_path):
    sink = prepare_sink(tmp_path)
    sink.write(Frame([], []), "delivered", 3, "a1")
    sink.publish("delivered", 3, "a1", ORIGIN)
    sink.publish("delivered", 3, "a1", ORIGIN)
    assert os.listdir(tmp_path) == []


def test_empty_files_of_a_tick_with_rows_go(tmp_path):
    sink = prepare_sink(tmp_path)
    sink.write(Frame([], ROWS[0]), "delivered", 3, "a1")
    sink.publish("delivered", 3, "a1", ORIGIN)
    assert [p.name for p in tmp_path.rglob("*.parquet")] == ["delivered-000000000003-00001.parquet"]


def test_failed_write_then_retry_in_the_same_attempt(tmp_path):
    sink = prepare_sink(tmp_path)
    with pytest.raises(RuntimeError):
        sink.write(Frame(*ROWS, error=RuntimeError("lost")), "delivered", 7, "a1")
    run_tick(sink, "a1")
    assert visible(tmp_path) == BAG


def test_discard_drops_only_that_attempt(tmp_path):
    sink = prepare_sink(tmp_path)
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    sink.write(Frame(*ROWS), "delivered", 7, "a2")
    sink.discard("a1")
    sink.discard("never-there")
    sink.publish("delivered", 7, "a2", ORIGIN)
    assert visible(tmp_path) == BAG


def test_stale_attempt_cannot_land(tmp_path):
    """What a dead driver's JVM still writes after the restart stays in its own attempt."""
    prepare_sink(tmp_path).write(Frame(*ROWS), "delivered", 7, "old")
    sink = prepare_sink(tmp_path)
    sink_at(tmp_path).write(Frame([{"k": "half", "v": 0}]), "delivered", 7, "old")
    run_tick(sink, "new")
    assert visible(tmp_path) == BAG
    prepare_sink(tmp_path)
    assert not (tmp_path / "_attempts").exists()


def test_staged_rows_that_vanished_are_an_error(tmp_path):
    sink = prepare_sink(tmp_path)
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    prepare_sink(tmp_path)  # another job takes the same directory
    with pytest.raises(EngineError, match="staged-rows-gone"):
        sink.publish("delivered", 7, "a1", ORIGIN)


PART = "delivered-000000000007"
STEPS = ("rename", "fsync", "unlink", "rmdir", "open")


def calls_of_a_publish(tmp_path, monkeypatch, kill_at: int | None) -> int:
    """Publish with a kill before the n-th call of any step; the number of calls."""
    sink = prepare_sink(tmp_path)
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    count = 0

    def counting(real):
        def step(*args, **kwargs):
            nonlocal count
            if count == kill_at:
                raise KilledError
            count += 1
            return real(*args, **kwargs)

        return step

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(file_sink.os, name, counting(getattr(os, name)))
        sink.publish("delivered", 7, "a1", ORIGIN)
    return count


def test_killed_before_any_step_then_again_gives_the_same(tmp_path, monkeypatch):
    steps = calls_of_a_publish(tmp_path / "whole", monkeypatch, None)
    assert steps > 8
    halves = 0
    for kill_at in range(steps):
        path = tmp_path / str(kill_at)
        with pytest.raises(KilledError):
            calls_of_a_publish(path, monkeypatch, kill_at)
        seen = visible(path)
        assert seen <= BAG
        prepare_sink(path)  # which moves up what is committed
        committed = visible(path)
        assert committed == (BAG if seen or os.path.exists(path / "_ticks" / PART) else Counter())
        halves += bool(seen) and seen != BAG
        run_tick(prepare_sink(path), "a2")
        assert visible(path) == BAG
        assert sorted(os.listdir(path)) == ["_ticks", f"{PART}-00000.parquet", f"{PART}-00001.parquet"]
        assert os.listdir(path / "_ticks" / PART) == ["_tick"]
    assert halves, "a run was killed between two files of a tick"


def test_synced_before_and_after_the_rename(tmp_path, monkeypatch):
    sink = prepare_sink(tmp_path)
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    done = []
    fsync, rename = os.fsync, os.rename

    def record_fsync(handle):
        fsync(handle)
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(file_sink.os, "rename", lambda a, b: (done.append("RENAME"), rename(a, b)))
    sink.publish("delivered", 7, "a1", ORIGIN)
    assert sorted(done[:4]) == ["_tick", "delivered-7", "part-00000.parquet", "part-00001.parquet"]
    assert done[4:] == [tmp_path.name, "RENAME", "_ticks", "RENAME", "RENAME", tmp_path.name]


def test_parts_in_directories_of_their_own_are_moved_up(tmp_path):
    """As versions before kept them; the move may be killed at any time."""
    for moved in range(3):
        path = tmp_path / str(moved)
        sink = prepare_sink(path)
        run_tick(sink, "a1")
        (path / "_ticks" / PART).rename(path / PART)
        for number in range(moved, 2):
            (path / f"{PART}-0000{number}.parquet").rename(path / PART / f"part-0000{number}.parquet")
        assert sink.parts() == [("delivered", 7)]
        assert sink.has_part("delivered", 7)
        assert len(sink.row_files()[PART]) == 2
        run_tick(prepare_sink(path), "a2")
        assert visible(path) == BAG
        assert sorted(os.listdir(path)) == ["_ticks", f"{PART}-00000.parquet", f"{PART}-00001.parquet"]


def test_old_marks_go_and_their_rows_stay(tmp_path, monkeypatch):
    """As a run that never ends would gather a directory per tick."""
    monkeypatch.setattr(file_sink, "MOST_MARKS", 3)
    monkeypatch.setattr(file_sink, "MARKS_APART", 4)
    sink = prepare_sink(tmp_path)
    for tick in range(1, 8):
        run_tick(sink, "a1", tick=tick)
        run_tick(sink, "a1", tick=tick, insert="other")
    assert [tick for insert, tick in sink.parts() if insert == "other"] == [2, 3, 4, 5, 6, 7]
    assert [tick for insert, tick in prepare_sink(tmp_path).parts() if insert == "delivered"] == [5, 6, 7]
    assert sum(visible(tmp_path).values()) == 14 * 3
    assert len(sink.row_files()) == 14


def test_the_number_of_spark_s_job_is_in_no_name(tmp_path):
    sink = prepare_sink(tmp_path)
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    (first, _) = sorted(tmp_path.rglob("part-*.parquet"))
    first.rename(first.with_name("part-00000-ffd35020-8ce2-404d-a796-8e477d3cb213-c000.zstd.parquet"))
    sink.publish("delivered", 7, "a1", ORIGIN)
    assert sorted(path.name for path in sink.row_files()[PART]) == [
        f"{PART}-00000-c000.zstd.parquet",
        f"{PART}-00001.parquet",
    ]


def test_published_part_is_reported_even_if_its_directory_vanishes(tmp_path, monkeypatch):
    """Or the state would not know of it, and refuse it in the next run."""
    sink = prepare_sink(tmp_path / "out")
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    rename = os.rename

    def rename_then_move_away(staged, final):
        rename(staged, final)
        monkeypatch.setattr(file_sink, "sync", lambda path: None)
        rename(tmp_path / "out", tmp_path / "away")

    monkeypatch.setattr(file_sink.os, "rename", rename_then_move_away)
    assert sink.publish("delivered", 7, "a1", ORIGIN) is True


def test_tick_without_rows_reports_no_part(tmp_path):
    sink = prepare_sink(tmp_path)
    sink.write(Frame(), "delivered", 3, "a1")
    assert sink.publish("delivered", 3, "a1", ORIGIN) is False
    assert sink.publish("delivered", 3, "a1", ORIGIN) is False


@pytest.mark.parametrize("insert", ["a/b", "_hidden", ".dot", "k=v", "so called", "50%", "a-000000000001"])
def test_any_insert_name_is_visible_and_no_partition(tmp_path, insert):
    sink = prepare_sink(tmp_path)
    run_tick(sink, "a1", insert=insert)
    names = [name for name in os.listdir(tmp_path) if name != "_ticks"]
    assert len(names) == 2
    assert all("=" not in name and name[0] not in "_." for name in names)
    assert sink.row_files() == {os.listdir(tmp_path / "_ticks")[0]: sorted(tmp_path / name for name in names)}
    assert sink.parts() == [(insert, 7)]


def test_parts_of_another_owner_are_refused(tmp_path):
    for tick in (7, 8):
        sink = prepare_sink(tmp_path, owner="state-1")
        run_tick(sink, "a1", tick)
        sink.close()
    with pytest.raises(EngineError, match="sink-of-another-run"):
        prepare_sink(tmp_path, owner="state-2")


def test_directory_with_foreign_files_is_rejected_untouched(tmp_path):
    (tmp_path / "orders.json").write_text("{}")
    with pytest.raises(EngineError, match=r'sink-not-empty.*"orders.json"'):
        prepare_sink(tmp_path, owner="state-1")
    assert os.listdir(tmp_path) == ["orders.json"]


def test_what_a_dead_attempt_left_and_hidden_files_do_no_harm(tmp_path):
    (tmp_path / "_owner-17").write_text("state-1")
    (tmp_path / ".hidden").touch()
    prepare_sink(tmp_path, owner="state-1")
    (tmp_path / "notes.txt").touch()
    prepare_sink(tmp_path, owner="state-1")


def test_csv_with_a_header_alone_has_no_rows(tmp_path):
    sink = sink_at(tmp_path, format="csv", header="true")
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    assert not sink._has_rows(tmp_path / "a.csv")
    assert sink._has_rows(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"Header": "false"}, "1,2\n"),
        ({"lineSep": "|"}, "a,b|1,2|"),
        ({"quote": "'"}, '"a,b\n1,2\n'),
        ({}, '"one\nname",b\n'),  # in doubt a file stays
        ({}, "a,b\n1," + "x" * 200_000 + "\n"),
    ],
)
def test_csv_that_may_have_rows_is_never_dropped(tmp_path, options, text):
    sink = sink_at(tmp_path, format="csv", **options)
    (tmp_path / "a.csv").write_text(text)
    assert sink._has_rows(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "missing-option"),
        ({"path": "hdfs://host/x"}, "file-system-not-supported"),
        ({"path": "x", "format": "orc"}, "unknown-format"),
    ],
)
def test_options_are_checked_at_once(options, code):
    with pytest.raises(SpecError, match=code):
        make_sink(Sink("out", "file", options))


def test_unknown_connector_names_the_near_one():
    with pytest.raises(SpecError, match='did you mean "kafka"'):
        make_sink(Sink("out", "kafkaa", {}))


def test_names_that_spark_takes_for_one_are_refused(tmp_path):
    with pytest.raises(SpecError, match="duplicate-column"):
        sink_at(tmp_path).prepare((column("a", "INT"), column("A", "INT")))


def test_csv_refuses_nested_types(tmp_path):
    with pytest.raises(SpecError, match="type-not-supported"):
        sink_at(tmp_path, format="csv").prepare((column("a", "ARRAY<INT>"),))


def test_path_that_is_a_file_is_rejected(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(EngineError, match="sink-not-writable"):
        prepare_sink(tmp_path / "taken")


def test_uncreatable_staging_directory_is_reported(tmp_path):
    """As where a file system is away, or read-only, since the job has begun."""
    sink = prepare_sink(tmp_path / "out")
    (tmp_path / "out" / "_attempts").write_text("in the way")
    with pytest.raises(EngineError, match="cannot be written: Not a directory") as caught:
        sink.arrow_part(pa.schema([("k", pa.string())]), "in", 1, "attempt")
    assert caught.value.code == "disk-not-writable"
    assert "run again" in caught.value.hint


def test_writer_options_pass_and_ours_do_not(tmp_path):
    frame = Frame(*ROWS)
    sink = sink_at(tmp_path, format="parquet", compression="zstd")
    sink.prepare(COLUMNS)
    sink.write(frame, "delivered", 0, "a1")
    assert frame.settings == {
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "compression": "zstd",
    }
