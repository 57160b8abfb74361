"""Files of a history in the store, and the runs in them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pydantic import Field, ValidationError

from watersmeet.errors import StateError
from watersmeet.history.plan_document import Drawing, PlannedLimit, SideFiles
from watersmeet.history.points import NAMES, SCHEMA, migrate_points
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import HISTORY
from watersmeet.state.store import Store
from watersmeet.state.stored_record import FrozenRecord, damage_error

# The files of a history in the store: their names, what is in them, and which of them count.
#
# A segment holds points, an Arrow file. Segments are numbered as they begin; one of a higher level holds
# what several of the level beneath held, rolled up. Nothing in a store is overwritten: a segment that
# grows gets a new version, and the one before is removed behind it, as those that were rolled up are.
# Where a run was killed between the two, both are there; the name says which of them is contained in the
# other.
#
# Behind the Arrow file stands a checksum of it and of its name: Arrow looks at no more than the outlines
# of what it opens, and of a file with a changed bit may end the process, that of the job too.

FOLDER = HISTORY

_CHECKSUM_BYTES = 16
_HINT = "it is not part of the state, which is as it was; removing the file ends this"
_SEGMENT_NAME = re.compile(rf"{FOLDER}/(\d+)-(\d{{10}})-(\d{{10}})-(\d{{6}})-([0-9a-f]{{8}})\.arrow")


@dataclass(frozen=True)
class HistorySegment:
    """Name of a segment of the history.

    Attributes:
        first, last: First and last number of the segments of level 0 that this segment contains.
        version: Number of times the segment was written.
        run: The run that wrote the segment.
    """

    level: int
    first: int
    last: int
    version: int
    run: str

    @property
    def name(self) -> str:
        return f"{FOLDER}/{self.level}-{self.first:010}-{self.last:010}-{self.version:06}-{self.run}.arrow"

    @property
    def rank(self) -> tuple[int, int]:
        return self.level, self.version

    def holds(self, other: HistorySegment) -> bool:
        """Return True if this segment contains all points of the other one.

        Several runs that did not know of each other can write segments with the same number; none of these
        contains the other.
        """
        if not self.first <= other.first <= other.last <= self.last or self.rank <= other.rank:
            return False
        return self.level > other.level or (self.first, self.run) == (other.first, other.run)


def select_segments(names: Iterable[str]) -> tuple[list[HistorySegment], list[str]]:
    """Select the segments that count among stored names, and the names that others contain.

    Names that are not segment names are ignored.

    Returns:
        The segments in order of their numbers; the sorted names of segments contained in others.
    """
    every = sorted(
        (segment for name in names if (segment := _segment(name)) is not None),
        key=lambda segment: (segment.first, segment.last, -segment.level, segment.version, segment.run),
    )
    held = {one.name for one in every if any(other.holds(one) for other in every)}
    return [one for one in every if one.name not in held], sorted(held)


def _segment(name: str) -> HistorySegment | None:
    if (match := _SEGMENT_NAME.fullmatch(name)) is None:
        return None
    level, first, last, version, run = match.groups()
    return HistorySegment(int(level), int(first), int(last), int(version), run)


def write(store: Store, segment: HistorySegment, table: pa.Table) -> None:
    """Store a segment's points. Not waited for is the disk: a history may lack its end."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, SCHEMA.with_metadata(NAMES), options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table.combine_chunks().unify_dictionaries())
    content = sink.getvalue().to_pybytes()
    store.write(segment.name, content + _checksum(segment.name, content), lasting=False)


def read_segment(store: Store, segment: HistorySegment) -> pa.Table:
    """Read a segment's points.

    Raises:
        StateError: the segment is missing, damaged, or of an unknown version.
    """
    data, what = bytes(store.read(segment.name)), f'history "{segment.name}"'
    content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if checksum != _checksum(segment.name, content):
        raise damage_error(what, "its checksum is that of another content", _HINT)
    try:
        return migrate_points(pa.ipc.open_file(content).read_all()).cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damage_error(what, str(error).splitlines()[0], _HINT) from None


def _checksum(name: str, content: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b"\0" + content, digest_size=_CHECKSUM_BYTES).digest()


# What is written down of each run of a job: when it began, how it was set, its plan, and how it ended.

