import pytest
import sqlglot

from watersmeet.plan.conditions.conjuncts import join_all, split, text_of


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
