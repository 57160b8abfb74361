"""TUMBLE, HOP and SESSION in FROM: the window, and the rows that it is laid over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.ddl.quantities import duration_us, whole_number_in
from watersmeet.parser.query.expressions.checks import check_expression
from watersmeet.parser.query.flow import Flow, JoinedView, input_of
from watersmeet.parser.query.scope import (
    NamedRelation,
    Scope,
    column_node,
    hidden_hint,
    resolve_columns,
)
from watersmeet.parser.text.dialect import WindowTable
from watersmeet.parser.text.source_position import Text
from watersmeet.spec.model import (
    WINDOW_END,
    WINDOW_START,
    Column,
    Expr,
    Input,
    Query,
    Relation,
    Source,
    StageBranch,
    Window,
    WindowKind,
    inputs_of,
)
from watersmeet.types.sql_type import BIGINT, DATE, INTEGERS, TIMESTAMP, UNKNOWN, SqlType

Reader = Callable[[exp.Expression], tuple[Flow | JoinedView, str | None]]
"""A FROM item as columns and ways or joins, and its name."""

WINDOW_COLUMNS = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True)
class WindowedRows:
    """Rows of ``relation``, each assigned to its windows.

    ``named``: the columns that a SELECT over it can mention: those of the relation, and window_start
    and window_end, which have no input. ``unclear``: window_start or window_end, if the relation has
    a column of that name that is not the bound of an inner window.
    """

    relation: Relation
    named: NamedRelation
    window: Window
    partition: tuple[exp.Expression, ...]
    unclear: frozenset[str] = frozenset()

    @property
    def scope(self) -> Scope:
        return Scope((self.named,))

    def condition(self, select: exp.Select, text: Text) -> Expr | None:
        """Return the WHERE condition; report its problems and ambiguous names."""
        self._check_names(select, text)
        where = select.args.get("where")
        if where is None or not check_expression(where.this, text, repeatable=True):
            return None
        condition = resolve_columns(where.this, self.scope, text, "WHERE")
        for column in condition.find_all(exp.Column):
            if not column.table and column.name in WINDOW_COLUMNS and column.name not in self.unclear:
                text.problem(
                    f'"{column.name}" cannot be used in WHERE, which runs before rows are grouped',
                    "not-supported",
                    where.this,
                    "move the condition to HAVING",
                )
                break
        return condition

    def _check_names(self, select: exp.Select, text: Text) -> None:
        """Report names that may mean a column of the rows or a bound of the window, once each."""
        if not self.unclear:
            return
        clauses = [select.args.get(clause) for clause in ("where", "group", "having")]
        told = set[str]()
        for tree in (*select.expressions, *(clause for clause in clauses if clause is not None)):
            for column in tree.find_all(exp.Column):
                name = self._unclear_name(column)
                if name is None or name.lower() in told or column.meta.get(OF_WINDOW):
                    continue
                told.add(name.lower())
                end = name.lower().removeprefix("window_")
                text.problem(
                    f'"{name}" is ambiguous: it is a column of the rows and the {end} of their window',
                    "ambiguous-column",
                    column,
                    f"rename the column before the window function, {name} AS own_{name.lower()}, in a"
                    " view, a subquery or select(…)",
                )

    def _unclear_name(self, column: exp.Column) -> str | None:
        """Return the ambiguous name in a column as written, or None."""
        first, *rest = (part.name for part in column.parts)
        if rest and first.lower() == self.named.alias.lower():
            first = rest[0]
        return first if first.lower() in self.unclear else None


OF_WINDOW = "of_window"
"""In the meta of a column that nobody wrote: it is the window's."""


def window_in(item: exp.Expression) -> WindowTable | None:
    """Return the window function of a FROM item, with or without TABLE(…) around it, or None."""
    inner = item.this if isinstance(item, exp.Table) else item
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "TABLE" and len(inner.expressions) == 1:
        inner = inner.expressions[0]
    return inner if isinstance(inner, WindowTable) else None


def apply_window(table: WindowTable, alias: str, read: Reader, text: Text) -> WindowedRows:
    """Apply a window function and return the windowed rows.

    Args:
        alias: The alias of the FROM item; "" if it has none.
        read: Reads the relation that the function splits into windows.

    Raises:
        SqlError: The window function has an error.
    """
    flow, own = read(table.this)
    name = alias or own or ("" if isinstance(flow, JoinedView) else table.args["function"].lower())
    relation, columns, values = _relation(flow, name)
    sources = () if isinstance(flow, JoinedView) else flow.sources
    position = _position(table, columns, sources, text)
    time, column = values[position], columns[position]
    if not _is_event_time(time, relation):
        _refuse_time(table, column, relation, text)
    window = _window(table, time, column, text)
    kind = window_type(column.type)
    kept = [n for n, flow_column in enumerate(columns) if flow_column.name.lower() not in WINDOW_COLUMNS]
    named = NamedRelation(
        name,
        (*(columns[n] for n in kept), *(Column(window_column, kind) for window_column in WINDOW_COLUMNS)),
        (*(values[n] for n in kept), *(column_node(window_column) for window_column in WINDOW_COLUMNS)),
        relation,
        sources,
    )
    unclear = frozenset(
        c.name.lower()
        for c, value in zip(columns, values, strict=True)
        if c.name.lower() in WINDOW_COLUMNS and not _is_of_windows(value, relation)
    )
    return WindowedRows(relation, named, window, tuple(table.args.get("partition") or ()), unclear)


