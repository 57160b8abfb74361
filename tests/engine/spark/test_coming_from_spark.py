"""The page's two programs, a join by Spark itself and the same here: few lines differ, no rows do."""

from __future__ import annotations

import difflib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[3] / "docs" / "users" / "coming-from" / "spark.md"
START = datetime(2024, 1, 1, tzinfo=UTC)


def programs() -> list[str]:
    section = PAGE.read_text().split("\n## The same join, in Python\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def test_few_lines_differ():
    plain, ours = (program.splitlines() for program in programs())
    told = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-"]
    assert len([line for line in told if line[0] == "+"]) == 6
    assert len([line for line in told if line[0] == "-"]) <= 5


def test_both_give_the_same_rows(spark, tmp_path):
    orders, deliveries, expected = [], [], []
    for n in range(60):
        at = START + timedelta(minutes=n)
        waited = timedelta(minutes=(0, 59, 60, 61, -1)[n % 5])
        orders.append({"order_id": n, "order_time": at.isoformat()})
        deliveries.append({"order_id": n, "delivery_time": (at + waited).isoformat()})
        if timedelta(0) <= waited <= timedelta(hours=1):
            expected.append((n, (at + waited).replace(tzinfo=None)))
    deliveries.sort(key=lambda row: row["delivery_time"])
    found: list[Any] = []
    for number, program in enumerate(programs()):
        folder = tmp_path / str(number)
        for name, rows in (("orders", orders), ("deliveries", deliveries)):
            place = folder / "in" / name
            place.mkdir(parents=True)
            (place / "0.json").write_text("\n".join(json.dumps(row) for row in rows))
        for name in ("in/", "out", "state"):
            program = program.replace(f'"{name}', f'"{folder}/{name}')
        exec(compile(program, str(PAGE), "exec"), {"spark": spark})
        sql = f"SELECT order_id, delivery_time FROM read_parquet('{folder}/out/**/*.parquet') ORDER BY 1"
        rows = duckdb.sql(f"SELECT order_id, CAST(delivery_time AS TIMESTAMP) FROM ({sql})").fetchall()
        found.append(sorted(rows))
    assert found == [expected, expected]
