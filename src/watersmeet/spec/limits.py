"""The numbers within which settings of a job may be chosen, their defaults, and who does what is little."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

TASK_MEMORY = 1 << 30
"""Bytes that one task may hold at once, unless the job says otherwise."""
LEAST_TASK_MEMORY = 16 << 20

LEAST_KEPT_TICKS, MOST_KEPT_TICKS = 2, 10_000
"""Ticks whose state is kept, the newest among them: the one before it is kept in any case."""

ON, OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
"""Values of settings that are switches."""

SMALL_TICKS = "small_ticks"


class SmallTicks(Enum):
    """Who does what a tick has to do where that is little. ``AUTO``: the driver, without a job of Spark's,
    where it can. ``SPARK``: always tasks of Spark's."""

    AUTO = "auto"
    SPARK = "spark"


def is_set(settings: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return True if a switch among the settings of a run is on. ``default``: where it is not set."""
    return settings[name].strip().lower() in ON if name in settings else default


def small_ticks_in(settings: Mapping[str, str]) -> SmallTicks:
    """What the settings of a run say; those are checked."""
    return SmallTicks(settings.get(SMALL_TICKS, SmallTicks.AUTO.value))
