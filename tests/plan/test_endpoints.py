"""Files and topics of a job as its text has them: options, and sinks that feed the job's own sources."""

from __future__ import annotations

import pytest

from tests.support.columns import column
from watersmeet.errors import PlanError, SeveralErrors, SpecError, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.checks.endpoints import check_checkpoint
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.files import READERS, WRITERS, sink_problems, source_problems
from watersmeet.spec.options.names import sink_option_problems, source_option_problems


def source(**options: str) -> Source:
    return Source("a", (column("t", "BIGINT"),), "file", {"path": "in", **options})


def sink(**options: str) -> Sink:
    return Sink("out", "file", {"path": "out", **options})


@pytest.mark.parametrize(
    ("wanted", "option", "words", "hint"),
    [
        ("csv", "delimeter", '"a" has no option "delimeter"', '"delimiter"'),
        ("json", "maxfilespertriger", 'no option "maxfilespertriger"', '"maxFilesPerTrigger"'),
        ("json", "sep", 'no option "sep" for the format json', '"lineSep"'),
        ("parquet", "header", 'no option "header" for the format parquet', "known: "),
        ("csv", "mode", 'no option "mode"', "broken_output"),
        ("csv", "inferSchema", 'no option "inferSchema"', "declared"),
    ],
)
def test_unknown_options_of_sources(wanted, option, words, hint):
    (refused,) = source_problems(source(format=wanted, **{option: "true"}))
    assert refused.code == "unknown-option"
    assert words in refused.message
    assert refused.hint is not None
    assert hint in refused.hint


def test_a_table_is_read_as_a_whole():
    (refused,) = source_problems(source(maxFilesPerTrigger="1"), table=True)
    assert (refused.code, refused.hint) == (
        "unknown-option",
        "remove it: it is for streams, and a table is read completely",
    )
    assert 'table "a"' in refused.message


@pytest.mark.parametrize(
    ("wanted", "option", "words"),
    [
        ("parquet", "compresion", '"out" has no option "compresion"'),
        ("json", "header", 'no option "header" for the format json'),
        ("csv", "maxFilesPerTrigger", 'no option "maxFilesPerTrigger"'),
    ],
)
def test_unknown_options_of_sinks(wanted, option, words):
    (refused,) = sink_problems(sink(format=wanted, **{option: "1"}))
    assert refused.code == "unknown-option"
    assert words in refused.message


@pytest.mark.parametrize("connector", ["memory", "console"])
def test_memory_and_console_sinks_reject_unknown_options(connector):
    (refused,) = sink_option_problems(Sink("out", connector, {"rowz": "5"}))
    assert refused.code == "unknown-option"
    assert f'{connector} sink "out" has no option "rowz"' in refused.message
    assert sink_option_problems(Sink("out", connector, {})) == []


def test_rows_in_memory_are_read_without_options():
    (refused,) = source_option_problems(Source("a", (column("t", "BIGINT"),), "memory", {"path": "in"}))
    assert refused.code == "unknown-option"
    assert 'memory source "a" has no option "path"' in refused.message


VALUES = {
    "maxrecordsperfile": "10", "maxfilespertrigger": "1", "maxbytespertrigger": "1", "maxcachedfiles": "1",
    "discardcachedinputratio": "0.5", "cleansource": "off", "encoding": "UTF-8", "sep": ";", "quote": "'",
    "escape": "", "chartoescapequoteescaping": "", "comment": "#", "maxcolumns": "9", "linesep": "\n",
    "maxcharspercolumn": "-1", "unescapedquotehandling": "skip_value", "compression": "gzip",
    "datetimerebasemode": "LEGACY", "int96rebasemode": "LEGACY", "dateformat": "yyyy", "timezone": "UTC",
    "timestampformat": "yyyy", "timestampntzformat": "yyyy",
}  # fmt: skip
SECOND_NAMES = ("charset", "delimiter", "codec")


