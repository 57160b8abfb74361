"""What a commit of a table says of the tick that it is of, and how it is tried until it is there or cannot.

A commit is made of a table as it was seen (`LakeTable.look`), and refused if anybody has committed in
between. So of two runs that have the same tick one commits it, and the other one sees that it is there. An
answer may be lost, too: then the table is looked at again, and says whether the commit is in it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.objects.object_store import MAKE_ROOM, is_full
from watersmeet.sinks.base import StagedPart
from watersmeet.sinks.lake.data_files import FieldIds
from watersmeet.sinks.lake.storage import Storage
from watersmeet.sinks.part_mark import Identity
from watersmeet.spec.model import Column

if TYPE_CHECKING:
    import pyarrow as pa

_OVERTAKEN, _FAILED = 40, 5
"""So often a commit is tried that others overtake, or that fails."""

RESTORE = (
    "restore the checkpoint and the table's directory or catalog from copies of one moment, or start over "
    "with an empty checkpoint and another table. (RESTORE of an older version brings the rows back, but not "
    "what the table knows of ticks.)"
)

_Done = TypeVar("_Done")


def number_of(value: Any) -> int:
    """Compute a 63-bit digest of a JSON value."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Writer:
    """INSERT of a job, by which a table identifies commits."""

    owner: str
    insert: str

    @property
    def folder(self) -> str:
        """Folder of the writer's data files, relative to the table's folder."""
        return f"ws-{number_of(self.owner):016x}/{number_of(self.insert):016x}"


@dataclass(frozen=True)
class CommittedTick:
    """The last tick of a writer that a table has. ``identity`` and ``attempt`` as `number_of`."""

    tick: int
    identity: int
    attempt: int


@dataclass(frozen=True)
class TableWriter:
    """Records of a table about one writer.

    Args:
        last: The last committed tick.
        fence: Number of the run that last removed files that others had staged; None if no run did.
    """

    last: CommittedTick | None
    fence: int | None


@dataclass(frozen=True)
class Commit:
    """Metadata to commit with the rows.

    Args:
        fence: Fence that the table has, as the run knows it.
        before: Last tick that the table had, as the run knows it.
    """

    writer: Writer
    tick: int
    attempt: str
    tick_identity: Identity
    fence: int | None = None
    before: CommittedTick | None = None

    @property
    def as_committed(self) -> CommittedTick:
        return CommittedTick(self.tick, number_of(dict(self.tick_identity)), number_of(self.attempt))


class OvertakenError(Exception):
    """Error when another commit succeeded after this run read the table."""


class UnansweredError(Exception):
    """The commit failed, or its answer did not come."""


class LakeTable(Protocol):
    """A table of one format."""

    place: str
    """For messages, without secrets."""
    widened: bool
    """It has no integers of less than 32 bits."""
    ids: FieldIds
    """Of its columns, as it was looked at last; empty: it has none."""

    def peek(self, writer: Writer) -> CommittedTick | None:
        """Return the last tick of ``writer`` that the table has; also called before `open`.

        Returns None if there may be no table.
        """

    def open(self, columns: Sequence[Column]) -> None:
        """Make the table of these columns, or check one that is there. Raises: SpecError, EngineError."""

    def shown(self, error: object) -> str:
        """Format an error without secrets."""

    @property
    def storage(self) -> Storage:
        """Storage of the table's files."""

    @property
    def data(self) -> str:
        """The folder of data files."""

    def named(self) -> set[str]:
        """Return the names, without folders, of all data files that the table has now."""

    def look(self, writer: Writer) -> TableWriter:
        """Read the table's current records about ``writer``; a commit follows the version read here."""

    def removals(self, owner: str) -> list[str]:
        """Return descriptions of commits by others that removed all rows or the job's latest rows.

        Checks the history since the last commit of ``owner``, or since the previous call, as far as the
        table retains it.
        """

    def merge(self, rows: pa.Table, key: Sequence[str], commit: Commit) -> None:
        """Commit rows that replace the rows with their keys; rows marked `DELETED` delete these.

        Raises:
            OvertakenError: another commit came first.
        """

    def fence(self, writer: Writer, number: int) -> None:
        """Commit a new fence without rows.

        Raises:
            OvertakenError: another commit came first.
        """

    def tick_identity(self, writer: Writer, tick: int) -> Identity | None:
        """Return the full identity of a committed tick; None if the table no longer has it."""

    def append(self, files: Sequence[StagedPart], commit: Commit) -> None:
        """Commit files. Raises: OvertakenError."""


