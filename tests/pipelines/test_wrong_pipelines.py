"""Pipelines that are wrong: each message says what, with file, line and key; nothing is started."""

from __future__ import annotations

import re

import pytest

from tests.pipelines.texts import CLICKED, edit_pipeline_text
from watersmeet.cli.main import main
from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.pipelines.file import job_of, settings_in

WINDOW = """
[transform.window]
event_time_column = "left_at"
size = "1 minute"
aggregates = { n = "count(*)" }
"""

CHAINED = ("[transform.join]", "[[transform]]\n[transform.join]")
LOOKUP = """
[transform.lookups.items]
source = "clicks"
keys = {}
"""

WRONG = {
    # shapes
    "unknown-key": ([("how = ", "hwo = ")], [("unknown-key", "transform.join.hwo", "hwo =", '"how"')]),
    "unknown-table": (
        [("[state_store]", "[statestore]")],
        [("unknown-key", "statestore", "[statestore]", '"state_store"')],
    ),
    "unknown-key-of-a-source": (
        [("lag =", "lagg =")],
        [("unknown-key", "sources[0].lagg", "lagg =", '"lag"')],
    ),
    "wrong-type": (
        [('max_delta = "5 minutes"', 'max_delta = "300 parsecs"')],
        [("bad-value", "transform.join.max_delta", "max_delta", 'parsecs", which is not a length of time')],
    ),
    "a-number-as-a-truth": (
        [('lag = "10 seconds"', "lag = true")],
        [("bad-value", "sources[0].lag", "lag", ", but a length of time is expected")],
    ),
    "negative-lag": (
        [('lag = "10 seconds"', 'lag = "-1 millisecond"')],
        [("bad-value", "sources[0].lag", "lag", "below zero")],
    ),
    "unknown-how": (
        [('how = "left"', 'how = "lft"')],
        [("bad-value", "transform.join.how", "how", '"left"')],
    ),
    "unknown-lateness": (
        [('lateness = "join"', 'lateness = "limit"')],
        [("bad-value", "transform.join.lateness", "lateness", '"join"')],
    ),
    "missing-key": (
        [('left_source = "impressions"\n', "")],
        [("missing-key", "transform.join.left_source", "[transform.join]", "is missing")],
    ),
    "no-target": (
        [('[target]\nname = "out"\n', ""), ('[target.connection]\nconnector = "memory"\n', "")],
        [("missing-key", "target", 'name = "clicked"', "is missing")],
    ),
    "wrong-name": (
        [('name = "clicked"', 'name = "a b"')],
        [("bad-value", "name", 'name = "a b"', "letters")],
    ),
    **{
        f"a-name-that-is-a-way-{name}": (
            [('name = "clicked"', f'name = "{name}"')],
            [("bad-value", "name", f'name = "{name}"', "the first no dot")],
        )
        for name in (".", "..", ".hidden")
    },
    # rules
    "an-option-in-two-spellings": (
        [('connector = "memory"', 'connector = "memory"\nConnector = "file"')],
        [("duplicate-option", "sources[0].connection.Connector", "Connector", 'also as "connector"')],
    ),
    "a-setting-in-two-spellings": (
        [("max_rows = 1_000_000", "max_rows = 1_000_000\nMax-Rows = 7")],
        [("duplicate-option", "settings.Max-Rows", "Max-Rows", 'also as "max_rows"')],
    ),
    "a-setting-that-is-said-elsewhere": (
        [("max_rows = 1_000_000", '" State-Store" = "s3://b/c"')],
        [("unknown-setting", "settings. State-Store", '" State-Store"', "[state_store] says it")],
    ),
    "no-keys": (
        [('left_keys = ["ad", "user"]', "left_keys = []")],
        [("no-keys", "transform.join.left_keys", "left_keys", "is empty")],
    ),
    "key-count": (
        [('right_keys = ["ad", "user"]', 'right_keys = ["ad"]')],
        [("key-count", "transform.join.right_keys", "right_keys", "has 1 columns, and left_keys 2")],
    ),
    "unknown-source": (
        [('right_source = "clicks"', 'right_source = "click"')],
        [
            ("unused-source", "sources[1].name", 'name = "clicks"', "clicks"),
            ("unknown-source", "transform.join.right_source", "right_source", '"clicks"'),
        ],
    ),
    "same-source": (
        [('right_source = "clicks"', 'right_source = "impressions"')],
        [
            ("unused-source", "sources[1].name", 'name = "clicks"', "clicks"),
            ("same-source", "transform.join.right_source", "right_source", "two sources"),
        ],
    ),
    "same-prefix": (
        [("how = ", 'right_column_prefix = "left_"\nhow = ')],
        [
            ("same-prefix", "transform.join.right_column_prefix", "right_column_prefix", "same names"),
            ("duplicate-column", "transform.join.output_right_columns", "output_right_columns", "left_at"),
        ],
    ),
    "colliding-columns": (
        [
            ("how = ", 'left_column_prefix = "a_"\nright_column_prefix = "a_c"\nhow = '),
            ('output_left_columns = ["ad", "user", "at"]', 'output_left_columns = ["at", "cat"]'),
        ],
        [("duplicate-column", "transform.join.output_right_columns", "output_right_columns", '"a_cat"')],
    ),
    "window-and-join": (
        [("[target]", f"{WINDOW}\n[target]")],
        [("window-and-join", "transform.window", "[transform.window]", "second transform")],
    ),
    "window-not-positive": (
        [('min_delta = "0 seconds"\nmax_delta = "5 minutes"', 'time_window = "0 seconds"')],
        [("bad-window", "transform.join.time_window", "time_window", "above zero")],
    ),
    "min-above-max": (
        [('min_delta = "0 seconds"', 'min_delta = "400 seconds"')],
        [("bad-window", "transform.join.min_delta", "min_delta", "no pair fits")],
    ),
    "two-windows": (
        [('min_delta = "0 seconds"', 'time_window = "5 milliseconds"\nmin_delta = "0 seconds"')],
        [("two-windows", "transform.join.time_window", "time_window", "max_delta")],
    ),
    "no-window": (
        [('min_delta = "0 seconds"\nmax_delta = "5 minutes"\n', "")],
        [("no-window", "transform.join", "[transform.join]", "time_window")],
    ),
    "half-a-window": (
        [('min_delta = "0 seconds"\n', "")],
        [("missing-key", "transform.join.min_delta", "[transform.join]", "both ends")],
    ),
    "lateness-without-effect": (
        [('lateness = "join"\n', "")],
        [("no-effect", "transform.join.allowed_lateness", "allowed_lateness", 'lateness = "join"')],
    ),
    "open-secret": (
        [("[target.connection]\n", '[target.connection]\npassword = "hunter2"\n')],
        [("open-secret", "target.connection.password", "password", "${PASSWORD}")],
    ),
    "open-secret-in-a-url": (
        [
            (
                'kind = "object"\nurl = "s3://bucket/clicked"',
                'kind = "postgres"\nurl = "postgresql://me:hunter2@db/x"',
            )
        ],
        [("open-secret", "state_store.url", "url", "PGPASSWORD")],
    ),
    "escaped-secret": (
        [("[target.connection]\n", '[target.connection]\npassword = "$${hunter2}"\n')],
        [("open-secret", "target.connection.password", "password", "${PASSWORD}")],
    ),
    "option-in-two-spellings": (
        [("[target.connection]\n", '[target.connection]\nConnector = "file"\n')],
        [("duplicate-option", "target.connection.connector", "connector", 'also as "Connector"')],
    ),
    "key-of-a-sink-without": (
        [('[target]\nname = "out"', '[target]\nname = "out"\nprimary_key = "left_ad"')],
        [("primary-key", "target.primary_key", "primary_key", "do not replace each other")],
    ),
    "store-not-set": (
        [('url = "s3://bucket/clicked"', 'url = "${NO_SUCH_STORE}/clicked"\nregion = "${NO_SUCH_REGION}"')],
        [
            ("not-set", "state_store.url", "url", "NO_SUCH_STORE"),
            ("not-set", "state_store.region", "region", "NO_SUCH_REGION"),
        ],
    ),
    "window-start-as-a-key": (
        [
            CHAINED,
            ("[target]", f"[[transform]]\n{WINDOW}\n[target]"),
            ('size = "1 minute"', 'size = "1 minute"\ngroup_by = ["window_start"]'),
            ("price * 2 AS twice FROM", "price AS window_start FROM"),
            ('how = "left"', 'right_column_prefix = ""\nhow = "left"'),
            ('output_right_columns = ["at", "twice"]', 'output_right_columns = ["at", "window_start"]'),
        ],
        [("duplicate-column", "transform[1].window.group_by", "group_by", "query gives it another name")],
    ),
    "not-set": (
        [("[target.connection]\n", '[target.connection]\ntoken = "${NO_SUCH_TOKEN}"\n')],
        [("not-set", "target.connection.token", "token", "NO_SUCH_TOKEN")],
    ),
    "no-connector": (
        [('connector = "memory"', 'conector = "memory"')],
        [("missing-key", "sources[0].connection", "[sources.connection]", "connector")],
    ),
    "two-sources-of-one-name": (
        [
            ('name = "clicks"', 'name = "Impressions"'),
            ('right_source = "clicks"', 'right_source = "Impressions"'),
        ],
        [
            ("duplicate-name", "sources[1].name", 'name = "Impressions"', "rename"),
            ("same-source", "transform.join.right_source", "right_source", "two sources"),
        ],
    ),
    "store-of-another-kind": (
        [('url = "s3://bucket/clicked"', 'url = "state/clicked"')],
        [("bad-store", "state_store.url", "url", "s3://")],
    ),
    "setting-elsewhere": (
        [("max_rows = 1_000_000", 'lateness = "column"')],
        [("unknown-setting", "settings.lateness", "lateness =", "transform.join has lateness")],
    ),
    "window-before-the-join": (
        [("[transform.join]", f"[[transform]]\n{WINDOW}\n[[transform]]\n[transform.join]")],
        [
            ("bad-order", "transform[1]", "[[transform]]", "last"),
            ("bad-order", "transform[1].join", "[transform.join]", "first"),
        ],
    ),
    "second-join": (
        [
            CHAINED,
            (
                "[target]",
                '[[transform]]\n[transform.join]\nleft_source = "clicks"\nright_source = "impressions"\n'
                'left_keys = "ad"\nright_keys = "ad"\ntime_window = 5\n\n[target]',
            ),
        ],
        [("second-join", "transform[1].join", "[transform.join]", "one join")],
    ),
    "lookup-with-a-join": (
        [("[target]", f"{LOOKUP}\n[target]")],
        [
            ("same-source", "transform.lookups.items.source", "source = ", "source of its own"),
            ("no-keys", "transform.lookups.items.keys", "keys", "id"),
        ],
    ),
    "window-without-a-size": (
        [
            CHAINED,
            ("[target]", f"[[transform]]\n{WINDOW}\n[target]"),
            ('size = "1 minute"', 'kind = "session"\nsize = "0 seconds"'),
        ],
        [
            ("bad-window", "transform[1].window.gap", "[transform.window]", "gap"),
            ("no-effect", "transform[1].window.size", "size", "gap"),
        ],
    ),
    "blank-checkpoint": (
        [('name = "clicked"', 'name = "clicked"\ncheckpoint = " "')],
        [("bad-setting", "checkpoint", "checkpoint", "a directory")],
    ),
    "checkpoint-of-no-variable": (
        [('name = "clicked"', 'name = "clicked"\ncheckpoint = "${NO_SUCH_PLACE}/x"')],
        [("not-set", "checkpoint", "checkpoint", "NO_SUCH_PLACE")],
    ),
    "directory-of-no-variable": (
        [
            ('kind = "object"', 'kind = "files"'),
            ('url = "s3://bucket/clicked"', 'url = "${NO_SUCH_PLACE}/x"'),
        ],
        [("not-set", "state_store.url", "url", "NO_SUCH_PLACE")],
    ),
    "endpoint-of-no-variable": (
        [('kind = "object"', 'kind = "object"\nendpoint = "http://${NO_SUCH_PLACE}"')],
        [("not-set", "state_store.endpoint", "endpoint", "NO_SUCH_PLACE")],
    ),
    "sink-in-a-source": (
        [
            ('connector = "memory"', 'connector = "file"\npath = "in/shown"\nformat = "json"'),
            (
                '[target.connection]\nconnector = "memory"',
                '[target.connection]\nconnector = "file"\npath = "in/shown/out"\nformat = "json"',
            ),
        ],
        [("sink-in-source", "target.connection.path", 'path = "in/shown/out"', "would write into")],
    ),
    "unknown-format-of-a-sink": (
        [
            (
                '[target.connection]\nconnector = "memory"',
                '[target.connection]\nconnector = "file"\npath = "out"\nformat = "xml"',
            )
        ],
        [("unknown-format", "target.connection.format", "format", "parquet")],
    ),
    "unknown-format-of-a-source": (
        [('connector = "memory"', 'connector = "file"\npath = "in"\nformat = "xml"')],
        [("unknown-format", "sources[0].connection.format", "format", "json")],
    ),
    "unknown-column-of-an-aggregate": (
        [
            CHAINED,
            (
                "[target]",
                f"[[transform]]{WINDOW}".replace("count(*)", "count(nope)").replace(" }", ", m = 'sum(x)' }")
                + "[target]",
            ),
        ],
        [
            ("unknown-column", "transform[1].window.aggregates.n", "aggregates", "left_ad"),
            ("unknown-column", "transform[1].window.aggregates.m", "aggregates", "left_ad"),
        ],
    ),
    # what sources say
    "unknown-connector": (
        [('connector = "memory"', 'connector = "memry"')],
        [("unknown-connector", "sources[0].connection.connector", "connector", "Memory")],
    ),
    "unknown-type": (
        [('user = "STRING"', 'user = "STRIG"')],
        [("unknown-type", "sources[0].columns.user", "user", "STRING")],
    ),
    "unknown-time": (
        [('event_time_column = "at"', 'event_time_column = "att"')],
        [
            ("unknown-column", "sources[1].query", "query", '"at"'),
            ("unknown-column", "transform.join.event_time_column", "event_time_column", '"impressions"'),
        ],
    ),
    "time-in-a-struct": (
        [
            ('event_time_column = "at"', 'event_time_column = "user.at"'),
            ('user = "STRING"', 'user = "STRUCT<at TIMESTAMP>"'),
        ],
        [
            ("unknown-column", "sources[1].query", "query", '"user.at"'),
            (
                "unknown-column",
                "transform.join.event_time_column",
                "event_time_column",
                'query = "SELECT *, user.at AS ts FROM impressions"',
            ),
        ],
    ),
    "no-record-time": (
        [('event_time_column = "at"\n', "")],
        [
            ("unknown-column", "sources[1].query", "query", "_event_ts"),
            ("no-record-time", "transform.join.event_time_column", "[transform.join]", "no timestamp"),
        ],
    ),
    "wrong-query": (
        [("price * 2 AS twice", "prce * 2 AS twice")],
        [("unknown-column", "sources[1].query", "query", '"price"')],
    ),
    "query-that-joins": (
        [("FROM clicks WHERE", "FROM clicks JOIN clicks c USING (ad) WHERE")],
        [("bad-argument", "sources[1].query", "query", "filter")],
    ),
    # what the join says of them
    "unknown-columns": (
        [
            ('left_keys = ["ad", "user"]', 'left_keys = ["ad", "usr"]'),
            ('output_right_columns = ["at", "twice"]', 'output_right_columns = ["at", "price"]'),
        ],
        [
            ("unknown-column", "transform.join.left_keys", "left_keys", '"user"'),
            ("unknown-column", "transform.join.output_right_columns", "output_right_columns", '"clicks"'),
        ],
    ),
    "windows-of-unknown-columns": (
        [
            CHAINED,
            ("[target]", f"[[transform]]\n{WINDOW}\n[target]"),
            ('size = "1 minute"', 'size = "1 minute"\ngroup_by = ["left_ad", "left_usr"]'),
            ("count(*)", "count(right_twce)"),
        ],
        [("unknown-column", "transform[1].window.group_by", "group_by", '"left_user"')],
    ),
    "windows-by-no-event-time": (
        [
            CHAINED,
            ("[target]", f"[[transform]]\n{WINDOW}\n[target]"),
            ('event_time_column = "left_at"', 'event_time_column = "left_ad"'),
        ],
        [("no-event-time", "transform[1].window", "[transform.window]", "left_ad")],
    ),
    "mixed-times": (
        [('at = "TIMESTAMP"', 'at = "BIGINT"')],
        [("mixed-times", "transform.join.event_time_column", "event_time_column", "timestamp_millis")],
    ),
    "unknown-setting": (
        [("max_rows = 1_000_000", "max_rws = 1")],
        [("unknown-setting", "settings.max_rws", "max_rws", "max_rows")],
    ),
}


