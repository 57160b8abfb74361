"""Rule: what is left of a condition is checked on candidate pairs, by DuckDB, with Spark SQL's meaning.

The text is bound at plan time against an empty table of the declared types, so that a function which DuckDB
does not have, or has with another meaning, is refused here and not by a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from watersmeet.errors import PlanError
from watersmeet.plan.coercion import canonical, cast, common_type, is_declared, typed
from watersmeet.plan.conjuncts import Conjunct, join_all
from watersmeet.plan.exact import NotExact, Tree, exact_condition
from watersmeet.plan.model import joined_name
from watersmeet.plan.residual_functions import refused_function, without_null_tests
from watersmeet.plan.scope import Scope, refs
from watersmeet.spec.intervals import interval_us
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import UTC

if TYPE_CHECKING:
    import duckdb

_FRACTIONS = (exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL)
_INTEGERS = (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT)
_ZONED = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ)
_OF_THE_CLOCK = (
    exp.CurrentTimestamp,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.Localtimestamp,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)


@dataclass(frozen=True)
class Residual:
    """``expr`` mentions `joined_name`s, listed in ``columns``; ``exact`` is what tasks compute of it, or None
    where they do not compute it as Spark does: ``why`` says what of it."""

    expr: Expr
    exact: Tree | None
    columns: tuple[str, ...]
    why: tuple[str, ...] = ()


def residual_of(conjuncts: Sequence[Conjunct], scope: Scope) -> tuple[Residual | None, list[PlanError]]:
    """The AND of ``conjuncts``, ready to run; and the conjuncts that nobody can compute twice alike.

    One conjunct that tasks do not compute gives the whole to Spark: which of them fails on a value, and which
    keeps it from that, is decided by their order.
    """
    errors = [error for c in conjuncts if (error := unsteady(c, ON_BOTH, ON_ONE)) is not None]
    whole = join_all([c.expr for c in conjuncts])
    if whole is None or errors:
        return None, errors
    names = tuple(joined_name(*ref) for ref in refs(whole))
    trees: list[Tree] = []
    why: list[str] = []
    for conjunct in conjuncts:
        try:
            trees.append(exact_condition(conjunct.expr, scope).tree)
        except NotExact as reason:
            why.append(str(reason))
    tree = None if why else reduce(lambda left, right: ("and", left, right), trees)
    return Residual(after_join(whole), tree, names, tuple(dict.fromkeys(why))), []


def after_join(expr: Expr) -> Expr:
    """``expr`` with ``alias.column`` as one quoted name, as the join's result has it."""
    return expr.transform(
        lambda node: (
            exp.column(exp.to_identifier(joined_name(node.table, node.name), quoted=True))
            if isinstance(node, exp.Column) and node.table
            else node
        )
    )


def duckdb_type(type_: str) -> str:
    """The DuckDB type in which the residual takes a column of a Spark type; times are UTC, without zone."""
    return _without_zones(exp.DataType.build(type_, dialect="spark")).sql(dialect="duckdb")


def to_duckdb(expr: Expr, scope: Scope) -> str:
    """``expr`` as DuckDB text. Raises SqlglotError when DuckDB has no such thing."""
    tree = _adapted(typed(expr, scope))
    return after_join(_without_zones(tree)).sql(
        dialect="duckdb", identify=True, unsupported_level=ErrorLevel.RAISE
    )


def constant_is_true(expr: Expr) -> bool | None:
    """Whether a condition without columns is TRUE; None when that is not known before the job runs."""
    import duckdb

    if expr.find(*_OF_THE_CLOCK, exp.Anonymous):
        return None
    try:
        text = to_duckdb(expr, Scope(()))
        with _binder() as connection:
            row = connection.execute(f"SELECT CAST(({text}) AS BOOLEAN)").fetchone()
    except (SqlglotError, duckdb.Error):
        return None
    return row is not None and row[0] is True


def _binder() -> duckdb.DuckDBPyConnection:
    """A cursor to bind texts with: of one database for all, which takes long to open."""
    import duckdb

    global _database
    if _database is None:
        _database = duckdb.connect(config={"threads": 1})
    return _database.cursor()


_database: duckdb.DuckDBPyConnection | None = None


def _without_zones(tree: Expr) -> Expr:
    def plain(node: Expr) -> Expr:
        if isinstance(node, exp.DataType) and node.this in _ZONED:
            return exp.DataType.build("TIMESTAMP", dialect="duckdb")
        return node

    return tree.transform(plain)


def _adapted(tree: Expr) -> Expr:
    """`_adapt` on every node, the innermost first: what replaces a node is not looked at again."""
    for node in reversed(list(tree.find_all(exp.Expression))):
        parent, adapted = node.parent, _adapt(node.copy())
        if parent is None:
            return adapted
        node.replace(adapted)
    return tree


