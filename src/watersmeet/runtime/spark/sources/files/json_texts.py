"""JSON files as the texts of their records, and rows corrected by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING

from watersmeet.errors import EngineError
from watersmeet.names import ours
from watersmeet.runtime.files.listing import format_path, to_local_path
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.configuration import override_setting
from watersmeet.runtime.spark.json_object import has_another_case, rename_fields
from watersmeet.runtime.spark.read_types import use_read_types
from watersmeet.runtime.spark.sources.columns import BROKEN, FILE
from watersmeet.runtime.spark.sources.files.text_files import (
    TEXT,
    declared_encoding,
    json_options,
    read_first_text,
    read_texts,
)
from watersmeet.runtime.spark.sources.frames import BLOCK, ROW, reread_as_batch
from watersmeet.runtime.spark.sql_text import bind_value, literal, options_map, quote_name
from watersmeet.spec.model import Column as Declared
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import ANY_READER, OF_SOURCES
from watersmeet.spec.options.values import WIDE, is_true, lower_names
from watersmeet.spec.records.text_records import JsonNames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.window import WindowSpec


# Records of JSON files as texts: those that run on, and those that name fields in another case.
#
# A record runs on if something stands behind its value, a second object, for example.
#
# Spark's reader takes the first value of a record (a line, or with multiLine a file) and passes over the
# rest. What it makes of that value nothing else in Spark does: a number in a STRING keeps its digits,
# bytes that are no text are told. So files are read by it, and looked at beside it, as texts, by the
# conditions here.
#
# A text is one value if, as the first element of an array, it is followed by what we put behind it,
# whichever of two things that is: a text that closes the array itself is followed by neither, and what
# hides them is no JSON. Of texts that Spark's reader calls broken anything may be said here.

_END = ours("end")
_CHARACTERS, _FIRST, _IS_ARRAY = ours("characters"), ours("first"), ours("is_array")
_ELEMENTS, _PARSED = ours("elements"), ours("parsed")
_ROWS, _CORRUPT = ours("rows"), ours("corrupt")
_BLANK = " \t\r\n"
_MARK = "\ufeff"
_NOT_OF_VALUES = frozenset(
    {"linesep", "encoding", "charset", "multiline", *(name.lower() for name in (*ANY_READER, *OF_SOURCES))}
)
_DEEPEST = "1010"
"""Spark's parser takes values nested 1,000 deep; here they are within arrays of ours."""

_LENIENT = "spark.sql.legacy.codingErrorAction"

_STRING = r'"[^"\\\x00]*+(?:\\[^\x00][^"\\\x00]*+)*+"'
_PLAIN = r"""[^{}\[\]"'/\\\x00]*+"""
"""Not within a string: no quote of another kind, no comment; and no byte of a wider encoding."""


def _brackets(depth: int) -> str:
    """Build a pattern of a value in brackets with up to ``depth`` nested levels of brackets.

    Its quantifiers are possessive, so that Java's matcher loops and never backtracks.
    """
    within = f"|{_brackets(depth - 1)}" if depth else ""
    return rf"[{{\[]{_PLAIN}(?:(?:{_STRING}{within}){_PLAIN})*+[}}\]]"


_ONE_VALUE = rf"^[ \t\r\n]*+(?:{_brackets(6)}[ \t\r\n]*+)?+\z"
"""Or none."""

_COMMENTS = r"^(?:[ \t\r\n]++|//[^\r\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)++"