def collect_errors(text: str) -> list[WatersmeetError]:
    with pytest.raises(WatersmeetError) as raised:
        job_of(text, "clicked.toml", {}, None)
    error = raised.value
    return list(error.errors) if isinstance(error, SeveralErrors) else [error]


def test_the_pipeline_is_right_as_it_is():
    pipeline, job = job_of(CLICKED, "clicked.toml", {}, None)
    assert pipeline.name == "clicked"
    assert [output.name for output in job.plan.queries[0].outputs] == [
        "left_ad", "left_user", "left_at", "right_at", "right_twice",
    ]  # fmt: skip


def test_there_are_many():
    assert len(WRONG) >= 25


@pytest.mark.parametrize("name", WRONG)
def test_error_names_file_line_and_key(name):
    edits, expected = WRONG[name]
    text = edit_pipeline_text(*edits)
    errors = collect_errors(text)
    assert [error.code for error in errors] == [code for code, _, _, _ in expected], "\n".join(
        map(str, errors)
    )
    for error, (_, key, line, words) in zip(errors, expected, strict=True):
        assert error.message.startswith((f"{key}: ", f"{key} ")), error.message
        assert error.location is not None
        assert error.location.source == "clicked.toml"
        assert text.splitlines()[error.location.line - 1].startswith(line), str(error)
        assert words in str(error)
        assert "hunter2" not in str(error)
        assert str(error).count(", line ") == 1 + (key.endswith(".query") and "(query, line 1" in str(error))


