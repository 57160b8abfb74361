"""A job over growing directories, its processes, and what they leave."""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.forked import Forked
from tests.support.lent_jvms import lent

SOURCES = Path(__file__).resolve().parents[2] / "src"
KILL_AT = Path(__file__).with_name("kill_at.py")
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
FILE_S, LAG_S = 60, 40

JARS = Path(__file__).resolve().parents[2] / ".jars" / "spark-kafka"
SPARK = {
    "master": "local[2]",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    **({"jars": str(JARS)} if JARS.exists() else {}),
}
"""Starts sooner, and fast enough. All have the connector, if it is there: they are lent the same JVM."""
CONF = [
    word
    for name, value in SPARK.items()
    for word in (("--conf", f"{name}={value}") if "." in name else (f"--{name}", value))
]

JOB = """
CREATE MAPPING a (id BIGINT, k STRING, v DOUBLE, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '{lag}' SECONDS)
  TYPE File OPTIONS ('path' = '{folder}/in/a', 'maxFilesPerTrigger' = '1');
CREATE MAPPING b (id BIGINT, k STRING, v DOUBLE, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '{lag}' SECONDS)
  TYPE File OPTIONS ('path' = '{folder}/in/b', 'maxFilesPerTrigger' = '1');
CREATE MAPPING joined TYPE File OPTIONS ('path' = '{folder}/out/joined');
CREATE MAPPING chain TYPE File OPTIONS ('path' = '{folder}/out/chain');
CREATE MAPPING ticks TYPE File OPTIONS ('path' = '{folder}/out/ticks', 'format' = 'json');
SET progress_output = ticks;

INSERT INTO joined
SELECT x.id AS a_id, x.k AS a_k, x.v AS a_v, x.t AS a_t, y.id AS b_id, y.k AS b_k, y.v AS b_v, y.t AS b_t
FROM a x FULL JOIN b y
  ON x.k = y.k AND y.t BETWEEN x.t - INTERVAL '20' SECONDS AND x.t + INTERVAL '45' SECONDS AND x.v < y.v + 60;

INSERT INTO chain
SELECT x.id AS a_id, y.id AS b_id, z.id AS c_id
FROM a x
LEFT JOIN b y ON x.k = y.k AND y.t BETWEEN x.t - INTERVAL '5' SECONDS AND x.t + INTERVAL '5' SECONDS
FULL JOIN b z ON z.k = x.k AND z.t BETWEEN x.t + INTERVAL '5' SECONDS AND x.t + INTERVAL '10' SECONDS;
"""

BATCH = {
    "joined": """
SELECT x.id, x.k, x.v, x.t, y.id, y.k, y.v, y.t FROM {a} x FULL JOIN {b} y
  ON x.k = y.k AND y.t BETWEEN x.t - INTERVAL 20 SECONDS AND x.t + INTERVAL 45 SECONDS AND x.v < y.v + 60""",
    "chain": """
SELECT x.id, y.id, z.id FROM {a} x LEFT JOIN {b} y
  ON x.k = y.k AND y.t BETWEEN x.t - INTERVAL 5 SECONDS AND x.t + INTERVAL 5 SECONDS
FULL JOIN {b} z ON z.k = x.k AND z.t BETWEEN x.t + INTERVAL 5 SECONDS AND x.t + INTERVAL 10 SECONDS""",
}


class Growing:
    """Input that grows file by file, always the same. ``add`` puts the next file of both sides there."""

    def __init__(self, folder: Path, seed: int, files: int, rows: int = 120) -> None:
        self.folder, self.files, self.added = folder, files, 0
        self._random = random.Random(seed)
        self._rows = rows
        for side in "ab":
            (folder / "in" / side).mkdir(parents=True)

    def add(self, count: int = 1) -> None:
        for _ in range(min(count, self.files - self.added)):
            for side in "ab":
                name = f"{self.added:04d}.parquet"
                staged = self.folder / name
                pq.write_table(self._table(), staged)
                moment = START_US // SECOND_US + self.added
                os.utime(staged, (moment, moment))  # Spark reads the oldest first: none of one moment
                os.rename(staged, self.folder / "in" / side / name)
            self.added += 1

    def _table(self) -> pa.Table:
        draw, first = self._random, START_US + self.added * FILE_S * SECOND_US
        rows = []
        for number in range(self._rows):
            # up to 30 s out of order, which is within the lag: no row is late
            time_us = first + draw.randrange(FILE_S * SECOND_US) - draw.randrange(30 * SECOND_US)
            key = None if draw.random() < 0.03 else f"k{draw.randrange(40)}"
            value = None if draw.random() < 0.03 else draw.randrange(1000) / 10
            rows.append((self.added * 10_000 + number, key, value, time_us))
            if draw.random() < 0.03:
                rows.append(rows[-1])
        ids, keys, values, times = zip(*rows, strict=True)
        stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
        return pa.table({"id": ids, "k": keys, "v": pa.array(values, pa.float64()), "t": stamps})