def _adapt(node: Expr) -> Expr:
    """Where the same text means something else in DuckDB."""
    if isinstance(node, exp.Sub) and all(_is(e, (exp.DType.DATE,)) for e in (node.this, node.expression)):
        for name in ("this", "expression"):  # days as a number there, an interval here
            node.set(
                name, exp.Cast(this=node.args[name], to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
            )
    if isinstance(node, exp.Interval) and (us := interval_us(node)) is not None:
        return exp.Anonymous(this="to_microseconds", expressions=[exp.Literal.number(us)])
    if isinstance(node, exp.Mod | exp.IntDiv):
        node.set("expression", exp.Nullif(this=node.expression, expression=exp.Literal.number(0)))
    if isinstance(node, exp.DayOfWeek):
        return exp.Paren(this=exp.Add(this=node, expression=exp.Literal.number(1)))  # Sunday is 0 there
    if isinstance(node, exp.Mul):
        node.set("this", _wide_decimal(node.this))  # there the product of two widths may not hold the product
    if isinstance(node, exp.Like | exp.ILike) and not node.args.get("escape"):
        return exp.Escape(this=node, expression=exp.Literal.string("\\"))
    if isinstance(node, exp.Cast) and node.to.is_type(*_INTEGERS) and _is(node.this, _FRACTIONS):
        node.set("this", exp.Anonymous(this="trunc", expressions=[node.this]))  # DuckDB's cast rounds
    if isinstance(node, _COMPARISONS):
        _coerce(node)
    return without_null_tests(node)


def _wide_decimal(expr: Expr) -> Expr:
    if not is_declared(expr) or not _is(expr, (exp.DType.DECIMAL,)):
        return expr
    assert expr.type is not None
    scale = expr.type.expressions[1].name if len(expr.type.expressions) > 1 else "0"
    return exp.Cast(this=expr, to=exp.DataType.build(f"DECIMAL(38,{scale})"))


def _coerce(node: Expr) -> None:
    """Text compared with something else: the text is read as that, as Spark does."""
    types = [_spark_type(operand) for operand in (node.this, node.expression)]
    if types[0] is None or types[1] is None or types[0] == types[1] or "STRING" not in types:
        return
    common = common_type(types[0], types[1])
    if common is not None:
        which = "this" if types[0] == "STRING" else "expression"
        node.set(which, cast(node.args[which], "STRING", common))


def _spark_type(expr: Expr) -> str | None:
    if expr.type is None or expr.type.is_type(exp.DType.UNKNOWN, exp.DType.NULL):
        return None
    return canonical(expr.type.sql(dialect="spark"))


def _is(expr: Expr, types: tuple[exp.DType, ...]) -> bool:
    return expr.type is not None and expr.type.is_type(*types)


ON_BOTH = "a condition over both inputs"
ON_ONE = "compute it from one input alone, as a column of a view, and compare the columns"


def problem_of(
    conjunct: Conjunct, scope: Scope, where: str = ON_BOTH, hint: str = ON_ONE
) -> PlanError | None:
    """Why an expression cannot be computed in tasks as Spark would; None: it can.

    Args:
        where: what it stands in; ``hint``: what to do.
    """
    found = unsteady(conjunct, where, hint)
    if found is not None:
        return found
    why = not_computed(conjunct.expr, scope)
    return (
        None
        if why is None
        else PlanError(
            f"{conjunct.text} cannot be used in {where}: {why}", code="residual-function", hint=hint
        )
    )


def unsteady(conjunct: Conjunct, where: str, hint: str) -> PlanError | None:
    """What may give another value when it is computed again, or is no expression over rows."""
    expr, text = conjunct.expr, conjunct.text
    if expr.find(exp.Query) is not None:
        return PlanError(f"a subquery in {where}: {text}", code="not-yet", hint="join its source instead")
    clock = expr.find(*_OF_THE_CLOCK)
    if clock is not None:
        return _no_function(
            clock.sql(dialect="spark"), text, "its value changes from call to call", where, hint
        )
    return None


def not_computed(expr: Expr, scope: Scope) -> str | None:
    """Why tasks do not compute an expression; None: they do."""
    import duckdb

    if scope.time_zone != UTC and _mentions_times(typed(expr, scope)):
        return f"tasks compute times in UTC, not in {scope.time_zone}"
    refused = refused_function(typed(expr, scope))
    if refused is not None:
        return f"{refused[0]}: {refused[1]}"
    try:
        duckdb_text = to_duckdb(expr, scope)
        columns = [
            f"{_quoted(joined_name(*ref))} {duckdb_type(scope.column(ref).type)}" for ref in refs(expr)
        ]
    except SqlglotError as error:
        return f"{_function_in(expr)}: {_first_line(error)}"
    with _binder() as connection:
        try:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE pairs ({', '.join(columns) or '_ INT'})")
            connection.execute(f"SELECT 1 FROM pairs WHERE ({duckdb_text})")
        except duckdb.Error as error:
            return f"{_function_in(expr)}: {_first_line(error)}"
    return None


def _mentions_times(expr: Expr) -> bool:
    times = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.DATETIME, *_ZONED)
    return any(node.type is None or _is(node, times) for node in expr.find_all(exp.Expression))


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _function_in(expr: Expr) -> str:
    function = expr.find(exp.Func)
    return (expr if function is None else function).sql(dialect="spark")


def _no_function(name: str, text: str, why: str, where: str, hint: str) -> PlanError:
    return PlanError(
        f"{name} cannot be used in {where} ({text}): {why}",
        code="residual-function",
        hint=hint,
    )
