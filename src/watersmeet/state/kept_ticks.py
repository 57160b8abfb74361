"""Which ticks' manifests are kept beside the newest one, and what of a store is garbage by that.

The newest manifest is the state. The one before it is kept in any case, more of them if that is asked for
(``keep_ticks``): each with all of its files, so that a job can go back to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection

from watersmeet.errors import StateError
from watersmeet.state.behind import Behind, Kept, nothing
from watersmeet.state.manifest import FOLDERS, Manifest, load, manifest_name, manifest_names
from watersmeet.state.store import Store

_NOT_KEPT = ("state-damaged", "state-missing", "state-version")


class KeptTicks:
    """The ticks that are kept of one store. Only the driver that commits has one.

    Args:
        count: how many manifests are kept, the newest among them; two at least.
    """

    def __init__(self, store: Store, count: int = 2) -> None:
        self._store = store
        self._count = count
        self._ticks: deque[tuple[str, frozenset[str]]] | None = None
        self._needed: Counter[str] = Counter()
        self._behind = Behind(store) if store.is_remote else None
        self._left = 0

    def commit(self, manifest: Manifest, check: Callable[[], None] = nothing) -> int:
        """Count the manifest that was created just now, and delete all that no kept one names: older
        manifests, runs, marks; files of attempts that never committed go too. Call it between ticks.

        What cannot be deleted now (such as what another machine holds open) is no reason to fail: it is tried
        again after the next tick. An older manifest that is damaged, or of another format, is not kept. Where
        each call to the store takes a request's time the next tick does not wait for that (`behind`).

        Args:
            manifest: as `state.commits` gave it back.
            check: raises where it may not stay: then nothing is deleted.

        Returns:
            How many files could not be deleted, as far as that is known by now.
        """
        begins = self._ticks is None
        if self._ticks is None:
            before = self._before(manifest.tick)
            if before is None:
                return 1
            self._ticks = deque(before)
            self._needed.update(name for _, files in before for name in files)
        gone = self._keep(manifest)
        if self._behind is None:
            self._left = self._store.delete_all(self._garbage(gone, search=begins or self._left > 0))
            return self._left
        if begins:
            return self._behind.search(manifest, gone, self._kept(), check)
        self._behind.delete(manifest, gone, self._kept, check)
        return 0

    def _garbage(self, gone: list[str], *, search: bool) -> list[str]:
        """Return what no kept manifest names: ``gone``, and of what this process wrote. By a search, or where
        others write, of all that there is."""
        written: set[str] | None = getattr(self._store, "written_names", None)
        if search or written is None:
            return garbage_in(self._store, *self._kept())
        names = [*written]
        written.difference_update(names)
        return gone + [name for name in names if name not in self._needed and name.split("/")[0] in FOLDERS]

    def _before(self, tick: int) -> list[tuple[str, frozenset[str]]] | None:
        """What is kept of ticks before that one, oldest first; None: the store does not say it now."""
        kept = []
        try:
            names = [name for name in manifest_names(self._store) if name < manifest_name(tick)]
        except StateError:
            return None
        for name in names[-(self._count - 1) :]:
            try:
                kept.append((name, frozenset(load(self._store, name).files())))
            except StateError as error:
                if error.code not in _NOT_KEPT:
                    return None
        return kept

    def settle(self) -> None:
        """Wait until nothing is being deleted behind the back of a tick."""
        if self._behind is not None:
            self._behind.settle()

    def close(self) -> None:
        """The same, and no tick comes after it: called before another run may begin."""
        if self._behind is not None:
            self._behind.close()

    def _keep(self, manifest: Manifest) -> list[str]:
        """What no kept manifest names now, while an older one did; older manifests first, oldest first."""
        assert self._ticks is not None
        files = frozenset(manifest.files())
        self._ticks.append((manifest_name(manifest.tick), files))
        self._needed.update(files)
        manifests, garbage = list[str](), list[str]()
        while len(self._ticks) > self._count:
            old, gone = self._ticks.popleft()
            manifests.append(old)
            self._needed.subtract(gone)
            for name in gone:
                if not self._needed[name]:
                    del self._needed[name]
                    garbage.append(name)
        return manifests + garbage

    def _kept(self) -> Kept:
        return Kept(frozenset(name for name, _ in self._ticks or ()), frozenset(self._needed))


def garbage_in(store: Store, manifests: Collection[str], needed: Collection[str]) -> list[str]:
    """What there is of old manifests, oldest first, and of files that are not ``needed``, in a place that
    nobody else writes to."""
    newest = max(manifests)
    garbage = [name for name in manifest_names(store) if name < newest and name not in manifests]
    for folder in FOLDERS:
        garbage += [name for name in store.names(folder) if name not in needed]
    return garbage
