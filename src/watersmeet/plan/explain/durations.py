"""Times as people write them, for messages and EXPLAIN. Only text: nothing here is parsed again."""

from __future__ import annotations

from itertools import pairwise

from watersmeet.event_time import DAY_US

_STEPS = (
    (DAY_US, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "µs"),
)


def duration(us: int) -> str:
    """``us`` microseconds in words.

    >>> duration(5_400_000_000), duration(0), duration(-1_500_000)
    ('1 h 30 min', '0 s', '-1 s 500 ms')
    """
    if us == 0:
        return "0 s"
    rest, words = abs(us), []
    for size, name in _STEPS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {name}")
    return ("-" if us < 0 else "") + " ".join(words)


def rounded_up(us: int) -> str:
    """``us`` microseconds, not negative, in the two greatest units that it has; never less than it is.

    >>> rounded_up(90_061_000_001), rounded_up(41_900_000), rounded_up(59_999_999)
    ('1 d 2 h', '41 s 900 ms', '1 min')
    """
    for (size, _), (smaller, _) in pairwise(_STEPS):
        if us >= size:
            return duration(-(-us // smaller) * smaller)
    return duration(us)


def distance(value: int, in_time: bool) -> str:
    """A distance of event times: a duration, or a plain number where times are integers."""
    return duration(value) if in_time else str(value)


def shifted(name: str, by: int, in_time: bool) -> str:
    """``name + by`` in words, the sign in front of the distance.

    >>> shifted("l.t", -3, in_time=False), shifted("l.t", 0, in_time=True)
    ('l.t - 3', 'l.t')
    """
    if by == 0:
        return name
    return f"{name} {'-' if by < 0 else '+'} {distance(abs(by), in_time)}"
