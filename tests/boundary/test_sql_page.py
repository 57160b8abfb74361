"""docs/users/sql.md has every statement and type, docs/users/reference every setting and option, no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.boundary.test_docs import command_flags
from watersmeet.parser.ddl import settings
from watersmeet.parser.ddl.options import COLUMNS, GENERATOR_ROWS_PER_SECOND
from watersmeet.parser.statements import STATEMENTS
from watersmeet.spec import connectors
from watersmeet.spec.options import (
    debezium,
    files,
    function,
    kafka,
    lake,
    names,
    postgres,
    records,
    spark,
)
from watersmeet.types import parser

USERS = Path(__file__).resolve().parents[2] / "docs" / "users"
SQL, SETTINGS, OPTIONS = (
    (USERS / name).read_text() for name in ("sql.md", "reference/settings.md", "reference/options.md")
)
KAFKA_SETTING = "<kafka setting>"

SOURCES = {
    "Options of any source": {*connectors.OF_ALL_SOURCES, COLUMNS},
    "Kafka source": {
        *kafka.SOURCE_NAMES,
        *kafka.READER,
        *records.OPTIONS,
        *debezium.OPTIONS,
        "metadata.<column>",
        "json.<name>",
        "csv.<name>",
        KAFKA_SETTING,
    },
    "File source": {*files.OF_SOURCES, *(name for of_format in files.READERS.values() for name in of_format)},
    "JDBC table": {*names.JDBC, f"{names.JDBC_PROPERTIES}<name>"},
    "Generator": {*names.GENERATOR, "field.<column>.kind", "field.<column>.nulls"},
    "Spark source": {spark.FORMAT, "<name>"},
}
SINKS = {
    "File sink": {
        *files.OURS,
        *files.StoredFileOptions.names(),
        *(name for of_format in files.WRITERS.values() for name in of_format),
        "<name.with.dot>",
    },
    "Kafka sink": {
        *kafka.SINK_OURS,
        "bootstrap.servers",
        *("transaction.timeout.ms", "transactional.id", "queue.buffering.max.kbytes"),
        KAFKA_SETTING,
    },
    "Delta sink": set(lake.DeltaOptions.names()),
    "Iceberg sink": {*lake.IcebergOptions.names(), f"{lake.CATALOG}<name>"},
    "Postgres sink": set(postgres.PostgresOptions.names()),
    "Function sink": set(function.FunctionOptions.names()),
    "Spark sink": {spark.FORMAT, spark.TABLE, "<name>"},
    "Console sink": set(names.CONSOLE),
}


def section(title: str, page: str = OPTIONS) -> str:
    """Return the text below a title, up to the next one."""
    return re.split(
        r"^#+ ", re.split(rf"^#+ {re.escape(title)}$", page, flags=re.MULTILINE)[1], flags=re.MULTILINE
    )[0]


def rows(title: str, page: str = OPTIONS) -> list[list[str]]:
    """Return the cells of the tables in a section, without their heads."""
    lines = re.findall(r"^\| (.*) \|$", section(title, page), re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines if line.startswith("`")]


def read_table_names(title: str, page: str = OPTIONS) -> list[str]:
    return [name for row in rows(title, page) for name in re.findall(r"`([^`]+)`", row[0])]


@pytest.mark.parametrize(("title", "known"), [*SOURCES.items(), *SINKS.items()], ids=[*SOURCES, *SINKS])
def test_options_are_those_of_the_code(title, known):
    named = read_table_names(title)
    assert sorted(named) == sorted(known)


@pytest.mark.parametrize(
    ("title", "by_format"),
    [("File source", files.READERS), ("File sink", files.WRITERS)],
    ids=["read", "written"],
)
def test_options_of_files_name_their_formats(title, by_format):
    own = {*files.OF_SOURCES, *("endpoint", "region"), "<name.with.dot>"}
    for row in rows(title):
        for name in set(re.findall(r"`([^`]+)`", row[0])) - own:
            taking = {kind for kind, options in by_format.items() if name in options}
            said = set(by_format) if row[1].startswith("all") else set(row[1].split(", "))
            assert said == taking, name


def test_connectors_and_what_they_do():
    described = {row[0].strip("`"): row[1:] for row in rows("Connectors")}
    assert set(described) == set(connectors.CONNECTORS)
    written = {name for name, cells in described.items() if cells[2] == "yes"}
    assert written == {name for name, each in connectors.CONNECTORS.items() if each.sinks}
    for name, each in connectors.CONNECTORS.items():
        assert set(re.findall(r"`([^`]+)`", described[name][3])) == set(each.aliases)
        assert f"`{name}`" in section("Connectors", SQL)


def test_settings_and_flags():
    titles = ("Semantics and limits", "Run and state")
    settings_of = [row for title in titles for row in rows(title, SETTINGS)]
    named = [name for title in titles for name in read_table_names(title, SETTINGS)]
    assert sorted(named) == sorted([*settings.OPTIONS, *settings.RUN_SETTINGS, "spark.<name>"])
    flags = {row[1].strip("`") for row in settings_of} - {""}
    alone = set(read_table_names("Flags of `run` alone", SETTINGS))
    assert flags | alone == command_flags("run") - {"--help"}
    assert not flags & alone
    for row in settings_of[:-1]:
        assert row[1] in ("", f"`--{row[0].strip('`').replace('_', '-')}`")


@pytest.mark.parametrize("page", [SETTINGS, OPTIONS], ids=["settings", "options"])
def test_tables_of_the_reference_are_those_that_are_compared(page):
    compared = {
        *SOURCES,
        *SINKS,
        "Connectors",
        "Semantics and limits",
        "Run and state",
        "Flags of `run` alone",
    }
    assert page.startswith("<!-- generated")
    assert set(re.findall(r"^## (.+)$", page, re.MULTILINE)) <= compared


def test_statements():
    assert read_table_names("Statements", SQL) == list(STATEMENTS)


def test_types():
    words = {
        word
        for row in rows("Types", SQL)
        for cell in row[:2]
        for word in re.findall(r"[A-Z][A-Z0-9_]+", cell)
    }
    assert words - {"WITH", "TIME", "ZONE", "WITHOUT", "PRECISION"} == parser.NAMES


def test_defaults_are_those_of_the_code():
    from watersmeet.runtime.spark.sources import generator
    from watersmeet.runtime.spark.sources.kafka import OFFSETS_PER_TICK
    from watersmeet.sinks.console import DEFAULT_ROWS
    from watersmeet.spec.job_options import LEAST_KEPT_TICKS, MOST_KEPT_TICKS
    from watersmeet.spec.options import kafka_delivery
    from watersmeet.spec.options.changes import DELETES, INSERTS
    from watersmeet.spec.options.kafka import METADATA, SINK_FORMATS, SOURCE_FORMATS

    assert f"| `rate` | `{GENERATOR_ROWS_PER_SECOND}` |" in section("Generator")
    assert all(f"`{kind}`" in section("Generator") for kind in generator.KINDS)
    assert f"| {OFFSETS_PER_TICK}, shared by the sources |" in section("Kafka source")
    for name in (*METADATA, *SOURCE_FORMATS):
        assert f"`{name}`" in section("Kafka source"), name
    assert all(f"`{name}`" in section("Kafka sink") for name in SINK_FORMATS)
    assert f"`{','.join(INSERTS)}`" in OPTIONS
    assert f"`{','.join(DELETES)}`" in OPTIONS
    assert f"| `control.topic` | `{kafka_delivery.DeliveryOptions().control_topic}` |" in section(
        "Kafka sink"
    )
    assert f"| `transaction.timeout.ms` | `{kafka_delivery.TRANSACTION_TIMEOUT_MS}` |" in section(
        "Kafka sink"
    )
    assert f"| `rows` | `{DEFAULT_ROWS}` |" in section("Console sink")
    (kept,) = (row for row in rows("Run and state", SETTINGS) if row[0] == "`keep_ticks`")
    assert kept[2] == f"`{LEAST_KEPT_TICKS}`"
    assert kept[3].endswith(f": {LEAST_KEPT_TICKS} to {MOST_KEPT_TICKS:,}")


def test_defaults_of_settings_are_those_of_the_code():
    from watersmeet.parser.ddl.quantities import bytes_in
    from watersmeet.spec.model import Options

    defaults = Options()
    for name, _, cell, _ in rows("Semantics and limits", SETTINGS):
        value = getattr(defaults, name.strip("`"))
        value = getattr(value, "value", value)
        if name == "`max_task_memory`":
            assert bytes_in(cell.strip("`"), 1) == value
        elif name == "`output_mode`":
            assert (cell, value) == ("by the sources", None)
        else:
            assert cell == f"`{'none' if value is None else value}`", name
