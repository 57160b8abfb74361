"""The functions that tasks compute as Spark does, by Spark's names.

A family is a module. Its ``FUNCTIONS`` give for each name the rule that checks the arguments and tells the
type (`rules.computed`, where arguments only have to be converted); the Arrow function that the rule calls is
beside it, marked with `base.arrow`, or as a function of Python values with `base.by_value`. To add a
function, write these two and a line in the family's test. Operators are in `compiler`.
"""

from __future__ import annotations

from watersmeet.expressions import arrays, casts, conditionals, numbers, patterns, texts, times
from watersmeet.expressions.base import IMPLEMENTATIONS, ArrowFunction
from watersmeet.expressions.rules import Restricted, Rule

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