@pytest.mark.parametrize("wanted", ["parquet", "json", "csv"])
def test_options_are_known_whatever_their_letters(wanted):
    def values(names):
        first = [name for name in names if name not in SECOND_NAMES]
        return {name.upper(): VALUES.get(name.lower(), "TRUE") for name in first}

    losing = ("maxFileAge", "latestFirst", "fileNameOnly", "ignoreCorruptFiles", "ignoreMissingFiles")
    reading = [name for name in READERS[wanted] if name not in (*losing, "maxBytesPerTrigger")]
    assert source_problems(source(Format=wanted, **values(reading))) == []
    assert sink_problems(sink(Format=wanted, **values(WRITERS[wanted]))) == []


def test_settings_of_parquet_pass():
    assert sink_problems(sink(**{"parquet.block.size": "1048576"})) == []


@pytest.mark.parametrize(
    "options",
    [
        {"maxFilesPerTrigger": "many"},
        {"maxFilesPerTrigger": "0"},
        {"maxBytesPerTrigger": "10mb"},
        {"maxbytespertrigger": "10", "maxFilesPerTrigger": "10"},
        {"latestFirst": "yes"},
        {"latestFirst": "true"},
        {"maxFileAge": "10d"},
        {"FILENAMEONLY": "TRUE"},
        {"ignoreCorruptFiles": "true"},
        {"ignoreMissingFiles": "true"},
        {"on_changed_file": "ignore"},
    ],
)
def test_values_that_spark_would_pass_over(options):
    (refused,) = source_problems(source(**options))
    assert refused.code == "wrong-option"
    assert next(iter(options)).lower() in refused.message.lower()


