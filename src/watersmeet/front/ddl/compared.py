"""``'changes' = 'snapshot'`` in a declaration: of which sources it can be said, and what goes with it."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.front.ddl.options import SNAPSHOT, OptionError, SourceFields
from watersmeet.spec.changing import ChangeColumn
from watersmeet.spec.connectors import CONNECTORS, connector_of
from watersmeet.spec.model import EventTime
from watersmeet.spec.options.primary_key import SEQUENCE, TOMBSTONES


def compared(
    name: str,
    connector: str,
    change: ChangeColumn | None,
    told_by_format: str | None,
    times: Sequence[EventTime],
    fields: SourceFields,
    error: OptionError,
) -> bool:
    """Whether the source ``name`` changes by what it held before and holds now.

    Args:
        told_by_format: the format whose records tell changes by themselves, if it is one.
        error: a problem of the statement, of a message and a hint.

    Raises:
        SqlError: something else that is said of it does not go with that.
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
