"""Names and types of a file source's columns, read from the files that are there: footers of Parquet, headers
and samples of CSV and JSON.

What is inferred must be read by Spark as the sample was: where there is doubt, a column is STRING, and that
is said. Only this process looks at the files; Spark is not started.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from watersmeet.engine.files.csv_header import MOST_FILES
from watersmeet.engine.files.partitions import NO_VALUE
from watersmeet.engine.spark.sources.files import inferred_text
from watersmeet.engine.spark.sources.files.inferred_parquet import columns_of
from watersmeet.engine.spark.sources.files.inferred_types import Seen, Told, type_of
from watersmeet.engine.spark.sources.files.there import There, files_of, shown, special_note, special_of
from watersmeet.errors import EngineError, raise_all
from watersmeet.names import is_ours
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import format_of, local_path, path_of, source_problems
from watersmeet.spec.options.lowered import lowered
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import STRING, TIMESTAMP, SqlType

SAMPLED = 20
"""So many files are sampled, or their footers compared: the oldest and the newest, half and half. Of Parquet
it is `csv_header.MOST_FILES`."""

COLUMNS = "columns"
"""Where a manifest's ``host`` has, per source, the columns that were inferred when the job began."""

_DECLARE = "declare its columns: CREATE TABLE … (name type, …) WITH (…)"


@dataclass(frozen=True)
class Inferred:
    """``columns``: in the files' order, then those of partitions' directories. ``files``: how many were
    looked at; ``records``: how many of these were sampled (None: nothing had to be). ``notes``: what a person
    should know of some columns."""

    columns: tuple[Column, ...]
    files: int
    records: int | None = None
    notes: tuple[str, ...] = ()


def infer(source: Source) -> Inferred:
    """The columns of ``source``. Those that it declares stand as declared, and must be in the files.

    Raises:
        EngineError: there is nothing to infer from, or the files have other columns than each other.
        SpecError: options are wrong.
    """
    if not source.traits.files:
        raise EngineError(
            f'"{source.name}": columns can be inferred for files only, not for a {source.connector} source',
            code="cannot-infer",
            hint=_DECLARE,
        )
    first = ("missing-option", "unknown-format", "wrong-option")
    raise_all([source_problem for source_problem in source_problems(source) if source_problem.code in first])
    options = lowered(source.options)
    path, wanted = path_of(source.options), format_of(source.options)
    if wanted == DEBEZIUM:
        raise EngineError(
            f'"{source.name}": columns cannot be inferred for the format {DEBEZIUM}',
            code="cannot-infer",
            hint=_DECLARE,
        )
    files = files_in_order(source, path, options)
    declared = {column.name.lower(): column for column in source.columns}
    if wanted == "parquet":
        told = columns_of(source.name, _ends(files, MOST_FILES))
    else:
        told = inferred_text.columns_of(source.name, wanted, _ends(files, SAMPLED), options)
    notes = list(told.notes)
    if special := special_of(source):
        notes.append((None, special_note(f'"{source.name}"', special)))
    types = dict(told.types)
    for name, kind, note in of_directories(path, files, options):
        if name.lower() in {typed.lower() for typed in types}:
            raise EngineError(
                f'"{source.name}": the column {name} is both in the files and in the names of their'
                " directories",
                code="cannot-infer",
                hint=_DECLARE,
            )
        types[name] = kind
        notes += note
    columns = [
        declared.get(name.lower()) or Column(name, kind)
        for name, kind in types.items()
        if _can_be_named(name, notes)
    ]
    missing = [column.name for name, column in declared.items() if name not in {n.lower() for n in types}]
    if missing:
        raise EngineError(
            f'"{source.name}": the files at {path} have no column {", ".join(missing)}',
            code="wrong-columns",
            hint=f"their columns are {', '.join(types)}",
        )
    if not columns:
        raise EngineError(
            f'"{source.name}": the files at {path} have no column of a supported type',
            code="cannot-infer",
            hint=_DECLARE,
        )
    kept = {column.name.lower() for column in columns} - set(declared)
    said = tuple(
        text for name, text in notes if name is None or name.lower() in kept | {""} or name not in types
    )
    return Inferred(tuple(columns), told.files, told.records, said)


def as_kept(columns: Iterable[Column]) -> list[list[str]]:
    """For a manifest's ``host``."""
    return [[column.name, str(column.type)] for column in columns]


def kept_in(host: Mapping[str, Any]) -> dict[str, tuple[Column, ...]]:
    """Per source what was inferred when the job began; empty where nothing was."""
    return {
        name: tuple(Column(column, sql_type(kind)) for column, kind in columns)
        for name, columns in host.get(COLUMNS, {}).items()
    }


def files_in_order(
    source: Source,
    path: str,
    options: Mapping[str, str],
    fails: str = "its columns cannot be inferred",
    hint: str | None = _DECLARE,
) -> list[There]:
    """Those that Spark will read and that have content, the oldest first.

    Args:
        fails: what cannot be done where files cannot be listed.
        hint: what else to do where there is none with content. None: then there are none.
    """
    local = local_path(path)
    if local is None or "pathglobfilter" in options:
        what = f"{path} is not a local path" if local is None else ("only Spark supports 'pathGlobFilter'")
        raise EngineError(f'"{source.name}": {fails}: {what}', code="cannot-infer", hint=hint)
    files = [file for file in files_of(source) if file.passed_over is None and file.stat[0]]
    if not files:
        there = os.path.exists(local)
        if there and hint is None:
            return []
        what = "there is no file with content at" if there else "there is no"
        raise EngineError(
            f'"{source.name}": {fails}: {what} "{path}"',
            code="cannot-infer" if there else "path-missing",
            hint="put a first file there" + (f", or {hint}" if hint else ""),
        )
    return sorted(files, key=lambda file: (file.stat[1], file.path))


def _ends(files: Sequence[There], most: int) -> list[str]:
    """The oldest and the newest of files in order."""
    if len(files) > most:
        files = [*files[: most // 2], *files[-(most // 2) :]]
    return [file.path for file in files]


def of_directories(
    path: str, files: Sequence[There], options: Mapping[str, str]
) -> Iterator[tuple[str, SqlType, list[Told]]]:
    """Columns of partitions' directories (``k=v``): name, type, notes."""
    root = os.path.abspath(local_path(path) or path)
    if not os.path.isdir(root) or options.get("recursivefilelookup", "").strip().lower() == "true":
        return
    seen: dict[str, Seen] = {}
    for file in files:
        for part in os.path.dirname(file.path.removeprefix(root)).split(os.sep):
            name, equals, value = part.partition("=")
            if equals:
                written = None if value == NO_VALUE else unquote(value)
                seen.setdefault(unquote(name), Seen()).add_text(written, {})
    for name, values in seen.items():
        kind, why = type_of(values)
        if kind == TIMESTAMP:  # times have colons, which directories' names have in other spellings
            kind, why = STRING, "times in directory names are read as text"
        yield name, kind, [(name, f"{name} is {kind}: {why}")] if why else []


def _can_be_named(name: str, notes: list[Told]) -> bool:
    """Whether a column of that name can be declared; else that is noted."""
    why = None
    if not name.strip():
        why = "a column without a name (name it in the files' headers to read it)"
    elif is_ours(name):
        why = f"the column {name}, whose name is reserved for the engine,"
    elif not name.isprintable():
        why = f"the column {shown(name)!r}, whose name is not printable,"
    if why is None:
        return True
    notes.append((None, f"{why} is left out"))
    return False
