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
    """Whether no two rows of the result have the same values, none of them NULL, in these columns of it.
    False: nothing says so."""
    types = _types(query)
    told = _columns(_uncast(output.expr, types) for output in query.outputs if output.name in key)
    if query.aggregation is None:
        return _rows_are_known(query, told)
    return _groups_are_known(query, query.aggregation, {name for _, name in told})


def input_has_one_row_per(i: Input, key: Collection[str]) -> bool:
    """The same of an input as it stands in a query."""
    following = _KnownColumns(i, None, {(i.alias, column.name): column.type for column in i.columns})
    following.add([(i.alias, name) for name in key])
    return i.alias in following.rows


def _types(query: Query) -> dict[_Column, SqlType]:
    """Of the columns that outputs mention: those of inputs, or of groups, which have no alias."""
    if query.aggregation is not None:
        return {("", column.name): column.type for column in query.aggregation.columns}
    return {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}


def _uncast(expr: Expr, types: Mapping[_Column, SqlType]) -> Expr:
    """The column itself of a whole number as a text, or in a type that holds as many: no two become one."""
    if not isinstance(expr, exp.Cast) or not _is_column(expr.this):
        return expr
    was, is_now = types.get((expr.this.table, expr.this.name)), expr.args["to"].sql("spark")
    if was not in INTEGERS:
        return expr
    wider = INTEGERS[INTEGERS.index(was) :]
    return expr.this if is_now in map(str, (STRING, *wider)) else expr


def _groups_are_known(query: Query, groups: Aggregation, told: Collection[str]) -> bool:
    """``told``: names of keys and of the window's ends. A start (or end) and keys make a window: sessions of
    equal keys do not overlap. A number and the columns of its partition make a row, and so do the keys of all
    rows that are numbered."""
    if groups.window is not None and not {WINDOW_START, WINDOW_END} & set(told):
        return False
    following = _KnownColumns.of(query)
    following.add(_columns(key.expr for key in groups.keys if key.name in told))

    def is_told(key: OutputColumn) -> bool:
        return key.name in told or (_is_column(key.expr) and following.has((key.expr.table, key.expr.name)))

    ranking = groups.ranking
    if ranking is None:
        return all(map(is_told, groups.keys))
    if all(i.alias in following.rows for i in visible_inputs(query.relation)):
        return True
    has_one_number = ranking.most == 1 or ranking.number in told
    return has_one_number and all(is_told(key) for key in groups.keys if key.name in ranking.partition)


def _rows_are_known(query: Query, told: Collection[_Column]) -> bool:
    following = _KnownColumns.of(query)
    following.add(told)
    return all(i.alias in following.rows for i in visible_inputs(query.relation))


@dataclass
class _KnownColumns:
    """What follows from columns that are known, and so not NULL: of rows of ``relation`` that pass
    ``condition``. ``rows``: aliases of which the row is known; ``columns``: others."""

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
        """And all that follows."""
        self.columns |= set(columns)
        self.follow()

    def has(self, column: _Column) -> bool:
        return column in self.columns or column[0] in self.rows

    def follow(self) -> None:
        while any(rule() for rule in self.rules):
            pass

    def _walk(self, part: Relation, *, padded: bool = False) -> None:
        """Rules of a part. ``padded``: where there is no row of it, all of its columns are NULL: then neither
        a constant nor a group of all rows is always there."""
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
            self.rules.append(lambda: self._met(part, kept, other))

    def _row(self, i: Input, *, padded: bool) -> bool:
        """The row of an input is known by its key."""
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

    def _met(self, join: Join, kept: Relation, other: Relation) -> bool:
        """Of an outer join: rows of ``kept`` meet one row of ``other`` at most, if what they say of it makes
        it known; then it is, where they are."""
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
        """Rules of equalities that hold for every row: where one side is known, so is the other."""
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
        """``other``: what the column is equal to; None: a constant."""

        def rule() -> bool:
            if column in self.columns or (other is not None and not self.has(other)):
                return False
            self.columns.add(column)
            return True

        return rule

    def _fixes_value(self, column: exp.Column, literal: exp.Literal) -> bool:
        """One value of the column is equal to the literal; of texts several are equal to one number."""
        kind = self.types.get((column.table, column.name))
        return literal.is_string or (kind is not None and kind.is_number)

    def _is_alike(self, one: exp.Column, other: exp.Column) -> bool:
        """Of one type: of others several values may be equal to one ('1' and '01' to 1)."""
        types = [self.types.get((column.table, column.name)) for column in (one, other)]
        return types[0] is not None and types[0] == types[1]


def _columns(exprs: Iterable[Expr]) -> set[_Column]:
    return {(expr.table, expr.name) for expr in exprs if isinstance(expr, exp.Column)}


def _sides(expr: Expr) -> tuple[Expr, Expr] | None:
    return (expr.this.unnest(), expr.expression.unnest()) if isinstance(expr, exp.EQ) else None


def _is_column(expr: Expr) -> TypeGuard[exp.Column]:
    return isinstance(expr, exp.Column)
