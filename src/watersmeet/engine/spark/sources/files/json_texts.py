"""Records of JSON files as texts: those that run on, and those that name fields in another case.

A record runs on if something stands behind its value, a second object, for example.

Spark's reader takes the first value of a record (a line, or with multiLine a file) and passes over the rest.
What it makes of that value nothing else in Spark does: a number in a STRING keeps its digits, bytes that are
no text are told. So files are read by it, and looked at beside it, as texts, by the conditions here.

A text is one value if, as the first element of an array, it is followed by what we put behind it, whichever
of two things that is: a text that closes the array itself is followed by neither, and what hides them is no
JSON. Of texts that Spark's reader calls broken anything may be said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from watersmeet.engine.spark.sources.files.texts import (
    TEXT,
    first_text,
    json_options,
    read_texts,
    said_encoding,
)
from watersmeet.engine.spark.text import let, literal, options_map, quoted
from watersmeet.engine.spark.whole_json import has_another_case, rename_fields
from watersmeet.engine.spark.written_types import with_read_types
from watersmeet.names import ours
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import ANY_READER, OF_SOURCES
from watersmeet.spec.options.lowered import is_true, lowered
from watersmeet.spec.options.values import WIDE
from watersmeet.spec.records.json_names import JsonNames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """A pattern of a value in brackets with so many levels of them within. Its quantifiers are possessive:
    Java's matcher goes on in a loop, and never back."""
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
        columns = [(column.name, column.type) for column in with_read_types(source).columns]
        fields = ", ".join(f"{quoted(name)}: {own}" for name, own in columns)
        return cls(json_options(lowered(source.options)), fields, JsonNames.of(columns))

    def read(self, spark: SparkSession, paths: str | Sequence[str]) -> DataFrame:
        """See `read_texts`."""
        return read_texts(spark, self.options, paths)

    @property
    def may_differ(self) -> str:
        """A condition that holds for nearly no text but those of `differs`, and for all of these; a quick
        one."""
        return f"({self.may_run_on}) OR ({self._may_have_another_case})"

    @property
    def differs(self) -> str:
        """Return the condition that Spark's reader does not tell what is in a text; make frames of it
        `leniently`."""
        return f"({self.run_on}) OR ({self.has_another_case})"

    @property
    def may_run_on(self) -> str:
        """A condition that holds for nearly no text but those of `run_on`, and for all of these; a quick one.

        By the place of the only closing brace, or by a pattern: the bracket that closes the first one is the
        text's end. What reads the text otherwise calls it broken.
        """
        if self._is_wide:
            return "true"
        raw = quoted(TEXT)
        flat = (
            f"startswith({raw}, '{{') AND"
            f" octet_length(substring_index({raw}, '}}', 1)) = octet_length({raw}) - 1"
        )
        return f"CASE WHEN {flat} THEN false ELSE NOT rlike({raw}, {literal(_ONE_VALUE)}) END"

    @cached_property
    def run_on(self) -> str:
        """Return the condition that a text is neither one value nor blank; make frames of it `leniently`."""
        whole = let(_CHARACTERS, self._text, self._is_whole)
        return f"CASE WHEN {self.may_run_on} THEN NOT ({whole}) ELSE false END"

    @cached_property
    def has_another_case(self) -> str:
        """Return the condition that a text has a field whose name is not written as it is declared; make
        frames of it `leniently`."""
        if not self.names.names:
            return "false"
        of_array = has_another_case(_CHARACTERS, self._of_arrays)
        of_object = has_another_case(_CHARACTERS, self.names)
        condition = f"IF(startswith({_FIRST}, '['), {of_array}, coalesce({of_object}, false))"
        told = let(_CHARACTERS, self._text, let(_FIRST, self._from_first(_CHARACTERS), condition))
        return f"CASE WHEN {self._may_have_another_case} THEN {told} ELSE false END"

    @property
    def _may_have_another_case(self) -> str:
        if not self.names.names or self._is_wide:
            return "true" if self.names.names else "false"
        # Of a wide encoding that is found by its first bytes a name is bytes with NUL between them.
        raw = quoted(TEXT)
        return f"rlike({raw}, {literal(self.names.in_another_case)}) OR contains({raw}, chr(0))"

    @property
    def _of_arrays(self) -> JsonNames:
        """Each name is on a level with others of its own: one in each element."""
        return replace(self.names, columns=frozenset())

    @cached_property
    def rows_renamed(self) -> str:
        """Return the rows (ARRAY<STRUCT>) of a text that has fields in another case; NULL: it has two
        readings, or values that do not fit."""
        schema = literal(f"{_ROWS} ARRAY<STRUCT<{self.fields}>>, {_CORRUPT} STRING")
        options = self._parser(
            {**self.options, "maxnestingdepth": _DEEPEST, "columnnameofcorruptrecord": _CORRUPT}
        )
        wrapped = (
            f"IF(startswith({_FIRST}, '['), {rename_fields(_CHARACTERS, self._of_arrays)},"
            f" concat('[', {rename_fields(_CHARACTERS, self.names)}, '\\n]'))"
        )
        read = f"from_json(concat('{{\"{_ROWS}\":', {wrapped}, '\\n}}'), {schema}{options})"
        rows = let(_PARSED, read, f"IF({_PARSED}.{_CORRUPT} IS NULL, {_PARSED}.{_ROWS}, NULL)")
        return let(_CHARACTERS, self._text, let(_FIRST, self._from_first(_CHARACTERS), rows))

    @cached_property
    def count_of_rows(self) -> str:
        """Count the rows that Spark's reader makes of a text."""
        kind = literal(f"ARRAY<STRUCT<{self.fields}>>")
        of_array = let(
            _ELEMENTS,
            f"from_json({_CHARACTERS}, {kind}{self._parser(self.options)})",
            f"IF({_ELEMENTS} IS NULL OR exists({_ELEMENTS}, e -> e IS NULL), 1, size({_ELEMENTS}))",
        )
        rows = (
            f"CASE WHEN startswith({_FIRST}, '[') THEN {of_array}"
            f" WHEN {_FIRST} = '' AND NOT startswith({quoted(TEXT)}, '{_MARK}') THEN 0 ELSE 1 END"
        )
        return let(_CHARACTERS, self._text, let(_FIRST, self._from_first(_CHARACTERS), rows))

    @property
    def _is_whole(self) -> str:
        """Return the condition that Spark's parser, with the source's options, takes the characters for one
        value and nothing else."""
        parser = self._parser({**self.options, "maxnestingdepth": _DEEPEST})
        followed = []
        for mark in (0, 1):
            wrapped = f"concat('[', {_ELEMENTS}, '\\n,[{{\"{_END}\":{mark}}}]]')"
            followed.append(
                let(
                    _PARSED,
                    f"from_json({wrapped}, 'ARRAY<ARRAY<STRUCT<{_END}: INT>>>'{parser})",
                    f"size({_PARSED}) = 2 AND get(get({_PARSED}, 1), 0).{_END} = {mark}"
                    f" AND ({_IS_ARRAY} OR size(get({_PARSED}, 0)) <= 1)",
                )
            )
        elements = f"IF({_IS_ARRAY}, {_CHARACTERS}, concat('[', {_CHARACTERS}, '\\n]'))"
        told = let(_ELEMENTS, elements, f"coalesce({' AND '.join(followed)}, false)")
        return let(_IS_ARRAY, f"startswith({self._from_first(_CHARACTERS)}, '[')", told)

    def _from_first(self, text: str) -> str:
        """A text from its first token on."""
        if is_true(self.options, "allowcomments"):
            return f"regexp_replace({text}, {literal(_COMMENTS)}, '')"
        return f"trim(LEADING {literal(_BLANK)} FROM {text})"

    @cached_property
    def _text(self) -> str:
        """As characters. Of UTF-8 and what is ASCII in its lower half, bytes that are no UTF-8 do not matter:
        none of them hides one that JSON is made of."""
        raw = quoted(TEXT)
        data = f"CAST({raw} AS BINARY)"
        if (encoding := said_encoding(self.options)) is not None:
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
        """The last argument of ``from_json``."""
        own = {name: value for name, value in options.items() if name not in _NOT_OF_VALUES}
        return f", {options_map(own)}" if own else ""

    @property
    def _is_wide(self) -> bool:
        return said_encoding(self.options) in WIDE


def first_run_on(spark: SparkSession, source: Source, path: str) -> str | None:
    """A record that runs on in the files of a table at a path; None: there is none."""
    texts = JsonTexts.of(source)
    read = texts.read(spark, path)
    if first_text(read.where(texts.may_run_on)) is None:
        return None
    with leniently(spark):
        running_on = read.where(texts.run_on).select(TEXT)
    return first_text(running_on)


def is_another_case_at(spark: SparkSession, source: Source, paths: str | Sequence[str]) -> bool:
    """Whether files have fields in another case than they are declared. ``paths``: as of `read_texts`."""
    texts = JsonTexts.of(source)
    with leniently(spark):
        renamed = texts.read(spark, paths).where(texts.has_another_case)
    return first_text(renamed) is not None


@contextmanager
def leniently(spark: SparkSession) -> Iterator[None]:
    """Frames that are made meanwhile decode what is no text to marks for that, and do not fail of it."""
    before = spark.conf.get(_LENIENT, None)
    spark.conf.set(_LENIENT, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LENIENT)
        else:
            spark.conf.set(_LENIENT, before)
