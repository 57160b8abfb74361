"""Errors that Spark reports for an expression in a tick, in the terms of the job.

The messages name the condition, column or aggregate of the INSERT that the expression stands for. Spark
quotes the expression that it received, which for keys is a cast that no user wrote. Some errors quote
nothing; then this module looks for the expressions that can raise them. If several are possible, the message
names all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.expressions.evaluate import guard_of
from watersmeet.names import FLAG, is_ours
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import CallPlan, GroupedPlan
from watersmeet.plan.model.sides import BranchPlan
from watersmeet.runtime.spark.errors import find_condition, find_sql_fragments, readable_error
from watersmeet.runtime.spark.sql_text import to_spark_sql
from watersmeet.spec.model import Expr
from watersmeet.spec.records.changes import computed_of_changes

MAX_SUSPECTS = 3
"""So many expressions are named that an error may be of; of more, how many there are."""

_SPACE = re.compile(r"[\s`]+")
_COMPUTES = re.compile(r"[^\w.]")
"""What a fragment has in it that can fail: a name alone cannot."""
_OVERFLOWS_TO = re.compile(r'cannot be cast to "([A-Z]+)" due to an overflow')
_RAISED_BY = {
    "CANNOT_PARSE_TIMESTAMP": re.compile(r"(?<![a-z_])(to_timestamp|to_date|(to_)?unix_timestamp)"),
    "DATETIME_FIELD_OUT_OF_BOUNDS": re.compile(r"(?<![a-z_])make_(date|time)"),
}
"""Of conditions with which Spark quotes no expression: what raises them."""

ExpressionText = tuple[str, str]
"""The SQL that Spark is given, without spaces, and what it stands for."""


def explain_error(error: BaseException, plan: JobPlan) -> WatersmeetError:
    """Convert an exception as `readable_error` does; name the expression that failed, if known."""
    error_in_words = readable_error(error)
    if not isinstance(error_in_words, EngineError) or error_in_words.code != "spark-failed":
        return error_in_words
    condition = find_condition(error)
    if condition is None:
        return error_in_words
    named = next(_list_suspects(error, condition, error_in_words.message, plan), None)
    if named is None:
        return error_in_words
    return EngineError(
        f"{named} failed: [{condition}] {error_in_words.message}",
        code="condition-failed",
        hint=guard_of(condition),
    )


def _list_suspects(error: BaseException, condition: str, message: str, plan: JobPlan) -> Iterator[str]:
    """Yield the expressions that the error may be about, likeliest first."""
    # A flag has the keys in it, too.
    given = list[Callable[[JobPlan], Iterator[ExpressionText]]]((_columns, _flags, _list_change_columns))
    for fragment in map(_strip_spaces, find_sql_fragments(error)):
        for source in given if _COMPUTES.search(fragment) else ():
            yield from _join_suspects([words for sql, words in source(plan) if fragment in sql])
    raised_by = _find_raising_pattern(condition, message)
    if raised_by is not None:
        yield from _join_suspects([words for sql, words in _columns(plan) if raised_by.search(sql)])


def _find_raising_pattern(condition: str, message: str) -> re.Pattern[str] | None:
    """Return a pattern of the SQL that can raise ``condition``, if Spark does not quote the SQL."""
    overflows = _OVERFLOWS_TO.search(message)
    if condition == "CAST_OVERFLOW" and overflows is not None:
        return re.compile(rf"(?<!try_)cast\(.*as{overflows[1].lower()}\)")
    return next((signs for name, signs in _RAISED_BY.items() if condition.startswith(name)), None)


def _join_suspects(words: Sequence[str]) -> Iterator[str]:
    """Join the distinct descriptions into one text; yield nothing if there are none."""
    named = list(dict.fromkeys(words))
    if not named:
        return
    where = {text[: text.index(": ") + 2] for text in named}
    if len(where) == 1:
        named[1:] = [text.removeprefix(*where) for text in named[1:]]
    more = len(named) - MAX_SUSPECTS
    yield " or ".join([*named[:MAX_SUSPECTS], *([f"{more} more"] if more > 0 else [])])


def _flags(plan: JobPlan) -> Iterator[ExpressionText]:
    """Yield the SQL and a description of each condition on the rows of one input."""
    for query, _, branch in _branches(plan):
        words = dict(branch.words).get(FLAG)
        if branch.flag is not None and words is not None:
            yield _strip_spaces(to_spark_sql(branch.flag)), f"{_insert_prefix(query)}the condition {words}"


def _list_change_columns(plan: JobPlan) -> Iterator[ExpressionText]:
    """Yield the SQL and a description of each computed column that classifies a record's change."""
    for source in (*plan.sources, *plan.tables):
        for own in computed_of_changes(source):
            shown = f"the column {own.column.name} AS {_strip_backticks(text_of(own.expr))}"
            yield _strip_spaces(to_spark_sql(own.expr)), f'source "{source.name}": {shown}'


