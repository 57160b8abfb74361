"""Options of a declaration that watersmeet itself interprets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import TypeVar

from watersmeet.errors import SqlError
from watersmeet.parser.ddl.quantities import (
    ROWS_HINT,
    bytes_hint,
    bytes_in,
    duration_us,
    is_none,
    rows_in,
)
from watersmeet.spec.change_kinds import ChangeColumn
from watersmeet.spec.connectors import CONNECTORS, connector_of
from watersmeet.spec.model import Column, EventTime, OnBroken, OnIdle
from watersmeet.spec.options.changes import OPTIONS, SEQUENCE, TOMBSTONES, change_column
from watersmeet.spec.secrets import public_option, without_value, wrap_secret

# Options of a declaration that watersmeet itself understands, whatever the connector.

GENERATOR_ROWS_PER_SECOND = "1000"
"""What a generator makes unless its option 'rate' says otherwise."""

SNAPSHOT = "snapshot"
"""``'changes' = 'snapshot'``: what a table held before is compared with what it holds now."""

Choice = TypeVar("Choice", bound=Enum)

OptionError = Callable[[str, str | None], SqlError]


@dataclass(frozen=True)
class Tombstones:
    """Time in µs for which deletes are remembered; None: not at all."""

    us: int | None


@dataclass(frozen=True)
class SourceFields:
    partitions: tuple[str, ...] = ()
    idle_timeout_us: int | None = None
    on_idle: OnIdle = OnIdle.HOLD
    on_broken: OnBroken = OnBroken.STOP
    max_ahead_us: int | None = None
    rows_per_second: float | None = None
    refresh_us: int | None = None
    sequence_by: str | None = None
    tombstones: Tombstones | None = None
    changes: str | None = None
    max_rows: int | None = None
    max_bytes: int | None = None


def source_fields(options: Mapping[str, str], connector: str, error: OptionError) -> SourceFields:
    """Read the options that are fields of a `Source`.

    Names are compared without case and with - as _: ``idle_timeout`` and ``IDLE-TIMEOUT`` are one
    option.
    """
    named = {_plain(key): value for key, value in options.items()}
    default = connector_of(connector).max_ahead_us
    return SourceFields(
        _partitions(named.get("partitions")),
        _duration("idle_timeout", named, None, error),
        _one_of(OnIdle, "on_idle", named, OnIdle.HOLD, error),
        _one_of(OnBroken, "on_broken", named, OnBroken.STOP, error),
        _duration("max_ahead", named, default, error),
        _rows_per_second(named, connector, error),
        _read_refresh(named, connector, error),
        named.get("sequence_by"),
        Tombstones(_duration("tombstones", named, None, error)) if "tombstones" in named else None,
        _changes(named.get("changes"), error),
        _read_limit("max_rows", named, rows_in, ROWS_HINT, error),
        _read_limit("max_bytes", named, bytes_in, bytes_hint(), error),
    )


def connector_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are neither fields of a `Source` nor the connector's name.

    Passwords and other secrets are masked when shown.
    """
    return {key: wrap_secret(key, value) for key, value in options.items() if _plain(key) not in _OURS}


def changes_of(
    options: Mapping[str, str], columns: Sequence[Column], error: OptionError, *, keyed: bool
) -> ChangeColumn | None:
    """Return the column of the records that tells inserts from deletes.

    See `spec.options.changes`.
    """
    named = {_CHANGES[_plain(key)]: value for key, value in options.items() if _plain(key) in _CHANGES}
    return change_column(named, columns, error, keyed=keyed)


def change_option(options: Mapping[str, str]) -> str | None:
    """Return the name of the column that says what becomes of rows, in small letters."""
    names = ("op_column", "diff_column")
    return next((value.strip().lower() for key, value in options.items() if _plain(key) in names), None)


COLUMNS = "columns"
"""``'columns' = 'infer'``: names and types are read from the files."""


def infers_columns(options: Mapping[str, str], error: OptionError) -> bool:
    """Return True if columns that are not declared are to be inferred."""
    written = next((value for key, value in options.items() if _plain(key) == COLUMNS), None)
    if written is not None and written.strip().lower() != "infer":
        raise error(
            f"option '{COLUMNS}' is '{public_option(COLUMNS, written)}'",
            "use 'infer', or declare the columns: (name type, …)",
        )
    return written is not None


_CHANGES = {name.replace(".", "_"): name for name in OPTIONS}
_OURS = (
    "connector", COLUMNS, *(field.name.removesuffix("_us") for field in fields(SourceFields)), *_CHANGES
)  # fmt: skip


def is_same_option(one: str, other: str) -> bool:
    """Return True if two names denote the same option.

    The engine's own options may be written with - and . instead of _.
    """
    if _plain(one) in _OURS:
        return _plain(one) == _plain(other)
    return one.lower() == other.lower()


def _plain(key: str) -> str:
    return key.lower().replace("-", "_").replace(".", "_")


def _partitions(written: str | None) -> tuple[str, ...]:
    """Split a comma-separated list of partition names; a single number N gives 0, 1, … N - 1."""
    if not written:
        return ()
    if written.strip().isdigit():
        return tuple(str(number) for number in range(int(written)))
    return tuple(name.strip() for name in written.split(",") if name.strip())


