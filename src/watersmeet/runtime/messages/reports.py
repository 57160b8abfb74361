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
    """A file of rows that are not retained.

    Either rows that are emitted in this tick, as stored columns, in no order: pads of rows that can match
    nothing, and all rows that pass through. Or rows of a side output.

    Attributes:
        reason: Reason of the side output; empty for emitted rows.
    """

    name: str
    rows: int
    reason: str = ""


class BrokenFile(StoredRecord):
    """A file with broken records: how many, and one of them."""

    name: str
    rows: int
    text: str = ""


class FileReport(StoredRecord):
    """Report of one ingest task on the files of one source, by numbers derived from the file names.

    Attributes:
        broken: Files of which the task has read only broken records.
        parsed: Files of which the task has read other records; None: they are too many.
        is_cut: There are more broken files than ``broken`` has.
    """

    broken: dict[int, BrokenFile] = Field(default_factory=dict)
    parsed: list[int] | None = Field(default_factory=list)
    is_cut: bool = False


class IngestReport(StoredRecord):
    """Report of one ingest task for one branch of one input.

    ``copies``: runs of the same rows in other layouts, by the names of those sides. ``traffic``: store
    traffic since the task's previous report. ``broken_text``: first characters of a record that does
    not parse; empty if there is none. ``rounded``: number of rows with rounded decimals;
    ``rounded_text``: a column and its value before rounding. ``furthest``: per event time, the maximum
    in µs since 1970 of rows too far ahead of the clock. ``files``: files of the source; only one branch
    reports them.
    """

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
    """Report of one task on one side of its node.

    ``released``: rows per run; ``released_rows``: number of input rows that these represent, for
    partial aggregates. ``marks``: new segments per run and kind. ``merged``: new runs with their marks.
    ``inserted``: new runs that are retained instead of the side's own runs. ``missing``: some deleted
    rows that do not exist. ``least``: minimum per event time over the retained rows of the runs
    assigned to this task. ``broken``: files with the texts of records that are not rows.
    ``candidates``: approximate number of candidates per index of look-ups into this side. ``cursors``:
    per run, see `LiveRun`. ``together``: other tasks may report marks of the same rows, too.
    ``crowded``: upper halves of hashes for which the side may retain more rows of a key than allowed;
    load shedding drops them.
    """

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
    """Report of a node's task on the rows that it wrote for the next node.

    Rows of a stage also have the row accounting of an input (see `runtime.tasks.ingest`): ``counts``
    and ``late``. ``aside``: side output files with the late rows.
    """

    runs: list[Run] = Field(default_factory=list)
    copies: dict[str, list[Run]] = Field(default_factory=dict)
    pads: list[PadFile] = Field(default_factory=list)
    counts: dict[str, int] = Field(default_factory=dict)
    late: dict[str, LateBy] = Field(default_factory=dict)
    aside: list[PadFile] = Field(default_factory=list)


class SplitKey(StoredRecord):
    """A key whose rows all tasks shared in the tick.

    Attributes:
        side: The side that has the key.
        key: The key as users write it.
        share: Approximate share of the node's work, of 1.
    """

    side: str
    key: str
    share: float

    def __str__(self) -> str:
        return f"{self.key} ({self.share:.0%} of the work)"


class NodeReport(StoredRecord):
    """Report of one task of a node.

    ``fed``: report on the rows that go to another node; ``fed_by_path``: likewise per path;
    ``fed_abroad``: likewise per input of other queries that all rows go to. ``rows_out``: number of
    rows that the task emitted, before the query's last filter. ``least_out``: their minimum time per
    watermark key. ``split``: hot keys whose rows all tasks shared; only the first task reports them.
    ``traffic``: store traffic of the task.
    """

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
    """Lower the minimum time of ``name`` to ``time`` if ``time`` is smaller."""
    least[name] = min(least.get(name, time), time)
