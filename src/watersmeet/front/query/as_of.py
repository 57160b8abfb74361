"""``JOIN t FOR SYSTEM_TIME AS OF …``: a table that every row of a stream meets as it is in the row's tick.

What stands behind AS OF says that, and no more: a time of the stream as in Flink, PROCTIME(), now() or
CURRENT_TIMESTAMP. It is not the version of the table that was valid at an event time.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.front.query.flow import Flow, table_of
from watersmeet.front.query.joined import Joined
from watersmeet.front.query.scope import Scope, resolved
from watersmeet.front.text.place import Text
from watersmeet.spec.model import Input, Query, Source, inputs_of
from watersmeet.types.sql_type import INTEGERS, TIMES

Reader = Callable[[exp.Expression], tuple[Flow | Joined, str | None]]
"""A FROM item as columns and ways or joins, and its name."""

_CLOCK = ("proctime", "now", "localtimestamp")
_AS_IT_IS = "every row meets the table as it is in the row's tick"


def is_as_of(item: exp.Expression) -> bool:
    """Is the FROM item a table with FOR SYSTEM_TIME AS OF (or TIMESTAMP AS OF, VERSION AS OF)?"""
    return isinstance(item, exp.Table) and item.args.get("version") is not None


def written_version(item: exp.Table) -> str:
    kind = item.args["version"].name.upper()
    return "FOR SYSTEM_TIME AS OF" if kind == "TIMESTAMP" else f"{kind} AS OF"


def table_as_of(item: exp.Table, scope: Scope, read: Reader, text: Text) -> tuple[Flow, Input]:
    """The table, and as an input. Raises: SqlError.

    Args:
        scope: of what stands before it: the rows that meet it.
        read: reads the item without its version.
    """
    _check_version(item, scope, text)
    plain = item.copy()
    plain.set("version", None)
    flow, alias = read(plain)
    name = alias or item.name
    if isinstance(flow, Joined) or len(flow.ways) != 1 or isinstance(flow.ways[0].origin, Query):
        raise text.not_supported(
            f'"{item.name}" FOR SYSTEM_TIME AS OF, which is more than one table, is',
            item,
            "join its tables one after the other, each with FOR SYSTEM_TIME AS OF",
        )
    source = flow.ways[0].origin
    _check_source(source, flow, item, text)
    return flow, table_of(flow, name)


def _check_source(source: Source, flow: Flow, item: exp.Table, text: Text) -> None:
    times = [time.column for time in source.event_times] or [flow.columns[n].name for n in flow.event_times]
    if times:
        raise text.error(
            f'"{item.name}" is a stream: it has the event time {", ".join(times)}',
            "not-a-table",
            item,
            "rows of a stream meet the newest row of another one by ASOF JOIN; a table is declared without"
            " WATERMARK FOR, and read as a whole",
        )
    by_format = source.changes and source.traits.files
    if source.compared:
        raise text.error(
            f"\"{item.name}\" FOR SYSTEM_TIME AS OF: it has 'changes' = 'snapshot', so it is joined as it is",
            "not-a-table",
            item,
            "leave FOR SYSTEM_TIME AS OF out, or declare the table without 'changes'",
        )
    if source.change_column is not None or source.primary_key is not None or by_format:
        raise text.not_supported(
            f'"{item.name}" FOR SYSTEM_TIME AS OF, whose records are changes, is',
            item,
            "join it as it changes: SET output_mode = changelog, and leave FOR SYSTEM_TIME AS OF out",
        )
    if not source.traits.tables:
        raise text.error(
            f'"{item.name}" cannot be read as a table: a {source.connector} source has no end',
            "not-a-table",
            item,
            "tables are files (TYPE File) or what a database holds (TYPE Jdbc)",
        )


def _check_version(item: exp.Table, scope: Scope, text: Text) -> None:
    version = item.args["version"]
    if version.name.upper() != "TIMESTAMP" or str(version.args.get("kind")).upper() != "AS OF":
        raise text.not_supported(
            f"{written_version(item)} is", item, f"write FOR SYSTEM_TIME AS OF …: {_AS_IT_IS}"
        )
    asked = version.expression
    if isinstance(asked, (exp.CurrentTimestamp, exp.Localtimestamp)):
        return
    if isinstance(asked, exp.Anonymous) and asked.name.lower() in _CLOCK and not asked.expressions:
        return
    if isinstance(asked, exp.Column):
        before = len(text.problems)
        node = resolved(asked, scope, text)
        if len(text.problems) > before or _is_time(node, scope):
            return
    raise text.error(
        f"FOR SYSTEM_TIME AS OF {asked.sql('spark')} is no time of the rows that meet the table",
        "not-supported",
        item,
        f"write a time of the stream, PROCTIME() or CURRENT_TIMESTAMP: {_AS_IT_IS}",
    )


def _is_time(node: exp.Expression, scope: Scope) -> bool:
    if not isinstance(node, exp.Column):
        return False
    kind = scope.type_of(node)
    times = [
        (i.alias, name) for named in scope.relations if named.relation for i in inputs_of(named.relation)
        for name in i.event_times
    ]  # fmt: skip
    return kind in TIMES or kind in INTEGERS or (node.table, node.name) in times