@dataclass(frozen=True)
class JsonTexts:
    """The records of JSON files as texts, and conditions over them.

    Args:
        options: of the source, as `json_options` has them.
        fields: the columns, as in a STRUCT.
        names: of the columns, and of the fields in them.
    """

    options: Mapping[str, str]
    fields: str
    names: JsonNames

    @classmethod
    def of(cls, source: Source) -> JsonTexts:
        columns = [(column.name, column.type) for column in use_read_types(source).columns]
        fields = ", ".join(f"{quote_name(name)}: {own}" for name, own in columns)
        return cls(json_options(lower_names(source.options)), fields, JsonNames.of(columns))

    def read(self, spark: SparkSession, paths: str | Sequence[str]) -> DataFrame:
        """See `read_texts`."""
        return read_texts(spark, self.options, paths)

    @property
    def may_differ(self) -> str:
        """SQL of a fast condition that is true for all texts of `differs`, and for hardly any other text."""
        return f"({self.may_have_trailing_tokens}) OR ({self._may_have_another_case})"

    @property
    def differs(self) -> str:
        """SQL of the condition that Spark's reader misreads a text.

        Frames that evaluate it must be built within `decode_leniently`.
        """
        return f"({self.has_trailing_tokens}) OR ({self.has_another_case})"

    @property
    def may_have_trailing_tokens(self) -> str:
        """SQL of a fast condition: true for all texts of `has_trailing_tokens`, and for hardly any other.

        It tests that the bracket that closes the first one ends the text, by the position of the only closing
        brace, or by a pattern. Every other reading of the text treats it as broken.
        """
        if self._is_wide:
            return "true"
        raw = quote_name(TEXT)
        flat = (
            f"startswith({raw}, '{{') AND"
            f" octet_length(substring_index({raw}, '}}', 1)) = octet_length({raw}) - 1"
        )
        return f"CASE WHEN {flat} THEN false ELSE NOT rlike({raw}, {literal(_ONE_VALUE)}) END"

    @cached_property
    def has_trailing_tokens(self) -> str:
        """SQL of the condition that a text is neither one value nor blank.

        Frames that evaluate it must be built within `decode_leniently`.
        """
        whole = bind_value(_CHARACTERS, self._text, self._is_whole)
        return f"CASE WHEN {self.may_have_trailing_tokens} THEN NOT ({whole}) ELSE false END"

    @cached_property
    def has_another_case(self) -> str:
        """SQL of the condition that a text has a field whose name differs from its declaration in case.

        Frames that evaluate it must be built within `decode_leniently`.
        """
        if not self.names.names:
            return "false"
        of_array = has_another_case(_CHARACTERS, self._of_arrays)
        of_object = has_another_case(_CHARACTERS, self.names)
        condition = f"IF(startswith({_FIRST}, '['), {of_array}, coalesce({of_object}, false))"
        told = bind_value(
            _CHARACTERS, self._text, bind_value(_FIRST, self._from_first(_CHARACTERS), condition)
        )
        return f"CASE WHEN {self._may_have_another_case} THEN {told} ELSE false END"

    @property
    def _may_have_another_case(self) -> str:
        if not self.names.names or self._is_wide:
            return "true" if self.names.names else "false"
        # Of a wide encoding that is found by its first bytes a name is bytes with NUL between them.
        raw = quote_name(TEXT)
        return f"rlike({raw}, {literal(self.names.in_another_case)}) OR contains({raw}, chr(0))"

    @property
    def _of_arrays(self) -> JsonNames:
        """Each name is on a level with others of its own: one in each element."""
        return replace(self.names, columns=frozenset())

    @cached_property
    def rows_renamed(self) -> str:
        """SQL of the rows (ARRAY<STRUCT>) of a text that has fields in another case.

        NULL if the text can be read in two ways, or has values that do not fit.
        """
        schema = literal(f"{_ROWS} ARRAY<STRUCT<{self.fields}>>, {_CORRUPT} STRING")
        options = self._parser(
            {**self.options, "maxnestingdepth": _DEEPEST, "columnnameofcorruptrecord": _CORRUPT}
        )
        wrapped = (
            f"IF(startswith({_FIRST}, '['), {rename_fields(_CHARACTERS, self._of_arrays)},"
            f" concat('[', {rename_fields(_CHARACTERS, self.names)}, '\\n]'))"
        )
        read = f"from_json(concat('{{\"{_ROWS}\":', {wrapped}, '\\n}}'), {schema}{options})"
        rows = bind_value(_PARSED, read, f"IF({_PARSED}.{_CORRUPT} IS NULL, {_PARSED}.{_ROWS}, NULL)")
        return bind_value(_CHARACTERS, self._text, bind_value(_FIRST, self._from_first(_CHARACTERS), rows))

    @cached_property
    def count_of_rows(self) -> str:
        """Count the rows that Spark's reader makes of a text."""
        kind = literal(f"ARRAY<STRUCT<{self.fields}>>")
        of_array = bind_value(
            _ELEMENTS,
            f"from_json({_CHARACTERS}, {kind}{self._parser(self.options)})",
            f"IF({_ELEMENTS} IS NULL OR exists({_ELEMENTS}, e -> e IS NULL), 1, size({_ELEMENTS}))",
        )
        rows = (
            f"CASE WHEN startswith({_FIRST}, '[') THEN {of_array}"
            f" WHEN {_FIRST} = '' AND NOT startswith({quote_name(TEXT)}, '{_MARK}') THEN 0 ELSE 1 END"
        )
        return bind_value(_CHARACTERS, self._text, bind_value(_FIRST, self._from_first(_CHARACTERS), rows))

    @property
    def _is_whole(self) -> str:
        """SQL of the condition that Spark's parser reads the characters as exactly one value.

        The parser runs with the source's options.
        """
        parser = self._parser({**self.options, "maxnestingdepth": _DEEPEST})
        followed = []
        for mark in (0, 1):
            wrapped = f"concat('[', {_ELEMENTS}, '\\n,[{{\"{_END}\":{mark}}}]]')"
            followed.append(
                bind_value(
                    _PARSED,
                    f"from_json({wrapped}, 'ARRAY<ARRAY<STRUCT<{_END}: INT>>>'{parser})",
                    f"size({_PARSED}) = 2 AND get(get({_PARSED}, 1), 0).{_END} = {mark}"
                    f" AND ({_IS_ARRAY} OR size(get({_PARSED}, 0)) <= 1)",
                )
            )
        elements = f"IF({_IS_ARRAY}, {_CHARACTERS}, concat('[', {_CHARACTERS}, '\\n]'))"
        told = bind_value(_ELEMENTS, elements, f"coalesce({' AND '.join(followed)}, false)")
        return bind_value(_IS_ARRAY, f"startswith({self._from_first(_CHARACTERS)}, '[')", told)

    def _from_first(self, text: str) -> str:
        """Return the SQL of a text from its first token on."""
        if is_true(self.options, "allowcomments"):
            return f"regexp_replace({text}, {literal(_COMMENTS)}, '')"
        return f"trim(LEADING {literal(_BLANK)} FROM {text})"

    @cached_property
    def _text(self) -> str:
        """SQL of the text as characters.

        Invalid bytes do not matter in UTF-8 and in encodings whose lower half is ASCII: none of them hides
        a
        character of the JSON syntax.
        """
        raw = quote_name(TEXT)
        data = f"CAST({raw} AS BINARY)"
        if (encoding := declared_encoding(self.options)) is not None:
            return f"decode({data}, {literal(encoding)})" if encoding in WIDE else raw
        plain = f"IF(startswith({raw}, '{_MARK}'), substring({raw}, 2), {raw})"
        told_by_start = (
            f"CASE WHEN startswith({data}, X'0000FEFF') OR startswith({data}, X'FFFE0000')"
            f" OR startswith({data}, X'000000') THEN decode({data}, 'UTF-32')"
            f" WHEN substring({data}, 2, 3) = X'000000' THEN decode(concat(X'FFFE0000', {data}), 'UTF-32')"
            f" WHEN startswith({data}, X'FEFF') OR startswith({data}, X'FFFE') THEN decode({data}, 'UTF-16')"
            f" WHEN startswith({data}, X'00') THEN decode({data}, 'UTF-16BE')"
            f" WHEN substring({data}, 2, 1) = X'00' THEN decode({data}, 'UTF-16LE') ELSE {plain} END"
        )
        return f"IF(contains({raw}, chr(0)), {told_by_start}, {plain})"

    def _parser(self, options: Mapping[str, str]) -> str:
        """Return the last argument of ``from_json``, or ""."""
        own = {name: value for name, value in options.items() if name not in _NOT_OF_VALUES}
        return f", {options_map(own)}" if own else ""

    @property
    def _is_wide(self) -> bool:
        return declared_encoding(self.options) in WIDE


