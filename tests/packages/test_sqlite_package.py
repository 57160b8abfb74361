"""A package of somebody else: its sink, its source and its functions, without a change of this one."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from types import SimpleNamespace

import pyarrow as pa
import pytest

import watersmeet
from tests.packages.installed import PACKAGE, install_package, run_with, write_metadata
from tests.support.package_paths import PACKAGE as SOURCES
from tests.support.package_paths import find_paths
from watersmeet.cli.install.checks import Status, check_extensions
from watersmeet.errors import EngineError, SpecError, SqlError, WatersmeetError
from watersmeet.expressions.package_functions import PackageFunction
from watersmeet.pipelines import Join, Pipeline, Source, Target, Transform
from watersmeet.sinks.registry import make_sink, target_sinks
from watersmeet.spec import connectors, entry_points, functions
from watersmeet.spec.model import Sink
from watersmeet.spec.options.names import sink_option_problems
from watersmeet.testing import MemoryJob
from watersmeet.testing.sink_contract import CHECKS, COLUMNS, SinkContract

STREAM = """
CREATE TABLE a (id BIGINT, n STRING, at BIGINT, WATERMARK FOR at AS at - 5) WITH ('connector' = 'memory');
"""


def forget_packages():
    for module in [name for name in sys.modules if name.split(".")[0] in ("watersmeet_sqlite", "mine")]:
        del sys.modules[module]
    for cached in (entry_points.list_entry_points, connectors._load_connector, functions.find_function):
        cached.cache_clear()
    functions._functions_in_use.clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of installed packages, of this process."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    forget_packages()
    yield place
    forget_packages()


@pytest.fixture
def installed(folder):
    return install_package(folder)


def declare(folder, text, **entries):
    """Install a package ``mine`` that declares entry points; ``text`` is its module."""
    (folder / "mine.py").write_text(text)
    groups = {f"watersmeet.{group}": {name: f"mine:{name.upper()}"} for group, name in entries.items()}
    write_metadata(folder, "mine", groups)


def refusal_of(call) -> WatersmeetError:
    with pytest.raises(WatersmeetError) as caught:
        call()
    return caught.value


def parse(sink="TYPE Mine", select="id"):
    return watersmeet.parse_job(f"{STREAM} CREATE SINK s {sink}; INSERT INTO s SELECT {select} FROM a")


# The sink


@pytest.mark.parametrize("check", CHECKS)
def test_its_sink_keeps_the_contract(installed, tmp_path, check):
    path = str(tmp_path / "out.db")

    def read(target):
        with closing(sqlite3.connect(path)) as base:
            known = base.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (target,)).fetchone()
            return base.execute(f"SELECT * FROM {target}").fetchall() if known else []

    def make(target):
        return make_sink(Sink("out", "sqlite", {"path": path, "table": target}))

    SinkContract(make, read).check(check)


@pytest.mark.parametrize(
    "declaration",
    [
        "WITH ('connector' = 'sqlite', 'path' = 'x.db', 'table' = 't')",
        "TYPE SQLite OPTIONS ('path' = 'x.db', 'table' = 't')",
    ],
)
def test_sql_declares_its_sink(installed, declaration):
    job = parse(declaration)
    sink = job.inserts[0].sink
    assert (sink.connector, sink.options) == ("sqlite", {"path": "x.db", "table": "t"})
    assert 'into sqlite "s"' in watersmeet.explain(watersmeet.plan_job(job))


def test_calls_declare_its_sink(installed):
    sink = watersmeet.sink("sqlite", "shop", path="x.db", table="t", password="secret")
    assert (sink.name, sink.connector) == ("shop", "sqlite")
    assert "secret" not in repr(sink)
    with pytest.raises(SqlError, match="not a connector") as caught:
        watersmeet.sink("sqlit")
    assert "sqlite" in caught.value.hint


def test_a_pipeline_declares_its_sink(installed):
    columns = {"id": "BIGINT", "at": "TIMESTAMP"}
    sources = [Source(name=name, connection={"connector": "memory"}, columns=columns) for name in ("x", "y")]
    keys = {"left_keys": "id", "right_keys": "id", "event_time_column": "at"}
    join = Join(left_source="x", right_source="y", min_delta=0, max_delta="5 minutes", **keys)
    connection = {"connector": "sqlite", "path": "x.db", "table": "t"}
    target = Target(name="both", connection=connection)
    made = Pipeline(name="both", sources=sources, transform=Transform(join=join), target=target)
    text = made.to_toml()
    assert 'connector = "sqlite"' in text
    assert 'into sqlite "both"' in Pipeline.from_toml(text).explain()


def test_accept_target_takes_over_its_table(installed, tmp_path):
    def start(owner, accepts=()):
        sink = make_sink(Sink("out", "sqlite", {"path": str(tmp_path / "x.db"), "table": "t"}))
        for target in target_sinks({"out": sink}, accepts):
            target.accept_target()
        sink.prepare(COLUMNS, owner)
        return sink

    first = start("job-1")
    first.write(SimpleNamespace(collect=lambda: [(1, "x")]), "q", 1, "a")
    assert first.publish("q", 1, "a", {"rows": "1"})
    with pytest.raises(EngineError, match="another job"):
        start("job-2")
    assert start("job-2", ["out"]).has_part("q", 1)


def test_a_primary_key_is_refused(installed):
    error = refusal_of(lambda: parse("(id BIGINT, PRIMARY KEY (id) NOT ENFORCED) TYPE Sqlite"))
    assert error.code == "primary-key"


def test_doctor_lists_what_packages_declare(installed, folder):
    assert [(check.status, check.detail.split(" ")[0]) for check in check_extensions()] == [
        (Status.OK, name) for name in ("sqlite", "ramp", "initials", "slug")
    ]
    declare(folder, "import no_such_module", functions="mine")
    forget_packages()
    (failed,) = [check for check in check_extensions() if check.status is not Status.OK]
    assert (failed.status, "no_such_module" in failed.detail) == (Status.NOTE, True)


def test_doctor_fails_where_a_name_is_built_in(folder):
    declare(folder, "", sinks="kafka")
    (check,) = check_extensions()
    assert check.status is Status.FAIL


@pytest.mark.parametrize(
    ("options", "code", "hint"),
    [
        ({"path": "x.db"}, "missing-option", "'table' = 'delivered'"),
        ({"path": "x.db", "table": "t", "tabel": "t"}, "unknown-option", 'did you mean "table"?'),
        ({"path": "x.db", "table": "t", "timeout_s": "soon"}, "wrong-option", "valid integer"),
        ({"path": "x.db", "table": "t; DROP TABLE x"}, "wrong-option", "match pattern"),
    ],
)
def test_its_options_are_checked(installed, options, code, hint):
    (problem,) = sink_option_problems(Sink("out", "sqlite", options))
    assert (problem.code, hint in problem.hint) == (code, True)


def test_a_misspelt_connector_is_named(installed):
    error = refusal_of(lambda: parse("TYPE Sqlit"))
    assert (error.code, error.hint) == ("unknown-connector", 'did you mean "Sqlite"?')
    assert "watersmeet_sqlite" not in sys.modules


# Packages that cannot be used


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("OTHER = 1", "AttributeError"),
        ("MINE = 'mine'", 'not a Connector named "mine"'),
        ("MINE = Connector('other', sinks=True)", 'not a Connector named "mine"'),
        ("MINE = Connector('mine', sinks=True)", "it needs sink and sink_options"),
        ("MINE = Connector('mine', sink='a:b', sink_options='a:b')", "does not say sinks=True"),
        (
            "MINE = Connector('mine', log=True, sinks=True, sink='a:b', sink_options='a:b')",
            "only a built-in connector may have log",
        ),
    ],
)
def test_a_package_that_cannot_be_used_is_refused(folder, text, what):
    declare(folder, f"from watersmeet.extensions import Connector\n{text}\n", sinks="mine")
    error = refusal_of(parse)
    assert error.code == "extension-failed"
    assert "of the package mine" in error.message
    assert what in error.message
    assert "uninstall mine" in error.hint


def test_a_sink_whose_code_is_missing_is_refused(folder):
    text = "from watersmeet.extensions import Connector\n"
    text += "MINE = Connector('mine', sinks=True, sink='no_such:Sink', "
    declare(folder, text + "sink_options='watersmeet.extensions:Options')", sinks="mine")
    error = refusal_of(lambda: make_sink(parse().inserts[0].sink))
    assert (error.code, "no_such:Sink" in error.message) == ("extension-failed", True)


@pytest.mark.parametrize("name", ["kafka", "postgresql", "Kafka"])
def test_a_built_in_connector_cannot_be_replaced(folder, name):
    declare(folder, "", sinks=name)
    assert connectors.find_connector(name) is connectors.BY_NAME[name.lower()]
    (problem,) = connectors.list_name_problems()
    assert (problem.code, f'"{name}" of the package mine is built in' in problem.message) == (
        "extension-name",
        True,
    )


def test_a_built_in_function_cannot_be_replaced(folder):
    declare(folder, "", functions="upper")
    (problem,) = functions.list_function_name_problems()
    assert problem.code == "extension-name"
    assert functions.find_function("upper") is None


def test_a_name_of_two_packages_is_refused(installed, folder):
    declare(folder, "", sinks="sqlite")
    error = refusal_of(lambda: connectors.find_connector("sqlite"))
    assert error.code == "extension-name"
    assert "mine" in error.message
    assert "watersmeet-sqlite" in error.message


def test_a_connector_without_package_is_unknown(folder):
    assert connectors.find_connector("sqlite") is None
    with pytest.raises(SpecError, match="no sink of TYPE"):
        make_sink(Sink("out", "sqlite"))


def test_nothing_is_looked_for_until_a_name_is_not_built_in(installed, tmp_path):
    code = f"""
