"""Validate the beginnings and footers of a source's files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError
from watersmeet.runtime.files.json_grammar import (
    could_be_record,
    has_other_forms,
    parse_json,
)
from watersmeet.runtime.files.listing import (
    MIXED,
    ListedFile,
    find_unpartitioned_file,
    format_path,
    list_hidden_files,
    list_source_files,
    list_special_files,
    special_note,
)
from watersmeet.runtime.files.open_files import (
    BROKEN_ARCHIVE,
    MAX_HEADER_FILES,
    can_open,
    choose_oldest_and_newest,
    encoding_in,
    open_bytes,
    suffix_of,
)
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.spec.options.values import lower_names

START = 64 << 10
"""Bytes of text that are looked at."""

_MAGIC = b"PAR1"
WHOLE = (
    "replace or remove the file; write files elsewhere on the same file system, and move them here when"
    " they are complete"
)
_UTF_8 = "convert it to UTF-8, for example: iconv -f {} -t UTF-8"
_BOMS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""Marks at the beginning; the longer ones first."""
_LINES = 20
_NOT_TEXT = frozenset(range(32)) - frozenset(b"\t\n\r\x0c\x1b")


class FileProblem(NamedTuple):
    """``what`` is wrong with a file, and what to do. ``certain``: a run cannot read it."""

    what: str
    hint: str
    certain: bool = True


def find_file_problems(what: str, source: Source, *, table: bool = False) -> list[EngineError]:
    """Find all problems of a source's files: one error per kind, naming the first such file.

    Args:
        what: the source, for messages (``file source "a"``).
    """
    there = list(list_source_files(source))
    problems: list[EngineError] = []
    passed_over = [entry for entry in there if entry.passed_over]
    for why in dict.fromkeys(entry.passed_over for entry in passed_over):
        files = [entry.path for entry in passed_over if entry.passed_over == why]
        problems.append(_error(f"{what}: Spark skips", files, "file-unread", str(why)))
    problems += _check_partition_names(what, [entry.path for entry in there if not entry.passed_over])
    plain = find_unpartitioned_file(source, (entry.path for entry in there if not entry.passed_over))
    if plain is not None and not table:  # of tables it was said before
        problems.append(_error(f"{what}: Spark skips", [plain], "file-unread", MIXED))
    by_kind: dict[FileProblem, list[str]] = {}
    for path, wrong in _find_wrong_files(source, there):
        if wrong.certain:
            by_kind.setdefault(wrong, []).append(path)
    for wrong, files in by_kind.items():
        problems.append(_error(f"{what}: {wrong.what}:", files, "file-unreadable", wrong.hint))
    return problems


def _check_partition_names(what: str, files: Sequence[str]) -> list[EngineError]:
    """Check that all partition directories have the same columns; otherwise Spark fails."""
    first: dict[tuple[str, ...], str] = {}
    for path in files:
        parts = os.path.dirname(path).split(os.sep)
        first.setdefault(tuple(part.partition("=")[0] for part in parts if "=" in part), path)
    kinds = [(", ".join(names), path) for names, path in first.items() if names]
    if len(kinds) < 2:
        return []
    (names, path), (others, other) = kinds[:2]
    return [
        EngineError(
            f"{what}: some directories have the partition columns {names} ({format_path(path)}), others"
            f" {others} ({format_path(other)})",
            code="file-unread",
            hint="use the same partition columns in the same order everywhere: Spark fails otherwise",
        )
    ]


def list_file_notes(what: str, source: Source) -> Iterator[str]:
    """Yield notes for the user about files that do not prevent a run from reading them."""
    hidden = list_hidden_files(source)
    if hidden:
        yield f"{what}: skipped files whose names begin with _ or .: {_format_files(hidden)}"
    special = list_special_files(source)
    if special:
        yield special_note(what, special)
    by_kind: dict[FileProblem, list[str]] = {}
    for path, wrong in _find_wrong_files(source, list(list_source_files(source))):
        if not wrong.certain:
            by_kind.setdefault(wrong, []).append(path)
    for wrong, files in by_kind.items():
        yield f"{what}: {wrong.what}: {_format_files(files)}; {wrong.hint}"


def find_text_problem(start: bytes, encoding: str = "utf-8") -> FileProblem | None:
    """Return the problem of a file whose first bytes are not text in the encoding, or None."""
    if start.startswith(_MAGIC):
        return FileProblem("it is a Parquet file", "'format' = 'parquet' reads it")
    if start.startswith(b"\x1f\x8b"):
        return FileProblem(
            "it is compressed with gzip", "rename it to ….gz: Spark recognises compression by the name"
        )
    if encoding.lower() not in ("utf-8", "utf8"):
        return _check_encoding(start, encoding)
    bom = next((name for mark, name in _BOMS.items() if start.startswith(mark)), None)
    bom = bom or _guess_utf_16(start)
    if bom is not None:
        return FileProblem(f"it is {bom}, not UTF-8 text", _UTF_8.format(bom))
    if sum(byte in _NOT_TEXT for byte in start) * 10 > len(start):
        return FileProblem(
            "it is not text", "set 'format' to the format of the files, and remove other files"
        )
    return _check_encoding(start, "utf-8")


