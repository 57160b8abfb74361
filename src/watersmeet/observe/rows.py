"""How the rows of a console sink look: a table for people, or a JSON line per tick for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from rich.table import Table
from rich.text import Text

from watersmeet.errors import printable


class Prints(Protocol):
    """A rich console, or what prints as one does."""

    def print(self, *printed: Any, **how: Any) -> None: ...


class TablePrinter:
    """Tables on a rich console, or above the live view of a run."""

    values = False

    def __init__(self, console: Prints) -> None:
        self._console = console

    def show(
        self, insert: str, tick: int, names: Sequence[str], rows: Sequence[Sequence[str | None]], more: int
    ) -> None:
        table = table_of(names, rows)
        self._console.print(f"{insert}, tick {tick}", style="italic", markup=False, highlight=False)
        self._console.print(table)
        if more:
            self._console.print(f"… and {more:,} more rows", highlight=False)


def table_of(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Table:
    """Rows under their names, whatever is in them."""
    table = Table(header_style="bold")
    for name in names:
        table.add_column(Text(printable(name)), overflow="fold")
    for row in rows:
        table.add_row(*(Text("NULL", "dim") if value is None else Text(printable(value)) for value in row))
    return table


class JsonPrinter:
    """``{"query", "tick", "columns", "rows", "more_rows"}`` per tick; numbers are numbers, NULL is null, and
    others as `watersmeet.types.json_values` has them."""

    values = True

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(
        self, insert: str, tick: int, names: Sequence[str], rows: Sequence[Sequence[Any]], more: int
    ) -> None:
        line = {"query": insert, "tick": tick, "columns": list(names), "rows": list(rows), "more_rows": more}
        print(json.dumps(line, ensure_ascii=False, allow_nan=False), file=self._out, flush=True)
