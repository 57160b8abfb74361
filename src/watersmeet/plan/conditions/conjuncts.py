"""Rule: a condition is cut at its top-level ANDs; BETWEEN is two conjuncts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from watersmeet.spec.model import Expr

_SPARK = Dialect.get_or_raise("spark")
"""Made once: a plan asks for hundreds of short texts."""


@dataclass(frozen=True)
class Conjunct:
    """One conjunct. ``written`` is what the user wrote, where that is more: of each half of a BETWEEN, all of
    it."""

    expr: Expr
    written: Expr | None = None

    @cached_property
    def text(self) -> str:
        """What the user wrote, as Spark SQL. Plans that are only tried do not ask for it."""
        return text_of(self.expr if self.written is None else self.written)


def written(condition: Expr | None) -> list[Expr]:
    """The conjuncts as they stand in the text: a BETWEEN is one. None for None."""
    match condition:
        case None:
            return []
        case exp.Paren():
            return written(condition.this)
        case exp.And():
            return written(condition.this) + written(condition.expression)
    return [condition]


def split(condition: Expr | None) -> tuple[Conjunct, ...]:
    """The conjuncts of ``condition``, in the order of the text; none for None."""
    return tuple(conjunct for own in written(condition) for conjunct in cut(Conjunct(own)))


def cut(conjunct: Conjunct) -> tuple[Conjunct, ...]:
    """Cut a BETWEEN into its halves; any other conjunct stays as it is."""
    condition = conjunct.expr
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        value, low, high = condition.this, condition.args["low"], condition.args["high"]
        return (
            Conjunct(exp.GTE(this=value.copy(), expression=low.copy()), condition),
            Conjunct(exp.LTE(this=value.copy(), expression=high.copy()), condition),
        )
    return (conjunct,)


def join_all(conditions: list[Expr]) -> Expr | None:
    """The AND of ``conditions``; None when there is none."""
    if not conditions:
        return None
    result: Expr = _safe(conditions[0])
    for condition in conditions[1:]:
        result = exp.And(this=result, expression=_safe(condition))
    return result


def _safe(condition: Expr) -> Expr:
    """In parentheses where AND would bind tighter."""
    copy = condition.copy()
    return exp.Paren(this=copy) if isinstance(copy, exp.Or | exp.And) else copy


def text_of(expr: Expr) -> str:
    """``expr`` as Spark SQL text."""
    if isinstance(expr, exp.Column) and expr.comments is None:
        name, table, *others = expr.this, *(expr.args.get(part) for part in ("table", "db", "catalog"))
        if isinstance(name, exp.Identifier) and name.comments is None and not any(others):
            if table is None:
                return _column_text(name.name, name.quoted, None, False)
            if isinstance(table, exp.Identifier) and table.comments is None:
                return _column_text(name.name, name.quoted, table.name, table.quoted)
    return expr.sql(dialect=_SPARK)


@lru_cache(4096)
def _column_text(name: str, quoted: bool, table: str | None, table_quoted: bool) -> str:
    """Of a column, of which a plan asks hundreds of times."""
    column = exp.Column(
        this=exp.Identifier(this=name, quoted=quoted),
        table=None if table is None else exp.Identifier(this=table, quoted=table_quoted),
    )
    return column.sql(dialect=_SPARK)