def commit_once(
    table: LakeTable,
    commit: Commit,
    put: Callable[[], None],
    sink: str,
    sleep: Callable[[float], None] | None = None,
) -> CommittedTick | None:
    """Commit with ``put`` unless the writer has already committed this tick or a later one.

    Returns:
        None if the tick is committed, now or earlier; otherwise the writer's last commit, which is another
        one of this tick or of a later one.

    Raises:
        EngineError: all attempts failed, and the table does not have the commit as far as is known; or
            another run has set a fence.
    """
    own = commit.as_committed

    def once() -> CommittedTick | None:
        seen = table.look(commit.writer)
        there = seen.last
        if there is not None and there.tick >= commit.tick:
            return None if there == own else there
        if seen.fence is None and commit.fence is not None:
            check_before(there, commit, sink, table.place)
            raise EngineError(
                f'{table.place} no longer records this run of "{commit.writer.insert}" (sink "{sink}"): it'
                f" was recreated, or an older version was restored. Tick {commit.tick} was not published",
                code="sink-behind",
                hint=RESTORE,
            )
        if seen.fence != commit.fence:
            raise newer_run_error(commit.tick, sink, table.place)
        check_before(there, commit, sink, table.place)
        put()
        return None

    return retry_commit(
        once, f'sink "{sink}" could not commit tick {commit.tick} to {table.place}', table.shown, sleep
    )


def newer_run_error(tick: int, sink: str, place: str) -> EngineError:
    """Return the error for a table whose fence another run of the job has set."""
    return EngineError(
        f'another run of this job has started (sink "{sink}", {place}), so this run did not publish'
        f" tick {tick}",
        code="sink-taken",
        hint="stop this run; the other one continues from the last tick",
    )


def check_before(there: CommittedTick | None, commit: Commit, sink: str, place: str) -> None:
    """Check that the table's last tick is the one that the run expects.

    Raises:
        EngineError: it is another tick.
    """
    before = commit.before
    if there == before or (
        there is not None
        and before is not None
        and (there.tick, there.identity) == (before.tick, before.identity)
    ):
        return
    has = (
        "no ticks"
        if there is None
        else f"tick {there.tick}, of another identity"
        if (before is not None and there.tick == before.tick)
        else f"tick {there.tick}"
    )
    knows = "of none" if before is None else f"that it had tick {before.tick}"
    is_behind = before is not None and (there is None or there.tick < before.tick)
    raise EngineError(
        f'{place} has {has} of "{commit.writer.insert}", but this run expects {knows} (sink "{sink}"): '
        + (
            "an older version of it was restored, or it was recreated"
            if is_behind
            else "another run of this job is active, with a copy of the checkpoint"
        )
        + f". Tick {commit.tick} was not published",
        code="sink-behind" if is_behind else "sink-taken",
        hint=RESTORE if is_behind else "stop the run whose ticks the table does not have",
    )


def retry_commit(
    once: Callable[[], _Done],
    failed: str,
    shown: Callable[[object], str],
    sleep: Callable[[float], None] | None = None,
) -> _Done:
    """Call ``once`` until it succeeds, and return its result.

    Retries when another commit overtakes it (``once`` then reads the table again) or when it fails.

    Args:
        failed: Description of what failed, for the error.
        shown: Function that formats the cause.

    Raises:
        EngineError: It failed too often, or ``once`` raised this error.
    """
    failures = list[Exception]()

    def try_commit() -> _Done:
        try:
            return once()
        except (OvertakenError, WatersmeetError):
            raise
        except Exception as error:
            failures.append(error)
            raise UnansweredError from error

    def stop(state: RetryCallState) -> bool:
        return len(failures) >= _FAILED or state.attempt_number >= _OVERTAKEN

    retrying = Retrying(
        retry=retry_if_exception_type((OvertakenError, UnansweredError)),
        wait=wait_random_exponential(multiplier=0.05, max=8),
        stop=stop,
        reraise=True,
        sleep=time.sleep if sleep is None else sleep,
    )
    try:
        return retrying(try_commit)
    except (OvertakenError, UnansweredError) as error:
        why = shown(error.__cause__) if error.__cause__ is not None else "others commit there all the time"
        raise EngineError(
            f"{failed}: {why}",
            code="store-full" if is_full(why) else "sink-failed",
            hint=MAKE_ROOM
            if is_full(why)
            else "run again once the table is writable: the tick is repeated and written once",
        ) from None


def identity_as_text(identity: Identity) -> str:
    """Format the identity as text for a table's metadata; `identity_from` reads it."""
    return json.dumps(dict(identity), sort_keys=True)


def identity_from(text: Any) -> Identity | None:
    """Parse an identity from a table's metadata; None if the text is not an identity."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, Mapping) else None
