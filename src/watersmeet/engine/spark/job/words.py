"""What Spark says of an expression in a tick, in words of the job: the condition or column of an INSERT that
it stands for. Spark quotes what it was given, which for keys is a cast that nobody wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator

from watersmeet.engine.spark.errors import condition_of, fragments_of, readable_error
from watersmeet.engine.spark.text import sql_of
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.kernel.expressions.evaluate import guard_of
from watersmeet.names import FLAG
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.sides import BranchPlan

_SPACE = re.compile(r"[\s`]+")


def in_words(error: BaseException, plan: JobPlan) -> WatersmeetError:
    """`readable_error`, and what the expression is that it is of, if that is known."""
    error_in_words = readable_error(error)
    if not isinstance(error_in_words, EngineError) or error_in_words.code != "spark-failed":
        return error_in_words
    condition = condition_of(error)
    if condition is None:
        return error_in_words
    for fragment in map(_squeezed, fragments_of(error)):
        for given in (_columns(plan), _flags(plan)):  # a flag has the keys in it, too
            stands_for = list(dict.fromkeys(words for sql, words in given if fragment and fragment in sql))
            if len(stands_for) == 1:
                return EngineError(
                    f"{stands_for[0]} failed: [{condition}] {error_in_words.message}",
                    code="condition-failed",
                    hint=guard_of(condition),
                )
    return error_in_words


def _flags(plan: JobPlan) -> Iterator[tuple[str, str]]:
    """As `_columns`, of conditions on rows alone."""
    for where, branch in _branches(plan):
        words = dict(branch.words).get(FLAG)
        if branch.flag is not None and words is not None:
            yield _squeezed(sql_of(branch.flag)), f"{where}the condition {words}"


def _branches(plan: JobPlan) -> Iterator[tuple[str, BranchPlan]]:
    for query in plan.queries:
        sides = [*query.sides, *(side for node in query.nodes for side in node.tables)]
        for side in sides:
            for _, branch in side.sources:
                yield f'INSERT "{query.name}": ', branch


def _columns(plan: JobPlan) -> Iterator[tuple[str, str]]:
    """The SQL that Spark is given for columns of rows, and what it stands for."""
    for where, branch in _branches(plan):
        words = dict(branch.words)
        for name, expr in branch.columns:
            if name in words:
                yield _squeezed(sql_of(expr)), f"{where}the condition {words[name]}"
    for query in plan.queries:
        where = f'INSERT "{query.name}": '
        for output in query.outputs:
            shown = text_of(output.expr).replace("`", "")
            yield _squeezed(sql_of(output.expr)), f"{where}the column {output.name} = {shown}"


def _squeezed(sql: str) -> str:
    return _SPACE.sub("", sql).lower()
