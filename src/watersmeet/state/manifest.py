"""The manifest: all that a job remembers after a tick; reading manifests of earlier formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from watersmeet.errors import StateError
from watersmeet.event_time import DAY_US, ENDED, NEVER, Watermark
from watersmeet.state import file_lists, last_output
from watersmeet.state.checksums import verify_checksum
from watersmeet.state.marks import Marks
from watersmeet.state.runs import layout
from watersmeet.state.runs.heavy_hitters import HeavyKey
from watersmeet.state.runs.layout import MergedFrom, Run
from watersmeet.state.store import Store, object_of
from watersmeet.state.stored_record import StoredRecord, damage_error
from watersmeet.watermark.lateness import LateBy
from watersmeet.watermark.tracker import InputState


class Pace(StoredRecord):
    """The arrival rate of one event time of one side of a node.

    Attributes:
        mark: watermark as of the last counted tick.
        rows, span: number of rows that arrived, and the event time that they cover.
        rows_before, span_before: number of rows and event time of the preceding stretch.
        first: smallest and greatest time of the rows that arrived before the first watermark.
    """

    mark: Watermark = NEVER
    rows: int = 0
    span: int = 0
    rows_before: int = 0
    span_before: int = 0
    first: tuple[int, int] | None = None

    def moved(self, rows: int, spans: Sequence[tuple[int, int]], mark: Watermark, *, timed: bool) -> Pace:
        """Compute the arrival rate after a tick.

        Args:
            rows: the number of rows that arrived and were retained.
            spans: least and greatest time of parts of these rows. Empty: their times are unknown; such
                rows do not count until there is a watermark.
            mark: the watermark as of the tick.
            timed: times are µs, not numbers.
        """
        if mark == ENDED:
            return self
        moved: dict[str, Any] = {"mark": mark}
        counted, span = self.rows, self.span
        if isinstance(self.mark, int) and isinstance(mark, int):
            counted, span = counted + rows, span + mark - self.mark
        elif spans:
            all_spans = [*spans] if self.first is None else [*spans, self.first]
            first, last = min(low for low, _ in all_spans), max(high for _, high in all_spans)
            counted, span = counted + rows, last - first
            moved["first"] = first, last
        if timed and span >= DAY_US and isinstance(mark, int):
            moved |= {"rows_before": counted, "span_before": span}
            counted = span = 0
        return self.model_copy(update={**moved, "rows": counted, "span": span})

    @property
    def measured(self) -> tuple[int, int]:
        """Number of rows, and the event time that they cover; a span of 0 means that the rate is unknown."""
        return self.rows_before + self.rows, self.span_before + self.span


# Manifests of earlier formats, as this version reads them: a chain with a step per format.
#
# A step takes the JSON of a manifest of one format and gives that of the next. It is made together with
# the new format, and a state of the old one is put among the tests (`tests/state/formats`) before that.
# Files that a manifest names stay as they are: whoever reads them has to know all of their forms.

STATE_VERSION = 9
"""The format that is written. Earlier ones than the first of `STEPS`, or than this, were never released."""

Step = Callable[[dict[str, Any]], dict[str, Any]]


def _migrate_from_8(manifest: dict[str, Any]) -> dict[str, Any]:
    """Migrate a manifest from format 8 to 9; its content does not change.

    In format 9, runs may be sections of a file (`state.store`). Code that does not know sections would
    treat such a file as unreferenced. Each run of format 8 is a file of its own, which format 9 allows.
    """
    return manifest


STEPS: Mapping[int, Step] = {8: _migrate_from_8}
"""Format -> what makes the next one of it."""


def migrate_manifest(manifest: dict[str, Any], steps: Mapping[int, Step] = STEPS) -> dict[str, Any]:
    """Migrate a manifest's JSON to the current format.

    Raises:
        StateError: the format is newer, or no longer supported.
    """
    version = manifest.get("state_version")
    if not isinstance(version, int):
        return manifest
    check_version(version, steps)
    while version < STATE_VERSION:
        manifest = {**steps[version](manifest), "state_version": version + 1}
        version += 1
    return manifest


def check_version(version: int | None, steps: Mapping[int, Step] = STEPS) -> None:
    """Raise StateError if a state format cannot be read; accept None, an unknown version."""
    if version is None or version == STATE_VERSION:
        return
    if version > STATE_VERSION:
        raise StateError(
            f"the state has format {version}, but this version of watersmeet reads up to {STATE_VERSION}",
            code="state-version",
            hint="use the newer version of watersmeet that wrote it",
        )
    if version not in steps:
        oldest = min(steps, default=STATE_VERSION)
        reads = f"formats {oldest} to {STATE_VERSION}" if oldest < STATE_VERSION else f"{STATE_VERSION}"
        raise StateError(
            f"the state has format {version}, but this version of watersmeet reads {reads}",
            code="state-version",
            hint="use the version of watersmeet that wrote it, or start with an empty checkpoint directory",
        )


# The manifest: all that a job remembers after a tick, in one file created once and never overwritten.
#
# Version N is the state after tick N. A manifest names every run and every file of marks that the state
# consists of; what no kept manifest names is garbage (`state.garbage_collection`). A manifest is sealed
# (`state.checksums`), and it holds the checksums of all that it names.

_FOLDER = "manifests"
BEGUN = "begun"
"""In a remote store: of what the next tick is made. Garbage when that is committed."""
OWNED = "job/id"
"""Where the state is in a remote store: who owns it."""

_NAME = re.compile(rf"{_FOLDER}/\d{{12}}\.json")
PARTS = "parts"
"""What was decided in a tick that must not be decided otherwise when it is repeated: how it is cut for sinks,
which rows are shed. Its names come again, with other contents, when a job goes back to an earlier tick."""
HISTORY = "history"
"""Of a store, where the figures of past ticks are (`watersmeet.history`); no manifest names them."""
FOLDERS = (
    *("runs", "marks", "aside", "work", PARTS),
    *(layout.FOLDER, file_lists.FOLDER, last_output.FOLDER),
)
"""Of a store, those whose files go when no kept manifest names them."""


class LiveRun(StoredRecord):
    """A run with its release progress and the marks of its rows.

    Attributes:
        released: number of rows that were released.
        released_rows: number of the side's rows that the released ones stood for, if they are partial
            aggregates.
        cursors: per event time, how many rows from its smallest value on are released or gone, if rows of the
            side may leave before they are released.
        merged_from: source runs of a run that was merged in this tick, for other sides that retain the same
            rows.
    """

    run: Run
    released: int = 0
    released_rows: int = 0
    marks: Marks = Field(default_factory=dict)
    cursors: dict[str, int] = Field(default_factory=dict)
    merged_from: MergedFrom | None = None

    @property
    def stored(self) -> int:
        """Rows of the run that are not released."""
        return self.run.rows - self.released

    @property
    def heavy(self) -> Iterator[HeavyKey]:
        """The heaviest keys, each with its approximate number of rows that are not released.

        The estimate assumes that an equal share of each key was released.
        """
        for told in self.run.heavy:
            yield told.model_copy(update={"rows": told.rows * self.stored // self.run.rows})

    @property
    def retained(self) -> int:
        """Number of the side's rows that the run stores or stands for."""
        if self.run.stands_for is None:
            return self.stored
        return self.run.stands_for - self.released_rows


