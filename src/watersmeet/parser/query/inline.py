"""Expressions put in the place of columns: parentheses where they are needed, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.parser.types.inference import number_type
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import INTEGERS

_ATOMS = (exp.Column, exp.Literal, exp.Func, exp.Paren, exp.Boolean, exp.Null, exp.Bracket)
_OPERATORS = frozenset(kind.key for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.Binary))


MAX_PARTS = 10_000
"""Of an expression, with all that columns of views stand for: a chain of views may double it with each."""

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def operand(expr: Expr, place: Expr | None = None) -> Expr:
    """Return a copy that can be an operand of any operator.

    Args:
        place: The node that the copy replaces.
    """
    if place is not None and isinstance(place.parent, _ARITHMETIC):
        number = expr.unnest()
        kind = number_type(number.this if isinstance(number, exp.Neg) else number)
        if kind in INTEGERS:  # beside a DECIMAL a literal would have its own digits, and a column has all
            return exp.cast(number.copy(), str(kind), dialect="spark")
    return expr.copy() if _is_atom(expr) else exp.paren(expr)


def substitute_columns(expr: Expr, value: Callable[[exp.Column], Expr]) -> Expr:
    """Return a copy in which ``value`` replaces each column.

    Raises:
        SqlError: The expression becomes too large.
    """

    def one(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        return value(node).copy() if node is tree else operand(value(node), node)

    tree = expr.copy()
    replaced = tree.transform(one, copy=False)
    parts = sum(1 for _ in replaced.walk())
    if parts > MAX_PARTS and parts > 2 * sum(1 for _ in expr.walk()):
        raise SqlError(
            f"an expression has more than {MAX_PARTS:,} parts, including the definitions of columns in views",
            code="not-supported",
            hint="avoid repeating the same expression in its views",
        )
    return replaced


def join_conditions(first: Expr | None, second: Expr) -> Expr:
    """Combine two conditions with AND; None is TRUE."""
    if first is None:
        return second
    return exp.And(this=_parenthesize_connector(first), expression=_parenthesize_connector(second))


def _parenthesize_connector(expr: Expr) -> Expr:
    weaker = isinstance(expr, exp.Connector) and not isinstance(expr, exp.And)
    return exp.paren(expr) if weaker else expr.copy()


def _is_atom(expr: Expr) -> bool:
    """Return True if the expression can be an operand without parentheses.

    In sqlglot, AND and the like are functions, too.
    """
    return isinstance(expr, exp.Dot) or (isinstance(expr, _ATOMS) and expr.key not in _OPERATORS)
