"""Files that tasks read by Arrow have the rows that Spark's reader gives, or are Spark's to read."""

from __future__ import annotations

import json
import math
import os
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from pyspark import SparkContext

from tests.support.effort import at_effort
from watersmeet import parallel as threads
from watersmeet import parse_job, plan_job
from watersmeet.runtime.coordinator import node_cost
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.files.file_split import FileSplit, UnsupportedFile
from watersmeet.runtime.files.parquet_files import ParquetRows
from watersmeet.runtime.operators import task
from watersmeet.runtime.spark.job.run import run_job
from watersmeet.runtime.spark.job.session import hold_fixed
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.runtime.spark.sources.frames import read
from watersmeet.runtime.spark.sources.scan import scan
from watersmeet.runtime.spark.task_messages import PARTS, START, start_text
from watersmeet.runtime.spark.tick import nodes
from watersmeet.runtime.spark.tick.ingest import REPORT
from watersmeet.runtime.spark.tick.reading import arrow_ingest
from watersmeet.runtime.spark.tick.reading.arrow_ingest import ArrowReading, IngestFiles, count_few_rows
from watersmeet.spec.options.files import FileReader
from watersmeet.state.file_lists import FileRead
from watersmeet.state.store import LocalStore
from watersmeet.types.parser import sql_type

pytestmark = pytest.mark.spark

UTC_US, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [
    *(datetime(1900, 1, 1, tzinfo=UTC), datetime(2022, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)),
    *(EPOCH - timedelta(microseconds=1), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
]
OLD_TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 4, tzinfo=UTC),
    TIMES[0] - timedelta(microseconds=1),
]
VALUES = {
    "BOOLEAN": (pa.bool_(), [True, False]),
    "TINYINT": (pa.int8(), [-128, 127]),
    "SMALLINT": (pa.int16(), [-(2**15), 2**15 - 1]),
    "INT": (pa.int32(), [-(2**31), 2**31 - 1, 7]),
    "BIGINT": (pa.int64(), [-(2**63), 2**63 - 1, 7]),
    "FLOAT": (pa.float32(), [math.nan, -0.0, math.inf, 1.5]),
    "DOUBLE": (pa.float64(), [math.nan, -0.0, -math.inf, 5e-324]),
    "STRING": (pa.string(), ["", "a" * 300, "ä\U0001f600", "a\0b"]),
    "BINARY": (pa.binary(), [b"", b"\xff\xfe", b"a"]),
    "DATE": (pa.date32(), [date(1582, 10, 15), date(2022, 3, 1), date(9999, 12, 31)]),
    "TIMESTAMP": (UTC_US, TIMES),
    "DECIMAL(9,2)": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
    "DECIMAL(18,0)": (pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(-1)]),
    "DECIMAL(38,10)": (pa.decimal128(38, 10), [Decimal("1E-10"), Decimal(-(10**27))]),
}
OLD = {
    "DATE": (pa.date32(), [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 14)]),
    "TIMESTAMP": (UTC_US, OLD_TIMES),
}
"""Values whose meaning depends on who wrote the file."""


def bits(table: pa.Table) -> pa.Table:
    """Floats by their bits: NaN is itself, and -0.0 is not 0.0."""
    whole = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = [
        column.combine_chunks().view(whole[column.type]) if column.type in whole else column
        for column in table.columns
    ]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def read_by_tasks(path, columns):
    """All rows as tasks read them; why they are not, else."""
    kinds = {name: sql_type(text) for name, text in columns.items()}
    try:
        batches = list(ParquetRows().rows_of(FileSplit(str(path)), kinds))
    except UnsupportedFile as why:
        return str(why)
    return pa.Table.from_batches(batches) if batches else None


def by_spark(spark, path, columns):
    declared = ", ".join(f"`{name}` {text}" for name, text in columns.items())
    return spark.read.schema(declared).parquet(str(path)).coalesce(1).toArrow()


def assert_same(spark, path, columns):
    """Whether tasks take it; if they do, as Spark does."""
    mine = read_by_tasks(path, columns)
    if isinstance(mine, str):
        return False
    theirs = by_spark(spark, path, columns)
    if mine is None:
        assert theirs.num_rows == 0
        return True
    assert mine.schema.types == theirs.schema.types, path
    assert bits(mine).equals(bits(theirs.cast(mine.schema))), (path, columns, mine, theirs)
    return True


