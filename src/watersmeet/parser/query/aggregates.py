"""A SELECT that groups, over windows or over all rows → `spec.Query` with an `Aggregation`.

Every expression of SELECT and HAVING is cut into what is computed per row (keys, arguments of aggregate
functions) and what is computed of a group's result: there, keys and aggregates have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from sqlglot import exp

from watersmeet.errors import Location
from watersmeet.parser.query.expressions.checks import (
    check_expression,
    check_grouped,
    function_name,
    is_closed,
)
from watersmeet.parser.query.inline import substitute_columns
from watersmeet.parser.query.scope import Scope, column_node, resolve_columns
from watersmeet.parser.query.select_list import select_items, spark_name
from watersmeet.parser.query.windows import WINDOW_COLUMNS, window_type
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.types.stored_types import column_of
from watersmeet.spec.aggregates import aggregate_name, is_aggregate
from watersmeet.spec.model import Aggregation, Column, Expr, OutputColumn, Query, Relation, Window

_GROUPINGS = {
    "grouping_sets": "GROUPING SETS",
    "cube": "CUBE",
    "rollup": "ROLLUP",
    "totals": "WITH TOTALS",
    "all": "GROUP BY ALL",
}
_SEVERAL = {exp.Cube: "CUBE", exp.Rollup: "ROLLUP", exp.GroupingSets: "GROUPING SETS"}


class GroupedRows(Protocol):
    """The rows that are grouped: of windows, or of all that FROM names."""

    @property
    def relation(self) -> Relation: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def window(self) -> Window | None: ...

    @property
    def partition(self) -> tuple[exp.Expression, ...]: ...

    def condition(self, select: exp.Select, text: Text) -> Expr | None:
        """Return the WHERE condition; report its problems."""
        ...


@dataclass(frozen=True)
class AllRows:
    """Rows without windows. ``where``: which of them."""

    relation: Relation
    scope: Scope
    where: Expr | None
    window: None = None
    partition: tuple[exp.Expression, ...] = ()

    def condition(self, select: exp.Select, text: Text) -> Expr | None:
        return self.where


def is_grouped(query: exp.Expression) -> bool:
    """Return True if the query is a SELECT that groups.

    It groups by GROUP BY, HAVING, DISTINCT, or an aggregate in its list.
    """
    if not isinstance(query, exp.Select):
        return False
    if any(query.args.get(clause) for clause in ("group", "having", "distinct")):
        return True
    return any(is_aggregate(node) for item in query.expressions for node in item.walk(prune=is_closed))


def grouped_rows(select: exp.Select, rows: AllRows, text: Text, sql: str) -> tuple[Query, tuple[Column, ...]]:
    """Parse a grouping over rows without windows into a query and its columns.

    Raises:
        StatementRejected: ``text`` has the problems.
    """
    if not select.args.get("distinct"):
        return parse_aggregation(select, rows, text, sql)
    before = len(text.problems)
    if select.args["distinct"].args.get("on"):
        text.problems.append(text.not_supported("DISTINCT ON is", select, "group by its columns"))
    plain = select.copy()
    plain.set("distinct", None)
    if is_grouped(plain):
        text.problems.append(text.not_supported("DISTINCT with GROUP BY is", select, "group in a subquery"))
    items = select_items(select, rows.scope, text, repeatable=True)
    if len(text.problems) > before:
        raise StatementRejected
    grouping = Grouping(rows, text, "SELECT DISTINCT", text.place(select))
    outputs = tuple(
        OutputColumn(item.name, column_node(grouping.key_of(item.expr)), item.origin) for item in items
    )
    return grouping.query(rows.where, outputs, None, sql)


def parse_aggregation(
    select: exp.Select, rows: GroupedRows, text: Text, sql: str
) -> tuple[Query, tuple[Column, ...]]:
    """Parse a SELECT that groups into a query and its columns.

    Raises:
        StatementRejected: ``text`` has the problems.
    """
    before = len(text.problems)
    clause, where = _clause(select)
    grouping = Grouping(rows, text, clause, text.place(where))
    condition = rows.condition(select, text)
    grouping.read_keys(select)
    grouping.check_partition(select)
    if len(text.problems) > before:
        raise StatementRejected
    outputs = grouping.outputs(select)
    having = select.args.get("having")
    kept = None if having is None else _condition(grouping.above(_without_aliases(having.this, select, rows)))
    if len(text.problems) > before:
        raise StatementRejected
    return grouping.query(condition, outputs, kept, sql)


def _clause(select: exp.Select) -> tuple[str, exp.Expression]:
    """Return what makes a SELECT group rows, as written, and its tree."""
    group = select.args.get("group")
    if group is not None:
        return group.sql("spark", normalize_functions="lower").strip(), group
    inside = (node for item in select.expressions for node in item.walk(prune=is_closed))
    call = next(filter(is_aggregate, inside), None)
    return ("HAVING", select) if call is None else (call.sql("spark", normalize_functions="lower"), call)


def _condition(having: Expr) -> Expr:
    """Cast a HAVING that is not a comparison to BOOLEAN, as Spark's parser does."""
    plain = having.unnest()
    if isinstance(plain, exp.Predicate | exp.Connector | exp.Not | exp.Boolean):
        return having
    return exp.cast(having, "BOOLEAN", dialect="spark")