def find_first_trailing(spark: SparkSession, source: Source, path: str) -> str | None:
    """Find a record with trailing tokens in a table's files at a path; None if there is none."""
    texts = JsonTexts.of(source)
    read = texts.read(spark, path)
    if read_first_text(read.where(texts.may_have_trailing_tokens)) is None:
        return None
    with decode_leniently(spark):
        running_on = read.where(texts.has_trailing_tokens).select(TEXT)
    return read_first_text(running_on)


def has_other_case_fields(spark: SparkSession, source: Source, paths: str | Sequence[str]) -> bool:
    """Return True if files have fields in another case than declared.

    Args:
        paths: as for `read_texts`.
    """
    texts = JsonTexts.of(source)
    with decode_leniently(spark):
        renamed = texts.read(spark, paths).where(texts.has_another_case)
    return read_first_text(renamed) is not None


def decode_leniently(spark: SparkSession) -> AbstractContextManager[None]:
    """Make frames that are built in the block decode invalid text to marks, without an error."""
    return override_setting(spark, _LENIENT, "true")


# Rows of JSON files as Spark's reader has them, mended by the texts of their records (`JsonTexts`).
#
# The rows that Spark reads of a file are numbered in their order; the texts say of how many rows each is,
# and so which rows are of a text. Those of a text that runs on behind its value are left out, and the
# text is one broken record. Of a text that has fields in another case than they are declared, the columns
# that Spark left NULL are read once more; where that can be read in two ways, its rows are broken.

