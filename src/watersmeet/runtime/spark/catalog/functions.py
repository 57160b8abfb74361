"""Query Spark for its functions and operators, and their kinds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, cast

from pyspark import __version__
from pyspark.sql import SparkSession

from watersmeet.runtime.spark.catalog.result_types import Analysed, Analyser, ResultTypes, infer_rule
from watersmeet.spec.functions import FAMILIES, FORMS, MOST_ARGUMENTS, MOST_TYPED, OPERATORS, TABLE

# Of what kind Spark's functions are, found out by asking it: scalar, aggregate, window, generator, table.
#
# And whether they give the same for the same rows again.
#
# Spark is asked by the classes of the expressions behind the names, by the group that its documentation
# puts them in, and by what the analyser makes of a call: an aggregation, or a projection that is not
# deterministic.

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_CLASSES = {
    "window": ("WindowFunction",),
    "aggregate": ("aggregate.AggregateFunction", "RuntimeReplaceableAggregate"),
    "generator": ("Generator",),
}
_GROUPS = {"agg_funcs": "aggregate", "window_funcs": "window", "generator_funcs": "generator"}
_MAX_PROBED_ARGUMENTS = 3
_REFLECTION_ARGUMENTS = "'java.util.UUID', 'fromString', 'a5cb6c42-0c85-418f-af6c-3e4e5b1328f2'"
"""Arguments of the functions that call any method of Java's."""


def list_function_kinds(spark: SparkSession, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return each function's ``kind``, plus ``deterministic`` if it is not deterministic."""
    asked = _FunctionProbe(spark)
    return {name: asked.of(name) for name in names}


class _FunctionProbe:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = cast(Any, spark._jvm)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._known = catalyst.analysis.FunctionRegistry.expressions()
        self._tables = catalyst.analysis.TableFunctionRegistry.logicalPlans()
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._classes = {
            kind: [self._class(_EXPRESSIONS + name) for name in names] for kind, names in _CLASSES.items()
        }
        self._nondeterministic = self._class(_EXPRESSIONS + "Nondeterministic")

    def of(self, name: str) -> dict[str, Any]:
        entry = self._known.get(name)
        if entry.isEmpty():
            return {"kind": "table" if self._tables.contains(name) else "scalar"}
        info = entry.get()._1()
        own = self._class(info.getClassName())
        plan = self._analyse_call(name)
        kind = next(
            (
                kind
                for kind, classes in self._classes.items()
                if any(c.isAssignableFrom(own) for c in classes)
            ),
            _GROUPS.get(info.getGroup(), "scalar"),
        )
        if kind == "scalar" and plan is not None and plan.nodeName() == "Aggregate":
            kind = "aggregate"
        described: dict[str, Any] = {"kind": kind}
        if self._nondeterministic.isAssignableFrom(own) or (plan is not None and not plan.deterministic()):
            described["deterministic"] = False
        return described

    def _analyse_call(self, name: str) -> Any:
        """Return the analyzed plan of a call with the first arguments that the function accepts.

        Returns:
            The plan, or None if the function accepts none of the tried arguments.
        """
        for arguments in (
            *(", ".join(["NULL"] * count) for count in range(_MAX_PROBED_ARGUMENTS + 1)),
            _REFLECTION_ARGUMENTS,
        ):
            try:
                frame: Any = self._spark.sql(f"SELECT `{name}`({arguments})")
                return frame._jdf.queryExecution().analyzed()
            except Exception:  # not with these
                continue
        return None

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name, False, self._loader)


# What functions and operators Spark has, found out by asking it: `watersmeet.spec.functions` has the
# answer.
#
# Every function of Spark's catalog is analysed, without a row, with so many arguments, and with all
# families of types and NULL: up to three arguments in all combinations, more of them two by two beside
# NULLs, all alike, and one more behind what a shorter call takes. Only what Spark refuses for the number
# or the types of its arguments counts as refused. Run as a module it writes the table of the Spark that
# is installed.

Families = tuple[str, ...]

_VIEW = "watersmeet_families"
_MANY_ARGUMENTS = MOST_ARGUMENTS + 4
_IN_FULL = 3
_OF_ANY = 4
"""The families are asked of so many arguments, of functions that take any number."""