def _branches(plan: JobPlan) -> Iterator[tuple[QueryPlan, str, BranchPlan]]:
    """Yield all branches of all inputs, with their query and alias."""
    for query in plan.queries:
        sides = [*query.sides, *(side for node in query.nodes for side in node.tables)]
        for side in sides:
            for _, branch in side.sources:
                yield query, side.name, branch


def _columns(plan: JobPlan) -> Iterator[ExpressionText]:
    """Yield the SQL and a description of each computed column and each aggregate.

    Computed columns are those of rows, of inputs and of results.
    """
    for query, alias, branch in _branches(plan):
        words = dict(branch.words)
        for name, expr in branch.columns:
            if isinstance(expr, exp.Column):
                continue
            condition = f"the condition {words[name]}" if name in words else None
            yield (
                _strip_spaces(to_spark_sql(expr)),
                _insert_prefix(query) + (condition or _describe_input_column(query, alias, name, expr)),
            )
    for query in plan.queries:
        for call in _calls(query):
            yield (
                _strip_spaces(to_spark_sql(call.expr)),
                f"{_insert_prefix(query)}the aggregate {_strip_backticks(call.text)}",
            )
        if query.where is not None:
            text = _format_result(query, query.where)
            yield _strip_spaces(to_spark_sql(query.where)), f"{_insert_prefix(query)}the condition {text}"
        for output in query.outputs:
            shown = f"the column {output.name} = {_format_result(query, output.expr)}"
            yield _strip_spaces(to_spark_sql(output.expr)), _insert_prefix(query) + shown


def _describe_input_column(query: QueryPlan, alias: str, name: str, expr: Expr) -> str:
    """Describe a computed column of an input by its purpose."""
    text = _strip_backticks(text_of(expr))
    if not is_ours(name):
        return f"the column {alias}.{name} = {text}"
    calls = dict.fromkeys(
        _strip_backticks(call.text) for call in _calls(query) if name in (*call.columns, call.filter)
    )
    if calls:
        return " or ".join(f"the aggregate {call}" for call in calls)
    is_key = any(name == column for node in query.every(GroupedPlan) for _, column, _ in node.group_keys)
    return f"the grouping key {text}" if is_key else f"{text} of rows of {alias}"


def _format_result(query: QueryPlan, expr: Expr) -> str:
    """Format an expression over rows of the last node with aggregates and group keys as written."""
    written = {call.name: call.text for call in _calls(query)}
    written |= {name: text for node in query.every(GroupedPlan) for name, _, text in node.group_keys}

    def as_written(node: exp.Expression) -> exp.Expression:
        is_result = isinstance(node, exp.Column) and node.name in written
        return exp.Var(this=written[node.name]) if is_result else node

    return _strip_backticks(text_of(expr.transform(as_written) if written else expr))


def _calls(query: QueryPlan) -> list[CallPlan]:
    return [call for node in query.every(GroupedPlan) for call in node.calls]


def _insert_prefix(query: QueryPlan) -> str:
    return f'INSERT "{query.name}": '


def _strip_backticks(text: str) -> str:
    return text.replace("`", "")


def _strip_spaces(sql: str) -> str:
    return _SPACE.sub("", sql).lower()
