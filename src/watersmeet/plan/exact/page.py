# ruff: noqa: E501
"""The page of expressions (`docs/users/expressions.md`), made from the list and from Spark's functions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from textwrap import fill

from watersmeet.plan.exact.functions import FAMILIES, FUNCTIONS, NOTES, OPERATORS
from watersmeet.spec.functions import OF_GROUPS, OF_THE_SESSION, scalar_functions, spark_version

_WIDTH = 120
_HEAD = """# Expressions

What an expression means is said by Spark {spark}, with ANSI mode on, in the job's time zone. Nothing here changes that:
it says *where* a condition over both sides of a join is computed. The tasks compute what stands in the first two lists,
over arrays, as they match rows. Spark computes everything else over the candidate pairs in a second pass: the same
answer, but slower; EXPLAIN says which of the two it is, and why.

This page is made by `scripts/expressions-page` from the list itself (`plan/exact`) and from the table of Spark's own
catalog, and each function in the first lists is compared with Spark in `tests/plan/exact`.

Of Spark's {all} deterministic scalar functions tasks compute **{computed}** ({share:.0f} %).
Not counted are those that tell of the session or its clock:
{session};
those that stand in GROUP BY alone: {groups}; and operators that are no words.
"""
_OPERATORS = """
## Operators and casts that tasks compute

| what | for |
|---|---|
| `=` `==` `<>` `!=` `<` `<=` `>` `>=` `<=>`, `IS [NOT] DISTINCT FROM`, `BETWEEN`, `IN` (a list) | numbers, texts, BOOLEAN, DATE, TIMESTAMP; DATE beside TIMESTAMP |
| the same | ARRAYs and STRUCTs, whose parts are compared in order |
| `a[i]`, `m[k]`, `s.field`, lambdas (`x -> x + 1`) | ARRAYs, MAPs and STRUCTs, of columns too |
| `AND` `OR` `NOT` `!`, `IS [NOT] NULL`, `IS [NOT] TRUE`, `CASE`, `IF` | as lazy as in Spark |
| `+` `-` `*` `%` | integers, FLOAT, DOUBLE, DECIMAL |
| `/` `div` | see `try_divide` for what does not fail |
| `&` `\\|` `^` `~` `<<` `>>` `>>>` | integers |
| `\\|\\|`, `LIKE` | texts |
| a time `+` or `-` an interval or days, the difference of two TIMESTAMPs | |
| `CAST`, `::` | between numbers, and between BOOLEAN and integers; integers and BOOLEAN to STRING; DATE, TIMESTAMP and TIMESTAMP_NTZ to one another |
"""


def share() -> tuple[int, int]:
    """How many of Spark's deterministic scalar functions tasks compute, and how many there are."""
    every = scalar_functions()
    return len([name for name in every if _computed(name)]), len(every)


def page() -> str:
    """The page as Markdown."""
    computed, every = share()
    parts = [
        _HEAD.format(
            spark=spark_version(), all=every, computed=computed, share=100 * computed / every,
            session=_listed(OF_THE_SESSION), groups=", ".join(map(_code, OF_GROUPS)),
        ),
        _OPERATORS,
        "\n## Functions that tasks compute\n",
    ]  # fmt: skip
    for family, parts_of in FAMILIES.items():
        names = sorted({name for part in parts_of for name in part})
        parts.append(f"\n### {family}\n\n{_listed(names)}\n")
        noted = [name for name in names if name in NOTES]
        if noted:
            parts.append("\nRestricted; otherwise Spark computes them:\n\n")
            parts.extend(f"* `{name}`: {NOTES[name]}\n" for name in noted)
    rest = [name for name in scalar_functions() if not _computed(name)]
    parts.append(f"\n## Functions that Spark computes over the candidate pairs\n\n{_listed(rest)}\n")
    return "".join(parts)


def _computed(name: str) -> bool:
    return name in FUNCTIONS or name in OPERATORS


def _listed(names: Sequence[str]) -> str:
    return fill(", ".join(map(_code, names)), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _code(name: str) -> str:
    return f"`{name}`"


if __name__ == "__main__":
    sys.stdout.write(page())