def test_error_in_embedded_sql_names_its_line_and_column():
    """Beside that of its key in the file."""
    (error,) = collect_errors(edit_pipeline_text(("price * 2 AS twice", "prce * 2 AS twice")))
    assert "(query, line 1, column 22)" in error.message
    window = WINDOW.replace("count(*)", "count(*")
    (error,) = collect_errors(edit_pipeline_text(CHAINED, ("[target]", f"[[transform]]\n{window}\n[target]")))
    assert "line 1, column " in error.message


def test_single_bracket_sources_have_their_own_hint():
    text = 'name = "a"\n[sources]\nname = "l"\n[target]\nconnection = { connector = "memory" }\n'
    errors = {error.message: error for error in collect_errors(text)}
    error = errors["sources is one table, but a list is expected"]
    assert (error.hint, str(error.location)) == ("write [[sources]]", "clicked.toml, line 2, column 1")


def test_a_setting_from_outside_stands_in_no_file():
    with pytest.raises(WatersmeetError) as raised:
        job_of(CLICKED, "clicked.toml", {"max_rows": "many"}, None)
    assert raised.value.message == "max_rows is 'many'"
    assert raised.value.location is None


def test_a_setting_from_outside_wins_however_the_file_spells_it():
    text = edit_pipeline_text(("max_rows = 1_000_000", "Max-Rows = 7"))
    assert job_of(text, "clicked.toml", {}, None)[1].description.options.max_rows == 7
    assert job_of(text, "clicked.toml", {"max_rows": "9"}, None)[1].description.options.max_rows == 9


