"""A random case while it is being drawn: its times, types and conditions so far."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
US = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": 86_400_000_000}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "STRING": ["a", "b", "", "aa"],
    "BIGINT": [0, 1, 2, -1],
    "INT": [0, 1, 2, -1],
    "DOUBLE": [0.0, -0.0, 1.5, -2.0],
    "DECIMAL(10,2)": ["0.00", "1.50", "-1.50", "2.00"],
    "BOOLEAN": [True, False],
    "DATE": ["1970-01-01", "1969-12-31", "2024-02-29"],
}


@dataclass
class Times:
    """How event times of a case look: values are ``base + n * step``, in the unit of the type."""

    kinds: list[str]
    """Their type, per input."""
    base: int
    step: int
    extreme: bool = False

    def value(self, side: int, n: int) -> Any:
        """The JSON value of the n-th time."""
        value = self.base + n * self.step
        kind = self.kinds[side]
        if kind == "TIMESTAMP":
            return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat()
        if kind == "DATE":
            return (EPOCH + timedelta(microseconds=value)).date().isoformat()
        return max(INT64_MIN, min(INT64_MAX, value))

    @property
    def temporal(self) -> bool:
        return self.kinds[0] in ("TIMESTAMP", "DATE")

    @property
    def has_mixed_kinds(self) -> bool:
        return len(set(self.kinds)) > 1


@dataclass
class Draft:
    """A case while it is being drawn. Its inputs are numbered in the order of the query."""

    rng: random.Random
    times: Times
    inputs: int
    kind: str = "INNER"
    shape: str = "plain"
    aliases: list[str] = field(default_factory=lambda: ["l", "r"])
    streams: list[str] = field(default_factory=lambda: ["l", "r"])
    branches: dict[str, int] = field(default_factory=dict)
    """Further streams of a UNION ALL -> its input."""
    columns: list[dict[str, str]] = field(init=False)
    event_times: list[list[str]] = field(init=False)
    conditions: list[str] = field(default_factory=list)
    using: list[str] = field(default_factory=list)
    pools: dict[str, list[Any]] = field(default_factory=dict)
    """Values of a column, where they are not the usual ones of its type."""

    def __post_init__(self) -> None:
        self.columns = [{} for _ in range(self.inputs)]
        self.event_times = [["t"] for _ in range(self.inputs)]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def input_of(self, stream: str) -> int:
        """An input whose types a stream has."""
        return self.branches[stream] if stream in self.branches else self.streams.index(stream)


def draw_times(rng: random.Random, wanted: str | None, inputs: int = 2) -> Times:
    """Event times of one type, of several (``MIXED``), or at both ends of BIGINT (``EXTREME``)."""
    kind = wanted or rng.choices(
        ["BIGINT", "INT", "TIMESTAMP", "DATE", "MIXED", "EXTREME"], [32, 8, 25, 10, 15, 10]
    )[0]  # fmt: skip
    if kind == "EXTREME":
        return Times(["BIGINT"] * inputs, 0, 1, extreme=True)
    if kind == "MIXED":
        two = rng.choice([("BIGINT", "INT"), ("INT", "BIGINT"), ("TIMESTAMP", "DATE"), ("DATE", "TIMESTAMP")])
        kinds = [*two, *(rng.choice(two) for _ in range(inputs - 2))]
    else:
        kinds = [kind] * inputs
    if kinds[0] in ("BIGINT", "INT"):
        step = rng.choice([1, 1, 1, 7, 1_000_000])
        base = rng.choice([0, 0, -20, 1_000]) * step
        if "INT" not in kinds and rng.random() < 0.2:
            base += rng.choice([10**15, -(10**15), 2**62])
        return Times(kinds, base, step)
    step = rng.choice([1, 1_000, US["SECOND"], US["MINUTE"], US["HOUR"], 9 * US["DAY"]])
    if "DATE" in kinds:
        step = (
            rng.choice([1, 1, 45]) * US["DAY"]
            if len(set(kinds)) == 1
            else rng.choice([US["HOUR"] * 7, US["DAY"]])
        )
    day = rng.choice([0, 0, -3, 19_000, 15_765, -10_000, 40_000])
    return Times(kinds, day * US["DAY"], step)


def whole_unit(draft: Draft) -> int:
    """The unit of lags: whole days where a DATE is involved."""
    return US["DAY"] if "DATE" in draft.times.kinds else draft.times.step
