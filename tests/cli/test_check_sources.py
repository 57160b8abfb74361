"""What is wrong with a job's sources is said before Spark starts."""

from __future__ import annotations

import gzip
import io
import socket
import struct
import threading
from datetime import datetime

import pyarrow as pa
import pytest
from pyarrow import parquet

JOB = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'file', 'path' = 'in', 'format' = 'csv');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'kafka',
  'bootstrap.servers' = '127.0.0.1:PORT', 'topic' = 'x');
SELECT x.t, y.t AS u FROM a x JOIN b y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3;
"""


def answer(*topics):
    """Of a broker: topics, each with its error code, with a partition."""

    def text(written):
        return struct.pack(">h", len(written)) + written.encode()

    partition = struct.pack(">hiiiiiii", 0, 0, 1, 2, 1, 2, 1, 1)
    found = struct.pack(">iii", 1, 0, 1) + struct.pack(">i", 1) + text("host") + struct.pack(">ih", 9092, -1)
    found += text("cluster") + struct.pack(">ii", 1, len(topics))
    for name, code in topics:
        found += struct.pack(">h", code) + text(name) + b"\0" + struct.pack(">i", 2) + 2 * partition
    return struct.pack(">i", len(found)) + found


class Broker(threading.Thread):
    """Gives every request the one answer; ``asked``: the requests."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self._server, self.answer, self.asked = server, answer(("other", 5), ("x", 0)), []
        self.start()

    def run(self):
        while True:
            try:
                taken, _ = self._server.accept()
            except OSError:
                return
            with taken:
                self.asked.append(taken.recv(1000))
                if self.answer is not None:
                    taken.sendall(self.answer)


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.sql"
    with socket.create_server(("127.0.0.1", 0)) as server:
        file.write_text(JOB.replace("PORT", str(server.getsockname()[1])))
        Broker.last = Broker(server)
        yield file


def test_a_plain_explain_works_where_the_data_is_not(watersmeet, job):
    found = watersmeet("explain", job)
    assert found.status == 0
    assert "x.k = y.k" in found.out
    assert found.err == 'warning: file source "a": the path "in" does not exist; a run is refused for it\n'


