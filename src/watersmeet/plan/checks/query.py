"""Reject queries that cannot be run: modes, names, groups, tables."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.names import CHANGE_COLUMNS, is_node_alias
from watersmeet.plan.checks.limits import check_per_key_of_changes
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.nodes.aggregate import RETRACTABLE_FUNCTIONS, WITHOUT_ORDER
from watersmeet.plan.nodes.columns import changing
from watersmeet.plan.nodes.tree import JoinNode, Tree
from watersmeet.plan.query_inputs import JoinInputs, name_of
from watersmeet.spec.aggregates import Ranking, call_of
from watersmeet.spec.change_kinds import STREAM_WITH_CHANGES
from watersmeet.spec.model import (
    Aggregation,
    Branch,
    Clause,
    Expr,
    Input,
    JoinKind,
    OnIdle,
    Options,
    OutputColumn,
    OutputMode,
    Query,
    Sink,
)

# Refusals of tables that are joined as if they were streams, each with what can be run instead.

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
    name, alias = source_name(table), quote_dotted_name(table.alias.rpartition(".")[2])
    return f"{name} {AS_OF}" + ("" if name == alias else f" AS {alias}")


def python_hint(table: Input) -> str:
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
        f" {_runnable_join(table, node, side)} ({python_hint(table)})"
        + _OF_VIEWS
        * (source_name(table) == "…"),
    )


def refuse_changing_table(rows: str, names: str, times: str, table: Input) -> PlanError:
    """Build the error for a join of a stream with a changing table.

    Args:
        rows: Description of the stream, or of the join below, whose rows state would retain.
        names: Its inputs.
        times: Description of the event times of these inputs.
        table: The other side.
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
    return f"in SQL: CREATE TABLE {quote_dotted_name(branch.source.name)} (…) WITH (…, {_WHOLE})"


def _runnable_join(table: Input, node: JoinNode, side: Side) -> str:
    """Return the join that can be run in place of this one."""
    if node.asked.clause is Clause.EXISTS and side is Side.RIGHT:
        return f"FROM {read_as_of(table)} in the sub-query"
    stream = ""
    if side is Side.LEFT:
        other = node.inputs(Side.RIGHT)
        stream = (
            f"{quote_dotted_name(other[0].alias)} " if len(other) == 1 and "." not in other[0].alias else "… "
        )
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
    return quote_dotted_name(branch.source.name) if whole and own and not filtered else "…"


def quote_dotted_name(name: str) -> str:
    """Return a name as SQL, each of its parts in quotes where it needs them."""
    return ".".join(exp.to_identifier(part).sql("spark") for part in name.split("."))


# Rules about a query as a whole: updates in append mode, output names, idle inputs that follow.


def check_query(outputs: Sequence[OutputColumn], sink: Sink, options: Options, tree: Tree) -> list[PlanError]:
    """Check everything in a query that does not depend on its kind of join."""
    inputs = JoinInputs(tree.inputs, time_zone=options.time_zone)
    return [
        *_check_final_output(tree),
        *check_per_key_of_changes(options, tree),
        *_names(outputs, sink),
        *_our_names(outputs, options, inputs),
        *_follow(inputs),
        *_check_tables_as_streams(inputs),
    ]


def _check_final_output(tree: Tree) -> list[PlanError]:
    """Return an error if final rows are requested but the query's rows can be retracted.

    Final results need windows that close over all rows that can be retracted.
    """
    taken_back = [i for part in tree.every if not part.changes for i in changing(part.query.inputs)]
    if not taken_back:
        return []
    names = ", ".join(f'"{i.alias}"' + (" (a table)" if i.is_table else "") for i in taken_back)
    return [
        PlanError(
            f"EMIT FINAL is not possible: rows of {names} can be retracted, so no result is final",
            code="append-of-updates",
            hint="write EMIT CHANGES (output_mode changelog), which emits inserts and deletes"
            + _WINDOWS * any(i.event_times for i in taken_back),
        )
    ]


_WINDOWS = "; or group over windows, whose results are final when they close"


