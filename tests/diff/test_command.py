"""The command, without Spark: files as a job reads them, an output as it puts it out, and what is said."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from watersmeet.cli.diff import spark_answer
from watersmeet.cli.diff.command import _Answers, _topic_notes
from watersmeet.cli.diff.duckdb_rows import json_rows
from watersmeet.cli.diff.source_rows import SourceFiles, collect_source_files
from watersmeet.cli.job_file import job_in
from watersmeet.cli.main import main
from watersmeet.diff.bags import LATE, MISSING, UNEXPLAINED, Differences, open_database
from watersmeet.diff.explanations import QueryFacts
from watersmeet.errors import EngineError, SeveralErrors
from watersmeet.plan.planner import plan_job
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead
from watersmeet.state.store import MemoryStore

JOB = """
CREATE MAPPING orders (id BIGINT, at TIMESTAMP) TYPE File OPTIONS ('path' = 'orders', 'format' = 'csv');
CREATE MAPPING sent (id BIGINT, at TIMESTAMP, price DOUBLE)
  TYPE File OPTIONS ('path' = 'sent', 'format' = 'parquet');
CREATE MAPPING out TYPE File OPTIONS ('path' = 'out', 'format' = 'parquet');
CREATE VIEW o AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE orders, DESCRIPTOR(at), INTERVAL '10' SECONDS));
CREATE VIEW s AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE sent, DESCRIPTOR(at), INTERVAL '10' SECONDS));
INSERT INTO out
SELECT o.id, o.at, s.price FROM o LEFT JOIN s
  ON s.id = o.id AND s.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR;
"""
US = pa.timestamp("us", "UTC")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the job and its rows; both files of a source are there."""
    monkeypatch.chdir(tmp_path)
    for folder in ("orders", "sent"):
        (tmp_path / folder).mkdir()
    (tmp_path / "job.sql").write_text(JOB)
    (tmp_path / "orders/1.csv").write_text("at,id\n2022-03-01 10:00:00,1\n2022-03-01 10:01:00,2\n")
    (tmp_path / "orders/2.csv").write_text("at,id\n2022-03-01 10:02:00,3\n")
    hour = 1_646_128_800_000_000
    sent = {"id": [1, 3], "at": pa.array([hour, hour + 10**9], US), "price": [1.5, -0.0]}
    parquet.write_table(pa.table(sent), tmp_path / "sent/1.parquet")
    return tmp_path


def output(place: Path, *rows: tuple[Any, ...], name: str = "put_out.parquet") -> str:
    ids, times, prices = (list(column) for column in zip(*rows, strict=True))
    table = {"id": ids, "at": pa.array(times, US), "price": pa.array(prices, pa.float64())}
    parquet.write_table(pa.table(table), place / name)
    return str(place / name)


def run_diff(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    status = main(["diff", "job.sql", "--input", "orders=orders", "--input", "sent=sent", "--json", *more])
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if printed.out else {"error": printed.err}


TEN = 1_646_128_800_000_000
MINUTE = 60_000_000


def test_equal_and_different(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [(1, TEN, 1.5), (2, TEN + MINUTE, None), (3, TEN + 2 * MINUTE, 0.0)]
    status, found = run_diff(capsys, "--output", f"out={output(place, *good)}")
    assert (status, found["equal"], found["batch_rows"], found["engine"]) == (0, True, 3, "duckdb"), found

    bad = [(1, TEN, 1.5), (1, TEN, 1.5), (2, TEN + MINUTE, 4.0)]
    to = place / "rows.csv"
    status, found = run_diff(capsys, "--output", f"out={output(place, *bad)}", "--to", str(to))
    assert status == 1
    assert {(r["side"], r["row"][0], r["row"][2], r["count"]) for r in found["rows"]} == {
        ("extra", 1, 1.5, 1),
        ("extra", 2, 4.0, 1),
        ("missing", 2, None, 1),
        ("missing", 3, 0, 1),
    }
    assert len(to.read_text().splitlines()) == 5
    assert main(["diff", "job.sql", "--input", "orders=orders", "--input", "sent=sent", "--output",
                 f"out={place / 'put_out.parquet'}", "--limit", "1"]) == 1  # fmt: skip
    shown = capsys.readouterr().out
    assert "out: differs: 3 rows in the output, 3 in the batch answer" in shown
    assert "+ 2 rows extra: UNEXPLAINED" in shown
    assert "… and 3 more rows (all of them: --to differences.parquet)" in shown


def test_columns_are_those_in_the_files_whatever_directories_are_called(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [(1, TEN, 1.5), (2, TEN + MINUTE, None), (3, TEN + 2 * MINUTE, 0.0)]
    (place / "id=7").mkdir()
    status, found = run_diff(capsys, "--output", f"out={output(place, *good, name='id=7/out.parquet')}")
    assert (status, found["equal"]) == (0, True), found


def test_unreadable_output_file_is_reported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "out.parquet").write_text("no")
    status, found = run_diff(capsys, "--output", "out=out.parquet")
    assert status == 2
    assert 'what "out" has written cannot be read' in found["error"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--output", "other=x"], 'the job has no query "other"'),
        (["--output", "out"], "is not NAME=PATH"),
        (["--output", "out=nowhere"], "there is no file at nowhere"),
        (["--input", "else=x"], 'the job has no stream "else"'),
        (["--output", "out=job.sql"], "files of one format that is known by its name are not at job.sql"),
    ],
)
def test_invalid_arguments_are_reported(
    place: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    status, found = run_diff(capsys, *more)
    assert status == 2
    assert said in found["error"]


def test_without_a_state_rows_are_to_be_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "job.sql"]) == 2
    assert 'the job has read no rows of "orders"' in capsys.readouterr().err


