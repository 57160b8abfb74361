"""Columns that a view or sub-query computes, above an outer join that pads it with NULLs.

The columns are expressions over inner inputs. A padded row has to have NULL in each of them, and
``coalesce(b.v, 0)`` would give 0. So it becomes ``CASE WHEN b.t IS NOT NULL THEN coalesce(b.v, 0) END``, by
an event time, which no row lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from watersmeet.front.place import Text
from watersmeet.front.scope import Merged, Named, Scope, column_node
from watersmeet.spec.model import Expr, Input, Relation, visible_inputs
from watersmeet.spec.stages import may_be_null

_STRICT = (
    exp.Cast, exp.Neg, exp.Not, exp.Paren, exp.Dot, exp.BitwiseNot,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.RegexpLike,
    exp.Upper, exp.Lower, exp.Trim, exp.Length, exp.Substring, exp.Abs, exp.Ceil, exp.Floor, exp.Round,
    exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second, exp.TsOrDsToDate, exp.TimestampTrunc,
)  # fmt: skip
"""NULL as soon as one operand is."""


def padded(scope: Scope, where: exp.Expr, text: Text) -> Scope:
    """The scope above a join that pads this side with NULLs."""
    relations = tuple(_padded_relation(named, where, text) for named in scope.relations)
    merged = tuple(_padded_merged(each, scope) for each in scope.merged)
    return replace(scope, relations=relations, merged=merged)


def _padded_relation(named: Named, where: exp.Expr, text: Text) -> Named:
    wrong = [n for n, value in enumerate(named.values) if not is_null_of_nulls(value)]
    if not wrong:
        return named
    present = _present(named)
    if present is None:
        column = named.columns[wrong[0]].name
        text.problem(
            f'column "{column}" is computed inside of "{named.alias}", and this join pads rows of that'
            f' with NULLs: "{column}" might not become NULL',
            "not-supported",
            where,
            f"select the plain columns in {named.alias}, and compute {column} from them above the join",
        )
        return named
    values = list(named.values)
    for n in wrong:
        values[n] = _unless_padded(values[n], present)
    return replace(named, values=tuple(values))


def _padded_merged(merged: Merged, scope: Scope) -> Merged:
    if is_null_of_nulls(merged.expr):
        return merged
    owners = [named for named in scope.relations if any(named.alias == alias for alias, _ in merged.members)]
    present = [condition for condition in map(_present, owners) if condition is not None]
    if not present:
        return merged  # the column it stands for has been reported
    return replace(merged, expr=_unless_padded(merged.expr, reduce(_or, present)))


def _unless_padded(value: Expr, present: Expr) -> Expr:
    return exp.Case().when(present.copy(), value.copy(), copy=False)


def _present(named: Named) -> Expr | None:
    """A condition that every row of the relation meets, and no padded one; None: there is none."""
    if named.relation is None:
        return None
    always = [i for i in _always(named.relation) if _sure_times(i)]
    inputs = always[:1] or list(visible_inputs(named.relation))
    if not all(_sure_times(i) for i in inputs):
        return None
    return reduce(_or, (_has_time(i) for i in inputs))


def _sure_times(i: Input) -> list[str]:
    """Event times that no row of the input lacks."""
    return [column for column in i.event_times if not may_be_null(i, column)]


def _has_time(i: Input) -> Expr:
    column = column_node(_sure_times(i)[0], i.alias)
    column.args["table"].set("quoted", "." not in i.alias)
    return exp.Not(this=exp.Is(this=column, expression=exp.Null()))


def _or(first: Expr, second: Expr) -> Expr:
    return exp.Or(this=first, expression=second)


def _always(relation: Relation) -> Iterator[Input]:
    """Inputs of which every row of the relation has one: no join beneath pads them."""
    if isinstance(relation, Input):
        yield relation
        return
    if not relation.kind.pads_right:
        yield from _always(relation.left)
    if not relation.kind.pads_left and not relation.kind.hides_right:
        yield from _always(relation.right)


def is_null_of_nulls(expr: Expr) -> bool:
    """Is it certainly NULL where all columns in it are? No claim for what is not known here."""
    match expr:
        case exp.Column() | exp.Null():
            return True
        case exp.Coalesce():
            return all(map(is_null_of_nulls, _operands(expr)))
        case exp.And() | exp.Or():
            return is_null_of_nulls(expr.this) and is_null_of_nulls(expr.expression)
        case exp.Case() if expr.this is None:
            branches = [
                _is_not_true(branch.this) or is_null_of_nulls(branch.args["true"])
                for branch in expr.args["ifs"]
            ]
            default = expr.args.get("default")
            return all(branches) and (default is None or is_null_of_nulls(default))
    return isinstance(expr, _STRICT) and any(map(is_null_of_nulls, _operands(expr)))


def _is_not_true(condition: Expr) -> bool:
    """Is it certainly not TRUE where all columns in it are NULL?"""
    match condition:
        case exp.Paren():
            return _is_not_true(condition.this)
        case exp.Not(this=exp.Is(this=value, expression=exp.Null())):
            return is_null_of_nulls(value)
        case exp.And():
            return _is_not_true(condition.this) or _is_not_true(condition.expression)
        case exp.Or():
            return _is_not_true(condition.this) and _is_not_true(condition.expression)
    return is_null_of_nulls(condition)


def _operands(expr: Expr) -> Sequence[Expr]:
    """What it is computed of; types and names of units are no operands."""
    found: Iterable[Expr] = expr.iter_expressions()
    return [each for each in found if not isinstance(each, (exp.DataType, exp.Var, exp.Identifier))]
