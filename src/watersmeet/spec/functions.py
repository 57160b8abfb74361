"""Look up functions and operators of Spark SQL: names, argument counts and type families.

The table next to this module was generated from the catalog of the Spark version that it names
(``scripts/spark-functions``). It lists what Spark certainly rejects; Spark decides everything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from watersmeet.errors import SpecError
from watersmeet.spec import entry_points
from watersmeet.types.coercion import Argument
from watersmeet.types.parser import sql_type
from watersmeet.types.results import RULES, result_of
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    PLAIN,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Field,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)

TABLE = files("watersmeet.spec").joinpath("spark_functions.json")

FAMILIES = {
    type_.name: type_
    for type_ in (
        *(BOOLEAN, INT, BIGINT, DOUBLE, decimal(10, 2), STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ),
        *(array(INT), map_of(STRING, INT), struct([Field("a", INT)])),
    )
}
"""Families of types, and the type that stands for each where Spark is asked."""

OPERATORS = {
    **{
        operator: f"{{0}} {operator} {{1}}"
        for operator in (
            *(
                "=",
                "<",
                "<=",
                ">",
                ">=",
                "<>",
                "<=>",
                "+",
                "-",
                "*",
                "/",
                "%",
                "DIV",
                "&",
                "|",
                "^",
                "<<",
                "||",
            ),
            *("AND", "OR", "LIKE", "RLIKE"),
        )
    },
    "IN": "{0} IN ({1})",
    "[]": "{0}[{1}]",
    "ALIKE": "CASE WHEN TRUE THEN {0} ELSE {1} END",
    "CAST": "CAST({0} AS {type})",
    "TRY_CAST": "TRY_CAST({0} AS {type})",
}
"""Operators of two operands, and a form of each: for two columns, and for the second one's type."""

FORMS = {
    "NOT": "NOT {0}",
    "-": "- {0}",
    "+": "+ {0}",
    "~": "~ {0}",
    "WHEN": "CASE WHEN {0} THEN 1 END",
    "IS TRUE": "{0} IS TRUE",
    "COLLATE": "{0} COLLATE UTF8_BINARY",
}
"""The same of one operand."""

MOST_ARGUMENTS = 10
MOST_TYPED = 7
"""Of so many arguments the families are known; no function has a fixed number that is greater."""

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
    """Signature of one function.

    Attributes:
        counts: possible numbers of arguments.
        more: True if any greater number is possible, too.
        refused: by number of arguments, the type families that each position rejects.
        result: type of the result, or the name of a rule of `types.results` that computes it; None if only
            Spark knows it.
        kind: scalar, aggregate, window, generator or table.
        deterministic: True if the same rows always give the same result.
    """

    counts: tuple[int, ...]
    more: bool
    refused: dict[int, tuple[frozenset[str], ...]]
    result: str | None
    kind: str
    deterministic: bool

    def takes(self, count: int) -> bool:
        return count in self.counts or (self.more and count > MOST_ARGUMENTS)

    def type_of(self, arguments: Sequence[Argument] | None) -> SqlType | None:
        """Return the type of a call's result, or None if it is unknown.

        Args:
            arguments: None if the arguments are unknown.

        >>> signature_of("coalesce").type_of([Argument(INT), Argument(BIGINT)])
        SqlType('BIGINT')
        """
        if self.result is None:
            return None
        if self.result not in RULES:
            collated = any(argument.type.is_collated for argument in arguments or ())
            return None if collated else sql_type(self.result)
        if arguments is None or any(argument.type.is_unknown for argument in arguments):
            return None
        return result_of(self.result, arguments)

    def words(self) -> str:
        """Format the allowed numbers of arguments for a message.

        >>> signature_of("substring").words(), signature_of("upper").words()
        ('2 or 3 arguments', '1 argument')
        """
        numbers = [str(count) for count in self.counts]
        if self.more:
            return f"{numbers[0] if numbers else MOST_ARGUMENTS} or more arguments"
        listed = " or ".join([", ".join(numbers[:-1]), numbers[-1]] if len(numbers) > 1 else numbers)
        return f"{listed} argument{'' if numbers == ['1'] else 's'}" if numbers != ["0"] else "no arguments"


@dataclass(frozen=True)
class Function:
    """A scalar function that a package declares, as an entry point of ``watersmeet.functions``.

    The same arguments always give the same result.

    Args:
        arguments: the types of the arguments; INTs are widened, other types must be cast in the query.
        result: the type of the result.
        arrow: ``module:function``, from an Arrow array per argument to one of the result's type and the
            same length. NULL arguments are passed on. TIMESTAMPs are in UTC.
        spark_sql: the same in Spark SQL, with ``{0}`` for the first argument; None: Spark calls ``arrow``.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    arrow: str
    spark_sql: str | None = None

    @property
    def signature(self) -> Signature:
        """The signature, as the planner knows those of Spark's functions."""
        refused = tuple(frozenset(FAMILIES) - _accepted(sql_type(type_)) for type_ in self.arguments)
        count = len(self.arguments)
        return Signature((count,), False, {count: refused}, self.result, "scalar", True)