MAX_RUNS = 50
_RUN_NAME = re.compile(rf"{FOLDER}/run-(\d{{20}}-[0-9a-f]{{8}})-(begun|ended)\.json")


class RunStart(FrozenRecord):
    """Record of the start of a run.

    Attributes:
        started_us: Clock of the run, in µs since 1970.
        settings: Settings of the run and of Spark by name, without secrets.
        plan: EXPLAIN of the plan.
        integer_times: Subjects whose watermarks are plain integers.
        drawing, limits: Those of the plan.
        late_files: Place of the late rows.
        broken_files: Place of the records that do not parse.
    """

    started_us: int
    version: str
    machine: str
    settings: Mapping[str, str] = Field(default_factory=dict)
    plan: str = ""
    integer_times: tuple[str, ...] = ()
    drawing: Drawing = Field(default_factory=Drawing)
    limits: tuple[PlannedLimit, ...] = ()
    late_files: SideFiles | None = None
    broken_files: SideFiles | None = None


class RunEnd(FrozenRecord):
    """Record of the end of a run.

    Attributes:
        ended_us: when it ended.
        how: stopped (by a person), caught up, finished (its input has an end), or failed.
        error: the error of a failed run, as people see it.
    """

    ended_us: int
    how: str
    error: str | None = None
    notices: tuple[str, ...] = ()


Written = TypeVar("Written", RunStart, RunEnd)


class RunRecord(FrozenRecord):
    """A run. ``ended``: None where it goes on, or was killed."""

    id: str
    begun: RunStart
    ended: RunEnd | None = None


def begin(store: Store, run: str, begun: RunStart) -> str:
    """Write that a run begins, and forget of the oldest others what is too much; the run's id."""
    key = f"{begun.started_us:020}-{run}"
    _write(store, f"{FOLDER}/run-{key}-begun.json", begun)
    there = sorted({match[1] for name in store.names(FOLDER) if (match := _RUN_NAME.fullmatch(name))})
    gone = set(there[:-MAX_RUNS]) - {key}  # its clock may be behind that of the others
    store.delete_all([_name(key, what) for key in gone for what in ("begun", "ended")])
    return key


def end(store: Store, run: str, ended: RunEnd) -> None:
    """Write how the run of that id ended."""
    _write(store, _name(run, "ended"), ended)


Records = dict[str, FrozenRecord]
"""What has been read, by name: it is written once."""


def read_runs(store: Store, names: list[str], problems: list[str], records: Records) -> list[RunRecord]:
    """Read the runs among stored names, oldest first.

    Args:
        problems: receives a line for each run that cannot be read.
        records: cache of read records; records in it are not read again, and new ones are added.
    """
    for gone in records.keys() - set(names):
        del records[gone]
    keys = sorted({match[1] for name in names if (match := _RUN_NAME.fullmatch(name))})
    runs = []
    for key in keys:
        begun = _read(store, _name(key, "begun"), RunStart, problems, records)
        name = _name(key, "ended")
        ended = _read(store, name, RunEnd, problems, records) if name in names else None
        if begun is not None:
            runs.append(RunRecord(id=key, begun=begun, ended=ended))
    return runs


def _read(
    store: Store, name: str, kind: type[Written], problems: list[str], records: Records
) -> Written | None:
    """Read the record of that name; return None and add to `problems` if it cannot be read."""
    there = records.get(name)
    if isinstance(there, kind):
        return there
    try:
        record = kind.model_validate_json(verify_checksum(name, bytes(store.read(name))))
        records[name] = record
        return record
    except StateError as error:
        problems.append(error.message)
    except ValidationError:
        problems.append(f'the record "{name}" is not one that this version can read')
    return None


def _name(run: str, what: str) -> str:
    return f"{FOLDER}/run-{run}-{what}.json"


def _write(store: Store, name: str, record: FrozenRecord) -> None:
    store.write(name, add_checksum(name, record.model_dump_json()), lasting=False)


# A history that goes along when the state is copied.


def copy_history(source: Store, target: Store) -> int:
    """Copy all files of a history; how many. One that the job has replaced meanwhile is left out.

    Raises:
        StateError: a store does not answer, or cannot be written.
    """
    copied = 0
    for name in source.names(FOLDER):
        try:
            data = source.read(name)
        except StateError as error:
            if error.code != "state-missing":
                raise
            continue
        target.write(name, data)
        copied += 1
    return copied