class Arrangement(StoredRecord):
    """The state of one side of a node: rows of an input, or of a node below.

    Args:
        limits: per event-time column, the limit below which rows are released, with allowed_lateness
            already subtracted; it never decreases.
        retained: rows of the side that are neither released nor deleted, stored themselves or within
            partial aggregates.
        index: the name of the index that sorts new runs; None: the first of the plan's indexes.
        candidates: the approximate number of rows that look-ups found by each index in the last ticks.
        most: the largest number of rows that was ever stored after a tick.
        paces: the arrival rates per event-time column. It and ``most`` are for people: no code computes
            with them.
        columns: the origins of the columns that the last tick used to tell rows apart, where rows are
            deleted.
        unknown_below: per event-time column, a limit below which it is unknown whether rows had a
            partner (`plan.identity.completeness`).
        gone_below: per event-time column, a limit below which rows were released when the query
            retained fewer, though ``limits`` may be lower since.
    """

    runs: list[LiveRun] = Field(default_factory=list)
    limits: dict[str, Watermark] = Field(default_factory=dict)
    retained: int = 0
    index: str | None = None
    candidates: dict[str, float] = Field(default_factory=dict)
    most: int = 0
    paces: dict[str, Pace] = Field(default_factory=dict)
    columns: list[str] = Field(default_factory=list)
    unknown_below: dict[str, Watermark] = Field(default_factory=dict)
    gone_below: dict[str, Watermark] = Field(default_factory=dict)

    @property
    def stored(self) -> int:
        """Number of stored entries: rows, or partial aggregates."""
        return sum(live.stored for live in self.runs)


