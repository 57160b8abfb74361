"""Describe the partitions that hold watermarks back, and the sources that wait for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.event_time import NEVER, Watermark, shown_time
from watersmeet.plan.explain.wording import distance, duration, rounded_up, size_of

MAX_NAMES = 3


@dataclass(frozen=True)
class SilentPartition:
    """A silent partition of a source.

    Attributes:
        partition: name of the partition; "" if the source has none.
        since_us: clock of its last row, in µs; None if it has had none.
        idle_timeout_us: idle timeout in µs; None if there is none.
    """

    source: str
    partition: str
    since_us: int | None = None
    idle_timeout_us: int | None = None

    @property
    def name(self) -> str:
        """Name of the partition for people.

        >>> SilentPartition("orders", "2").name, SilentPartition("orders", "").name
        ('orders/2', 'orders')
        """
        return f"{self.source}/{self.partition}" if self.partition else self.source


def format_holders(partitions: Sequence[SilentPartition], started: bool) -> str:
    """Explain why a watermark does not advance.

    >>> silent = SilentPartition("a", "0"), SilentPartition("a", "1", 1_700_000_000_000_000)
    >>> format_holders(silent, started=True)
    'held back by a/0 (no row yet), a/1 (no row since 2023-11-14 22:13:20 UTC)'
    >>> format_holders([SilentPartition("a", str(n)) for n in range(5)], started=False)
    'not started: no row yet in a/0, a/1, a/2 and 2 more'
    """
    if not started and all(partition.since_us is None for partition in partitions):
        return f"not started: no row yet in {_format_list([partition.name for partition in partitions])}"
    words = [
        f"{partition.name} ("
        + ("no row yet" if partition.since_us is None else f"no row since {_clock(partition.since_us)}")
        + ")"
        for partition in partitions
    ]
    return f"{'held back by' if started else 'not started: waiting for'} {_format_list(words)}"


def standstill_words(
    held_by: Sequence[SilentPartition], marks: Iterable[Watermark], idle: bool
) -> str | None:
    """Explain why an input's watermarks (``marks``) do not advance; None if no reason is known.

    >>> standstill_words((), [7], idle=True)
    'idle: no partition has rows'
    """
    if held_by:
        return format_holders(held_by, started=all(mark > NEVER for mark in marks))
    return "idle: no partition has rows" if idle else None


@dataclass(frozen=True)
class WaitingInput:
    """An input that waits, when its job starts, for partitions without rows."""

    input: str
    watermark_holders: tuple[SilentPartition, ...]

    def words(self) -> str:
        """Format the note that an input's watermark waits for silent partitions.

        >>> print(WaitingInput("o", (SilentPartition("orders", "2"),)).words())
        note: the watermark of o waits for a row in orders/2 (it has no idle_timeout)
        >>> print(WaitingInput("o", (SilentPartition("orders", "2", None, 30_000_000),)).words())
        note: the watermark of o waits for a row in orders/2, or 30 s of silence (idle_timeout)
        """
        timeouts = [partition.idle_timeout_us for partition in self.watermark_holders]
        finite = [timeout for timeout in timeouts if timeout is not None]
        until = " (it has no idle_timeout)"
        if len(finite) == len(timeouts):
            until = f", or {duration(max(finite))} of silence (idle_timeout)"
        names = _format_list([partition.name for partition in self.watermark_holders])
        return f"note: the watermark of {self.input} waits for a row in {names}{until}"


@dataclass(frozen=True)
class PausedSource:
    """A source that is not read because it is too far ahead of another one (max_drift).

    Attributes:
        ahead_of: name of the other source.
        ahead_by: distance between the two; None if the other source has had no row.
    """

    ahead_of: str
    ahead_by: int | None


def ahead_words(sources: Mapping[str, PausedSource], in_time: bool) -> str:
    """Format which sources are paused, and why; return an empty string if all are read.

    >>> ahead_words({"a": PausedSource("b", 82_800_000_000), "c": PausedSource("b", None)}, in_time=True)
    'paused a (23 h ahead of b), c (no row yet of b)'
    """
    words = []
    for name, ahead in sources.items():
        how_far = f"no row yet of {ahead.ahead_of}"
        if ahead.ahead_by is not None:
            far = rounded_up(ahead.ahead_by) if in_time else distance(ahead.ahead_by, in_time)
            how_far = f"{far} ahead of {ahead.ahead_of}"
        words.append(f"{name} ({how_far})")
    return f"paused {_format_list(words)}" if words else ""


def _format_list(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _clock(us: int) -> str:
    return shown_time(us // 1_000_000 * 1_000_000, False) + " UTC"


@dataclass(frozen=True)
class StepUse:
    """Store use of a step of a tick, per task.

    Steps are ``ingest``, ``insert/number`` of a node and ``driver``.
    """

    step: str
    fetched_bytes: tuple[int, ...]
    cached_bytes: tuple[int, ...]
    written_bytes: tuple[int, ...]
    requests: tuple[int, ...]


@dataclass(frozen=True)
class StoreUse:
    """Bytes and requests of a tick's use of the store.

    Attributes:
        fetched_bytes: bytes read from the store.
        cached_bytes: bytes read from a cache instead.
        written_bytes: bytes written to the store.
        requests: number of requests; one that is retried counts once.
        steps: use by each step of the tick.
    """

    fetched_bytes: int
    cached_bytes: int
    written_bytes: int
    requests: int
    steps: tuple[StepUse, ...] = ()

    def words(self) -> str:
        """Format the store use for people.

        >>> StoreUse(3_000_000, 0, 700, 12).words()
        'store: 3.0 MB read, 0 bytes cached, 700 bytes written'
        """
        return (
            f"store: {size_of(self.fetched_bytes)} read, {size_of(self.cached_bytes)} cached, "
            f"{size_of(self.written_bytes)} written"
        )
