"""A checkpoint as a run on Spark left it that was killed in the middle of a tick, and what the job puts out.

python -m tests.engine.spark.kept.kept    writes today's, if there is none of today's layout

What is stored must mean the same in every later version: Spark's own files, the state, its history, parts of
file sinks and commits of a table. One sink shows the interrupted tick, the others do not.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.support.package_paths import REPOSITORY

HERE = Path(__file__).parent
KEPT = HERE / "kept.zip"
EXPECTED = "expected.json"
ROOT = "ROOT"
"""Stands there for the folder of the job."""
PLACE = Path("/tmp/watersmeet-kept-checkpoint")
"""The folder of the job, the same on every machine: lists of the files that were read name it."""
KILL_AT = REPOSITORY / "tests" / "kills" / "kill_at.py"
FILES, KEPT_FILES = 7, 4
START_S = 1_700_000_000
FILE_S = 20


def add_files(folder: Path, first: int, last: int) -> None:
    """Put the files of each source there, the same in every process; one of each is a tick."""
    for number in range(first, last):
        draw = random.Random(number)
        for name in "abc":
            rows = [_change(draw) if name == "c" else _event(draw, number) for _ in range(12)]
            path = folder / "in" / name / f"{number}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (START_S + number, START_S + number))  # Spark reads the oldest first


def _event(draw: random.Random, number: int) -> dict[str, Any]:
    time_s = START_S + number * FILE_S + draw.randrange(FILE_S) - draw.choice([0, 0, 0, 3, 60])
    text = draw.choice([None, "", "ä", "b", "long enough to differ late 1", "long enough to differ late 2"])
    return {
        "k": draw.choice([None, 1, 2, 3]),
        "t": f"{_iso(time_s)}.{draw.randrange(10**6):06d}Z",
        "v": draw.randrange(99),
        "x": draw.choice([None, 0.25, -0.0, 1e9, draw.random()]),
        "s": text,
    }


def _iso(time_s: int) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _change(draw: random.Random) -> dict[str, Any]:
    return {"k": draw.randrange(9), "g": draw.choice([None, 0, 1, 2, 3]), "op": draw.choice("IIID")}


def read_sink_rows(folder: Path) -> dict[str, Counter[str]]:
    """The rows of each sink, as a bag; of changes what they come to."""
    out = folder / "out"
    rows: dict[str, Counter[str]] = {"pairs": Counter(), "windows": Counter(), "days": Counter()}
    for file in out.glob("pairs/*.parquet"):
        rows["pairs"].update(map(repr, pq.ParquetFile(file).read().to_pylist()))
    for file in out.glob("days/*.csv"):
        rows["days"].update(file.read_text().splitlines()[1:])
    for sink in ("bands", "late"):
        lines = [line for file in out.glob(f"{sink}/*.json") for line in file.read_text().splitlines()]
        rows[sink] = Counter(lines)
    sums = Counter[str]()
    for file in out.glob("sums/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            sums[repr((row.get("g"), row["n"], row.get("m")))] += row["_diff"]
    rows["sums"] = Counter({row: count for row, count in sums.items() if count})
    rows["windows"] = Counter(map(repr, DeltaTable(str(out / "windows")).to_pyarrow_table().to_pylist()))
    return rows


@contextmanager
def place() -> Iterator[Path]:
    """The folder of the job, empty, for one process at a time."""
    with open(f"{PLACE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        yield PLACE
        shutil.rmtree(PLACE)


def unpack(folder: Path) -> dict[str, Counter[str]]:
    """Lay the job out as it was left; what it puts out in the end."""
    with zipfile.ZipFile(KEPT) as file:
        file.extractall(folder)
    for path in folder.glob("in/*/*.json"):
        os.utime(path, (START_S + int(path.stem),) * 2)
    (folder / "job.sql").write_text((HERE / "job.sql").read_text())
    return {sink: Counter(rows) for sink, rows in json.loads((folder / EXPECTED).read_text()).items()}


def run(folder: Path, *arguments: str, kill_at: tuple[str, int] | None = None) -> None:
    """Run the job by the command line, to its end or until it is killed."""
    (folder / "job.sql").write_text((HERE / "job.sql").read_text())
    command = (
        ["-m", "watersmeet.cli.main"] if kill_at is None else [str(KILL_AT), kill_at[0], str(kill_at[1])]
    )
    command += ["run", "job.sql", "--checkpoint", "state", "--master", "local[2]", "--until-caught-up"]
    subprocess.run([sys.executable, *command, *arguments], cwd=folder, check=kill_at is None)


def main() -> None:
    if KEPT.exists():
        raise SystemExit(f"{KEPT} is there: a checkpoint that was written stays as it is")
    with place() as folder:
        add_files(folder, 0, FILES)
        run(folder, "--finish")
        expected = {sink: dict(rows) for sink, rows in read_sink_rows(folder).items()}
    with place() as folder, zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED) as file:
        add_files(folder, 0, KEPT_FILES)
        run(folder, kill_at=("half-published", KEPT_FILES))
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".crc":
                file.write(path, path.relative_to(folder))
        file.writestr(EXPECTED, json.dumps(expected))


if __name__ == "__main__":
    main()