def _accepted(type_: SqlType) -> set[str]:
    """Return the families of arguments that are converted to a type without loss."""
    own = family_of(type_) or ""
    return {own, *{"BIGINT": ("INT",), "DOUBLE": ("INT", "BIGINT")}.get(own, ())}


@dataclass(frozen=True)
class _Table:
    spark: str
    functions: dict[str, Signature]
    operators: dict[str, dict[str, frozenset[str]]]
    forms: dict[str, frozenset[str]]


@cache
def _table() -> _Table:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    families = [frozenset(family) for family in table["families"]]
    functions = {
        name: Signature(
            tuple(count for count in signature["counts"] if count != "+"),
            "+" in signature["counts"],
            {
                int(count): tuple(families[number] for number in lists)
                for count, lists in signature.get("refused", {}).items()
            },
            signature.get("result"),
            signature["kind"],
            signature.get("deterministic", True),
        )
        for name, signature in table["functions"].items()
    }
    operators = {
        name: {left: families[number] for left, number in rights.items()}
        for name, rights in table["operators"].items()
    }
    forms = {name: families[number] for name, number in table["forms"].items()}
    return _Table(table["spark"], functions, operators, forms)


def spark_version() -> str:
    """Return the version of Spark from which the function table was built."""
    return _table().spark


def function_names() -> tuple[str, ...]:
    return (*_table().functions, *entry_points.list_entry_points(entry_points.FUNCTIONS))


def scalar_functions() -> tuple[str, ...]:
    """Return the deterministic functions that compute a value from one row.

    Leave out those of `OF_THE_SESSION` and `OF_GROUPS`.
    """
    left_out = {*OF_THE_SESSION, *OF_GROUPS}
    return tuple(
        name
        for name, signature in _table().functions.items()
        if signature.kind == "scalar" and signature.deterministic and name not in left_out
    )


def signature_of(name: str) -> Signature | None:
    """Return the signature of a function, ignoring case; None: neither Spark nor a package has it.

    Raises:
        SpecError: the package that declares it cannot be used.
    """
    own = _table().functions.get(name.lower())
    if own is not None:
        return own
    function = find_function(name)
    return None if function is None else function.signature


_functions_in_use: dict[str, Function] = {}


def functions_in_use() -> tuple[Function, ...]:
    """Return the functions of packages that this process has used."""
    return tuple(_functions_in_use.values())


@cache
def find_function(name: str) -> Function | None:
    """Return the function that a package declares under a name, ignoring case.

    Raises:
        SpecError: the package that declares it cannot be used.
    """
    name, group = name.lower(), entry_points.FUNCTIONS
    if name in _table().functions:
        return None
    function = entry_points.load_declared(group, name, Function, _table().functions)
    if function is not None:
        for text in (*function.arguments, function.result):
            if sql_type(text) not in PLAIN and not sql_type(text).is_decimal:
                raise entry_points.extension_error(group, name, f"{text} is not the type of a single value")
        if not function.arguments:
            raise entry_points.extension_error(group, name, "it has no arguments")
        _functions_in_use[name] = function
    return function


def list_function_name_problems() -> Iterator[SpecError]:
    """Yield a problem for each function of a package whose name is taken; no package is imported."""
    return entry_points.name_problems(entry_points.FUNCTIONS, _table().functions)


def operator_refuses(operator: str, left: SqlType, right: SqlType) -> bool:
    """Return True if Spark certainly rejects operands of these types; False for unknown types.

    >>> from watersmeet.types.sql_type import UNKNOWN
    >>> operator_refuses("*", TIMESTAMP, INT), operator_refuses("*", INT, UNKNOWN)
    (True, False)
    >>> operator_refuses("CAST", INT, DATE)
    True
    """
    one, other = family_of(left), family_of(right)
    return one is not None and other in _table().operators[operator].get(one, ())


def form_refuses(form: str, kind: SqlType) -> bool:
    """Return True if Spark certainly rejects an operand of this type in ``form``.

    >>> form_refuses("NOT", INT), form_refuses("WHEN", BOOLEAN)
    (True, False)
    """
    return family_of(kind) in _table().forms[form]


def family_of(kind: SqlType) -> str | None:
    """Return the family of a Spark type; None for an unknown type.

    >>> from watersmeet.types.sql_type import SMALLINT, UNKNOWN
    >>> family_of(decimal(8, 2)), family_of(SMALLINT), family_of(UNKNOWN)
    ('DECIMAL', 'INT', None)
    """
    name = _FAMILY_OF.get(kind.name, kind.name)
    return name if name in FAMILIES else None