class AsofState(StoredRecord):
    """The state of an ASOF join between ticks.

    Attributes:
        settled: watermark of the right time, up to which rows are known.
        asked: as of the tick, the smallest left time that may still need a match.
        waiting: the smallest retained left time.
        shed: right time up to which right rows were shed, so that the nearest row is unknown.
    """

    settled: Watermark = NEVER
    asked: Watermark = NEVER
    waiting: int | None = None
    shed: Watermark = NEVER


class TableCopy(StoredRecord):
    """A copy of a table as read, in runs.

    Attributes:
        version: detects whether the table has changed since.
        looked_us: clock of the tick that last read it.
    """

    version: str
    looked_us: int
    runs: list[Run] = Field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)


class ReusedNodeState(StoredRecord):
    """Reference to the state of a reused node: ``node`` of ``query``.

    Attributes:
        sides: the node's side names, mapped to those of the producer.
        aliases: the inputs below the node, mapped to those of the producer.
    """

    query: str
    node: int
    sides: dict[str, str] = Field(default_factory=dict)
    aliases: dict[str, str] = Field(default_factory=dict)


class SharedSideState(StoredRecord):
    """Reference to the arrangement that a side shares: ``side`` of ``node`` of ``query``.

    Attributes:
        held: digest of the key by which the producer stores rows.
    """

    query: str
    node: int
    side: str
    held: str


class NodeState(StoredRecord):
    """The state of one node: the arrangements of its sides, by name, and its output watermarks.

    Attributes:
        emitted: output watermarks as last emitted.
        table: copy of the table that its rows last matched against.
        elsewhere: reference to another query's node that stores all of this state.
        kept_by: references to other queries' sides, by side.
        missing: rows that may be missing from its output, because the query was different when they would
            have been emitted (`plan.identity.completeness.Missing`).
    """

    arrangements: dict[str, Arrangement] = Field(default_factory=dict)
    emitted: dict[str, Watermark] = Field(default_factory=dict)
    asof: AsofState | None = None
    table: TableCopy | None = None
    elsewhere: ReusedNodeState | None = None
    kept_by: dict[str, SharedSideState] = Field(default_factory=dict)
    missing: list[dict[str, Watermark]] = Field(default_factory=list)

    @property
    def producers(self) -> list[str]:
        """Queries that store the node, or sides of it."""
        of_node = [] if self.elsewhere is None else [self.elsewhere.query]
        return [*of_node, *(kept.query for kept in self.kept_by.values())]


