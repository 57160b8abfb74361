"""A condition is cut into conjuncts, with what an OR shares and what NOT means."""

import pytest
import sqlglot

from watersmeet.plan.conditions.conjuncts import join_all, split, text_of
from watersmeet.plan.conditions.rewrites import conjuncts_of


def conjuncts(sql):
    return [text_of(c.expr) for c in split(sqlglot.parse_one(sql, dialect="spark"))]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = 1 AND (b = 2 AND c = 3)", ["a = 1", "b = 2", "c = 3"]),
        ("a BETWEEN 1 AND 2 AND b = 3", ["a >= 1", "a <= 2", "b = 3"]),
        ("(a BETWEEN 1 AND 2)", ["a >= 1", "a <= 2"]),
        ("a NOT BETWEEN 1 AND 2", ["NOT a BETWEEN 1 AND 2"]),
        ("NOT (a = 1 AND b = 2)", ["NOT (a = 1 AND b = 2)"]),
        ("a = 1 OR b = 2 AND c = 3", ["a = 1 OR b = 2 AND c = 3"]),
    ],
)
def test_cut_at_top_level_ands(sql, expected):
    assert conjuncts(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("(k = j AND a = 1) OR (j = k AND a = 2)", ["k = j", "a = 1 OR a = 2"]),
        ("k = j AND a OR (k = j AND b OR c AND (k = j AND d))", ["k = j", "a OR (b OR c AND d)"]),
        ("(x < y AND a) OR (y > x AND x BETWEEN 1 AND 2)", ["x < y", "a OR x BETWEEN 1 AND 2"]),
        ("(x BETWEEN 1 AND 2 AND a) OR (b AND x BETWEEN 1 AND 2)", ["x >= 1", "x <= 2", "a OR b"]),
        ("(k = j AND a) OR k = j", ["k = j"]),
        ("(k = j AND (a OR b)) OR (k = j AND (c AND d))", ["k = j", "(a OR b) OR c AND d"]),
        ("(a AND ((k = j AND b) OR (c AND k = j))) OR (d AND j = k)", ["k = j", "a AND (b OR c) OR d"]),
        ("(NOT k <> j AND a) OR (k = j AND b)", ["k = j", "a OR b"]),
        ("(k = j AND a) OR (k = i AND b)", ["(k = j AND a) OR (k = i AND b)"]),
        ("(x > y AND a) OR (x < y AND b)", ["(x > y AND a) OR (x < y AND b)"]),
        ("NOT a > b AND NOT a >= b", ["a <= b", "a < b"]),
        ("NOT a < b AND NOT a <= b AND NOT a <> b", ["a >= b", "a > b", "a = b"]),
        ("NOT NOT (a = 1 AND b = 2)", ["a = 1", "b = 2"]),
        ("NOT (a > b OR (c <> d OR x IS NULL))", ["a <= b", "c = d", "NOT (x IS NULL)"]),
        ("NOT (a = b AND c > d)", ["NOT (a = b AND c > d)"]),
        ("NOT a = b", ["NOT a = b"]),
    ],
)
def test_what_is_shared_by_an_or_and_what_is_negated(sql, expected):
    parts = conjuncts_of(sqlglot.parse_one(sql, dialect="spark"))
    assert [text_of(c.expr) for c in parts] == expected


def test_a_negated_condition_is_named_as_it_is_written():
    (part,) = conjuncts_of(sqlglot.parse_one("NOT a > b"))
    assert part.text == "NOT a > b"


def test_both_halves_of_a_between_name_it():
    assert {c.text for c in split(sqlglot.parse_one("a BETWEEN 1 AND 2"))} == {"a BETWEEN 1 AND 2"}


def test_no_condition_has_no_conjuncts():
    assert split(None) == ()
    assert join_all([]) is None


def test_joined_again_an_or_keeps_its_parentheses():
    parts = split(sqlglot.parse_one("(a OR b) AND (NOT c) AND d"))
    assert text_of(join_all([c.expr for c in parts])) == "(a OR b) AND NOT c AND d"


@pytest.mark.parametrize(
    "column",
    [
        "a.x",
        "x",
        "`a`.`x`",
        "a.`odd ``name`",
        "`select`.`from`",
        "a.X",
        "s.a.x",
        "c.s.a.x",
        "a.x /* said */",
        "a.`é.1`",
    ],
)
def test_texts_of_columns_are_those_of_the_generator(column):
    tree = sqlglot.parse_one(column, dialect="spark")
    assert isinstance(tree, sqlglot.exp.Column)
    assert text_of(tree) == tree.sql(dialect="spark")
