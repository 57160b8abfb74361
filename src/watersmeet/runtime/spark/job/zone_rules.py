"""Whether the running JVM has the same rules of the job's time zone as the tasks, which have Python's.

Both come with a copy of the zone database of their own, and either may be older: then the same instant would
be another hour for Spark than for the tasks.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import EngineError
from watersmeet.zones import FIRST_COMMON_S, LAST_COMMON_S, SECOND_US, zone

OffsetChanges = list[tuple[int, int]]
"""Instants, in seconds since 1970, and the UTC offsets from then on, in seconds; the first is the start."""

FIRST = int(datetime(1900, 1, 1, tzinfo=UTC).timestamp())
_EPOCH = datetime(1970, 1, 1)
_OFFSET = r"(Z|[+-]\d\d:\d\d(?::\d\d)?)"
_CHANGE = re.compile(rf"(?:Gap|Overlap) at (\d{{4}}-\d\d-\d\dT[\d:]+?){_OFFSET} to {_OFFSET}\]")


def check_zone(session: SparkSession, name: str) -> str | None:
    """Check that Java and Python have the same rules for a time zone.

    Returns:
        A notice if the rules differ only before 1970; else None.

    Raises:
        EngineError: they differ from 1970 to 2100.
    """
    if "/" not in name:
        return None  # UTC and fixed offsets have no rules
    differ = find_differences(load_java_rules(session, name), load_python_rules(name))
    if not differ:
        return None
    when = " and ".join(dict.fromkeys(_format_day(moment) for moment in (differ[0], differ[-1])))
    both = f"Java and Python have different rules for the time zone {name}"
    if differ[-1] < FIRST_COMMON_S:
        return (
            f"{both} before 1970 (first and last at {when}): for such times, hours and days that Spark"
            " computes may differ from those that tasks compute"
        )
    raise EngineError(
        f"{both} (first and last at {when}), so Spark and its Python tasks would compute different"
        " local times",
        code="time-zone-rules",
        hint="update both: install a newer Java, and run `pip install -U tzdata`; or SET time_zone to"
        " an offset, such as '+01:00'",
    )


def find_differences(one: OffsetChanges, other: OffsetChanges) -> list[int]:
    """Find the instants at which a change in either list leads to different offsets."""
    instants = sorted({at for changes in (one, other) for at, _ in changes})
    return [at for at in instants if _offset(one, at) != _offset(other, at)]


def _offset(changes: OffsetChanges, at: int) -> int:
    place = bisect_left(changes, (at + 1,))
    return changes[max(place - 1, 0)][1]


def _format_day(at: int) -> str:
    return (_EPOCH + timedelta(seconds=at)).strftime("%Y-%m-%d")


def load_python_rules(name: str) -> OffsetChanges:
    """Load the time zone rules that tasks compute with."""
    own = zone(name)
    starts = (own.starts // SECOND_US).tolist()
    offsets = (own.offsets // SECOND_US).tolist()
    before = [offset for at, offset in zip([FIRST, *starts], offsets, strict=True) if at <= FIRST]
    return [(FIRST, before[-1])] + [
        (at, offset) for at, offset in zip(starts, offsets[1:], strict=True) if FIRST < at < LAST_COMMON_S
    ]


def load_java_rules(session: SparkSession, name: str) -> OffsetChanges:
    """Load the time zone rules of the running JVM.

    One call reads the listed changes; the later changes, which follow a rule, are read one by one.
    """
    jvm: Any = session.sparkContext._jvm
    try:
        rules = jvm.java.time.ZoneId.of(name).getRules()
    except (Py4JJavaError, PySparkException):
        raise EngineError(
            f"Java does not know the time zone {name}, but Python does",
            code="time-zone-rules",
            hint="install a newer Java, or SET time_zone to an offset, such as '+01:00'",
        ) from None
    first = rules.getOffset(jvm.java.time.Instant.ofEpochSecond(FIRST)).getTotalSeconds()
    changes = [(at, offset) for at, offset in _read(rules.getTransitions().toString()) if at < LAST_COMMON_S]
    following = rules.nextTransition(
        jvm.java.time.Instant.ofEpochSecond(changes[-1][0] if changes else FIRST)
    )
    while following is not None:
        ((at, offset),) = _read(following.toString())
        if at >= LAST_COMMON_S:
            break
        changes.append((at, offset))
        following = rules.nextTransition(following.getInstant())
    return [(FIRST, first)] + [(at, offset) for at, offset in changes if at > FIRST]


def _read(text: str) -> OffsetChanges:
    changes = []
    for local, before, after in _CHANGE.findall(text):
        wall = (datetime.fromisoformat(local) - _EPOCH) // timedelta(seconds=1)
        changes.append((wall - _seconds(before), _seconds(after)))
    return changes


def _seconds(offset: str) -> int:
    if offset == "Z":
        return 0
    parts = [int(part) for part in offset[1:].split(":")]
    size = parts[0] * 3_600 + parts[1] * 60 + (parts[2] if len(parts) > 2 else 0)
    return -size if offset[0] == "-" else size
