"""Refusals of tables that are joined as if they were streams, each with what can be run instead."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.nodes.tree import JoinNode
from watersmeet.spec.changing import STREAM_WITH_CHANGES
from watersmeet.spec.model import Branch, Clause, Input, JoinKind

AS_OF = "FOR SYSTEM_TIME AS OF PROCTIME()"
_OF_VIEWS = "; replace … with the name of a view: a subquery needs one (CREATE VIEW)"
_WHOLE = "'changes' = 'snapshot'"


def is_whole_table(i: Input) -> bool:
    """Return True if rows of a stream can meet the input as a table: it has no event time and an end."""
    if i.as_of or i.event_times or len(i.branches) != 1:
        return False
    (branch,) = i.branches
    return (
        isinstance(branch, Branch)
        and branch.source.traits.tables
        and not branch.source.event_times
        and not branch.source.changes
    )


def read_as_of(table: Input) -> str:
    """Return how FROM names a table whose rows a stream meets: ``items FOR SYSTEM_TIME AS OF … AS k``."""
    name, alias = source_name(table), quoted(table.alias.rpartition(".")[2])
    return f"{name} {AS_OF}" + ("" if name == alias else f" AS {alias}")


def in_python(table: Input) -> str:
    """Return the same for the calls of relations."""
    return f"in Python: .join({table.alias.rpartition('.')[2]}.as_of(), …)"


def refuse_whole_table(table: Input, node: JoinNode, side: Side) -> PlanError:
    """Refuse a table without an event time as a side of a join of streams."""
    others = node.inputs(side.other)
    if all(other.is_table for other in others):
        changing = others[0].alias
        return PlanError(
            f'"{table.alias}" is a table without changes, joined with the changing table "{changing}":'
            " its rows could never be dropped, so state would grow without limit",
            code="unbounded-state",
            hint=f'declare "{table.alias}" with {_WHOLE}: table(…, changes=True) in Python;'
            f" {_snapshot(table)}",
        )
    time = next((column.name for column in table.columns if column.type.is_time), "…")
    return PlanError(
        f'"{table.alias}" has no event time, so it is a table and not a stream: rows joined with it could'
        " never be dropped, and state would grow without limit",
        code="unbounded-state",
        hint=f"for a stream declare WATERMARK FOR {time} AS {time} - INTERVAL '10' SECONDS; for a table write"
        f" {_written(table, node, side)} ({in_python(table)})" + _OF_VIEWS * (source_name(table) == "…"),
    )


def refuse_changing_table(rows: str, names: str, times: str, table: Input) -> PlanError:
    """Refuse a join of a stream with a table that changes.

    Args:
        rows: the stream, or the join beneath, whose rows would be kept: in words.
        names: its inputs; ``times``: their event times, in words.
        table: the other side.
    """
    return PlanError(
        f'{STREAM_WITH_CHANGES}: a row of the table "{table.alias}" may arrive at any time, so rows of'
        f" {rows} could never be dropped and state would grow without limit; {times}",
        code="unbounded-state",
        hint=f"declare the changes of {table.alias} as a stream, with WATERMARK FOR, and use ASOF JOIN."
        f" Or declare {names} as changing tables, too: without event times, and with 'op.column',"
        " 'diff.column' or a PRIMARY KEY",
    )


def _snapshot(table: Input) -> str:
    (branch,) = table.branches
    assert isinstance(branch, Branch)
    return f"in SQL: CREATE TABLE {quoted(branch.source.name)} (…) WITH (…, {_WHOLE})"


def _written(table: Input, node: JoinNode, side: Side) -> str:
    """Return the join that can be run in place of this one."""
    if node.asked.clause is Clause.EXISTS and side is Side.RIGHT:
        return f"FROM {read_as_of(table)} in the sub-query"
    stream = ""
    if side is Side.LEFT:
        other = node.inputs(Side.RIGHT)
        stream = f"{quoted(other[0].alias)} " if len(other) == 1 and "." not in other[0].alias else "… "
    return f"{stream}{_kind(node, side)} {read_as_of(table)} ON …"


def _kind(node: JoinNode, side: Side) -> str:
    """Return the kind of join; rows of a table do not come, so none of them is padded."""
    if node.kind in (JoinKind.SEMI, JoinKind.ANTI) and side is Side.RIGHT:
        return f"{node.kind.value} JOIN"
    return "LEFT JOIN" if node.padded(side.other) else "JOIN"


def source_name(i: Input) -> str:
    """Return the name of an input's source, or … where FROM names a view, a sub-query or a join of it."""
    branch = i.branches[0]
    if len(i.branches) > 1 or not isinstance(branch, Branch):
        return "…"
    rows = branch.source.row_columns
    whole = [column.name for column in rows] == [column.name for column in i.columns]
    own = all(
        isinstance(expr, exp.Column) and expr.name == column.name
        for expr, column in zip(branch.columns, rows, strict=False)
    )
    filtered = branch.beneath is not None or branch.above is not None
    return quoted(branch.source.name) if whole and own and not filtered else "…"


def quoted(name: str) -> str:
    """Return a name as SQL, each of its parts in quotes where it needs them."""
    return ".".join(exp.to_identifier(part).sql("spark") for part in name.split("."))