def test_a_file_that_was_found_changed_is_read_once(place: Path) -> None:
    plan, store = plan_job(job_in(JOB, "job.sql")), MemoryStore()
    names = [source.name for source in plan.sources]
    there = [place / "orders/1.csv", place / "orders/2.csv"]
    orders = names.index("orders")
    was = [
        FileRead(orders, 0, file.as_uri(), 0, file.stat().st_size, file.stat().st_mtime_ns) for file in there
    ]
    there[0].write_text("at,id\n2022-03-01 10:00:00,1\n")
    now = there[0].stat()
    found = [FileRead(orders, -1, there[0].as_uri(), 0, now.st_size, now.st_mtime_ns)]
    never = [FileRead(orders, -2, (place / "orders/3.csv").as_uri(), 0, -1, -1)]
    lists = file_lists.add(store, file_lists.add(store, [], was), [*found, *never])
    host = {file_lists.KEY: [entry.model_dump() for entry in lists]}
    manifest: Any = SimpleNamespace(sources=names, host=host)
    read = collect_source_files(plan, manifest, store, {"sent": "sent"}, pytest.fail)["orders"]
    assert read.local_files == [str(file) for file in there]
    assert (read.changed, read.gone) == ([str(there[0])], [])


@pytest.mark.full
@pytest.mark.spark
def test_spark_answers_the_same(spark: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [(1, TEN, 1.5), (2, TEN + MINUTE, None), (3, TEN + 2 * MINUTE, 0.0)]
    status, equal = run_diff(capsys, "--output", f"out={output(place, *good)}", "--engine", "spark")
    assert "error" not in equal, equal
    assert (status, equal["equal"], equal["batch_rows"], equal["engine"]) == (0, True, 3, "spark"), equal
    text = JOB.replace("s.price FROM", "s.price * 2 AS price FROM")
    (place / "job.sql").write_text(text)
    status, other = run_diff(capsys, "--output", f"out={output(place, *good)}")
    assert (status, other["engine"]) == (1, "spark")
    assert {(r["side"], r["row"][2]) for r in other["rows"]} == {("extra", 1.5), ("missing", 3)}


def test_decimals_of_json_files_are_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DOUBLEs hold 15 digits of any number."""
    amount = "DECIMAL(38, 2)"
    job = JOB.replace("price DOUBLE", f"price {amount}, rate DOUBLE").replace("s.price", "s.price, s.rate")
    job = job.replace("'out', 'format' = 'parquet'", "'out', 'format' = 'json'")
    (place / "job.sql").write_text(job)
    sent = {
        "id": [1, 3],
        "at": pa.array([TEN, TEN + 2 * MINUTE], US),
        "price": pa.array([Decimal("421610615998048273.84"), Decimal("0")], pa.decimal128(38, 2)),
        "rate": [float("nan"), 0.5],
    }
    parquet.write_table(pa.table(sent), place / "sent/1.parquet")
    rows = [
        '{"id":1,"at":"2022-03-01T11:00:00+01:00","price":421610615998048273.84,"rate":"NaN"}',
        '{"id":2,"at":"2022-03-01T10:01:00Z","price":null}',
        '{"id":3,"at":"2022-03-01T10:02:00Z","price":0.00,"rate":0.5}',
    ]
    (place / "put_out").mkdir()
    (place / "put_out/1.json").write_text("\n".join(rows[:2]) + "\n")
    (place / "put_out/2.json").write_text(rows[2] + "\n")
    (place / "put_out/3.json").write_text("")
    status, found = run_diff(capsys, "--output", "out=put_out")
    assert (status, found.get("equal"), found.get("batch_rows")) == (0, True, 3), found

    (place / "put_out/1.json").write_text("\n".join(rows[:2]).replace("73.84", "73.85") + "\n")
    status, found = run_diff(capsys, "--output", "out=put_out")
    assert {row["row"][2] for row in found["rows"]} == {"421610615998048273.84", "421610615998048273.85"}


def test_decimals_within_arrays_and_structs_of_json_are_whole(tmp_path: Path) -> None:
    wide, beside = "STRUCT(x DECIMAL(38,2), n BIGINT, s VARCHAR)", "STRUCT(x DECIMAL(38,2), y DOUBLE)"
    (tmp_path / "1.json").write_text(
        '{"a": [421610615998048273.84, null, 1.5], "b": {"x": 12345678901234567890.12, "s": "\\u00e9"},'
        ' "c": [0.5]}\n'
        '{"a": null, "b": {"n": 3}}\n{"b": {}, "c": []}\n{"a": [], "b": null}\n'
    )
    db = open_database(str(tmp_path))
    types = {"a": "DECIMAL(38,2)[]", "b": wide, "c": "DECIMAL(15,2)[]"}
    json_rows(db, "t", [str(tmp_path / "1.json")], types, '"out"')
    assert db.execute("SELECT * FROM t").fetchall() == [
        (
            [Decimal("421610615998048273.84"), None, Decimal("1.50")],
            {"x": Decimal("12345678901234567890.12"), "n": None, "s": "é"},
            [Decimal("0.50")],
        ),
        (None, {"x": None, "n": 3, "s": None}, None),
        (None, {"x": None, "n": None, "s": None}, []),
        ([], None, None),
    ]
    with pytest.raises(EngineError, match=r'column "d" is STRUCT'):
        json_rows(db, "t", [], {"d": beside}, '"out"')


def test_unexplained_missing_rows_of_topics_get_a_note() -> None:
    text = """CREATE TABLE a (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 1)
      WITH ('connector' = 'kafka', 'topic' = 'a', 'bootstrap.servers' = 'k:9092', 'format' = 'json');
    CREATE SINK q WITH ('connector' = 'memory'); INSERT INTO q SELECT k FROM a;"""
    (source,) = plan_job(job_in(text, "job.sql", {}, None)).sources
    read = {"a": SourceFiles(source, ends={"a": {"0": 7}}), "b": SourceFiles(source)}
    counts = {(MISSING, UNEXPLAINED): 1}
    (note,) = _topic_notes(read, Differences(("k",), 1, 0, counts, (), 0))
    assert note.startswith("a: records that its topics have no more")
    assert not _topic_notes(read, Differences(("k",), 1, 0, {(MISSING, LATE): 1}, (), 0))


@pytest.mark.parametrize(
    ("settings", "asked"), [("", True), ("SET 'spark.x' = '-DsocksProxyHost=p';", False)]
)
def test_brokers_are_checked_before_java_starts(
    monkeypatch: pytest.MonkeyPatch, settings: str, asked: bool
) -> None:
    away = "'connector' = 'kafka', 'bootstrap.servers' = '127.0.0.1:1', 'format' = 'json'"
    text = f"""{settings} CREATE TABLE a (k BIGINT, t BIGINT, WATERMARK FOR t) WITH ('topic' = 'a', {away});
    CREATE TABLE b (k BIGINT, t BIGINT, WATERMARK FOR t) WITH ('topic' = 'b', {away});
    CREATE SINK q WITH ('topic' = 'q', {away});
    INSERT INTO q SELECT a.k FROM a JOIN b ON a.t = b.t;"""
    job = job_in(text, "job.sql", {}, None)
    sources = plan_job(job).sources
    read = {source.name: SourceFiles(source, ends={source.name: {"0": 7}}) for source in sources}
    (insert,) = job.inserts

    def started(*_: object) -> None:
        raise NotImplementedError("a JVM")

    monkeypatch.setattr(spark_answer, "SparkAnswers", started)
    answers = _Answers(None, "", SimpleNamespace(job=job, read=read, outputs={}), "spark", {})
    with pytest.raises(SeveralErrors if asked else NotImplementedError) as refused:
        answers.first(insert, QueryFacts())
    if asked:
        codes = [error.code for error in refused.value.errors]
        assert codes == ["kafka-unreachable", "kafka-unreachable", "sink-unreachable"]
    answers = _Answers(None, "", SimpleNamespace(job=job, read={}, outputs={"q": "out"}), "spark", {})
    with pytest.raises(NotImplementedError):  # nothing of Kafka is read
        answers.first(insert, QueryFacts())
