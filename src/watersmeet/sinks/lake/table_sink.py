"""Tables as sinks: exactly once, whatever the format.

    table/ws-<job>/<insert>-<tick>/<attempt>-<partition>-….parquet    staged by tasks; nobody sees it
    one commit: these files, and (job, insert) -> tick, identity of the tick, attempt

Why this is exactly once: the tick is committed with its rows, by a commit that fails if any other one came
between looking and committing. A tick that is there with the same identity is not committed again; another
identity is refused, and so are ticks that the state has not come to. The last tick that is there has to be
the one that the run knows of: not that of a run with a copy of the checkpoint, nor of an older copy of the
table. A tick without rows commits nothing.

With a PRIMARY KEY the staged files hold a row per key, by which the driver merges them into the table, in one
commit of the same kind; then they are removed.

Files of attempts that came to nothing are removed: by the attempt itself, or when the next run begins, from
the folders of the last ticks. What a commit has named is left alone, for older versions of a table have it;
so are the files of a merge whose run was killed before it removed them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from secrets import randbits

from watersmeet.errors import (
    EngineError,
    SpecError,
    WatersmeetError,
    format_count,
    near_names,
    raise_all,
)
from watersmeet.names import CHANGE_COLUMNS
from watersmeet.sinks.base import (
    KeyedRows,
    Schema,
    StagedPart,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.lake.commits import (
    RESTORE,
    Commit,
    CommittedTick,
    LakeTable,
    OvertakenError,
    TableWriter,
    Writer,
    check_before,
    commit_once,
    newer_run_error,
    number_of,
    retry_commit,
)
from watersmeet.sinks.lake.data_files import LakePart
from watersmeet.sinks.part_mark import Identity, Resumed, check_same, format_parts, newer_parts
from watersmeet.sinks.staging import Key, PartsSink
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.model import BEGINS_AFTER
from watersmeet.spec.options.values import lower_names

LOG = logging.getLogger("watersmeet.sinks.lake")
_MERGE_MEMORY_SHARE = 0.5
"""Of the machine's memory: so much the rows of a tick may take that are merged."""

_OF_COPY = (
    "was the checkpoint restored from a copy? Restore the table from a copy of the same moment, or start over"
    " with an empty checkpoint and another table"
)


