"""The list itself: every function on it is tried against Spark, and the page says what is on it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.expressions import (
    test_casts_of_texts_on_spark,
    test_nested_on_spark,
    test_numbers_on_spark,
    test_operators_on_spark,
    test_texts_on_spark,
    test_times_on_spark,
)
from watersmeet.expressions.page import page, share
from watersmeet.expressions.registry import FAMILIES, FUNCTIONS, RESTRICTIONS
from watersmeet.spec.functions import function_names, scalar_functions

TRIED = [
    test_nested_on_spark.EXPRESSIONS,
    test_casts_of_texts_on_spark.EXPRESSIONS,
    test_numbers_on_spark.EXPRESSIONS,
    test_operators_on_spark.EXPRESSIONS,
    test_texts_on_spark.EXPRESSIONS,
    test_times_on_spark.EXPRESSIONS,
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "users" / "reference" / "functions.md"


def test_every_function_on_the_list_is_tried():
    tried = {
        name.lower() for texts in TRIED for text in texts for name in re.findall(r"\b([a-z_0-9]+)\(", text)
    }
    assert set(FUNCTIONS) - tried == set()


def test_a_function_is_of_one_family():
    names = [name for family in FAMILIES.values() for name in family]
    assert len(names) == len(set(names))


def test_the_list_has_functions_of_spark_alone():
    grammar = {"timestampadd", "timestampdiff"}  # forms of Spark's grammar, not in its catalog
    assert set(FUNCTIONS) - set(function_names()) - grammar == set()
    assert set(RESTRICTIONS) - set(FUNCTIONS) == set()


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page(), "make it anew: scripts/expressions-page"


LEAST_SHARE = 0.5


def test_tasks_compute_more_than_half_of_spark_s_functions(capsys):
    computed, every = share()
    with capsys.disabled():
        percent = f"{100 * computed / every:.1f} %"
        print(f"\ntasks compute {computed} of {every} deterministic scalar functions: {percent}")
    assert computed > LEAST_SHARE * every


def test_what_counts_is_what_gives_a_value_of_a_row():
    counted = set(scalar_functions())
    assert {"abs", "upper", "md5", "transform", "from_json", "case", "raise_error"} <= counted
    assert (
        counted & {"sum", "rank", "explode", "range", "rand", "uuid", "now", "current_user", "window"}
        == set()
    )
