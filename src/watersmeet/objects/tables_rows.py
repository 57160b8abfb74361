"""Files as rows of a table: cut into parts of `PART_BYTES`, each with the size of the whole, and put together
again, all of one or a section of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from watersmeet.objects.tables_place import TablesPlace
from watersmeet.objects.tables_sql import FILES
from watersmeet.postgres import Cursor, rows_of
from watersmeet.state.damage import damaged
from watersmeet.state.sections import Section

PART_BYTES = 8 << 20
"""Of a file that are in one row."""

_BATCH_ROWS = 10_000
"""Rows that are sent together, of files that are small."""

_READ_AT_ONCE = 4
"""Rows of a file."""

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


def content_of(cursor: Cursor, place: TablesPlace, name: str) -> pa.Buffer | None:
    """What is stored; None: nothing. Raises: StateError where a part of it is gone."""
    sql = f"""SELECT size, content FROM {FILES} WHERE pipeline = $1 AND name = $2
        AND part >= $3::bigint AND part < $4::bigint ORDER BY part"""
    content, filled, part, what = None, 0, 0, f'file "{name}" in {place.url}'
    while content is None or filled < content.size:
        last = part + _READ_AT_ONCE
        cursor.execute(sql, parameters=(place.pipeline, name, part, last))
        rows = cursor.fetch_arrow_table()
        if not rows.num_rows:
            break
        if content is None:
            content = pa.allocate_buffer(rows.column("size")[0].as_py())
        filled = _fill(content, filled, rows, what)
        part = last
    if content is not None and filled < content.size:
        raise damaged(what, "rows of it are gone")
    return content


def part_of(cursor: Cursor, place: TablesPlace, section: Section) -> pa.Buffer | None:
    """What is stored of a section; None: nothing. Raises: StateError where a part of it is gone."""
    first = f"greatest($3::bigint - part::bigint * {PART_BYTES}, 0)"
    behind = f"least($4::bigint - part::bigint * {PART_BYTES}, {PART_BYTES})"
    sql = f"""SELECT substring(content FROM ({first} + 1)::integer FOR ({behind} - {first})::integer)
        AS content FROM {FILES} WHERE pipeline = $1 AND name = $2
        AND part >= $5::bigint AND part < $6::bigint ORDER BY part"""
    content, filled, what = pa.allocate_buffer(section.length), 0, f'file "{section.object}" in {place.url}'
    part, end = section.offset // PART_BYTES, -(-section.end // PART_BYTES)
    while part < end:
        last = min(part + _READ_AT_ONCE, end)
        given = (place.pipeline, section.object, section.offset, section.end, part, last)
        cursor.execute(sql, parameters=given)
        rows = cursor.fetch_arrow_table()
        if not rows.num_rows:
            break
        filled = _fill(content, filled, rows, what)
        part = last
    if filled < content.size:
        if not filled and not is_there(cursor, place, section.object):
            return None
        raise damaged(what, "rows of it are gone")
    return content


def _fill(content: pa.Buffer, filled: int, rows: pa.Table, what: str) -> int:
    """Put what rows hold behind what is there; how much is there then."""
    for value in rows.column("content"):
        piece = value.as_buffer()
        end = filled + piece.size
        if end > content.size:
            raise damaged(what, "it has more parts than one")
        memoryview(content)[filled:end] = memoryview(piece)
        filled = end
    return filled


def is_there(cursor: Cursor, place: TablesPlace, name: str) -> bool:
    sql = f"SELECT 1 FROM {FILES} WHERE pipeline = $1 AND name = $2 LIMIT 1"
    return bool(rows_of(cursor, sql, place.pipeline, name))
