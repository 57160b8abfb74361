"""Jobs by the command line over one Spark: stopping, going on, refusals, sinks and sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

HEAD = """
CREATE MAPPING a (k STRING, n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
  TYPE File OPTIONS ('path' = '{folder}/a', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING b (k STRING, n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
  TYPE File OPTIONS ('path' = '{folder}/b', 'format' = 'json', 'maxFilesPerTrigger' = '1');
"""
FILE_SINK = "CREATE MAPPING out TYPE File OPTIONS ('path' = '{folder}/out', 'format' = 'parquet');\n"
SELECT = (
    """SELECT x.k, x.n, y.n AS m FROM a x LEFT JOIN b y ON x.k = y.k AND y.t BETWEEN x.t - 10 AND x.t + 10"""
)
JOB = HEAD + FILE_SINK + f"INSERT INTO out {SELECT};"


class Place:
    """A directory with a job and its input."""

    def __init__(self, folder: Path, run: Any) -> None:
        self.folder = folder
        self._run = run
        self._moment = 1_700_000_000
        self.rows: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
        for side in "ab":
            (folder / side).mkdir()

    def job(self, text: str) -> None:
        (self.folder / "job.sql").write_text(text.replace("{folder}", str(self.folder)))

    def add(self, count: int = 1, rows: int = 20) -> None:
        """``count`` more files a side."""
        for _ in range(count):
            for side, every in (("a", 1), ("b", 2)):
                number = len(self.rows[side])
                first = number // rows * rows
                fresh = [{"k": f"k{n % 7}", "n": n, "t": n * every // 2} for n in range(first, first + rows)]
                self.rows[side] += fresh
                self.put(side, "".join(json.dumps(row) + "\n" for row in fresh), f"{first:06d}.json")

    def put(self, side: str, text: str, name: str) -> None:
        staged = self.folder / name
        staged.write_text(text)
        self._moment += 1
        os.utime(staged, (self._moment, self._moment))  # Spark reads the oldest first
        os.rename(staged, self.folder / side / name)

    def run(self, *flags: str) -> SimpleNamespace:
        return self._run(
            "run", self.folder / "job.sql", "--json", "--checkpoint", self.folder / "state", *flags
        )

    def caught_up(self, *flags: str) -> SimpleNamespace:
        done = self.run("--until-caught-up", *flags)
        assert done.status == 0, done.err
        return done

    def refused(self, code: str, *flags: str) -> str:
        """The error's text: for people, and nothing was written."""
        before = self.everything()
        done = self.run("--until-caught-up", *flags)
        assert done.status == 2
        assert f"[{code}]" in done.err
        assert readable(done.err)
        assert "Hint: " in done.err
        assert self.everything() == before, "nothing was written"
        return done.err

    def everything(self) -> set[tuple[str, int]]:
        """All files and their sizes but for the lock's."""
        return {
            (str(path.relative_to(self.folder)), path.stat().st_size)
            for path in self.folder.rglob("*")
            if path.is_file() and path.name != "lock"
        }

    def expected(self) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for x in self.rows["a"]:
            met = [y["n"] for y in self.rows["b"] if y["k"] == x["k"] and abs(y["t"] - x["t"]) <= 10]
            found.update((x["k"], x["n"], m) for m in met or [None])
        return found

    def result(self, sink: str = "out") -> Counter[tuple[Any, ...]]:
        return Counter(duckdb.sql(f"FROM read_parquet('{self.folder}/{sink}/*.parquet')").fetchall())


def readable(text: str) -> bool:
    """No stack traces and no insides of Spark."""
    return not re.search(r"Traceback|\tat |Py4J|java\.|org\.apache|File \".*\", line", text)


@pytest.fixture
def place(spark, tmp_path, capfd) -> Place:
    def run(*argv: object) -> SimpleNamespace:
        capfd.readouterr()
        status = main([str(word) for word in argv])
        written = capfd.readouterr()
        lines = [json.loads(line) for line in written.out.splitlines() if line.startswith("{")]
        return SimpleNamespace(
            status=status,
            err=written.err,
            out=written.out,
            ticks=[line for line in lines if "tick" in line and "inputs" in line],
            shown=[line for line in lines if "columns" in line],
            account=next((line["account"] for line in lines if "account" in line), None),
        )

    MemorySink.clear()
    return Place(tmp_path, run)


# stopping and going on


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_running_again_goes_on(place, number):
    place.job(JOB)
    place.add(6)
    before = signal.getsignal(signal.SIGINT)

    def stop() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not list((place.folder / "out" / "_ticks").glob("out-*2")):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    thread.start()
    done = place.run("--trigger", "100 milliseconds")
    thread.join()
    assert done.status == 0, done.err
    assert readable(done.err)
    assert 2 <= len(done.ticks) < 6
    assert signal.getsignal(signal.SIGINT) is before

    again = place.caught_up("--finish")
    # Spark may have noted the next file of a source before it was stopped, and not yet the tick's offsets: it
    # then reads that file and the one after it in one tick, so six files a side make five ticks or six.
    numbers = [line["tick"] for line in again.ticks]
    assert numbers == list(range(len(done.ticks) + 1, numbers[-1] + 1)), "numbers go on without a hole"
    assert numbers[-1] in (6, 7), "and the end of input is the last"
    assert again.account["adds_up"]
    assert place.result() == place.expected()


def test_caught_up_keeps_state_and_goes_on_with_more_files(place):
    place.job(JOB)
    place.add(2)
    first = place.caught_up()
    assert len(first.ticks) == 2
    assert first.account["inputs"][1]["retained"] > 0
    nothing = place.caught_up()
    assert nothing.ticks == []
    place.add(2)
    place.caught_up("--partitions", "5")
    last = place.caught_up("--finish")
    assert len(last.ticks) == 1, "the end of input is a tick of its own"
    assert [row["retained"] for row in last.account["inputs"]] == [0, 0]
    assert last.account["adds_up"]
    assert place.result() == place.expected()
    assert place.caught_up("--finish").ticks == [], "what is finished stays so"
    place.add()
    assert "finished" in place.refused("job-finished")


def test_a_column_goes_from_the_projection_between_two_runs(place):
    place.job(JOB)
    place.add(2)
    assert place.caught_up().account["inputs"][1]["retained"] > 0
    place.job(JOB.replace("SELECT x.k, x.n, y.n AS m", "SELECT x.n AS number"))
    place.add()
    place.caught_up()
    place.job(JOB)
    assert "lack y.n" in place.refused("changed-query")
    place.job(JOB.replace("SELECT x.k, x.n, y.n AS m", "SELECT x.n AS number"))
    place.caught_up("--finish")
    parts = f"read_parquet('{place.folder}/out/*.parquet', union_by_name = true)"
    found = duckdb.sql(f"SELECT coalesce(n, number) FROM {parts}").fetchall()
    assert Counter(found) == Counter((n,) for _, n, _ in place.expected().elements())


# refused


def test_what_does_not_fit_is_refused_and_nothing_is_written(place):
    """One job that has run and has more to do; whatever is done to it is refused, and undone it goes on."""
    place.job(JOB)
    place.add(2)
    place.caught_up()
    place.add()
    state, kept = place.folder / "state", place.folder.with_name(place.folder.name + "-kept")
    shutil.copytree(state, kept)

    def restore() -> None:
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(kept, state)
        place.job(JOB)

    shutil.rmtree(state / "spark")
    refusal = place.refused("spark-checkpoint-lost")
    assert "is missing" in refusal
    assert "--rebuild-spark-checkpoint" in refusal
    restore()

    shutil.rmtree(state / "state")
    assert "is missing" in place.refused("state-lost")
    restore()

    shutil.rmtree(state)
    lost = place.run("--until-caught-up")
    assert (lost.status, readable(lost.err)) == (2, True)
    assert "[sink-of-another-run]" in lost.err
    assert not state.exists()
    restore()

    runs = [path for path in (state / "state" / "runs").rglob("*") if path.is_file()]
    for run in runs:
        whole = run.read_bytes()
        run.chmod(0o644)
        run.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused = place.refused("state-damaged")
    assert any(run.name in refused for run in runs)
    for run in runs:
        run.unlink()
    refused = place.refused("state-missing")
    assert any(run.name in refused for run in runs)
    restore()

    place.job(JOB.replace("FROM a x LEFT JOIN b y", "FROM b y LEFT JOIN a x"))
    place.refused("changed-query")
    place.job(JOB.replace("+ 10", "+ 11"))
    assert 'in "out"' in place.refused("changed-query")
    place.job(JOB + f"INSERT INTO out {SELECT};")
    place.refused("changed-query")
    restore()

    with Checkpoint(state).lock():
        assert "another run" in place.refused("checkpoint-locked")

    place.caught_up("--finish")
    assert place.result() == place.expected()


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("{folder}/a'", "{folder}/nowhere'", "path-missing"),
        ("'format' = 'json'", "'format' = 'jsn'", "unknown-format"),
        ("'format' = 'json'", "'format' = 'json', 'maxFilesPerTriger' = '1'", "unknown-option"),
        ("'format' = 'json'", "'format' = 'json', 'sep' = ';'", "unknown-option"),
        ("x.k, x.n", "x.k, no_such_function(x.n) AS n", "unknown-function"),
        ("SELECT x.k", "SELECT *, x.k", "duplicate-column"),
        ("{folder}/out'", "/proc/nowhere/out'", "sink-not-writable"),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_nothing(place, before, after, code):
    place.job(JOB.replace(before, after, 1))
    place.add()
    done = place.run("--until-caught-up")
    assert done.status == 2
    assert f"[{code}]" in done.err
    assert readable(done.err)
    assert not (place.folder / "state" / "spark").exists()
    assert not list(place.folder.glob("out/*"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--trigger", "soon"], "soon"),
        (["--late-output", "outt"], "outt"),
        (["--watermark-rule", "loose"], "loose"),
    ],
)
def test_wrong_settings_are_refused(place, flags, words):
    place.job(JOB)
    assert words in place.run(*flags).err


# several inserts, failing sinks


def test_two_inserts_into_one_sink_both_count(place):
    place.job(JOB + f"INSERT INTO out {SELECT};")
    place.add(2)
    done = place.caught_up("--finish")
    assert place.result() == place.expected() + place.expected()
    assert {row["input"] for row in done.account["inputs"]} == {"out.x", "out.y", "out-2.x", "out-2.y"}
    for source, rows in {"x": 40, "y": 40}.items():
        assert all(row["rows_in"] == rows for row in done.account["inputs"] if row["input"].endswith(source))
    assert sum(tick["rows_in"]["a"] for tick in done.ticks) == 40, "read once for both"


def test_a_failing_sink_ends_the_run_readably_and_is_made_up_for(place):
    """The second of two sinks goes away in the middle: the tick is repeated for both."""
    place.job(
        JOB
        + "CREATE MAPPING other TYPE File OPTIONS ('path' = '{folder}/other', 'format' = 'parquet');"
        + f"INSERT INTO other {SELECT};"
    )
    place.add(2)
    place.caught_up()
    place.add(2)
    other, away = place.folder / "other", place.folder / "away"

    def block() -> None:
        """Once the run has looked at its sinks: a file where the directory was."""
        until = time.monotonic() + 60
        while time.monotonic() < until and len(list((place.folder / "out" / "_ticks").glob("out-*"))) < 3:
            time.sleep(0.01)
        os.rename(other, away)
        other.write_text("in the way")

    thread = threading.Thread(target=block)
    thread.start()
    failed = place.run("--trigger", "3 seconds")
    thread.join()
    assert failed.status == 2
    assert readable(failed.err), failed.err
    assert "other" in failed.err

    other.unlink()
    os.rename(away, other)
    again = place.caught_up("--finish")
    assert again.account["adds_up"]
    assert place.result() == place.expected()
    assert place.result("other") == place.expected()


# sources and sinks


def test_a_bare_select_goes_to_the_console(place):
    place.job(
        HEAD
        + "SELECT x.k, x.n, y.k, y.t + 1 FROM a x JOIN b y ON x.n = y.n AND x.t BETWEEN y.t - 20 AND y.t;"
    )
    place.add(1, rows=3)
    done = place.caught_up("--finish")
    (shown,) = done.shown
    assert shown["columns"] == ["k", "n", "k", "(t + 1)"]
    assert sorted(shown["rows"]) == [["k0", 0, "k0", 1], ["k1", 1, "k1", 2], ["k2", 2, "k2", 3]]


GENERATED = """
CREATE MAPPING g (n BIGINT, k STRING, v DOUBLE, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  TYPE Generator OPTIONS ('rate' = '500', 'rows' = '1200', 'keys' = '20', 'disorder' = '3', 'seed' = '{seed}',
    'field.n.kind' = 'sequence', 'field.k.nulls' = '0.1');
CREATE MAPPING h (n BIGINT, k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  TYPE Generator OPTIONS ('rate' = '250', 'rows' = '700', 'keys' = '20', 'disorder' = '2',
    'field.n.kind' = 'sequence');
CREATE MAPPING out TYPE File OPTIONS ('path' = '{folder}/{out}', 'format' = 'parquet');
INSERT INTO out SELECT x.n, x.k, x.v, x.t, y.n AS m, y.k AS l, y.t AS u
FROM g x FULL JOIN h y ON x.k = y.k AND x.t BETWEEN y.t AND y.t + INTERVAL '1' SECOND;
"""


def test_generators_are_joined_the_same_every_time(place):
    found = []
    for number, seed in enumerate((7, 7, 8)):
        place.job(GENERATED.replace("{seed}", str(seed)).replace("{out}", f"out{number}"))
        done = place.caught_up("--finish", "--checkpoint", str(place.folder / f"state{number}"))
        assert [row["rows_in"] for row in done.account["inputs"]] == [1200, 700]
        assert [row["late"] for row in done.account["inputs"]] == [0, 0]
        assert done.account["adds_up"]
        found.append(place.result(f"out{number}"))
    assert found[0] == found[1]
    assert found[0] != found[2]
    rows = list(found[0])
    lefts, rights = {r[:4] for r in rows if r[0] is not None}, {r[4:] for r in rows if r[4] is not None}
    assert {row[0] for row in lefts} == set(range(1200))
    assert {row[0] for row in rights} == set(range(700))
    met = {
        (x, y)
        for x in lefts
        for y in rights
        if x[1] is not None and x[1] == y[1] and 0 <= (x[3] - y[2]).total_seconds() <= 1
    }
    assert {(r[:4], r[4:]) for r in rows if r[0] is not None and r[4] is not None} == met
    assert met


def test_csv_and_json_with_broken_records(place):
    place.job(
        """
        SET broken_output = 'bad';
        CREATE MAPPING a (k STRING, n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
          TYPE File OPTIONS ('path' = '{folder}/a', 'format' = 'csv');
        CREATE MAPPING b (k STRING, n BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
          TYPE File OPTIONS ('path' = '{folder}/b', 'format' = 'json');
        CREATE MAPPING out TYPE File OPTIONS ('path' = '{folder}/out', 'format' = 'csv', 'header' = 'true');
        CREATE MAPPING bad TYPE File OPTIONS ('path' = '{folder}/bad', 'format' = 'json');
        """
        f"INSERT INTO out {SELECT};"
    )
    place.put("a", 'k,n,t\n"x, y",1,10\nz,2,eleven\nz,3\nw,4,12\n', "1.csv")
    place.put("b", '{"k": "x, y", "n": 5, "t": 15}\n{"k": "w", \n{"k": "w", "n": "six", "t": 12}\n', "1.json")
    done = place.caught_up("--finish")
    assert done.account["adds_up"], done.account
    assert [(row["rows_in"], row["broken"]) for row in done.account["inputs"]] == [(4, 2), (3, 2)]
    assert Counter({"a": 4, "b": 3}) == sum((Counter(tick["rows_in"]) for tick in done.ticks), Counter())
    rows = duckdb.sql(f"FROM read_csv('{place.folder}/out/*.csv', header = true)").fetchall()
    assert sorted(rows) == [("w", 4, None), ("x, y", 1, 5)]
    bad = [
        json.loads(line) for file in place.folder.glob("bad/*.json") for line in file.read_text().splitlines()
    ]
    assert sorted((row["stream"], row["record"].strip()) for row in bad) == [
        ("a", "z,2,eleven"),
        ("a", "z,3"),
        ("b", '{"k": "w",'),
        ("b", '{"k": "w", "n": "six", "t": 12}'),
    ]


def test_a_csv_header_names_the_columns_as_they_are_declared(place):
    """Spark's own default goes by places, and would read one column for another."""
    text = """
        CREATE MAPPING a (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5)
          TYPE File OPTIONS ('path' = '{folder}/a', 'format' = 'csv'MORE);
        CREATE MAPPING out TYPE File OPTIONS ('path' = '{folder}/out', 'format' = 'json');
        INSERT INTO out SELECT k FROM a;
    """
    place.job(text.replace("MORE", ""))
    place.put("a", "T,K\n10,1\n", "1.csv")
    place.put("a", "k,t\n2,11\n", "2.csv")
    failed = place.run("--until-caught-up")
    assert failed.status == 2
    assert failed.err.startswith(
        'EngineError[wrong-columns]: file source "a": its files have different columns'
    )
    assert "2.csv has k, t" in failed.err
    place.job(text.replace("MORE", ", 'enforceSchema' = 'true'"))
    assert place.caught_up("--finish").account["inputs"][0]["passed"] == 2


@pytest.mark.full
def test_broken_and_late_are_counted_without_side_outputs(place):
    place.job(JOB)
    place.add(2)
    place.put("a", 'what is this\n{"k": "k1", "n": -1, "t": -50}\n{"k": "k1", "n": -2}\n', "999.json")
    done = place.caught_up("--finish")
    left = done.account["inputs"][0]
    assert (left["broken"], left["late"], left["null_time"]) == (1, 1, 1)
    assert done.account["adds_up"]
    assert place.result() == place.expected()


def test_late_rows_go_to_their_output(place):
    place.job("SET late_output = 'late'; CREATE MAPPING late TYPE Memory;" + JOB)
    place.add(2)
    place.put("a", '{"k": "k1", "n": -1, "t": -50}\n{"k": null, "n": -2, "t": null}\n', "999.json")
    done = place.caught_up("--finish")
    found = {tuple(row.values()) for row in MemorySink.rows("late")}
    watermark = max(row["t"] for row in place.rows["a"]) - 5
    assert found == {
        ("a", "out/x", "late", '{"k":"k1","n":-1,"t":-50}', "x.t", str(watermark), watermark + 50),
        ("a", "out/x", "null_time", '{"k":null,"n":-2,"t":null}', None, None, None),
    }
    (late,) = (row["late_by"] for row in done.account["inputs"] if row["late_by"])
    assert late == {"t": {"counts": {"<100": 1}, "max": watermark + 50, "integer": True}}
    assert done.ticks[-1]["inputs"][0]["late_by"] == late
    assert place.result() == place.expected()


def test_null_time_fails_the_job_if_on_null_time_is_fail(place):
    place.job(JOB)
    place.add(2)
    place.caught_up()
    place.put("a", '{"k": "k1", "n": -2, "t": null}\n', "999.json")
    failed = place.run("--until-caught-up", "--on-null-time", "fail")
    assert failed.status == 2
    assert '\nEngineError[null-time]: source "a": a row has no valid t (NULL)' in failed.err
    assert '"n": -2' in failed.err
    assert readable(failed.err)
    done = place.caught_up("--finish")
    assert done.account["inputs"][0]["null_time"] == 1
    assert place.result() == place.expected()


def test_a_self_join_reads_its_source_once(place):
    """Both aliases are fed by one streaming source: Spark's offsets name one."""
    place.job(
        HEAD + FILE_SINK + "INSERT INTO out SELECT x.n, y.n AS m FROM a x JOIN a y "
        "ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 5;"
    )
    place.add(2)
    done = place.caught_up("--finish")
    assert [row["rows_in"] for row in done.account["inputs"]] == [40, 40]
    offsets = (place.folder / "state" / "spark" / "offsets" / "0").read_text().splitlines()
    assert len(offsets) == 2 + 1, "a version, what is common, and one source"
    rows = place.rows["a"]
    assert place.result() == Counter(
        (x["n"], y["n"]) for x in rows for y in rows if x["k"] == y["k"] and 1 <= y["t"] - x["t"] <= 5
    )


def test_options_are_set_by_statements(place):
    place.job(
        "SET allowed_lateness = 1000; SET max_rows = 30; SET watermark_rule = 'limit'; SET partitions = 3;\n"
        "SET spark.sql.parquet.compression.codec = 'gzip';\n" + JOB
    )
    place.add(2)
    done = place.run("--until-caught-up")
    assert done.status == 2
    assert "[max-rows]" in done.err
    assert "max_rows = 30" in done.err
    assert readable(done.err)
    done = place.caught_up("--max-rows", "1000", "--finish")
    assert place.result() == place.expected()
    assert len(done.ticks) == 3
