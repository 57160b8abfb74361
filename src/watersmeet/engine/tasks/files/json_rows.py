"""Rows of files of JSON as Spark would read them, or a refusal: `NotPlain` says why a file is for Spark.

Taken are files in UTF-8 with one object in a line, and nothing else in it, whose values are of the declared
types and in their usual spelling. A file with another record in it is Spark's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from watersmeet.engine.tasks.files.lines import blocks_of, line_ends
from watersmeet.engine.tasks.files.part import NotPlain, Part, naming, rows_or_refusal
from watersmeet.engine.tasks.files.texts import alphabet, values_of
from watersmeet.kernel.batches import batch_of
from watersmeet.spec.records.json_names import JsonNames, exactly, written_as
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import BOOLEAN, DOUBLE, SqlType

_BLANK = b" \t\r\n"
_NO_NUMBERS = (b"NaN", b"Inf", b"INF")
_NO_NUMBER = re.compile(rb"[:,\[][ \t]*[-+]?(?:NaN|Inf|INF)")
"""Where a number may stand. Parsers know different ones."""

_LONG = 900
"""Bytes of a line from which on there may be in it what is too long, or nested too deeply, to Spark's parser:
1,000 digits or levels."""
_OF_NUMBERS = alphabet(b"-+.0123456789eE")

_LONGEST = 50_000
"""Bytes of a line. Longer names, and texts of over 20 million characters, are no record to that parser."""

_MINUS_ZERO = -(2**63)
"""Bits of a DOUBLE."""


@dataclass(frozen=True)
class JsonRows:
    """How the JSON files of a source are read.

    Args:
        columns: names and types (`taken.of_json`) of those that are declared.
        time_zone: whose clock times without a zone are of.
    """

    columns: tuple[tuple[str, SqlType], ...]
    time_zone: str

    def rows_of(self, part: Part, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """See `Reader`."""
        return rows_or_refusal(part, self._batches(part, wanted))

    @cached_property
    def _schema(self) -> pa.Schema:
        """As what Arrow reads the values. It knows other times than Spark."""
        return pa.schema(
            [(name, in_arrow(type_) if _is_read(type_) else pa.string()) for name, type_ in self.columns]
        )

    def _batches(self, part: Part, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        for block in blocks_of(part):
            lines = _checked_lines(part, block)
            if not lines:
                continue
            read = self._read(block)
            lacking = [name for name in self._names.names if read.column(name).null_count]
            if lacking and _has_another_case(block, lacking):
                read = self._read("\n".join(map(self._renamed, block.decode().split("\n"))).encode())
            if read.num_rows != lines:
                raise NotPlain(f"{part.path}: it has lines of several values")
            columns = {}
            for name, type_ in self.columns:
                column = read.column(name)
                with naming(part, name):  # also if nobody wants it: another value breaks the record to Spark
                    columns[name] = (
                        _checked(column) if _is_read(type_) else values_of(column, type_, self.time_zone)
                    )
            yield pa.RecordBatch.from_arrays([columns[name] for name in wanted], names=list(wanted))

    @cached_property
    def _names(self) -> JsonNames:
        return JsonNames.of(self.columns)

    def _renamed(self, line: str) -> str:
        """Return a line with the names of its fields as they are declared. Raises: NotPlain: fields differ by
        case alone."""
        if re.search(self._names.in_another_case, line) is None:
            return line
        record = json.loads(line)
        for name in self._names.names:
            try:
                written = written_as(record, name)
            except ValueError as error:
                raise NotPlain(str(error)) from None
            if written not in (None, name):
                line = re.sub(exactly(written), rf'"{name}"\1', line)
        return line

    def _read(self, block: bytes) -> pa.RecordBatch:
        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._schema, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        )
        return batch_of(table)


def _has_another_case(block: bytes, names: Sequence[str]) -> bool:
    """Look quickly whether a text in quotes is one of the names but for its case, or may be."""
    lowered = block.lower()
    return any(
        not name.isascii() or lowered.count(f'"{name.lower()}"'.encode()) != block.count(f'"{name}"'.encode())
        for name in names
    )


def _is_read(type_: SqlType) -> bool:
    """Whether Arrow reads values of the type itself."""
    return type_ in (BOOLEAN, DOUBLE) or type_.is_integer


def _checked(values: pa.Array) -> pa.Array:
    """Raises: NotPlain: Spark has others."""
    if pa.types.is_floating(values.type):
        if pc.all(pc.is_finite(values)).as_py() is False:
            raise NotPlain("some numbers are too large, or none")
        if pc.any(pc.equal(values.view(pa.int64()), _MINUS_ZERO)).as_py():
            raise NotPlain("some numbers are -0, which is another one if it is written as a whole number")
    return values


def _checked_lines(part: Part, block: bytes) -> int:
    """How many lines of a block are not blank. Each has to begin an object and to end one: then, if all is
    JSON, no object goes over several lines."""
    characters = np.frombuffer(block, dtype=np.uint8)
    ends = line_ends(block)
    starts = np.concatenate([[0], ends[:-1] + 1])
    blank = 0
    whole = characters[np.minimum(starts, len(block) - 1)] == ord("{")
    last = np.maximum(ends - 1, 0)
    last -= (characters[last] == ord("\r")) & (last > 0)
    whole &= characters[last] == ord("}")
    for number in np.flatnonzero(~whole).tolist():
        line = block[starts[number] : ends[number]].strip(_BLANK)
        blank += not line
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            raise NotPlain(f"{part.path}: it has lines that are not objects")
    if any(text in block for text in _NO_NUMBERS) and _NO_NUMBER.search(block) is not None:
        raise NotPlain(f"{part.path}: it has numbers that are none")
    lengths = ends - starts
    if (lengths > _LONGEST).any():
        raise NotPlain(f"{part.path}: it has lines of more than {_LONGEST:,} bytes")
    long = np.flatnonzero(lengths > _LONG)
    if len(long):
        others = np.flatnonzero(~_OF_NUMBERS[characters])
        lines = (block[starts[number] : ends[number]] for number in long.tolist())
        is_deep = any(line.count(b"{") + line.count(b"[") > _LONG for line in lines)
        if is_deep or np.diff(others, prepend=-1, append=len(block)).max() > _LONG:
            raise NotPlain(f"{part.path}: it has lines of too many digits, or brackets")
    return len(starts) - blank
