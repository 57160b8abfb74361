"""What makes a job the same job, beside its manifests, where the state is in an object store.

    job/id                       who owns the state
    settings/<digest>            how a run was set
    begun/000000000008.json      what tick 8 is made of: a batch of Spark, or a tick of the engine's own

Nothing is replaced: all of these are created once. A tick's record is there before anything of the tick goes
out. So a driver that starts on another machine, where Spark has planned nothing, repeats the tick as it was;
and of two drivers that begin the same tick with other rows one is stopped before it puts anything out. The
record says which manifest it follows: one of a history that was gone back from counts for nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from watersmeet.errors import StateError
from watersmeet.objects.remote import RemoteStore
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import (
    BEGUN,
    FOLDERS,
    HISTORY,
    OWNED,
    manifest_name,
    manifest_names,
    owner_in,
    writer_of,
)

_RESET = "job/reset"
_FOLDERS = frozenset({"job", "settings", "manifests", BEGUN, HISTORY, *FOLDERS})
"""All that is the job's in a store: whatever else is there stays."""
_FOLLOWS = "follows"
"""In a record: the writer of the manifest before. Older records have none: they count."""

_IDENTITY_FIELDS = ("query_id", "batch", "offsets", "clock_us", "end")
"""Of two records of one tick, what has to be equal."""


class StoredJob:
    """See the module."""

    def __init__(self, store: RemoteStore) -> None:
        self._store = store

    def owner(self, expected: str | None) -> str:
        """Return the owner id of the state; create one if there is none.

        Args:
            expected: the id in the newest manifest.
        """
        if not self._store.has(OWNED):
            self._create(OWNED, {"id": expected or uuid.uuid4().hex})
        return str(self._read(OWNED)["id"])

    def find_owner(self) -> str | None:
        """Return the owner id of the state; None if it has no owner."""
        return owner_in(self._store)

    def has_any_files(self) -> bool:
        return self._store.has(OWNED) or self.is_reset_unfinished() or bool(manifest_names(self._store))

    def begin_reset(self) -> str | None:
        """Record that the job is being removed, so that no run starts any more.

        The record has the owner of the state, because ``job/id`` is deleted before the removal ends.

        Returns:
            The owner id of the state; None if it is unknown.
        """
        owner = self.find_owner()
        self._store.create(_RESET, json.dumps({} if owner is None else {"id": owner}).encode())
        return self.owner_of_reset() or owner

    def owner_of_reset(self) -> str | None:
        """Return the owner id of the state that an unfinished reset is removing.

        Returns:
            The id; None if no reset is unfinished or the id is unknown.
        """
        if not self.is_reset_unfinished():
            return None
        try:
            owner = json.loads(bytes(self._store.read(_RESET))).get("id")
        except (ValueError, AttributeError):
            return None
        return None if owner is None else str(owner)

    def remove(self) -> None:
        """Remove all that the job has there. What was interrupted in that is known, and may be done again."""
        self.begin_reset()
        self._store.clear(_FOLDERS, last=_RESET)

    def is_reset_unfinished(self) -> bool:
        return self._store.has(_RESET)

    def settings(self, digest: str) -> dict[str, str] | None:
        """Return the settings by name of the run with this digest; None if they are not recorded."""
        name = f"settings/{digest}"
        return (
            {str(key): str(value) for key, value in self._read(name).items()}
            if self._store.has(name)
            else None
        )

    def keep_settings(self, digest: str, settings: Mapping[str, str]) -> None:
        self._create(f"settings/{digest}", dict(settings))

    def begin(self, tick: int, record: Mapping[str, Any], follows: str = "") -> None:
        """Remember of what ``tick`` is made. A record of another history is replaced.

        Args:
            follows: the writer of the manifest that the tick goes on from.

        Raises:
            StateError: another process began it otherwise, has gone on from another manifest, or is further
                on.
        """
        record = {**record, _FOLLOWS: follows}
        for _ in range(3):
            if self._create(_intent_name(tick), record):
                return self.check_not_committed(tick, follows)
            try:
                there = self._read(_intent_name(tick))
            except StateError as error:
                if error.code != "state-missing":
                    raise
                continue
            if _follows_writer(there, follows):
                if any(there.get(told) != record.get(told) for told in _IDENTITY_FIELDS):
                    raise _fenced_error(tick)
                return self.check_not_committed(tick, follows)
            if follows and writer_of(self._store, tick - 1) != follows:
                raise _fenced_error(tick)
            self._store.delete(_intent_name(tick))
        raise _fenced_error(tick)

    def check_not_committed(self, tick: int, follows: str) -> None:
        """Refuse to begin ``tick`` if another run has committed it.

        Committing deletes the record of the tick, so its name is free again for a driver that is behind. That
        driver must not emit the tick, perhaps with other rows, before it reaches the manifest.

        Raises:
            StateError: the tick is committed, or others are further on.
        """
        if tick == 1:
            passed = bool(manifest_names(self._store))
        else:
            passed = self._store.has(manifest_name(tick)) or bool(
                follows and writer_of(self._store, tick - 1) != follows
            )
        if passed:
            raise _fenced_error(tick)

    def begun(self, tick: int, follows: str = "") -> dict[str, Any] | None:
        """Return the recorded intent of ``tick``.

        Returns:
            The intent, if a run that follows the manifest of writer ``follows`` recorded it; else None.
        """
        there = self._read(_intent_name(tick)) if self._store.has(_intent_name(tick)) else None
        return there if there is not None and _follows_writer(there, follows) else None

    def forget(self, tick: int) -> None:
        """Delete the intent of ``tick``, so that the tick can use other input.

        The sinks have no rows of it.
        """
        self._store.delete(_intent_name(tick))

    def forget_after(self, tick: int) -> None:
        """Delete the intents of all ticks later than ``tick``, so that they are planned again."""
        later = [name for name in self._store.names(BEGUN) if name > _intent_name(tick)]
        if self._store.delete_all(later):
            raise StateError(
                f"{later[0]}, or a later manifest, could not be removed",
                code="state-not-written",
                hint="run the command again",
            )

    def _create(self, name: str, value: Mapping[str, Any]) -> bool:
        return self._store.create(name, add_checksum(name, json.dumps(dict(value), sort_keys=True)))

    def _read(self, name: str) -> dict[str, Any]:
        value = json.loads(verify_checksum(name, bytes(self._store.read(name))))
        assert isinstance(value, dict)
        return value


def _follows_writer(record: Mapping[str, Any], follows: str) -> bool:
    return record.get(_FOLLOWS) in (None, follows)


def _fenced_error(tick: int) -> StateError:
    return StateError(
        f"another process has started tick {tick} with different rows, or has finished it",
        code="state-fenced",
        hint="stop the other run, then run again: only one run of a job may use a store at a time",
    )


def _intent_name(tick: int) -> str:
    return f"{BEGUN}/{tick:012d}.json"
