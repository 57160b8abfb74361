"""A checkpoint on Spark of which one file is damaged, Spark's own among them: the run is refused, or its
rows are right. (In this process, and by the hundred: `tests/restart/test_damaged_files.py`.)"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.engine.spark.running import Running
from tests.support.effort import at_effort
from tests.support.ordered_files import write_rows_file
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick

pytestmark = pytest.mark.spark

DAMAGES = at_effort(quick=6, full=20)
JOB = """
CREATE MAPPING a (id BIGINT, k BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
  TYPE File OPTIONS ('path' = '{path}/a', 'format' = 'json');
CREATE MAPPING b (id BIGINT, k BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
  TYPE File OPTIONS ('path' = '{path}/b', 'format' = 'json');
CREATE MAPPING out TYPE File OPTIONS ('path' = '{path}/out');
INSERT INTO out SELECT a.id AS a, b.id AS b FROM a FULL JOIN b
  ON a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 3;
"""


class Place:
    """A job's folder, which is put back as it was for each damage."""

    def __init__(self, spark: Any, path: Path) -> None:
        self.spark, self.path = spark, path
        self.rows: dict[str, list[dict[str, int]]] = {"a": [], "b": []}
        for name in self.rows:
            (path / name).mkdir()

    def add(self, number: int) -> None:
        for name, known in self.rows.items():
            rows = [{"id": number * 10 + n, "k": n % 3, "t": number * 10 + n} for n in range(6)]
            file = self.path / f"{name}.staged"
            write_rows_file(file, number, rows)
            file.rename(self.path / name / f"{number}.json")
            known += rows

    def run(self, *, finish: bool = False) -> None:
        text = JOB.format(path=self.path)
        Running(self.spark, text, self.path / "checkpoint", until_caught_up=True, finish=finish).to_the_end()

    def expected(self) -> Counter[tuple[int | None, int | None]]:
        """By a nested loop."""
        left, right = self.rows["a"], self.rows["b"]
        pairs = [
            (a["id"], b["id"]) for a in left for b in right if a["k"] == b["k"] and abs(a["t"] - b["t"]) <= 3
        ]
        met_left, met_right = {a for a, _ in pairs}, {b for _, b in pairs}
        padded = [(a["id"], None) for a in left if a["id"] not in met_left]
        return Counter([*pairs, *padded, *((None, b["id"]) for b in right if b["id"] not in met_right)])

    def visible(self) -> Counter[tuple[int | None, int | None]]:
        return Counter(duckdb.sql(f"SELECT a, b FROM read_parquet('{self.path}/out/*.parquet')").fetchall())

    def keep(self) -> None:
        for name in ("checkpoint", "out"):
            shutil.copytree(self.path / name, self.path / "kept" / name)

    def restore(self) -> None:
        for name in ("checkpoint", "out"):
            shutil.rmtree(self.path / name)
            shutil.copytree(self.path / "kept" / name, self.path / name)

    def files(self, *, sparks: bool) -> list[Path]:
        kept = self.path / "kept" / "checkpoint"
        found = [path.relative_to(kept) for path in kept.rglob("*") if path.is_file() and path.name != "lock"]
        return sorted(each for each in found if (each.parts[0] == "spark") == sparks)


def generate_damage(
    draw: random.Random, data: bytes, others: list[bytes]
) -> Iterator[tuple[str, bytes | None]]:
    place = draw.randrange(max(len(data), 1))
    yield "cut", data[:place]
    yield "flipped", data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"\x01"
    yield "emptied", b""
    yield "removed", None
    yield from (("older", other) for other in others[:1])


def test_a_damaged_checkpoint_is_refused_or_its_rows_are_right(spark, tmp_path, monkeypatch, seed):
    """Half of the damages are done to files of Spark's; the job stands still between publish and commit."""
    draw, place = random.Random(seed), Place(spark, tmp_path)
    place.add(0)
    place.run()
    place.add(1)
    with monkeypatch.context() as patched:

        def dies(*_: Any, **__: Any) -> None:
            raise RuntimeError("killed")

        patched.setattr(ConcludedTick, "commit", dies)
        with pytest.raises(WatersmeetError, match="killed"):
            place.run()
    place.keep()
    outcomes = []
    for number in range(DAMAGES):
        file = draw.choice(place.files(sparks=number % 2 == 0))
        target = tmp_path / "checkpoint" / file
        place.restore()
        data = target.read_bytes()
        others = [each.read_bytes() for each in sorted(target.parent.iterdir()) if each.is_file()]
        what, content = draw.choice(
            list(generate_damage(draw, data, [each for each in others if each != data]))
        )
        if content is None:
            target.unlink()
        else:
            target.write_bytes(content)
        outcomes.append((str(file), what, *outcome(place)))
    told = "\n".join(" | ".join(each) for each in outcomes)
    print(f"seed {seed}\n{told}")
    assert not any(each[2] == "WRONG" for each in outcomes), f"seed {seed}\n{told}"
    place.restore()
    place.run(finish=True)
    assert place.visible() == place.expected()


def outcome(place: Place) -> tuple[str, str]:
    """What the next run makes of it; a refusal has to say what to do."""
    try:
        place.run(finish=True)
    except WatersmeetError as error:
        if not place.visible() <= place.expected():
            return "WRONG", f"refused after wrong rows: {error}"
        return ("WRONG" if not error.hint else "refused"), f"{error.code}: {error.message[:150]}"
    except Exception as error:
        return "WRONG", f"{type(error).__name__}: {error}"
    found, expected = place.visible(), place.expected()
    if found != expected:
        return "WRONG", f"rows missing {expected - found}, too many {found - expected}"
    return "right", ""
