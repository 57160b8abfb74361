"""Durations in words, as EXPLAIN and hints write them."""

import pytest

from watersmeet.plan.explain.wording import duration, format_shift


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (3_600_000_000, "1 h"),
        (5_400_000_000, "1 h 30 min"),
        (-1_500_000, "-1 s 500 ms"),
        (1, "1 µs"),
        (86_400_000_000 * 3, "3 d"),
    ],
)
def test_durations_in_words(us, text):
    assert duration(us) == text


def test_the_sign_stands_before_the_distance():
    assert format_shift("l.t", -3, False) == "l.t - 3"
    assert format_shift("l.t", 60_000_000, True) == "l.t + 1 min"
    assert format_shift("l.t", 0, True) == "l.t"
