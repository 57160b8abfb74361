"""The functions and operators of Spark SQL, as far as their names, numbers and families of arguments go.

The table beside this module was made from the catalog of the Spark version that it names
(``scripts/spark-functions``). It says what Spark certainly refuses; what it does not say, Spark decides.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("spark_functions.json")

FAMILIES = {
    "BOOLEAN": "BOOLEAN",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "DECIMAL": "DECIMAL(10,2)",
    "STRING": "STRING",
    "BINARY": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    "ARRAY": "ARRAY<INT>",
    "MAP": "MAP<STRING, INT>",
    "STRUCT": "STRUCT<a: INT>",
}
"""Families of types, and the type that stands for each where Spark is asked."""

OPERATORS = ("=", "<", "<=", ">", ">=", "<>", "<=>", "+", "-", "*", "/", "%", "AND", "OR", "LIKE")
MOST_ARGUMENTS = 10

OF_THE_SESSION = (
    *("current_catalog", "current_database", "current_schema", "current_path"),
    *("current_user", "session_user", "user", "version", "current_timezone"),
    *("current_date", "curdate", "current_time", "current_timestamp", "localtimestamp", "now"),
)
"""Functions that tell of the session or its clock, and nothing of a row."""

OF_GROUPS = ("window", "session_window")
"""Scalar by name; what they make of a row stands in GROUP BY alone."""

_FAMILY_OF = {"TINYINT": "INT", "SMALLINT": "INT", "FLOAT": "DOUBLE"}


@dataclass(frozen=True)
class Signature:
    """``counts``: numbers of arguments; ``more``: and any greater one. ``refused``: per number, per position
    the families that are not taken. ``result``: the type, if it is the same whatever the arguments. ``kind``:
    scalar, aggregate, window, generator or table; ``deterministic``: the same again for the same rows."""

    counts: tuple[int, ...]
    more: bool
    refused: dict[int, tuple[frozenset[str], ...]]
    result: str | None
    kind: str
    deterministic: bool

    def takes(self, count: int) -> bool:
        return count in self.counts or (self.more and count > MOST_ARGUMENTS)

    def words(self) -> str:
        """
        >>> signature_of("substring").words(), signature_of("upper").words()
        ('2 or 3 arguments', '1 argument')
        """
        numbers = [str(each) for each in self.counts]
        if self.more:
            return f"{numbers[0] if numbers else MOST_ARGUMENTS} or more arguments"
        listed = " or ".join([", ".join(numbers[:-1]), numbers[-1]] if len(numbers) > 1 else numbers)
        return f"{listed} argument{'' if numbers == ['1'] else 's'}" if numbers != ["0"] else "no arguments"


@cache
def _table() -> tuple[str, dict[str, Signature], dict[str, frozenset[tuple[str, str]]]]:
    found = json.loads(TABLE.read_text(encoding="utf-8"))
    functions = {
        name: Signature(
            tuple(count for count in each["counts"] if count != "+"),
            "+" in each["counts"],
            {
                int(count): tuple(frozenset(families) for families in lists)
                for count, lists in each.get("refused", {}).items()
            },
            each.get("result"),
            each["kind"],
            each.get("deterministic", True),
        )
        for name, each in found["functions"].items()
    }
    operators = {
        name: frozenset((pair.split()[0], pair.split()[1]) for pair in pairs)
        for name, pairs in found["operators"].items()
    }
    return found["spark"], functions, operators


def spark_version() -> str:
    """Of the Spark that the table was made from."""
    return _table()[0]


def function_names() -> tuple[str, ...]:
    return tuple(_table()[1])


def scalar_functions() -> tuple[str, ...]:
    """Those that compute a value of a row, the same for the same row again; without those of `OF_THE_SESSION`
    and `OF_GROUPS`."""
    left_out = {*OF_THE_SESSION, *OF_GROUPS}
    return tuple(
        name
        for name, each in _table()[1].items()
        if each.kind == "scalar" and each.deterministic and name not in left_out
    )


def signature_of(name: str) -> Signature | None:
    """Of the function of that name, in any case; None: Spark has none."""
    return _table()[1].get(name.lower())


def operator_refuses(operator: str, left: str, right: str) -> bool:
    """Whether Spark certainly refuses operands of these types; unknown types never are.

    >>> operator_refuses("*", "TIMESTAMP", "INT"), operator_refuses("*", "INT", "UNKNOWN")
    (True, False)
    """
    pair = (family_of(left), family_of(right))
    return None not in pair and pair in _table()[2].get(operator, ())


def family_of(kind: str) -> str | None:
    """The family of a Spark type; None for one that is not known here.

    >>> family_of("DECIMAL(8,2)"), family_of("SMALLINT"), family_of("UNKNOWN")
    ('DECIMAL', 'INT', None)
    """
    name = kind.upper().partition("(")[0].partition("<")[0].strip()
    name = _FAMILY_OF.get(name, name)
    return name if name in FAMILIES else None
