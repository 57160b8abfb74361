"""Options of a job and of its sources that say what queries mean; limits of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from watersmeet.spec.time_zones import UTC

# The numbers within which settings of a job may be chosen, their defaults, and who does what is little.

TASK_MEMORY = 1 << 30
"""Bytes that one task may hold at once, unless the job says otherwise."""
LEAST_TASK_MEMORY = 16 << 20

LEAST_KEPT_TICKS, MOST_KEPT_TICKS = 2, 10_000
"""Ticks whose state is kept, the newest among them: the one before it is kept in any case."""

ON, OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
"""Values of settings that are switches."""

SMALL_TICKS = "small_ticks"


class SmallTicks(Enum):
    """Executor of ticks with little work.

    ``AUTO``: the driver, without a Spark job, where possible. ``SPARK``: always Spark tasks.
    """

    AUTO = "auto"
    SPARK = "spark"


def is_set(settings: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return True if a switch among the settings of a run is on. ``default``: where it is not set."""
    return settings[name].strip().lower() in ON if name in settings else default


def small_ticks_in(settings: Mapping[str, str]) -> SmallTicks:
    """Return the value from the settings of a run, which are already checked."""
    return SmallTicks(settings.get(SMALL_TICKS, SmallTicks.AUTO.value))


# The options of a job and of its sources that say what queries mean, and limits.


class PlanChoice(Enum):
    AUTO = "auto"
    CASCADE = "cascade"
    DELTA = "delta"


class WatermarkRule(Enum):
    TIGHT = "tight"
    LIMIT = "limit"


class OutputMode(Enum):
    """Rows that a query emits: final rows (EMIT FINAL), or changes of its result (EMIT CHANGES)."""

    APPEND = "append"
    CHANGELOG = "changelog"


class Lateness(Enum):
    """Rule that makes a row late.

    ``COLUMN``: one of its times is below the watermark of that column. ``JOIN``: its time is below
    the horizon of its join (`conditions.Horizon`); an explicit exception, for joins of two streams.
    """

    COLUMN = "column"
    JOIN = "join"


class OnIdle(Enum):
    HOLD = "hold"
    FOLLOW = "follow"


class OnBroken(Enum):
    """Action of a job when none of the first records of a source parses."""

    STOP = "stop"
    COUNT = "count"


class NullTime(Enum):
    """Effect of a row whose event time is NULL: it is dropped and counted, or it fails the job."""

    COUNT = "count"
    FAIL = "fail"


class AtLimit(Enum):
    """Action when state exceeds a limit.

    The limits are `SHEDDING`, `SHEDDING_OF_JOB` and those of sources.
    """

    STOP = "stop"
    SHED_OLDEST = "shed_oldest"
    SHED_HEAVIEST = "shed_heaviest"

    @property
    def sheds(self) -> bool:
        """True if rows that might still match are dropped."""
        return self is not AtLimit.STOP


def shown_share(limit: int | Fraction) -> str:
    """Format a limit: a count, or a share as a percentage.

    >>> shown_share(5), shown_share(Fraction(1, 200))
    ('5', '0.5 %')
    """
    return f"{float(100 * limit):g} %" if isinstance(limit, Fraction) else f"{limit:,}"


SHEDDING = ("max_rows", "max_bytes", "max_rows_per_key")
"""The limits of a join at which it can shed rows."""
SHEDDING_OF_JOB = ("max_job_rows", "max_job_bytes")
"""Those of all queries together at which they can."""


@dataclass(frozen=True)
class Options:
    """Options that affect the results of queries, and limits.

    A limit of None means no limit. The options of a planned query are its own.

    Attributes:
        lateness: the rule that makes a row late.
        allowed_lateness: µs for queries over TIMESTAMP or DATE times, plain units for integer times.
        output_mode: the mode of queries that set none themselves; None: the mode that their sources allow.
        max_rows: the maximum number of retained rows per join.
        max_bytes: the maximum number of bytes in files per join.
        max_rows_per_key: the maximum number of retained rows per key of a side.
        max_output_rows_per_tick: the maximum number of rows that a tick emits.
        max_job_rows: the maximum number of retained rows of all queries together.
        max_job_bytes: the maximum number of retained bytes of all queries together.
        max_drift: how far a source is read ahead of others; µs for queries over TIMESTAMP or DATE times,
            plain units for integer times.
        max_broken: the maximum number, or share, of an input's records that do not parse.
        max_task_memory: the maximum number of bytes that one task may use at once.
        time_zone: the zone in which expressions read and write days, hours and texts of TIMESTAMPs (see
            `spec.time_zones`); windows and intervals of fixed length do not depend on it.
        lenient: True if an explicit advance below the watermark is ignored and reported; otherwise it makes
            the tick fail.
    """

    watermark_rule: WatermarkRule = WatermarkRule.TIGHT
    lateness: Lateness = Lateness.COLUMN
    allowed_lateness: int = 0
    output_mode: OutputMode | None = None
    plan: PlanChoice = PlanChoice.AUTO
    max_rows: int | None = None
    max_bytes: int | None = None
    max_rows_per_key: int | None = None
    max_output_rows_per_tick: int | None = None
    max_job_rows: int | None = None
    max_job_bytes: int | None = None
    max_drift: int | None = None
    max_broken: int | Fraction | None = None
    at_limit: AtLimit = AtLimit.STOP
    on_null_time: NullTime = NullTime.COUNT
    max_task_memory: int = TASK_MEMORY
    time_zone: str = UTC
    lenient: bool = False

    @property
    def mode(self) -> OutputMode:
        """Output mode of a planned query; append if no option sets it."""
        return self.output_mode or OutputMode.APPEND