JOB = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file'{a});
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file'{b});
CREATE TABLE out WITH ('connector' = 'file'{out});
CREATE TABLE late WITH ('connector' = 'file'{late});
SET late_output = 'late';
INSERT INTO out SELECT a.t, b.t AS u FROM a JOIN b ON a.k = b.k AND a.t BETWEEN b.t - 5 AND b.t + 5;
"""


def refusals(sql: str) -> list[WatersmeetError]:
    try:
        plan_job(parse_job(sql))
    except SeveralErrors as several:
        return list(several.errors)
    except WatersmeetError as error:
        return [error]
    return []


def files(**paths: str) -> str:
    given = {"a": "in/a", "b": "in/b", "out": "results/out", "late": "results/late"} | paths
    return JOB.format(**{name: f", 'path' = '{path}'" for name, path in given.items()})


def test_all_problems_of_all_files_at_once():
    found = refusals(
        JOB.format(
            a="",
            b=", 'path' = 'in/b', 'format' = 'orc'",
            out=", 'path' = 'hdfs://x/y'",
            late=", 'pth' = 'x'",
        )
    )
    assert [(error.code, error.message.split('"')[1]) for error in found] == [
        ("missing-option", "a"),
        ("unknown-format", "b"),
        ("file-system-not-supported", "out"),
        ("unknown-option", "late"),
    ]
    assert all(isinstance(error, SpecError) for error in found)


def test_problems_of_files_do_not_hide_those_of_the_query():
    found = refusals(files(out="").replace("AND a.t BETWEEN b.t - 5 AND b.t + 5", ""))
    assert [error.code for error in found] == ["missing-option", "unbounded-state"]


def test_an_explained_query_has_its_sources_checked():
    """The command line plans queries of EXPLAIN by themselves."""
    from watersmeet.plan.planner import plan_query

    job = parse_job(JOB.format(a="", b=", 'path' = 'b'", out=", 'path' = 'c'", late=", 'path' = 'd'"))
    with pytest.raises(SpecError, match=r'file source "a" needs the option "path"'):
        plan_query("explain", Sink("console", "console"), job.inserts[0].query, job.options)


@pytest.mark.parametrize(
    "paths",
    [
        {"out": "in/a"},
        {"out": "./in//x/../a/"},
        {"out": "in/a/results"},
        {"out": "in"},
        {"a": "/data/x%20y", "out": "file:///data/x%2520y"},
        {"a": "in/*/orders", "out": "in/eu/orders"},
        {"a": "in/*/orders", "out": "in/eu"},
        {"late": "in/a"},
    ],
)
def test_a_sink_among_the_files_of_a_source_is_refused(paths):
    found = refusals(files(**paths))
    assert {error.code for error in found} == {"sink-in-source"}
    assert all(isinstance(error, PlanError) for error in found)
    named = "late" if "late" in paths else "out"
    assert f'file sink "{named}" would write into the files of file source "a"' in found[0].message
    assert f'"{paths[named]}"' in found[0].message


@pytest.mark.parametrize("late", ["results/out", "./results//out/", "results/out/late", "results"])
def test_two_file_sinks_with_one_directory_are_refused(late):
    (found,) = refusals(files(late=late))
    assert found.code == "shared-place"
    assert found.message.endswith(f'"results/out" and "{late}"')
    assert not refusals(files(late="results/out/_late")), "readers pass over it"


@pytest.mark.parametrize(
    ("checkpoint", "among"),
    [
        ("in/a", "a"),
        ("./in//x/../a/state", "a"),
        ("in/a/l/state", "a"),
        ("out", "out"),
        ("out/state", "out"),
        ("in/b/state", "b"),
        ("in", None),
        ("in/a/.state", None),
        ("in/a/_state/x", None),
        ("in/a2", None),
        ("state", None),
    ],
)
def test_a_checkpoint_among_files_of_the_job_is_refused(checkpoint, among):
    job = parse_job(
        JOB.format(a=", 'path' = 'in/a'", b=", 'path' = 'in/b*'", out=", 'path' = 'out'", late="")
    )
    found = check_checkpoint(job, checkpoint)
    assert [error.code for error in found] == ["checkpoint-in-files"] * (among is not None)
    if among is not None:
        assert f'the checkpoint "{checkpoint}" would be inside what "{among}"' in found[0].message


@pytest.mark.parametrize(
    "paths",
    [
        {"out": "in/out"},
        {"out": "in/a2"},
        {"a": "in/a-*", "out": "in/out"},
        {"a": "s3://in/a", "out": "in/a"},
    ],
)
def test_sink_outside_source_paths_is_accepted(paths):
    assert refusals(files(**paths)) == []


def test_a_sink_in_a_table_is_refused():
    (found,) = refusals(
        """
        CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        CREATE TABLE names (k STRING, name STRING) WITH ('connector' = 'file', 'path' = 'tables/names');
        CREATE TABLE out WITH ('connector' = 'file', 'path' = 'tables/names/out');
        INSERT INTO out SELECT a.t, n.name FROM a JOIN names FOR SYSTEM_TIME AS OF now() AS n ON a.k = n.k;
        """
    )
    assert 'table "names"' in found.message


TOPICS = """
CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t)
  WITH ('connector' = 'kafka', 'topic' = 'x,y', 'bootstrap.servers' = 'one:9092,two:9092');
