"""What functions and operators Spark has, found out by asking it: `watersmeet.spec.functions` has the answer.

Every function of Spark's catalog is analysed, without a row, with so many arguments, and with all families of
types and NULL: up to three arguments in all combinations, more of them two by two beside NULLs, all alike,
and one more behind what a shorter call takes. Only what Spark refuses for the number or the types of its
arguments counts as refused. Run as a module it writes the table of the Spark that is installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

from pyspark import __version__
from pyspark.sql import SparkSession

from watersmeet.engine.spark.catalog.analysed import Analysed, Analyser
from watersmeet.engine.spark.catalog.kinds import kinds
from watersmeet.engine.spark.catalog.results import ResultTypes, rule_of
from watersmeet.spec.functions import FAMILIES, FORMS, MOST_ARGUMENTS, MOST_TYPED, OPERATORS, TABLE

Families = tuple[str, ...]

_VIEW = "watersmeet_families"
_MANY = MOST_ARGUMENTS + 4
_IN_FULL = 3
_OF_ANY = 4
"""The families are asked of so many arguments, of functions that take any number."""

_SINGLY = 200
"""So many calls are asked one by one, of functions that throw instead of staying unresolved."""

COMPUTING = ("scalar", "aggregate", "window")
"""Kinds of functions whose calls are values."""

_DRAWN_CALLS = 200

_NULL = "NULL"
"""Beside the families: it fits nearly everywhere."""

_TRIED = (*FAMILIES, _NULL)
_ALIKE = {
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

_BASES = 8
"""Beside so many calls that are taken."""

_SHORTER = 40
"""So many calls of one argument less are tried with one more."""

_NESTED = ("ARRAY", "MAP", "STRUCT")
_SCALARS = tuple(name for name in FAMILIES if name not in _NESTED)


def names(spark: SparkSession) -> list[str]:
    """Of all functions that are called by a name."""
    listed = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return sorted(name for name in listed if re.fullmatch(r"[a-z_][a-z0-9_]*", name))


def signatures(
    spark: SparkSession, wanted: Iterable[str], typed: int = MOST_TYPED
) -> dict[str, dict[str, Any]]:
    """Per function: ``counts``, the numbers of arguments that it takes, up to `MOST_ARGUMENTS` (and, as
    ``+``: and any more), and ``refused``: per count, per position the families that are never taken there.
    ``typed``: of so many arguments the families are asked."""
    analyser = _prepared(spark)
    return {name: _signature(analyser, name, typed) for name in wanted}


def results(spark: SparkSession, own: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, str]:
    """Per function the type of its result, or the rule that tells it, where there is one.

    Args:
        own: per function its kind, and what `signatures` gives.
    """
    types = ResultTypes(spark, seed)
    rules = {}
    for name, signature in own.items():
        if signature["kind"] in COMPUTING:
            counts = [count for count in signature["counts"] if count != "+"]
            refused = {int(count): lists for count, lists in signature.get("refused", {}).items()}
            rules[name] = rule_of(types.of(name, counts, refused, _DRAWN_CALLS))
    return {name: rule for name, rule in rules.items() if rule is not None}


def operators(spark: SparkSession) -> dict[str, dict[str, list[str]]]:
    """Per operator of two operands: per family on the left those on the right that Spark refuses."""
    analyser = _prepared(spark)
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


def forms(spark: SparkSession) -> dict[str, list[str]]:
    """Per operator of one operand the families that Spark refuses."""
    analyser = _prepared(spark)
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
    """All of it; with `kinds`."""
    wanted = names(spark)
    own, analyser = kinds(spark, wanted), _prepared(spark)
    for name, signature in own.items():
        signature |= _signature(analyser, name, 0 if signature["kind"] == "table" else MOST_TYPED)
    for name, rule in results(spark, own, seed=1).items():
        own[name]["result"] = rule
    return {
        "spark": __version__,
        "functions": own,
        "operators": operators(spark),
        "forms": forms(spark),
    }


def written(spark_table: Mapping[str, Any]) -> str:
    """The table as text, a function a line. Lists of families stand apart, each once, and elsewhere as their
    numbers there."""
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


def _prepared(spark: SparkSession) -> Analyser:
    types = {**FAMILIES, **{kind: kind for kinds in _ALIKE.values() for kind in kinds}}
    columns = [f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in types.items()]
    spark.range(0).selectExpr(*columns).createOrReplaceTempView(_VIEW)
    return Analyser(spark, _VIEW)


def _answers(analyser: Analyser, texts: Sequence[str]) -> Sequence[Analysed]:
    answers = analyser.all(texts, singly=len(texts))
    assert answers is not None
    return answers


def _signature(analyser: Analyser, name: str, typed: int) -> dict[str, Any]:
    counts: list[Any] = [n for n in range(MOST_ARGUMENTS + 1) if _takes(analyser, name, n)]
    signature: dict[str, Any] = {"counts": counts}
    if _takes(analyser, name, _MANY):
        counts.append("+")
        typed = min(typed, _OF_ANY)
    refused = {}
    shorter: Sequence[Families] = ()
    for count in range(1, typed + 1):
        if count not in counts:
            continue
        asked = _asked(count, shorter)
        answers = analyser.all([_call(name, families) for families in asked], singly=_SINGLY)
        if answers is None:  # nothing is said
            shorter = ()
            continue
        shorter = [families for families, answer in zip(asked, answers, strict=True) if answer.resolved]
        lists = _but_alike(analyser, name, _never(asked, answers, count), shorter)
        if any(lists):
            refused[str(count)] = lists
    if refused:
        signature["refused"] = refused
    return signature


def _takes(analyser: Analyser, name: str, count: int) -> bool:
    condition = analyser.condition(_call(name, [_NULL] * count))
    return condition is None or not condition.startswith("WRONG_NUM_ARGS")


def _call(name: str, families: Sequence[str], other: Mapping[int, str] | None = None) -> str:
    """``other``: types by place, where they are not their family's."""
    given = [family if family == _NULL else f"`{family}`" for family in families]
    for place, kind in (other or {}).items():
        given[place] = f"`{kind}`"
    return f"`{name}`({', '.join(given)})"