NOTHING_WRITTEN = "nothing of this tick was written. "
_HINT = (
    f"{NOTHING_WRITTEN}Write one JSON value per line (with 'multiLine' per file), or remove the text after"
    " the first value"
)

_RUNS_ON, _RENAMED, _TEXT_ROWS, _TEXT_FIRST, _LAST = map(
    ours, ("runs_on", "renamed", "rows", "first", "last")
)
_NUMBER, _TEXT_PARSED, _MENDED, _READ = map(ours, ("number", "parsed", "mended", "read"))


def read_repaired_rows(
    spark: SparkSession, source: Source, texts: JsonTexts, paths: str | Sequence[str]
) -> DataFrame:
    """Return the frame of files of a source as `frames.read` gives it, mended.

    Args:
        paths: of files; one text: where a table's files are.

    Raises:
        EngineError: Spark's rows of a file with a record that runs on are not those that its texts have.
    """
    told = _analyse_texts(spark, texts, paths)
    return reread_as_batch(spark, source, paths, lambda rows: _repair_rows(source, rows, told))


def _analyse_texts(spark: SparkSession, texts: JsonTexts, paths: str | Sequence[str]) -> DataFrame:
    """Return a frame that describes each text.

    Its columns: `FILE`, `TEXT`, `_RUNS_ON`, the numbers of the text's first and last row in the file
    (`_TEXT_FIRST` and `_LAST`), a flag for names in another case (`_RENAMED`), and `_READ`: the text's
    rows
    with declared names, NULL if it is ambiguous.
    """
    with decode_leniently(spark):
        frame = texts.read(spark, paths).select(
            F.col(TEXT),
            F.expr("_metadata.file_path").alias(FILE),
            F.expr("_metadata.file_block_start").alias(BLOCK),
            F.expr("monotonically_increasing_id()").alias(ROW),
            F.expr(texts.has_trailing_tokens).alias(_RUNS_ON),
            F.expr(texts.has_another_case).alias(_RENAMED),
            F.expr(texts.count_of_rows).alias(_TEXT_ROWS),
            F.expr(f"IF({texts.has_another_case}, {texts.rows_renamed}, NULL)").alias(_READ),
        )
    frame = frame.withColumn(_LAST, F.sum(_TEXT_ROWS).over(_row_order()))
    return frame.withColumn(_TEXT_FIRST, F.col(_LAST) - F.col(_TEXT_ROWS) + 1)


