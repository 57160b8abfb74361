"""``JOIN t FOR SYSTEM_TIME AS OF …``: a table that every row of a stream meets as it is in the row's tick.

Behind AS OF stands PROCTIME(), now() or CURRENT_TIMESTAMP. Anything else is refused: an event time, as in
Flink, would ask for the row that was valid then, and no history of such a table is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.front.query.flow import Flow, table_of
from watersmeet.front.query.joined import Joined
from watersmeet.front.text.place import Text
from watersmeet.spec.changing import STREAM_WITH_CHANGES
from watersmeet.spec.model import Input, Query, Relation, Source, inputs_of

Reader = Callable[[exp.Expression], tuple[Flow | Joined, str | None]]
"""A FROM item as columns and ways or joins, and its name."""

_CLOCK = ("proctime", "now")
_AS_IT_IS = "each row is joined with the table as of its tick"


def is_as_of(item: exp.Expression) -> bool:
    """Is the FROM item a table with FOR SYSTEM_TIME AS OF (or TIMESTAMP AS OF, VERSION AS OF)?"""
    return isinstance(item, exp.Table) and item.args.get("version") is not None


def written_version(item: exp.Table) -> str:
    kind = item.args["version"].name.upper()
    return "FOR SYSTEM_TIME AS OF" if kind == "TIMESTAMP" else f"{kind} AS OF"


def table_as_of(item: exp.Table, read: Reader, text: Text, left: Relation) -> Input:
    """Return the table as an input.

    Args:
        read: reads the item without its version.
        left: the relation whose rows meet it.

    Raises:
        SqlError: it is no table, or none that is read as a whole.
    """
    _check_version(item, text)
    plain = item.copy()
    plain.set("version", None)
    flow, alias = read(plain)
    name = alias or item.name
    if isinstance(flow, Joined) or len(flow.ways) != 1 or isinstance(flow.ways[0].origin, Query):
        raise text.not_supported(
            f'"{item.name}" FOR SYSTEM_TIME AS OF, which is more than one table, is',
            item,
            "join its tables one after the other, each with FOR SYSTEM_TIME AS OF PROCTIME()",
        )
    source = flow.ways[0].origin
    _check_source(source, flow, item, text, left)
    return table_of(flow, name)


def _check_source(source: Source, flow: Flow, item: exp.Table, text: Text, left: Relation) -> None:
    times = [time.column for time in source.event_times] or [flow.columns[n].name for n in flow.event_times]
    if times:
        raise text.error(
            f'"{item.name}" is a stream: it has the event time {", ".join(times)}',
            "not-a-table",
            item,
            f'use ASOF JOIN to join the newest row of another stream; or declare "{item.name}" as a'
            " table, without WATERMARK FOR",
        )
    by_format = source.changes and source.traits.files
    if source.compared:
        raise text.error(
            f"\"{item.name}\" has 'changes' = 'snapshot', so it cannot be joined FOR SYSTEM_TIME AS OF",
            "not-a-table",
            item,
            "remove FOR SYSTEM_TIME AS OF, or declare the table without 'changes'",
        )
    if source.change_column is not None or source.primary_key is not None or by_format:
        raise _changing(item, text, left)
    if not source.traits.tables:
        raise text.error(
            f'"{item.name}" cannot be read as a table: a {source.connector} source is never read completely',
            "not-a-table",
            item,
            "use files (TYPE File) or a database table (TYPE Jdbc)",
        )


def _changing(item: exp.Table, text: Text, left: Relation) -> SqlError:
    """Return the refusal of a table whose records are changes."""
    hint = "remove FOR SYSTEM_TIME AS OF: results then follow the table's changes"
    if any(i.event_times for i in inputs_of(left)):
        hint = (
            f"declare the changes of {item.name} as a stream, with WATERMARK FOR, and use ASOF JOIN,"
            f" which joins the row valid at that time: {STREAM_WITH_CHANGES}"
        )
    return text.not_supported(
        f'"{item.name}" FOR SYSTEM_TIME AS OF with a table whose records are changes is', item, hint
    )


def _check_version(item: exp.Table, text: Text) -> None:
    version = item.args["version"]
    if version.name.upper() != "TIMESTAMP" or str(version.args.get("kind")).upper() != "AS OF":
        raise text.not_supported(
            f"{written_version(item)} is", item, f"write FOR SYSTEM_TIME AS OF PROCTIME(): {_AS_IT_IS}"
        )
    asked = version.expression
    if isinstance(asked, exp.CurrentTimestamp):
        return
    if isinstance(asked, exp.Anonymous) and asked.name.lower() in _CLOCK and not asked.expressions:
        return
    raise text.not_supported(
        f"FOR SYSTEM_TIME AS OF {asked.sql('spark')}, the table as it was then, is",
        item,
        f"write PROCTIME(): {_AS_IT_IS}; or declare the table's changes as a stream, with WATERMARK"
        " FOR, and use ASOF JOIN for the row valid at an event time",
    )
