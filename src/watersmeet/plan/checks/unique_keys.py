"""What is known of a result before it is there: whether it has one row per key, of names of its columns.

Columns that are known say which others are: all of a row whose primary key (or group) is known, what an
equality equates them with, and of an outer join the row that is met, where there can be one only. If every
row that a result's row is made of is known, there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeGuard

from sqlglot import exp

from watersmeet.plan.conditions.rewrites import conjuncts_of
from watersmeet.spec.model import (
    WINDOW_END,
    WINDOW_START,
    Aggregation,
    Branch,
    Expr,
    Input,
    Join,
    JoinKind,
    OutputColumn,
    Query,
    Relation,
    visible_inputs,
)
from watersmeet.spec.records.changes import computed_of_key
from watersmeet.types.sql_type import INTEGERS, STRING, SqlType

_Column = tuple[str, str]
"""An alias, and a column of it."""


def has_one_row_per(query: Query, key: Collection[str]) -> bool:
    """Return True if no two result rows have the same non-NULL values in the columns `key`.

    False means that uniqueness cannot be proved.
    """
    types = _types(query)
    told = _columns(_uncast(output.expr, types) for output in query.outputs if output.name in key)
    if query.aggregation is None:
        return _rows_are_known(query, told)
    return _groups_are_known(query, query.aggregation, {name for _, name in told})


def input_has_one_row_per(i: Input, key: Collection[str]) -> bool:
    """Return True if no two rows of an input have the same non-NULL values in the columns `key`.

    The result refers to the input as it appears in a query. False means that uniqueness cannot be
    proved.
    """
    following = _KnownColumns(i, None, {(i.alias, column.name): column.type for column in i.columns})
    following.add([(i.alias, name) for name in key])
    return i.alias in following.rows


def _types(query: Query) -> dict[_Column, SqlType]:
    """Return the types of the columns that outputs mention, by (alias, column).

    These are columns of inputs, or columns of groups, which have an empty alias.
    """
    if query.aggregation is not None:
        return {("", column.name): column.type for column in query.aggregation.columns}
    return {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}


def _uncast(expr: Expr, types: Mapping[_Column, SqlType]) -> Expr:
    """Return the column below a cast of an integer to text or to a wider integer type.

    Such a cast maps no two values to one. Every other expression is returned unchanged.
    """
    if not isinstance(expr, exp.Cast) or not _is_column(expr.this):
        return expr
    was, is_now = types.get((expr.this.table, expr.this.name)), expr.args["to"].sql("spark")
    if was not in INTEGERS:
        return expr
    wider = INTEGERS[INTEGERS.index(was) :]
    return expr.this if is_now in map(str, (STRING, *wider)) else expr


def _groups_are_known(query: Query, groups: Aggregation, told: Collection[str]) -> bool:
    """Return True if the columns `told` identify one group.

    A window start or end together with the keys identifies a window, because sessions of equal keys do
    not overlap. In a ranking, a row number and the partition columns identify a row, and so do the
    keys of all rows that are numbered.

    Args:
        told: Names of keys and of the start and end of the window.
    """
    if groups.window is not None and not {WINDOW_START, WINDOW_END} & set(told):
        return False
    following = _KnownColumns.of(query)
    following.add(_columns(key.expr for key in groups.keys if key.name in told))

    def is_known_key(key: OutputColumn) -> bool:
        return key.name in told or (_is_column(key.expr) and following.has((key.expr.table, key.expr.name)))

    ranking = groups.ranking
    if ranking is None:
        return all(map(is_known_key, groups.keys))
    if all(i.alias in following.rows for i in visible_inputs(query.relation)):
        return True
    has_one_number = ranking.most == 1 or ranking.number in told
    return has_one_number and all(is_known_key(key) for key in groups.keys if key.name in ranking.partition)


def _rows_are_known(query: Query, told: Collection[_Column]) -> bool:
    following = _KnownColumns.of(query)
    following.add(told)
    return all(i.alias in following.rows for i in visible_inputs(query.relation))


@dataclass
class _KnownColumns:
    """Columns of which one known, non-NULL value follows from other known columns.

    The conclusions hold for rows of `relation` that pass `condition`.

    Attributes:
        rows: Aliases of inputs whose row is identified.
        columns: Other known columns.
    """

    relation: Relation
    condition: Expr | None
    types: Mapping[_Column, SqlType]
    rows: set[str] = field(default_factory=set)
    columns: set[_Column] = field(default_factory=set)
    rules: list[Callable[[], bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rules += self._equal(self.condition)
        self._walk(self.relation)

    @classmethod
    def of(cls, query: Query) -> Self:
        types = {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}
        return cls(query.relation, query.where, types)

    def add(self, columns: Collection[_Column]) -> None:
        """Add known columns and everything that follows from them."""
        self.columns |= set(columns)
        self.follow()

    def has(self, column: _Column) -> bool:
        return column in self.columns or column[0] in self.rows

    def follow(self) -> None:
        while any(rule() for rule in self.rules):
            pass

    def _walk(self, part: Relation, *, padded: bool = False) -> None:
        """Add the rules of one part of the relation.

        Args:
            padded: All columns are NULL where the part has no row, so neither a constant nor a group of all
                rows is always present.
        """
        if isinstance(part, Input):
            self.rules.append(lambda: self._row(part, padded=padded))
            return
        self.rules += self._equal(part.where, padded=padded)
        self._walk(part.left, padded=padded or part.kind.pads_right)
        if part.kind.hides_right:
            return
        self._walk(part.right, padded=padded or part.kind.pads_left)
        if part.kind is JoinKind.INNER:
            self.rules += self._equal(part.on, padded=padded)
        elif part.kind in (JoinKind.LEFT, JoinKind.RIGHT):
            kept, other = (part.left, part.right)[:: 1 if part.kind is JoinKind.LEFT else -1]
            self.rules.append(lambda: self._identify_matched_rows(part, kept, other))

    def _row(self, i: Input, *, padded: bool) -> bool:
        """Mark the row of an input as identified if its key is known.

        Returns:
            True if this adds a conclusion.
        """
        if i.alias in self.rows or i.as_of or len(i.branches) != 1:
            return False
        (branch,) = i.branches
        values = [
            expr
            for column, expr in zip(i.columns, branch.columns, strict=True)
            if (i.alias, column.name) in self.columns
        ]
        told = {expr.name for expr in values if _is_column(expr)}
        if isinstance(branch, Branch):
            told |= {own.column.name for own in computed_of_key(branch.source) if own.expr in values}
        if padded and not told:
            return False
        if isinstance(branch, Branch):
            key = branch.source.primary_key
            is_told = key is not None and told.issuperset(key.columns)
        else:
            is_told = has_one_row_per(branch.stage, told)
        if is_told:
            self.rows.add(i.alias)
        return is_told

    def _identify_matched_rows(self, join: Join, kept: Relation, other: Relation) -> bool:
        """Mark rows of `other` as identified if each row of `kept` matches at most one of them.

        The rule belongs to an outer join. It applies once all rows of `kept` are identified.

        Returns:
            True if this adds a conclusion.
        """
        missing = [i.alias for i in visible_inputs(other) if i.alias not in self.rows]
        aliases = [i.alias for i in visible_inputs(kept)]
        if not missing or not self.rows.issuperset(aliases):
            return False
        within = _KnownColumns(other, join.on, self.types, set(aliases))
        within.follow()
        if not within.rows.issuperset(missing):
            return False
        self.rows |= set(missing)
        return True

    def _equal(self, condition: Expr | None, *, padded: bool = False) -> list[Callable[[], bool]]:
        """Build the rules of equalities that hold for every row.

        If one side is known, the other is known too.
        """
        rules = []
        for conjunct in conjuncts_of(condition):
            sides = _sides(conjunct.expr)
            for one, other in (sides, sides[::-1]) if sides else ():
                if not _is_column(one):
                    continue
                if isinstance(other, exp.Literal) and not padded and self._fixes_value(one, other):
                    rules.append(self._make_rule((one.table, one.name), None))
                elif _is_column(other) and self._is_alike(one, other):
                    rules.append(self._make_rule((one.table, one.name), (other.table, other.name)))
        return rules

    def _make_rule(self, column: _Column, other: _Column | None) -> Callable[[], bool]:
        """Build a rule that marks `column` as known.

        Args:
            other: The column that it equals; None if it equals a constant.
        """

        def rule() -> bool:
            if column in self.columns or (other is not None and not self.has(other)):
                return False
            self.columns.add(column)
            return True

        return rule

    def _fixes_value(self, column: exp.Column, literal: exp.Literal) -> bool:
        """Return True if exactly one value of the column equals the literal.

        Several texts may equal one number.
        """
        kind = self.types.get((column.table, column.name))
        return literal.is_string or (kind is not None and kind.is_number)

    def _is_alike(self, one: exp.Column, other: exp.Column) -> bool:
        """Return True if both columns have one known type.

        With different types several values may equal one: '1' and '01' both equal 1.
        """
        types = [self.types.get((column.table, column.name)) for column in (one, other)]
        return types[0] is not None and types[0] == types[1]


def _columns(exprs: Iterable[Expr]) -> set[_Column]:
    return {(expr.table, expr.name) for expr in exprs if isinstance(expr, exp.Column)}


def _sides(expr: Expr) -> tuple[Expr, Expr] | None:
    return (expr.this.unnest(), expr.expression.unnest()) if isinstance(expr, exp.EQ) else None


def _is_column(expr: Expr) -> TypeGuard[exp.Column]:
    return isinstance(expr, exp.Column)
