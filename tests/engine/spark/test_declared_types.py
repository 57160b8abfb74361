"""The table of declared types in the documentation says what the code does."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from watersmeet import parse_job, plan_job
from watersmeet.runtime.spark.rejected_values import misfit_sql
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = pytest.mark.spark

PAGE = Path("docs/users/reference/declared-types.md")


def read_documented_types() -> Iterator[tuple[str, str, str, str]]:
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "declared":
            yield cells[0], cells[1].strip("`"), cells[2], cells[3]


def outcomes(spark: Any, form: str, rows: list[tuple[str, str]]) -> list[str]:
    """What each value becomes: a record for each, with a column for each."""
    columns = ", ".join(f"c{n} {declared}" for n, (declared, _) in enumerate(rows))
    text = f"""CREATE TABLE c ({columns}) WITH ('connector' = 'kafka', 'topic' = 't',
        'format' = '{form}', 'bootstrap.servers' = 'x:1'); SELECT * FROM c"""
    (source,) = plan_job(parse_job(text)).sources
    records = []
    for n, (_, value) in enumerate(rows):
        record = f'{{"c{n}": {value}}}'
        if form == "csv":
            plain = json.loads(value) if value.startswith('"') else value
            out = io.StringIO()
            csv.writer(out).writerow(["" if m != n else plain for m in range(len(rows))])
            record = out.getvalue().strip()
        records.append((None, record.encode()))
    raw = spark.createDataFrame(records, "key BINARY, value BINARY").coalesce(1)
    texts = [f"`c{n}`" for n in range(len(rows))]
    broken = f"coalesce({BROKEN}, {misfit_sql(source, texts)})"
    values = f"coalesce({', '.join(f'CAST({text} AS STRING)' for text in texts)})"
    frame = kafka.parse_records(raw.withColumn("partition", F.lit(0)), source)
    told = frame.selectExpr(f"{values} AS v", f"{broken} AS b").collect()
    return ["broken" if r["b"] else str(r["v"]) for r in told]


@pytest.mark.parametrize(("form", "place"), [("json", 2), ("csv", 3)])
def test_the_table_says_what_is_read(spark, form, place):
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    table = list(read_documented_types())
    assert len(table) > 20
    said = [(*row[:2], row[place]) for row in table]
    read = outcomes(spark, form, [row[:2] for row in table])
    assert said == [(*row[:2], outcome) for row, outcome in zip(table, read, strict=True)]
