"""ASOF joins for the oracle: how they are written, and what their condition says about times."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import TokenType

from tests.support.oracle.bounds import bounds_of
from tests.support.oracle.inputs import Key
from tests.support.oracle.sql import Function, Scope, compile_expr
from tests.support.oracle.values import INT64_MAX, INT64_MIN, Refused, saturate

ASOF = ("ASOF", "ASOF LEFT")


class _Parser(SparkParser):
    def _parse_wrapped(self, parse_method: Callable[[], Any], optional: bool = False) -> Any:
        after_match = self._prev and self._prev.token_type == TokenType.MATCH_CONDITION
        return super()._parse_wrapped(self._parse_disjunction if after_match else parse_method, optional)


class _Dialect(Spark):
    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **Spark.Tokenizer.KEYWORDS,
            "MATCH_CONDITION": TokenType.MATCH_CONDITION,
        }

    Parser = _Parser


def parse_asof_query(query: str) -> exp.Expression:
    """A query as a tree; ``LEFT ASOF JOIN`` is ``ASOF LEFT JOIN``."""
    query = re.sub(r"\b(LEFT|INNER)( OUTER)? ASOF JOIN\b", r"ASOF \1\2 JOIN", query)
    tree = sqlglot.parse_one(query, dialect=_Dialect)
    assert isinstance(tree, exp.Expression)
    for node in tree.walk():
        node.meta.clear()  # places in the text, which nobody asks for, and which take half the time of copies
    return tree


@dataclass
class AsofRule:
    """Which right row is the nearest: of the two times, the greatest right one (``latest``) or the least.

    ``tests``: (function of a pair's rows, the same with its strict comparison closed, whether it holds for
    all lesser right times, else for all greater, and what to add to a left time for a first guess at the
    outermost right time). ``keys``: functions of a right row; rows with equal values are of one key.
    """

    left: Key
    right: Key
    places: tuple[int, int]
    """The two inputs, by number."""
    inputs: int
    latest: bool
    tests: list[tuple[Function, Function, bool, int]]
    keys: list[Function] = field(default_factory=list)
    _known: dict[Any, Any] = field(default_factory=dict)

    def reach(self, left: int, *, closed: bool = False) -> tuple[int, int]:
        """The least and the greatest right time that a left time may match; (1, 0) if there is none."""
        if (left, closed) not in self._known:
            low, high = INT64_MIN, INT64_MAX
            for exact, wide, is_ceiling, distance in self.tests:
                f = wide if closed else exact
                end = outermost(partial(self._holds, f, left), left + distance, is_ceiling)
                if end is None:
                    low, high = 1, 0
                elif is_ceiling:
                    high = min(high, end)
                else:
                    low = max(low, end)
            self._known[left, closed] = (low, high) if low <= high else (1, 0)
        reach: tuple[int, int] = self._known[left, closed]
        return reach

    def ceiling(self, left: int) -> int | None:
        """The greatest right time below all (closed) ceilings of a left time; None: there is none."""
        return self._end(left, ceilings=True)

    def floor(self, left: int) -> int | None:
        """The least right time above all (closed) floors; None: there is none."""
        return self._end(left, ceilings=False)

    def _end(self, left: int, *, ceilings: bool) -> int | None:
        ends = [
            outermost(partial(self._holds, wide, left), left + distance, ceilings)
            for _, wide, is_ceiling, distance in self.tests
            if is_ceiling == ceilings
        ]
        if None in ends:
            return None
        finite = [end for end in ends if end is not None]
        return min(finite, default=INT64_MAX) if ceilings else max(finite, default=INT64_MIN)

    def first_asking(self, right: int) -> int | None:
        """The least left time of which no ceiling is below ``right``; None: there is none."""
        ends = [
            outermost(partial(self._holds_for_right, exact, right), right - distance, greatest=False)
            for exact, _, is_ceiling, distance in self.tests
            if is_ceiling
        ]
        return None if None in ends else max(end for end in ends if end is not None)

    def _holds_for_right(self, f: Function, right: int, left: int) -> bool:
        return self._holds(f, left, right)

    def _holds(self, f: Function, left: int, right: int) -> bool:
        rows: list[dict[str, Any]] = [{} for _ in range(self.inputs)]
        rows[self.places[0]] = {self.left[1]: left}
        rows[self.places[1]] = {**rows[self.places[1]], self.right[1]: right}
        return f(tuple(rows)) is True


def outermost(holds: Callable[[int], bool], guess: int, greatest: bool) -> int | None:
    """The greatest (least) int64 for which ``holds``, which holds for all lesser (greater) ones, too."""
    step = 1 if greatest else -1
    last, worst = (INT64_MAX, INT64_MIN) if greatest else (INT64_MIN, INT64_MAX)
    for end in (saturate(guess), saturate(guess - step), saturate(guess + step)):
        if holds(end) and (end == last or not holds(end + step)):
            return int(end)
    if not holds(worst):
        return None
    good, bad = worst, last + step
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


_CLOSED: dict[type[exp.Expression], type[exp.Expression]] = {exp.GT: exp.GTE, exp.LT: exp.LTE}


def asof_rule(
    match: list[exp.Expression],
    on: list[exp.Expression],
    sides: tuple[set[str], set[str]],
    times: set[Key],
    scope: Scope,
) -> AsofRule:
    """What the condition of an ASOF join says; refused where it does not say which row is nearest.

    Args:
        match, on: conjuncts of MATCH_CONDITION and of ON, those over one side alone left out.
        sides: the aliases of each.
    """
    comparisons: list[tuple[exp.Expression, bool, Key, Key, int]] = []
    keys: list[exp.Expression] = []
    for conjunct in [*match, *on]:
        bounds = [b for b in bounds_of(conjunct, scope) if b[0] in times and b[1] in times]
        operands = [conjunct.args.get("this"), conjunct.args.get("expression")]
        for upper, lower, c in bounds:
            is_ceiling = upper[0] in sides[0]
            left, right = (upper, lower) if is_ceiling else (lower, upper)
            comparisons.append((conjunct, is_ceiling, left, right, c if is_ceiling else -c))
        if bounds:
            continue
        if conjunct in match or not isinstance(conjunct, exp.EQ | exp.NullSafeEQ):
            raise Refused(f"not in an ASOF join: {conjunct.sql()}")
        ends = [{c.table for c in operand.find_all(exp.Column)} for operand in operands if operand]
        own = [operand for operand, aliases in zip(operands, ends, strict=True) if aliases <= sides[1]]
        if len(own) != 1 or not any(aliases <= sides[0] for aliases in ends):
            raise Refused(f"not in an ASOF join: {conjunct.sql()}")
        assert own[0] is not None
        keys.append(own[0])
    deciding = [bound for bound in comparisons if bound[0] is match[0]] if match else comparisons
    if not match:
        deciding = [bound for bound in comparisons if not isinstance(bound[0], exp.EQ)]
    if len(deciding) != 1:
        raise Refused("an ASOF join needs one comparison of times")
    _, latest, left, right, _ = deciding[0]
    if any((a, b) != (left, right) for _, _, a, b, _ in comparisons):
        raise Refused("an ASOF join compares one pair of times")
    if not any(is_ceiling for _, is_ceiling, _, _, _ in comparisons):
        raise Refused("state would grow without limit: an ASOF join that looks for later rows")
    tests = []
    for conjunct, is_ceiling, _, _, distance in comparisons:
        closed = _CLOSED.get(type(conjunct), type(conjunct))(
            this=conjunct.this.copy(), expression=conjunct.expression.copy()
        )
        exact = compile_expr(conjunct, scope)[1]
        if isinstance(conjunct, exp.EQ):
            kind = exp.GTE if _rises(conjunct, left, is_ceiling, scope) else exp.LTE
            one = kind(this=conjunct.this.copy(), expression=conjunct.expression.copy())
            exact = compile_expr(one, scope)[1]
            closed = one
        tests.append((exact, compile_expr(closed, scope)[1], is_ceiling, distance))
    aliases = list(scope.inputs)
    return AsofRule(
        left,
        right,
        (aliases.index(left[0]), aliases.index(right[0])),
        len(aliases),
        latest,
        tests,
        [compile_expr(key, scope)[1] for key in keys],
    )


def _rises(conjunct: exp.Expression, left: Key, is_ceiling: bool, scope: Scope) -> bool:
    """Whether this half of an equality is its ``>=``: then that says what the half says."""
    half = exp.GTE(this=conjunct.this.copy(), expression=conjunct.expression.copy())
    ((upper, _, _),) = bounds_of(half, scope)
    return (upper == left) == is_ceiling


__all__ = ["ASOF", "AsofRule", "asof_rule", "parse_asof_query"]