_MAX_SINGLE_CALLS = 200
"""So many calls are asked one by one, of functions that throw instead of staying unresolved."""

COMPUTING = ("scalar", "aggregate", "window")
"""Kinds of functions whose calls are values."""

_DRAWN_CALLS = 200

_NULL = "NULL"
"""Beside the families: it fits nearly everywhere."""

_TRIED_FAMILIES = (*FAMILIES, _NULL)
_SIMILAR_TYPES = {
    "INT": ("TINYINT", "SMALLINT"),
    "DOUBLE": ("FLOAT",),
    "DECIMAL": ("DECIMAL(5,0)", "DECIMAL(38,18)"),
    "ARRAY": (
        *("ARRAY<STRING>", "ARRAY<BIGINT>", "ARRAY<FLOAT>", "ARRAY<DOUBLE>", "ARRAY<BINARY>", "ARRAY<DATE>"),
        *("ARRAY<TIMESTAMP>", "ARRAY<BOOLEAN>", "ARRAY<ARRAY<INT>>", "ARRAY<MAP<STRING, STRING>>"),
        "ARRAY<STRUCT<a: STRING, b: INT>>",
    ),
    "MAP": ("MAP<STRING, STRING>", "MAP<INT, STRING>", "MAP<DATE, ARRAY<INT>>"),
    "STRUCT": ("STRUCT<a: STRING>", "STRUCT<a: INT, b: INT>", "STRUCT<a: TIMESTAMP, b: TIMESTAMP>"),
}
"""Types of a family that one stands for; what that refuses is tried with these, too."""

_MAX_BASE_CALLS = 8
"""Beside so many calls that are taken."""

_MAX_SHORTER_CALLS = 40
"""So many calls of one argument less are tried with one more."""

_NESTED = ("ARRAY", "MAP", "STRUCT")
_SCALARS = tuple(name for name in FAMILIES if name not in _NESTED)


def list_function_names(spark: SparkSession) -> list[str]:
    """List the names of all functions that are called by name."""
    listed = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return sorted(name for name in listed if re.fullmatch(r"[a-z_][a-z0-9_]*", name))


def signatures(
    spark: SparkSession, wanted: Iterable[str], typed: int = MOST_TYPED
) -> dict[str, dict[str, Any]]:
    """Return the argument counts and the rejected argument types of each function.

    Args:
        typed: maximum number of arguments for which type families are probed.

    Returns:
        Per function ``counts``, the numbers of arguments that it accepts, up to `MOST_ARGUMENTS` (``+``
        means any larger number), and ``refused``: per count, for each position, the families that it
        never accepts there.
    """
    analyser = _build_analyser(spark)
    return {name: _signature(analyser, name, typed) for name in wanted}


def results(spark: SparkSession, own: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, str]:
    """Return each function's result type, or the rule that gives it, where one is known.

    Args:
        own: per function its kind and the result of `signatures`.
    """
    types = ResultTypes(spark, seed)
    rules = {}
    for name, signature in own.items():
        if signature["kind"] in COMPUTING:
            counts = [count for count in signature["counts"] if count != "+"]
            refused = {int(count): lists for count, lists in signature.get("refused", {}).items()}
            rules[name] = infer_rule(types.of(name, counts, refused, _DRAWN_CALLS))
    return {name: rule for name, rule in rules.items() if rule is not None}


def operators(spark: SparkSession) -> dict[str, dict[str, list[str]]]:
    """Find the operand types that Spark rejects for each binary operator.

    Returns:
        Per operator, for each family on the left, the families on the right that Spark rejects.
    """
    analyser = _build_analyser(spark)
    by_operator: dict[str, dict[str, list[str]]] = {}
    for operator, form in OPERATORS.items():
        asked = list(product(FAMILIES, repeat=2))
        texts = [form.format(f"`{left}`", f"`{right}`", type=FAMILIES[right]) for left, right in asked]
        refused: dict[str, list[str]] = {}
        for (left, right), answer in zip(asked, _answers(analyser, texts), strict=True):
            if answer.refused:
                refused.setdefault(left, []).append(right)
        by_operator[operator] = refused
    return by_operator