@pytest.mark.parametrize(
    ("edit", "setting", "given"),
    [
        (('name = "clicked"', 'name = "clicked"\ncheckpoint = "${PLACE}/x"'), "checkpoint", "/here/x"),
        (
            ('kind = "object"\nurl = "s3://bucket/clicked"', 'kind = "files"\nurl = "file://${PLACE}/x"'),
            "checkpoint",
            "/here/x",
        ),
        (('kind = "object"', 'kind = "object"\nregion = "${PLACE}"'), "state_store_region", "/here"),
        (('kind = "object"', 'kind = "object"\ncache = "${PLACE}"'), "state_cache", "/here"),
    ],
)
def test_where_the_state_is_may_be_a_variable(edit, setting, given, monkeypatch):
    monkeypatch.setenv("PLACE", "/here")
    text = edit_pipeline_text(edit)
    assert job_of(text, "clicked.toml", {}, None)[1].description.run[setting] == given
    assert settings_in(text, "clicked.toml", {})[setting] == given


def test_the_url_of_a_directory_is_read_as_in_sql():
    text = edit_pipeline_text(
        ('kind = "object"\nurl = "s3://bucket/clicked"', 'kind = "files"\nurl = "file:///a/b%20c"')
    )
    assert job_of(text, "clicked.toml", {}, None)[1].description.run["checkpoint"] == "/a/b c"
    assert settings_in(text, "clicked.toml", {})["checkpoint"] == "/a/b c"