def _asked(count: int, shorter: Sequence[Families]) -> list[Families]:
    """What a function is tried with. ``shorter``: calls of fewer arguments that it takes."""
    if count <= _IN_FULL:
        return list(product(_TRIED, repeat=count))
    return list(dict.fromkeys(_some(count, shorter)))


def _some(count: int, shorter: Sequence[Families]) -> Iterator[Families]:
    pairs = combinations(range(count), 2) if count == _IN_FULL + 1 else pairwise(range(count))
    for places in pairs:
        for two in product(FAMILIES, repeat=2):
            yield _with([_NULL] * count, dict(zip(places, two, strict=True)))
    yield from ((family,) * count for family in FAMILIES)
    for prefix in shorter[:: max(1, len(shorter) // _SHORTER)]:
        start = [*prefix, *[_NULL] * (count - len(prefix))]
        yield tuple(start)
        for place, family in product(range(len(prefix), count), FAMILIES):
            yield _with(start, {place: family})


def _with(families: Sequence[str], other: Mapping[int, str]) -> Families:
    return tuple(other.get(place, family) for place, family in enumerate(families))


def _never(asked: Sequence[Families], answers: Sequence[Analysed], count: int) -> list[list[str]]:
    """Per position the families that it is never taken with; nothing, if it never takes any. Beside what is
    nested nothing is said of the others: they go by its elements, of which only some were asked."""
    taken: list[set[str]] = [set() for _ in range(count)]
    for families, answer in zip(asked, answers, strict=True):
        if answer.resolved:
            _add(taken, families)
    for families, answer in zip(asked, answers, strict=True):
        new = any(family not in own for family, own in zip(families, taken, strict=True))
        if new and not answer.refused:
            _add(taken, families)
    lacking = [[family for family in FAMILIES if family not in own] for own in taken]
    if any(len(refusals) == len(FAMILIES) for refusals in lacking):
        return []
    nested = [set(_SCALARS) <= set(refusals) for refusals in lacking]
    return [
        refusals if all(nested) or not any(nested) or own else []
        for refusals, own in zip(lacking, nested, strict=True)
    ]


def _but_alike(
    analyser: Analyser, name: str, lists: Sequence[list[str]], taken: Sequence[Families]
) -> list[list[str]]:
    """Without the families of which another type is taken."""
    bases = taken[:: max(1, len(taken) // _BASES)]
    asked = [
        (place, family, _call(name, base, {place: kind}))
        for place, families in enumerate(lists)
        for family in families
        for kind in _ALIKE.get(family, ())
        for base in bases
    ]
    answers = analyser.all([text for _, _, text in asked], singly=_SINGLY)
    if answers is None:
        return []
    not_so = {
        (question[0], question[1])
        for question, answer in zip(asked, answers, strict=True)
        if not answer.refused
    }
    return [[f for f in families if (place, f) not in not_so] for place, families in enumerate(lists)]


def _add(taken: Sequence[set[str]], families: Families) -> None:
    for own, family in zip(taken, families, strict=True):
        own.add(family)


def main() -> None:
    from watersmeet.engine.spark.job.session import settings, start

    session = start(settings(master="local[1]"))
    try:
        Path(str(TABLE)).write_text(written(table(session)), encoding="utf-8")
    finally:
        session.stop()
    print(f"{TABLE.name}: Spark {__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