def probe_forms(spark: SparkSession) -> dict[str, list[str]]:
    """Find the type families that Spark rejects for each unary operator."""
    analyser = _build_analyser(spark)
    return {
        form: [
            family
            for family, answer in zip(
                FAMILIES, _answers(analyser, [text.format(f"`{f}`") for f in FAMILIES]), strict=True
            )
            if answer.refused
        ]
        for form, text in FORMS.items()
    }


def table(spark: SparkSession) -> dict[str, Any]:
    """Build the complete function table, including the result of `list_function_kinds`."""
    wanted = list_function_names(spark)
    own, analyser = list_function_kinds(spark, wanted), _build_analyser(spark)
    for name, signature in own.items():
        signature |= _signature(analyser, name, 0 if signature["kind"] == "table" else MOST_TYPED)
    for name, rule in results(spark, own, seed=1).items():
        own[name]["result"] = rule
    return {
        "spark": __version__,
        "functions": own,
        "operators": operators(spark),
        "forms": probe_forms(spark),
    }


def format_table(spark_table: Mapping[str, Any]) -> str:
    """Format the table as text with one function per line.

    Each distinct list of families is written once, in a separate section; functions refer to it by
    number.
    """
    lists: dict[Families, int] = {(): 0}

    def number(families: Iterable[str]) -> int:
        return lists.setdefault(tuple(families), len(lists))

    parts: dict[str, dict[str, Any]] = {
        "functions": {
            name: signature
            if "refused" not in signature
            else {
                **signature,
                "refused": {n: [number(one) for one in asked] for n, asked in signature["refused"].items()},
            }
            for name, signature in spark_table["functions"].items()
        },
        "operators": {
            name: {left: number(rights) for left, rights in refused.items()}
            for name, refused in spark_table["operators"].items()
        },
        "forms": {name: number(families) for name, families in spark_table["forms"].items()},
    }
    lines = [f'"spark": {json.dumps(spark_table["spark"])}']
    for part, entries in parts.items():
        text = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in entries.items())
        lines.append(f'"{part}": {{\n{text}\n}}')
    text = ",\n".join(f"  {json.dumps(entry)}" for entry in lists)
    lines.append(f'"families": [\n{text}\n]')
    return "{" + ",\n".join(lines) + "}\n"


def _build_analyser(spark: SparkSession) -> Analyser:
    types = {**FAMILIES, **{kind: kind for kinds in _SIMILAR_TYPES.values() for kind in kinds}}
    columns = [f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in types.items()]
    spark.range(0).selectExpr(*columns).createOrReplaceTempView(_VIEW)
    return Analyser(spark, _VIEW)


def _answers(analyser: Analyser, texts: Sequence[str]) -> Sequence[Analysed]:
    answers = analyser.all(texts, singly=len(texts))
    assert answers is not None
    return answers


def _signature(analyser: Analyser, name: str, typed: int) -> dict[str, Any]:
    counts: list[Any] = [n for n in range(MOST_ARGUMENTS + 1) if _accepts_count(analyser, name, n)]
    signature: dict[str, Any] = {"counts": counts}
    if _accepts_count(analyser, name, _MANY_ARGUMENTS):
        counts.append("+")
        typed = min(typed, _OF_ANY)
    refused = {}
    shorter: Sequence[Families] = ()
    for count in range(1, typed + 1):
        if count not in counts:
            continue
        asked = _list_trial_arguments(count, shorter)
        answers = analyser.all([_call(name, families) for families in asked], singly=_MAX_SINGLE_CALLS)
        if answers is None:  # nothing is said
            shorter = ()
            continue
        shorter = [families for families, answer in zip(asked, answers, strict=True) if answer.resolved]
        lists = _drop_partly_accepted(analyser, name, _find_rejected_families(asked, answers, count), shorter)
        if any(lists):
            refused[str(count)] = lists
    if refused:
        signature["refused"] = refused
    return signature


def _accepts_count(analyser: Analyser, name: str, count: int) -> bool:
    condition = analyser.condition(_call(name, [_NULL] * count))
    return condition is None or not condition.startswith("WRONG_NUM_ARGS")


