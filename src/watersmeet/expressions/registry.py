"""The functions that tasks compute as Spark does, by Spark's names.

A family is a module. Its ``FUNCTIONS`` give for each name the rule that checks the arguments and tells the
type (`rules.computed`, where arguments only have to be converted); the Arrow function that the rule calls is
beside it, marked with `base.arrow`, or as a function of Python values with `base.by_value`. To add a
function, write these two and a line in the family's test. Operators are in `compiler`.
"""

from __future__ import annotations

from functools import partial

from watersmeet.expressions import arrays, casts, conditionals, numbers, patterns, texts, times
from watersmeet.expressions.base import IMPLEMENTATIONS, ArrowFunction
from watersmeet.expressions.package_functions import PREFIX, PackageFunction, compile_package_call
from watersmeet.expressions.rules import Restricted, Rule
from watersmeet.spec.functions import find_function

FAMILIES: dict[str, dict[str, Rule | Restricted]] = {
    "Choices and NULL": conditionals.FUNCTIONS,
    "Numbers": numbers.FUNCTIONS,
    "Texts": {**texts.FUNCTIONS, **patterns.FUNCTIONS},
    "Times": times.FUNCTIONS,
    "ARRAYs, MAPs and STRUCTs": arrays.FUNCTIONS,
    "Casts": casts.FUNCTIONS,
}
"""By the name that the page gives them."""

_ENTRIES = {name: entry for family in FAMILIES.values() for name, entry in family.items()}

FUNCTIONS: dict[str, Rule] = {
    name: entry.rule if isinstance(entry, Restricted) else entry for name, entry in _ENTRIES.items()
}

RESTRICTIONS = {name: entry.text for name, entry in _ENTRIES.items() if isinstance(entry, Restricted)}
"""For which arguments alone tasks compute a function, in a few words: ``DOUBLE only``."""

OPERATORS = (
    *("and", "or", "not", "in", "between", "case", "when", "if", "like", "cast", "div"),
    *("!", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"),
    *("+", "-", "*", "/", "%", "&", "|", "^", "~", "||"),
)
"""Spark's names of the operators on the list."""

ARROW_FUNCTIONS: dict[str, ArrowFunction] = IMPLEMENTATIONS
"""What calls in trees stand for, of all families, by name."""


def find_rule(name: str) -> Rule | None:
    """Return the rule of a function that tasks compute, built in or of a package; None: there is none."""
    rule = FUNCTIONS.get(name)
    if rule is not None:
        return rule
    declared = find_function(name)
    return None if declared is None else partial(compile_package_call, declared)


def find_arrow_function(name: str) -> ArrowFunction:
    """Return what a call in a tree stands for."""
    if name.startswith(PREFIX):
        return PackageFunction(name.removeprefix(PREFIX))
    return ARROW_FUNCTIONS[name]
