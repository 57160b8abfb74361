"""Decide which ticks' manifests are kept, and delete files that none of them needs."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from watersmeet.errors import StateError, WatersmeetError
from watersmeet.state import file_lists
from watersmeet.state.manifest import (
    BEGUN,
    FOLDERS,
    Manifest,
    is_manifest,
    load,
    manifest_name,
    manifest_names,
    writer_of,
)
from watersmeet.state.store import Store

# What is garbage in a store where each call takes a request's time: deleted while the next ticks go on.
#
# What older manifests named is deleted as it comes. What nobody ever named (files of attempts that came
# to nothing, and those of one tick alone) is looked for now and then, and is known by the tick in its
# name: no file of a tick that is under way goes. What cannot be deleted is left to the next such search;
# no tick fails by it.
#
# A driver that slept must not delete what others made meanwhile, whose ticks may have the same numbers
# after a restore or a reset: it is waited until it is known that its own newest manifest may stay
# (`state.commits`), before each batch of deletes that has to be there, with its own writer, and nothing
# goes that is of a later tick than that one.

SEARCH_TICKS = 64
"""Ticks after which it is looked for what nobody named."""

_BATCH_NAMES = 200
"""Names that are deleted before it is looked again whether they may be."""

_WORK_NAME = re.compile(r"(?:passing-)?(\d+)-")
_RUN_NAME = re.compile(r"-(\d+)-[0-9a-f]+\.arrow$")
_OTHERS = re.compile(r"(?:shed-)?(\d{1,12})(?:-|\.json$)")


def no_check() -> None:
    """Do nothing: use it where the manifest is already known to be valid."""


class RetainedNames(NamedTuple):
    """Names that stay: of manifests, and of what these name."""

    manifests: frozenset[str]
    files: frozenset[str]


class DeleteQueue:
    """The deletes of one driver, one after the other in a thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deletes")
        self._under_way: Future[None] | None = None
        self._due: list[str] = []
        self._ticks = 0
        self._failed = False

    def delete(
        self,
        newest: Manifest,
        names: list[str],
        kept: Callable[[], RetainedNames],
        check: Callable[[], None] = no_check,
    ) -> None:
        """Delete garbage after the tick of ``newest``, this driver's newest manifest.

        Args:
            names: files that are garbage now.
            check: raises if ``newest`` is not valid.
        """
        self._due += names
        self._ticks += 1
        if self._under_way is not None and not self._under_way.done():
            return
        search = self._failed or self._ticks >= SEARCH_TICKS
        due, self._due, self._failed = self._due, [], False
        self._ticks = 0 if search else self._ticks
        self._under_way = self._thread.submit(self._run, due, newest, kept() if search else None, check)

    def search(
        self, newest: Manifest, names: list[str], kept: RetainedNames, check: Callable[[], None] = no_check
    ) -> int:
        """Delete garbage now, including what a search finds.

        Args:
            newest: this driver's newest manifest.
            check: raises if ``newest`` is not valid.

        Returns:
            the number of files that were not deleted, as far as known.
        """
        self._run(names, newest, kept, check)
        return int(self._failed)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        if self._under_way is not None:
            self._under_way.result()

    def close(self) -> None:
        """Wait until nothing is being deleted; accept no further deletes."""
        self._thread.shutdown()

    def _run(
        self, due: list[str], newest: Manifest, search: RetainedNames | None, check: Callable[[], None]
    ) -> None:
        try:
            check()
            self._failed = delete_garbage(self._store, due, newest, search) > 0
        except (WatersmeetError, OSError):
            self._failed = True


def delete_garbage(store: Store, due: list[str], newest: Manifest, search: RetainedNames | None) -> int:
    """Delete ``due`` and the other garbage that a search finds: manifests first, oldest first.

    After the first file that cannot be deleted, no more files are deleted.

    Args:
        newest: the manifest that this driver committed last.

    Returns:
        The number of files that were not deleted.

    Raises:
        StateError: the store does not answer.
    """
    if search is not None:
        due = [*dict.fromkeys([*due, *_unreferenced_files(store, newest.tick, search)])]
    due = sorted(filter(is_manifest, due)) + [name for name in due if not is_manifest(name)]
    for first in range(0, len(due), _BATCH_NAMES):
        if writer_of(store, newest.tick) != newest.writer:
            return len(due) - first
        if store.delete_all(due[first : first + _BATCH_NAMES]):
            return len(due) - first
    return 0


def _unreferenced_files(store: Store, tick: int, kept: RetainedNames) -> list[str]:
    newest = max(kept.manifests)
    old = [name for name in manifest_names(store) if name < newest and name not in kept.manifests]
    folders = [folder for folder in (*FOLDERS, BEGUN) if folder != file_lists.FOLDER]
    there = [name for folder in folders for name in store.names(folder) if name not in kept.files]
    return old + [name for name in there if (of := tick_of(name)) is not None and of <= tick]


