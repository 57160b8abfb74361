"""What is garbage in a store where each call takes a request's time: deleted while the next ticks go on.

What older manifests named is deleted as it comes. What nobody ever named (files of attempts that came to
nothing, and those of one tick alone) is looked for now and then, and is known by the tick in its name: no
file of a tick that is under way goes. What cannot be deleted is left to the next such search; no tick fails
by it.

A driver that slept must not delete what others made meanwhile, whose ticks may have the same numbers after a
restore or a reset: it is waited until it is known that its own newest manifest may stay (`state.commits`),
before each batch of deletes that has to be there, with its own writer, and nothing goes that is of a later
tick than that one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from watersmeet.errors import WatersmeetError
from watersmeet.state import file_lists
from watersmeet.state.manifest import BEGUN, FOLDERS, Manifest, is_manifest, manifest_names, writer_of
from watersmeet.state.store import Store

EVERY = 64
"""Ticks after which it is looked for what nobody named."""

_AT_ONCE = 200
"""Names that are deleted before it is looked again whether they may be."""

_OF_WORK = re.compile(r"(?:passing-)?(\d+)-")
_OF_ROWS = re.compile(r"-(\d+)-[0-9a-f]+\.arrow$")
_OTHERS = re.compile(r"(?:shed-)?(\d{1,12})(?:-|\.json$)")


def nothing() -> None:
    """Where it is known already that a manifest may stay."""


class Kept(NamedTuple):
    """Names that stay: of manifests, and of what these name."""

    manifests: frozenset[str]
    files: frozenset[str]


class Behind:
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
        kept: Callable[[], Kept],
        check: Callable[[], None] = nothing,
    ) -> None:
        """After the tick of ``newest``, which is this driver's. ``names``: garbage by now; ``check``: raises
        where ``newest`` may not stay."""
        self._due += names
        self._ticks += 1
        if self._under_way is not None and not self._under_way.done():
            return
        search = self._failed or self._ticks >= EVERY
        due, self._due, self._failed = self._due, [], False
        self._ticks = 0 if search else self._ticks
        self._under_way = self._thread.submit(self._run, due, newest, kept() if search else None, check)

    def search(
        self, newest: Manifest, names: list[str], kept: Kept, check: Callable[[], None] = nothing
    ) -> int:
        """The same at once, with a search; how many were not deleted, as far as that is known."""
        self._run(names, newest, kept, check)
        return int(self._failed)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        if self._under_way is not None:
            self._under_way.result()

    def close(self) -> None:
        """The same, and no more is deleted."""
        self._thread.shutdown()

    def _run(self, due: list[str], newest: Manifest, search: Kept | None, check: Callable[[], None]) -> None:
        try:
            check()
            self._failed = delete_garbage(self._store, due, newest, search) > 0
        except (WatersmeetError, OSError):
            self._failed = True


def delete_garbage(store: Store, due: list[str], newest: Manifest, search: Kept | None) -> int:
    """Delete ``due``, what a search finds besides what is kept, too: manifests first, oldest first,
    and nothing more once one could not be.

    Args:
        newest: the manifest that this driver committed last.

    Returns:
        How many were not deleted.

    Raises:
        StateError: the store does not answer.
    """
    if search is not None:
        due = [*dict.fromkeys([*due, *_unnamed(store, newest.tick, search)])]
    due = sorted(filter(is_manifest, due)) + [name for name in due if not is_manifest(name)]
    for first in range(0, len(due), _AT_ONCE):
        if writer_of(store, newest.tick) != newest.writer:
            return len(due) - first
        if store.delete_all(due[first : first + _AT_ONCE]):
            return len(due) - first
    return 0


def _unnamed(store: Store, tick: int, kept: Kept) -> list[str]:
    newest = max(kept.manifests)
    old = [name for name in manifest_names(store) if name < newest and name not in kept.manifests]
    folders = [folder for folder in (*FOLDERS, BEGUN) if folder != file_lists.FOLDER]
    there = [name for folder in folders for name in store.names(folder) if name not in kept.files]
    return old + [name for name in there if (of := tick_of(name)) is not None and of <= tick]


def tick_of(name: str) -> int | None:
    """The tick in which a file was made, as its name says it.

    >>> tick_of("runs/delivered.o-1-17-0f3a.arrow"), tick_of("marks/17-0f"), tick_of("files/0f3a")
    (17, 17, None)
    >>> tick_of("work/passing-17-0f3a-0-0.json"), tick_of("begun/000000000017.json")
    (17, 17)
    >>> tick_of("parts/000000000017-0f3a.json"), tick_of("parts/shed-17-0-2.json")
    (17, 17)
    """
    folder, _, own = name.partition("/")
    if folder == "work":
        match = _OF_WORK.match(own)
    elif folder in ("runs", "aside"):
        match = _OF_ROWS.search(own)
    else:
        match = _OTHERS.match(own)
    return int(match[1]) if match else None
