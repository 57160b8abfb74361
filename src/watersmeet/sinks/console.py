"""A table per tick on the terminal: at most ``rows`` rows (20), and how many more there were.

At least once: a repeated tick is printed again. All of the frame is evaluated, once, and at most ``rows``
rows of each task come to the driver. Two columns may have one name here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import SpecError, printable
from watersmeet.names import ours
from watersmeet.sinks.base import Frame, RowPrinter, Schema, Texts
from watersmeet.sinks.part_mark import Identity
from watersmeet.sinks.staging import StagingSink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.types.json_values import has_native_value, rows_of

DEFAULT_ROWS = 20
_COUNT = ours("rows")


class PlainPrinter:
    """Rows in aligned columns on standard output."""

    values = False

    def show(self, insert: str, tick: int, names: Sequence[str], rows: Sequence[Texts], more: int) -> None:
        cells = [
            list(names),
            *(["NULL" if value is None else printable(value) for value in row] for row in rows),
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        print(f"{insert}, tick {tick}")
        for row in cells:
            print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
        if more:
            print(f"… and {more:,} more rows")


class ConsoleSink(StagingSink[tuple[list[str], list[Texts], int]]):
    """See the module. Option: ``rows``, the rows shown per tick."""

    idempotent = False

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        super().__init__(spec)
        self._printer = console or PlainPrinter()
        self._rows = _row_limit(spec)

    @property
    def most_shown(self) -> int:
        return self._rows

    @property
    def shows_values(self) -> bool:
        return self._printer.values

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        """Do nothing: a terminal accepts any columns."""

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        names = list(frame.columns)
        plain = [f"c{i}" for i in range(len(names))]
        if self._printer.values:
            self._staged[insert, tick, attempt] = names, *self._values(frame.toDF(*plain))
            return
        texts = frame.toDF(*plain).selectExpr(*[f"CAST({c} AS STRING) AS {c}" for c in plain])
        schema = ", ".join([*(f"{c} STRING" for c in plain), f"`{_COUNT}` BIGINT"])
        collected = texts.mapInArrow(_FirstRows(self._rows), schema).collect()
        rows: list[Texts] = []
        rows += [tuple(row)[:-1] for row in collected if row[-1] is None][: self._rows]
        total = sum(row[-1] for row in collected if row[-1] is not None)
        self._staged[insert, tick, attempt] = names, rows, total

    def take_shown(
        self, insert: str, tick: int, attempt: str, names: Sequence[str], rows: Sequence[Texts], total: int
    ) -> None:
        self._staged[insert, tick, attempt] = list(names), list(rows), total

    def _values(self, frame: Frame) -> tuple[list[Texts], int]:
        """Return the first rows as JSON values, and the number of all rows."""
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        texts = {name for name, kind in kinds.items() if not has_native_value(kind)}
        typed = frame.selectExpr(*[f"CAST({n} AS STRING) AS {n}" if n in texts else n for n in kinds])
        schema = type(typed.schema)([*typed.schema.fields]).add(_COUNT, "long")
        collected = typed.mapInArrow(_FirstRows(self._rows), schema).toArrow()
        counts = collected.column(_COUNT)
        shown = collected.filter(counts.is_null()).drop_columns([_COUNT]).slice(0, self._rows)
        return [*rows_of(shown)], sum(count for count in counts.to_pylist() if count is not None)

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return self._staged[insert, tick, attempt][2]

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        names, rows, total = self._staged.pop((insert, tick, attempt), ([], [], 0))
        if total:
            self._printer.show(insert, tick, names, rows, total - len(rows))
        return False


def _row_limit(spec: SinkSpec) -> int:
    text = spec.options.get("rows", str(DEFAULT_ROWS))
    if not text.strip().isdigit():
        raise SpecError(
            f'option "rows" of console sink "{spec.name}" must be a number of rows, not "{text}"',
            code="wrong-option",
            hint=f"for example 'rows' = '{DEFAULT_ROWS}'",
        )
    return int(text)


@dataclass(frozen=True)
class _FirstRows:
    """The function given to `mapInArrow`.

    Each task yields its first ``limit`` rows, then one row of NULLs with the number of all its rows.
    """

    limit: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left, count, schema = self.limit, 0, None
        for batch in batches:
            count += batch.num_rows
            schema = batch.schema
            if left and batch.num_rows:
                head = batch.slice(0, left)
                left -= head.num_rows
                yield _with_count(head, pa.nulls(head.num_rows, pa.int64()))
        if count and schema is not None:
            nulls = [pa.nulls(1, field.type) for field in schema]
            yield _with_count(pa.record_batch(nulls, names=schema.names), pa.array([count], pa.int64()))


def _with_count(batch: pa.RecordBatch, counts: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([*batch.columns, counts], names=[*batch.schema.names, _COUNT])