class QueryState(StoredRecord):
    """State of one query.

    Attributes:
        nodes: states of the nodes, by node number.
        late_below: late threshold by watermark key: lesser times are late. It never decreases, not even if a
            later run allows more lateness, because partners may have been released.
        account: row counters since the start, by alias.
        late: lateness of the rows counted as late, by alias and column.
        complete_from: by watermark key, results with lesser times may be missing, because the query was a
            different one when their rows arrived.
        unknown: number of rows of padded sides that left without a pad for that reason, joined rows included.
        shed_joined: number of rows that joins produced for other nodes and that were shed, by the inputs that
            they join.
    """

    inputs: dict[str, InputState] = Field(default_factory=dict)
    nodes: list[NodeState] = Field(default_factory=list)
    late_below: dict[str, Watermark] = Field(default_factory=dict)
    account: dict[str, dict[str, int]] = Field(default_factory=dict)
    late: dict[str, dict[str, LateBy]] = Field(default_factory=dict)
    rows_out: int = 0
    complete_from: dict[str, Watermark] = Field(default_factory=dict)
    unknown: int = 0
    shed_joined: dict[str, int] = Field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Total bytes of all runs."""
        arrangements = (kept for node in self.nodes for kept in node.arrangements.values())
        return sum(live.run.nbytes for kept in arrangements for live in kept.runs)


class KnownPart(StoredRecord):
    """The last part with rows published for an insert: its tick, and the identity of its inputs."""

    tick: int
    identity: dict[str, str]


class Manifest(StoredRecord):
    """The state of a job at the end of a tick; see the module.

    Args:
        described: the joins that the queries request, see `plan.query_evolution`; empty if it was not
            recorded.
        host: what the surrounding engine must remember with the tick: Spark's query id, batch id,
            offsets, topics, and the lists of files read (see `file_lists`); for a job in its own
            process, its emitted output (see `last_output`).
        places: per source, a digest of the location that it reads.
        finished: the input ended; the job accepts no more rows.
        owner: the id of the state, by which sinks recognize their parts.
        identity: the inputs of the tick's rows (see `runtime.coordinator.ledger`).
        parts: per insert, for sinks that keep parts.
        writer: a random value unique to this manifest; no two stored manifests have the same one.
        follows: the writer of the preceding manifest. It distinguishes histories that count the same
            ticks (after a restore or a reset); empty: unknown.
    """

    state_version: int = STATE_VERSION
    tick: int
    clock_us: int
    fingerprints: dict[str, str]
    described: dict[str, dict[str, Any]] = Field(default_factory=dict)
    sources: list[str]
    places: dict[str, str] = Field(default_factory=dict)
    queries: dict[str, QueryState]
    host: dict[str, Any] = Field(default_factory=dict)
    finished: bool = False
    owner: str = ""
    writer: str = ""
    follows: str = ""
    identity: dict[str, str] = Field(default_factory=dict)
    parts: dict[str, KnownPart] = Field(default_factory=dict)

    def files(self) -> set[str]:
        """Return the names of all objects that this manifest needs in the store."""
        return {object_of(name) for name in self.names()}

    def names(self) -> set[str]:
        """Return every name that this manifest reads.

        Several names may be sections of one file (`state.store`).
        """
        names = {*file_lists.names_in(self.host), *last_output.names_in(self.host)}
        for live in self.runs():
            names.add(live.run.name)
            names.update(segment.file for marks in live.marks.values() for segment in marks)
            if live.merged_from is not None:
                names.add(live.merged_from.file)
        return names

    def runs(self) -> Iterator[LiveRun]:
        """Yield all runs of all queries, including those of copies of tables."""
        for query in self.queries.values():
            for node in query.nodes:
                for arrangement in node.arrangements.values():
                    yield from arrangement.runs
                if node.table is not None:
                    yield from (LiveRun(run=run) for run in node.table.runs)


def manifest_name(tick: int) -> str:
    return f"{_FOLDER}/{tick:012d}.json"


def manifest_names(store: Store) -> list[str]:
    """Return the names of the stored manifests, oldest first.

    Files with other names in their folder are ignored.
    """
    return [name for name in store.names(_FOLDER) if is_manifest(name)]


def has_reached_tick(store: Store, tick: int) -> bool:
    """Return True if a manifest of this tick or a later one exists."""
    names = manifest_names(store)
    return bool(names) and names[-1] >= manifest_name(tick)


def is_manifest(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def load_newest(store: Store) -> Manifest | None:
    """Load the newest manifest; return None if there is no state yet.

    A damaged manifest is never replaced by an older one, because Spark and the sinks have advanced.

    Raises:
        StateError: the manifest is damaged, has another format, or does not follow the manifest before
            it.
    """
    names = manifest_names(store)
    if not names:
        return None
    try:
        newest = load(store, names[-1])
        _check_history(store, newest)
        return newest
    except StateError as error:
        if error.code == "state-missing" and manifest_names(store)[-1:] != names[-1:]:
            return load_newest(store)  # another run went on, and has removed it
        if error.code != "state-damaged" or len(names) == 1:
            raise
        raise StateError(error.message, code=error.code, hint=_restore_hint(store, names)) from None


def load(store: Store, name: str) -> Manifest:
    """Load the manifest with that name.

    Raises:
        StateError: as `load_newest`.
    """
    what, data = f'manifest "{name}"', bytes(store.read(name))
    try:
        text = verify_checksum(name, data, what=what)
    except StateError:
        check_version(_old_version(data))
        raise
    try:
        stored = json.loads(text)
        content = migrate_manifest(stored)
        manifest = Manifest.model_validate_json(text if content is stored else json.dumps(content))
    except (ValidationError, ValueError, AttributeError) as error:
        raise damage_error(what, f"it is not what a manifest holds ({str(error).splitlines()[0]})") from None
    if manifest_name(manifest.tick) != name:
        raise damage_error(what, f"it is that of tick {manifest.tick}")
    return manifest


def _old_version(data: bytes) -> int | None:
    """Return the version of a manifest without a checksum, as up to version 4, else None."""
    try:
        version = json.loads(data).get("state_version")
    except (ValueError, AttributeError):
        return None
    return version if isinstance(version, int) and version < STATE_VERSION else None


def _restore_hint(store: Store, names: list[str]) -> str:
    """Return the hint for a damaged newest manifest."""
    hint = "restore the whole checkpoint directory from a copy, or start over with empty ones (sinks, too)."
    try:
        before = load(store, names[-2])
    except StateError:
        return hint
    return (
        f"{hint} The manifest of tick {before.tick} is whole, but it is not gone back to by itself: Spark's "
        f"checkpoint and the sinks are at a later tick"
    )


def writer_of(store: Store, tick: int) -> str | None:
    """Return the writer of the manifest of ``tick``, or None if no such manifest exists.

    An empty string means that the manifest names no writer.

    Raises:
        StateError: the manifest is damaged, or the store does not respond.
    """
    return _read_field(store, tick, "writer")


def previous_writer(store: Store, tick: int) -> str | None:
    """Return the writer of the manifest that the manifest of ``tick`` follows.

    An empty string means that it is unknown; None means that no manifest of ``tick`` exists.

    Raises:
        StateError: the manifest is damaged, or the store does not respond.
    """
    return _read_field(store, tick, "follows")


def owner_in(store: Store) -> str | None:
    """Return the id of the state in a remote store.

    None: there is no state, or it is being removed.

    Raises:
        StateError: it is damaged, or the store does not respond.
    """
    if not store.has(OWNED):
        return None
    return str(json.loads(verify_checksum(OWNED, bytes(store.read(OWNED))))["id"])


def _read_field(store: Store, tick: int, field: str) -> str | None:
    name = manifest_name(tick)
    try:
        data = bytes(store.read(name))
    except StateError as error:
        if error.code == "state-missing":
            return None
        raise
    text, what = verify_checksum(name, data), f'manifest "{name}"'
    try:
        return str(json.loads(text).get(field, ""))
    except (ValueError, AttributeError) as error:
        raise damage_error(what, f"it is not what a manifest holds ({error})") from None


def _check_history(store: Store, newest: Manifest) -> None:
    """Check that a manifest follows the manifest before it.

    This is not so if a driver was suspended while others restored an earlier tick and continued, and it died
    after it had created its manifest, or its put arrived late.

    Raises:
        StateError: the previous manifest exists, and belongs to another history.
    """
    if not newest.follows:
        return
    try:
        before = writer_of(store, newest.tick - 1)
    except StateError as error:
        if error.code != "state-damaged":
            raise
        return
    if before and before != newest.follows:
        raise StateError(
            f'manifest "{manifest_name(newest.tick)}" does not follow the manifest before it: a run'
            " from before a restore committed it",
            code="state-forked",
            hint="stop all runs of the job, then run `watersmeet state restore JOB --tick"
            f" {newest.tick - 1}`",
        )