def _check_tables_as_streams(inputs: JoinInputs) -> list[PlanError]:
    """Return an error per table that the query reads as a stream."""
    errors = []
    for i in inputs.in_order:
        source = next(
            (s for s in i.sources if (s.traits.snapshot or s.refresh_us is not None) and not s.compared), None
        )
        if source is None or i.as_of:
            continue
        why = "a table of a database" if source.traits.snapshot else "a table (option 'refresh')"
        errors.append(
            PlanError(
                f'"{source.name}" ({i.alias}) is {why}, which cannot be read as a stream',
                code="not-a-stream",
                hint=f"join it as of the arrival of each row: stream JOIN {read_as_of(i)} ON …;"
                f" {python_hint(i)}",
            )
        )
    return errors


def _names(outputs: Sequence[OutputColumn], sink: Sink) -> list[PlanError]:
    if not sink.needs_unique_names or sink.columns is not None:
        return []
    named: dict[str, list[OutputColumn]] = {}
    for output in outputs:
        named.setdefault(output.name.lower(), []).append(output)
    return [
        PlanError(
            f'the sink "{sink.name}" needs unique names, but "{own[-1].name}" comes from'
            f" {' and '.join(output.origin for output in own)}",
            code="duplicate-column",
            hint=f"rename one of them: {own[-1].origin} AS {own[-1].name}_2",
        )
        for own in named.values()
        if len(own) > 1
    ]


def _our_names(outputs: Sequence[OutputColumn], options: Options, inputs: JoinInputs) -> list[PlanError]:
    """Return an error per user-defined name that collides with a reserved name."""
    errors = [
        PlanError(
            f'the alias "{i.alias}" is reserved: #1, #2, … are the names of joins',
            code="reserved-name",
            hint="use another alias",
        )
        for i in inputs.in_order
        if is_node_alias(i.alias)
    ]
    if options.output_mode is OutputMode.CHANGELOG:
        errors += [
            PlanError(
                f'the column name "{output.name}" ({output.origin}) is reserved: in output_mode'
                " changelog results have the columns _diff and _tick",
                code="reserved-name",
                hint=f"rename it: {output.origin} AS {output.name}_2",
            )
            for output in outputs
            if output.name.lower() in CHANGE_COLUMNS
        ]
    joined: dict[str, str] = {}
    for i in inputs.in_order:
        for column in i.columns:
            name, owner = joined_name(i.alias, column.name), f'column "{column.name}" of "{i.alias}"'
            other = joined.setdefault(name, owner)
            if other != owner:
                errors.append(
                    PlanError(
                        f"{other} and {owner} both have the name {name}",
                        code="reserved-name",
                        hint="give one input an alias without a dot",
                    )
                )
    return errors


def _follow(inputs: JoinInputs) -> list[PlanError]:
    following = [s for i in inputs.in_order for s in i.sources if s.on_idle is OnIdle.FOLLOW]
    times = [(i.alias, column) for i in inputs.in_order if i.sources for column in i.event_times]
    if not following or len({inputs.unit(ref).is_time for ref in times}) < 2:
        return []
    return [
        PlanError(
            f"on_idle = 'follow' is not possible for \"{following[0].name}\": the event times of the"
            " inputs have different units"
            f" ({', '.join(f'{name_of(ref)} {inputs.column(ref).type}' for ref in times)})",
            code="follow-units",
            hint="remove on_idle = 'follow', or cast the event times to the same type",
        )
    ]


# Rule: which groups and rankings over all rows can be run, and what to write instead of the others.

_EMIT = "write EMIT CHANGES (SET output_mode = changelog)"
_ENDS = ("window_start", "window_end")
_MAX_KEYS = 60
"""Characters of keys in a hint."""


