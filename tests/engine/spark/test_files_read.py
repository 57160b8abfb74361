"""What was read of files, what was not, and what has changed since: real files, without Spark."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.runtime.files.listing import check_table, reader_path
from watersmeet.runtime.spark.checkpoint.directory import Offsets
from watersmeet.runtime.spark.checkpoint.restart import build_host
from watersmeet.runtime.spark.job.stream import is_read_to_its_end
from watersmeet.runtime.spark.sources.files.missing_files import build_missing_check
from watersmeet.runtime.spark.sources.files.progress import FileProgress
from watersmeet.spec.model import Source
from watersmeet.state.store import MemoryStore

LONG_AGO = 1_000_000_000


class Plan:
    """What `build_host` sees of one."""

    def __init__(self, sources):
        self.sources = sources


class Spark:
    """What Spark lists, step by step, as its log of a source has it."""

    def __init__(self):
        self.steps: list[list[dict]] = []

    def file_log(self, source, step):
        return [{**entry, "batchId": step} for entry in self.steps[step]]


class Job:
    """A job with one source of files in ``in``, and what it has committed."""

    def __init__(self, root: Path, **options: str):
        self.folder = root / "in"
        self.folder.mkdir()
        given = {"path": str(self.folder), "format": "json", **options}
        self.source = Source("s", (column("k", "BIGINT"),), "file", given)
        self.spark, self.store, self.notes, self.host = Spark(), MemoryStore(), [], {}
        self.gone: set[str] = set()  # from another file system
        self.files = self.again()

    def again(self) -> FileProgress:
        """A new run."""
        return FileProgress(
            [self.source], self.spark, self.store, self.host, self.notes.append, self._find_deleted
        )

    def _find_deleted(self, urls: Sequence[str]) -> frozenset[str]:
        return frozenset(self.gone.intersection(urls))

    def restart(self) -> None:
        self.files = self.again()
        self.files.start()

    def put(self, name: str, text: str = "{}\n", changed: int = LONG_AGO) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (changed, changed))
        return path

    def listed(self, *paths: Path) -> Offsets:
        """Spark lists these as its next batch."""
        self.spark.steps.append(
            [
                {"path": f"file://{quote(str(each))}", "timestamp": each.stat().st_mtime_ns // 1_000_000}
                for each in paths
            ]
        )
        return self.offsets()

    def offsets(self) -> Offsets:
        batch = len(self.spark.steps) - 1
        return Offsets(batch, f"offsets {batch}", 0, (json.dumps({"logOffset": batch}),))

    def begun(self, offsets: Offsets, *, again: bool = False):
        """What the tick would have for its manifest, and for `committed`."""
        batch = self.files.of_batch(offsets, again=again)
        return batch, build_host("id", offsets, Plan([self.source]), {}, batch)

    def commit(self, batch, host) -> None:
        self.files.check(batch)
        self.files.committed(batch)
        self.host = host

    def read(self, *paths: Path) -> None:
        self.commit(*self.begun(self.listed(*paths)))

    def keep(self) -> None:
        """By a tick without rows."""
        found = self.files.build_final_batch()
        self.host = {**self.host, **found.host}
        self.files.committed(found)

    def refused(self, what) -> EngineError:
        with pytest.raises(EngineError) as found:
            what()
        return found.value

    def counted(self) -> dict[str, tuple[int, list[str]]]:
        return {
            name: (each.files, [os.path.basename(path) for path in each.names])
            for name, each in self.files.changed.items()
        }


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def warning_job(tmp_path):
    return Job(tmp_path, on_changed_file="warn")


def append(path: Path) -> None:
    """As `>>` of another second."""
    with open(path, "a") as file:
        file.write('{"k": 2}\n')
    os.utime(path, (LONG_AGO + 5, LONG_AGO + 5))


def same_size(path: Path) -> None:
    os.utime(path, (LONG_AGO + 1, LONG_AGO + 1))


def same_time(path: Path) -> None:
    """As ``rsync -t`` and ``cp -p`` leave it."""
    append(path)
    os.utime(path, (LONG_AGO, LONG_AGO))


CHANGES = pytest.mark.parametrize("change", [append, same_size, same_time], ids=lambda f: f.__name__)


@CHANGES
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_changed_after_it_was_read_stops_the_job(job, change, restarted):
    job.files.start()
    one, other = job.put("ä 1.json"), job.put("2.json")
    job.read(one, other)
    job.files.look()
    change(one)
    error = job.refused(job.restart if restarted else job.files.look)
    assert error.code == "file-changed"
    assert str(one) in error.message
    assert "on_changed_file" in error.hint


def test_restored_or_deleted_file_is_accepted_after_reading(job):
    path, other = job.put("1.json"), job.put("2.json")
    job.read(path, other)
    append(path)
    path.write_text("{}\n")
    os.utime(path, (LONG_AGO, LONG_AGO))
    other.unlink()
    job.files.look()
    job.restart()
    job.files.finish()
    assert job.notes == []


def test_with_warn_it_is_counted_once_and_named(warning_job):
    path, other = warning_job.put("1.json"), warning_job.put("2.json")
    warning_job.read(path, other)
    append(path)
    warning_job.files.look()
    assert warning_job.counted() == {"s": (1, ["1.json"])}
    warning_job.files.look()
    path.write_text("again")
    warning_job.files.look()
    assert warning_job.counted() == {"s": (1, ["1.json"])}, "one file is one, however often it changes"
    (note,) = warning_job.notes
    assert str(path) in note
    warning_job.read(warning_job.put("3.json"))
    warning_job.restart()
    append(path)
    warning_job.files.look()
    assert warning_job.counted() == {"s": (1, ["1.json"])}, "a restart knows what was counted"
    append(other)
    warning_job.files.look()
    assert warning_job.counted() == {"s": (2, ["1.json", "2.json"])}


def test_lists_do_not_grow_with_a_file_that_always_changes(warning_job):
    path = warning_job.put("1.json")
    warning_job.read(path)
    for number in range(30):
        path.write_text("x" * number)
        warning_job.files.look()
        warning_job.read(warning_job.put(f"new {number}.json"))
    assert sum(each["files"] for each in warning_job.host["files"]) == 32


def test_what_was_found_changed_is_no_part_of_a_tick_that_is_repeated(warning_job):
    """Else its parts that are out would be taken for those of another tick."""
    old, new = warning_job.put("1.json"), warning_job.put("2.json")
    warning_job.read(old)
    offsets = warning_job.listed(new)
    _, host = warning_job.begun(offsets)
    append(old)
    warning_job.restart()  # killed after it was published
    _, again = warning_job.begun(offsets, again=True)
    assert again["files"] != host["files"]
    assert again["read"] == host["read"]
    append(new)
    warning_job.restart()
    _, other = warning_job.begun(offsets, again=True)
    assert other["read"] != host["read"], "those of the tick itself are"


@CHANGES
def test_torn_while_it_is_read(job, change):
    path = job.put("1.json")
    batch, _ = job.begun(job.listed(path))
    change(path)
    error = job.refused(lambda: job.files.check(batch))
    assert (error.code, str(path) in error.message) == ("file-torn", True)
    assert "nothing of this tick was written" in error.hint


def test_torn_between_listing_and_reading(job):
    path = job.put("1.json")
    offsets = job.listed(path)
    append(path)
    assert job.refused(lambda: job.begun(offsets)).code == "file-torn"
    time.sleep(0.01)  # the next run lists it anew
    job.restart()
    job.commit(*job.begun(offsets, again=True))
    job.files.finish()


def test_torn_between_listing_and_reading_in_the_run_that_repeats(job):
    path = job.put("1.json")
    offsets = job.listed(path)
    job.restart()
    path.write_text("{}\n{}\n")  # now: after this run has listed it
    assert job.refused(lambda: job.begun(offsets, again=True)).code == "file-torn"


def test_a_line_that_is_too_long_stops_the_job_until_the_file_is_mended(job):
    path = job.put("1.json", "{}\n" + "y" * 200 + "\n")
    offsets = job.listed(path)
    for again in (False, True):
        job.files = job.again()
        job.files.start(max_line_bytes=100)
        error = job.refused(lambda again=again: job.begun(offsets, again=again))
        assert (error.code, str(path) in error.message) == ("line-too-long", True)
    path.write_text("{}\n")
    time.sleep(0.01)  # the next run lists it anew
    job.files = job.again()
    job.files.start(max_line_bytes=100)
    job.commit(*job.begun(offsets, again=True))
    job.files.finish()


def test_torn_with_warn_is_counted_once(warning_job):
    path = warning_job.put("1.json")
    batch, host = warning_job.begun(warning_job.listed(path))
    append(path)
    warning_job.commit(batch, host)
    for _ in range(2):
        warning_job.files.look()
        assert warning_job.counted() == {"s": (1, ["1.json"])}
    warning_job.read(warning_job.put("2.json"))
    warning_job.restart()
    assert warning_job.counted() == {"s": (1, ["1.json"])}


def test_file_deleted_before_reading_fails_the_tick(job):
    path = job.put("1.json")
    offsets = job.listed(path)
    path.unlink()
    error = job.refused(lambda: job.begun(offsets))
    assert (error.code, str(path) in error.message) == ("file-gone", True)


def test_file_deleted_while_reading_fails_the_check(job):
    path = job.put("1.json")
    batch, _ = job.begun(job.listed(path))
    path.unlink()
    assert job.refused(lambda: job.files.check(batch)).code == "file-gone"


def test_deleted_file_with_warn_stays_counted_after_it_returns(warning_job):
    """Spark will not read it any more."""
    path = warning_job.put("1.json")
    offsets = warning_job.listed(path)
    path.unlink()
    warning_job.commit(*warning_job.begun(offsets))
    assert warning_job.counted() == {"s": (1, ["1.json"])}
    warning_job.put("1.json")
    warning_job.files.look()
    warning_job.read(warning_job.put("2.json"))
    warning_job.restart()
    assert warning_job.counted() == {"s": (1, ["1.json"])}


def test_seen_at_the_start_and_never_read(job):
    path = job.put("1.json")
    job.files.start()
    error = job.refused(job.files.finish)
    assert (error.code, str(path) in error.message) == ("file-unread", True)


def test_file_deleted_before_spark_lists_it_is_reported(job):
    path = job.put("1.json")
    job.files.start()
    path.unlink()
    error = job.refused(job.files.finish)
    assert (error.code, str(path) in error.message) == ("file-vanished", True)


def test_only_what_is_known_to_be_read_to_its_end_is_so(job):
    """A bounded run stops where all records of a source are broken and there are no others."""

    def ends(name, **unread):
        return is_read_to_its_end(name, job.files.is_read(name, None), unread)

    job.files.start()
    assert not ends("generator")
    assert not ends("topic", topic=("0",))
    assert ends("topic", topic=())
    assert ends("s")
    job.put("1.json")
    job.files.look()
    assert not ends("s")


def test_with_warn_a_vanished_file_stays_counted_until_it_is_read(warning_job):
    """Nobody would find it again: so what counted it is to be kept."""
    path, other = warning_job.put("1.json"), warning_job.put("2.json")
    warning_job.files.start()
    warning_job.read(other)
    assert warning_job.files.build_final_batch() is None
    path.unlink()
    warning_job.files.finish()
    warning_job.keep()
    for _ in range(2):
        warning_job.restart()
        assert warning_job.counted() == {"s": (1, ["1.json"])}
        warning_job.files.finish()
        assert warning_job.files.build_final_batch() is None
    path = warning_job.put("1.json")
    warning_job.restart()
    path.unlink()
    warning_job.files.finish()  # again: it is counted once
    warning_job.restart()
    assert warning_job.counted() == {"s": (1, ["1.json"])}
    warning_job.begun(warning_job.listed(warning_job.put("1.json")))
    assert warning_job.counted() == {"s": (0, [])}
    warning_job.restart()
    assert warning_job.counted() == {"s": (1, ["1.json"])}, "the tick failed"
    warning_job.commit(*warning_job.begun(warning_job.offsets()))
    warning_job.restart()
    assert warning_job.counted() == {"s": (0, [])}
    append(path)
    warning_job.restart()
    assert warning_job.counted() == {"s": (1, ["1.json"])}


def test_one_that_came_or_changed_since_the_start_waits_for_the_next_run(job):
    path = job.put("1.json")
    job.files.start()
    append(path)
    job.put("2.json")
    job.files.finish()


@pytest.mark.parametrize("name", ["sub/1.json", "k=1/x/_a=1/y.json", "x/k=1/y/l=1/1.json"])
def test_a_file_in_a_subdirectory_is_not_passed_over_in_silence(job, name):
    path = job.put(name)
    error = job.refused(job.files.start)
    assert (error.code, str(path) in error.message) == ("file-unread", True)
    assert "recursiveFileLookup" in error.hint


def test_with_warn_a_file_in_a_subdirectory_is_counted_once(warning_job):
    warning_job.put("sub/1.json")
    warning_job.files.start()
    warning_job.read(warning_job.put("2.json"))
    warning_job.restart()
    assert warning_job.counted() == {"s": (1, ["1.json"])}
    assert len(warning_job.notes) == 1


@pytest.mark.parametrize("said", ["true", "false"])
def test_explicit_recursive_option_allows_subdirectories(tmp_path, said):
    job = Job(tmp_path, recursiveFileLookup=said)
    job.put("sub/1.json")
    job.files.start()
    job.files.look()


@pytest.mark.parametrize("name", ["k=1/1.json", "_k=1/l=ä b/1.json", "k=1/sub/1.json", "_a=1/x/y/1.json"])
def test_files_in_partitions_are_read(job, name):
    path = job.put(name)
    job.files.start()
    job.read(path)
    job.files.finish()
    append(path)
    assert job.refused(job.files.look).code == "file-changed"


@pytest.mark.parametrize(
    "others", [("x/1.json",), ("1.json",), ("y/k=1/1.json",), ("k=1/1.json",), ("z/1.json",)]
)
def test_directories_above_partitions_are_to_be_the_same_for_all(job, others):
    job.put("x/k=1/1.json")
    job.put("x/k=2/l=3/y/1.json")
    job.files.start()
    for other in others:
        path = job.put(other)
    with pytest.raises(EngineError) as error:
        job.again().start()
    assert error.value.code == "file-unread"
    with pytest.raises(EngineError):
        check_table(job.source)
    path.unlink()
    job.files.start()
    check_table(job.source)


@pytest.mark.parametrize("mode", ["fail", "warn"])
def test_files_next_to_partitions_are_reported_as_unread(tmp_path, mode):
    """Of a batch with both Spark reads those in partitions alone. Each kind in a batch of its own is read."""
    job = Job(tmp_path, on_changed_file=mode)
    plain, other = job.put("1.json"), job.put("2.json")
    first, second = job.put("k=1/1.json"), job.put("k=2/1.json")
    job.files.start()
    job.read(plain)
    job.read(first)
    offsets = job.listed(other, second)
    error = job.refused(lambda: job.begun(offsets))
    assert (error.code, str(other) in error.message) == ("file-unread", True)


@pytest.mark.parametrize(("beside", "missed"), [("k=1/1.json", "0.json"), ("sub/1.json", "sub/1.json")])
def test_files_that_spark_leaves_out_of_a_table_are_not_passed_over_in_silence(job, beside, missed):
    job.put("0.json")
    check_table(job.source)
    job.put(beside)
    error = job.refused(lambda: check_table(job.source))
    assert (error.code, f"/{missed}" in error.message) == ("file-unread", True)
    job.source.options["recursiveFileLookup"] = "true"
    check_table(job.source)


def test_hidden_files_are_named_at_the_start(job):
    for name in ("_x.json", ".y.json", "z.json._COPYING_", "_SUCCESS", ".z.json.crc", "_empty"):
        job.put(name, "" if name == "_empty" else "{}\n")
    job.put("_dir/1.json")
    job.files.start()
    job.files.finish()
    (note,) = job.notes
    assert all(name in note for name in ("_x.json", ".y.json", "z.json._COPYING_"))
    assert not any(name in note for name in ("_SUCCESS", "crc", "_empty", "_dir"))


def test_a_file_from_before_1970_is_not_passed_over_in_silence(job):
    job.put("1.json", changed=-86_400)
    error = job.refused(job.files.start)
    assert error.code == "file-unread"
    assert "touch" in error.hint


def test_a_name_that_is_not_utf_8_is_refused_and_shown(job):
    with open(os.fsencode(job.folder) + b"/\xff.json", "wb") as file:
        file.write(b"{}\n")
    error = job.refused(job.files.look)
    assert error.code == "file-unread"
    assert r"\xff.json" in error.message
    assert "UTF-8" in error.hint


@pytest.mark.parametrize("name", ["a[1].json", "{x}.json", "a*.json", "a?.json", "k=[b]/1.json", "a\\.json"])
@pytest.mark.parametrize("mode", ["fail", "warn"])
def test_a_later_file_whose_name_is_a_pattern_is_refused(tmp_path, name, mode):
    """Spark would read rows of other files twice; that is no matter of counting."""
    job = Job(tmp_path, on_changed_file=mode)
    job.files.start()
    job.read(job.put("1.json"))
    path = job.put(name)
    offsets = job.listed(path)
    error = job.refused(lambda: job.begun(offsets))
    assert (error.code, str(path) in error.message) == ("file-name", True)


def test_links_are_what_they_lead_to(job, tmp_path):
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text("{}\n")
    linked = job.folder / "link.json"
    linked.symlink_to(elsewhere)
    (job.folder / "broken.json").symlink_to(tmp_path / "nothing")
    job.files.start()
    job.read(linked)
    job.files.finish()
    append(elsewhere)
    assert str(linked) in job.refused(job.files.look).message


def test_a_linked_directory_is_one_of_the_directory(job, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.json").write_text("{}\n")
    (job.folder / "link").symlink_to(tmp_path / "other")
    assert job.refused(job.files.start).code == "file-unread"


def test_links_in_a_circle_are_refused_by_name(job):
    (job.folder / "k=1").symlink_to(job.folder)
    error = job.refused(job.files.start)
    assert error.code == "path-not-readable"
    assert "k=1" in error.message


def test_a_source_that_is_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    job = Job(tmp_path, path=str(tmp_path / "link" / ""))
    (tmp_path / "real" / "1.json").write_text("{}\n")
    job.files.start()
    job.read(tmp_path / "link" / "1.json")
    job.files.finish()
    append(tmp_path / "real" / "1.json")
    assert job.refused(job.files.look).code == "file-changed"


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_path_to_one_file(tmp_path, prefix):
    path = tmp_path / "one.json"
    job = Job(tmp_path, path=f"{prefix}{path}")
    path.write_text("{}\n")
    (tmp_path / "other.json").write_text("{}\n")
    job.files.start()
    job.read(path)
    job.files.finish()
    append(path)
    assert str(path) in job.refused(job.restart).message


def test_a_path_to_one_hidden_file_is_not_passed_over_in_silence(tmp_path):
    path = tmp_path / "_one.json"
    path.write_text("{}\n")
    job = Job(tmp_path, path=str(path))
    error = job.refused(job.files.start)
    assert (error.code, str(path) in error.message) == ("file-unread", True)


@pytest.mark.parametrize("pattern", ["i?/*.json", "{in,other}/*.json", "{in/{0,1},i[^o]/[!01]}.json"])
def test_a_pattern(tmp_path, pattern):
    job = Job(tmp_path, path=f"{tmp_path}/{pattern}")
    paths = [job.put(f"{number}.json") for number in range(3)]
    job.put("3.csv")
    job.put("_4.json")
    job.files.start()
    job.read(*paths)
    job.files.finish()
    append(paths[1])
    assert str(paths[1]) in job.refused(job.files.look).message


def test_a_directory_that_goes_and_comes_back(job):
    path = job.put("1.json")
    job.read(path)
    path.unlink()
    job.folder.rmdir()
    job.files.look()
    job.folder.mkdir()
    job.put("1.json")
    job.files.look()


def test_another_file_system_is_remembered_not_looked_at(tmp_path):
    job = Job(tmp_path, path="s3a://bucket/in")
    job.files.start()
    job.spark.steps.append([{"path": "s3a://bucket/in/1.json", "timestamp": 5}])
    job.commit(*job.begun(job.offsets()))
    job.restart()
    job.files.finish()
    (stored,) = (json.loads(job.store.read(each["name"]).to_pybytes()) for each in job.host["files"])
    assert stored == [0, 0, "s3a://bucket/in/1.json", 5, -1, -1]


def test_deleted_remote_file_is_named_in_the_error(tmp_path):
    job = Job(tmp_path, path="s3a://bucket/in")
    job.spark.steps.append([{"path": f"s3a://bucket/in/{name}", "timestamp": 5} for name in ("1", "2%20b")])
    job.gone = {"s3a://bucket/in/2%20b"}
    error = job.refused(lambda: job.begun(job.offsets()))
    assert error.code == "file-gone"
    assert "s3a://bucket/in/2 b was deleted before it was read" in error.message
    assert "on_changed_file" in error.hint
    job.gone = set()
    job.commit(*job.begun(job.offsets()))
    assert job.counted() == {}


def test_deleted_remote_file_with_warn_is_counted_once(tmp_path):
    job = Job(tmp_path, path="s3a://bucket/in", on_changed_file="warn")
    job.spark.steps.append([{"path": f"s3a://bucket/in/{name}", "timestamp": 5} for name in "12"])
    job.gone = {"s3a://bucket/in/2"}
    batch, host = job.begun(job.offsets())
    assert [reader_path(file) for file in batch.files if file.batch >= 0] == ["s3a://bucket/in/1", None]
    job.restart()  # the tick was not committed, and comes again
    again, host = job.begun(job.offsets(), again=True)
    assert again.digest == batch.digest
    job.commit(again, host)
    assert job.counted() == {"s": (1, ["2"])}
    job.restart()
    job.files.finish()
    assert job.counted() == {"s": (1, ["2"])}
    assert len(job.notes) == 2


def test_a_file_system_that_does_not_answer_stops_the_tick():
    class Path:
        def __init__(self, url):
            self.url = url

        def getFileSystem(self, conf):
            return self

        def exists(self, path):
            if path.url.endswith("2"):
                raise OSError("403 Forbidden")
            return path.url.endswith("1")

    spark = SimpleNamespace(
        _jvm=SimpleNamespace(
            java=SimpleNamespace(net=SimpleNamespace(URI=str)),
            org=SimpleNamespace(
                apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=Path)))
            ),
        ),
        _jsparkSession=SimpleNamespace(sessionState=lambda: SimpleNamespace(newHadoopConf=dict)),
    )
    gone = build_missing_check(spark)
    assert gone(["s3a://b/1", "s3a://b/3"]) == {"s3a://b/3"}
    with pytest.raises(EngineError, match=r"s3a://b/2 cannot be checked: .*403 Forbidden") as error:
        gone(["s3a://b/1", "s3a://b/2"])
    assert error.value.code == "file-unreadable"
    assert "run again when its file system answers" in error.value.hint


def test_a_look_takes_its_share_of_the_time_alone(job, monkeypatch):
    looks = []
    monkeypatch.setattr(job.files, "look", lambda: looks.append(1))
    job.files.compare_if_due()
    monkeypatch.undo()
    job.files.look()
    monkeypatch.setattr(job.files, "look", lambda: looks.append(1))
    job.files.compare_if_due()
    assert looks == [1]


def test_many_files_are_looked_at_quickly(tmp_path):
    """Also those of a pattern, of which each is a path of its own: no listing per file."""
    job = Job(tmp_path, path=f"{tmp_path}/in/*.json")
    for number in range(2000):
        (job.folder / f"{number}.json").touch()
    before = time.process_time()
    job.files.start()
    assert time.process_time() - before < 2
