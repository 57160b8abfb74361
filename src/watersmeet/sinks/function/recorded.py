"""What functions of users share, wherever they are called: exactly once, if they do nothing when what they
have comes to them again.

Rows that are out cannot be called back, and a tick is not out in one step. So how a tick is cut must not
change when it is repeated, whatever the number of tasks, nor what is in each part: rows are staged beside the
job's state (`staged_rows`), and before the first part goes out a record says which files are the parts. It is
created if there is none; who comes later, another run of the job, too, goes by the one that is there.

A run that slept while others ended the tick, and deleted what belonged to it, might create a record anew: it
looks whether the state has come to the tick after that, and before anything goes out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.base import (
    ArrowPart,
    Files,
    Frame,
    KeyedRows,
    LeftOut,
    Numbered,
    Schema,
    StagedPart,
    check_key_is_there,
    check_unique_names,
    columns_of,
    recorded_parts,
    staged_folder,
)
from watersmeet.sinks.by_tasks import numbered_here, staged_by_tasks
from watersmeet.sinks.part_mark import Identity, Resumed, check_same
from watersmeet.sinks.staged_rows import RowsPart, Staged, staged_in
from watersmeet.spec.model import Sink as SinkSpec

SHOWN_DELETED = "_deleted"
"""`DELETED`, where a function sees it."""


class RecordedSink:
    """See the module. A subclass says how parts go out: `give_out`."""

    idempotent = True
    stages = True
    sets_aside = False
    tells_rows = True
    appends_to = None
    secrets: Mapping[str, str] = MappingProxyType({})

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._owner = ""
        self._files: Files | None = None
        self._tasks: Numbered = numbered_here
        self._is_over: Callable[[int], bool] = lambda tick: False
        self._staged: dict[tuple[str, str, int], list[Staged]] = {}

    @property
    def keyed(self) -> KeyedRows | None:
        return KeyedRows(self._spec.primary_key) if self._spec.primary_key else None

    def leaves_out(self, columns: int) -> LeftOut | None:
        return None

    def stage_in(self, files: Files) -> None:
        """See `StagesInState`."""
        self._files = files

    def call_in(self, tasks: Numbered, is_over: Callable[[int], bool]) -> None:
        """See `CallsInTasks`."""
        self._tasks, self._is_over = tasks, is_over

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        check_key_is_there(columns, self._spec)
        if self.keyed and any(column.name.lower() == SHOWN_DELETED for column in columns):
            raise SpecError(
                f'the result for "{self._spec.name}" has a column named "{SHOWN_DELETED}", which is'
                " reserved for deletes in sinks with a PRIMARY KEY",
                code="reserved-name",
                hint="rename it with AS",
            )
        self._owner = owner or self._owner

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        """What the function has done nobody here can ask."""
        return []

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self.take_parts(insert, tick, attempt, staged_by_tasks(frame, self._part(tick, attempt)))

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return None

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        self._staged[attempt, insert, tick] = staged_in(parts)

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return sum(rows for _, rows in self._staged[attempt, insert, tick])

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Whether parts of the tick may have gone out."""
        return self._there().has(self._record(insert, tick))

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        self._recorded(insert, tick, identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        staged = self._staged.get((attempt, insert, tick))
        parts = self._recorded(insert, tick, identity)
        if parts is None:
            if staged is None:
                raise EngineError(
                    f'nothing was staged for tick {tick} of "{insert}" (sink "{self._spec.name}")',
                    code="staged-rows-gone",
                    hint="run again, which repeats the tick, and please report this bug",
                )
            if not staged:
                return False
            parts = self.record_parts(insert, tick, identity, staged)
        if staged == parts:
            del self._staged[attempt, insert, tick]  # they stay until the tick is over
        else:
            self._remove((attempt, insert, tick))
        self.give_out(insert, tick, parts)
        return True

    def give_out(self, insert: str, tick: int, parts: Sequence[Staged]) -> None:
        """Call the function with the parts of a tick, one at least. Raises: EngineError, when it failed."""
        raise NotImplementedError

    def discard(self, attempt: str) -> None:
        for key in [key for key in self._staged if key[0] == attempt]:
            self._remove(key)

    def close(self) -> None:
        """Nothing is held."""

    def _part(self, tick: int, attempt: str) -> RowsPart:
        return RowsPart(self._there(), staged_folder(tick, attempt), lasting=True)

    def _there(self) -> Files:
        if self._files is None:
            raise EngineError(
                "the sink was not prepared",
                code="internal",
                hint="this is a bug in watersmeet: please report it with this message",
            )
        return self._files

    def _record(self, insert: str, tick: int) -> str:
        named = "\0".join((self._spec.name, insert)).encode("utf-8", "surrogatepass")
        return recorded_parts(tick, blake2b(named, digest_size=10).hexdigest())

    def _recorded(self, insert: str, tick: int, identity: Identity) -> list[Staged] | None:
        """The parts of the tick, where they are recorded. Raises: EngineError, when they are of another tick
        of this number."""
        name = self._record(insert, tick)
        if not self._there().has(name):
            return None
        told = json.loads(bytes(self._there().read(name)))
        try:
            check_same(self._spec.name, "the function", insert, tick, told["identity"], identity)
        except EngineError as error:
            error.hint = (
                "rows that a function has cannot be set aside: was the checkpoint restored from a copy? Begin"
                " anew with an empty checkpoint, which is another job for the function"
            )
            raise
        return [(str(part), int(rows)) for part, rows in told["parts"]]

    def record_parts(self, insert: str, tick: int, identity: Identity, staged: list[Staged]) -> list[Staged]:
        """Record which files are the parts of a tick, unless another run has; return those recorded.

        Raises:
            EngineError: another run has ended the tick.
        """
        names = {"sink": self._spec.name, "insert": insert}
        told = json.dumps({**names, "identity": dict(identity), "parts": staged})
        if self._there().create(self._record(insert, tick), told.encode()):
            if self._is_over(tick):
                raise EngineError(
                    f'tick {tick} of "{insert}" was finished by another run of this job (sink'
                    f' "{self._spec.name}"): this run wrote nothing',
                    code="sink-taken",
                    hint="stop one of the runs; the other one continues from the last tick",
                )
            return staged
        recorded = self._recorded(insert, tick, identity)
        if recorded is None:  # another run has ended the tick
            raise EngineError(
                f'the record of tick {tick} of "{insert}" is gone (sink "{self._spec.name}"):'
                " another run of this job is active",
                code="sink-taken",
                hint="stop one of the runs; the other one continues from the last tick",
            )
        return recorded

    def _remove(self, key: tuple[str, str, int]) -> None:
        staged = self._staged.pop(key, [])
        if self._files is not None and staged:
            self._files.delete_all([name for name, _ in staged])
