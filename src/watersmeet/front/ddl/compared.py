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
            f"{said}, and a {connector} source is never read as a whole",
            f"it can be said of what has an end ({others})",
        )
    leave = "leave {} out".format
    of_column, of_format = "'op.column' and 'diff.column'", f"records of format {told_by_format}"
    also = [
        (change is not None, "a column that says what becomes of rows", leave(of_column)),
        (told_by_format is not None, f"{of_format}, which are changes", leave("'changes'")),
        (bool(times), "WATERMARK FOR: what is read again and again is not a stream", leave("WATERMARK FOR")),
        (fields.sequence_by is not None, f"'{SEQUENCE}': what is there counts", leave(f"'{SEQUENCE}'")),
        (fields.tombstones is not None, f"'{TOMBSTONES}': what is gone is deleted", leave(f"'{TOMBSTONES}'")),
        (bool(fields.partitions), "'partitions': it is read as a whole", leave("'partitions'")),
        (fields.idle_timeout_us is not None, "'idle_timeout', which is of streams", leave("'idle_timeout'")),
    ]
    for there, what, hint in also:
        if there:
            raise error(f"{said} and {what}", hint)
    return True
