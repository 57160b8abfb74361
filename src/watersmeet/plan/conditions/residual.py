"""The residual predicate, checked on candidate pairs; warnings of text comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypedDict

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.expressions.compiler import compile_column, compile_condition
from watersmeet.expressions.typed_tree import Tree, TypedTree, UnsupportedExpression
from watersmeet.plan.conditions.conjuncts import Conjunct, join_all, text_of
from watersmeet.plan.conditions.keys import type_of
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.query_inputs import JoinInputs, refs
from watersmeet.spec.model import Expr
from watersmeet.types.coercion import common_type
from watersmeet.types.sql_type import BOOLEAN, STRING, SqlType

# Rule: what is left of a condition is checked on candidate pairs: by the tasks, if they compute it as
# Spark does (`expressions`), else by Spark.

_OF_THE_CLOCK = (
    exp.CurrentTimestamp,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.Localtimestamp,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
)


@dataclass(frozen=True)
class Residual:
    """Residual predicate of a join.

    Attributes:
        expr: the predicate over `joined_name`s.
        exact: the tree that tasks compute; None if tasks cannot compute the predicate exactly as Spark does.
        columns: the `joined_name`s that ``expr`` mentions.
        why: why tasks cannot compute the predicate.
    """

    expr: Expr
    exact: Tree | None
    columns: tuple[str, ...]
    why: tuple[str, ...] = ()


class ResidualFields(TypedDict):
    """Fields that plans store for a residual; see `MatchPlan`."""

    residual: Expr | None
    residual_exact: Tree | None
    residual_columns: tuple[str, ...]
    residual_why: tuple[str, ...]


def residual_fields(residual: Residual | None) -> ResidualFields:
    if residual is None:
        return ResidualFields(residual=None, residual_exact=None, residual_columns=(), residual_why=())
    return ResidualFields(
        residual=residual.expr,
        residual_exact=residual.exact,
        residual_columns=residual.columns,
        residual_why=residual.why,
    )


def residual_of(conjuncts: Sequence[Conjunct], inputs: JoinInputs) -> tuple[Residual | None, list[PlanError]]:
    """Build the AND of ``conjuncts``, and return errors for nondeterministic conjuncts.

    If tasks cannot compute one conjunct, Spark computes the whole residual. The order of conjuncts
    decides which one fails on a value and which one prevents that failure.
    """
    errors = [error for c in conjuncts if (error := find_unsteady(c, ON_BOTH, ON_ONE)) is not None]
    whole = join_all([c.expr for c in conjuncts])
    if whole is None or errors:
        return None, errors
    names = tuple(joined_name(*ref) for ref in refs(whole))
    trees: list[Tree] = []
    why: list[str] = []
    for conjunct in conjuncts:
        try:
            trees.append(compile_condition(conjunct.expr, inputs).tree)
        except UnsupportedExpression as reason:
            why.append(str(reason))
    tree = None if why else reduce(lambda left, right: ("and", left, right), trees)
    return Residual(to_joined_names(whole), tree, names, tuple(dict.fromkeys(why))), []


def to_joined_names(expr: Expr) -> Expr:
    """Replace ``alias.column`` with one quoted name, as in the result of the join."""
    return expr.transform(
        lambda node: (
            exp.column(exp.to_identifier(joined_name(node.table, node.name), quoted=True))
            if isinstance(node, exp.Column) and node.table
            else node
        )
    )


ON_BOTH = "a condition over both inputs"
ON_ONE = "compute it from one input, as a column of a view, and compare the columns"


def compile_for_tasks(
    conjunct: Conjunct, inputs: JoinInputs, where: str = ON_BOTH, hint: str = ON_ONE
) -> TypedTree | PlanError:
    """Compile an expression over rows that Spark does not see, or return the error.

    Args:
        where: Description of the place of the expression, for the error.
        hint: What the user should do.
    """
    problem = find_unsteady(conjunct, where, hint)
    if problem is not None:
        return problem
    try:
        return compile_column(conjunct.expr, inputs)
    except UnsupportedExpression as why:
        return PlanError(
            f"{conjunct.text} cannot be used in {where}: {why}", code="residual-function", hint=hint
        )


def find_unsteady(conjunct: Conjunct, where: str, hint: str) -> PlanError | None:
    """Return an error if an expression is nondeterministic or no expression over rows."""
    expr, text = conjunct.expr, conjunct.text
    if expr.find(exp.Query) is not None:
        return PlanError(
            f"a subquery in {where}: {text}", code="not-yet", hint="join the table of the subquery instead"
        )
    clock = expr.find(*_OF_THE_CLOCK)
    if clock is not None:
        return _no_function(
            clock.sql(dialect="spark"), text, "it returns a different value each time", where, hint
        )
    return None


def _no_function(name: str, text: str, why: str, where: str, hint: str) -> PlanError:
    return PlanError(
        f"{name} cannot be used in {where} ({text}): {why}",
        code="residual-function",
        hint=hint,
    )


# Warning: a condition compares texts with values of another type, which Spark makes of each text.

_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def text_warnings(conjuncts: Sequence[Conjunct], inputs: JoinInputs) -> list[str]:
    """Return a warning for each comparison of a column of texts with a number, time or BOOLEAN.

    Constants are left out: they are the same in each row, and fail in the first one.
    """
    warnings: dict[str, None] = {}
    for conjunct in conjuncts:
        for text, other in _comparison_pairs(conjunct.expr):
            if text.find(exp.Column) is None or type_of(text, inputs) != STRING:
                continue
            type_ = None if _is_text(other) else type_of(other, inputs)
            target = None if type_ is None else _target(type_)
            if target is not None:
                warnings[
                    f"{conjunct.text} compares STRING with {type_}: the job stops at a text in"
                    f" {text_of(text)} that is not a valid {target}. Declare both with the same type,"
                    f" or write try_cast({text_of(text)} AS {target})"
                ] = None
    return list(warnings)


def _comparison_pairs(condition: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield what is compared with what, both ways round."""
    for node in condition.find_all(*_COMPARISONS, exp.In):
        others = node.expressions if isinstance(node, exp.In) else [node.expression]
        for other in others:
            yield node.this.unnest(), other.unnest()
            yield other.unnest(), node.this.unnest()


def _is_text(expr: Expr) -> bool:
    return isinstance(expr, exp.Literal) and bool(expr.is_string)


def _target(type_: SqlType) -> SqlType | None:
    """Return the type that Spark casts a text to beside another type; None if nothing can fail."""
    return common_type(STRING, type_) if type_.is_number or type_.is_time or type_ == BOOLEAN else None
