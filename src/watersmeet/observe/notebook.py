"""Plans, jobs and rows in notebooks."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import Any, Protocol, TextIO

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from watersmeet.errors import SpecError, format_count, printable
from watersmeet.event_time import shown_time
from watersmeet.observe.progress import InputReport, RecentTicks
from watersmeet.plan.explain import explain
from watersmeet.plan.model.job import JobPlan
from watersmeet.types.json_values import rows_of

# Outputs of a notebook that are drawn again while a job runs, where IPython is there: it is not needed.
#
# Whatever goes wrong with an output is the notebook's affair, never the job's: one that cannot be drawn
# any more is forgotten.

OUTPUTS = 4
"""So many of a job are drawn again, the newest: a cell that is run again leaves those before behind."""
REFRESH_S = 1.0


class Displays:
    """Notebook outputs that show one thing.

    Attributes:
        html: returns its current form in HTML.
        text: returns its current form as text.
    """

    def __init__(self, html: Callable[[], str], text: Callable[[], str]) -> None:
        self._html, self._text = html, text
        self._handles: deque[Any] = deque(maxlen=OUTPUTS)
        self._drawn = 0.0

    def show(self) -> None:
        """Show one more display in the cell that runs.

        Raises:
            ImportError: IPython is not installed.
        """
        display = import_module("IPython.display").display
        self._handles.append(display(self._build_mime_bundle(), raw=True, display_id=True))

    def update(self, *, at_once: bool = False) -> None:
        """Draw them again, if that is longer ago than `REFRESH_S`, or ``at_once``."""
        if not self._handles or (not at_once and time.monotonic() - self._drawn < REFRESH_S):
            return
        self._drawn = time.monotonic()
        for handle in list(self._handles):
            try:
                handle.update(self._build_mime_bundle(), raw=True)
            except Exception:  # a kernel that goes away, a front end without such outputs
                self._handles.remove(handle)

    def _build_mime_bundle(self) -> dict[str, str]:
        return {"text/plain": self._text(), "text/html": self._html()}


# What notebooks show: a plan, a job that runs, rows, as HTML.
#
# All that is from users or from data is text: it is escaped, and what would steer a terminal or a browser
# is shown as Python writes it. Nothing here asks another machine for anything: no script, style sheet or
# image.

_MAX_CHARACTERS = 200
"""Characters of a value of a row."""


def plan_page(plan: JobPlan) -> str:
    """EXPLAIN."""
    return _page([f"<pre>{_text(explain(plan))}</pre>"])


def refusal_page(what: str, error: Exception) -> str:
    """Build the page that shows a job that cannot be planned, and the reason."""
    return _page([f"<pre>{_text(what)}</pre>", f"<pre>{_text(str(error))}</pre>"])


def running_page(
    status: str,
    recent: RecentTicks,
    integers: frozenset[str],
    notices: Sequence[str],
    error: BaseException | None,
) -> str:
    """Build the page of a job from its last ticks: rates, watermarks and retained rows.

    Args:
        integers: watermark keys of integer times.
        notices: notices for people.
        error: the error with which the job failed.
    """
    report = recent.last
    parts = [f"<p><b>{_text(status)}</b>{'' if report is None else _head(recent)}</p>"]
    if report is not None:
        names = ("input", "watermark", "all in", "matched", "padded", "grouped", "late", "retained")
        rows = [_row(row, integers) for row in report.inputs]
        parts.append(_table(names, rows, numbers_from=2))
    if error is not None:
        parts.append(f"<pre>{_text(str(error))}</pre>")
    if notices:
        parts.append(f"<ul>{''.join(f'<li>{_text(notice)}</li>' for notice in notices)}</ul>")
    return _page(parts)


def rows_page(name: str, first: pa.Table, count: int) -> str:
    """Build a page of the first rows of a result that has `count` rows."""
    rows = [[_short(value) for value in row] for row in rows_of(first)]
    more = count - first.num_rows
    told = [f"<p>… and {format_count(more, 'more row')}</p>"] if more else []
    return _page([f"<p><b>{_text(name)}</b></p>", _table(first.column_names, rows), *told])


def _head(recent: RecentTicks) -> str:
    report = recent.last
    assert report is not None
    fast_in, fast_out = recent.rates()
    behind = f" · backlog {report.behind}" if report.behind else ""
    return _text(
        f" · tick {report.tick:,} took {report.seconds:.2f} s · in {fast_in:,.0f} rows/s"
        f" ({recent.rows_in:,} rows) · out {fast_out:,.0f} rows/s ({recent.rows_out:,} rows){behind}"
    )


def _row(row: InputReport, integers: frozenset[str]) -> list[str]:
    marks = [
        f"{column} {shown_time(mark, f'{row.input}.{column}' in integers)}"
        for column, mark in row.watermarks.items()
    ]
    if row.standstill is not None:
        marks.append(row.standstill)
    counts = (row.total_rows_in, row.matched, row.padded, row.grouped, row.late, row.retained)
    return [row.input, "\n".join(marks), *(f"{count:,}" for count in counts)]


def _table(names: Iterable[str], rows: Iterable[Sequence[str]], numbers_from: int = 1_000_000) -> str:
    def cells(tag: str, values: Iterable[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if number < numbers_from else "right"};white-space:pre-line">'
            f"{_text(value)}</{tag}>"
            for number, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', names)}</tr></thead><tbody>{body}</tbody></table>"


def _page(parts: Iterable[str]) -> str:
    return f'<div class="watersmeet">{"".join(parts)}</div>'


def _text(text: str) -> str:
    return escape(printable(text))


def _short(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


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
    """Rows that a memory sink had received when `StartedJob.result` was called, in the order of ticks.

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
    """Printer of one JSON object per tick: ``{"query", "tick", "columns", "rows", "more_rows"}``.

    Numbers are numbers and NULL is null; other values are as in `watersmeet.types.json_values`.
    """

    values = True

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(
        self, insert: str, tick: int, names: Sequence[str], rows: Sequence[Sequence[Any]], more: int
    ) -> None:
        line = {"query": insert, "tick": tick, "columns": list(names), "rows": list(rows), "more_rows": more}
        print(json.dumps(line, ensure_ascii=False, allow_nan=False), file=self._out, flush=True)