def tick_of(name: str) -> int | None:
    """Return the tick in which a file was written, as its name states.

    >>> tick_of("runs/delivered.o-1-17-0f3a.arrow"), tick_of("marks/17-0f"), tick_of("files/0f3a")
    (17, 17, None)
    >>> tick_of("work/passing-17-0f3a-0-0.json"), tick_of("begun/000000000017.json")
    (17, 17)
    >>> tick_of("parts/000000000017-0f3a.json"), tick_of("parts/shed-17-0-2.json")
    (17, 17)
    """
    folder, _, own = name.partition("/")
    if folder == "work":
        match = _WORK_NAME.match(own)
    elif folder in ("runs", "aside"):
        match = _RUN_NAME.search(own)
    else:
        match = _OTHERS.match(own)
    return int(match[1]) if match else None


# Which ticks' manifests are kept beside the newest one, and what of a store is garbage by that.
#
# The newest manifest is the state. The one before it is kept in any case, more of them if that is asked
# for (``keep_ticks``): each with all of its files, so that a job can go back to it.

_UNREADABLE = ("state-damaged", "state-missing", "state-version")


class TickRetention:
    """The ticks that are kept of one store. Only the driver that commits has one.

    Args:
        count: how many manifests are kept, the newest among them; two at least.
    """

    def __init__(self, store: Store, count: int = 2) -> None:
        self._store = store
        self._count = count
        self._ticks: deque[tuple[str, frozenset[str]]] | None = None
        self._needed: Counter[str] = Counter()
        self._behind = DeleteQueue(store) if store.is_remote else None
        self._left = 0

    def commit(self, manifest: Manifest, check: Callable[[], None] = no_check) -> int:
        """Count the manifest that was just created, and delete all files that no retained manifest names.

        These are older manifests, runs, marks, and files of attempts that never committed. Call it between
        ticks.

        A file that cannot be deleted now (for example, because another machine has it open) is no error: the
        next tick tries again. An older manifest that is damaged, or of another format, is not retained. Where
        each call to the store takes the time of a request, the next tick does not wait for the deletion
        (`behind`).

        Args:
            manifest: the manifest that `state.commits` returned.
            check: raises if the manifest is not valid; then nothing is deleted.

        Returns:
            The number of files that could not be deleted, as far as known.
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
            return self._behind.search(manifest, gone, self._collect_retained_names(), check)
        self._behind.delete(manifest, gone, self._collect_retained_names, check)
        return 0

    def _garbage(self, gone: list[str], *, search: bool) -> list[str]:
        """Return the files that no retained manifest names: ``gone``, and such files of this process.

        With ``search``, or if other processes write to the store, all files of the store are examined.
        """
        written: set[str] | None = getattr(self._store, "written_names", None)
        if search or written is None:
            return garbage_in(self._store, *self._collect_retained_names())
        names = [*written]
        written.difference_update(names)
        return gone + [name for name in names if name not in self._needed and name.split("/")[0] in FOLDERS]

    def _before(self, tick: int) -> list[tuple[str, frozenset[str]]] | None:
        """Return the retained ticks before ``tick`` with their files, oldest first.

        None: the store does not respond now.
        """
        kept = []
        try:
            names = [name for name in manifest_names(self._store) if name < manifest_name(tick)]
        except StateError:
            return None
        for name in names[-(self._count - 1) :]:
            try:
                kept.append((name, frozenset(load(self._store, name).files())))
            except StateError as error:
                if error.code not in _UNREADABLE:
                    return None
        return kept

    def settle(self) -> None:
        """Wait until nothing is being deleted behind the back of a tick."""
        if self._behind is not None:
            self._behind.settle()

    def close(self) -> None:
        """Wait until nothing is being deleted; no tick may follow.

        Called before another run may begin.
        """
        if self._behind is not None:
            self._behind.close()

    def _keep(self, manifest: Manifest) -> list[str]:
        """Retain the manifest; return the names that only dropped manifests referenced.

        Older manifests come first, oldest first.
        """
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

    def _collect_retained_names(self) -> RetainedNames:
        return RetainedNames(frozenset(name for name, _ in self._ticks or ()), frozenset(self._needed))


def garbage_in(store: Store, manifests: Collection[str], needed: Collection[str]) -> list[str]:
    """Return old manifests, oldest first, and files that are not ``needed``.

    The store must have no other writer.
    """
    newest = max(manifests)
    garbage = [name for name in manifest_names(store) if name < newest and name not in manifests]
    for folder in FOLDERS:
        garbage += [name for name in store.names(folder) if name not in needed]
    return garbage
