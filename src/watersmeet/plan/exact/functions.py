"""Rule: the functions on the list, of all families, by Spark's name. Operators are in `compiler`.

A module of a family has ``FUNCTIONS``, and ``NOTES`` of those that tasks compute for some arguments only.
"""

from __future__ import annotations

from types import ModuleType

from watersmeet.plan.exact import (
    arrays,
    choices,
    codes,
    nested,
    patterns,
    texts,
)
from watersmeet.plan.exact.numeric import numbers, reals, whole
from watersmeet.plan.exact.rules import Rule
from watersmeet.plan.exact.temporal import instants, intervals, time_patterns, times

_MODULES: dict[str, tuple[ModuleType, ...]] = {
    "Choices and NULL": (choices,),
    "Numbers": (numbers, reals, whole),
    "Texts": (texts, patterns, codes),
    "Times": (times, instants, intervals, time_patterns),
    "ARRAYs, MAPs and STRUCTs": (arrays, nested),
}

FAMILIES: dict[str, tuple[dict[str, Rule], ...]] = {
    family: tuple(module.FUNCTIONS for module in modules) for family, modules in _MODULES.items()
}
"""By the name that the page gives them."""

FUNCTIONS: dict[str, Rule] = {
    name: rule for parts in FAMILIES.values() for part in parts for name, rule in part.items()
}

OPERATORS = (
    *("and", "or", "not", "in", "between", "case", "when", "if", "like", "cast", "div"),
    *("!", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"),
    *("+", "-", "*", "/", "%", "&", "|", "^", "~", "||"),
)
"""Spark's names of the operators on the list."""

NOTES: dict[str, str] = {
    name: note
    for modules in _MODULES.values()
    for module in modules
    for name, note in getattr(module, "NOTES", {}).items()
}
"""What a function is restricted to, in a few words: ``DOUBLE only``."""
