"""The manifest: all that a job remembers after a tick, in one file created once and never overwritten.

Version N is the state after tick N. A manifest names every run and every file of marks that the state
consists of; what no kept manifest names is garbage. The two newest are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import Field, ValidationError

from watersmeet.errors import StateError
from watersmeet.event_time import NEVER, Watermark
from watersmeet.state.damage import damaged
from watersmeet.state.marks import Marks
from watersmeet.state.pace import Pace
from watersmeet.state.record import Record
from watersmeet.state.run import Run
from watersmeet.state.store import Store
from watersmeet.watermark.lateness import LateBy
from watersmeet.watermark.tracker import InputState

STATE_VERSION = 4


class LiveRun(Record):
    """A run, how many of its rows were released, and the marks of its rows. ``released_rows``: how many rows
    of the side the released ones stood for, where they are partial aggregates."""

    run: Run
    released: int = 0
    released_rows: int = 0
    marks: Marks = Field(default_factory=dict)

    @property
    def stored(self) -> int:
        """Rows of the run that are not released."""
        return self.run.rows - self.released

    @property
    def retained(self) -> int:
        """Rows of the side that it holds, or stands for."""
        if self.run.stands_for is None:
            return self.stored
        return self.run.stands_for - self.released_rows


class Arrangement(Record):
    """The state of one side of a node: rows of an input, or of a node beneath.

    ``limits``: per event-time column, rows below are released (allowed_lateness taken off, never going back).
    ``retained``: rows of the side that are neither released nor deleted, kept themselves or within partial
    aggregates. ``index``: by what new runs are sorted (None:
    the first of the plan's indexes); ``candidates``: what look-ups found by each, about, in the last ticks.
    ``most``: the most that were ever stored after a tick; ``paces``: how fast rows come, per event-time
    column. Both are for people: nothing is computed from them.
    """

    runs: list[LiveRun] = Field(default_factory=list)
    limits: dict[str, Watermark] = Field(default_factory=dict)
    retained: int = 0
    index: str | None = None
    candidates: dict[str, float] = Field(default_factory=dict)
    most: int = 0
    paces: dict[str, Pace] = Field(default_factory=dict)

    @property
    def stored(self) -> int:
        """Rows kept: themselves, or partial aggregates."""
        return sum(live.stored for live in self.runs)


class AsofState(Record):
    """What an ASOF join knows between ticks. ``settled``: W of the right time, up to which rows are known;
    ``asked``: the least left time that may still ask, as of the tick; ``waiting``: the least left time that
    is retained."""

    settled: Watermark = NEVER
    asked: Watermark = NEVER
    waiting: int | None = None


class TableCopy(Record):
    """A table as it was read, in runs. ``version``: by what it is told whether it has changed since;
    ``looked_us``: the clock of the tick that looked last."""

    version: str
    looked_us: int
    runs: list[Run] = Field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)


class NodeState(Record):
    """One node: the arrangements of its sides, by name, and its output watermarks as last put out; ``table``:
    the copy of the table that its rows met last."""

    arrangements: dict[str, Arrangement] = Field(default_factory=dict)
    emitted: dict[str, Watermark] = Field(default_factory=dict)
    asof: AsofState | None = None
    table: TableCopy | None = None


class QueryState(Record):
    """``nodes``: in order of their numbers. ``late_below``: per key, lesser times are late; never going back,
    not even when a later run allows more lateness, as partners may be gone. ``account``: rows since the
    start, per alias; ``late``: how late those counted there as late were, per alias and column."""

    inputs: dict[str, InputState] = Field(default_factory=dict)
    nodes: list[NodeState] = Field(default_factory=list)
    late_below: dict[str, Watermark] = Field(default_factory=dict)
    account: dict[str, dict[str, int]] = Field(default_factory=dict)
    late: dict[str, dict[str, LateBy]] = Field(default_factory=dict)
    rows_out: int = 0


class Manifest(Record):
    """See the module. ``host``: what the surrounding engine must remember with the tick (Spark's query id,
    batch id, offsets, clock). ``finished``: the input was ended; the job takes no more rows."""

    state_version: int = STATE_VERSION
    tick: int
    clock_us: int
    fingerprints: dict[str, str]
    sources: list[str]
    queries: dict[str, QueryState]
    host: dict[str, Any] = Field(default_factory=dict)
    finished: bool = False

    def files(self) -> set[str]:
        """Every stored name that this manifest needs."""
        names: set[str] = set()
        for live in self.runs():
            names.add(live.run.name)
            names.update(segment.file for marks in live.marks.values() for segment in marks)
        return names

    def runs(self) -> Iterator[LiveRun]:
        """All runs of all queries, those of copies of tables too."""
        for query in self.queries.values():
            for node in query.nodes:
                for arrangement in node.arrangements.values():
                    yield from arrangement.runs
                if node.table is not None:
                    yield from (LiveRun(run=run) for run in node.table.runs)


def manifest_name(tick: int) -> str:
    return f"manifests/{tick:012d}.json"


def load_newest(store: Store) -> Manifest | None:
    """The newest manifest, or None when there is no state yet."""
    names = store.names("manifests")
    if not names:
        return None
    try:
        manifest = Manifest.model_validate_json(bytes(store.read(names[-1])))
    except ValidationError as error:
        raise damaged(f'manifest "{names[-1]}"', f"{error.error_count()} problems") from None
    if manifest.state_version != STATE_VERSION:
        raise StateError(
            f"the state has format {manifest.state_version}, and this version reads {STATE_VERSION}",
            code="state-version",
            hint="run the version of watersmeet that wrote it, or start with an empty checkpoint directory",
        )
    return manifest


def commit(store: Store, manifest: Manifest) -> None:
    """Create the manifest; everything that it names must be durable.

    Raises:
        StateError: another process has committed this tick: this one must stop.
    """
    name = manifest_name(manifest.tick)
    created = store.create(name, manifest.model_dump_json().encode())
    if created and store.names("manifests")[-1] != name:  # the other is far ahead: this tick's is deleted
        store.delete(name)
        created = False
    if not created:
        raise StateError(
            f"tick {manifest.tick} has been committed by another process",
            code="state-fenced",
            hint="only one run of a job may use a checkpoint directory at a time; stop the other one",
        )


def collect_garbage(store: Store, kept: Iterable[Manifest]) -> None:
    """Delete manifests older than the kept ones, and all runs and marks that no kept one names.

    Files of attempts that never committed go too; call it only between ticks.
    """
    manifests = list(kept)
    newest = {manifest_name(manifest.tick) for manifest in manifests}
    needed = set().union(*(manifest.files() for manifest in manifests)) if manifests else set()
    for name in store.names("manifests"):
        if name not in newest:
            store.delete(name)
    for folder in ("runs", "marks", "aside", "work"):
        for name in store.names(folder):
            if name not in needed:
                store.delete(name)
