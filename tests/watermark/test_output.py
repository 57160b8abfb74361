"""Output watermarks of a join: both rules, and that they never go back."""

from __future__ import annotations

import pytest

from watersmeet.event_time import ENDED, NEVER
from watersmeet.watermark.tracker import output_watermarks, risen_watermarks


@pytest.mark.parametrize(
    ("watermark", "least", "expected"),
    [
        (10, None, 10),
        (10, 7, 7),
        (10, 10, 10),
        (10, 12, 10),
        (ENDED, None, ENDED),
        (ENDED, 3, 3),
        (NEVER, None, None),
    ],
)
def test_tight_rule_is_bound_only_by_retained_rows(watermark, least, expected):
    retained = {} if least is None else {"l.t": least}
    found = output_watermarks({"l.t": watermark}, {"l.t": 1}, retained, {}, tight=True)
    assert found == ({} if expected is None else {"l.t": expected})


@pytest.mark.parametrize(
    ("watermark", "limit", "expected"),
    [(10, 7, 7), (10, 12, 10), (10, NEVER, None), (10, None, None), (ENDED, 9, 9)],
)
def test_limit_rule_uses_the_eviction_limit_and_needs_a_bound(watermark, limit, expected):
    limits = {} if limit is None else {"l.t": limit}
    found = output_watermarks({"l.t": watermark}, limits, {"l.t": 2}, {}, tight=False)
    assert found == ({} if expected is None else {"l.t": expected})


@pytest.mark.parametrize("tight", [True, False])
def test_it_never_goes_back(tight):
    found = output_watermarks(
        {"l.t": 10, "r.t": 9}, {"l.t": 6, "r.t": 9}, {"l.t": 6}, {"l.t": 8}, tight=tight
    )
    assert found == {"l.t": 8, "r.t": 9}


def test_the_golden_of_one_to_four():
    """i2.time BETWEEN i1.time - 1 AND i1.time + 4: W[i2] = 10 holds i1 at 6, once W[i1] is as far."""
    limits = {"i1.time": 6}
    assert output_watermarks({"i1.time": 5, "i2.time": 10}, limits, {}, {}, tight=False) == {"i1.time": 5}
    assert output_watermarks({"i1.time": 7, "i2.time": 10}, limits, {}, {"i1.time": 5}, tight=False) == {
        "i1.time": 6
    }


def test_only_risen_watermarks_are_emitted():
    assert risen_watermarks({"a": 5, "b": 5}, {"a": 5, "b": 6, "c": -3}) == {"b": 6, "c": -3}
    assert risen_watermarks({"a": 5}, {"a": ENDED}) == {"a": ENDED}
