"""Rows of CSV and JSON files as Spark reads them, or a refusal."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from watersmeet.kernel.batches import batch_of
from watersmeet.runtime.files.file_split import (
    BYTES,
    FileSplit,
    UnsupportedFile,
    name_column_in_errors,
    regroup_rows,
)
from watersmeet.runtime.files.text_values import build_alphabet, parse_texts
from watersmeet.spec.options.files import COMPRESSED
from watersmeet.spec.records.text_records import JsonNames, exactly, written_as
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import BOOLEAN, DOUBLE, STRING, SqlType

# Lines of text files: those that begin in a part, in blocks that end where lines do.
#
# Lines end in ``\n`` or ``\r\n``. Spark's readers end them at a lone ``\r``, too: files with such are
# Spark's, as are those that are no UTF-8, and those with a NUL.

BLOCK = 4 << 20
"""Bytes that are read at a time; a block is as long, or as one line that is longer."""

_MARK = b"\xef\xbb\xbf"
"""What UTF-8 may begin with."""

_BLANK = re.compile(rb"^(?!\r?$)[\0-\x09\x0b-\x20]+$", re.MULTILINE)
_NO_BLANK = re.compile(rb"[^\0-\x20]")
_BLANK_LINES = re.compile(rb"(?:[\0-\x09\x0b-\x20]*+\n)*+")


def measure_text_file(path: str) -> tuple[int, int]:
    """Return the approximate number of lines and the number of bytes of a file.

    Raises:
        OSError: the file cannot be read.
    """
    lines = nbytes = 0
    with pa.OSFile(path) as file:
        while block := file.read(BLOCK):
            lines += block.count(b"\n")
            nbytes += len(block)
    return lines + 1, nbytes


def read_blocks(part: FileSplit) -> Iterator[bytes]:
    """Yield the lines that start in a split, each within one block.

    The first block has no UTF-8 byte order mark.

    Raises:
        UnsupportedFile: Spark must read the lines.
        OSError: the file cannot be read.
    """
    if os.path.splitext(part.path)[1].lower() in COMPRESSED:
        raise UnsupportedFile(f"{part.path}: it is compressed")
    with pa.OSFile(part.path) as file:
        at = _first_line(file, part)
        held = b""
        while part.end is None or at < part.end:
            block = file.read(BLOCK if part.end is None else min(BLOCK, part.end - at))
            at += len(block)
            is_last = not block or (part.end is not None and at >= part.end)
            if is_last and block and not block.endswith(b"\n"):
                block += _read_line_rest(file, part)
            held += block
            if len(held) > BYTES + 2 * BLOCK:
                raise UnsupportedFile(f"{part.path}: a line is longer than {BYTES:,} bytes")
            cut = len(held) if is_last else held.rfind(b"\n") + 1
            if cut:
                yield _check_block(held[:cut], part.path)
            held = held[cut:]
            if len(held) > BYTES:
                raise UnsupportedFile(f"{part.path}: a line is longer than {BYTES:,} bytes")
            if is_last:
                return


def is_blank(block: bytes) -> bool:
    """Return True if the block contains only blanks."""
    return _NO_BLANK.search(block) is None


def find_line_ends(block: bytes) -> npt.NDArray[np.int64]:
    """Find the positions of line ends.

    These are the positions of ``\\n``, and the end of the block after a last line without one.
    """
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
    return ends if block.endswith(b"\n") else np.append(ends, len(block))


def count_lines(block: bytes) -> int:
    """Count the lines of a block that are not empty; the block has at least one line."""
    ends = find_line_ends(block)
    lengths = np.diff(ends, prepend=-1) - 1
    if b"\r" in block:
        lengths -= np.frombuffer(block, dtype=np.uint8)[np.maximum(ends - 1, 0)] == ord("\r")
    return int((lengths > 0).sum())


def has_blank_lines(block: bytes) -> bool:
    """Return True if there are lines of blanks that are not empty; Spark skips all empty lines."""
    return _BLANK.search(block) is not None


def strip_blank_lines(block: bytes) -> bytes:
    """Remove the empty and blank lines at the start of a block."""
    match = _BLANK_LINES.match(block)
    return block[match.end() :] if match is not None else block


def _first_line(file: pa.OSFile, part: FileSplit) -> int:
    """Move the file to the first line that starts in a split, and return its offset."""
    first = len(_MARK) if file.read(len(_MARK)) == _MARK else 0
    if part.start > first:
        file.seek(part.start - 1)
        first = part.start - 1 + len(_read_line_rest(file, part))
    file.seek(first)
    return first


def _read_line_rest(file: pa.OSFile, part: FileSplit) -> bytes:
    """Read up to and including the end of the line; the file's position is undefined afterwards."""
    rest = b""
    while len(rest) <= BYTES:
        block: bytes = file.read(BLOCK)
        line, end, _ = block.partition(b"\n")
        rest += line + end
        if end or not block:
            return rest
    raise UnsupportedFile(f"{part.path}: a line is longer than {BYTES:,} bytes")


