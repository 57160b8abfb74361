"""What the console shows of rows that the driver has is what it shows of Spark's frames."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.runtime.spark.tick.outputs import TerminalRows, plan_terminal_rows
from watersmeet.sinks.console import ConsoleSink, PlainPrinter
from watersmeet.spec.model import Sink as SinkSpec

US = 1_000_000
INSTANTS = [0, -1, 1, 1_700_000_000 * US + 120_000, -62_135_596_800 * US, -62_135_596_801 * US,
            253_402_300_799 * US + 999_999, 253_402_300_800 * US, -4_000_000_000_000 * US,
            1_679_792_399 * US, 1_679_792_400 * US, 1_698_537_600 * US, -2_208_988_800 * US]  # fmt: skip
DAYS = [0, -1, 19_000, -719_162, -719_163, 2_932_896, 2_932_897, -1_000_000, 10_000_000]
ROWS = {
    "big": pa.array([0, -(2**63), 2**63 - 1, None], pa.int64()),
    "small": pa.array([0, -128, 127, None], pa.int8()),
    "yes": pa.array([True, False, None]),
    "text": pa.array(["", "NULL", "a\tb\n", "ß\U0001f600\x00", None]),
    "cents": pa.array(
        [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99"), None], pa.decimal128(10, 2)
    ),
    "wide": pa.array([Decimal(10**37), Decimal(-1), None], pa.decimal128(38, 0)),
    "tiny": pa.array([Decimal("1E-18"), Decimal("0E-18"), None], pa.decimal128(38, 18)),
    "day": pa.array([*DAYS, None], pa.int32()).cast(pa.date32()),
    "instant": pa.array([*INSTANTS, None], pa.timestamp("us", "UTC")),
    "wall": pa.array([*INSTANTS, None], pa.timestamp("us")),
}
REALS = {
    "real": pa.array([0.0, -0.0, 1e-3, 1e7, float("nan"), float("inf"), 5e-324, None]),
    "bytes": pa.array([b"", b"\xff\x00", None]),
}


def rows(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    longest = max(map(len, columns.values()))
    padded = [pa.concat_arrays([c, pa.nulls(longest - len(c), c.type)]) for c in columns.values()]
    return pa.record_batch(padded, names=list(columns))


def plan_rows(console: ConsoleSink, schema: pa.Schema, zone: str) -> TerminalRows | None:
    return plan_terminal_rows(console, schema, from_arrow_schema(schema, prefer_timestamp_ntz=True), zone)


def sink(*, values: bool, most: int = 100) -> ConsoleSink:
    printer = SimpleNamespace(values=values, show=PlainPrinter().show)
    return ConsoleSink(SinkSpec("out", "console", {"rows": str(most)}), printer)


@pytest.mark.spark
@pytest.mark.parametrize("values", [False, True], ids=["texts", "values"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_rows_are_shown_as_spark_has_them(spark, zone: str, values: bool):
    batch, ours, theirs = rows(ROWS | (REALS if values else {})), sink(values=values), sink(values=values)
    spark.conf.set("spark.sql.session.timeZone", zone)
    table, schema = (
        pa.Table.from_batches([batch]),
        from_arrow_schema(batch.schema, prefer_timestamp_ntz=True),
    )
    frame = spark.createDataFrame(table, schema)
    theirs.write(frame.coalesce(1), "out", 1, "a")
    taken = plan_rows(ours, batch.schema, zone)
    assert taken is not None
    taken.take([batch.slice(0, 2), batch.slice(2, 0), batch.slice(2)], batch.schema, "out", 1, "a")
    (found,), (wanted,) = ours._staged.values(), theirs._staged.values()
    for mine, sparks in zip(found[1], wanted[1], strict=True):
        assert list(mine) == list(sparks)
    assert (found[0], found[2]) == (wanted[0], wanted[2])


def test_only_the_first_rows_are_shown_and_all_are_counted(capsys: pytest.CaptureFixture[str]):
    shown, batch = sink(values=False, most=3), pa.record_batch({"n": list(range(5))})
    taken = plan_rows(shown, batch.schema, "UTC")
    assert taken is not None
    taken.take([batch, batch], batch.schema, "out", 7, "a")
    assert shown.staged_rows("out", 7, "a") == 10
    shown.publish("out", 7, "a", {})
    assert capsys.readouterr().out == "out, tick 7\nn\n0\n1\n2\n… and 7 more rows\n"


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.float32(), pa.binary(), pa.list_(pa.int64()), pa.duration("us")], ids=str
)
def test_other_types_are_left_to_spark(kind: pa.DataType):
    schema = pa.schema([("n", pa.int64()), ("x", kind)])
    assert plan_rows(sink(values=False), schema, "UTC") is None


def test_values_within_others_are_left_to_spark():
    assert plan_rows(sink(values=True), pa.schema([("x", pa.list_(pa.int64()))]), "UTC") is None


def test_times_of_dates_outside_of_pythons_years_are_values():
    shown = sink(values=True)
    batch = pa.record_batch(
        {"t": pa.array([datetime(1, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), "d": [date(1, 1, 1)]}
    )
    beyond = pa.record_batch(
        {
            "t": pa.array([253_402_300_800 * US], pa.timestamp("us", "UTC")),
            "d": pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        }
    )
    taken = plan_rows(shown, batch.schema, "UTC")
    assert taken is not None
    taken.take([batch, beyond], batch.schema, "out", 1, "a")
    first, last = next(iter(shown._staged.values()))[1]
    assert first == ["0001-01-01T00:00:00Z", "0001-01-01"]
    assert last == ["+10000-01-01T00:00:00Z", "+10000-01-01"]
