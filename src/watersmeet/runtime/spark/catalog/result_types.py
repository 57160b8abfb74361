"""Query Spark for the result types of its functions."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.spec.functions import family_of
from watersmeet.types.coercion import Argument
from watersmeet.types.parser import sql_type
from watersmeet.types.results import RULES, result_of
from watersmeet.types.sql_type import SqlType

# What Spark's analyser says of very many expressions: which it refuses for the types of their operands.
#
# They are analysed together, thousands in one plan that is never checked as a whole nor run; what is
# wrong with one that stays unresolved is asked of its nodes, as Spark's own check does.

_OTHER = ("NON_FOLDABLE_INPUT", "UNEXPECTED_NULL", "VALUE_OUT_OF_RANGE")
"""What is said to be a wrong type and is a wrong value."""

_TYPES = "DATATYPE_MISMATCH."
_MAX_EXPRESSIONS = 2500
"""Expressions in one plan."""


class Analysed:
    """Analyzed expression.

    Attributes:
        condition: Spark's error condition; "" if there is none.
    """

    def __init__(self, node: Any = None, condition: str = "") -> None:
        self._node = node
        self._condition = condition
        self._refused: bool | None = None

    @property
    def resolved(self) -> bool:
        return self._node is not None and _is_resolved(self._node)

    @property
    def refused(self) -> bool:
        """True if Spark rejects the expression because of its operand types and for no other reason."""
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
        """Analyse all expressions, in order.

        Args:
            singly: maximum number of expressions to analyse one by one when Spark throws an error instead
                of
                leaving them unresolved.

        Returns:
            One result per expression, or None if more than ``singly`` single analyses would be necessary.
        """
        answers: list[Analysed] = []
        for start in range(0, len(expressions), _MAX_EXPRESSIONS):
            part = expressions[start : start + _MAX_EXPRESSIONS]
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
        """Return the name of the error that a query of the expression raises.

        Returns:
            The name; "" for an error without a name; None if there is no error.
        """
        try:
            self._spark.sql(f"SELECT {expression} FROM {self._view}")
        except PySparkException as error:
            return error.getCondition() or ""
        except Exception:  # one that has no name
            return ""
        return None

    def _together(self, expressions: Sequence[str]) -> list[Analysed]:
        """Analyze several expressions in one plan.

        Raises:
            ValueError: Spark makes another plan of the expressions.
            Exception: Spark rejects the expressions.
        """
        text = f"SELECT {', '.join(expressions)} FROM {self._view}"
        plan = self._state.analyzer().execute(self._state.sqlParser().parsePlan(text))
        nodes = plan.expressions()
        if nodes.size() != len(expressions):
            raise ValueError(plan.nodeName())
        return [Analysed(nodes.apply(number)) for number in range(len(expressions))]


def is_mismatch(condition: str) -> bool:
    """Return True if the error condition reports a type mismatch."""
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


# Of what type the results of Spark's functions are, found out by asking it: the rule of each.
#
# Calls of a function are drawn, with columns of many types and constants, and Spark says of what type
# each is that it takes. The function's rule is the first of `watersmeet.types.results` that says the same
# of all.

Call = tuple[str, ...]
RejectedFamilies = Mapping[int, Sequence[Collection[str]]]
"""Per number of arguments, per position the families that are not taken."""

_VIEW = "watersmeet_types"
_PROBED_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
    *("DECIMAL(10,2)", "DECIMAL(5,0)", "DECIMAL(38,18)", "DECIMAL(20,10)"),
    *("STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    *("INTERVAL DAY TO SECOND", "INTERVAL HOUR", "INTERVAL YEAR TO MONTH", "VARIANT"),
    *("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<STRING>", "ARRAY<DECIMAL(10,2)>", "ARRAY<FLOAT>"),
    *("ARRAY<ARRAY<INT>>", "ARRAY<STRUCT<a: STRING, b: INT>>"),
    *("MAP<STRING, INT>", "MAP<STRING, BIGINT>", "MAP<INT, ARRAY<STRING>>"),
    *("STRUCT<a: INT>", "STRUCT<a: TIMESTAMP, b: TIMESTAMP>"),
)
_NULL = "NULL"
_CONSTANTS = {
    _NULL: Argument(sql_type("VOID")),
    "2": Argument(sql_type("INT"), "2"),
    "-1": Argument(sql_type("INT"), "-1"),
    "2.5": Argument(sql_type("DECIMAL(2,1)"), "2.5"),
    "0.5": Argument(sql_type("DECIMAL(1,1)"), "0.5"),
    "array(0.5)": Argument(sql_type("ARRAY<DECIMAL(1,1)>")),
    "TRUE": Argument(sql_type("BOOLEAN")),
    "'DAY'": Argument(sql_type("STRING"), "DAY"),
}
_FURTHER_CONSTANTS = {
    "0.5D": Argument(sql_type("DOUBLE"), "0.5"),
    "array(2)": Argument(sql_type("ARRAY<INT>")),
    "INTERVAL '1' HOUR": Argument(sql_type("INTERVAL HOUR")),
    "INTERVAL '1' MONTH": Argument(sql_type("INTERVAL MONTH")),
}
_DRAWN = (*(f"`{type_}`" for type_ in _PROBED_TYPES), *_CONSTANTS)
_MAX_ARGUMENTS = 4
_TOGETHER = 300
_MIN_EXPLAINED_SHARE = 0.8
"""The share of the calls of which a rule has to tell the type: of the others it says nothing."""

_FORMS = dict.fromkeys(("percentile_cont", "percentile_disc"), "{name}({1}) WITHIN GROUP (ORDER BY {0})")
"""Functions that are called another way."""
_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "DOW")
_PARTS = tuple(
    (f"'{unit}'", f"`{type_}`")
    for unit in _UNITS
    for type_ in ("DATE", "TIMESTAMP", "STRING", "INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH")
)
_QUANTILES = (("`BINARY`", "0.5"), ("`BINARY`", "2"), ("`BINARY`", "array(0.5)"), ("`BINARY`", "array(2)"))
_SHARES = tuple(
    (f"`{type_}`", share)
    for type_ in ("INT", "FLOAT", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "INTERVAL HOUR")
    for share in ("0.5", "array(0.5)")
)
_VARIANTS = (
    ("`VARIANT`", "'$.a'"),
    *(("`VARIANT`", "'$.a'", f"'{type_}'") for type_ in ("INT", "ARRAY<DATE>")),
)
_PROBES: dict[str, tuple[Call, ...]] = {
    **dict.fromkeys(("date_part", "datepart", "extract"), _PARTS),
    **dict.fromkeys(("variant_get", "try_variant_get"), _VARIANTS),
    **dict.fromkeys(("to_number", "try_to_number"), (("`STRING`", "'99.9'"), ("`STRING`", "'S9G999'"))),
    **dict.fromkeys(
        ("from_json", "from_csv", "from_xml"), (("`STRING`", "'a INT'"), ("`STRING`", "'b: DATE'"))
    ),
    **dict.fromkeys(("percentile", "percentile_approx", "approx_percentile", *_FORMS), _SHARES),
    **{
        f"kll_sketch_get_{what}_{kind}": _QUANTILES
        for what in ("quantile", "rank")
        for kind in ("bigint", "double", "float")
    },
    **{
        f"{way}make_timestamp{zone}": (("2",) * 6, ("`INT`",) * 6)
        for way in ("", "try_")
        for zone in ("", "_ltz", "_ntz")
    },
    "time_bucket": tuple(
        (size, f"`{type_}`")
        for size in ("INTERVAL '1' HOUR", "INTERVAL '1' MONTH")
        for type_ in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING")
    ),
    "count_min_sketch": (("`INT`", "0.5D", "0.5D", "2"),),
}
"""Calls whose arguments have to be certain constants, which are not drawn."""


class ResultTypes:
    """Spark's answers: calls of functions with the types of their results."""

    def __init__(self, spark: SparkSession, seed: int) -> None:
        columns = [f"CAST(NULL AS {type_}) AS `{type_}`" for type_ in _PROBED_TYPES]
        spark.range(0).selectExpr(*columns).createOrReplaceTempView(_VIEW)
        self._analyser = Analyser(spark, _VIEW)
        self._seed = seed

    def of(
        self, name: str, counts: Sequence[int], refused: RejectedFamilies, most: int
    ) -> list[tuple[Call, SqlType]]:
        """Return calls of a function that Spark accepts, with the types of their results.

        Args:
            most: the maximum number of calls to try, per number of arguments.
        """
        draw = random.Random(f"{self._seed} {name}")
        answers = list(self._answers(name, _PROBES.get(name, ())))
        least = min((count for count in counts if count), default=0)
        few = [count for count in counts if 0 < count <= _MAX_ARGUMENTS or count == least]
        for count in (2,) if name in _FORMS else few:
            shorter = [call for call, _ in answers if len(call) == count - 1]
            calls = _draw_calls(draw, count, refused.get(count), shorter, most)
            for start in range(0, len(calls), _TOGETHER):
                answers += self._answers(name, calls[start : start + _TOGETHER])
        return answers

    def _answers(self, name: str, calls: Sequence[Call]) -> Iterable[tuple[Call, SqlType]]:
        form = _FORMS.get(name)
        texts = [
            f"`{name}`({', '.join(call)})" if form is None else form.format(*call, name=name)
            for call in calls
        ]
        answers = self._analyser.all(texts, singly=len(texts)) or ()
        for call, answer in zip(calls, answers, strict=True):
            type_ = answer.type
            if type_ is not None:
                yield call, type_.nullable


