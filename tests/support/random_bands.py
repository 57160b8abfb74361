"""Random bands: intervals between values of every ordered type, written in many ways.

Values are drawn from few, so that many lie at an end of a band, and from the ends of their types.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.support.random_draft import INT64_MAX, INT64_MIN, Draft

NAN, INFINITE = float("nan"), float("inf")


@dataclass(frozen=True)
class Kind:
    """Types of the two columns of a band, their values, and distances as SQL text, in order of size.

    ``differences``: whether ``x - y`` may be compared with a distance.
    """

    types: tuple[str, str]
    values: tuple[tuple[Any, ...], tuple[Any, ...]]
    distances: tuple[str, ...]
    differences: bool = True
    may_invert: bool = True


def _both(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return values, values


_SMALL = (0, 1, 2, 3, 7, -1, -5, 100)
_EXTREME = (INT64_MIN, INT64_MIN + 1, INT64_MIN + 3, -1, 0, 2, INT64_MAX - 2, INT64_MAX)
_GREAT = (-(2**62), -(2**62) + 1, -(2**62) + 3, -1, 0, 2, 2**62 - 3, 2**62 - 1)
_CENTS = tuple(str(Decimal(n) / 100) for n in (0, 1, 50, 150, 151, -150, 99999999, 200))
_FINE = tuple(str(Decimal(n) / 10_000) for n in (0, 1, 10_000, 15_000, 15_001, -14_999, 9_999_999_900))
_WIDE = tuple(f"{whole}.{'0' * 17}{last}" for whole in ("0", "12345678", "-3") for last in "015")
_DOUBLES = (
    0.0,
    -0.0,
    0.1,
    0.2,
    0.30000000000000004,
    1.5,
    -2.0,
    1e300,
    -1e300,
    5e-324,
    INFINITE,
    -INFINITE,
    NAN,
)
_DAYS = tuple(
    (date(1970, 1, 1) + timedelta(n)).isoformat() for n in (0, 1, 2, 7, -1, 20_000, -700_000, 2_932_896)
)
_STAMPS = tuple(
    (datetime(1970, 1, 1) + timedelta(microseconds=n)).isoformat()
    for n in (0, 1, -1, 3_600_000_000, 3_600_000_001, 86_400_000_000, -86_400_000_000, 10**17)
)  # fmt: skip

_TEXTS = (
    "",
    "a",
    "a\x00",
    "aa",
    "abcdefgh",
    "abcdefgi",
    "abcdefghi",
    "abcdefgh\u00e9",
    "\u00e9",
    "\U0001f600",
    "Z",
)

KINDS = (
    Kind(("INT", "INT"), _both(_SMALL), ("0", "1", "3", "10")),
    Kind(("TINYINT", "BIGINT"), _both(_SMALL), ("0", "1", "3", "10")),
    # a sum that leaves its type stops the job: these come just as far as they may
    Kind(("BIGINT", "BIGINT"), _both(_EXTREME), ("",), differences=False, may_invert=False),
    Kind(("BIGINT", "BIGINT"), _both(_GREAT), ("0", "2", "5", str(2**62)), may_invert=False),
    Kind(("DECIMAL(10,2)", "DECIMAL(10,2)"), _both(_CENTS), ("0", "0.01", "0.5", "1.50", "2")),
    Kind(("DECIMAL(10,2)", "DECIMAL(12,4)"), (_CENTS, _FINE), ("0", "0.0001", "0.125", "1.5")),
    Kind(("INT", "DECIMAL(10,2)"), (_SMALL, _CENTS), ("0", "0.5", "1", "1.51")),
    # Spark rounds sums of so many digits, which the oracle does not: the values as they are
    Kind(("DECIMAL(38,18)", "DECIMAL(38,18)"), _both(_WIDE), ("",), differences=False, may_invert=False),
    Kind(("DECIMAL(20,18)", "DECIMAL(20,18)"), _both(_WIDE[:3]), ("0", f"0.{'0' * 17}1", "0.1"), True, False),
    Kind(("BIGINT", "DECIMAL(20,2)"), (_SMALL, _CENTS), ("0", "0.5", "1.51"), may_invert=False),
    Kind(("DOUBLE", "DOUBLE"), _both(_DOUBLES), ("0", "0.1", "0.2", "1", "1000"), may_invert=False),
    Kind(("INT", "DOUBLE"), (_SMALL, _DOUBLES), ("0", "0.1", "1", "3"), may_invert=False),
    Kind(("DECIMAL(10,2)", "DOUBLE"), (_CENTS, _DOUBLES), ("0", "0.5", "1.5"), may_invert=False),
    Kind(("DATE", "DATE"), _both(_DAYS), ("INTERVAL '0' DAY", "INTERVAL '1' DAY", "INTERVAL '6' DAY"), False),
    Kind(
        ("TIMESTAMP", "TIMESTAMP"),
        _both(_STAMPS),
        ("INTERVAL '0' SECOND", "INTERVAL '1' MICROSECOND", "INTERVAL '1' HOUR", "INTERVAL '1' DAY"),
    ),
    # texts are compared as they are
    Kind(("STRING", "STRING"), _both(_TEXTS), ("",), differences=False, may_invert=False),
    Kind(("DATE", "TIMESTAMP"), (_DAYS, _STAMPS), ("INTERVAL '0' DAY", "INTERVAL '1' DAY"), False),
)  # fmt: skip


def draw_bands(draft: Draft) -> None:
    """One to three bands; gives both inputs their columns. Each input's may be looked up from the other."""
    if draft.chance(0.15) and not draft.times.extreme:
        draw_validity(draft)
    for number in range(draft.rng.choice([1, 1, 2, 3])):
        kind = draft.rng.choice(KINDS)
        left, right, other = f"b{number}", f"c{number}", f"d{number}"
        one, two = kind.types
        draft.columns[0].update({left: one})
        draft.columns[1].update({right: two, other: two})
        draft.pools.update(
            {left: list(kind.values[0]), right: list(kind.values[1]), other: list(kind.values[1])}
        )
        if draft.shape == "self":
            draft.columns[0].update(draft.columns[1])
            draft.columns[1].update(draft.columns[0])
        a, b = draft.aliases
        draft.conditions += _conditions(draft, kind, f"{a}.{left}", f"{b}.{right}", f"{b}.{other}")


