"""Rows of CSV files as Spark would read them, or a refusal: `NotPlain` says why a file is for Spark.

Taken are files in UTF-8 with one header, all records with as many values as it has names, values in their
usual spelling, quotes around whole values. What is no record to Spark is not counted here: a file that has
such is Spark's.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from watersmeet.engine.tasks.files.lines import (
    behind_blank_lines,
    blocks_of,
    has_blank_lines,
    is_blank,
    line_ends,
    lines_in,
)
from watersmeet.engine.tasks.files.part import NotPlain, Part, naming, rows_or_refusal
from watersmeet.engine.tasks.files.texts import values_of
from watersmeet.kernel.batches import batch_of
from watersmeet.types.sql_type import STRING, SqlType

MOST_COLUMNS = 10_000
"""Spark takes 20,480."""

_QUOTE, _LINE_ENDS = ord('"'), (10, 13)


@dataclass(frozen=True)
class CsvRows:
    """How the CSV files of a source are read.

    Args:
        columns: names and declared types (`taken.of_texts`), in the order of the files; None: nobody declared
            the column. At least two, at most `MOST_COLUMNS`.
        separator: one byte; no quote, no end of a line, nothing that values are spelled with.
        header: whether a file begins with the names.
        time_zone: whose clock times without a zone are of.
    """

    columns: tuple[tuple[str, SqlType | None], ...]
    separator: str
    header: bool
    time_zone: str

    def rows_of(self, part: Part, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """See `Reader`."""
        return rows_or_refusal(part, self._batches(part, wanted))

    def _batches(self, part: Part, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        has_names = self.header and not part.start
        for block in blocks_of(part):
            if has_names and not is_blank(block):
                block = self._behind_names(part, block)
                has_names = False
            if not is_blank(block):
                yield self._in_block(part, block, wanted)
        if has_names and part.end is not None:
            raise NotPlain(f"{part.path}: its header begins in another part of it")

    def _in_block(self, part: Part, block: bytes, wanted: Mapping[str, SqlType]) -> pa.RecordBatch:
        if self.separator == "\t" and has_blank_lines(block):
            raise NotPlain(f"{part.path}: it has lines of blanks")
        quotes = b'"' in block
        if quotes and not self._are_around_values(block):
            raise NotPlain(f"{part.path}: it has quotes that are not around values")
        texts = self._texts(block, quotes=quotes)
        if texts.num_rows != lines_in(block):
            raise NotPlain(f"{part.path}: its lines and its records are of different numbers")
        columns = {}
        for name, type_ in self.columns:
            if type_ is None or (type_ == STRING and name not in wanted):
                continue
            with naming(part, name):  # also if nobody wants it: another value breaks the record to Spark
                columns[name] = values_of(texts.column(name), type_, self.time_zone, shown=name in wanted)
        return pa.RecordBatch.from_arrays([columns[name] for name in wanted], names=list(wanted))

    def _texts(self, block: bytes, *, quotes: bool) -> pa.RecordBatch:
        """The values of the declared columns as texts, NULL where there is none."""
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

    def _behind_names(self, part: Part, block: bytes) -> bytes:
        """What follows on the header, which is the first line that is not blank."""
        line, _, rest = behind_blank_lines(block).partition(b"\n")
        names = [name for name, _ in self.columns]
        header = next(csv.reader([line.rstrip(b"\r").decode()], delimiter=self.separator, strict=True))
        if [name.lower() for name in header] != [name.lower() for name in names] or b'""' in line:
            raise NotPlain(f"{part.path}: its header is another one")
        return rest

    def _are_around_values(self, block: bytes) -> bool:
        """Whether quotes come in pairs, each around a value that has no line's end in it, nor a backslash
        anywhere: then there is one way to read them."""
        characters = np.frombuffer(block, dtype=np.uint8)
        quotes = np.flatnonzero(characters == _QUOTE)
        if len(quotes) % 2 or b"\\" in block:
            return False
        opening, closing = quotes[0::2], quotes[1::2]
        ends = line_ends(block)
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
