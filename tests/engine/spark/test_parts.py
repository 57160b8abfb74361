"""Parts of the Spark engine that need no JVM: texts, settings, errors, what a restart is checked for."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from watersmeet.errors import EngineError, SpecError, StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.restart import build_host, check_checkpoint, is_committed
from watersmeet.runtime.spark.errors import innermost_message, readable_error
from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.job.external_session import hold_java, refuse_connect
from watersmeet.runtime.spark.sources import frames
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.runtime.spark.sources.frames import check_parquet
from watersmeet.runtime.spark.sources.generator import value_sql
from watersmeet.runtime.spark.sources.kafka import partition_names
from watersmeet.runtime.spark.sources.topics import list_partition_numbers
from watersmeet.runtime.spark.sql_text import literal, quote_name
from watersmeet.runtime.spark.task_messages import node_text, parse_node
from watersmeet.sinks.parquet import ParquetPart
from watersmeet.spec.model import Source
from watersmeet.state.manifest import Manifest

NOTHING = JobPlan(queries=())


def test_names_and_literals_survive_quoting():
    assert quote_name("a`b.c") == "`a``b.c`"
    assert literal("it's \\ here") == "'it\\'s \\\\ here'"


def test_settings_of_the_user_win_and_jars_add_up(tmp_path):
    (tmp_path / "one.jar").touch()
    found = session.build_session_settings(
        master="local[3]",
        jars=str(tmp_path),
        conf={"spark.jars": "/x.jar", "spark.ui.enabled": "true"},
        kafka=True,
    )
    assert found["spark.master"] == "local[3]"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.jars"].split(",")[-1] == "/x.jar"
    assert "spark.jars.packages" not in found


@pytest.mark.parametrize("java", ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
def test_java_options_of_the_user_are_added_unless_they_choose_a_collector(java, monkeypatch):
    monkeypatch.setattr(session, "own_cores", lambda: 16)
    last = session.LANGUAGE
    asked = f"{session.COLLECTOR} {session.COMPILER} -Dx=1 {last}"
    assert session.build_session_settings()[java] == f"{session.COLLECTOR} {session.COMPILER} {last}"
    assert session.build_session_settings(conf={java: "-Dx=1"})[java] == asked
    assert (
        session.build_session_settings(conf={java: "-XX:+UseZGC"})[java]
        == f"{session.COMPILER} -XX:+UseZGC {last}"
    )


def test_upper_and_lower_case_do_not_go_by_the_machines_language():
    for name in (session.JAVA_OPTIONS, session.EXECUTOR_OPTIONS):
        assert session.build_session_settings()[name].endswith(session.LANGUAGE)
        asked = session.build_session_settings(conf={name: "-Duser.language=tr -Xss4m"})[name]
        assert asked.endswith(f"-Xss4m {session.LANGUAGE}")


def test_kafka_without_local_jars_asks_for_the_package(monkeypatch):
    monkeypatch.delenv(session.JARS_VARIABLE, raising=False)
    assert "spark-sql-kafka-0-10_2.13" in session.build_session_settings(kafka=True)["spark.jars.packages"]
    assert "spark.jars.packages" not in session.build_session_settings()


@pytest.mark.parametrize("place", ["/nowhere/at/all", "~nobody-of-ours/jars"])
def test_jars_that_are_not_there_are_named(place):
    with pytest.raises(EngineError, match=f'there are no jars at "{place}"'):
        session.local_jars(place)


def test_task_description_survives_a_round_trip():
    answers = {0: [("answers/1", 47)], 3: []}
    assert parse_node(node_text("a", 1)) == ("a", 1, None, {})
    assert parse_node(node_text("a", 1, ParquetPart("/x y"), answers)) == (
        "a",
        1,
        ParquetPart("/x y"),
        answers,
    )


def test_foreign_errors_are_read_without_their_stack():
    text = (
        "[STREAM_FAILED] Query terminated with exception: Job aborted\n"
        "\tat org.apache.spark.Foo.bar(Foo.scala:1)\n"
        "Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. "
        "SQLSTATE: 22012\n"
        "\tat org.apache.spark.Baz.quux(Baz.scala:2)"
    )
    assert innermost_message(RuntimeError(text)) == "Division by zero."
    assert readable_error(OSError("java.io.IOException: No space left on device")).code == "disk-full"


def test_partitions_are_named_as_rows_name_them():
    one = Source("s", (), "kafka", {"topic": "a"})
    two = Source("s", (), "kafka", {"topic": "a, b"})
    assert partition_names(one, {"a": [1, 0]}) == ("0", "1")
    assert partition_names(two, {"b": [0], "a": [0, 1]}) == ("a/0", "a/1", "b/0")


class Described(SimpleNamespace):
    """A list of Java's with the numbers of partitions; ``toString``: what it says of itself."""

    def partitions(self):
        return self

    def size(self):
        return len(self.numbers)

    def get(self, place):
        return SimpleNamespace(partition=lambda: self.numbers[place])


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        # of clients 3.9: two replicas, then no leader
        (
            [0, 12],
            "[(partition=0, leader=h:9092 (id: 1 rack: r isFenced: false), replicas=h:9092 (id: 1 rack: r"
            " isFenced: false), g:9092 (id: 2 rack: null isFenced: false), isr=h:9092 (id: 1 rack: r"
            " isFenced: false), elr=, lastKnownElr=), (partition=12, leader=null,"
            " replicas=g:9092 (id: 2 rack: null isFenced: false), isr=, elr=N/A, lastKnownElr=N/A)]",
        ),
        ([], "[]"),
        (
            [3, 4],
            "[Info[partition=3, leader=null], Info[partition=4, leader=null]]",
        ),
        ([3], "[(partition=3, leader=h:9092 (id: 1 rack: (partition=4, leader=), isr=)]"),
    ],
)
def test_numbers_of_partitions_are_found_however_a_client_words_them(numbers, said):
    assert list_partition_numbers(Described(numbers=numbers, toString=lambda: said)) == numbers


