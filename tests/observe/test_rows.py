"""The console sink's rows, as a table and as JSON."""

from __future__ import annotations

import io
import json

from rich.console import Console

from watersmeet.observe.notebook import JsonPrinter, TablePrinter


def test_table_shows_data_as_it_is():
    out = io.StringIO()
    TablePrinter(Console(file=out, width=60)).show("s", 5, ["t", "t"], [("[b]1[/b]", None)], 1232)
    text = out.getvalue()
    assert "s, tick 5" in text
    assert "[b]1[/b]" in text
    assert "NULL" in text
    assert "… and 1,232 more rows" in text


def test_json_is_one_line():
    out = io.StringIO()
    JsonPrinter(out).show("s", 5, ["t"], [("x\n",), (None,), (1.5,)], 0)
    (line,) = out.getvalue().splitlines()
    assert json.loads(line) == {
        "query": "s",
        "tick": 5,
        "columns": ["t"],
        "rows": [["x\n"], [None], [1.5]],
        "more_rows": 0,
    }