def _repair_rows(source: Source, rows: DataFrame, texts: DataFrame) -> DataFrame:
    """Return the corrected rows in the order of files and their rows; see the module."""
    rows = rows.withColumn(_NUMBER, F.row_number().over(_row_order()).cast("bigint"))
    _check_counts(source, rows, texts)
    run_on = texts.where(F.col(_RUNS_ON))
    their_rows = F.explode(F.sequence(_TEXT_FIRST, _LAST))
    of_none = run_on.where(F.col(_TEXT_ROWS) > 0).select(FILE, their_rows.alias(_NUMBER))
    kept = _add_renamed_columns(source, rows.join(of_none, [FILE, _NUMBER], "left_anti"), texts)
    names = [name for name in rows.columns if name not in (BROKEN, FILE, BLOCK, ROW, _NUMBER)]
    nothing = [F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in names]
    broken = run_on.select(*nothing, F.col(TEXT).alias(BROKEN), FILE, BLOCK, ROW)
    columns = [F.col(quote_name(name)) for name in [*names, BROKEN, FILE, BLOCK, ROW]]
    return kept.select(*columns).unionByName(broken).repartition(1).sortWithinPartitions(FILE, BLOCK, ROW)


def _add_renamed_columns(source: Source, rows: DataFrame, texts: DataFrame) -> DataFrame:
    """Add columns that the texts have in another case; mark rows of ambiguous texts as broken.

    A column that Spark's reader found stays unchanged, except a STRUCT, in which fields may be missing.
    """
    renamed = texts.where(F.col(_RENAMED) & ~F.col(_RUNS_ON) & (F.col(_TEXT_ROWS) > 0))
    element = f"get({_READ}, CAST(n - {_TEXT_FIRST} AS INT))"
    numbered = (
        f"explode(transform(sequence({_TEXT_FIRST}, {_LAST}), n -> struct(n AS "
        f"{_NUMBER}, {element} AS {_READ})))"
    )
    renamed = renamed.select(FILE, TEXT, F.expr(numbered).alias(_MENDED))
    renamed = renamed.select(FILE, TEXT, f"{_MENDED}.{_NUMBER}", f"{_MENDED}.{_READ}")
    both = rows.join(renamed, [FILE, _NUMBER], "left")
    broken = F.expr(f"IF({quote_name(TEXT)} IS NOT NULL AND {_READ} IS NULL, {quote_name(TEXT)}, NULL)")
    columns = {column.name: F.expr(_coalesce_readings(column)) for column in source.columns}
    return both.withColumns({**columns, BROKEN: F.coalesce(F.col(BROKEN), broken)})


def _coalesce_readings(column: Declared) -> str:
    own, renamed = quote_name(column.name), f"{_READ}.{quote_name(column.name)}"
    has_fields = any(inner.is_struct for inner in column.type.every)
    return f"coalesce({renamed}, {own})" if has_fields else f"coalesce({own}, {renamed})"


def _check_counts(source: Source, rows: DataFrame, texts: DataFrame) -> None:
    """Check that Spark reads as many rows from each file as its texts should have.

    Raises:
        EngineError: the numbers differ.
    """
    read, told = ours("read_rows"), ours("told")
    values = [name for name in rows.columns if name not in (FILE, BLOCK, ROW, _NUMBER)]
    # Asked for no values, Spark would count lines and parse none.
    are_parsed = reduce(add, (F.count(quote_name(name)) for name in values)) >= 0
    read_rows = rows.groupBy(FILE).agg(F.max(_NUMBER).alias(read), are_parsed.alias(_TEXT_PARSED))
    is_looked_at = F.max(F.col(_RUNS_ON) | F.col(_RENAMED)).alias(_RUNS_ON)
    told_rows = texts.groupBy(FILE).agg(F.max(_LAST).alias(told), is_looked_at)
    both = told_rows.join(read_rows, FILE, "left")
    equal = f"coalesce({read}, 0) <=> {told} AND coalesce({_TEXT_PARSED}, true)"
    other = both.where(f"{_RUNS_ON} AND NOT ({equal})")
    paths = [row[0] for row in other.select(FILE).limit(1).collect()]
    if paths:
        raise EngineError(
            f'file source "{source.name}": {format_path(to_local_path(paths[0]) or paths[0])} has a record'
            " with"
            " text after its JSON value, or with field names that differ in case, so its rows cannot be"
            " identified",
            code="record-runs-on",
            hint=_HINT,
        )


def _row_order() -> WindowSpec:
    from pyspark.sql.window import Window

    return Window.partitionBy(FILE).orderBy(BLOCK, ROW)