def draw_validity(draft: Draft) -> None:
    """An event time of the left input between two plain columns of the right one."""
    kind, rng = draft.times.kinds[0], draft.rng
    for column, by in (("valid_from", -3), ("valid_to", 5)):
        draft.columns[1][column] = kind
        draft.pools[column] = [draft.times.value(0, n + by) for n in range(0, 40, 3)]
    if draft.shape == "self":
        draft.columns[0].update(draft.columns[1])
    a, b = draft.aliases
    less = rng.choice(["<=", "<"])
    draft.conditions += rng.choice(
        [
            [f"{a}.t BETWEEN {b}.valid_from AND {b}.valid_to"],
            [f"{b}.valid_from <= {a}.t", f"{a}.t {less} {b}.valid_to"],
        ]
    )


def _conditions(draft: Draft, kind: Kind, x: str, y: str, z: str) -> list[str]:
    rng = draft.rng
    sizes = sorted(rng.choices(range(len(kind.distances)), k=2))
    near, far = (kind.distances[size] for size in sizes)
    forms = ["between", "between", "mirrored", "open", "strict", "two columns", "far ends"]
    if kind.differences:
        forms += ["difference", "differences"]
    if kind.may_invert:
        forms.append("inverted")
    match rng.choice(forms):
        case "between":
            return [f"{x} BETWEEN {_minus(draft, y, near)} AND {_plus(draft, y, far)}"]
        case "mirrored":
            return [f"{y} BETWEEN {_minus(draft, x, near)} AND {_plus(draft, x, far)}"]
        case "open":
            return [rng.choice([f"{x} >= {_minus(draft, y, near)}", f"{_plus(draft, y, far)} >= {x}"])]
        case "strict":
            return [f"{x} > {_minus(draft, y, far)}", f"{x} < {_plus(draft, y, far)}"]
        case "two columns":
            return [f"{x} BETWEEN {_minus(draft, y, near)} AND {_plus(draft, z, far)}"]
        case "far ends":
            return [f"{x} >= {_plus(draft, y, near)}", f"{x} <= {_plus(draft, y, far)}"]
        case "difference":
            return [rng.choice([f"{x} - {y} <= {near}", f"{y} - {x} < {far}", f"{x} - {y} >= {near}"])]
        case "differences":
            return [f"{x} - {y} BETWEEN {near} AND {far}"]
    return [f"{x} >= {_plus(draft, y, near)}", f"{x} <= {_minus(draft, y, far)}"]


def _plus(draft: Draft, operand: str, distance: str) -> str:
    as_it_is = not distance or (distance == "0" and draft.chance(0.6))
    return operand if as_it_is else f"{operand} + {distance}"


def _minus(draft: Draft, operand: str, distance: str) -> str:
    as_it_is = not distance or (distance == "0" and draft.chance(0.6))
    return operand if as_it_is else f"{operand} - {distance}"