def _without_aliases(having: Expr, select: exp.Select, rows: GroupedRows) -> Expr:
    """Replace aliases of the SELECT list in HAVING by their expressions.

    A column takes precedence over an alias of the same name.
    """
    names: dict[str, Expr] = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }

    def meant(node: exp.Column) -> Expr:
        item = names.get(node.name.lower())
        if node.table or item is None or rows.scope.candidates(node.name):
            return node
        return item

    return substitute_columns(having, meant)


@dataclass
class Grouping:
    """The keys and aggregates found so far."""

    rows: GroupedRows
    text: Text
    clause: str = ""
    location: Location | None = None
    keys: list[OutputColumn] = field(default_factory=list)
    aggregates: list[OutputColumn] = field(default_factory=list)

    def read_keys(self, select: exp.Select) -> None:
        """GROUP BY: the window, and the keys."""
        group = select.args.get("group")
        window = self.rows.window
        if group is None:
            if window is None:
                return
            function = window.kind.value
            self.text.problem(
                f"{function} needs a GROUP BY",
                "not-supported",
                select,
                "add GROUP BY window_start, window_end and the grouping columns",
            )
            return
        several = [what for kind, what in _SEVERAL.items() for e in group.expressions if isinstance(e, kind)]
        several += [what for name, what in _GROUPINGS.items() if group.args.get(name)]
        if several:
            problem = self.text.not_supported(f"{several[0]} is", group, "list the columns in GROUP BY")
            self.text.problems.append(problem)
            return
        by_window = False
        for written in group.expressions:
            expr = self._key(written, select)
            if expr is None:
                continue
            if self._is_end(expr):
                by_window = True
            else:
                self.key_of(expr)
        if not by_window and window is not None:
            self.text.problem(
                "GROUP BY without the window: groups over a whole stream would never be complete",
                "unbounded",
                group,
                "add window_start, window_end to GROUP BY",
            )

    def _key(self, written: exp.Expr, select: exp.Select) -> Expr | None:
        """Resolve an item of GROUP BY: an expression, a position or a name of the SELECT list."""
        item: Any = written
        if isinstance(written, exp.Literal) and not written.is_string and written.name.isdigit():
            number = int(written.name)
            if not 1 <= number <= len(select.expressions):
                self.text.problem(f"GROUP BY {number}: there is no such column", "unknown-column", written)
                return None
            item = select.expressions[number - 1]
        elif (
            isinstance(written, exp.Column)
            and not written.table
            and not self.rows.scope.candidates(written.name)
        ):
            item = next((e for e in select.expressions if e.alias == written.name), written)
        item = item.this if isinstance(item, exp.Alias) else item
        inside = next((node for node in item.walk() if is_aggregate(node)), None)
        if inside is not None:
            self.text.problem(
                f"GROUP BY cannot contain the aggregate function {function_name(inside)}()",
                "aggregate-misplaced",
                written,
            )
            return None
        if not check_expression(item, self.text, repeatable=True):
            return None
        expr: Any = resolve_columns(item, self.rows.scope, self.text).unnest()
        mixed = [c for c in expr.find_all(exp.Column) if self._is_end(c)]
        if mixed and not isinstance(expr, exp.Column):
            self.text.problem(
                f'GROUP BY of an expression over "{mixed[0].name}" is not supported',
                "not-supported",
                written,
                f'group by "{mixed[0].name}" itself, and compute the expression in SELECT',
            )
            return None
        return cast(Expr, expr)

    def key_of(self, expr: Expr) -> str:
        """Return the name of the key with this expression; add a key if none has it."""
        named = next((key.name for key in self.keys if key.expr == expr), None)
        if named is not None:
            return named
        wanted = expr.name if isinstance(expr, exp.Column) else f"key{len(self.keys) + 1}"
        name = self.free(wanted)
        self.keys.append(OutputColumn(name, expr, expr.sql("spark").replace("`", "")))
        return name

    def query(
        self, condition: Expr | None, outputs: tuple[OutputColumn, ...], having: Expr | None, sql: str
    ) -> tuple[Query, tuple[Column, ...]]:
        """Build the query and its columns."""
        aggregation = self.aggregation(having)
        own = {column.name: column for column in aggregation.columns}
        columns = (column_of(o.name, o.expr, lambda node: own.get(node.name)) for o in outputs)
        return Query(self.rows.relation, condition, outputs, sql, aggregation), tuple(columns)

    def aggregation(self, having: Expr | None) -> Aggregation:
        """Build the aggregation from the keys and aggregates found so far."""
        window, scope = self.rows.window, self.rows.scope
        columns = []
        if window is not None:
            time = column_of("", window.time, scope.column_of)
            types = window_type(time.type), window_type(time.identity_type)
            columns = [Column(name, *types) for name in WINDOW_COLUMNS]
        columns += [column_of(own.name, own.expr, scope.column_of) for own in (*self.keys, *self.aggregates)]
        return Aggregation(
            window,
            tuple(self.keys),
            tuple(self.aggregates),
            tuple(columns),
            having,
            clause=self.clause,
            location=self.location,
        )

    def check_partition(self, select: exp.Select) -> None:
        """Report SESSION … PARTITION BY columns that differ from those of GROUP BY.

        Sessions belong to groups, so both clauses must list the same columns.
        """
        if not self.rows.partition:
            return
        wanted = [resolve_columns(part, self.rows.scope, self.text) for part in self.rows.partition]
        keys = [key.expr for key in self.keys]
        if any(part not in keys for part in wanted) or any(key not in wanted for key in keys):
            self.text.problem(
                "PARTITION BY and GROUP BY differ, but sessions need the same columns in both",
                "not-supported",
                self.rows.partition[0],
                "remove PARTITION BY, or group by the same columns",
            )

    def outputs(self, select: exp.Select) -> tuple[OutputColumn, ...]:
        outputs = []
        for number, item in enumerate(select.expressions, 1):
            if item.find(exp.Star) and not item.find(exp.Count):
                self.text.problems.append(
                    self.text.not_supported('"*" with GROUP BY is', item, "list keys and aggregates")
                )
                continue
            plain = item.this if isinstance(item, exp.Alias) else item
            name = item.alias if isinstance(item, exp.Alias) else spark_name(plain)
            expr = self.above(plain)
            origin = f"expression {number}"
            if isinstance(expr, exp.Column):
                as_written = {column.name: column.origin for column in (*self.keys, *self.aggregates)}
                origin = as_written.get(expr.name, expr.name)
            if expr is not None:
                outputs.append(OutputColumn(name, expr, origin))
        return tuple(outputs)

    def above(self, written: Expr) -> Expr:
        """Rewrite an expression of SELECT or HAVING over keys, aggregates and window columns.

        The result mentions them by their names.
        """
        if not check_grouped(written, self.text):
            return written
        before = len(self.text.problems)
        expr = resolve_columns(written, self.rows.scope, self.text)
        return written if len(self.text.problems) > before else self._cut(expr, written)

    def _cut(self, node: Expr, written: Expr) -> Expr:
        for grouped in self.keys:
            if node == grouped.expr or (not isinstance(node, exp.Column) and node.unnest() == grouped.expr):
                return column_node(grouped.name)
        if is_aggregate(node):
            return self._aggregate(node, written)
        if isinstance(node, exp.Column):
            if not self._is_end(node):
                self._report_ungrouped(node, written)
            return node
        if self._is_unknown_aggregate(node):
            return self._aggregate(node, written)
        copied = node.copy()
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expression):
                copied.set(key, self._cut(value, written))
            elif isinstance(value, list):
                copied.set(
                    key, [self._cut(v, written) if isinstance(v, exp.Expression) else v for v in value]
                )
        return copied

    def _is_unknown_aggregate(self, node: Expr) -> bool:
        """Return True if the node is an unknown function over columns that are not grouped by.

        Only Spark knows the function, and here it makes sense only as an aggregate.
        """
        if not isinstance(node, exp.Anonymous):
            return False
        keys = [key.expr for key in self.keys]
        return any(c.table and c not in keys for c in node.find_all(exp.Column))

    def _aggregate(self, node: Expr, written: Expr) -> Expr:
        inner = [nested for nested in node.walk() if nested is not node and is_aggregate(nested)]
        outer = node.this if isinstance(node, (exp.Filter, exp.IgnoreNulls, exp.WithinGroup)) else None
        inner = [nested for nested in inner if nested is not outer]
        if inner:
            self.text.problem(
                f"{function_name(node)}() cannot contain the aggregate function {function_name(inner[0])}()",
                "aggregate-misplaced",
                written,
                "compute the inner aggregate in a view, and aggregate the view",
            )
            return node
        own = [c for c in node.find_all(exp.Column) if self._is_end(c)]
        if own:
            self.text.problem(
                f'{function_name(node)}() of "{own[0].name}" is not needed: it has one value per group',
                "not-supported",
                written,
                f'write "{own[0].name}" itself',
            )
            return node
        for aggregate in self.aggregates:
            if aggregate.expr == node:
                return column_node(aggregate.name)
        name = self.free(f"{aggregate_name(node)}{len(self.aggregates) + 1}")
        self.aggregates.append(OutputColumn(name, node.copy(), node.sql("spark").replace("`", "")))
        return column_node(name)

    def _report_ungrouped(self, node: exp.Column, written: Expr) -> None:
        named = self._as_written(node, written)
        shown = named.sql("spark").replace("`", "")
        self.text.problem(
            f'"{shown}" is neither in GROUP BY nor inside an aggregate function',
            "ungrouped-column",
            written,
            f"add it to GROUP BY, or take one of its values: min({named.name}), max({named.name})",
        )

    def _as_written(self, node: exp.Column, written: Expr) -> exp.Column:
        """Return the name by which the user mentioned a column of an inner join or view.

        Any other column is returned as it is.
        """
        scope = self.rows.scope
        if scope.relation(node.table) is not None:
            return node
        names = written.find_all(exp.Column)
        return next(
            (name for name in names if node in resolve_columns(name, scope, Text("")).find_all(exp.Column)),
            node,
        )

    def _is_end(self, node: Expr) -> bool:
        """Return True if the node is window_start or window_end of the rows' windows.

        These columns need no rewriting.
        """
        return isinstance(node, exp.Column) and not node.table and node.name in WINDOW_COLUMNS

    def free(self, wanted: str) -> str:
        """Return the name, or a numbered variant of it, that no key or aggregate uses."""
        taken: Sequence[str] = [c.name.lower() for c in (*self.keys, *self.aggregates)]
        taken = [*taken, *WINDOW_COLUMNS]
        name, number = wanted, 1
        while name.lower() in taken:
            number += 1
            name = f"{wanted}_{number}"
        return name