class Process:
    """A run of the job as a process group of its own, whose ticks are seen on its output. ``conf``: Spark's,
    as arguments. ``errors``: the file that its standard error goes to. ``own_jvm``: it starts one, which can
    be killed, instead of being lent one. ``forked``: of a process that has imported all; else it starts as
    one that a user starts."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        kill_at: tuple[str, int] | None = None,
        conf: Sequence[str] = CONF,
        errors: str = "stderr",
        own_jvm: bool = False,
        forked: bool = True,
        job: str = "job.sql",
    ) -> None:
        command = ["-m", "watersmeet.cli.main"]
        if kill_at is not None:
            command = [str(KILL_AT), kill_at[0], str(kill_at[1])]
        checkpoint = ["--checkpoint", str(folder / "state")]
        self.errors = folder / errors
        self.started = time.monotonic()
        self._own_jvm = own_jvm
        environment = os.environ | {"PYTHONPATH": f"{SOURCES}{os.pathsep}{folder}"}
        if not own_jvm:
            environment |= lent()
        command += ["run", str(folder / job), "--json", *checkpoint, *conf, *arguments]
        own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        with self.errors.open("wb") as told:
            more: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": told}
            more |= {"cwd": folder, "env": environment}
            if forked:
                self.process: Forked | subprocess.Popen[bytes] = Forked(command, **more)
            else:
                self.process = subprocess.Popen([sys.executable, *command], **more, **own)
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        self._text = b""
        self.lines: list[dict[str, Any]] = []

    @property
    def ticks(self) -> int:
        return sum("tick" in line for line in self.lines)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def account(self) -> dict[str, Any]:
        return next(line["account"] for line in reversed(self.lines) if "account" in line)

    def look(self, seconds: float) -> bool:
        """Read what comes within the time; whether the output has ended."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if self._selector.select(max(0.0, left)):
                found = self.process.stdout.read()
                if found == b"":
                    return True
                *lines, self._text = (self._text + (found or b"")).split(b"\n")
                self.lines += [json.loads(line) for line in lines if line.startswith(b"{")]
                return False
            if left <= 0:
                return False

    def look_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.look(until - time.monotonic()):
            pass

    def await_ticks(self, ticks: int, timeout_s: float = 120) -> None:
        until = time.monotonic() + timeout_s
        while self.ticks < ticks:
            assert not self.look(1), f"ended after {self.ticks} ticks: {self.errors.read_text()}"
            assert time.monotonic() < until, f"{self.ticks} ticks in {timeout_s} s"

    def await_end(self, timeout_s: float = 240) -> int:
        until = time.monotonic() + timeout_s
        while not self.look(1):
            assert time.monotonic() < until, f"did not end in {timeout_s} s"
        return self.process.wait(30)

    def jvms(self) -> list[psutil.Process]:
        assert self._own_jvm
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children()
            return [child for child in children if child.name() == "java"]
        return []

    def kill(self, whom: str) -> None:
        """SIGKILL to ``python`` (the driver), ``jvm``, or ``both``."""
        assert whom == "python" or self._own_jvm
        if whom == "both":
            os.killpg(self.process.pid, signal.SIGKILL)
        elif whom == "python":
            self.process.kill()
        else:
            jvms = self.jvms()
            if not jvms:  # too early for one
                self.process.kill()
            for jvm in jvms:
                jvm.kill()
        self.process.wait(60)

    def clean_up(self) -> None:
        """Nothing of the run lives on."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.stdout is not None:
            self._selector.close()
            self.process.stdout.close()


def write_job(folder: Path, small_ticks: str = "auto") -> None:
    text = f"SET small_ticks = '{small_ticks}';\n{JOB.format(folder=folder, lag=LAG_S)}"
    (folder / "job.sql").write_text(text)


def rows_of(folder: Path, sink: str) -> str:
    """All published rows of a sink, as a table expression of DuckDB."""
    return f"read_parquet('{folder}/out/{sink}/*.parquet')"


def list_completed_ticks(folder: Path) -> list[int]:
    """The ticks that are said to be complete; all rows of all their parts are there.

    Raises: AssertionError when some are not.
    """
    files = sorted((folder / "out" / "ticks").glob("*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for row in rows:
        for sink, wanted in json.loads(row["rows_out"]).items():
            parts = (folder / "out" / sink).glob(f"{sink}-{row['tick']:012d}-*.parquet")
            assert sum(pq.read_metadata(part).num_rows for part in parts) == wanted, (sink, row)
    return [row["tick"] for row in rows]


def batch_of(folder: Path, sink: str) -> str:
    """The same by a batch join of the same files."""
    inputs = {side: f"read_parquet('{folder}/in/{side}/*.parquet')" for side in "ab"}
    return f"({BATCH[sink].format(**inputs)})"


def differences(left: str, right: str) -> list[tuple[Any, ...]]:
    """Rows that one of them has more often, with a sign; at most 20."""
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        return [
            (sign, *row)
            for sign, first, second in (("+", left, right), ("-", right, left))
            for row in base.execute(f"(FROM {first}) EXCEPT ALL (FROM {second}) LIMIT 20").fetchall()
        ]
