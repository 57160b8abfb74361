"""The commit of a tick: its manifest is created, and it is looked whether that may stay.

Creating fails where there is a manifest of that tick. But names become free again: a driver that slept while
others committed its tick and later ones, and removed the older manifests, can create its own, and so can one
that slept while somebody went back to an earlier tick. Therefore who has created a manifest looks for the one
that it follows. No two have the same writer: one that is there now was there all the time since this driver
read or created it, and so it was when the new one was created. Manifests go oldest first, or, by who goes
back, newest first: so others' manifest of this tick had not come and gone as garbage, and nobody had gone
back further than to the one before. The new one follows what there was. If the one before is gone, or is
another's, this driver was passed, and takes away what it created; unless the next manifest follows that, for
then others have seen it, and have gone on from it since.

What it takes away has to be its own: while it slept somebody may have gone back further, and committed this
tick anew. And if no other manifest is there, somebody has gone on from it, and back to it, when the one
before was garbage already: then it is the state, and stays; unless that was removed as a whole (`reset`), so
that it has another owner or none.

The look has to come after the create. How long after is all the same: what it finds was there before, and
what it does not find says as much later, or others have gone on since, which stops this driver as well. So
where a request takes long it is made behind the tick (`Commits`), and the next one begins meanwhile. Before
the answer is there nothing may come of the new manifest that others see: no garbage is deleted, no node of
the next tick is run (so no rows of it go out, and no manifest of it is created), and no run comes to a good
end. Until then the rows of the next tick are read, into files of names of their own, and what it is made of
is written down, with the manifest that it follows: that counts for nothing where there is another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from watersmeet.errors import StateError
from watersmeet.state.checksums import sealed_record
from watersmeet.state.manifest import (
    Manifest,
    manifest_name,
    manifest_names,
    owner_in,
    previous_writer,
    writer_of,
)
from watersmeet.state.store import Store

Create = Callable[[Store, Manifest], Manifest]
"""What `commit` does, in whatever way."""


class Commits:
    """The commits of one driver, one after the other.

    If the store is remote, a thread checks for fencing, one check at a time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="looks") if store.is_remote else None
        self._look: Future[None] | None = None

    def commit(self, manifest: Manifest, create: Create | None = None) -> Manifest:
        """Commit a manifest as `commit` does.

        If the store is remote and ``create`` is None, only `check` reports whether the manifest may stay.

        Args:
            create: performs the whole commit in its own way.
        """
        self.check()
        if create is not None or self._thread is None:
            return (create or commit)(self._store, manifest)
        stored = _create_manifest(self._store, manifest)
        self._look = self._thread.submit(_check_not_fenced, self._store, stored)
        return stored

    def check(self) -> None:
        """Wait until the last manifest is known to be valid.

        Raises:
            StateError: as `commit`, on each call.
        """
        if self._look is not None:
            self._look.result()

    def close(self) -> None:
        """Stop checking; the result of the last check is discarded."""
        if self._thread is not None:
            self._thread.shutdown()


def commit(store: Store, manifest: Manifest) -> Manifest:
    """Create the manifest of a tick; everything that it names must be durable.

    Returns:
        The manifest as stored: with a writer, a new one if it had none.

    Raises:
        StateError: Another process has committed this tick, or the previous manifest is not the one that
            this manifest follows: this process must stop.
    """
    stored = _create_manifest(store, manifest)
    _check_not_fenced(store, stored)
    return stored


def _create_manifest(store: Store, manifest: Manifest) -> Manifest:
    name = manifest_name(manifest.tick)
    stored = manifest.model_copy(update={"writer": manifest.writer or uuid.uuid4().hex})
    if not store.create(name, sealed_record(store, name, stored)):
        raise fencing_error(manifest.tick)
    return stored


def _check_not_fenced(store: Store, manifest: Manifest) -> None:
    """Check that the manifest may stay.

    Raises:
        StateError: It may not. It is deleted before, if nothing relies on it.
    """
    if _was_fenced(store, manifest):
        if _is_removable(store, manifest):
            store.delete(manifest_name(manifest.tick))
        raise fencing_error(manifest.tick)


def _was_fenced(store: Store, manifest: Manifest) -> bool:
    """See the module. The first tick follows none: it has to be the newest."""
    if store.is_remote and manifest.tick > 1:
        before = writer_of(store, manifest.tick - 1)
        was_passed = before is None or bool(manifest.follows and before != manifest.follows)
    else:
        was_passed = manifest_names(store)[-1:] != [manifest_name(manifest.tick)]
    return was_passed and previous_writer(store, manifest.tick + 1) != manifest.writer


def _is_removable(store: Store, manifest: Manifest) -> bool:
    """Return True if a fenced driver's manifest is still stored and no other run relies on it."""
    if writer_of(store, manifest.tick) != manifest.writer:
        return False
    is_alone = manifest_names(store) == [manifest_name(manifest.tick)]
    return not is_alone or (owner_in(store) or "") != manifest.owner


def fencing_error(tick: int) -> StateError:
    """Build the error of a run whose tick another process has committed."""
    return StateError(
        f"tick {tick} has been committed by another process",
        code="state-fenced",
        hint="stop the other run: only one run of a job may use a checkpoint directory at a time",
    )