def _is_of_windows(value: Expr, relation: Relation) -> bool:
    """Return True if a column is the start or end of inner windows."""
    if not isinstance(value, exp.Column):
        return False
    own = next((i for i in inputs_of(relation) if i.alias == value.table), None)
    if own is None:
        return False
    place = [column.name for column in own.columns].index(value.name)
    return all(
        isinstance(branch, StageBranch) and _is_made_by_windows(branch.columns[place], branch.stage)
        for branch in own.branches
    )


def _is_made_by_windows(column: Expr, stage: Query) -> bool:
    made = next((output.expr for output in stage.outputs if output.name == column.name), None)
    if made is None or stage.aggregation is None:
        return made is not None and _is_of_windows(made, stage.relation)
    return isinstance(made, exp.Column) and made.name in stage.aggregation.event_times


def _relation(flow: Flow | JoinedView, name: str) -> tuple[Relation, tuple[Column, ...], tuple[Expr, ...]]:
    if isinstance(flow, JoinedView):
        inner = flow.with_alias(name)
        return inner.relation, inner.columns, inner.values
    source_input = input_of(flow, name)
    return source_input, flow.columns, tuple(column_node(column.name, name) for column in flow.columns)


def _position(table: WindowTable, columns: tuple[Column, ...], sources: Sequence[Source], text: Text) -> int:
    wanted: exp.Identifier = table.args["column"]
    names = [column.name for column in columns]
    lowered = [name.lower() for name in names]
    if wanted.name.lower() not in lowered:
        function = table.args["function"]
        message = f'{function}: unknown column "{wanted.name}"'
        hint = hidden_hint(wanted.name, sources) or near_names(wanted.name, names)
        raise text.error(message, "unknown-column", wanted, hint)
    return lowered.index(wanted.name.lower())


def _is_event_time(time: Expr, relation: Relation) -> bool:
    if not isinstance(time, exp.Column):
        return False
    return any(i.alias == time.table and time.name in i.event_times for i in inputs_of(relation))


def _refuse_time(table: WindowTable, column: Column, relation: Relation, text: Text) -> None:
    function = table.args["function"]
    times = [
        name if isinstance(relation, Input) else f"{i.alias}.{name}"
        for i in inputs_of(relation)
        for name in i.event_times
    ]
    hint = f"its event times are {', '.join(times)}" if times else "it has no event time"
    raise text.error(
        f'{function}: "{column.name}" is not an event time, so windows would never close',
        "no-event-time",
        table.args["column"],
        f"{hint}; declare one with WATERMARK FOR or IMPOSE_ORDER, and select it unchanged in views",
    )


def _window(table: WindowTable, time: Expr, column: Column, text: Text) -> Window:
    function: str = table.args["function"]
    sizes = [_size(size, function, column, text) for size in table.args["sizes"]]
    kind = WindowKind(function)
    if kind is WindowKind.HOP:  # Flink has the slide first, Hazelcast the size; a slide is never the greater
        return Window(kind, time, max(sizes), min(sizes))
    return Window(kind, time, sizes[0], sizes[0] if kind is WindowKind.TUMBLE else 0)


def _size(expr: exp.Expression, function: str, column: Column, text: Text) -> int:
    """Return a size in the time's own unit.

    The size is an interval for TIMESTAMP and DATE, and an integer for integer times.
    """
    what = "gap" if function == "SESSION" else "size"
    number = whole_number_in(expr)
    if number is not None and column.type in INTEGERS:
        size = number
    elif number is not None or column.type in INTEGERS:
        needed = "an integer" if column.type in INTEGERS else "an interval, such as INTERVAL '10' MINUTES"
        raise text.error(
            f'{function}: the {what} for "{column.name}" ({column.type}) must be {needed}',
            "bad-window",
            expr,
        )
    else:
        size = duration_us(expr, text)
    if not 0 < size < 2**63:
        raise text.error(f"{function}: the {what} must be greater than 0", "bad-window", expr)
    return size


def window_type(kind: SqlType) -> SqlType:
    """Return the type of window_start and window_end.

    A bound may exceed the range of a narrow integer type, or fall within a day.
    """
    if kind in INTEGERS:
        return BIGINT
    return TIMESTAMP if kind in (DATE, UNKNOWN) else kind
