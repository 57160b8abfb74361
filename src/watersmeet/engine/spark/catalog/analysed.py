"""What Spark's analyser says of very many expressions: which it refuses for the types of their operands.

They are analysed together, thousands in one plan that is never checked as a whole nor run; what is wrong with
one that stays unresolved is asked of its nodes, as Spark's own check does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import SqlType

_OTHER = ("NON_FOLDABLE_INPUT", "UNEXPECTED_NULL", "VALUE_OUT_OF_RANGE")
"""What is said to be a wrong type and is a wrong value."""

_TYPES = "DATATYPE_MISMATCH."
_MOST = 2500
"""Expressions in one plan."""


class Analysed:
    """One expression as it was analysed. ``condition``: what Spark says where it threw; "" if nothing."""

    def __init__(self, node: Any = None, condition: str = "") -> None:
        self._node = node
        self._condition = condition
        self._refused: bool | None = None

    @property
    def resolved(self) -> bool:
        return self._node is not None and _is_resolved(self._node)

    @property
    def refused(self) -> bool:
        """For the types of its operands, and for nothing else."""
        if self._refused is None:
            if self._node is None:
                self._refused = is_mismatch(self._condition)
            else:
                self._refused = not self.resolved and _is_wrong(self._node)
        return self._refused

    @property
    def type(self) -> SqlType | None:
        """Spark's, if it is resolved."""
        try:
            return sql_type(str(self._node.dataType().sql())) if self.resolved else None
        except Exception:  # a function that asks for more than types
            return None


class Analyser:
    """Analyses expressions over one view of a session."""

    def __init__(self, spark: SparkSession, view: str) -> None:
        self._spark = spark
        self._state = spark._jsparkSession.sessionState()
        self._view = view

    def all(self, expressions: Sequence[str], *, singly: int = 0) -> list[Analysed] | None:
        """Each as it was analysed.

        Args:
            singly: how many may be asked one by one where Spark throws instead of leaving them unresolved;
                None is returned when there would be more.
        """
        answers: list[Analysed] = []
        for start in range(0, len(expressions), _MOST):
            part = expressions[start : start + _MOST]
            try:
                answers += self._together(part)
            except Exception:
                singly -= len(part)
                if singly < 0:
                    return None
                answers += [self.one(expression) for expression in part]
        return answers

    def one(self, expression: str) -> Analysed:
        try:
            return self._together([expression])[0]
        except PySparkException as error:
            return Analysed(condition=error.getCondition() or "")
        except Exception:  # one that has no name
            return Analysed()

    def condition(self, expression: str) -> str | None:
        """The name of the error that a query of the expression ends with; None: there is none."""
        try:
            self._spark.sql(f"SELECT {expression} FROM {self._view}")
        except PySparkException as error:
            return error.getCondition() or ""
        except Exception:  # one that has no name
            return ""
        return None

    def _together(self, expressions: Sequence[str]) -> list[Analysed]:
        """Raises: what Spark throws; ValueError, if it makes another plan of them."""
        text = f"SELECT {', '.join(expressions)} FROM {self._view}"
        plan = self._state.analyzer().execute(self._state.sqlParser().parsePlan(text))
        nodes = plan.expressions()
        if nodes.size() != len(expressions):
            raise ValueError(plan.nodeName())
        return [Analysed(nodes.apply(number)) for number in range(len(expressions))]


def is_mismatch(condition: str) -> bool:
    """Whether the error of that name is of types."""
    return condition.startswith(_TYPES) and not condition.endswith(_OTHER)


def _is_resolved(node: Any) -> bool:
    try:
        return bool(node.resolved())
    except Exception:  # a function that asks for more than types
        return False


def _is_wrong(node: Any) -> bool:
    try:
        children = node.children()
        for number in range(children.size()):
            child = children.apply(number)
            if not child.resolved():
                return _is_wrong(child)
        said = node.checkInputDataTypes()
    except Exception:  # it is not one that is ever resolved
        return False
    kind = said.getClass().getSimpleName()
    if kind == "DataTypeMismatch":
        return said.errorSubClass() not in _OTHER
    return bool(kind == "TypeCheckFailure")
