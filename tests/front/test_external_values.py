"""`${NAME}` and FROM FILE in SQL: in values of options and settings, and nowhere else."""

from __future__ import annotations

import pytest

from watersmeet import errors
from watersmeet.cli.output import complain
from watersmeet.errors import EngineError, SeveralErrors, WatersmeetError, failure_text
from watersmeet.history.recorder import RunDescription
from watersmeet.parser.ddl import settings
from watersmeet.parser.statements import parse_job, run_settings
from watersmeet.parser.text.external_values import fill_references, read_value
from watersmeet.plan.explain import explain
from watersmeet.plan.identity.settings import settings_of
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.spark.job.listeners import RunListeners
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.spec.options import debezium, files, function, kafka, lake, names, postgres, records
from watersmeet.spec.secrets import HIDDEN, OpaqueSecret, public, public_setting

SECRET = "s3cret-'\"\\$;{}"
JOB = """
SET spark.plugin.pin = '${PLUGIN_PASSWORD}';
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'kafka', 'topic' = '${PREFIX}-orders', 'kafka.bootstrap.servers' = '${BROKERS}',
        'kafka.sasl.jaas.config' = 'user="u" password="${KAFKA_PASSWORD}";',
        'kafka.ssl.key.password' = FROM FILE '{file}', 'format' = 'json');
CREATE SINK s WITH ('connector' = 'postgres', 'url' = 'postgresql://me:${PG_PASSWORD}@db/x', 'table' = 't');
INSERT INTO s SELECT k, t, '${PLUGIN_PASSWORD} $${x} $1' AS c FROM a WHERE k <> '${'  -- ${COMMENT}
  /* ${MORE} */;
"""


