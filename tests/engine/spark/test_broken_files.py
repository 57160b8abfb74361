"""Files of a tick none of whose records parses are named, beside others that are fine."""

from __future__ import annotations

import json

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE a (id INT, name STRING, price DECIMAL(9,2){more})
  WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{form}'{options});
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT id, name, price FROM a;
"""
GOOD = [(n, f"n{n}", "1.25") for n in range(5)]


def csv(rows, sep=","):
    return "\n".join(map(sep.join, [("id", "name", "price"), *((str(n), *more) for n, *more in rows)])) + "\n"


def in_json(rows, name="id"):
    return "".join(json.dumps({name: n, "name": text, "price": 1.25}) + "\n" for n, text, _ in rows)


def debezium(rows, op="c"):
    return "".join(
        json.dumps({"op": op, "before": None, "after": {"id": n, "name": text, "price": 1.25}}) + "\n"
        for n, text, _ in rows
    )


BAD = [("x", "n", "1.25"), ("y", "n", "1.25")]
MIXED = [*GOOD, BAD[0], *GOOD]
FILES = {
    "csv": {"a b": csv(GOOD), "other": csv(GOOD, ";").split("\n", 1)[1], "mixed": csv([BAD[0], *MIXED])},
    "json": {"a b": in_json(GOOD), "other": in_json(BAD), "mixed": in_json(MIXED)},
    "json in another case": {"a b": in_json(GOOD, "ID"), "other": in_json(BAD), "mixed": in_json(MIXED)},
    "debezium-json": {"a b": debezium(GOOD), "other": debezium(BAD), "mixed": debezium(MIXED)},
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_without_a_record_that_parses_is_named(spark, tmp_path, case):
    form, folder = case.partition(" ")[0], tmp_path / "in é"
    folder.mkdir()
    for name, text in FILES[case].items():
        (folder / name).write_text(text)
    options = ", 'header' = 'false'" if form == "csv" else ""
    if options:  # the header of a file with another separator would stop the job
        for name in FILES[case]:
            text = (folder / name).read_text()
            (folder / name).write_text(text.removeprefix("id,name,price\n"))
    notes: list[str] = []
    MemorySink.clear()
    text = JOB.format(path=folder, form=form, options=options, more="")
    until_caught_up(spark, text, tmp_path / "state", on_notice=notes.append)
    rows = len([line for line in FILES[case]["other"].splitlines() if line])
    named = [note for note in notes if "no row of" in note]
    assert len(named) == 1, notes
    assert f'"a": tick 1: no row of {folder}/other ({rows} records) parses, such as ' in named[0]
    assert "(id is INT, but the value is 'x'" in named[0] or form != "json"