CREATE TABLE out WITH ('connector' = 'kafka', 'topic' = '{}', 'bootstrap.servers' = '{}');
INSERT INTO out SELECT t FROM a;
"""


def test_a_loop_through_a_topic_is_warned_of():
    def warnings(topic: str, servers: str) -> tuple[str, ...]:
        return plan_job(parse_job(TOPICS.format(topic, servers))).queries[0].warnings

    (found,) = warnings("y", "two:9092")
    assert found == (
        '"out" writes to the topic y, which "a" of this job reads, so the job reads its own results'
    )
    assert warnings("z", "two:9092") == ()
    assert warnings("y", "three:9092") == ()


@pytest.mark.parametrize(
    ("connector", "format_", "type_", "words"),
    [
        ("file", "json", "MAP<INT,STRING>", "keys in JSON are text"),
        ("file", "json", "ARRAY<MAP<DATE,STRING>>", "keys in JSON are text"),
        ("file", "json", "STRUCT<a:MAP<STRING,MAP<BINARY,INT>>>", "keys in JSON are text"),
        ("kafka", "json", "MAP<INT,STRING>", "keys in JSON are text"),
        ("file", "csv", "ARRAY<STRING>", "CSV cannot hold such values"),
        ("kafka", "csv", "STRUCT<a:INT>", "CSV cannot hold such values"),
        ("file", "json", "STRUCT<a:MAP<STRING,MAP<STRING,INT>>>", None),
        ("file", "parquet", "MAP<INT,STRING>", None),
        ("file", "csv", "BINARY", None),
    ],
)
def test_columns_that_a_format_cannot_hold(connector, format_, type_, words):
    read = "'path' = 'in'" if connector == "file" else "'topic' = 'a', 'bootstrap.servers' = 'b:1'"
    job = parse_job(
        f"""CREATE TABLE a (k INT, m {type_}, t TIMESTAMP, WATERMARK FOR t AS t)
            WITH ('connector' = '{connector}', 'format' = '{format_}', {read});
            CREATE TABLE out (k INT) WITH ('connector' = 'console');
            INSERT INTO out SELECT x.k FROM a x JOIN a y ON x.k = y.k AND x.t = y.t"""
    )
    if words is None:
        plan_job(job)
        return
    with pytest.raises(WatersmeetError, match=words) as refused:
        plan_job(job)
    assert '"a": the column "m" cannot be read as' in str(refused.value)


TO_KAFKA = "'connector' = 'kafka', 'bootstrap.servers' = 'localhost:9092', 'topic' = 'late'"


@pytest.mark.parametrize("option", ["acks", "kafka.acks", "ACKS"])
def test_records_that_nobody_acknowledges_are_refused(option):
    sql = files().replace("'connector' = 'file', 'path' = 'results/late'", f"{TO_KAFKA}, '{option}' = ' 0'")
    (refused,) = refusals(sql)
    assert refused.code == "wrong-option"
    assert "may be lost" in refused.hint
    assert refusals(sql.replace("' 0'", "'1', 'delivery' = 'at-least-once'")) == []


@pytest.mark.parametrize("where", ["out", "late"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("'format' = 'json', 'lineSep' = '|'", "'lineSep' = '|'"),
        ("'format' = 'json', 'compression' = 'snappy'", "'compression' = 'snappy'"),
        ("'format' = 'csv', 'QUOTE' = '~'", "'QUOTE' = '~'"),
        ("'format' = 'csv', 'nullValue' = '\"'", "'nullValue' = '\"'"),
        ("'format' = 'csv', 'compression' = 'GZIP', 'encoding' = 'UTF-8'", None),
        ("'compression' = 'snappy'", None),
    ],
)
def test_files_that_do_not_tell_how_many_rows_they_hold(where, options, told):
    path = f"'results/{where}'"
    (query,) = plan_job(parse_job(files().replace(path, f"{path}, {options}"))).queries
    assert len(query.warnings) == (told is not None)
    for warning in query.warnings:
        assert f'with {told} the rows in the files of "{where}" cannot be counted' in warning


@pytest.mark.parametrize(("name", "others"), [("out", "out"), ("late", "late_output")])
def test_rows_of_ticks_have_a_sink_of_their_own(name, others):
    (refused,) = refusals(files() + f"SET progress_output = {name};")
    assert refused.code == "progress-output"
    assert f"({others})" in refused.message


def test_rows_of_ticks_may_have_a_sink():
    own = "CREATE TABLE ticks WITH ('connector' = 'file', 'path' = 'results/ticks');"
    assert refusals(own + files() + "SET progress_output = ticks;") == []


ROWS = "CREATE TABLE a (k BIGINT, v BIGINT, t TIMESTAMP) WITH ('connector' = 'memory');"
KEYED = {
    "postgres": "'connector' = 'postgres', 'url' = 'postgresql://db/s', 'table' = 't'",
    "delta": "'connector' = 'delta', 'path' = 'tables/t'",
    "iceberg": "'connector' = 'iceberg', 'table' = 'n.t', 'catalog.uri' = 'https://c/x'",
    "kafka": "'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'h:1', 'format' = 'upsert-json'",
}


def declared_sink(name: str, options: str, key: str = "k BIGINT, PRIMARY KEY (k) NOT ENFORCED") -> str:
    return f"CREATE SINK {name} ({key}) WITH ({options});"


def collect_plan_errors(text: str) -> list[str]:
    try:
        plan_job(parse_job(text))
    except SeveralErrors as error:
        return [one.message for one in error.errors]
    except WatersmeetError as error:
        return [error.message]
    return []


@pytest.mark.parametrize("connector", KEYED)
def test_two_inserts_by_one_key_are_refused(connector):
    sinks = declared_sink("x", KEYED[connector])
    insert = "INSERT INTO x SELECT k FROM a EMIT CHANGES;"
    assert collect_plan_errors(f"{ROWS} {sinks} {insert}") == []
    (said,) = collect_plan_errors(f"{ROWS} {sinks} {insert} {insert.replace('FROM a', 'FROM a WHERE k > 3')}")
    assert '2 INSERTs write to "x", which has a PRIMARY KEY' in said


@pytest.mark.parametrize(
    ("connector", "change", "same"),
    [
        ("postgres", ("'t'", "'s.t'"), False),
        ("delta", ("tables/t", "./tables/../tables/t/"), True),
        ("delta", ("tables/t", "tables/t2"), False),
        ("delta", ("tables/t", "s3://b/tables/t"), False),
        ("iceberg", ("c/x", "c/x/"), True),
        ("iceberg", ("n.t", "n.t2"), False),
        ("iceberg", ("c/x'", "c/x', 'catalog.warehouse' = 'other'"), False),
        ("iceberg", ("c/x'", "c/x', 'catalog.token' = 'other'"), True),
        ("kafka", ("h:1", "g:1,h:1"), True),
        ("kafka", ("'t'", "'t2'"), False),
    ],
)
def test_two_sinks_of_one_target(connector, change, same):
    sinks = declared_sink("x", KEYED[connector]) + declared_sink("y", KEYED[connector].replace(*change))
    inserts = "INSERT INTO x SELECT k FROM a EMIT CHANGES; INSERT INTO y SELECT k FROM a EMIT CHANGES;"
    said = collect_plan_errors(f"{ROWS} {sinks} {inserts}")
    assert [text.partition(", ")[0].rpartition(" ")[0] for text in said] == (
        ['"x" and "y" write to the same'] if same else []
    )


def test_two_paths_of_one_table_in_s3():
    sinks = "".join(
        declared_sink(name, f"'connector' = 'delta', 'path' = '{path}'")
        for name, path in (("x", "s3a://b/t/u"), ("y", "s3://b/t//u/"))
    )
    inserts = "INSERT INTO x SELECT k FROM a EMIT CHANGES; INSERT INTO y SELECT k FROM a EMIT CHANGES;"
    (said,) = collect_plan_errors(f"{ROWS} {sinks} {inserts}")
    assert '"x" and "y" write to the same table' in said


@pytest.mark.parametrize("connector", ["postgres", "delta", "iceberg"])
@pytest.mark.parametrize("name", ["_diff", "_TICK"])
def test_columns_with_names_of_changes_do_not_vanish_in_tables_by_a_key(connector, name):
    key = f"k BIGINT, `{name}` BIGINT, PRIMARY KEY (k) NOT ENFORCED"
    text = f"{ROWS} {declared_sink('x', KEYED[connector], key)} INSERT INTO x SELECT k, v AS `{name}` FROM a"
    (said,) = collect_plan_errors(text)
    assert f'the column name "{name}"' in said
    assert "PRIMARY KEY" in said
