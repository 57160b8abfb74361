"""Determine the columns that a group's rows need: grouping keys and arguments of aggregates.

A plain column exists already. An expression is computed where the side's rows are produced: by Spark for an
input's rows, and as in `plan.nodes.feeds` for rows of other nodes. A call that only Spark can compute retains
the columns that it mentions and is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.conditions import Key
from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.conditions.keys import bare
from watersmeet.plan.model.nodes import CallPlan
from watersmeet.plan.model.sides import KeyPlan, joined_name
from watersmeet.plan.nodes.feeds import PlannedFeed
from watersmeet.plan.nodes.tree import GroupedNode
from watersmeet.spec.aggregates import AggregateCall, call_of
from watersmeet.spec.model import Aggregation, Expr, Input, OutputColumn
from watersmeet.types.sql_type import UNKNOWN, SqlType

WITHOUT_ORDER = ("first", "last")
SAME_IN_BOTH = frozenset(
    {
        "count", "count_if", "sum", "avg", "min", "max", "min_by", "max_by", "any_value", "bool_and",
        "bool_or", "bit_and", "bit_or", "bit_xor", "stddev_samp", "stddev_pop", "var_samp", "var_pop",
    }
)  # fmt: skip
"""Those that tasks compute as Spark does (see `kernel.aggregate`); others are left to Spark."""
RETRACTABLE_FUNCTIONS = SAME_IN_BOTH - {"bit_xor", "stddev_samp", "stddev_pop", "var_samp", "var_pop"}
"""Those that tasks compute of groups whose rows come and go (see `kernel.groups`)."""
_ADDS_UP = frozenset({"count", "count_if", "sum", "avg"})
_FROM_ROWS = frozenset({"stddev_samp", "stddev_pop", "var_samp", "var_pop"})
_ONCE = frozenset({"count", "sum", "avg"})
"""Those for which DISTINCT makes a difference."""


@dataclass(frozen=True)
class Groups:
    """Columns that state stores for groups.

    Attributes:
        held: Columns of the side that store them, in the form of the keys of a join.
        keys: (name in the result, column).
        calls: The aggregates.
    """

    held: tuple[KeyPlan, ...]
    keys: tuple[tuple[str, str], ...]
    calls: tuple[CallPlan, ...]


def groups_of(node: GroupedNode, feed: PlannedFeed | None) -> Groups:
    """Return the columns that a grouped node stores.

    Args:
        feed: Feed of the side, if its rows come from a node below; None for an input.
    """
    child = node.side(Side.LEFT)
    held: dict[str, KeyPlan] = {}

    def holding(expr: Expr, name: str, *, as_it_is: bool) -> str:
        """Return the column that stores ``expr``.

        An event time is stored as a plain number.

        Args:
            as_it_is: An event time in its own column is sufficient.
        """
        if feed is not None:
            own, column = expr, ""
            if isinstance(expr, exp.Column):
                ref = (expr.table, expr.name)
                column = joined_name(*ref) if as_it_is or not node.join_inputs.is_event_time(ref) else ""
            column = column or feed.held(expr, name)
        else:
            assert isinstance(child, Input)
            plain = isinstance(expr, exp.Column) and (as_it_is or expr.name not in child.event_times)
            column, own = expr.name if plain else name, bare(expr)
        held.setdefault(column, KeyPlan(own, own, Key(column, column, null_safe=True)))
        return column

    asked = node.asked
    keys = tuple(
        (key.name, holding(key.expr, ours(f"key{n}"), as_it_is=False)) for n, key in enumerate(asked.keys, 1)
    )
    calls = tuple(_call(aggregate, n, holding) for n, aggregate in enumerate(asked.aggregates, 1))
    return Groups(tuple(held.values()), keys, calls)


def _call(asked: OutputColumn, number: int, holding: Callable[..., str]) -> CallPlan:
    call = call_of(asked.expr)
    text = text_of(asked.expr)
    if not call.plain or call.function not in SAME_IN_BOTH:
        places: dict[Expr, str] = {}
        for column in asked.expr.find_all(exp.Column):
            places.setdefault(column, holding(column, ours(f"argument{number}"), as_it_is=True))
        expr = asked.expr.transform(
            lambda node: _column_ref(places[node]) if isinstance(node, exp.Column) else node
        )
        return CallPlan(
            asked.name, call.function, tuple(places.values()), False, None, expr, text, plain=False
        )
    columns = tuple(
        holding(argument, ours(f"argument{number}.{n}"), as_it_is=True)
        for n, argument in enumerate(call.arguments, 1)
    )
    chosen = None if call.filter is None else holding(call.filter, ours(f"only{number}"), as_it_is=True)
    expr = _spark(call, columns, chosen)
    return CallPlan(asked.name, call.function, columns, call.distinct, chosen, expr, text, plain=True)


def from_rows(calls: tuple[CallPlan, ...], types: Mapping[str, SqlType]) -> tuple[str, ...]:
    """Return the calls, as written, that partial aggregates cannot compute.

    State has to retain the rows for them (see `kernel.aggregate`).

    Args:
        types: Known types of the results, by name of the call.
    """
    return tuple(
        call.text
        for call in calls
        if not call.plain
        or call.function not in SAME_IN_BOTH - _FROM_ROWS
        or (call.distinct and call.function in _ONCE)
        or (call.function == "avg" and _is_too_wide(types.get(call.name, UNKNOWN)))
    )


def looks_at_values(call: CallPlan) -> bool:
    """Return True if the aggregate is no sum.

    State then retains every distinct value of groups whose rows can be retracted.
    """
    return call.distinct or call.function not in _ADDS_UP


def _is_too_wide(mean: SqlType) -> bool:
    """Return True if Spark has to compute a mean of this type (see `kernel.aggregate`)."""
    return mean.is_decimal and mean.digits + max(mean.scale + 6, 15) > 42


def _column_ref(column: str) -> Expr:
    return exp.column(exp.to_identifier(column, quoted=True))


def _spark(call: AggregateCall, columns: tuple[str, ...], chosen: str | None) -> Expr:
    """Build the call over the columns that store its arguments."""
    arguments: list[Expr] = [_column_ref(column) for column in columns]
    if not arguments:
        arguments = [exp.Star()]
    if call.distinct:
        arguments = [exp.Distinct(expressions=arguments)]
    spark_call: Expr = exp.Anonymous(this=call.function, expressions=arguments)
    if chosen is None:
        return spark_call
    return exp.Filter(this=spark_call, expression=exp.Where(this=_column_ref(chosen)))


def check_calls(asked: Aggregation, *, is_root: bool) -> list[PlanError]:
    """Return errors for aggregates that are unsupported, or unsupported at their place in a query."""
    errors = []
    for aggregate in asked.aggregates:
        call = call_of(aggregate.expr)
        if call.function in WITHOUT_ORDER:
            other = "min_by" if call.function == "first" else "max_by"
            errors.append(
                PlanError(
                    f"{call.function}() is not supported, because rows of a stream have no order other"
                    " than time",
                    code="aggregate-function",
                    hint=f"use {other}(value, time)",
                )
            )
        elif not is_root and (not call.plain or call.function not in SAME_IN_BOTH):
            errors.append(
                PlanError(
                    f"{text_of(aggregate.expr)} needs Spark, so only the last step of a query can"
                    " compute it, but here its result is joined or grouped again",
                    code="aggregate-function",
                    hint="INSERT this aggregate into a sink, and read that in another job",
                )
            )
    return errors


def with_texts(expr: Expr, asked: Aggregation) -> Expr:
    """Replace keys and aggregates of a group's result with their written expressions, for users."""
    written = {named.name: named.expr for named in (*asked.keys, *asked.aggregates)}
    return expr.transform(lambda node: written.get(node.name, node) if isinstance(node, exp.Column) else node)