def test_with_sources_checked_it_is_an_error(watersmeet, job, tmp_path):
    found = watersmeet("explain", job, "--check-sources")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("EngineError[path-missing]")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("kk,t\nx,1\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "1.csv has no column k" in found.err
    assert 'did you mean "kk"?' in found.err
    (tmp_path / "in" / "1.csv").write_text("other,K,t\n1,x,1\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 0, found.err
    assert found.err == ""
    assert Broker.last.asked[-1].endswith(b"\0\0\0\1\0\1x\0"), "one topic, and none is created"


def test_check_sources_shows_the_first_unreadable_records(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("k,t\nx,7\nx,2026-03-01 10:00\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 0, found.err
    assert 'note: "a": of the first 2 records 1 record left out' in found.err
    assert (
        "x,2026-03-01 10:00 (t is BIGINT, but the value is '2026-03-01 10:00': declare it TIMESTAMP)"
    ) in found.err


ANSWERS = [
    (answer(("other", 0), ("x", 3)), "topic-missing", 'the topic "x" does not exist at 127.0.0.1'),
    (answer(("x", 29)), "topic-not-allowed", "may not read the topic"),
    (answer(("other", 0)), "kafka-unreachable", "is not a Kafka broker"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "kafka-unreachable", "is not a Kafka broker"),
    (answer(("x", 0))[:30], "kafka-unreachable", "closes the connection"),
    (struct.pack(">i", 9) + b"\x7f" * 9, "kafka-unreachable", "no broker answers"),
    (b"", "kafka-unreachable", "'kafka.security.protocol'"),
]


@pytest.mark.parametrize(("given", "code", "said"), ANSWERS)
def test_what_a_broker_says(watersmeet, job, tmp_path, given, code, said):
    (tmp_path / "in").mkdir()
    Broker.last.answer = given
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert f"EngineError[{code}]" in found.err
    assert said in found.err


def test_a_broker_that_never_answers(watersmeet, job, tmp_path, monkeypatch):
    from watersmeet.runtime.spark.preflight import servers

    monkeypatch.setattr(servers, "ANSWER_S", 0.2)
    (tmp_path / "in").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job.write_text(JOB.replace("PORT", str(silent.getsockname()[1])))
        found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "EngineError[kafka-unreachable]" in found.err


def test_brokers_of_other_protocols_are_only_connected_to(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    job.write_text(job.read_text().replace("'topic'", "'kafka.security.protocol' = 'SSL', 'topic'"))
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 0, found.err
    assert 'note: source "b": a broker answers; Spark checks its topics' in found.err


def test_brokers_are_named_as_kafka_takes_them(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    job.write_text(job.read_text().replace("127.0.0.1:", "nowhere:1, PLAINTEXT://[127.0.0.1]:"))
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 0, found.err


@pytest.mark.parametrize(
    ("url", "answers"),
    [
        ("jdbc:postgresql://127.0.0.1:1,[127.0.0.1]:{port}/shop?a=b", True),
        ("jdbc:postgresql://127.0.0.1:1/shop", False),
        ("jdbc:mysql://127.0.0.1:1", False),
        (
            "jdbc:postgresql://127.0.0.1:1/shop?socketFactory=com.google.cloud.sql.postgres.SocketFactory",
            None,
        ),
        ("jdbc:mysql:replication://127.0.0.1:1,127.0.0.1:2/shop", None),
        ("jdbc:oracle:thin:@127.0.0.1:1:shop", None),
    ],
)
def test_databases_are_connected_to(watersmeet, job, url, answers):
    with socket.create_server(("127.0.0.1", 0)) as server:
        job.write_text(f"""
            CREATE TABLE g (k BIGINT, t TIMESTAMP, WATERMARK FOR t) WITH ('connector' = 'generator');
            CREATE TABLE d (k BIGINT, v INT) WITH ('connector' = 'jdbc', 'dbtable' = 'd',
              'url' = '{url.format(port=server.getsockname()[1])}');
            SELECT g.t, d.v FROM g JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON g.k = d.k""")
        found = watersmeet("explain", job, "--check-sources")
    assert found.status == (2 if answers is False else 0), found.err
    assert ("EngineError[database-unreachable]" in found.err) == (answers is False)
    assert ('note: table "d": a database answers' in found.err) == (answers is True)
    assert ('note: table "d": Spark checks the table' in found.err) == (answers is None)


def test_a_broker_that_is_away(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    job.write_text(JOB.replace("PORT", "1"))
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "kafka-unreachable" in found.err


def test_a_run_is_refused_before_spark_starts(watersmeet, job, monkeypatch):
    from watersmeet.runtime.spark.job import session

    def started(conf):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start", started)
    found = watersmeet("run", job)
    assert found.status == 2
    assert found.err.startswith('EngineError[path-missing]: file source "a": the path "in" does not exist')


def test_names_that_spark_takes_for_patterns(watersmeet, job, tmp_path):
    """Each of the two would be read twice."""
    (tmp_path / "in").mkdir()
    for name in ("a[1].csv", "b.csv"):
        (tmp_path / "in" / name).write_text("k,t\nx,1\n")
    found = watersmeet("run", job)
    assert found.status == 2
    assert "EngineError[file-name]" in found.err
    assert "a[1].csv" in found.err


def test_files_with_other_headers_are_named(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("k,t\nx,1\n")
    (tmp_path / "in" / "2.csv").write_text("t,k\n1,x\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "1.csv has k, t" in found.err
    assert "2.csv has t, k" in found.err


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT x.t FROM a x WHERE TO_MONEY(x.k) > 1", "there is no function TO_MONEY() in Spark"),
        ("SELECT substring(x.k) AS s FROM a x", "substring() takes 2 or 3 arguments, and 1 is given"),
        (
            "SELECT x.t FROM a x WHERE CAST(x.t AS TIMESTAMP) >= 2024-03-01",
            "2024-03-01 without quotes is a subtraction with the result 2020",
        ),
        (
            "SELECT window_start, max_by(k, CAST(t AS TIMESTAMP) * 1) AS m"
            " FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 10)) GROUP BY window_start, window_end",
            "Spark cannot apply * to TIMESTAMP and INT",
        ),
    ],
)
def test_what_spark_would_refuse_is_refused_where_it_stands(watersmeet, job, query, said):
    job.write_text(JOB.rpartition("SELECT")[0] + query + ";")
    found = watersmeet("explain", job)
    assert found.status == 2
    assert said in found.err
    assert "line 6" in found.err


def test_functions_of_extensions_are_left_to_spark(watersmeet, job):
    job.write_text(
        "SET spark.sql.extensions = 'x.Y';"
        + JOB.rpartition("SELECT")[0]
        + "SELECT to_money(x.k) AS m FROM a x;"
    )
    assert watersmeet("explain", job).status == 0


T = "2024-01-01T00:00:00Z"
GOOD_CSV, GOOD_JSON = f"t,x\n{T},1\n".encode(), f'{{"t": "{T}", "x": 1}}\n'.encode()


def good_parquet():
    sink = io.BytesIO()
    times = pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))
    parquet.write_table(pa.table({"t": times, "x": [1]}), sink)
    return sink.getvalue()


def build_job_text(path, kind, more=""):
    return (
        "CREATE TABLE a (t TIMESTAMP, x BIGINT, WATERMARK FOR t) WITH ('connector' = 'file', "
        f"'path' = '{path}', 'format' = '{kind}'{more}); SELECT * FROM a;"
    )


FILES = {
    "torn": ("parquet", good_parquet()[:-20], "it is not a complete Parquet file", "elsewhere"),
    "text": ("parquet", GOOD_CSV, "it is a text file, not a Parquet file", "'format' = 'csv'"),
    "bytes": ("parquet", bytes(range(256)) * 9, "it is not a Parquet file", "'format'"),
    "csv in UTF-16": ("csv", GOOD_CSV.decode().encode("utf-16"), "it is UTF-16, not UTF-8 text", "iconv"),
    "json in UTF-16": ("json", GOOD_JSON.decode().encode("utf-16-le"), "it is UTF-16LE, not", "iconv"),
    "csv of bytes": ("csv", bytes(range(256)) * 9, "it is not text", "'format'"),
    "csv in UTF-16 without a mark": ("csv", GOOD_CSV.decode().encode("utf-16-be"), "it is UTF-16BE", "iconv"),
    "csv in UTF-32": ("csv", GOOD_CSV.decode().encode("utf-32"), "it is UTF-32, not UTF-8 text", "iconv"),
    "csv of json": ("csv", GOOD_JSON, "its first line is a JSON object", "'format' = 'json'"),
    "csv of Parquet": ("csv", good_parquet(), "it is a Parquet file", "'format' = 'parquet'"),
    "json of Parquet": ("json", good_parquet(), "it is a Parquet file", "'format' = 'parquet'"),
    "json of gzip": ("json", gzip.compress(GOOD_JSON), "it is compressed with gzip", ".gz"),
    "csv of a program": (
        "csv",
        b"\x7fELF\2\1\1" + bytes(200) + bytes(range(256)) + bytes(100),
        "it is not text",
        "'format'",
    ),
    "csv of small numbers": ("csv", struct.pack("<500H", *range(500)), "it is not text", "'format'"),
    "pretty": ("json", b'[\n{"t":\n"x"}]\n', "none of its first lines is a JSON", "'multiLine' = 'true'"),
    "json of csv": ("json", GOOD_CSV, "none of its first lines is a JSON object", "'format'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read_are_named(watersmeet, tmp_path, name):
    kind, content, said, hint = FILES[name]
    good = {"csv": GOOD_CSV, "json": GOOD_JSON, "parquet": good_parquet()}[kind]
    for place in range(4):
        (tmp_path / f"{place}.{kind}").write_bytes(content if place in (1, 2) else good)
    job = tmp_path / "_job.sql"
    job.write_text(build_job_text(tmp_path, kind))
    found = watersmeet("explain", job, "--check-sources")
    assert (found.status, found.out) == (2, ""), found.err
    errors = [line for line in found.err.splitlines() if not line.startswith("note: ")]
    assert 'file source "a": ' in errors[0]
    assert said in errors[0]
    shown = watersmeet("preview", job)
    assert (shown.status, shown.out, f'"a": {said}' in shown.err) == (2, "", True), shown.err
    assert f"{tmp_path}/1.{kind}, and 1 more" in errors[0]
    assert hint in errors[1]


def test_a_torn_archive_and_one_that_is_whole(watersmeet, tmp_path):
    (tmp_path / "1.json.gz").write_bytes(gzip.compress(GOOD_JSON))
    (tmp_path / "_job.sql").write_text(build_job_text(tmp_path, "json"))
    assert watersmeet("explain", tmp_path / "_job.sql", "--check-sources").status == 0
    (tmp_path / "2.json.gz").write_bytes(gzip.compress(GOOD_JSON)[:-12])
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    assert (found.status, "it is not a complete .gz file" in found.err, "2.json.gz" in found.err) == (
        2,
        True,
        True,
    )


def test_good_files_and_odd_characters_are_no_errors(watersmeet, tmp_path):
    """Of a stray byte a note says so; empty files and text cut within a character are nothing to speak of."""
    (tmp_path / "1.csv").write_bytes(GOOD_CSV)
    (tmp_path / "2.csv").write_bytes(b"\xef\xbb\xbf" + GOOD_CSV + b"x," + "ä".encode() * 70_000)
    (tmp_path / "3.csv").write_bytes(b"")
    (tmp_path / "_job.sql").write_text(build_job_text(tmp_path, "csv"))
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    assert (found.status, "UTF-8" in found.err) == (0, False), found.err
    (tmp_path / "4.csv").write_bytes(GOOD_CSV + b"caf\xe9,1\n")
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    assert found.status == 0
    assert "note: " in found.err
    assert "4.csv" in found.err


JSON_OF_SPARK = [
    (b"{'t': 1, 'k': \"it's\"}\n", {}, False),
    (b'[{"t": 1}, {"t": 2}]\n', {}, False),
    (b"{t: 1}\n{t: 2}\n", {"allowUnquotedFieldNames": "true"}, False),
    (b'{"t": 01}\n', {"allowNumericLeadingZeros": "true"}, False),
    (b'{"k": "\\d"}\n', {"allowBackslashEscapingAnyCharacter": "true"}, False),
    (b'{"t": 1};{"t": 2};', {"lineSep": ";"}, False),
    ('{"t": 1}\n{"t": 2}\n'.encode("utf-16-le"), {"encoding": "UTF-16LE", "lineSep": "\n"}, False),
    (b"{t: 1}\n", {}, True),
    (b'{"t": 01}\n', {}, True),
]


@pytest.mark.parametrize(("content", "options", "noted"), JSON_OF_SPARK)
def test_json_that_spark_may_read_is_no_error(watersmeet, tmp_path, content, options, noted):
    """Only where no line can be a record is that certain."""
    (tmp_path / "1.json").write_bytes(content)
    given = "".join(f", '{name}' = '{value}'" for name, value in options.items())
    text = build_job_text(tmp_path, "json").replace("'format' = 'json'", f"'format' = 'json'{given}")
    assert given in text
    (tmp_path / "_job.sql").write_text(text)
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    assert (found.status, "a complete JSON object" in found.err) == (0, noted), found.err


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["1.json", "x/2.json"], "x/2.json"),
        (["x/k=1/1.json"], None),
        (["x/k=1/1.json", "y/k=2/1.json"], "k="),
        (["k=1/x/j=2/1.json"], "j=2/1.json"),
        (["1.json", "k=1/2.json"], "1.json"),
        (["k=1/1.json", "k=1/j=2/2.json"], "others k ("),
        (["k=1/1.json", "k=2/x/y/2.json"], None),
        (["_k=1/1.json"], None),
    ],
)
def test_files_in_directories(watersmeet, tmp_path, files, said):
    for name in files:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(GOOD_JSON)
    (tmp_path / "_job.sql").write_text(build_job_text(tmp_path / "in", "json"))
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    assert found.status == (2 if said else 0), found.err
    if said:
        assert "file-unread" in found.err
        assert said in found.err
        assert "Hint: " in found.err


def test_a_hidden_file_is_noted(watersmeet, tmp_path):
    (tmp_path / "1.json").write_bytes(GOOD_JSON)
    (tmp_path / "_2.json").write_bytes(GOOD_JSON)
    (tmp_path / "_job.sql").write_text(build_job_text(tmp_path, "json", ", 'recursiveFileLookup' = 'false'"))
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    assert found.status == 0
    assert "_2.json" in found.err


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_check_sources_suggests_the_separator(watersmeet, tmp_path, separator):
    (tmp_path / "1.csv").write_text(f"t{separator}x\n{T}{separator}1\n")
    (tmp_path / "_job.sql").write_text(build_job_text(tmp_path, "csv"))
    found = watersmeet("explain", tmp_path / "_job.sql", "--check-sources")
    written = {"\t": "\\t"}.get(separator, separator)
    assert f"set 'sep' = '{written}'" in found.err
    (tmp_path / "_job.sql").write_text(build_job_text(tmp_path, "csv", f", 'sep' = '{written}'"))
    assert watersmeet("explain", tmp_path / "_job.sql", "--check-sources").status == 0