def test_a_generator_refuses_options_that_there_are_not():
    source = Source("g", (column("k", "BIGINT"),), "generator", {"keyz": "3"})
    with pytest.raises(SpecError, match="keyz"):
        value_sql(source, source.columns[0])


def _checkpoint(tmp_path, planned: int | None, committed: int | None, query_id: str = "q") -> Checkpoint:
    checkpoint = Checkpoint(tmp_path)
    for folder in ("offsets", "commits"):
        (checkpoint.spark / folder).mkdir(parents=True)
    (checkpoint.spark / "metadata").write_text(json.dumps({"id": query_id}))
    for batch in range((planned if planned is not None else -1) + 1):
        (checkpoint.spark / "offsets" / str(batch)).write_text(
            f'v1\n{{"batchTimestampMs":{batch}}}\n{{"o":{batch}}}'
        )
    for batch in range((committed if committed is not None else -1) + 1):
        (checkpoint.spark / "commits" / str(batch)).write_text("v1\n{}")
    return checkpoint


def _manifest(checkpoint: Checkpoint, batch: int, query_id: str = "q") -> Manifest:
    host = build_host(query_id, checkpoint.offsets(batch), NOTHING, {}, BatchFiles([], [], {}))
    return Manifest(tick=batch + 1, clock_us=0, fingerprints={}, sources=[], queries={}, host=host)


@pytest.mark.parametrize(("planned", "committed"), [(2, 2), (2, 1), (3, 2)])
def test_what_a_kill_can_leave_is_fine(tmp_path, planned, committed):
    checkpoint = _checkpoint(tmp_path, planned, committed)
    check_checkpoint(checkpoint, _manifest(checkpoint, 2).host, NOTHING)


def test_a_repeated_batch_is_skipped_only_if_all_is_equal(tmp_path):
    checkpoint = _checkpoint(tmp_path, 3, 1)
    manifest = _manifest(checkpoint, 2)
    assert is_committed(manifest, "q", checkpoint.offsets(2), NOTHING)
    assert not is_committed(manifest, "q", checkpoint.offsets(3), NOTHING)
    with pytest.raises(StateError, match="other offsets"):
        is_committed(manifest, "another", checkpoint.offsets(2), NOTHING)
    with pytest.raises(StateError, match="starts batch 1"):
        is_committed(manifest, "q", checkpoint.offsets(1), NOTHING)


