"""The pages say what is true: SQL plans, Python runs, commands, flags, options, paths and links are there."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import watersmeet
from tests.support.package_paths import PACKAGE, find_paths
from tests.support.package_paths import REPOSITORY as ROOT
from watersmeet.cli.main import app

DOCS = ROOT / "docs/users"
PAGES = find_paths(ROOT, "*.md", "docs/**/*.md")
README, GLOSSARY = ROOT / "README.md", DOCS / "glossary.md"
ARCHITECTURE = ROOT / "docs/internals/architecture.md"
FIRST_PAGE, FIRST_QUERY = DOCS / "guides/join-two-streams.md", (DOCS / "delivered.sql").read_text()
EXAMPLES = find_paths(DOCS, "examples/*.md")
FOLDERS = [
    path.name
    for path in find_paths(
        ROOT, "src", "tests", "scripts", "docs", "deploy", "benchmarks", "examples", "monitoring"
    )
]
GROUPS = {"state": ("show", "ls", "check", "gc", "copy", "export", "restore")}
COMMANDS = (
    *(
        "run",
        "explain",
        "validate",
        "schema",
        "preview",
        "stop",
        "reset",
        "report",
        "prepare",
        "ui",
        "whatif",
        "diff",
        "why",
        "doctor",
        "replay",
        "demo",
        "init",
    ),
    *(f"{group} {name}" for group, names in GROUPS.items() for name in names),
)
HOSTS = {
    "docs/users/faq.md": {"github.com"},
    "docs/users/coming-from/*.md": {
        "docs.confluent.io",
        "docs.hazelcast.com",
        "docs.ksqldb.io",
        "docs.risingwave.com",
        "issues.apache.org",
        "materialize.com",
        "nightlies.apache.org",
        "spark.apache.org",
    },
}
"""Hosts that pages may link to."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def inline(page: Path) -> list[str]:
    """What stands between backticks; cells of tables keep their escapes."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def section(page: Path, title: str) -> str:
    return page.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(page: Path) -> Iterator[str]:
    """Lines of shell blocks, and commands within sentences."""
    for block in blocks(page, "sh"):
        yield from (line for line in block.splitlines() if line.strip())
    starts = re.compile(r"(\.venv/bin/)?(watersmeet|make|scripts/\w+)(\s|$)")
    yield from (code for code in inline(page) if starts.match(code))


@cache  # typer makes all commands for each question
def command_flags(name: str) -> set[str]:
    """The flags of one command of the command line."""
    import typer

    found = typer.main.get_command(app)
    for word in name.split():
        found = found.commands[word]
    return {flag for p in found.params for flag in (*p.opts, *p.secondary_opts) if flag.startswith("--")}


def problems_of(command: str) -> list[str]:
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # settings before the command
        words.pop(0)
    if not words:
        return []
    program, rest = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == "make":
        known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return [f"no recipe {word}" for word in rest if "=" not in word and word not in known]
    if program.startswith("scripts/"):
        return [] if (ROOT / program).exists() else [f"no {program}"]
    if program == "watersmeet":
        if not rest or rest[0].startswith("--"):
            return [] if set(rest) <= command_flags("") | {"--help"} else [f"no {rest}"]
        name = " ".join(rest[: 1 + (rest[0] in GROUPS)])
        if name not in COMMANDS:
            return [f"no command {name}"]
        known = command_flags(name) | {"--help"}
        return [f"no flag {word}" for word in rest[1:] if word.startswith("--") and word not in known]
    return [] if program in ("python", "cat", "cp", "sort", "mkdir") else [f"what is {program}?"]


def test_the_pages_are_there():
    names = {page.name for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "architecture.md", "guarantees.md"} <= names


@pages
def test_sql_is_planned(page):
    """A block with declarations and a query is a whole job; any other goes with the first query. On the page
    of an example it stands in one of its jobs, which are run elsewhere."""
    for block in blocks(page, "sql"):
        if page in EXAMPLES:
            jobs = find_paths(ROOT, f"examples/{page.stem}/*.sql")
            assert any(block in job.read_text() for job in jobs), block
            continue
        query = re.search(r"^(INSERT|SELECT|EXPLAIN)\b", block, re.MULTILINE)
        whole = query and re.search(r"^CREATE (MAPPING|TABLE|SOURCE)\b", block, re.MULTILINE)
        watersmeet.plan_job(watersmeet.parse_job(block if whole else f"{FIRST_QUERY}\n{block}"))


def test_the_first_query_is_the_file():
    assert FIRST_QUERY in blocks(FIRST_PAGE, "sql")


def test_the_query_in_the_readme_and_its_result_are_real(tmp_path, monkeypatch, capsys):
    """They are those of the project that ``watersmeet init`` makes."""
    from watersmeet.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["init", "files", "shop"]) == 0
    monkeypatch.chdir(tmp_path / "shop")
    job = (tmp_path / "shop" / "job.sql").read_text()
    (query,) = blocks(README, "sql")
    assert query == re.sub(r"^--.*\n\n?", "", job, flags=re.MULTILINE)
    capsys.readouterr()
    assert main(["preview", "job.sql"]) == 0
    assert blocks(README, "text")[0] in capsys.readouterr().out


def test_the_readme_is_read_in_two_minutes():
    assert len(README.read_text().splitlines()) <= 120


def test_ci_calls_the_test_command_of_the_readme():
    (recipe,) = (line.split("#")[0].split() for line in commands(README) if line.startswith("make test "))
    assert f"stage {recipe[1]}" in (ROOT / ".ci" / "run").read_text()


def test_explain_of_the_first_query_is_real():
    text = watersmeet.explain(watersmeet.plan_job(watersmeet.parse_job(FIRST_QUERY)))
    assert text in blocks(FIRST_PAGE, "text")


def test_the_refusal_of_a_join_without_bound_is_real():
    open_ended = FIRST_QUERY.replace(" AND o.order_time + INTERVAL '1' HOUR", "").replace(
        "d.delivery_time BETWEEN", "d.delivery_time >="
    )
    with pytest.raises(watersmeet.PlanError) as refused:
        watersmeet.plan_job(watersmeet.parse_job(open_ended))
    assert f"{refused.value}\n" in blocks(FIRST_PAGE, "text")


@pages
def test_python_runs(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = "\n".join(blocks(page, "python"))
    example = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append)
    assert result.failed == 0, "".join(report)


def documented_modules() -> list[str]:
    """Modules with examples."""
    found = []
    for file in find_paths(PACKAGE, "**/*.py"):
        names = file.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(names[:-1] if names[-1] == "__init__" else names)
        if ">>> " in file.read_text():
            found.append(name)
    return found


@pytest.mark.parametrize("name", documented_modules())
def test_examples_of_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    assert result.attempted


@pages
def test_commands_are_there(page):
    problems = [f"{command}: {each}" for command in commands(page) for each in problems_of(command)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("watersmeet run job.sql --until-caught-up", None),
        ("watersmeet run job.sql --until-caught", "no flag --until-caught"),
        ("watersmeet serve", "no command serve"),
        ("watersmeet state ls job.sql --json", None),
        ("watersmeet state job.sql", "no command state job.sql"),
        ("make dmo", "no recipe dmo"),
        ("A=b scripts/tests", "no scripts/tests"),
    ],
)
def test_a_wrong_command_is_seen(command, problem):
    assert problems_of(command) == ([] if problem is None else [problem])


@pages
def test_flags_are_there(page):
    known = {flag for name in COMMANDS for flag in command_flags(name)}
    known |= command_flags("") | {"--help", "--seed"}  # the last of the tests
    named = {found for code in inline(page) for found in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    assert named <= known


@pytest.mark.parametrize("connector", ["kafka", "generator"])
def test_connectors_accept_options_of_any_source(connector):
    """Those that the page gives for any source reach no reader that would refuse them."""
    from watersmeet.runtime.spark.sources import generator, kafka

    named = re.findall(r"^\| `([a-z_]+)` \|", (DOCS / "reference/options.md").read_text(), re.MULTILINE)
    options = {"connector": connector, "idle_timeout": "1 minute", "on_idle": "follow", "max_ahead": "off"}
    assert set(options) - {"connector"} <= set(named)
    if connector == "kafka":
        options |= {"bootstrap.servers": "localhost:9092", "topic": "a"}
    written = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    plan = watersmeet.plan_job(
        watersmeet.parse_job(
            f"CREATE TABLE a (t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND) WITH ({written});"
            "SELECT x.t, y.t AS u FROM a x JOIN a y ON x.t = y.t"
        )
    )
    (source,) = plan.sources
    assert source.idle_timeout_us == 60_000_000
    if connector == "kafka":
        assert kafka.reader_options(source) == {
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.isolation.level": "read_committed",
        }
    else:
        generator.check_options(source)


@pages
def test_links_lead_somewhere(page):
    for text, target in re.findall(r"\[([^\]]+)\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"[{text}]({target})"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}, target


@pages
def test_paths_are_there(page):
    """Files and folders of the repository that a page names, from its root or from the package's."""
    for code in inline(page):
        if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]+", code):
            assert (ROOT / code).exists(), code
        elif re.fullmatch(r"[\w/]+\.py", code):
            assert (PACKAGE / code).exists(), code


def test_the_architecture_names_every_part():
    rows = re.findall(r"^\| (`.+?) \|", section(ARCHITECTURE, "Packages"), re.MULTILINE)
    named = {name.split("/")[0] for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    parts = {path.name for path in find_paths(PACKAGE, "*") if path.is_dir() or path.suffix == ".py"}
    assert named == parts - {"__init__.py"}


def test_the_glossary_has_each_word_once_and_in_order():
    words = re.findall(r"^\| ([^|`]+?) \| ", GLOSSARY.read_text(), re.MULTILINE)[1:]
    assert len(words) > 40
    assert words == sorted(set(words), key=str.lower)


def test_pages_keep_to_themselves():
    """No machine's paths, no addresses but those of examples."""
    allowed = {page: hosts for pattern, hosts in HOSTS.items() for page in find_paths(ROOT, pattern)}
    for page in PAGES:
        text = page.read_text()
        name = page.relative_to(ROOT).as_posix()
        assert not re.search(r"(?<![\w.])/(home|root|work|tmp|Users)/", text), name
        hosts = set(re.findall(r"https?://[\w.-]+", text))
        assert hosts <= {f"https://{host}" for host in {"www.apache.org"} | allowed.get(page, set())}, name