def _duration(name: str, named: Mapping[str, str], default: int | None, error: OptionError) -> int | None:
    written = named.get(name)
    if written is None:
        return default
    if written.strip().lower() in ("off", "none", "never"):
        return None
    try:
        value = duration_us(written)
    except SqlError as cause:
        message = without_value(cause.message, name, written)
        raise error(f"option '{name}': {message}", cause.hint) from cause
    if value <= 0:
        raise error(f"option '{name}' must be above zero", "write it like '10 seconds', or 'off'")
    return value


def _one_of(
    kind: type[Choice], name: str, named: Mapping[str, str], default: Choice, error: OptionError
) -> Choice:
    written = named.get(name)
    if written is None:
        return default
    try:
        return kind(written.strip().lower())
    except ValueError:
        words = " or ".join(f"'{one.value}'" for one in kind)
        raise error(f"option '{name}' is '{public_option(name, written)}'", f"it can be {words}") from None


def _changes(written: str | None, error: OptionError) -> str | None:
    """Read the option 'changes': SNAPSHOT, or None if it is not set.

    With SNAPSHOT, each complete read is compared with the previous one to find the changes.
    """
    if written is None or written.strip().lower() == SNAPSHOT:
        return None if written is None else SNAPSHOT
    raise error(
        f"option 'changes' is '{public_option('changes', written)}'",
        f"use '{SNAPSHOT}' to compare each read with the one before; if the records are changes, use"
        " 'op.column', 'diff.column' or a format for changes",
    )


def _rows_per_second(named: Mapping[str, str], connector: str, error: OptionError) -> float | None:
    """Return the expected rows per second, used only for forecasts; of a generator, its rate."""
    written = named.get("rows_per_second")
    if connector_of(connector).own_rate:
        if written is not None:
            raise error(
                "a generator has no option 'rows_per_second'", "use 'rate' for the number of rows per second"
            )
        return _above_zero(named.get("rate", GENERATOR_ROWS_PER_SECOND))
    if written is None:
        return None
    value = _above_zero(written)
    if value is None:
        shown = public_option("rows_per_second", written)
        raise error(f"option 'rows_per_second' is '{shown}'", "use a number above zero, such as '5000'")
    return value


def _read_limit(
    name: str, named: Mapping[str, str], read: Callable[[str], int | None], hint: str, error: OptionError
) -> int | None:
    """Read a limit from an option; None: there is no limit."""
    written = named.get(name, "none")
    value = read(written)
    if value is None and not is_none(written):
        raise error(f"option '{name}' is '{public_option(name, written)}'", hint)
    return value


def _read_refresh(named: Mapping[str, str], connector: str, error: OptionError) -> int | None:
    """Return the interval at which a table is reread."""
    if "refresh" in named and connector_of(connector).refresh_us is None:
        raise error(
            f"a {connector} source has no option 'refresh'", "remove it: it is for tables of files and jdbc"
        )
    return _duration("refresh", named, None, error)


def _above_zero(written: str) -> float | None:
    """Parse a finite number above zero; return None for any other text."""
    try:
        value = float(written.strip())
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


# ``'changes' = 'snapshot'`` in a declaration: of which sources it can be said, and what goes with it.


def is_snapshot_source(
    name: str,
    connector: str,
    change: ChangeColumn | None,
    told_by_format: str | None,
    times: Sequence[EventTime],
    fields: SourceFields,
    error: OptionError,
) -> bool:
    """Return True if the changes of the source ``name`` are differences between complete reads.

    Args:
        told_by_format: The format whose records already are changes, if the source has one.
        error: Builds a problem of the statement from a message and a hint.

    Raises:
        SqlError: Another option of the source contradicts 'changes' = 'snapshot'.
    """
    if fields.changes != SNAPSHOT:
        return False
    said = f"\"{name}\" has 'changes' = '{SNAPSHOT}'"
    if not connector_of(connector).tables:
        others = ", ".join(named for named, traits in CONNECTORS.items() if traits.tables)
        raise error(
            f"{said}, but a {connector} source is never read completely",
            f"use it with sources that are read completely ({others})",
        )
    leave = "leave {} out".format
    of_column, of_format = "'op.column' and 'diff.column'", f"records of format {told_by_format}"
    also = [
        (change is not None, "a column that tells inserts from deletes", leave(of_column)),
        (told_by_format is not None, f"{of_format}, which already are changes", leave("'changes'")),
        (
            bool(times),
            "WATERMARK FOR, but a source that is read again completely is not a stream",
            leave("WATERMARK FOR"),
        ),
        (
            fields.sequence_by is not None,
            f"'{SEQUENCE}', which a snapshot does not need",
            leave(f"'{SEQUENCE}'"),
        ),
        (
            fields.tombstones is not None,
            f"'{TOMBSTONES}', which a snapshot does not need",
            leave(f"'{TOMBSTONES}'"),
        ),
        (bool(fields.partitions), "'partitions', but it is read completely", leave("'partitions'")),
        (fields.idle_timeout_us is not None, "'idle_timeout', which is for streams", leave("'idle_timeout'")),
    ]
    for there, what, hint in also:
        if there:
            raise error(f"{said} and {what}", hint)
    return True
