"""Delta joins on Spark: after every run the sums of what was put out are the join of what the tables hold."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up

pytestmark = pytest.mark.spark

JOB = """
SET output_mode = changelog; SET plan = delta;
CREATE TABLE c (ck BIGINT, nation STRING, op STRING, PRIMARY KEY (ck) NOT ENFORCED)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE o (ok BIGINT, ck INT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE l (ok BIGINT, item BIGINT, price INT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/l', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE i (item BIGINT, least INT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/i', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
INSERT INTO out SELECT c.nation, o.ok, l.item, l.price FROM c JOIN o ON c.ck = o.ck JOIN l ON l.ok = o.ok
    JOIN i ON i.item + 0 = l.item AND l.price >= i.least WHERE c.nation <> 'none';
"""

KEYS = 5


class Tables:
    """What the tables hold, and records that change it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.c: dict[int, str] = {}
        self.bags: dict[str, Counter[tuple[int, ...]]] = {name: Counter() for name in "oli"}

    def records(self) -> dict[str, list[dict[str, Any]]]:
        rng, records = self.rng, dict[str, list[dict[str, Any]]]()
        records["c"] = []
        for _ in range(rng.randrange(4)):
            key, nation = rng.randrange(KEYS), rng.choice(["de", "fr", "none"])
            if key in self.c and rng.random() < 0.3:
                records["c"].append({"ck": key, "nation": None, "op": "d"})
                del self.c[key]
            else:
                records["c"].append({"ck": key, "nation": nation, "op": "c"})
                self.c[key] = nation
        for name, columns in (("o", ("ok", "ck")), ("l", ("ok", "item", "price")), ("i", ("item", "least"))):
            bag, told = self.bags[name], list[dict[str, Any]]()
            for _ in range(rng.randrange(12)):
                row, diff = tuple(rng.randrange(KEYS) for _ in columns), rng.choice([1, 1, 2])
                if bag and rng.random() < 0.3:
                    row = rng.choice(list(bag))
                    diff = -rng.randint(1, bag[row])
                bag[row] += diff
                self.bags[name] = bag = +bag
                told.append({**dict(zip(columns, row, strict=True)), "d": diff})
            records[name] = told
        return records

    def joined(self) -> Counter[tuple[Any, ...]]:
        """The query, anew."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for (ok, ck), orders in self.bags["o"].items():
            nation = self.c.get(ck, "none")
            for (of, item, price), lines in self.bags["l"].items():
                for (key, least), items in self.bags["i"].items():
                    if nation != "none" and of == ok and key == item and price >= least:
                        rows[nation, ok, item, price] += orders * lines * items
        return rows


def sums(folder: Path) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("out/**/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            total[row["nation"], row["ok"], row["item"], row["price"]] += row["_diff"]
    return Counter({row: diff for row, diff in total.items() if diff})


def write(folder: Path, number: int, records: dict[str, list[dict[str, Any]]]) -> None:
    for name, told in records.items():
        (folder / name).mkdir(exist_ok=True)
        text = "".join(json.dumps(record) + "\n" for record in told)
        (folder / name / f"{number}.json").write_text(text)


@pytest.mark.full
def test_four_tables_across_restarts(spark, tmp_path, seed):
    tables, compared = Tables(random.Random(seed)), 0
    for number in range(5):
        write(tmp_path, number, tables.records())
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        wanted = tables.joined()
        assert sums(tmp_path) == wanted, number
        compared += len(wanted)
    assert compared
    assert all(told["difference"] == 0 for told in differences(running))


def differences(running: Any) -> list[dict[str, int]]:
    from watersmeet.observe.row_accounting import InputAccount

    counts = running.ticks[-1].queries["out"].account
    return [
        {"difference": InputAccount.of(name, of, of["retained"]).difference} for name, of in counts.items()
    ]
