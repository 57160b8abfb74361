"""Columns that files get from the names of directories above them (``k=v``), as Spark gives them.

Spark takes them from the directories beneath the source's path, or beneath its option ``basePath``; beneath a
pattern without that option it takes none. Of their values it cuts in silence what does not fit an integer or
a DECIMAL; beside Parquet it reads the digits of a DECIMAL without their point: 1.5 as DECIMAL(5,2) is 0.15.
So each is looked at before Spark reads a file.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from urllib.parse import unquote

from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of, local_path, path_of
from watersmeet.spec.options.values import is_true, lower_names
from watersmeet.types.sql_type import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    MAX_DECIMAL_DIGITS,
    TIMES,
    SqlType,
)

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""As it is written for NULL."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_LONGEST = 100
_LONGEST_LINE = 1 << 20
_DECIMAL_HINT = (
    "; with Parquet files, a DECIMAL in a directory name needs exactly as many digits after"
    " the point as declared"
)
_TIME_OF_DAY = re.compile(r"[0-9][ T]")
_CUT_TIME = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")


def partition_folders(source: Source, file: str) -> list[str]:
    """Return the names of the directories (``k=v``) that give a local file of a source columns.

    The file's path may be relative, as the source's.

    None do where the path of the source is a file or a pattern without ``basePath``, or with
    ``recursiveFileLookup``.
    """
    base = _partition_base(source) if "=" in file else None
    if base is None or is_true(lower_names(source.options), "recursivefilelookup"):
        return []
    return [folder for folder in folders_between(base, os.path.abspath(file)) if "=" in folder]


def partition_columns(source: Source, file: str) -> dict[str, str]:
    """Return what the directories above a file give, by the columns' names in lower case.

    The values are as they are written, which is percent-encoded.
    """
    named = (folder.partition("=") for folder in partition_folders(source, file))
    return {unquote(name).lower(): value for name, _, value in named}


def folders_between(root: str, path: str) -> list[str]:
    """Return the names of the directories between a directory and a file in it."""
    if not path.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
        return []
    return [folder for folder in os.path.dirname(path.removeprefix(root)).split(os.sep) if folder]


def check_partitions(what: str, source: Source, file: str) -> None:
    """Refuse directories above a file whose values Spark would cut, or take for NULL, or not read.

    Args:
        what: the source, for messages (``file source "a"``).

    Raises:
        EngineError: ``partition-value``, with the directory and the declared type.
    """
    columns = partition_columns(source, file)
    fits = _fits_exactly if format_of(source.options) == "parquet" else _fits
    for column in source.columns:
        value = columns.get(column.name.lower(), NO_VALUE)
        if value != NO_VALUE and not fits(unquote(value), column.type):
            folder = next(own for own in partition_folders(source, file) if own.partition("=")[2] == value)
            raise EngineError(
                f"{what}: the directory name {folder} is not a valid {column.type}, the declared type"
                f" of {column.name}: {file}",
                code="partition-value",
                hint=f"declare {column.name} with a type that fits, such as STRING, or rename the"
                f" directory{_DECIMAL_HINT if column.type.is_decimal else ''}",
            )


def check_not_above(what: str, source: Source, file: str, names: Collection[str] | None) -> None:
    """Refuse a declared column that only a directory above the source's path has: it would be NULL.

    Args:
        file: one of the source.
        names: of the columns that the file itself has, in lower case; None: that is not known.

    Raises:
        EngineError: ``wrong-columns``.
    """
    if names is None:
        return
    given, file = partition_columns(source, file), os.path.abspath(file)
    for folder in os.path.dirname(file).split(os.sep):
        name = unquote(folder.partition("=")[0]).lower() if "=" in folder else ""
        column = next((column for column in source.columns if column.name.lower() == name), None)
        if column is None or name in given or name in names:
            continue
        above = file[: file.index(f"{os.sep}{folder}{os.sep}")]
        raise EngineError(
            f"{what}: the directory {folder} gives no column {column.name}: only directories below the"
            " source's 'path' give columns",
            code="wrong-columns",
            hint=f"set 'path' = '{above}' to read all of them, or add 'basePath' = '{above}' to the"
            " pattern in 'path' to read some",
        )


def first_json_names(file: str) -> set[str] | None:
    """Return the field names, in lower case, of the first record of a JSON Lines file.

    The result is None if this process cannot read the record.
    """
    try:
        with open(file, encoding="utf-8-sig") as lines:
            record = json.loads(lines.readline(_LONGEST_LINE))
    except (OSError, ValueError, RecursionError):
        return None
    return {name.lower() for name in record} if isinstance(record, dict) else None


def _partition_base(source: Source) -> str | None:
    """Return the directory whose subdirectories define partition columns.

    Returns:
        The absolute path; None if the source has no such directory, or if it is not local.
    """
    said = lower_names(source.options).get("basepath")
    local = local_path(said if said is not None else path_of(source.options))
    return os.path.abspath(local) if local and os.path.isdir(local) else None


def _fits_exactly(text: str, type_: SqlType) -> bool:
    """Return whether it fits, a DECIMAL with as many digits behind the point as its type has."""
    if not type_.is_decimal:
        return _fits(text, type_)
    behind = rf"\.[0-9]{{{type_.scale}}}" if type_.scale else ""
    return re.fullmatch(rf"[+-]?[0-9]+{behind}", text) is not None and _fits(text, type_)


def _fits(text: str, type_: SqlType) -> bool:
    """Return whether Spark reads a value as the type, as a whole; True where that is for Spark to say."""
    if type_.is_integer:
        most = 2 ** (type_.bits - 1)
        return _WHOLE.fullmatch(text) is not None and len(text) < _LONGEST and -most <= int(text) < most
    if type_.is_decimal:
        try:
            value = Decimal(text)
        except InvalidOperation:
            return False
        if not value.is_finite() or abs(value.adjusted()) > MAX_DECIMAL_DIGITS:
            return False
        scaled = Fraction(value) * 10**type_.scale
        return bool(scaled.denominator == 1 and abs(scaled) < 10**type_.digits)
    if type_ in (FLOAT, DOUBLE):
        try:
            number = float(text.rstrip("dDfF") if text[:1] not in "iInN" else text)
        except ValueError:
            return True
        most = 3.4028235677973366e38 if type_ == FLOAT else math.inf
        return "inf" in text.lower() or math.isnan(number) or abs(number) < most
    if type_ == BOOLEAN:
        return text.lower() in ("true", "false")
    if type_ == BINARY:
        return text.isascii() and "%" not in text
    if type_ == DATE:
        return not _TIME_OF_DAY.search(text)
    return not (type_ in TIMES and _CUT_TIME.search(text))