def column_of(rng, kind, values, rows):
    return pa.array([rng.choice([None, *values]) for _ in range(rows)], kind)


def written(rng, path, table):
    """The same rows in one of the many forms of Parquet."""
    parquet.write_table(
        table,
        path,
        version=rng.choice(["1.0", "2.4", "2.6"]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
        use_dictionary=rng.choice([True, False]),
        row_group_size=rng.choice([3, 50, 10_000]),
        write_statistics=rng.choice([True, False]),
        store_schema=rng.choice([True, False]),
        store_decimal_as_integer=rng.choice([True, False]),
        dictionary_pagesize_limit=rng.choice([64, 1 << 20]),
    )


def test_random_files_are_read_as_spark_reads_them(spark, tmp_path, seed):
    hold_fixed(spark, "UTC")
    rng = random.Random(seed)
    print(f"seed {seed}")
    count = at_effort(quick=8, full=24)
    for number in range(count):
        names = rng.sample(sorted(VALUES), rng.randint(1, 6))
        rows = rng.choice([0, 1, 40, 9000]) if number else 9000
        table = pa.table({f"c{n}": column_of(rng, *VALUES[name], rows) for n, name in enumerate(names)})
        path = tmp_path / f"{number}.parquet"
        written(rng, path, table)
        columns = {f"c{n}".upper() if rng.random() < 0.2 else f"c{n}": name for n, name in enumerate(names)}
        if rng.random() < 0.3:
            columns["lacking"] = "DECIMAL(9,2)"
        assert assert_same(spark, path, columns), read_by_tasks(path, columns)


def test_files_of_spark_are_read_as_spark_reads_them(spark, tmp_path):
    """Times as INT96, µs and ms, as Spark writes them; from views of its own types."""
    hold_fixed(spark, "UTC")
    columns = {f"c{n}": name for n, name in enumerate(VALUES)}
    table = pa.table(
        {f"c{n}": pa.array([*v, *[None] * (4 - len(v))], k) for n, (k, v) in enumerate(VALUES.values())}
    )
    for form in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"):
        spark.conf.set("spark.sql.parquet.outputTimestampType", form)
        try:
            spark.createDataFrame(table).coalesce(1).write.parquet(str(tmp_path / form))
        finally:
            spark.conf.unset("spark.sql.parquet.outputTimestampType")
        (file,) = (tmp_path / form).glob("*.parquet")
        assert assert_same(spark, file, columns), read_by_tasks(file, columns)


@pytest.mark.parametrize(
    ("what", "column", "declared"),
    [
        *((f"old {name}", pa.array([value], kind), name) for name, (kind, v) in OLD.items() for value in v),
        ("nanoseconds", pa.array([1000], pa.timestamp("ns", "UTC")), "TIMESTAMP"),
        ("no zone", pa.array([1], NTZ), "TIMESTAMP"),
        ("no zone, declared", pa.array([1], NTZ), "TIMESTAMP_NTZ"),
        ("wider", pa.array([1], pa.int32()), "BIGINT"),
        ("narrower", pa.array([1], pa.int64()), "INT"),
        ("unsigned", pa.array([2**63], pa.uint64()), "BIGINT"),
        ("unsigned in 32", pa.array([2**31], pa.uint32()), "BIGINT"),
        ("scale", pa.array([Decimal("1.20")], pa.decimal128(9, 2)), "DECIMAL(9,1)"),
        ("fixed", pa.array([b"ab"], pa.binary(2)), "BINARY"),
        ("list", pa.array([[1]]), "ARRAY<BIGINT>"),
        ("struct", pa.array([{"a": 1}]), "STRUCT<a: BIGINT>"),
        ("time", pa.array([1], pa.time64("us")), "BIGINT"),
        ("text as bytes", pa.array(["a"]), "BINARY"),
        ("bytes as text", pa.array([b"a"]), "STRING"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_readers_may_differ_in_is_left_to_spark(tmp_path, what, column, declared):
    parquet.write_table(pa.table({"c": column}), tmp_path / "a.parquet")
    assert isinstance(read_by_tasks(tmp_path / "a.parquet", {"c": declared}), str)


def test_arrow_types_in_the_file_metadata_are_ignored(spark, tmp_path):
    """Parquet knows no durations: Arrow notes in the file that these integers are some."""
    hold_fixed(spark, "UTC")
    table = pa.table(
        {
            "a": pa.array([1, None], pa.duration("us")),
            "b": pa.array(["x", None], pa.large_string()),
            "c": pa.array(["x", None]).dictionary_encode(),
            "d": pa.array([TIMES[1], None], pa.timestamp("us", "America/New_York")),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    columns = {"a": "BIGINT", "b": "STRING", "c": "STRING", "d": "TIMESTAMP"}
    assert assert_same(spark, tmp_path / "a.parquet", columns)


def test_decimals_beyond_their_digits_are_left_to_spark(tmp_path):
    wide = pa.array([Decimal(10**8)], pa.decimal128(18, 0)).cast(pa.int64())
    schema = pa.schema([("c", pa.int64())])
    parquet.write_table(pa.table([wide], schema=schema), tmp_path / "a.parquet")
    assert isinstance(read_by_tasks(tmp_path / "a.parquet", {"c": "DECIMAL(5,0)"}), str)


def test_files_of_older_sparks_are_left_to_spark(tmp_path):
    table = pa.table({"c": pa.array([date(2022, 3, 1)])})
    parquet.write_table(
        table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), tmp_path / "a.parquet"
    )
    assert "calendar" in read_by_tasks(tmp_path / "a.parquet", {"c": "DATE"})


JOB = """
SET file_reader = '{reader}'; SET small_ticks = '{small}'; SET late_output = late;
CREATE MAPPING a_in (k BIGINT, t TIMESTAMP, s STRING) TYPE File OPTIONS
    ('path' = '{data}/a', 'format' = '{wanted}', 'maxFilesPerTrigger' = '1');
CREATE MAPPING b_in (k BIGINT, t TIMESTAMP, n INT) TYPE File OPTIONS
    ('path' = '{data}/b', 'format' = '{wanted}', 'maxFilesPerTrigger' = '2');
CREATE VIEW a AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE a_in, DESCRIPTOR(t), INTERVAL '5' SECONDS));
CREATE VIEW b AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE b_in, DESCRIPTOR(t), INTERVAL '5' SECONDS));
CREATE MAPPING joined TYPE File OPTIONS ('path' = '{out}/joined', 'format' = 'parquet');
CREATE MAPPING late TYPE File OPTIONS ('path' = '{out}/late', 'format' = 'json');
INSERT INTO joined SELECT a.k, a.t AS at, a.s, b.t AS bt, b.n FROM a LEFT JOIN b
    ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '20' SECONDS;
"""


def record_file_splits(monkeypatch) -> list[str]:
    """What tasks are told of the files that they are to read, tick by tick."""
    told, set_property = [], SparkContext.setLocalProperty

    def set_and_record_property(self, name, value):
        if name == PARTS and value:
            told.append(value)
        set_property(self, name, value)

    monkeypatch.setattr(SparkContext, "setLocalProperty", set_and_record_property)
    return told


def run_and_record(monkeypatch, wanted: str, data: Path, out: Path, reader: str, small: str = "auto"):
    """The rows and late rows of a run, per batch whether Spark did not read it, and per tick the most tasks
    that a node had, and whether tasks read it; per batch whether Spark planned scans; in how many threads the
    driver did what it did."""
    seen, tasks, scans, shares = [], [], [], []
    dealt = record_file_splits(monkeypatch)
    told = ArrowReading.told

    def record_batch_and_scans(self, batch, start):
        (stream,) = self._spark.streams.active
        scans.append("FileScan" in stream._jsq.explainInternal(False))
        assert self._spark.conf.get(arrow_ingest.LEAVES_OUT_SCANS) == "false", "no other stream gets it"
        found = told(self, batch, start)
        seen.append(found is not None)
        return found

    def record_task_counts(result, *_):
        tasks.append((max(result.tasks.values(), default=0), bool(dealt)))
        dealt.clear()

    def at_once(do, things):
        shares.append(len(things))
        return threads.parallel_map(do, things)

    for module in (arrow_ingest, nodes, task):
        monkeypatch.setattr(module, "parallel_map", at_once)
    monkeypatch.setattr(node_cost, "MIN_TASK_ROWS", 50 if small == "auto" else node_cost.MIN_TASK_ROWS)
    monkeypatch.setattr(ArrowReading, "told", record_batch_and_scans)
    job = parse_job(JOB.format(wanted=wanted, reader=reader, small=small, data=data, out=out))
    run_job(job, plan_job(job), RunSettings(str(out / "state"), finish=True, on_tick=record_task_counts))
    monkeypatch.undo()
    rows = parquet.read_table(out / "joined").to_pylist()
    late = [
        json.loads(line) for file in (out / "late").rglob("*.json") for line in file.read_text().splitlines()
    ]
    for row in late:
        row["record"] = json.loads(row["record"]) if isinstance(row["record"], str) else row["record"]
    return sorted(map(repr, rows)), sorted(map(repr, late)), seen, tasks, scans, shares


def write(table: pa.Table, path: Path, wanted: str, *, odd: bool) -> None:
    """``odd``: as only Spark reads it, whatever that comes to."""
    if wanted == "parquet":
        if odd:  # a file of an older schema: Spark widens it
            table = table.append_column("more", table["k"])
            table = table.drop(["k"]).append_column("k", table["k"].cast(pa.int32()))
        parquet.write_table(table, path, row_group_size=90)
    elif wanted == "csv":
        csv.write_csv(table, path, csv.WriteOptions(quoting_style="none"))
        if odd:
            path.write_text(path.read_text() + "1,2022-03-01T10:00:30Z\n\n 5,2022-03-01T10:00:30Z,1\n")
    else:
        lines = [json.dumps(row | {"t": row["t"].isoformat()}) for row in table.to_pylist()]
        lines += ['{"k": 1.5}', '{"k": 1, "t": "2022-03-01T10:00:30Z"} {}'] if odd else []
        path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    "wanted", ["parquet", *(pytest.param(name, marks=pytest.mark.full) for name in ("csv", "json"))]
)
def test_a_job_has_the_same_rows_whoever_reads(spark, tmp_path, monkeypatch, seed, wanted):
    """Also where in the middle comes a file that is Spark's to read, and where the driver, or no driver, does
    what is little."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    data = tmp_path / "data"
    for side in "ab":
        (data / side).mkdir(parents=True)
        for number in range(6 if side == "a" else 4):
            times = [TIMES[1] + timedelta(seconds=10 * number + rng.uniform(-12, 10)) for _ in range(200)]
            columns = {"k": [rng.choice([None, *range(40)]) for _ in times], "t": pa.array(times, UTC_US)}
            more = pa.array([rng.choice([None, 1, 2]) for _ in times], pa.int32())
            columns |= {"s": more.cast(pa.string())} if side == "a" else {"n": more}
            path = data / side / f"{number}.{wanted}"
            write(pa.table(columns), path, wanted, odd=(side, number) == ("a", 2))
            os.utime(path, (1e9 + number, 1e9 + number))
    plain = run_and_record(monkeypatch, wanted, data, tmp_path / "one", "spark")
    mixed = run_and_record(monkeypatch, wanted, data, tmp_path / "two", "auto")
    large = run_and_record(monkeypatch, wanted, data, tmp_path / "three", "auto", "spark")
    assert plain[:2] == mixed[:2] == large[:2]
    assert [each for each, _ in mixed[3][:4]] == [0, 0, 0, 0], "nodes are the driver's"
    assert all(each > 0 for each, _ in large[3])
    assert [read for _, read in large[3][:2]] == [True, True]
    assert not any(read for _, read in mixed[3])
    assert (max(mixed[5]), large[5]) == (2, []), "the driver has two threads"
    assert mixed[5].count(2) > 6, "to read, to join and to write"
    assert large[2] == mixed[2]
    assert mixed[4] == large[4] == [False] * 3 + [True] * 4, "the stream starts over, with rows"
    assert set(plain[4]) == {True}
    assert len(plain[0]) > 300
    assert plain[1]
    assert set(plain[2]) == {False}
    assert mixed[2] == [True, True, False, False, False, True, True], (
        "the third file of a is Spark's, and the one that follows"
    )


def test_few_rows_are_known_by_what_files_say(tmp_path):
    path = tmp_path / "a.parquet"

    def few(most=400, files=1):
        return count_few_rows([("parquet", str(path), path.stat().st_size)] * files, most)

    parquet.write_table(pa.table({"c": ["x" * 500] * 400}), path)
    size = path.stat().st_size
    assert [few(most) for most in (400, 399, -1)] == [400, None, None]
    path.write_bytes(b"no parquet")
    assert few() is None
    parquet.write_table(pa.table({"c": ["x" * 500] * 400}), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_ingest, "SMALL_BYTES", size)
        assert few() == 400
        patch.setattr(arrow_ingest, "SMALL_BYTES", size - 1)
        assert few() is None
        parquet.write_table(
            pa.table({"c": ["x" * 500] * 400}), path, use_dictionary=False, compression="zstd"
        )
        assert path.stat().st_size < size - 1
        assert few() is None, "200,000 bytes before they were compressed"
        patch.setattr(arrow_ingest, "SMALL_BYTES", 210_000)
        assert few() == 400
    assert (
        few(400 * arrow_ingest.MAX_INLINE_FILES, arrow_ingest.MAX_INLINE_FILES)
        == 400 * arrow_ingest.MAX_INLINE_FILES
    )
    assert few(400 * (arrow_ingest.MAX_INLINE_FILES + 1), arrow_ingest.MAX_INLINE_FILES + 1) is None


def reader_of(spark, tmp_path, wanted):
    """Read the files of a batch as a job does that has a column of texts, up to 400 rows in the driver."""
    (tmp_path / "in").mkdir()
    job = f"""CREATE TABLE s (c STRING)
        WITH ('connector' = 'file', 'path' = '{tmp_path}/in', 'format' = '{wanted}');
        CREATE SINK o WITH ('connector' = 'memory'); INSERT INTO o SELECT c FROM s"""
    plan, store = plan_job(parse_job(job)), LocalStore(tmp_path / "state")
    hold_fixed(spark, plan.queries[0].options.time_zone)
    scanned = scan(spark, plan, partial(read, spark))
    reader = ArrowReading(spark, plan, scanned, store, FileReader.AUTO, 400)
    start = TickDriver(restore(plan, scanned.schemas, store)).begin(0).start
    spark.sparkContext.setLocalProperty(START, start_text(start))  # for tasks

    def describe_batch(*paths: Path):
        files = [FileRead(0, 0, path.as_uri(), 0, path.stat().st_size, 0) for path in paths]
        of_another_batch = FileRead(0, -1, "file:///gone", 0, 9, 0)
        return reader.told(BatchFiles([*files, of_another_batch], [], {}), start)

    return describe_batch


def test_rows_of_more_bytes_than_their_files_have_are_handed_to_tasks(spark, tmp_path, monkeypatch):
    read_batch, path, handed = (
        reader_of(spark, tmp_path, "parquet"),
        tmp_path / "a",
        record_file_splits(monkeypatch),
    )
    parquet.write_table(pa.table({"c": ["x" * 500] * 400}), path)
    assert [kind for kind, _ in read_batch(path)] == [REPORT]
    assert not handed
    monkeypatch.setattr(arrow_ingest, "SMALL_BYTES", path.stat().st_size)
    assert [kind for kind, _ in read_batch(path)] == [REPORT]
    assert len(handed) == 1


def test_after_tries_in_vain_spark_reads_more_and_more_ticks(spark, tmp_path, monkeypatch):
    read_batch, tried, told = reader_of(spark, tmp_path, "json"), [], IngestFiles.told

    def record_attempts(self, parts, *more):
        tried.extend(int(Path(part.path).name) for _, part in parts)
        return told(self, parts, *more)

    monkeypatch.setattr(arrow_ingest, "MAX_LEFT_TICKS", 4)
    monkeypatch.setattr(IngestFiles, "told", record_attempts)
    for number in range(27):
        path, is_plain = tmp_path / str(number), 20 <= number < 23
        path.write_text('{"c": "x"}' if is_plain else '{"c": "x"} {}')
        assert (read_batch(path) is not None) is is_plain
        if tried[-1:] == [number] and not is_plain:  # it comes again, to a stream that has rows
            assert read_batch(path) is None
        assert read_batch() == [], "a tick without files does not count"
    assert tried == [0, 2, 5, 10, 15, 20, 21, 22, 23, 25]