def test_what_looks_after_a_state_guesses_none(tmp_path, monkeypatch, capsys):
    """The state of a file that cannot be read is not that of a job which has the file's name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(edit_pipeline_text(("how = ", "hwo = ")))
    for command in (["stop"], ["state", "show"], ["state", "check"]):
        assert main([*command, "job.toml"]) == 2
        told = capsys.readouterr()
        assert "hwo" in told.err
        assert ".watersmeet" not in told.out + told.err


def test_all_problems_come_at_once():
    text = edit_pipeline_text(
        ("lag", "lagms"),
        ('left_keys = ["ad", "user"]', "left_keys = []"),
        ('min_delta = "0 seconds"', 'min_delta = "400 seconds"'),
        ('kind = "object"', 'kind = "objects"'),
        ('connector = "memory"\n\n[state_store]', 'connector = "memory"\npassword = "x"\n\n[state_store]'),
    )
    assert [error.code for error in collect_errors(text)] == [
        "unknown-key", "no-keys", "bad-window", "open-secret", "bad-value",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["name = ", "name = 'a'\nname = 'b'", "[[sources]\n", "a = " + "[" * 5000])
def test_what_is_no_toml_is_refused_with_its_line(text):
    (error,) = collect_errors(text)
    assert error.code == "syntax"
    assert "TOML" in error.message


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 8 == 0 else pytest.mark.full)
        for number, name in enumerate(WRONG)
    ],
)
def test_wrong_pipeline_starts_no_jvm(name, tmp_path, monkeypatch, capsys):
    from pyspark import java_gateway

    def fail_on_jvm_launch(*args, **kwargs):
        raise AssertionError("a JVM")

    monkeypatch.setattr(java_gateway, "launch_gateway", fail_on_jvm_launch)
    file = tmp_path / "clicked.toml"
    file.write_text(edit_pipeline_text(*WRONG[name][0]))
    for command in ("validate", "run"):
        assert main([command, str(file)]) == 2
        said = capsys.readouterr()
        assert re.search(rf"{re.escape(str(file))}, line \d+, column \d+", said.err), said.err
    assert [path.name for path in tmp_path.iterdir()] == ["clicked.toml"]
