"""What functions and operators Spark has, found out by asking it: `watersmeet.spec.functions` has the answer.

Every function of Spark's catalog is analysed, without a row, with so many arguments, and with one or two of
every family of types. Only what Spark refuses for the number or the types of arguments counts as refused.
Run as a module it writes the table of the Spark that is installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from pyspark import __version__
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.engine.spark.catalog.kinds import kinds
from watersmeet.spec.functions import FAMILIES, MOST_ARGUMENTS, OPERATORS, TABLE

_VIEW = "watersmeet_families"
_MANY = MOST_ARGUMENTS + 4
_OF_TWO = ("BOOLEAN", "INT", "DOUBLE", "STRING", "DATE", "TIMESTAMP", "ARRAY", "STRUCT")
"""The families that are tried in pairs."""
_SCALARS = tuple(name for name in FAMILIES if name not in ("ARRAY", "MAP", "STRUCT"))


def names(spark: SparkSession) -> list[str]:
    """The functions of Spark's catalog that are called by a name."""
    found = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return sorted(name for name in found if re.fullmatch(r"[a-z_][a-z0-9_]*", name))


def signatures(spark: SparkSession, wanted: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Per function of ``wanted`` what the table holds: ``counts`` of arguments that are taken (ending with a
    ``+``: and any more), ``refused``: per count, per position the families that are never taken there, and
    ``result``, where it is the same whatever the arguments are."""
    _prepare(spark)
    return {name: _signature(spark, name) for name in wanted}


def operators(spark: SparkSession) -> dict[str, list[str]]:
    """Per operator of two operands the pairs of families that Spark refuses: ``DATE INT``."""
    _prepare(spark)
    return {
        operator: [
            f"{left} {right}"
            for left, right in product(FAMILIES, repeat=2)
            if _refused(spark, f"`{left}` {operator} `{right}`")[0]
        ]
        for operator in OPERATORS
    }


def table(spark: SparkSession) -> dict[str, Any]:
    """All of it, with Spark's version."""
    wanted = names(spark)
    own, found = kinds(spark, wanted), signatures(spark, wanted)
    return {
        "spark": __version__,
        "functions": {name: {**own[name], **found[name]} for name in wanted},
        "operators": operators(spark),
    }


def written(found: Mapping[str, Any]) -> str:
    """The table as the file has it: a line per function."""
    parts = [f'"spark": {json.dumps(found["spark"])}']
    for part in ("functions", "operators"):
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in found[part].items())
        parts.append(f'"{part}": {{\n{lines}\n}}')
    return "{" + ",\n".join(parts) + "}\n"


def _prepare(spark: SparkSession) -> None:
    columns = [f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in FAMILIES.items()]
    spark.range(0).selectExpr(*columns).createOrReplaceTempView(_VIEW)


def _signature(spark: SparkSession, name: str) -> dict[str, Any]:
    counts: list[Any] = [n for n in range(MOST_ARGUMENTS + 1) if _takes(spark, name, n)]
    found: dict[str, Any] = {"counts": counts}
    if _takes(spark, name, _MANY):
        counts.append("+")
    results = set()
    refused = {}
    for count in (1, 2):
        if count in counts:
            taken, kinds = _taken(spark, name, count)
            results |= kinds
            lists = _never(taken, count)
            if any(lists):
                refused[str(count)] = lists
    if refused:
        found["refused"] = refused
    if set(counts) <= {1, 2} and len(results) == 1 and _is_plain(refused, counts):
        (result,) = results
        if not result.startswith("DECIMAL"):  # its digits go by the arguments
            found["result"] = result
    return found


def _is_plain(refused: Mapping[str, Sequence[Sequence[str]]], counts: Sequence[Any]) -> bool:
    """Whether nothing nested is taken anywhere: by its elements the result could be another one."""
    lists = [refused.get(str(count)) for count in counts if count]
    return all(each is not None and all("ARRAY" in families for families in each) for each in lists)


def _takes(spark: SparkSession, name: str, count: int) -> bool:
    condition = _condition(spark, f"`{name}`({', '.join(['NULL'] * count)})")[0]
    return condition is None or not condition.startswith("WRONG_NUM_ARGS")


def _taken(spark: SparkSession, name: str, count: int) -> tuple[list[tuple[str, ...]], set[str]]:
    """The combinations of families that Spark does not refuse, and the types of what comes out of them."""
    taken, kinds = [], set()
    for families in product(_tried(count), repeat=count):
        refused, kind = _refused(spark, f"`{name}`({', '.join(f'`{family}`' for family in families)})")
        if not refused:
            taken.append(families)
            kinds.add(kind or "?")
    return taken, {kind for kind in kinds if kind != "?"} if "?" not in kinds else {"?", "??"}


def _never(taken: Sequence[tuple[str, ...]], count: int) -> list[list[str]]:
    """Per position the families that none of the combinations has there. Beside an argument that is to be
    nested nothing is said of the others: they go by its elements, of which only some were asked."""
    if not taken:
        return []
    found = [[f for f in _tried(count) if all(each[n] != f for each in taken)] for n in range(count)]
    nested = [set(_SCALARS) & set(_tried(count)) <= set(each) for each in found]
    return [
        each if all(nested) or not any(nested) or own else [] for each, own in zip(found, nested, strict=True)
    ]


def _tried(count: int) -> Sequence[str]:
    return tuple(FAMILIES) if count == 1 else _OF_TWO


def _refused(spark: SparkSession, expression: str) -> tuple[bool, str | None]:
    condition, kind = _condition(spark, expression)
    return condition is not None and condition.startswith("DATATYPE_MISMATCH.") and not condition.endswith(
        ("NON_FOLDABLE_INPUT", "UNEXPECTED_NULL", "VALUE_OUT_OF_RANGE")
    ), kind


def _condition(spark: SparkSession, expression: str) -> tuple[str | None, str | None]:
    """Spark's error class for the expression, None without an error; and its type."""
    try:
        return None, spark.sql(f"SELECT {expression} FROM {_VIEW}").schema[0].dataType.simpleString().upper()
    except PySparkException as error:
        return error.getCondition() or "", None
    except Exception:
        return "", None


def main() -> None:
    from watersmeet.engine.spark.job.session import settings, start

    session = start(settings(master="local[1]"))
    try:
        TABLE.write_text(written(table(session)))
    finally:
        session.stop()
    print(f"{TABLE.name}: Spark {__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