def test_a_lost_or_foreign_part_is_refused(tmp_path):
    checkpoint = _checkpoint(tmp_path / "a", 2, 2)
    manifest = _manifest(checkpoint, 2)
    with pytest.raises(StateError) as lost:
        check_checkpoint(checkpoint, None, NOTHING)
    assert lost.value.code == "state-lost"
    with pytest.raises(StateError) as gone:
        check_checkpoint(Checkpoint(tmp_path / "b"), manifest.host, NOTHING)
    assert gone.value.code == "spark-checkpoint-lost"
    with pytest.raises(StateError) as foreign:
        check_checkpoint(_checkpoint(tmp_path / "c", 2, 2, "other"), manifest.host, NOTHING)
    assert foreign.value.code == "spark-checkpoint-changed"
    for planned, committed in ((1, 1), (4, 3)):
        with pytest.raises(StateError) as gap:
            check_checkpoint(
                _checkpoint(tmp_path / f"d{planned}", planned, committed), manifest.host, NOTHING
            )
        assert gap.value.code == "checkpoint-gap"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\x00\x01"])
def test_a_damaged_id_of_the_query_is_refused_with_what_to_do(tmp_path, text):
    checkpoint = _checkpoint(tmp_path, 1, 1)
    manifest = _manifest(checkpoint, 1)
    (checkpoint.spark / "metadata").write_text(text)
    with pytest.raises(StateError) as damaged:
        check_checkpoint(checkpoint, manifest.host, NOTHING)
    assert damaged.value.code == "spark-checkpoint-lost"
    assert "--rebuild-spark-checkpoint" in (damaged.value.hint or "")


def test_one_run_at_a_time(tmp_path):
    with (
        Checkpoint(tmp_path).lock(),
        pytest.raises(StateError, match="another run"),
        Checkpoint(tmp_path).lock(),
    ):
        pass
    with Checkpoint(tmp_path).lock():
        pass


def parquet_at(folder, number: int, *names: str) -> None:
    file = folder / f"{number}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({name: [1] for name in names}), file)
    os.utime(file, (number, number))


def test_parquet_of_a_stream_has_the_declared_columns(tmp_path):
    source = Source("a", (column("t", "BIGINT"), column("ky", "BIGINT")), "file", {"path": str(tmp_path)})
    check_parquet('file source "a"', source, str(tmp_path))
    parquet_at(tmp_path, 1, "T", "key")
    with pytest.raises(EngineError, match=r'file source "a": .* have no column ky\nHint: did you mean "key"'):
        check_parquet('file source "a"', source, str(tmp_path))
    parquet_at(tmp_path / "day=1", 2, "t", "Ky")
    check_parquet('file source "a"', source, str(tmp_path))
    (tmp_path / "0.parquet").write_text("half")
    os.utime(tmp_path / "0.parquet", (0, 0))
    check_parquet('file source "a"', source, str(tmp_path))


def test_parquet_files_are_listed_once_however_many_columns_are_declared(tmp_path, monkeypatch):
    names = [f"c{number}" for number in range(30)]
    source = Source("a", tuple(column(name, "TIMESTAMP") for name in names), "file", {"path": str(tmp_path)})
    looks: list[Source] = []

    def look(source):
        looks.append(source)
        return frozenset()

    monkeypatch.setattr(frames, "nanosecond_columns", look)
    frames.read_records(MagicMock(), source, "parquet", str(tmp_path))
    assert len(looks) == 1
    frames.read_records(MagicMock(), source, "parquet", str(tmp_path), nanos=frozenset())
    assert len(looks) == 1
    for number in range(3):
        file = tmp_path / f"{number}.parquet"
        parquet.write_table(pa.table(dict.fromkeys(names, pa.array([0], pa.timestamp("us", "UTC")))), file)
    check_parquet('file source "a"', source, str(tmp_path))
    assert len(looks) == 2


def test_a_partition_of_directories_is_a_column(tmp_path):
    source = Source("a", (column("t", "BIGINT"), column("day", "BIGINT")), "file", {"path": str(tmp_path)})
    parquet_at(tmp_path / "day=1", 1, "t")
    check_parquet('file source "a"', source, str(tmp_path))


def test_parquet_of_a_stream_has_the_declared_types(tmp_path):
    columns = (column("t", "BIGINT"), column("K", "STRING"), column("n", "INT"))
    source = Source("a", columns, "file", {"path": str(tmp_path)})
    parquet_at(tmp_path, 1, "t", "k", "N")
    with pytest.raises(EngineError) as refused:
        check_parquet('file source "a"', source, str(tmp_path))
    assert refused.value.code == "column-type"
    assert refused.value.message == (
        'file source "a": K is declared STRING, but is int64 (INT64); n is declared INT, but is int64'
        f" (INT64) in {tmp_path / '1.parquet'}"
    )
    assert refused.value.hint == "declare K BIGINT, n BIGINT, and cast in a view"