def infer_rule(answers: Sequence[tuple[Call, SqlType]]) -> str | None:
    """Infer the result type that all calls share, or the rule that gives their result types.

    A rule must explain most of the calls and contradict none.

    Returns:
        The type or the rule; None if there is none, or if only calls with NULL are known.
    """
    certain = [call for call, _ in answers if _NULL not in call]
    if not certain:
        return None
    types = {type_ for _, type_ in answers}
    if len(types) == 1 and not any(type_.is_nested for type_ in types):
        return str(types.pop())
    best, most = None, _MIN_EXPLAINED_SHARE * len(certain)
    for name in RULES:
        told = {call: infer_call_type(name, call) for call, _ in answers}
        count = sum(told[call] is not None for call in certain)
        if count > most and all(told[call] in (None, type_) for call, type_ in answers):
            best, most = name, count
    return str(types.pop()) if best is None and len(types) == 1 else best


def infer_call_type(rule: str, call: Call) -> SqlType | None:
    """Compute the result type of a call by a rule; None if the rule gives none."""
    type_ = result_of(rule, build_arguments(call))
    return None if type_ is None else type_.nullable


def build_arguments(call: Call) -> list[Argument]:
    constants = {**_CONSTANTS, **_FURTHER_CONSTANTS}
    return [constants.get(text) or _argument(text) for text in call]