import sys, watersmeet
watersmeet.parse_job({STREAM!r} + "SELECT upper(x.n) AS u FROM a x JOIN a y ON x.at = y.at")
from watersmeet.spec.entry_points import list_entry_points
print(list_entry_points.cache_info().currsize, "watersmeet_sqlite" in sys.modules)
"""
    assert run_with(installed, "-c", code, cwd=tmp_path).stdout.split() == ["0", "False"]


# Functions


def test_its_functions_are_those_of_any_clause(installed):
    job = MemoryJob(
        STREAM
        + """SELECT slug(x.n) AS s, initials(y.n, 2) AS i FROM a x JOIN a y
             ON slug(x.n) = slug(y.n) AND y.at BETWEEN x.at AND x.at + 3 WHERE initials(x.n, x.id) <> 'q'"""
    )
    rows = [{"id": 1, "n": "A b", "at": 1}, {"id": 1, "n": "a_B", "at": 2}, {"id": 1, "n": "q", "at": 2}]
    assert sorted(map(str, job.tick({"a": rows}).rows)) == [
        "{'s': 'a-b', 'i': 'A '}",
        "{'s': 'a-b', 'i': 'a_'}",
        "{'s': 'a-b', 'i': 'a_'}",
    ]


@pytest.mark.parametrize(
    ("select", "code", "said"),
    [
        ("slug(id) AS s", "wrong-arguments", "is BIGINT, which it does not accept"),
        ("slug(n, n) AS s", "wrong-arguments", "takes 1 argument"),
        ("slugg(n) AS s", "unknown-function", "no function slugg()"),
    ],
)
def test_its_functions_are_checked(installed, select, code, said):
    error = refusal_of(lambda: parse("TYPE Console", select))
    assert (error.code, said in error.message) == (code, True)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return names[:1]", "returned string[1] instead of string[2]"),
        ("return 5", "returned int instead of string[2]"),
        ("return names.cast('binary')", "returned binary[2] instead of string[2]"),
        ("raise ValueError('no')", "failed: ValueError: no"),
    ],
)
def test_a_function_that_breaks_its_promise_stops_the_job(folder, body, what):
    text = (
        "from watersmeet.extensions import Function\nMINE = Function('mine', ('STRING',), 'STRING', 'mine:f')"
    )
    declare(folder, f"{text}\ndef f(names):\n    {body}\n", functions="mine")
    with pytest.raises(EngineError, match=re.escape(what)) as caught:
        PackageFunction("mine").compute(pa.array(["a", "b"]))
    assert caught.value.code == "extension-failed"


@pytest.mark.parametrize(
    ("arguments", "result", "what"),
    [
        ("()", "STRING", "no arguments"),
        ("('ARRAY<INT>',)", "STRING", "ARRAY<INT> is not"),
        ("('INT',)", "X", "X"),
    ],
)
def test_a_function_with_a_wrong_signature_is_refused(folder, arguments, result, what):
    text = f"MINE = Function('mine', {arguments}, {result!r}, 'mine:f')"
    declare(folder, f"from watersmeet.extensions import Function\n{text}\n", functions="mine")
    error = refusal_of(lambda: functions.find_function("mine"))
    assert (error.code, what in error.message) == ("extension-failed", True)


# On Spark

JOB = """
CREATE TABLE a (id BIGINT, n STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1' DAY)
    WITH ('connector' = 'file', 'path' = 'in', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE r (id BIGINT, at TIMESTAMP, WATERMARK FOR at) WITH ('connector' = 'ramp', 'step' = '3');
CREATE SINK out TYPE SQLite OPTIONS ('path' = 'out.db', 'table' = 'delivered');
INSERT INTO out SELECT x.id, slug(x.n) AS s, initials(y.n, 3) AS i FROM a x JOIN a y
  ON slug(x.n) = slug(y.n) AND exp(x.id) > length(initials(y.n, 1))
  AND y.at BETWEEN x.at AND x.at + INTERVAL '1' SECOND
  WHERE initials(x.n, 2) <> 'No';
"""
NAMES = ["One two", "Three.Four", "None", "five"]
EXPECTED = [(1, "one-two", "One"), (2, "three-four", "Thr"), (4, "five", "fiv")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The package, installed by pip into a folder of its own."""
    place, copy = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("package") / "copy"
    subprocess.run(["cp", "-r", PACKAGE, copy], check=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", place, copy], check=True, timeout=300)
    return place


def test_pip_installs_its_entry_points(site, installed):
    def entries(folder):
        (file,) = folder.glob("watersmeet_sqlite-1.0.dist-info/entry_points.txt")
        return sorted(line for line in file.read_text().splitlines() if "=" in line)

    assert entries(site) == entries(installed)


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.parametrize("point", ["staged", "published"])
def test_a_killed_job_has_each_row_once(site, tmp_path, point):
    (tmp_path / "in").mkdir()
    for number, name in enumerate(NAMES, 1):
        file = tmp_path / "in" / f"{number}.json"
        file.write_text(f'{{"id": {number}, "n": "{name}", "at": "2024-01-01T10:00:0{number}"}}')
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    (tmp_path / "job.sql").write_text(JOB)
    killed = os.path.join(os.path.dirname(__file__), "killed.py")
    command = ("run", "job.sql", "--until-caught-up", "--finish", "--conf", "spark.ui.enabled=false")
    first = run_with(site, killed, point, 2, *command, cwd=tmp_path)
    assert first.returncode == -signal.SIGKILL, first.stdout + first.stderr
    with closing(sqlite3.connect(tmp_path / "out.db")) as base:
        shown = base.execute("SELECT * FROM delivered ORDER BY 1").fetchall()
        assert shown == EXPECTED[: 2 if point == "published" else 1]
    again = run_with(site, killed, "none", -1, *command, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    with closing(sqlite3.connect(tmp_path / "out.db")) as base:
        assert base.execute("SELECT * FROM delivered ORDER BY 1").fetchall() == EXPECTED
    assert "sqlite3 \"out.db\" 'SELECT * FROM delivered'" in again.stdout + again.stderr


@pytest.mark.spark
def test_its_source_is_read(site, tmp_path):
    job = JOB.split("INSERT")[0] + "INSERT INTO out SELECT id, CAST(id AS STRING) AS s, 'x' AS i FROM r;"
    (tmp_path / "in").mkdir()
    (tmp_path / "job.sql").write_text(job)
    killed = os.path.join(os.path.dirname(__file__), "killed.py")
    done = run_with(site, killed, "published", 2, "run", "job.sql", "--trigger", "100 ms", cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    with closing(sqlite3.connect(tmp_path / "out.db")) as base:
        rows = base.execute("SELECT id, s FROM delivered ORDER BY 1").fetchall()
    assert len(rows) >= 6
    assert rows == [(number, str(number)) for number in range(len(rows))]


# What it took


def test_no_source_file_names_the_package():
    named = re.compile(r"watersmeet_sqlite|SqliteSink|[\"']sqlite[\"']|sqlite3")
    files = find_paths(SOURCES, "**/*.py")
    assert files
    assert [str(file) for file in files if named.search(file.read_text())] == []


def test_the_package_imports_public_names_only():
    texts = [file.read_text() for file in find_paths(PACKAGE, "src/**/*.py")]
    modules = {
        name for text in texts for name in re.findall(r"^from (watersmeet\b[.\w]*) import", text, re.M)
    }
    assert modules == {"watersmeet", "watersmeet.extensions"}
