"""Residual conditions on pairs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.kernel.residual import holds

PAIRS = pa.table({"l.v": [1, 2, None, 4], "r.v": [2, 2, 2, None]})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('"l.v" <> "r.v"', [True, False, False, False]),
        ('"l.v" = "r.v" OR "r.v" IS NULL', [False, True, False, True]),
        ('NOT ("l.v" = "r.v")', [True, False, False, False]),
        ("NULL", [False] * 4),
        ("TRUE", [True] * 4),
    ],
)
def test_only_true_is_a_match(condition, expected):
    assert holds(condition, PAIRS).tolist() == expected


def test_order_is_kept_over_many_pairs():
    count = 20_000
    table = pa.table({"n": list(range(count))})
    assert holds("n % 3 = 1", table).tolist() == [n % 3 == 1 for n in range(count)]


def test_no_pairs_no_answer():
    assert holds("TRUE", PAIRS.slice(0, 0)).tolist() == []


def test_a_failing_condition_is_named_with_a_hint():
    with pytest.raises(EngineError, match=r"CAST\('x' AS INT\).* failed") as raised:
        holds("CAST('x' AS INT) = 1", PAIRS)
    assert raised.value.code == "condition-failed"
    assert "TRY_CAST" in (raised.value.hint or "")


def test_the_engine_works_on_after_a_failure():
    with pytest.raises(EngineError):
        holds("nothing_of_this_name = 1", PAIRS)
    assert holds("TRUE", PAIRS).tolist() == [True] * 4