def _argument(text: str) -> Argument:
    if text.startswith("'"):
        return Argument(sql_type("STRING"), text.strip("'"))
    name = text.strip("`")
    return Argument(sql_type(name), None, name)


def _draw_calls(
    draw: random.Random,
    count: int,
    refused: Sequence[Collection[str]] | None,
    shorter: Sequence[Call],
    most: int,
) -> list[Call]:
    """Draw sample calls with ``count`` arguments.

    Args:
        shorter: accepted calls with one argument fewer.
    """
    taken = [
        [text for text in _DRAWN if refused is None or not _is_in_families(text, refused[place])]
        for place in range(count)
    ]
    if count < 2:
        every = list(product(*taken))
        return every if len(every) <= most else draw.sample(every, most)
    alike = [(text,) * count for text in _DRAWN]
    nested = [f"`{type_}`" for type_ in _PROBED_TYPES if sql_type(type_).is_nested]
    alike += product(nested, repeat=2) if count == 2 else _draw_element_calls(nested, count)
    calls = [tuple(map(draw.choice, taken)) for _ in range(most)]
    calls += [(*call, draw.choice(taken[-1])) for call in draw.sample(shorter, min(most, len(shorter)))]
    return list(dict.fromkeys([*draw.sample(alike, min(most, len(alike))), *calls]))


def _draw_element_calls(nested: Iterable[str], count: int) -> Iterable[Call]:
    """Yield calls with an ARRAY or MAP, elements of it, and a number."""
    for text in nested:
        inner = build_arguments((text,))[0].type.inner
        yield from product(
            (text, *(f"`{type_}`" for type_ in inner if str(type_) in _PROBED_TYPES), "2"), repeat=count
        )


def _is_in_families(text: str, families: Collection[str]) -> bool:
    return family_of(build_arguments((text,))[0].type) in families
