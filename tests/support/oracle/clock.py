"""Watermarks of the oracle's streams: per partition, idle or not, as semantics.md section 4 says, plainly."""

from __future__ import annotations

from typing import Any

from tests.support.oracle.values import (
    ENDED,
    NEVER,
    Refused,
    duration,
    kind_of,
    saturate,
)


class Partition:
    """One partition of a stream: the largest time less lag per column, and when its last row came."""

    def __init__(self, now: float) -> None:
        self.marks: dict[str, Any] = {}
        self.last = now
        self.idle = False


class StreamClock:
    """The watermarks of one stream's event-time columns."""

    def __init__(self, name: str, declared: dict[str, Any]) -> None:
        self.name = name
        self.kinds = {c: kind_of(declared["columns"][c]) for c in declared.get("time", {})}
        self.lags = {
            c: None if t.get("lag") is None else duration(t["lag"], self.kinds[c])
            for c, t in declared.get("time", {}).items()
        }
        self.timeout = declared.get("idle_timeout")
        self.follow = declared.get("on_idle") == "follow"
        self.partitions = {p: Partition(0.0) for p in declared.get("partitions", [])}
        self.told_idle = False
        self.told = declared.get("stage", False)
        """Its watermarks have allowed_lateness in them: see `oracle_windowed`."""
        self.marks: dict[str, Any] = dict.fromkeys(self.lags, NEVER)

    def row(self, values: dict[str, Any], partition: Any, now: float) -> None:
        """A row arrived: late, filtered or not, it counts."""
        part = self.partitions.setdefault(partition, Partition(now))
        part.last, part.idle, self.told_idle = now, False, False
        for column, lag in self.lags.items():
            if lag is not None and values[column] is not None:
                part.marks[column] = max(part.marks.get(column, NEVER), saturate(values[column] - lag))

    def go_idle(self, partition: str | None) -> None:
        if partition is None:
            self.told_idle = True
            for part in self.partitions.values():
                part.idle = True
        else:
            self.partitions.setdefault(partition, Partition(0.0)).idle = True

    def advance(self, column: str, mark: int, now: float, lenient: bool = False) -> None:
        if column not in self.marks:
            raise Refused(f'unknown event-time column "{self.name}.{column}"')
        if mark < self.marks[column] and not lenient and not (self.follow and self.idle):
            raise Refused(f"a watermark never goes back: {self.name}.{column} to {mark}")
        self.marks[column] = max(self.marks[column], mark)
        self.told_idle = False
        for part in self.partitions.values():
            part.idle, part.last = False, now

    @property
    def idle(self) -> bool:
        if not self.partitions:
            return self.told_idle
        return all(p.idle for p in self.partitions.values())

    def tick(self, now: float) -> None:
        """Partitions go idle by time; then W, which never goes back."""
        for part in self.partitions.values():
            if self.timeout is not None and now - part.last >= self.timeout:
                part.idle = True
        for column, lag in self.lags.items():
            if lag is None or not self.partitions:
                continue
            active = [p.marks.get(column, NEVER) for p in self.partitions.values() if not p.idle]
            marks = [p.marks.get(column, NEVER) for p in self.partitions.values()]
            self.marks[column] = max(self.marks[column], min(active) if active else max(marks))

    def restart(self, now: float) -> None:
        """The idle time of active partitions starts anew."""
        for part in self.partitions.values():
            if not part.idle:
                part.last = now

    def end(self) -> None:
        self.marks = dict.fromkeys(self.marks, ENDED)


def tick_all(clocks: dict[str, StreamClock], now: float) -> None:
    """All streams of a query in one tick; idle ones that follow take the least W of the active ones."""
    for clock in clocks.values():
        clock.tick(now)
    active = [m for c in clocks.values() if not c.idle for m in c.marks.values()]
    for clock in clocks.values():
        if clock.follow and clock.idle and active:
            clock.marks = {c: max(m, min(active)) for c, m in clock.marks.items()}


def merge_watermarks(marks: list[tuple[Any, bool]], before: Any) -> Any:
    """W of a UNION ALL from (W, idle) of its branches, never below ``before``."""
    active = [m for m, idle in marks if not idle]
    return max(before, min(active) if active else max(m for m, _ in marks))