def _check_block(block: bytes, path: str) -> bytes:
    if b"\0" in block:
        raise UnsupportedFile(f"{path}: it has NUL in it")
    if _MARK in block:  # which readers leave out where they begin, and where that is differs
        raise UnsupportedFile(f"{path}: it has marks of byte order in it")
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        raise UnsupportedFile(f"{path}: it has carriage returns that end no line")
    if not block.isascii() and not _is_utf8(block):
        raise UnsupportedFile(f"{path}: it is not UTF-8")
    return block


def _is_utf8(block: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(block)], dtype=np.int32))
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# Rows of CSV files as Spark would read them, or a refusal: `UnsupportedFile` says why a file is for Spark.
#
# Taken are files in UTF-8 with one header, all records with as many values as it has names, values in
# their usual spelling, quotes around whole values. What is no record to Spark is not counted here: a file
# that has such is Spark's.

MAX_COLUMNS = 10_000
"""Spark takes 20,480."""

_QUOTE, _LINE_ENDS = ord('"'), (10, 13)


@dataclass(frozen=True)
class CsvRows:
    """Rules to read the CSV files of a source.

    Args:
        columns: names and declared types (`supported_types.is_text_type`), in the order of the files;
            None for a column that is not declared. At least two, at most `MAX_COLUMNS`.
        separator: one byte; not a quote, a line end, or a character of values.
        header: True if files start with the column names.
        time_zone: time zone of clock times without a zone.
    """

    columns: tuple[tuple[str, SqlType | None], ...]
    separator: str
    header: bool
    time_zone: str

    def rows_of(self, part: FileSplit, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file split; see `Reader`."""
        return regroup_rows(part, self._batches(part, wanted))

    def _batches(self, part: FileSplit, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        has_names = self.header and not part.start
        for block in read_blocks(part):
            if has_names and not is_blank(block):
                block = self._skip_header(part, block)
                has_names = False
            if not is_blank(block):
                yield self._read_block(part, block, wanted)
        if has_names and part.end is not None:
            raise UnsupportedFile(f"{part.path}: its header begins in another part of it")

    def _read_block(self, part: FileSplit, block: bytes, wanted: Mapping[str, SqlType]) -> pa.RecordBatch:
        if self.separator == "\t" and has_blank_lines(block):
            raise UnsupportedFile(f"{part.path}: it has lines of blanks")
        quotes = b'"' in block
        if quotes and not self._quotes_enclose_values(block):
            raise UnsupportedFile(f"{part.path}: it has quotes that are not around values")
        texts = self._texts(block, quotes=quotes)
        if texts.num_rows != count_lines(block):
            raise UnsupportedFile(f"{part.path}: its lines and its records are of different numbers")
        columns = {}
        for name, type_ in self.columns:
            if type_ is None or (type_ == STRING and name not in wanted):
                continue
            with name_column_in_errors(
                part, name
            ):  # also if nobody wants it: another value breaks the record to Spark
                columns[name] = parse_texts(texts.column(name), type_, self.time_zone, shown=name in wanted)
        return pa.RecordBatch.from_arrays([columns[name] for name in wanted], names=list(wanted))

    def _texts(self, block: bytes, *, quotes: bool) -> pa.RecordBatch:
        """Read the values of the declared columns as texts; a missing value is NULL."""
        declared = [name for name, type_ in self.columns if type_ is not None]
        table = arrow_csv.read_csv(
            pa.BufferReader(block),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=[name for name, _ in self.columns]
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.separator,
                quote_char='"' if quotes else False,
                double_quote=False,
                escape_char=False,
                newlines_in_values=False,
            ),
            convert_options=arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(declared, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                include_columns=declared,
            ),
        )
        return batch_of(table)

    def _skip_header(self, part: FileSplit, block: bytes) -> bytes:
        """Return the rest of the block after the header, which is the first line that is not blank."""
        line, _, rest = strip_blank_lines(block).partition(b"\n")
        names = [name for name, _ in self.columns]
        header = next(csv.reader([line.rstrip(b"\r").decode()], delimiter=self.separator, strict=True))
        if [name.lower() for name in header] != [name.lower() for name in names] or b'""' in line:
            raise UnsupportedFile(f"{part.path}: its header is another one")
        return rest

    def _quotes_enclose_values(self, block: bytes) -> bool:
        """Return True if quotes are unambiguous.

        Quotes must come in pairs, each around one value without a line end, and the block must not contain
        a backslash.
        """
        characters = np.frombuffer(block, dtype=np.uint8)
        quotes = np.flatnonzero(characters == _QUOTE)
        if len(quotes) % 2 or b"\\" in block:
            return False
        opening, closing = quotes[0::2], quotes[1::2]
        ends = find_line_ends(block)
        in_one_line = (np.searchsorted(ends, opening) == np.searchsorted(ends, closing)).all()
        outside = np.array([ord(self.separator), *_LINE_ENDS], dtype=np.uint8)
        before = characters[opening[opening > 0] - 1]
        after = characters[closing[closing + 1 < len(characters)] + 1]
        return bool(
            in_one_line
            and (closing - opening > 1).all()
            and np.isin(before, outside).all()
            and np.isin(after, outside).all()
        )


# Rows of files of JSON as Spark would read them, or a refusal: `UnsupportedFile` says why a file is for
# Spark.
#
# Taken are files in UTF-8 with one object in a line, and nothing else in it, whose values are of the
# declared types and in their usual spelling. A file with another record in it is Spark's.

_JSON_BLANK = b" \t\r\n"
_NO_NUMBERS = (b"NaN", b"Inf", b"INF")
_NO_NUMBER = re.compile(rb"[:,\[][ \t]*[-+]?(?:NaN|Inf|INF)")
"""Where a number may stand. Parsers know different ones."""

_LONG = 900
"""Bytes of a line from which on there may be in it what is too long, or nested too deeply, to Spark's parser:
1,000 digits or levels."""
_NUMBER_CHARACTERS = build_alphabet(b"-+.0123456789eE")

_LONGEST = 50_000
"""Bytes of a line. Longer names, and texts of over 20 million characters, are no record to that parser."""

_MINUS_ZERO = -(2**63)
"""Bits of a DOUBLE."""


@dataclass(frozen=True)
class JsonRows:
    """Rules to read the JSON files of a source.

    Args:
        columns: names and types (`supported_types.is_json_type`) of the declared columns.
        time_zone: time zone of clock times without a zone.
    """

    columns: tuple[tuple[str, SqlType], ...]
    time_zone: str

    def rows_of(self, part: FileSplit, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file split; see `Reader`."""
        return regroup_rows(part, self._batches(part, wanted))

    @cached_property
    def _schema(self) -> pa.Schema:
        """Schema with which Arrow reads the values; other types than its own are texts at first."""
        return pa.schema(
            [(name, in_arrow(type_) if _is_read(type_) else pa.string()) for name, type_ in self.columns]
        )

    def _batches(self, part: FileSplit, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        for block in read_blocks(part):
            lines = _count_object_lines(part, block)
            if not lines:
                continue
            read = self._read(block)
            lacking = [name for name in self._names.names if read.column(name).null_count]
            if lacking and _may_differ_in_case(block, lacking):
                read = self._read("\n".join(map(self._rename_fields, block.decode().split("\n"))).encode())
            if read.num_rows != lines:
                raise UnsupportedFile(f"{part.path}: it has lines of several values")
            columns = {}
            for name, type_ in self.columns:
                column = read.column(name)
                with name_column_in_errors(
                    part, name
                ):  # also if nobody wants it: another value breaks the record to Spark
                    columns[name] = (
                        _check_numbers(column)
                        if _is_read(type_)
                        else parse_texts(column, type_, self.time_zone)
                    )
            yield pa.RecordBatch.from_arrays([columns[name] for name in wanted], names=list(wanted))

    @cached_property
    def _names(self) -> JsonNames:
        return JsonNames.of(self.columns)

    def _rename_fields(self, line: str) -> str:
        """Return a line with its field names as they are declared.

        Raises:
            UnsupportedFile: fields differ only by case.
        """
        if re.search(self._names.in_another_case, line) is None:
            return line
        record = json.loads(line)
        for name in self._names.names:
            try:
                written = written_as(record, name)
            except ValueError as error:
                raise UnsupportedFile(str(error)) from None
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


def _may_differ_in_case(block: bytes, names: Sequence[str]) -> bool:
    """Look quickly whether a text in quotes is one of the names but for its case, or may be."""
    lowered = block.lower()
    return any(
        not name.isascii() or lowered.count(f'"{name.lower()}"'.encode()) != block.count(f'"{name}"'.encode())
        for name in names
    )


def _is_read(type_: SqlType) -> bool:
    """Return True if Arrow itself reads values of the type."""
    return type_ in (BOOLEAN, DOUBLE) or type_.is_integer


def _check_numbers(values: pa.Array) -> pa.Array:
    """Return the numbers of a column, unless Spark would read other ones.

    Raises:
        UnsupportedFile: a number is too large, NaN, or -0.
    """
    if pa.types.is_floating(values.type):
        if pc.all(pc.is_finite(values)).as_py() is False:
            raise UnsupportedFile("some numbers are too large, or none")
        if pc.any(pc.equal(values.view(pa.int64()), _MINUS_ZERO)).as_py():
            raise UnsupportedFile(
                "some numbers are -0, which is another one if it is written as a whole number"
            )
    return values


def _count_object_lines(part: FileSplit, block: bytes) -> int:
    """Count the lines of a block that are not blank.

    Each of them must start and end an object. Then no object spans several lines, if all is JSON.

    Raises:
        UnsupportedFile: a line is not an object.
    """
    characters = np.frombuffer(block, dtype=np.uint8)
    ends = find_line_ends(block)
    starts = np.concatenate([[0], ends[:-1] + 1])
    blank = 0
    whole = characters[np.minimum(starts, len(block) - 1)] == ord("{")
    last = np.maximum(ends - 1, 0)
    last -= (characters[last] == ord("\r")) & (last > 0)
    whole &= characters[last] == ord("}")
    for number in np.flatnonzero(~whole).tolist():
        line = block[starts[number] : ends[number]].strip(_JSON_BLANK)
        blank += not line
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            raise UnsupportedFile(f"{part.path}: it has lines that are not objects")
    if any(text in block for text in _NO_NUMBERS) and _NO_NUMBER.search(block) is not None:
        raise UnsupportedFile(f"{part.path}: it has numbers that are none")
    lengths = ends - starts
    if (lengths > _LONGEST).any():
        raise UnsupportedFile(f"{part.path}: it has lines of more than {_LONGEST:,} bytes")
    long = np.flatnonzero(lengths > _LONG)
    if len(long):
        others = np.flatnonzero(~_NUMBER_CHARACTERS[characters])
        lines = (block[starts[number] : ends[number]] for number in long.tolist())
        is_deep = any(line.count(b"{") + line.count(b"[") > _LONG for line in lines)
        if is_deep or np.diff(others, prepend=-1, append=len(block)).max() > _LONG:
            raise UnsupportedFile(f"{part.path}: it has lines of too many digits, or brackets")
    return len(starts) - blank