def check_groups(query: Query, asked: Aggregation, *, is_final: bool) -> list[PlanError]:
    """Refuse groups over all rows whose results would never be final, and aggregates that have no retraction.

    Args:
        query: groups its rows as ``asked``.
        is_final: results may not be taken back.
    """
    stream = next((i for i in query.inputs if not i.is_table), None)
    if asked.ranking is not None and stream is not None and not is_whole_table(stream):
        return [_ranked_stream(asked, asked.ranking, stream, is_final=is_final)]
    if is_final and asked.ranking is not None:
        return [
            PlanError(
                f"{asked.ranking.text}: a later row may change the ranking, but output_mode append"
                " cannot retract results",
                code="unbounded",
                hint=_EMIT if stream is None else instead_of_groups(stream),
            )
        ]
    if is_final:
        return [
            PlanError(
                f"{asked.clause} over {_describe_input(stream)} has no final result without a window",
                code="unbounded",
                hint=instead_of_groups(stream, _keys(asked)),
                location=asked.location,
            )
            if stream is not None
            else PlanError(
                f"{asked.clause} over changing rows has no final result in output_mode append",
                code="unbounded",
                hint=_EMIT,
                location=asked.location,
            )
        ]
    return [
        PlanError(
            f"{text_of(aggregate.expr)} is not supported yet where rows of a group can be retracted",
            code="not-yet",
            hint="use count, sum, avg, min, max, min_by, max_by, any_value, bool_and, bool_or, bit_and"
            " or bit_or",
        )
        for aggregate in asked.aggregates
        if not (call := call_of(aggregate.expr)).plain
        or call.function not in RETRACTABLE_FUNCTIONS | set(WITHOUT_ORDER)
    ]


def _describe_input(stream: Input) -> str:
    """Return how messages name an input whose rows are grouped."""
    name = source_name(stream)
    kind = "the table" if is_whole_table(stream) else "the stream"
    return f'{kind} "{stream.alias if name == "…" else name}"'


def _keys(asked: Aggregation) -> list[str]:
    """Return what rows are grouped by, as SQL; "…" in place of many."""
    keys = [_stream_sql(key.expr) for key in asked.keys]
    return keys if len(", ".join(keys)) <= _MAX_KEYS else ["…"]


def instead_of_groups(stream: Input, keys: Sequence[str] = ("…",)) -> str:
    """Return what to write in place of groups over all rows of a stream."""
    name = source_name(stream)
    if is_whole_table(stream):
        return f"declare {name} with 'changes' = 'snapshot': a changing table can be grouped"
    changing = f"; or declare {name} as a changing table, and write EMIT CHANGES"
    return f"group by a window: {_by_window(stream, keys)}{'' if stream.event_times else changing}"


def _by_window(stream: Input, keys: Sequence[str]) -> str:
    """Return FROM and GROUP BY of windows over a stream, as SQL."""
    time, size = "event_time", "INTERVAL '10' MINUTES"
    if stream.event_times:
        time = stream.event_times[0]
        column = stream.column(time)
        if column is not None and column.type.is_integer:
            size = "10"
    by = ", ".join((*_ENDS, *keys))
    return (
        f"FROM TABLE(TUMBLE(TABLE {source_name(stream)}, "
        f"DESCRIPTOR({quote_dotted_name(time)}), {size})) GROUP BY {by}"
    )


def _ranked_stream(asked: Aggregation, ranking: Ranking, stream: Input, *, is_final: bool) -> PlanError:
    why = "a later row may change the ranking, but output_mode append cannot retract results"
    if not is_final:
        why = "a row of any partition may still arrive, so state could never be dropped"
    return PlanError(
        f"{ranking.text} over a stream, to remove duplicates or to rank rows, is not supported yet: {why}",
        code="unbounded",
        hint=f"select one row per key and window: {_one_per_window(asked, ranking, stream)}",
    )


def _one_per_window(asked: Aggregation, ranking: Ranking, stream: Input) -> str:
    """Return a SELECT of the first row of each partition in each window."""
    columns = {key.name: key.expr for key in asked.keys}
    keys = [_stream_sql(columns[name]) for name in ranking.partition]
    first = ranking.order[0]
    function = "max_by" if first.descending else "min_by"
    by = _stream_sql(columns[first.name])
    others = [name for name in columns if name not in ranking.partition]
    firsts = [
        f"{_first(function, _stream_sql(columns[name]), by)} AS {quote_dotted_name(name)}" for name in others
    ]
    return f"SELECT {', '.join((*_ENDS, *keys, *firsts))} {_by_window(stream, keys)}"


def _first(function: str, column: str, by: str) -> str:
    """Return the aggregate that gives a column of the first row."""
    return f"{function.removesuffix('_by')}({by})" if column == by else f"{function}({column}, {by})"


def _stream_sql(expr: Expr) -> str:
    """Return an expression as SQL over the stream alone, without its alias."""
    bare = expr.transform(
        lambda node: exp.column(exp.to_identifier(node.name)) if isinstance(node, exp.Column) else node
    )
    return bare.sql("spark")
