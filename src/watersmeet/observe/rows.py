"""Rows of memory and console sinks as people and programs get them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TextIO

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from watersmeet.errors import SpecError, printable
from watersmeet.observe.notebook import rows_page

# The rows of a memory sink, as Arrow, pandas or Polars has them.

SHOWN_ROWS = 20

_WITH_NULL = {
    pa.bool_(): "Boolean",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
}
"""The types of pandas that have NULL, by those of Arrow."""


@dataclass(frozen=True, repr=False)
class Result:
    """All rows that a memory sink has got until it was asked, in the order of ticks. Made by
    `StartedJob.result`.

    >>> result = Result("n", pa.table({"n": [1, 2]}))
    >>> len(result), result.arrow().column_names
    (2, ['n'])
    """

    name: str
    _table: pa.Table

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; TIMESTAMPs are in UTC."""
        return self._table

    def pandas(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Integers and Booleans use pandas' nullable types (``Int64``), because large integers change as
        floats. A NULL of DOUBLE becomes NaN.

        Raises:
            SpecError: pandas is not installed.
        """
        pandas = _needs("pandas")
        kinds = {kind: getattr(pandas, f"{name}Dtype")() for kind, name in _WITH_NULL.items()}
        return self._table.to_pandas(types_mapper=kinds.get, integer_object_nulls=True)

    def polars(self) -> Any:
        """Return the rows as a Polars DataFrame.

        Raises:
            SpecError: Polars is not installed.
        """
        from_arrow: Callable[[pa.Table], Any] = _needs("polars").from_arrow
        return from_arrow(self._table)

    def rows(self) -> list[dict[str, Any]]:
        """Return each row as a dictionary."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Result {self.name}: {len(self):,} rows of {', '.join(self._table.column_names)}>"

    def _repr_html_(self) -> str:
        return rows_page(self.name, self._table.slice(0, SHOWN_ROWS), len(self))


def _needs(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise SpecError(
            f"{library} is not installed",
            code="missing-library",
            hint=f"run `pip install {library}`, or use result.arrow()",
        ) from None


# How the rows of a console sink look: a table for people, or a JSON line per tick for programs.


class ConsolePrinter(Protocol):
    """A rich console, or what prints as one does."""

    def print(self, *printed: Any, **how: Any) -> None: ...


class TablePrinter:
    """Tables on a rich console, or above the live view of a run."""

    values = False

    def __init__(self, console: ConsolePrinter) -> None:
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
    """Build a table of rows under their column names; escape unprintable text."""
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
