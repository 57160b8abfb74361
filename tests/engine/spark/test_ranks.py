"""The first rows of partitions over files on Spark, whose own ROW_NUMBER over the contents is the judge."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort

pytestmark = pytest.mark.spark

TYPES = "id INT, k STRING, p DECIMAL(12,2), x DOUBLE, t TIMESTAMP, b BOOLEAN"
JOB = f"""
SET output_mode = changelog;
CREATE TABLE a ({TYPES}, d INT)
    WITH ('connector' = 'file', 'path' = '{{folder}}/a', 'format' = 'json', 'diff.column' = 'd');
"""
QUERIES = {
    "numbered": """SELECT k, id, p, rn FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC, id) AS rn FROM a
    ) r WHERE rn <= 3""",
    "latest": """SELECT upper(k) AS k, b, id FROM (
        SELECT k, b, id, ROW_NUMBER() OVER (PARTITION BY k, b ORDER BY t DESC NULLS FIRST, id DESC) AS rn
        FROM a
    ) r WHERE rn = 1""",
    "least": """SELECT x, id + 1 AS next FROM (
        SELECT x, id, ROW_NUMBER() OVER (ORDER BY x, id NULLS LAST) AS rn FROM a WHERE id <> 5
    ) r WHERE rn BETWEEN 2 AND 6""",
    "texts": """SELECT count(*) AS n, max(r.rn) AS m, r.k FROM (
        SELECT k, ROW_NUMBER() OVER (PARTITION BY b ORDER BY k NULLS LAST, id) AS rn FROM a
    ) r WHERE rn < 4 GROUP BY r.k""",
}
COLUMNS = {"numbered": "k id p rn", "latest": "k b id", "least": "x next", "texts": "n m k"}


def drawn(draw: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "k": draw.choice(["ä", "b", "Z", "", None]),
        "p": draw.choice(["1.00", "1.50", "-3.25", None]),
        "x": draw.choice([0.5, -0.0, 0.0, -1e300, "NaN", "Infinity", None]),
        "t": draw.choice(["2024-01-01T00:00:00Z", "1900-03-01T12:00:00Z", None]),
        "b": draw.choice([True, False, None]),
    }


def format_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values as texts; numbers as one says them, whatever their type, and both zeros are one."""
    return tuple(None if value is None else _text(value) for value in values)


def _text(value: Any) -> str:
    if isinstance(value, str | bool):
        return str(value)
    return str(float(value) + 0.0).replace("nan", "NaN").replace("inf", "Infinity")


def sums(folder: Path, name: str) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for file in (folder / name).glob("**/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            total[format_values(row.get(column) for column in COLUMNS[name].split())] += row["_diff"]
    assert not [row for row, diff in total.items() if diff < 0]
    return +total


def test_spark_numbers_the_contents_alike(spark: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    there: list[dict[str, Any]] = []
    text = JOB.format(folder=tmp_path)
    queries = {name: QUERIES[name] for name in at_effort(quick=("numbered", "texts"), full=tuple(QUERIES))}
    for name, query in queries.items():
        text += f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = '{tmp_path}/{name}',"
        text += f" 'format' = 'json');\nINSERT INTO {name} {query};\n"
    (tmp_path / "a").mkdir()
    for tick in range(at_effort(quick=2, full=3)):
        changes = []
        for _ in range(14 if tick else 40):
            if tick and draw.random() < 0.6:
                changes.append({**there.pop(draw.randrange(len(there))), "d": -1})
            else:
                there.append(drawn(draw, 100 * tick + len(changes)))
                changes.append({**there[-1], "d": 1})
        lines = "".join(json.dumps(row) + "\n" for row in changes)
        (tmp_path / "a" / f"{tick}.json").write_text(lines)
        until_caught_up(spark, text, tmp_path / "checkpoint")
        contents = [json.dumps(row) for row in there]
        frame = spark.read.schema(TYPES).json(spark.sparkContext.parallelize(contents, 1))
        frame.createOrReplaceTempView("a")
        for name, query in queries.items():
            wanted = Counter(format_values(row) for row in spark.sql(query).collect())
            assert sums(tmp_path, name) == wanted, (tick, name, seed)