@pytest.fixture(autouse=True)
def _errors_of_other_tests_show_what_is_secret_here(monkeypatch):
    monkeypatch.setattr(errors, "hidden_texts", {})


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The text of a job whose secrets are elsewhere."""
    monkeypatch.setenv("PREFIX", "eu")
    monkeypatch.setenv("BROKERS", "b:9092")
    for name in ("PLUGIN_PASSWORD", "KAFKA_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("PG_PASSWORD", "s3cret")
    (tmp_path / "password").write_text(f"{SECRET}\n")
    return JOB.replace("{file}", str(tmp_path / "password"))


def problems(text: str) -> list[tuple[str, int]]:
    with pytest.raises(WatersmeetError) as found:
        parse_job(text)
    errors = found.value.errors if isinstance(found.value, SeveralErrors) else [found.value]
    return [(error.code, error.location.line) for error in errors]


def test_values_are_filled_in_and_texts_of_queries_are_as_written(job):
    parsed = parse_job(job)
    (source,), sink = plan_job(parsed).sources, parsed.inserts[0].sink
    assert source.options["topic"] == "eu-orders"
    assert source.options["kafka.bootstrap.servers"] == "b:9092"
    assert source.options["kafka.sasl.jaas.config"] == f'user="u" password="{SECRET}";'
    assert source.options["kafka.ssl.key.password"] == SECRET
    assert sink.options["url"] == "postgresql://me:s3cret@db/x"
    assert parsed.settings["spark.plugin.pin"] == SECRET
    (insert,) = parsed.inserts
    assert "'${PLUGIN_PASSWORD} $${x} $1' AS c" in insert.query.sql
    assert "'${PLUGIN_PASSWORD} $${x} $1'" in str(plan_job(parsed).queries[0].outputs)


def test_no_secret_is_shown(job):
    """Neither by what a run writes down of itself, nor by EXPLAIN, nor where objects are printed."""
    parsed = parse_job(job, source_name="job.sql")
    plan = plan_job(parsed)
    about = RunDescription.of(parsed, plan)
    shown = [
        explain(plan),
        str(about.settings),
        str(settings_of(plan)),
        repr(parsed.sinks),
        repr(plan.sources),
    ]
    for text in shown:
        assert "s3cret" not in text
    assert about.settings["spark.plugin.pin"] == HIDDEN
    assert "eu-orders" in "".join(shown)


@pytest.mark.parametrize(
    "path",
    [
        "'{folder}/${{ITS_TOKEN}}/in'",
        "'file://{folder}/${{ITS_TOKEN}}/in'",
        "FROM FILE '{folder}/whole'",
    ],
)
def test_no_error_shows_a_secret_of_a_path(tmp_path, monkeypatch, path):
    monkeypatch.setenv("ITS_TOKEN", "tok/en-of-a-path")
    (tmp_path / "whole").write_text(f"{tmp_path}/tok/en-of-a-path/in")
    job = f"""CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'file', 'format' = 'json',
        'path' = {path.format(folder=tmp_path)}); SELECT t FROM a"""
    (source,) = plan_job(parse_job(job)).sources
    with pytest.raises(EngineError) as refused:
        read_first_rows(source, 1)
    assert "***" in str(refused.value)
    assert "en-of" not in repr(refused.value) + str(refused.value.args)


@pytest.mark.parametrize(
    ("value", "said", "shown"),
    [
        ("postgres", "cannot connect to postgresql", "cannot connect to postgresql"),
        ("postgres", 'role "postgres" is away\\npostgres', 'role "***" is away\\n***'),
        ("postgres", "s3a://b/%2Fpostgres%2F", "s3a://b/%2F***%2F"),
        ("12345678", "offset 123456789", "offset 123456789"),
        ("s3cret-12", "xs3cret-12y", "x***y"),
        ("tok/en of it", "GET /tok%2Fen%20of%20it/in, /tok/en%20of%20it/in", "GET /***/in, /***/in"),
        ("https://me:pa%2Fss-word@h/x?token=tok-en-of-it&a=bbbbbbbbb", "pa/ss-word tok-en-of-it bbbbbbbbb",
         "*** *** bbbbbbbbb"),
        ("https://me:pa%2Fss-word@h/x", "me:pa%2Fss-word, pa%2Fss-word", "***, ***"),
        ("", "a whole text stays", "a whole text stays"),
    ],
)  # fmt: skip
def test_what_errors_show_of_a_variable_that_is_secret(monkeypatch, value, said, shown):
    monkeypatch.setenv("ITS_TOKEN", value)
    fill_references("${ITS_TOKEN}", print)
    assert errors.without_hidden(said) == shown


def test_a_word_that_a_secret_is_a_part_of_is_hidden(monkeypatch):
    monkeypatch.setenv("ITS_TOKEN", "abcdefgh")
    fill_references("s3a://b/pre${ITS_TOKEN}post/in", print)
    assert errors.without_hidden("/preabcdefghpost/in, abcdefgh, abcdefghi") == "/***/in, ***, abcdefghi"


def test_parts_of_a_url_from_a_file_are_hidden(tmp_path):
    (tmp_path / "v").write_text("postgresql://me:its-password@db/x")
    read_value(str(tmp_path / "v"), print)
    assert errors.without_hidden("password its-password is wrong") == "password *** is wrong"


def test_notices_and_failures_of_functions_show_no_secret(capsys):
    errors.hide_in_errors("tok-en-of-it")
    assert failure_text(ValueError("in tok-en-of-it")) == "ValueError: in ***"
    notices: list[str] = []
    RunListeners(RunSettings(checkpoint="c", on_notice=notices.append)).note("/tok-en-of-it/_a is not read")
    complain(RuntimeError("tok-en-of-it\x1b"))
    assert (notices, capsys.readouterr().err) == (["/***/_a is not read"], "***\\x1b\n")


def test_a_query_is_the_same_with_another_password(job, monkeypatch):
    before = plan_job(parse_job(job))
    monkeypatch.setenv("PG_PASSWORD", "another")
    monkeypatch.setenv("KAFKA_PASSWORD", "another")
    monkeypatch.setenv("PLUGIN_PASSWORD", "another")
    after = plan_job(parse_job(job))
    assert settings_of(after) == settings_of(before)
    assert [query.fingerprint for query in after.queries] == [query.fingerprint for query in before.queries]
    monkeypatch.setenv("PREFIX", "us")
    assert settings_of(plan_job(parse_job(job))) != settings_of(before)


def test_all_missing_external_values_are_reported_together(job, monkeypatch):
    for name in ("PREFIX", "PG_PASSWORD", "PLUGIN_PASSWORD"):
        monkeypatch.delenv(name)
    text = job.replace("FROM FILE '", "FROM FILE '/none") + "SET nothing = 1;"
    assert problems(text) == [
        *(("not-set", 2), ("not-set", 4), ("file-not-readable", 6), ("not-set", 7)),
        ("unknown-setting", 10),
    ]
    with pytest.raises(SeveralErrors, match="PREFIX is not set in the environment") as found:
        parse_job(text)
    assert "s3cret" not in str(found.value)
    assert "export PREFIX=…" in str(found.value)


@pytest.mark.parametrize("name", ["", "A B", "user.name", "env:X", "1"])
def test_what_names_no_variable_is_refused(name):
    text = f"SET spark.x.y = '${{{name}}}'; CREATE SINK s WITH ('connector' = 'memory', 'n' = '${{{name}}}')"
    with pytest.raises(SeveralErrors, match="does not name an environment variable") as found:
        parse_job(text)
    assert found.value.errors[0].code == "bad-value"
    assert "$${…} for literal text" in str(found.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("'$${HOME}'", "${HOME}"),
        ("'$$${HOME}'", "$${HOME}"),
        ("'$HOME'", "$HOME"),
        ("'a$'", "a$"),
        ("'{HOME}'", "{HOME}"),
        ("'${A}${A}-${B}'", "xx-${A}"),  # what a variable has is not looked through again
        ("'^\\\\d{2}$'", "^\\d{2}$"),
        ("x ${A}", "x x"),
        ("FROM FILE '${FOLDER}/v'", "a\n b ${A}"),
        ("from file '${FOLDER}/v'", "a\n b ${A}"),
        ("'FROM FILE'", "FROM FILE"),
    ],
)
def test_settings_as_written_and_as_meant(tmp_path, monkeypatch, written, meant):
    monkeypatch.setenv("A", "x")
    monkeypatch.setenv("B", "${A}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    (tmp_path / "v").write_bytes(b"a\n b ${A}\r\n")
    text = f"SET spark.x.y = {written}; EXPLAIN SELECT t FROM a;"
    table = "CREATE TABLE a (t BIGINT) WITH ('connector' = 'memory');"
    assert parse_job(table + text).settings["spark.x.y"] == meant


@pytest.mark.parametrize("value", ["FROM FILE", "FROM FILE x", "FROM FILE 'x' 'y'", "FROM 'x'"])
def test_what_is_no_file_is_refused(value):
    for text in (f"SET spark.x = {value}", f"CREATE SINK s WITH ('connector' = 'memory', 'n' = {value})"):
        if text == "SET spark.x = FROM 'x'":  # words, as ever
            continue
        assert ("syntax", 1) in problems(f"{text};")


def test_where_the_state_is_is_not_guessed(monkeypatch):
    """A command that looks for it would take another one."""
    text = """
    SET trigger = '${NO_TRIGGER}';
    SET checkpoint = '${NO_FOLDER}/state';
    CREATE TABLE a (t BIGINT) WITH ('connector' = 'memory', 'x' = '${NO_X}');
    INSERT INTO nowhere SELECT t FROM b;
    """
    with pytest.raises(SeveralErrors) as found:
        run_settings(text, {})
    assert [error.code for error in found.value.errors] == ["not-set"] * 3 + ["unknown-sink"]
    assert run_settings(text, {"checkpoint": "here"}) == {"checkpoint": "here"}
    monkeypatch.setenv("NO_FOLDER", "there")
    assert run_settings(text, {}) == {"checkpoint": "there/state"}


def test_secrets_of_any_name(tmp_path, monkeypatch):
    """By where they come from, or by the name of the variable."""
    monkeypatch.setenv("PIN_TOKEN", "1234")
    monkeypatch.setenv("HOST", "db")
    (tmp_path / "v").write_text("1234")
    text = f"""
    SET spark.a = '${{PIN_TOKEN}}'; SET spark.b = '-Dpin=${{PIN_TOKEN}} -Dx=${{HOST}}';
    SET spark.c = FROM FILE '{tmp_path}/v'; SET spark.d = '${{HOST}}';
    SET spark.e.uri = 'x://u:${{PIN_TOKEN}}@${{HOST}}/y';
    CREATE TABLE t (t BIGINT) WITH ('connector' = 'memory'); EXPLAIN SELECT t FROM t;
    """
    settings = parse_job(text).settings
    shown = {name: public_setting(name, value) for name, value in settings.items()}
    assert shown == {
        **dict.fromkeys(("spark.a", "spark.b", "spark.c"), HIDDEN),
        "spark.d": "db",
        "spark.e.uri": "x://***@db/y",
    }
    assert public("url", OpaqueSecret("postgresql://db/x")) == HIDDEN
    assert "1234" not in repr(settings)


def test_a_wrong_value_that_is_secret_is_not_shown(monkeypatch):
    monkeypatch.setenv("A_PASSWORD", "zq7hidden")
    columns = "(t BIGINT, k STRING, u TIMESTAMP, WATERMARK FOR t AS t - 5)"
    of_sources = [
        *(
            ("kafka", name)
            for name in (*kafka.SOURCE_OURS, *kafka.READER, *records.OPTIONS, *debezium.OPTIONS)
        ),
        *(("file", name) for name in (*files.OF_SOURCES, *files.ANY_READER, "sep", "encoding", "timeZone")),
        *(("generator", name) for name in names.GENERATOR),
        *((kind, "format") for kind in ("kafka", "file")),
        ("${A_PASSWORD}", "path"),
        *(("kafka", name) for name in ("idle", "rows_per_second", "lateness", "max_ahead", "partitions")),
    ]
    of_sinks = [
        *(("kafka", name) for name in (*kafka.SINK_OURS, "kafka.acks", "kafka.compression.type")),
        *(("postgres", name) for name in postgres.PostgresOptions.names()),
        *(("delta", name) for name in lake.DeltaOptions.names()),
        *(("iceberg", name) for name in ("catalog.type", *lake.IcebergOptions.names())),
        *(("function", name) for name in function.FunctionOptions.names()),
        *(("console", name) for name in names.CONSOLE),
    ]
    jobs = [
        f"CREATE TABLE a {columns} WITH ('connector' = '{kind}', '{name}' = '${{A_PASSWORD}}')"
        for kind, name in of_sources
    ]
    jobs += [
        f"CREATE TABLE a {columns} WITH ('connector' = 'generator');"
        f"CREATE SINK s WITH ('connector' = '{kind}', '{name}' = '${{A_PASSWORD}}');"
        " INSERT INTO s SELECT k FROM a"
        for kind, name in of_sinks
    ]
    jobs += [f"SET {name} = '${{A_PASSWORD}}'" for name in (*settings.OPTIONS, *settings.RUN_SETTINGS)]
    shown = []
    for job in jobs:
        try:
            plan_job(parse_job(job))
        except WatersmeetError as error:
            shown.append(f"{error}{getattr(error, 'hint', '')}")
    assert len(shown) > 40
    assert [text for text in shown if "zq7" in text] == []
