"""Rule: which expressions tasks compute exactly as Spark does, by names of `kernel.expressions.functions`.

The list is here and nowhere else: operators in `compiler`, functions by their family. An expression is read
again from the very text that Spark would get, without sqlglot's own names for functions. What is not on the
list (a function, a type, a coercion) raises `NotExact` with the reason, and Spark computes the expression.

A tree is plain data, for tasks: ``("column", name, type)``, ``("constant", value, type)``, ``("call",
function, arguments, options)``, ``("or_null", call, conditions)``, ``("and" | "or", left, right)``,
``("case", branches, otherwise, type)``, ``("first", parts)``, ``("each", lists, ((name, "element"),), body,
None, None)`` with ``("variable", name)`` in the body: see `kernel.expressions.trees`. Digests of stored plans
contain trees, so their form stays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from watersmeet.plan.exact.compiler import Compiler
from watersmeet.plan.exact.functions import FUNCTIONS, OPERATORS
from watersmeet.plan.exact.values import Exact, NotExact, Tree, widened
from watersmeet.plan.join_inputs import JoinInputs, Ref
from watersmeet.spec.grammar import GrammarParser, SparkGrammar
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BOOLEAN, VOID, SqlType

__all__ = [
    "FUNCTIONS",
    "Exact",
    "NotExact",
    "Tree",
    "compiled",
    "exact",
    "exact_condition",
    "exact_in_run",
    "exact_type",
    "listed",
]

_KEYWORDS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "OVERLAY")


class _Names(SparkGrammar):
    """Spark's syntax, with functions left as they are named."""

    class Parser(GrammarParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
            name: parse for name, parse in GrammarParser.FUNCTION_PARSERS.items() if name in _KEYWORDS
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


def exact(expr: Expr, inputs: JoinInputs) -> Exact:
    """``expr`` for tasks, as a column. Raises: NotExact."""
    expression = compiled(expr, inputs)
    if any(part.is_interval for part in expression.type.every):  # also within an ARRAY
        raise NotExact(f"it is {expression.type}, which no column of rows between joins is")
    return expression


def exact_in_run(expr: Expr, inputs: JoinInputs) -> Exact:
    """``expr`` of a plan, for tasks. Whoever runs it may be called from further within than its planner was.

    Raises: NotExact.
    """
    try:
        return exact(expr, inputs)
    except RecursionError:
        raise NotExact("it is nested too deeply") from None


def compiled(expr: Expr, inputs: JoinInputs) -> Exact:
    """``expr`` for tasks, of whatever type. Raises: NotExact."""
    expression, by_spark = _compiled(expr, inputs)
    if by_spark:
        raise NotExact(f"{by_spark[0]}() is not on the list of what tasks compute")
    return expression


def exact_type(expr: Expr, inputs: JoinInputs) -> SqlType:
    """Return the type of ``expr``, which may contain calls of `TYPED`. Raises: NotExact."""
    return _compiled(expr, inputs)[0].type


def _compiled(expr: Expr, inputs: JoinInputs) -> tuple[Exact, list[str]]:
    """(the expression, the functions in it that Spark alone computes)."""
    refs: list[Ref] = []

    def plain(node: Expr) -> Expr:
        if not isinstance(node, exp.Column):
            return node
        refs.append((node.table, node.name))
        return exp.column(f"c{len(refs) - 1}")

    if isinstance(expr, exp.Column):  # most are, and need not be written and read again
        return Compiler(inputs, [(expr.table, expr.name)]).of(exp.column("c0")), []
    try:
        tree = sqlglot.parse_one(expr.transform(plain).sql(dialect="spark"), dialect=_Names)
    except SqlglotError as error:
        raise NotExact(str(error).split("\n")[0]) from None
    assert isinstance(tree, exp.Expression)
    compiler = Compiler(inputs, refs)
    return compiler.of(tree), compiler.by_spark


def exact_condition(expr: Expr, inputs: JoinInputs) -> Exact:
    """The same, of a condition."""
    condition = exact(expr, inputs)
    if condition.type not in (BOOLEAN, VOID):
        raise NotExact(f"it is {condition.type}, and no condition")
    return widened(condition, BOOLEAN)


@cache
def listed() -> tuple[str, ...]:
    """Spark's names of all functions and operators on the list, for pages and tests."""
    return tuple(sorted({*FUNCTIONS, *OPERATORS}))
