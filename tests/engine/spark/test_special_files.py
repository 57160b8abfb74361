"""FIFOs, sockets and devices among files, and where a file is asked for: nobody waits for them."""

from __future__ import annotations

import os
import signal
import stat
from collections import Counter

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet.cli.job_file import read_text
from watersmeet.errors import EngineError, SpecError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.regular_files import MAX_ALTERNATIVES, matching_paths, named_files, read_bytes
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.files.inference import infer
from watersmeet.runtime.spark.preflight.sources import find_source_problems, list_source_notes
from watersmeet.sinks.memory import MemorySink

FORMATS = ("parquet", "csv", "json")
KINDS = ("FIFO", "socket", "device", "linked FIFO")


@pytest.fixture
def patience():
    """Whoever waits for a FIFO is interrupted."""

    def interrupt(number, frame):
        raise TimeoutError("it waits for what is no file")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def create_special_file(folder, kind, suffix):
    """What is no file, under a name of one. No rights are needed: a device is linked."""
    path = folder / f"0 {kind}.{suffix}"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        fifo = folder / f".{kind}" if kind == "linked FIFO" else path
        os.mkfifo(fifo)
        if fifo != path:
            path.symlink_to(fifo)
    return path


def write_rows(folder, suffix, k):
    path = folder / f"{k}.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pa.table({"k": [k], "v": pa.array([1], pa.int32())}), path)
    else:
        path.write_text(f"k,v\n{k},1\n" if suffix == "csv" else f'{{"k": "{k}", "v": 1}}\n')


@pytest.fixture
def folders(tmp_path):
    """Per format a folder with a file, and with each kind of what is none."""
    for suffix in FORMATS:
        (tmp_path / suffix).mkdir()
        for kind in KINDS:
            create_special_file(tmp_path / suffix, kind, suffix)
        write_rows(tmp_path / suffix, suffix, "a")
    return tmp_path


def declare_source(folder, suffix, columns="(k STRING, v INT)", more=""):
    return (
        f"CREATE TABLE {suffix}1 {columns} WITH ('connector' = 'file', 'format' = '{suffix}',"
        f" 'path' = '{folder / suffix}'{more});"
    )


def job(folder, suffix):
    sink = "CREATE SINK out WITH ('connector' = 'memory');"
    return f"{declare_source(folder, suffix)}{sink}INSERT INTO out SELECT k, v FROM {suffix}1"


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_no_file_is_not_looked_into(folders, suffix, patience):
    plan = plan_job(parse_job(job(folders, suffix)))
    (source,) = plan.sources
    assert find_source_problems(plan, thorough=True) == []
    (note,) = list_source_notes(plan)
    assert "FIFOs, sockets and devices are not read" in note
    assert "0 FIFO." in note
    assert "is a FIFO and 3 more" in note
    assert [row["k"] for row in read_first_rows(source, 10).rows] == ["a"]
    inferred = infer(source)
    assert [column.name for column in inferred.columns] == ["k", "v"]
    assert any("FIFOs, sockets and devices are not read" in note for note in inferred.notes)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(("kind", "words"), [("linked FIFO", "a FIFO"), ("device", "a device")])