def _call(name: str, families: Sequence[str], other: Mapping[int, str] | None = None) -> str:
    """Format a call of the function on arguments of the families.

    Args:
        other: types by position, where the argument is not of its family's standard type.
    """
    given = [family if family == _NULL else f"`{family}`" for family in families]
    for place, kind in (other or {}).items():
        given[place] = f"`{kind}`"
    return f"`{name}`({', '.join(given)})"


def _list_trial_arguments(count: int, shorter: Sequence[Families]) -> list[Families]:
    """List the argument families to try a function with.

    Args:
        shorter: calls with fewer arguments that the function accepts.
    """
    if count <= _IN_FULL:
        return list(product(_TRIED_FAMILIES, repeat=count))
    return list(dict.fromkeys(_sample_arguments(count, shorter)))


def _sample_arguments(count: int, shorter: Sequence[Families]) -> Iterator[Families]:
    pairs = combinations(range(count), 2) if count == _IN_FULL + 1 else pairwise(range(count))
    for places in pairs:
        for two in product(FAMILIES, repeat=2):
            yield _replace_places([_NULL] * count, dict(zip(places, two, strict=True)))
    yield from ((family,) * count for family in FAMILIES)
    for prefix in shorter[:: max(1, len(shorter) // _MAX_SHORTER_CALLS)]:
        start = [*prefix, *[_NULL] * (count - len(prefix))]
        yield tuple(start)
        for place, family in product(range(len(prefix), count), FAMILIES):
            yield _replace_places(start, {place: family})


def _replace_places(families: Sequence[str], other: Mapping[int, str]) -> Families:
    return tuple(other.get(place, family) for place, family in enumerate(families))


def _find_rejected_families(
    asked: Sequence[Families], answers: Sequence[Analysed], count: int
) -> list[list[str]]:
    """Return for each position the families that the function never accepts there.

    The result is empty if the function accepts no family at some position. If only some positions
    accept
    nothing but nested types, the other positions get an empty list: they depend on the types of the
    elements, of which only some were probed.
    """
    taken: list[set[str]] = [set() for _ in range(count)]
    for families, answer in zip(asked, answers, strict=True):
        if answer.resolved:
            _add_families(taken, families)
    for families, answer in zip(asked, answers, strict=True):
        new = any(family not in own for family, own in zip(families, taken, strict=True))
        if new and not answer.refused:
            _add_families(taken, families)
    lacking = [[family for family in FAMILIES if family not in own] for own in taken]
    if any(len(refusals) == len(FAMILIES) for refusals in lacking):
        return []
    nested = [set(_SCALARS) <= set(refusals) for refusals in lacking]
    return [
        refusals if all(nested) or not any(nested) or own else []
        for refusals, own in zip(lacking, nested, strict=True)
    ]


def _drop_partly_accepted(
    analyser: Analyser, name: str, lists: Sequence[list[str]], taken: Sequence[Families]
) -> list[list[str]]:
    """Remove the families of which the function accepts another type."""
    bases = taken[:: max(1, len(taken) // _MAX_BASE_CALLS)]
    asked = [
        (place, family, _call(name, base, {place: kind}))
        for place, families in enumerate(lists)
        for family in families
        for kind in _SIMILAR_TYPES.get(family, ())
        for base in bases
    ]
    answers = analyser.all([text for _, _, text in asked], singly=_MAX_SINGLE_CALLS)
    if answers is None:
        return []
    not_so = {
        (question[0], question[1])
        for question, answer in zip(asked, answers, strict=True)
        if not answer.refused
    }
    return [[f for f in families if (place, f) not in not_so] for place, families in enumerate(lists)]


def _add_families(taken: Sequence[set[str]], families: Families) -> None:
    for own, family in zip(taken, families, strict=True):
        own.add(family)


def main() -> None:
    from watersmeet.runtime.spark.job.session import build_session_settings, start

    session = start(build_session_settings(master="local[1]"))
    try:
        Path(str(TABLE)).write_text(format_table(table(session)), encoding="utf-8")
    finally:
        session.stop()
    print(f"{TABLE.name}: Spark {__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
