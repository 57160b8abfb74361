"""Files as rows of a table: cut into parts of `PART_BYTES`, each with the size of the whole, and put together
again, of several at once all or sections of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from watersmeet.objects.tables_place import TablesPlace
from watersmeet.objects.tables_sql import FILES
from watersmeet.postgres_server import Cursor, rows_of
from watersmeet.state.damage import damaged
from watersmeet.state.sections import section_of

PART_BYTES = 8 << 20
"""Of a file that are in one row."""

_BATCH_ROWS = 10_000
"""Rows that are sent together, of files that are small."""

FETCH_BYTES = 32 << 20
"""Maximum bytes that one statement reads, unless a single row has more."""

_ROWS = pa.schema(
    [
        ("pipeline", pa.string()),
        ("name", pa.string()),
        ("part", pa.int32()),
        ("size", pa.int64()),
        ("content", pa.binary()),
    ]
)


def pieces_of(data: bytes) -> list[bytes]:
    """What goes into each row of a file."""
    return [data[first : first + PART_BYTES] for first in range(0, max(len(data), 1), PART_BYTES)]


def rows_from(pipeline: str, files: Mapping[str, pa.Buffer]) -> pa.RecordBatchReader:
    """The rows of these files, made as they are asked for."""

    def batches() -> Iterator[pa.RecordBatch]:
        held: list[tuple[str, str, int, int, bytes]] = []
        size = 0
        for name, content in files.items():
            for part, first in enumerate(range(0, max(content.size, 1), PART_BYTES)):
                piece = content.slice(first, min(PART_BYTES, content.size - first))
                held.append((pipeline, name, part, content.size, piece.to_pybytes()))
                size += piece.size
                if size >= PART_BYTES or len(held) >= _BATCH_ROWS:
                    yield _batch(held)
                    held, size = [], 0
        if held:
            yield _batch(held)

    return pa.RecordBatchReader.from_batches(_ROWS, batches())


def _batch(rows: Sequence[tuple[str, str, int, int, bytes]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


class Reading:
    """Several names, objects and sections, that are read together: by one statement, or as many as their
    bytes need.

    Args:
        names: each once.
    """

    def __init__(self, place: TablesPlace, names: Sequence[str]) -> None:
        self._place, self._names = place, names
        self._sections = [section_of(name) for name in names]
        self._given: list[_Filled | None] = [None] * len(names)
        self._number = self._part = 0
        self.statements = 0

    @property
    def is_over(self) -> bool:
        return self._number == len(self._names)

    def go_on(self, cursor: Cursor) -> bool:
        """Read more of it, by one statement; it may be called again whether that has come to an end or not.
        True. Raises: StateError where rows are not those that were written."""
        asked = [
            self._rows_of(number, self._part if number == self._number else 0)
            for number in range(self._number, len(self._names))
        ]
        if not asked:
            return True
        cursor.execute(_CONTENTS, parameters=(self._place.pipeline, json.dumps(asked), FETCH_BYTES))
        rows = cursor.fetch_arrow_table()
        self.statements += 1
        numbers, sizes = rows.column("number").to_pylist(), rows.column("size").to_pylist()
        for number, size, value in zip(numbers, sizes, rows.column("content"), strict=True):
            filled = self._given[number]
            if filled is None:
                section = self._sections[number]
                filled = _Filled(size if section is None else section.length)
                self._given[number] = filled
            if not filled.add(value.as_buffer()):
                raise damaged(self._what(number), "it has more parts than one")
        if rows.num_rows and rows.column("more")[-1].as_py():
            self._number, self._part = numbers[-1], rows.column("part")[-1].as_py() + 1
        else:
            self._number, self._part = len(self._names), 0
        return True

    def _rows_of(self, number: int, first_part: int) -> dict[str, Any]:
        """Of a name, which rows are asked for, and what of them."""
        section = self._sections[number]
        if section is None:
            return {"number": number, "name": self._names[number], "low": first_part}
        low, high = section.offset // PART_BYTES, -(-section.end // PART_BYTES)
        return {
            "number": number,
            "name": section.object,
            "low": max(low, first_part),
            "high": max(high, low + 1),  # of no bytes, too, it is seen whether they are there
            "first": section.offset,
            "behind": section.end,
            "part_bytes": PART_BYTES,
        }

    def content(self, number: int) -> pa.Buffer | None:
        """What is stored under a name, by its place; None: nothing, of a section perhaps its object all the
        same. Raises: StateError where a part of it is gone."""
        filled = self._given[number]
        if filled is None:
            return None
        if not filled.is_full:
            raise damaged(self._what(number), "rows of it are gone")
        return filled.content

    def _what(self, number: int) -> str:
        section = self._sections[number]
        return f'file "{self._names[number] if section is None else section.object}" in {self._place.url}'


class _Filled:
    """What is read of a name, piece by piece."""

    def __init__(self, size: int) -> None:
        self.content = pa.allocate_buffer(size)
        self._filled = 0

    @property
    def is_full(self) -> bool:
        return bool(self._filled == self.content.size)

    def add(self, piece: pa.Buffer) -> bool:
        """Whether there is room for it."""
        end = self._filled + piece.size
        if end > self.content.size:
            return False
        memoryview(self.content)[self._filled : end] = memoryview(piece)
        self._filled = end
        return True


_CONTENTS = f"""
WITH asked AS (
  SELECT * FROM json_to_recordset($2::json) AS asked (
    number integer, name text, low integer, high integer, first bigint, behind bigint, part_bytes bigint)
), pieces AS (
  SELECT number, part, size, content,
    CASE WHEN behind IS NOT NULL THEN greatest(first - part * part_bytes, 0) END AS first,
    CASE WHEN behind IS NOT NULL THEN least(behind - part * part_bytes, part_bytes) END AS behind
  FROM asked JOIN {FILES} USING (name)
  WHERE pipeline = $1 AND part >= low AND (high IS NULL OR part < high)
), told AS (
  SELECT *, sum(coalesce(behind - first, octet_length(content))) OVER (ORDER BY number, part) AS upto,
    row_number() OVER (ORDER BY number, part) AS row, count(*) OVER () AS rows
  FROM pieces
)
SELECT number, part, size, row < rows AS more,
  CASE WHEN behind IS NULL THEN content
    ELSE substring(content FROM first::integer + 1 FOR (behind - first)::integer) END AS content
FROM told WHERE row = 1 OR upto <= $3::bigint ORDER BY number, part
"""
"""Rows of names in order, as many as have so many bytes together, and one at least. Of a section each row
gives what it has of it; the others stay where they are: `octet_length` does not look at what is stored beside
the table."""


def content_of(cursor: Cursor, place: TablesPlace, name: str) -> pa.Buffer | None:
    """What is stored; None: nothing. Raises: StateError where a part of it is gone."""
    reading = Reading(place, [name])
    while not reading.is_over:
        reading.go_on(cursor)
    return reading.content(0)


def is_there(cursor: Cursor, place: TablesPlace, name: str) -> bool:
    sql = f"SELECT 1 FROM {FILES} WHERE pipeline = $1 AND name = $2 LIMIT 1"
    return bool(rows_of(cursor, sql, place.pipeline, name))
