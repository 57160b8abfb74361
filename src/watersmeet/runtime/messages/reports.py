"""What tasks report to the driver; those of other processes as JSON text."""

from __future__ import annotations

from collections.abc import MutableMapping

from pydantic import Field

from watersmeet.event_time import Side
from watersmeet.runtime.messages.shapes import side_number
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import Marks
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Traffic
from watersmeet.state.stored_record import StoredRecord
from watersmeet.watermark.lateness import LateBy


class PadFile(StoredRecord):
    """Rows that are not retained and go out in this tick, as stored columns, in no order: pads of rows that
    can match nothing, and all rows that pass. Or rows that were set aside, with the ``reason``."""

    name: str
    rows: int
    reason: str = ""


class BrokenFile(StoredRecord):
    """A file with broken records: how many, and one of them."""

    name: str
    rows: int
    text: str = ""


class FileReport(StoredRecord):
    """The files of one source in one ingest task, by numbers that are made of their names. ``broken``: those
    of which the task has read broken records alone, ``parsed``: those with others; None: they are too many.
    ``is_cut``: there are more broken ones."""

    broken: dict[int, BrokenFile] = Field(default_factory=dict)
    parsed: list[int] | None = Field(default_factory=list)
    is_cut: bool = False


class IngestReport(StoredRecord):
    """Of one ingest task, for one branch of one input. ``copies``: runs of the same rows, held in other ways,
    by the names of those sides. ``traffic``: with the store, since another report of the task told it.
    ``broken_text``: of a record that does not parse, its first characters; empty: there is none.
    ``rounded``: rows with decimals that were rounded, ``rounded_text``: a column and its value before.
    ``furthest``: per event time the last one in µs since 1970, of rows too far ahead of the clock.
    ``files``: of the source; only one of its branches tells of them."""

    arrangement: str
    branch: int
    runs: list[Run] = Field(default_factory=list)
    copies: dict[str, list[Run]] = Field(default_factory=dict)
    pads: list[PadFile] = Field(default_factory=list)
    greatest: dict[str, dict[str, int]] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    late: dict[str, LateBy] = Field(default_factory=dict)
    traffic: Traffic | None = None
    broken_text: str = ""
    rounded: int = 0
    rounded_text: str = ""
    furthest: dict[str, int] = Field(default_factory=dict)
    files: FileReport | None = None


class SideReport(StoredRecord):
    """``released``: rows per run, ``released_rows``: how many rows of the side these stood for, where they
    are partial aggregates; ``marks``: new segments per run and kind; ``merged``: new runs with their marks;
    ``inserted``: new runs that are kept instead of the side's own; ``missing``: some rows that were deleted
    but are not there; ``least``: per event time over the retained rows of the runs that this task answers
    for; ``broken``: files with the texts of records that are no rows; ``candidates``: how many look-ups into
    this side would find by each index, about; ``cursors``: per run, see `LiveRun`. ``together``: other tasks
    may tell marks of the same rows, too. ``crowded``: upper halves of hashes under which the side may keep
    more rows of a key than it is to, which are shed."""

    released: dict[str, int] = Field(default_factory=dict)
    released_rows: dict[str, int] = Field(default_factory=dict)
    marks: dict[str, Marks] = Field(default_factory=dict)
    merged: list[LiveRun] = Field(default_factory=list)
    inserted: list[LiveRun] = Field(default_factory=list)
    least: dict[str, int] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    candidates: dict[str, float] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
    broken: list[PadFile] = Field(default_factory=list)
    cursors: dict[str, dict[str, int]] = Field(default_factory=dict)
    together: bool = False
    crowded: list[int] = Field(default_factory=list)


class FeedReport(StoredRecord):
    """What a task of a node wrote for the next one. Of a stage's rows also what became of them, as of an
    input's (see `runtime.tasks.ingest`): ``counts``, ``late``; ``aside``: files of the late ones."""

    runs: list[Run] = Field(default_factory=list)
    copies: dict[str, list[Run]] = Field(default_factory=dict)
    pads: list[PadFile] = Field(default_factory=list)
    counts: dict[str, int] = Field(default_factory=dict)
    late: dict[str, LateBy] = Field(default_factory=dict)
    aside: list[PadFile] = Field(default_factory=list)


class SplitKey(StoredRecord):
    """A key whose rows all tasks shared in the tick: as its users write it, of which side, and about which
    share of the node's work it was."""

    side: str
    key: str
    share: float

    def __str__(self) -> str:
        return f"{self.key} ({self.share:.0%} of the work)"


class NodeReport(StoredRecord):
    """Of one task of a node. ``fed``: for a node whose rows go to another one; ``fed_by_path``: per path;
    ``fed_abroad``: per place in other queries to which all rows go.
    ``rows_out``: rows that left the task, before the query's last filter. ``compute_min_times_out``: per
    watermark key
    the least time among them. ``split``: keys whose rows all tasks shared (the first task tells).
    ``traffic``: with the store."""

    partition: int
    sides: list[SideReport]
    fed: FeedReport | None = None
    fed_by_path: list[FeedReport] = Field(default_factory=list)
    fed_abroad: list[FeedReport] = Field(default_factory=list)
    rows_out: int = 0
    matches: int = 0
    least_out: dict[str, int] = Field(default_factory=dict)
    split: list[SplitKey] = Field(default_factory=list)
    traffic: Traffic | None = None

    def side(self, side: Side) -> SideReport:
        return self.sides[side_number(side)]


def lower_min(least: MutableMapping[str, int], name: str, time: int) -> None:
    """Bring the least time of ``name`` down to ``time``."""
    least[name] = min(least.get(name, time), time)
