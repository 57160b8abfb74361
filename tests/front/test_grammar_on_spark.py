# ruff: noqa: E501
"""Operators without parentheses: what Spark is sent is to it the same tree as what was written.

Spark's own parser judges, of both texts. Where it refuses the one, the other is refused, too.
"""

from __future__ import annotations

import itertools
import random
import re

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tests.support.effort import at_effort
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.runtime.spark.sql_text import to_spark_sql
from watersmeet.types.intervals import IntervalError

BETWEEN_TWO = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "DIV",
    "||",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    ">>>",
    "=",
    "==",
    "!=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "<=>",
    "!<",
    "!>",
    "AND",
    "OR",
]
BEHIND = [
    "IS NULL", "IS NOT NULL", "IS NOT TRUE", "IS FALSE", "IS UNKNOWN", "IS DISTINCT FROM c", "IS NOT DISTINCT FROM c",
    "IN (c)", "NOT IN (c, d)", "BETWEEN c AND d", "NOT BETWEEN c AND d", "LIKE c", "NOT LIKE c ESCAPE '!'", "NOT ILIKE c",
    "RLIKE c", "NOT REGEXP c", "SIMILAR TO c", "LIKE ANY (c, d)", "NOT ILIKE ALL (c)", "COLLATE UTF8_BINARY", "::STRING",
    "[c]", ".f", "ISNULL",
]  # fmt: skip
BEFORE = ["NOT", "!", "-", "+", "~", "CASE WHEN x THEN y END +", "INTERVAL 1 DAY +", "- INTERVAL '1' DAY *"]
INNER = [
    "a BETWEEN b {} c AND d", "a BETWEEN b AND c {} d", "a NOT BETWEEN b {} c AND d", "a LIKE b {} c",
    "a NOT LIKE b {} c", "a RLIKE b {} c", "a ILIKE b {} c ESCAPE '!'", "a IS DISTINCT FROM b {} c",
    "a.f {} b[c {} d]", "CASE a {} b WHEN c {} d THEN x END {} y", "F(a {} b, c) {} d", "a IN (b {} c, d) {} x",
]  # fmt: skip
VALUES = ["1", "-1", "- 1", "-1.5", "-1L", "- -1", "-(1)", "'x'", "TRUE", "NULL", "DATE '2024-01-01'", "(a)", "-a", "1.5BD"]  # fmt: skip


def texts(rng: random.Random) -> list[str]:
    found = [f"a {one} b {two} c" for one, two in itertools.product(BETWEEN_TWO, BETWEEN_TWO)]
    for one in BETWEEN_TWO:
        for each in BEHIND:
            found += [f"a {one} b {each}", f"a {each} {one} b"]
        for sign in BEFORE:
            found += [f"{sign} a {one} b", f"a {one} {sign} b"]
        for form in INNER:
            found.append(form.replace("{}", one))
        for value in VALUES:
            found += [f"{value} {one} b", f"a {one} {value}"]
    found += [f"a {one} {two}" for one, two in itertools.product(BEHIND, BEHIND)]
    found += [f"{sign} a {each}" for sign, each in itertools.product(BEFORE, BEHIND)]
    found += [f"{value} {each}" for value, each in itertools.product(VALUES, BEHIND)]
    found += [f"{sign} {value}" for sign, value in itertools.product(BEFORE, VALUES)]
    found += [f"{one} {two} a" for one, two in itertools.product(BEFORE, BEFORE)]
    return [*dict.fromkeys(found), *(_random(rng) for _ in range(400))]


def _random(rng: random.Random) -> str:
    parts = [rng.choice("abcd")]
    for _ in range(rng.randrange(2, 6)):
        if rng.random() < 0.25:
            parts.append(rng.choice(BEHIND))
        sign = [rng.choice(BEFORE[:5])] if rng.random() < 0.2 else []
        parts += [rng.choice(BETWEEN_TWO), *sign, rng.choice("abcd")]
    return " ".join(parts)


def translate_to_spark_sql(text: str) -> str | None:
    """What Spark would be sent; None: it is refused."""
    try:
        (found,) = sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet).expressions
    except (SqlglotError, IntervalError):
        return None
    return None if isinstance(found, exp.Alias) else to_spark_sql(found)


def plain(tree: str) -> str:
    """A tree as Spark shows it, with one name for each thing that has several."""
    tree = re.sub(r"cast\((\d{4}-\d\d-\d\d) as date\)", r"\1", tree).replace("'POSITIVE(", "positive(")
    for name, sign in (("SHIFTLEFT", "<<"), ("SHIFTRIGHT", ">>"), ("SHIFTRIGHTUNSIGNED", ">>>")):
        while (start := tree.find(f"'{name}(")) >= 0:
            opened = start + len(name) + 2
            comma, end = _parts(tree, opened)
            inner = f"({tree[opened:comma]} {sign} {tree[comma + 2 : end]})"
            tree = tree[:start] + inner + tree[end + 1 :]
    return tree.replace("isnotnull(", "NOT isnull(").replace("NOT (NOT isnull", "(NOT NOT isnull")


def _parts(tree: str, start: int) -> tuple[int, int]:
    """Where the comma of a call of two arguments is, and its end."""
    depth, comma = 0, -1
    for place in range(start, len(tree)):
        depth += tree[place] in "(["
        if tree[place] == "," and depth == 0:
            comma = place
        if tree[place] in ")]":
            if depth == 0:
                return comma, place
            depth -= 1
    raise AssertionError(tree)


@pytest.mark.spark
def test_operators_stand_together_as_in_spark(spark, seed):
    parser = spark._jsparkSession.sessionState().sqlParser()

    def tree(text: str) -> str | None:
        """None as well: a name behind it, a function for a quantifier, a field of a number, a collated type."""
        try:
            found = plain(parser.parseExpression(text).toString())
        except Exception:
            return None
        return None if re.search(r" AS \w+#\d+L?$|'(ANY|ALL)\(|\d\[f\]|as string collate", found) else found

    different, counted = [], {"same": 0, "refused by both": 0}
    rng = random.Random(seed)
    drawn = texts(rng)
    for text in at_effort(quick=rng.sample(drawn, 900), full=drawn):
        wanted, ours = tree(text), translate_to_spark_sql(text)
        got = None if ours is None else tree(ours)
        if wanted == got:
            counted["same" if wanted else "refused by both"] += 1
        else:
            different.append((text, ours, wanted, got))
    print(counted)
    for each in different[:40]:
        print(*each, sep=" | ")
    assert different == []
    assert min(counted.values()) > at_effort(quick=90, full=500)
