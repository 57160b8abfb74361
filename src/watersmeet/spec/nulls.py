"""What is certainly NULL, or not TRUE, where some columns are NULL. No claim for what is not known here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from watersmeet.spec.model import Expr

_STRICT = (
    exp.Cast, exp.Neg, exp.Not, exp.Paren, exp.Dot, exp.BitwiseNot,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.RegexpLike,
    exp.Upper, exp.Lower, exp.Trim, exp.Length, exp.Substring, exp.Abs, exp.Ceil, exp.Floor, exp.Round,
    exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second, exp.TsOrDsToDate, exp.TimestampTrunc,
)  # fmt: skip
"""NULL as soon as one operand is."""

IsNull = Callable[[exp.Column], bool]


def is_null_of_nulls(expr: Expr) -> bool:
    """Return True if the expression is certainly NULL when all its columns are NULL."""
    return is_null_where(expr, lambda column: True)


def is_null_where(expr: Expr, is_null: IsNull) -> bool:
    """Return True if the expression is certainly NULL when certain columns are NULL.

    Args:
        is_null: Returns True for those columns; the others may have any value.
    """
    match expr:
        case exp.Column():
            return is_null(expr)
        case exp.Null():
            return True
        case exp.Coalesce():
            return all(is_null_where(operand, is_null) for operand in _operands(expr))
        case exp.And() | exp.Or():
            return is_null_where(expr.this, is_null) and is_null_where(expr.expression, is_null)
        case exp.Case() if expr.this is None:
            branches = [
                is_not_true_where(branch.this, is_null) or is_null_where(branch.args["true"], is_null)
                for branch in expr.args["ifs"]
            ]
            default = expr.args.get("default")
            return all(branches) and (default is None or is_null_where(default, is_null))
    return isinstance(expr, _STRICT) and any(is_null_where(operand, is_null) for operand in _operands(expr))


def is_not_true_where(condition: Expr, is_null: IsNull) -> bool:
    """Return True if the condition is certainly FALSE or NULL when these columns are NULL."""
    match condition:
        case exp.Paren():
            return is_not_true_where(condition.this, is_null)
        case exp.Not(this=exp.Is(this=value, expression=exp.Null())):
            return is_null_where(value, is_null)
        case exp.And():
            return is_not_true_where(condition.this, is_null) or is_not_true_where(
                condition.expression, is_null
            )
        case exp.Or():
            return is_not_true_where(condition.this, is_null) and is_not_true_where(
                condition.expression, is_null
            )
        case exp.Between():
            parts = (condition.this, condition.args["low"], condition.args["high"])
            return any(is_null_where(part, is_null) for part in parts)
        case exp.In():
            return is_null_where(condition.this, is_null)
    return is_null_where(condition, is_null)


def _operands(expr: Expr) -> Sequence[Expr]:
    """Return the operands of an expression; types and unit names are not operands."""
    children: Iterable[Expr] = expr.iter_expressions()
    return [child for child in children if not isinstance(child, (exp.DataType, exp.Var, exp.Identifier))]