def test_a_path_that_is_none_is_refused(tmp_path, suffix, kind, words, patience):
    path = create_special_file(tmp_path, kind, suffix)
    text = job(tmp_path, suffix).replace(f"'{tmp_path / suffix}'", f"'{path}'")
    (error,) = find_source_problems(plan_job(parse_job(text)))
    assert isinstance(error, EngineError)
    assert (error.code, error.message) == (
        "path-not-readable",
        f'file source "{suffix}1": "{path}" is {words}, not a file',
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_jobs_file_that_is_none_is_refused(tmp_path, kind, patience):
    path = create_special_file(tmp_path, kind, "sql")
    with pytest.raises(SpecError) as raised:
        read_text(path)
    assert raised.value.code == "file-not-readable"
    assert f"it is a {kind.removeprefix('linked ')}, not a file" in raised.value.message


def test_a_shells_pipe_is_read(patience):
    """As by `watersmeet run <(sed … job.sql)`."""
    read, written = os.pipe()
    os.write(written, b"SELECT 1")
    os.close(written)
    try:
        assert read_bytes(f"/dev/fd/{read}") == b"SELECT 1"
    finally:
        os.close(read)


def test_files_of_a_commands_option_are_files_alone(folders):
    assert named_files(str(folders / "csv")) == [str(folders / "csv" / "a.csv")]
    assert named_files(f"{folders}/csv/*") == [str(folders / "csv" / "a.csv")]
    assert named_files(str(folders / "csv" / "0 FIFO.csv")) == []


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_a_run_passes_over_what_is_no_file_and_says_so(spark, folders, reader):
    texts = [declare_source(folders, "parquet"), declare_source(folders, "csv")]
    texts.append(declare_source(folders, "json", more=", 'multiLine' = 'true'" if reader == "spark" else ""))
    union = " UNION ALL ".join(f"SELECT '{suffix}' AS f, k FROM {suffix}1" for suffix in FORMATS)
    text = f"SET file_reader = '{reader}';{''.join(texts)}CREATE SINK out WITH ('connector' = 'memory');"
    notes: list[str] = []
    for k in ("a", "b"):
        if k == "b":
            for suffix in FORMATS:
                create_special_file(folders / suffix, "FIFO", f"b.{suffix}")
                os.utime(folders / suffix / f"0 FIFO.{suffix}")  # somebody has written into it
                write_rows(folders / suffix, suffix, k)
        MemorySink.clear("out")
        until_caught_up(spark, f"{text}INSERT INTO out {union}", folders / "state", on_notice=notes.append)
        found = Counter((row["f"], row["k"]) for row in MemorySink.rows("out"))
        assert found == Counter((suffix, k) for suffix in FORMATS)
    assert sum("FIFOs, sockets and devices are not read" in note for note in notes) == 6


@pytest.mark.spark
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_table_passes_over_what_is_no_file(spark, folders, suffix):
    (folders / "in").mkdir()
    write_rows(folders / "in", "json", "a")
    text = (
        f"CREATE TABLE a (k STRING) WITH ('connector' = 'file', 'format' = 'json', 'path' = '{folders}/in');"
        f"{declare_source(folders, suffix)}CREATE SINK out WITH ('connector' = 'memory');"
        f"INSERT INTO out SELECT a.k, t.v FROM a LEFT JOIN {suffix}1 FOR SYSTEM_TIME AS OF PROCTIME() AS t"
        " ON a.k = t.k"
    )
    MemorySink.clear("out")
    until_caught_up(spark, text, folders / "state")
    assert [(row["k"], row["v"]) for row in MemorySink.rows("out")] == [("a", 1)]


def test_alternatives_and_escapes_are_those_of_hadoop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["a1", "b1", "c1", "{a,b}1", "{xa", "{xb", "*1"]
    for name in names:
        (tmp_path / name).touch()
    for pattern, wanted in {
        "{a,b}1": ["{a,b}1"],  # a file of that name
        "{a,b}[0-9]": ["a1", "b1"],
        "{a,{b,c}}?": ["a1", "b1", "c1"],
        r"\{a,b\}?": ["{a,b}1"],
        "[{]x{a,b}": ["{xa", "{xb"],
        r"\*?": ["*1"],
        "[^a*{]1": ["b1", "c1"],
        "{a": [],
    }.items():
        assert matching_paths(pattern) == wanted, pattern
    with pytest.raises(SpecError, match=f"more than {MAX_ALTERNATIVES:,} paths"):
        matching_paths("{a,b}" * 40)
    with pytest.raises(SpecError, match="more than 100 braces"):
        matching_paths("{a}" * 5000)
