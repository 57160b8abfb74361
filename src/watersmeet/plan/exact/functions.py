"""Rule: the functions on the list, of all families, by Spark's name. Operators are in `compiler`.

A module of a family has ``FUNCTIONS``, and ``NOTES`` of those that tasks compute for some arguments only.
"""

from __future__ import annotations

from watersmeet.plan.exact import (
    arrays,
    choices,
    codes,
    instants,
    intervals,
    lambdas,
    maps,
    nested,
    numbers,
    patterns,
    reals,
    texts,
    time_patterns,
    times,
    vectors,
    whole,
)
from watersmeet.plan.exact.rules import Rule

FAMILIES: dict[str, tuple[dict[str, Rule], ...]] = {
    "Choices and NULL": (choices.FUNCTIONS,),
    "Numbers": (numbers.FUNCTIONS, reals.FUNCTIONS, whole.FUNCTIONS),
    "Texts": (texts.FUNCTIONS, patterns.FUNCTIONS, codes.FUNCTIONS),
    "Times": (times.FUNCTIONS, instants.FUNCTIONS, intervals.FUNCTIONS, time_patterns.FUNCTIONS),
    "ARRAYs, MAPs and STRUCTs": (
        arrays.FUNCTIONS,
        maps.FUNCTIONS,
        nested.FUNCTIONS,
        lambdas.FUNCTIONS,
        vectors.FUNCTIONS,
    ),
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
    for module in (
        choices,
        codes,
        numbers,
        reals,
        whole,
        patterns,
        texts,
        times,
        instants,
        intervals,
        time_patterns,
        arrays,
        maps,
        nested,
        lambdas,
        vectors,
    )
    for name, note in getattr(module, "NOTES", {}).items()
}
"""What a function is restricted to, in a few words: ``DOUBLE only``."""