class LakeSink(PartsSink):
    """See the module.

    Args:
        table: the table in its format.
    """

    def __init__(self, spec: SinkSpec, table: LakeTable) -> None:
        super().__init__(spec)
        self._begins_after = int(lower_names(spec.options).get(BEGINS_AFTER, "0"))
        self.table = table
        self._owner: str | None = None
        self._fences: dict[str, int | None] = {}
        self._before: dict[str, CommittedTick | None] = {}
        self._removals: set[str] = set()

    @property
    def keyed(self) -> KeyedRows | None:
        key = self._spec.primary_key
        return KeyedRows(key) if key else None

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        if self.keyed is not None:
            columns = tuple(column for column in columns if column.name not in CHANGE_COLUMNS)
            raise_all(_key_problems(self._spec, columns))
        self.table.open(columns)
        self._owner = owner or ""

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        seen = {insert: self._look(insert) for insert in inserts}
        there = {insert: of.last for insert, of in seen.items() if of.last is not None}
        last_parts = resumed.last_parts or {}

        def identity_of(insert: str, tick: int) -> Identity | None:
            last = last_parts.get(insert)
            is_same = last is not None and number_of(dict(last[1])) == there[insert].identity
            return last[1] if is_same and last is not None else None

        newer = newer_parts(
            self._spec.name,
            self.table.place,
            [(insert, last.tick) for insert, last in there.items()],
            inserts,
            identity_of,
            resumed,
        )
        if newer:
            raise EngineError(
                f"{self.table.place} has {format_parts(newer)}, but the checkpoint is at tick"
                f' {resumed.committed} (sink "{self._spec.name}"), and newer ticks cannot be removed'
                " from a table. Nothing was written",
                code="sink-ahead",
                hint=RESTORE,
            )
        for insert in inserts:
            self._check_is_current(insert, there.get(insert), last_parts.get(insert))
        if there:
            self._warn_of_removals(resumed.committed + 1)
        for insert in inserts:
            self._begin(insert, seen[insert], resumed.committed, knows_part=insert in last_parts)
        return []

    def _check_is_current(
        self, insert: str, there: CommittedTick | None, last: tuple[int, Identity] | None
    ) -> None:
        if last is None or last[0] <= self._begins_after or (there is not None and there.tick >= last[0]):
            return
        has = "no ticks" if there is None else f"tick {there.tick}"
        raise EngineError(
            f'{self.table.place} has {has} of "{insert}", but the checkpoint has tick {last[0]} (sink'
            f' "{self._spec.name}"): the table is older than the checkpoint or was recreated, or'
            " earlier rows went to another place. Nothing was written",
            code="sink-behind",
            hint=f"{RESTORE} If earlier rows are in another place and stay there, set '{BEGINS_AFTER}'"
            f" = '{last[0]}' in the sink's options",
        )

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Return True if the table has, or may have, rows of this tick.

        Before `prepare`, and without ``owner``, the sink cannot know whose ticks they are and returns True.
        """
        if self._owner is not None:
            there = self._look(insert).last
        elif owner is None:
            return True
        else:
            there = retry_commit(
                lambda: self.table.peek(Writer(owner, insert)),
                f'sink "{self._spec.name}" could not read {self.table.place}',
                self.table.shown,
            )
        return there is not None and there.tick >= tick

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        there = self._look(insert).last
        if there is not None and there.tick >= tick:
            self._check_there(there, insert, tick, identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        # Whatever comes of the commit, only the next run removes the files.
        files = self._staged.pop((insert, tick, attempt), None)
        if files is None:
            raise EngineError(
                f'the staged rows of tick {tick} for "{self._spec.name}" are missing',
                code="staged-rows-gone",
                hint="run again, which repeats the tick",
            )
        fence, before = self._fences.get(insert), self._before.get(insert)
        commit = Commit(self._writer(insert), tick, attempt, identity, fence, before)
        if not files:
            there = self._look(insert).last
            if there is None or there.tick < tick:
                check_before(there, commit, self._spec.name, self.table.place)
        else:
            there = commit_once(
                self.table, commit, lambda: self._append_or_merge(files, commit), self._spec.name
            )
            if there is None and self.keyed is not None:
                self._remove_own(insert, tick, attempt)
            if there is None:
                self._before[insert] = commit.as_committed
                return True
        if there is None or there.tick < tick:
            return False
        self._check_there(there, insert, tick, identity)
        self._before[insert] = there
        if there.attempt != number_of(attempt):
            self._remove_own(insert, tick, attempt)
        return True

    def _remove(self, key: Key) -> None:
        super()._remove(key)
        self._remove_own(*key)

    def _append_or_merge(self, files: Sequence[StagedPart], commit: Commit) -> None:
        self._check_staged(files, commit)
        if commit.before is not None:
            self._warn_of_removals(commit.tick)
        if self.keyed is None:
            self.table.append(files, commit)
            return
        from pyarrow import concat_tables, parquet

        held, memory = sum(int(file["bytes"]) for file in files), memory_of_machine()
        if held > memory * _MERGE_MEMORY_SHARE:
            raise EngineError(
                f"the driver cannot merge {held:,} bytes of rows of tick {commit.tick} into"
                f' {self.table.place} (sink "{self._spec.name}"): the machine has {memory:,}. The tick'
                " was not published",
                code="tick-too-large",
                hint="run again on a machine with more memory, then read less per tick"
                " ('maxOffsetsPerTrigger' or 'maxFilesPerTrigger' of the sources)",
            )

        connected = self.table.storage.connect()
        rows = [
            parquet.read_table(str(file["path"]), filesystem=connected, partitioning=None) for file in files
        ]
        self.table.merge(concat_tables(rows), self.keyed.columns, commit)

    def _warn_of_removals(self, tick: int) -> None:
        """Warn, once each, of what others did to the table by which rows of earlier ticks may be gone."""
        removals = self.table.removals(self._owner or "")
        new = [removal for removal in removals if removal not in self._removals]
        self._removals.update(new)
        if new:
            LOG.warning(
                'sink "%s": others have changed %s since this job\'s last commit: %s. Rows that it had put'
                " there may be gone; it goes on with tick %d. To have them again, bring back the version"
                " before, or start with an empty checkpoint and another table",
                self._spec.name,
                self.table.place,
                ", ".join(new),
                tick,
            )

    def _check_staged(self, files: Sequence[StagedPart], commit: Commit) -> None:
        """Raise: EngineError, if a file is gone; OvertakenError, if it was another run that took it away."""
        gone = self.table.storage.gone([(str(file["path"]), int(file["size"])) for file in files])
        if not gone:
            return
        now = self.table.look(commit.writer)
        if now.fence != commit.fence or (now.last is not None and now.last.tick >= commit.tick):
            raise OvertakenError
        raise EngineError(
            f"{len(gone):,} of {format_count(len(files), 'file')} of tick {commit.tick} in"
            f" {self.table.place} are missing or truncated, such as {gone[0]} (sink"
            f' "{self._spec.name}"): the tick was not published',
            code="staged-rows-gone",
            hint="check whether VACUUM or another program deletes uncommitted files there, and run"
            " again, which repeats the tick",
        )

    def _remove_own(self, insert: str, tick: int, attempt: str) -> None:
        """Remove the files that an attempt staged.

        Files that cannot be removed now are left to the next run or to VACUUM.
        """
        own = f"{number_of(attempt):016x}"
        with suppress(OSError):
            files = self._files(insert, tick)
            self.table.storage.remove([path for path in files if _attempt(path) == own])

    def _writer(self, insert: str) -> Writer:
        return Writer(self._owner or "", insert)

    def _look(self, insert: str) -> TableWriter:
        return retry_commit(
            lambda: self.table.look(self._writer(insert)),
            f'sink "{self._spec.name}" could not read {self.table.place}',
            self.table.shown,
        )

    def _begin(self, insert: str, seen: TableWriter, tick: int, *, knows_part: bool) -> None:
        """Set a fence, so that other active runs can no longer commit, and remove files of failed attempts.

        Files of the attempt that the table records as committed remain, and so does every file that the table
        names now, which may have been written without a key at that time. If a table does not record its last
        tick and the checkpoint does (``knows_part``), only files of the next tick are examined. The files to
        delete are listed before the fence is set, because later files may belong to an active run that sets
        its fence after this one.
        """
        last = seen.last
        ticks = {tick + 1}
        if last is not None:
            ticks |= {max(tick, last.tick), last.tick}
        elif not knows_part:
            ticks |= {tick}
        committed = None if last is None else last.attempt
        left = [path for number in sorted(ticks) for path in self._files(insert, number, but=committed)]
        number = randbits(62)
        writer = self._writer(insert)

        def fence() -> None:
            if self.table.look(writer).fence != number:
                self.table.fence(writer, number)

        retry_commit(
            fence, f'sink "{self._spec.name}" could not commit to {self.table.place}', self.table.shown
        )
        self._fences[insert] = number
        now = self._before[insert] = self._look(insert).last
        if left and now == last:  # else somebody was faster than the fence
            named = retry_commit(
                self.table.named,
                f'sink "{self._spec.name}" could not read {self.table.place}',
                self.table.shown,
            )
            self.table.storage.remove([path for path in left if path.rsplit("/", 1)[-1] not in named])

    def _check_there(self, there: CommittedTick, insert: str, tick: int, identity: Identity) -> None:
        if there.tick > tick:
            raise EngineError(
                f'{self.table.place} already has tick {there.tick} of "{insert}", but this run is at'
                f' tick {tick} (sink "{self._spec.name}"): another run of this job is active. Nothing'
                " was published",
                code="sink-taken",
                hint="stop one of the runs; the other one continues from the last tick",
            )
        if there.identity != number_of(dict(identity)):
            if insert in self._fences and self._look(insert).fence != self._fences[insert]:
                raise newer_run_error(tick, self._spec.name, self.table.place)
            stored = self.table.tick_identity(self._writer(insert), tick)
            stored = None if stored == identity else stored
            check_same(self._spec.name, self.table.place, insert, tick, stored, identity, _OF_COPY)

    def _part(self, insert: str, tick: int, attempt: str) -> LakePart:
        folder = self._folder(insert, tick)
        storage = self.table.storage
        storage.make_folder(folder)
        self._staged.setdefault((insert, tick, attempt), [])
        return LakePart(
            folder,
            f"{number_of(attempt):016x}",
            storage.s3,
            storage.endpoint,
            storage.region,
            self.table.widened,
            {} if self.keyed else dict(self.table.ids),
        )

    def _folder(self, insert: str, tick: int) -> str:
        return f"{self.table.data}/{self._writer(insert).folder}-{tick:012d}"

    def _files(self, insert: str, tick: int, *, but: int | None = None) -> list[str]:
        """Return the files of a tick, of all attempts or of all attempts except ``but``."""
        paths = self.table.storage.files_in(self._folder(insert, tick))
        return [path for path in paths if but is None or _attempt(path) != f"{but:016x}"]


def _key_problems(spec: SinkSpec, columns: Sequence[Column]) -> list[WatersmeetError]:
    """List problems of a PRIMARY KEY, whose values the table compares."""
    types = {column.name: column.type for column in columns}
    what = f'PRIMARY KEY of {spec.connector} sink "{spec.name}"'
    problems: list[WatersmeetError] = []
    for name in spec.primary_key:
        if name not in types:
            problems.append(
                SpecError(
                    f'{what}: the result has no column "{name}"',
                    code="unknown-column",
                    hint=near_names(name, types),
                )
            )
        elif types[name].is_real or types[name].is_nested:
            problems.append(
                SpecError(
                    f'{what}: "{name}" is {types[name]}, which the table format compares differently'
                    " than SQL",
                    code="primary-key",
                    hint="cast it to a DECIMAL or a STRING",
                )
            )
    return problems


def memory_of_machine() -> int:
    """Return the machine's physical memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _attempt(path: str) -> str:
    return path.rsplit("/", 1)[-1].split("-", 1)[0]