def test_a_column_that_is_a_directory_has_its_type_from_there(tmp_path):
    source = Source("a", (column("t", "BIGINT"), column("day", "STRING")), "file", {"path": str(tmp_path)})
    parquet_at(tmp_path / "day=1", 1, "t", "day")
    check_parquet('file source "a"', source, str(tmp_path))


def test_a_later_file_of_another_type_is_named():
    """As Spark says it."""
    said = (
        "org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered"
        " error while reading file file:///in/a/7.parquet. Data type mismatches when reading Parquet column"
        " [k]. Expected Spark type string, actual Parquet type INT64. SQLSTATE: KD001\n\tat x.y(Z.scala:1)\n"
        "Caused by: org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException:"
        " column: [k], physicalType: INT64, logicalType: string"
    )
    error = readable_error(Exception(said))
    assert error.code == "column-type"
    assert error.message == "column k is declared STRING, but is INT64 in file:///in/a/7.parquet"


def test_spark_submit_settings_apply_unless_the_job_overrides_them():
    told = {"spark.master": "spark://a:7077", "spark.executor.memory": "3g", "spark.jars": "/y.jar"}
    taken = session.build_session_settings(submitted=told)
    assert {name: taken[name] for name in told} == told
    assert "spark.driver.host" not in taken
    taken = session.build_session_settings(
        submitted=told, master="local[3]", conf={"spark.executor.memory": "4g"}
    )
    assert (taken["spark.master"], taken["spark.executor.memory"]) == ("local[3]", "4g")
    with pytest.raises(EngineError, match=r"fixed-setting.*spark-submit"):
        session.build_session_settings(submitted={"spark.sql.ansi.enabled": "false"})


@pytest.mark.parametrize(
    ("conf", "variable"),
    [
        ({"spark.master": "sc://host:15002"}, None),
        ({"spark.remote": "sc://me:secret@host"}, None),
        ({"spark.api.mode": "Connect"}, None),
        ({"spark.master": "local[2]"}, ("SPARK_REMOTE", "sc://host")),
        ({}, ("SPARK_API_MODE", "connect")),
    ],
)
def test_spark_connect_is_refused_with_the_reason(monkeypatch, conf, variable):
    refuse_connect({"spark.master": "spark://a:7077", "spark.api.mode": "classic"})
    if variable:
        monkeypatch.setenv(*variable)
    with pytest.raises(EngineError, match=r"spark-connect.*commits its own state") as raised:
        refuse_connect(conf)
    assert "secret" not in str(raised.value)


class Jvm:
    """As much of a JVM as is asked, of a Turkish machine."""

    def __init__(self, encoding):
        self.java, self.lang, self.util = self, self, self
        self.Locale, self.System = self, self
        self.encoding, self.language, self.ENGLISH = encoding, "tr", "en"

    def getDefault(self):
        return self

    def getLanguage(self):
        return self.language

    def setDefault(self, language):
        self.language = language

    def getProperty(self, name):
        return {"sun.jnu.encoding": self.encoding}[name]


def test_a_jvm_that_others_started_reads_texts_and_names_as_ours():
    jvm = Jvm("UTF-8")
    hold_java(jvm)
    assert jvm.language == "en"
    with pytest.raises(EngineError, match="file-names-of-java"):
        hold_java(Jvm("ANSI_X3.4-1968"))


def test_python_worker_error_is_reduced_to_its_last_line():
    said = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call"
        ' last):\n  File "/w/worker.py", line 3, in main\n    import pyarrow\n{}\n SQLSTATE: 38000'
    )
    error = readable_error(Exception(said.format("ModuleNotFoundError: No module named 'pyarrow'")))
    assert (error.code, error.message) == (
        "other-python",
        "the Python of Spark's workers has no module pyarrow",
    )
    error = readable_error(Exception(said.format("ValueError: it is not a number")))
    assert (error.code, error.message) == (
        "spark-failed",
        "ValueError: it is not a number (/w/worker.py, line 3, in main)",
    )


def test_executors_without_the_package_are_reported():
    """As Spark says it, tried with an executor whose Python has PySpark alone."""
    said = (
        "org.apache.spark.SparkException: \nEOFException occurred while reading the port number from"
        " watersmeet.runtime.spark.tick.daemon's stdout and terminated with code: 1.."
    )
    error = readable_error(Exception(said))
    assert error.code == "other-python"
    assert "on their machines" in error.message
