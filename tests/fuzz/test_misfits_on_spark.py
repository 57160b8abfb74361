"""Values that do not fit their declared types, through files and records of topics: each record is read as it
was drawn, or broken and counted, or the job is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from tests.fuzz.cells import AHEAD, BROKEN, EPOCH, CellDrawer, Record
from tests.fuzz.rows import bag, difference, native_rows, parquet_rows
from tests.support.effort import at_effort
from watersmeet.errors import WatersmeetError
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.columns import BROKEN as BROKEN_TEXT
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

JOBS = at_effort(quick=1, full=30)
COUNT = at_effort(quick=150, full=300)
LAG = "INTERVAL '3650' DAY"


def declare_table(name: str, drawer: CellDrawer, where: str) -> str:
    columns = ", ".join(f"{column} {type_}" for column, type_ in drawer.columns.items())
    unit = f", 'timestamp.unit' = '{drawer.unit}'" if drawer.unit else ""
    return f"CREATE TABLE {name} ({columns}, WATERMARK FOR at AS at - {LAG}) WITH ({where}{unit});\n"


def sinking(name: str, drawer: CellDrawer, path: Path) -> str:
    return f"""CREATE TABLE o_{name} WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'parquet');
        INSERT INTO o_{name} SELECT {", ".join(drawer.columns)} FROM {name};
"""


def bag_of(columns: Iterable[str], outcomes: Iterable[Mapping[str, Any] | str]) -> Counter[Any]:
    """The rows among outcomes of records."""
    return bag([row[name] for name in columns] for row in outcomes if not isinstance(row, str))


def preview_problem(source: Source, records: list[Record]) -> str:
    """What a preview shows that is not there, or does not count."""
    try:
        preview = read_first_rows(source, COUNT)
    except WatersmeetError as error:
        return "" if error.code == "not-previewed" else repr(error)
    names = [column.name for column in source.columns if column.name not in preview.unchecked]
    shown = bag([as_micros(row[name]) for name in names] for row in preview.rows)
    more = shown - bag_of(names, [record.read for record in records])
    if len(preview.rows) + preview.left_out != len(records):
        return f" preview has {len(preview.rows)} rows, and leaves {preview.left_out} out"
    return f" preview has {more}" if more else ""


@pytest.mark.parametrize("job", range(JOBS))
def test_what_does_not_fit_is_broken_and_all_else_is_right(spark, seed, tmp_path, job):
    rng = random.Random(f"{seed} {job}")
    text = f"SET file_reader = {rng.choice(['auto', 'spark'])};\n"
    given: dict[str, tuple[CellDrawer, list[Record]]] = {}
    for form in at_effort(quick=["json"], full=["json", "csv", "parquet"]):
        drawer = CellDrawer(rng, form, rng.choice(["", "ms"]) if form != "parquet" else "")
        records = [drawer.record(number) for number in range(COUNT)]
        given[form] = drawer, records
        folder = tmp_path / form
        folder.mkdir()
        drawer.write(folder / f"a.{form}", records[: COUNT // 2])
        drawer.write(folder / f"b.{form}", records[COUNT // 2 :])
        files = f"'connector' = 'file', 'path' = '{folder}', 'format' = '{form}'"
        text += declare_table(form, drawer, files)
        text += sinking(form, drawer, tmp_path / "out" / form)
    run = until_caught_up(spark, text, tmp_path / "state", finish=True)
    wrong = {}
    for source in plan_job(parse_job(text)).sources:
        form = source.name
        drawer, records = given[form]
        outcomes = [record.outcome for record in records]
        found = bag(map(as_drawn, parquet_rows(tmp_path / "out" / form)))
        wrong[form] = difference(found, bag_of(drawer.columns, outcomes))
        counts = run.ticks[-1].queries[f"o_{form}"].account[form]
        account = InputAccount.of(form, counts, counts["retained"])
        assert account.adds_up()
        told = (account.rows_in, account.broken, account.ahead)
        if told != (COUNT, outcomes.count(BROKEN), outcomes.count(AHEAD)):
            wrong[form] += f" counted (in, broken, ahead): {told}"
        wrong[form] += preview_problem(source, records)
    assert not any(wrong.values()), "\n".join(f"{form}: {what}" for form, what in wrong.items() if what)


@pytest.mark.full
@pytest.mark.parametrize("form", ["json", "csv"])
def test_records_of_topics_are_read_so_too(spark, seed, form):
    """By the frame that Spark makes of them; the lengths of texts are compared later."""
    rng = random.Random(f"{seed} {form}")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for unit in ("", "ms"):
        drawer = CellDrawer(rng, form, unit)
        records = [record for record in map(drawer.record, range(COUNT)) if not record.too_long]
        topic = f"'connector' = 'kafka', 'bootstrap.servers' = 'x:1', 'topic' = 't', 'format' = '{form}'"
        text = declare_table("k", drawer, topic) + f"SELECT {', '.join(drawer.columns)} FROM k"
        (source,) = plan_job(parse_job(text)).sources
        raw = [(None, record.written.encode()) for record in records]
        frame = spark.createDataFrame(raw, "key BINARY, value BINARY").withColumn("partition", F.lit(0))
        rows = kafka.parse_records(frame, source).where(f"{BROKEN_TEXT} IS NULL").select(*drawer.columns)
        found = bag(map(as_drawn, native_rows(rows.toArrow())))
        assert not difference(found, bag_of(drawer.columns, [each.read for each in records])), unit


def as_drawn(row: Any) -> tuple[Any, ...]:
    """Texts as such."""
    return tuple(value.decode() if isinstance(value, bytes) else value for value in row)


def as_micros(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