def _guess_utf_16(start: bytes) -> str | None:
    """Guess the kind of UTF-16 of a text without a byte order mark; None if it is not UTF-16.

    In UTF-16 almost every second byte is NUL, and the decoded result is text.
    """
    even, odd = start[::2].count(0), start[1::2].count(0)
    encoding = "UTF-16LE" if odd > even else "UTF-16BE"
    if max(even, odd) * 5 <= len(start) or min(even, odd) * 20 > max(even, odd):
        return None
    text = start[: len(start) // 2 * 2].decode(encoding, "replace")
    odd_ones = sum(character == "\ufffd" or ord(character) in _NOT_TEXT for character in text)
    return encoding if odd_ones * 20 <= len(text) else None


def _check_encoding(start: bytes, encoding: str) -> FileProblem | None:
    try:
        start.decode(encoding)
    except UnicodeDecodeError as error:
        if len(start) - error.start < 4:  # a character that is cut
            return None
        return FileProblem(
            f"it is not valid {encoding.upper()} text at byte {error.start:,}; Spark replaces such"
            " bytes with �, or reads the records as broken",
            "set 'encoding' (for JSON also 'lineSep'), or write the file as UTF-8; without it a run"
            " fails at such CSV and counts such JSON as broken",
            certain=False,
        )
    except LookupError:
        return None  # Spark knows more of them
    return None


def _find_wrong_files(source: Source, there: Sequence[ListedFile]) -> Iterator[tuple[str, FileProblem]]:
    options = lower_names(source.options)
    if "pathglobfilter" in options:
        return
    wanted = format_of(source.options)
    files = sorted((e for e in there if not e.passed_over and e.stat[0]), key=lambda e: (e.stat[1], e.path))
    for file in choose_oldest_and_newest(files, MAX_HEADER_FILES):
        wrong = check_file(file.path, wanted, options)
        if wrong is not None:
            yield file.path, wrong


def check_file(path: str, wanted: str, options: Mapping[str, str]) -> FileProblem | None:
    """Check that a file has the format ``wanted``.

    Args:
        options: the options of its source, with names in lower case.
    """
    return _check_parquet_file(path) if wanted == "parquet" else _check_text_file(path, wanted, options)


def _check_parquet_file(path: str) -> FileProblem | None:
    try:
        parquet.read_metadata(path)
    except (pa.ArrowException, UnicodeDecodeError):
        with open(path, "rb") as file:
            start = file.read(START)
        if start.startswith(_MAGIC):
            return FileProblem("it is not a complete Parquet file: its end is missing or damaged", WHOLE)
        text = find_text_problem(start)
        if text is None or not text.certain:
            return FileProblem(
                "it is a text file, not a Parquet file", "'format' = 'csv' or 'json' reads text"
            )
        return FileProblem(
            "it is not a Parquet file", "remove it, or set 'format' to the format of the files"
        )
    except OSError as error:
        return _unreadable_problem(error)
    return None


def _check_text_file(path: str, wanted: str, options: Mapping[str, str]) -> FileProblem | None:
    if not can_open(path):
        return None
    try:
        with open_bytes(path) as file:
            start: bytes = file.read(START)
    except BROKEN_ARCHIVE as error:
        if isinstance(error, OSError) and error.strerror:
            return _unreadable_problem(error)
        return FileProblem(f"it is not a complete {suffix_of(path)} file", WHOLE)
    wrong = find_text_problem(start, encoding_in(options))
    if wrong is None and wanted == "csv" and options.get("header", "true").strip().lower() == "true":
        return _is_json(start)
    if wrong is not None or wanted != "json":
        return wrong
    if options.get("multiline", "").strip().lower() == "true" or has_other_forms(options):
        return None
    return _check_json_lines(start, options)


def _is_json(start: bytes) -> FileProblem | None:
    """Return a problem if the first line, which should be a CSV header, is a JSON object.

    No column has such a name.
    """
    line = start.split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip()
    if line.startswith("{") and isinstance(parse_json(line, {}), dict):
        return FileProblem("its first line is a JSON object, not a CSV header", "'format' = 'json' reads it")
    return None


def _check_json_lines(start: bytes, options: Mapping[str, str]) -> FileProblem | None:
    """Return a problem if none of a file's first lines is a JSON record."""
    lines = start.split(b"\n")
    if len(start) == START:
        lines.pop()
    texts = [line.decode("utf-8-sig", "replace") for line in lines if line.strip()][:_LINES]
    if not texts or any(isinstance(parse_json(text, options), dict | list) for text in texts):
        return None
    if any(could_be_record(text) for text in texts):
        return FileProblem(
            "none of its first lines is a complete JSON object",
            "write one object per line; 'multiLine' = 'true' reads objects that span several lines",
            certain=False,
        )
    return FileProblem(
        "none of its first lines is a JSON object",
        "'multiLine' = 'true' reads a file with one value that spans several lines"
        if texts[0].lstrip(" \t")[:1] in ("[", "{")
        else "set 'format' to what the files are, such as 'format' = 'csv'",
    )


def _unreadable_problem(error: OSError) -> FileProblem:
    return FileProblem(
        f"it cannot be read: {error.strerror or error}", "give the job's user permission to read it"
    )


def _error(words: str, files: Sequence[str], code: str, hint: str) -> EngineError:
    return EngineError(f"{words} {_format_files(files)}", code=code, hint=hint)


def _format_files(files: Iterable[str]) -> str:
    files = list(files)
    more = f", and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{format_path(files[0])}{more}"
