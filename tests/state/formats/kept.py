"""A job whose state is kept here in every format that was ever written, and what it puts out.

python -m tests.state.formats.kept    writes the state in today's format, if there is none of it yet
"""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

import watersmeet
from tests.support.far_store import FarStore, cut_small
from watersmeet.runtime.local import LocalJob
from watersmeet.state.manifest import STATE_VERSION, load_newest
from watersmeet.state.store import Store

FOLDER = Path(__file__).parent
KEPT_TICKS, ALL_TICKS = 14, 22
JOB = (FOLDER / "job.sql").read_text()


def rows_of(tick: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """The tick's rows per source: seeded by its number, with NULLs, ties, late rows, wide texts."""
    rng = random.Random(tick)
    rows: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for name in ("a", "b", "c"):
        rows[name] = [
            (
                {
                    "k": rng.choice([None, 1, 2, 3, 4]),
                    "v": rng.choice([None, "", "ä" * rng.randrange(20), f"{name}{tick}"]),
                    "t": tick * 3 + rng.randrange(-6, 6),
                },
                1,
            )
            for _ in range(rng.randrange(8))
        ]
    for name in ("x", "y"):
        rows[name] = [
            ({"k": rng.randrange(6), "g": rng.choice([None, 0, 1, 2, 3]), "op": rng.choice("IIID")}, 1)
            for _ in range(rng.randrange(4))
        ]
    return rows


def open_job(store: Store, job: str = JOB, partitions: int = 1) -> LocalJob:
    return LocalJob(watersmeet.plan_job(watersmeet.parse_job(job)), store, partitions=partitions)


def run(job: LocalJob, until: int) -> list[dict[str, list[str]]]:
    """What each of the next ticks puts out, per query, sorted."""
    out = []
    for tick in range(job.driver.tick + 1, until + 1):
        rows = job.tick(rows_of(tick), clock_us=tick).rows
        out.append({name: sorted(map(repr, of_query)) for name, of_query in rows.items()})
    return out


def build_archive_path(version: int) -> Path:
    return FOLDER / f"{version}.zip"


def unpack_state(version: int, store: Store) -> None:
    with zipfile.ZipFile(build_archive_path(version)) as file:
        for name in file.namelist():
            store.write(name, file.read(name))


def main() -> None:
    if build_archive_path(STATE_VERSION).exists():
        raise SystemExit(
            f"{build_archive_path(STATE_VERSION)} exists: the state of a written format does not change"
        )
    store = FarStore()
    with pytest.MonkeyPatch.context() as patch:
        cut_small(patch)
        run(open_job(store, partitions=3), KEPT_TICKS)
    manifest = load_newest(store)
    assert manifest is not None
    names = sorted(manifest.files()) + store.names("manifests")[-1:]
    with zipfile.ZipFile(build_archive_path(STATE_VERSION), "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, bytes(store.read(name)))


if __name__ == "__main__":
    main()
