"""A run that another one has overtaken is told so, and not what it looks like from where it was.

A driver that slept goes on from an old manifest. Files that it needs are gone by then, as if the state were
damaged, and sinks are further on than it, as if the state had been restored from a copy. Nobody is to
restore anything then: what is wrong is that two runs are at work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from watersmeet.errors import StateError, WatersmeetError
from watersmeet.state.manifest import Manifest, manifest_name, manifest_names, writer_of
from watersmeet.state.store import Store

_LOOKS_LIKE = frozenset({"state-missing", "sink-ahead"})
"""Codes of errors that being overtaken may come as."""


Begun = Callable[[int, str], object | None]
"""With what a tick was begun by who goes on from the manifest of that writer, if it was."""


class GoesOnFrom(Protocol):
    """What a run goes on from: the newest manifest that it knows, of a store."""

    @property
    def store(self) -> Store: ...

    @property
    def manifest(self) -> Manifest | None: ...


def unless_overtaken(
    error: Exception, goes_on_from: GoesOnFrom | None, begun: Begun | None = None
) -> Exception:
    """The error with which a run is to end: ``error``, unless others have committed meanwhile, or put rows of
    the next tick out, which is still to be committed.

    Args:
        goes_on_from: None: the run has not read its state yet.
        begun: tells of the next tick; None: the run knew, before it asked its sinks, that it was begun, or
            began it itself.
    """
    if goes_on_from is None or not isinstance(error, WatersmeetError) or error.code not in _LOOKS_LIKE:
        return error
    store, own = goes_on_from.store, goes_on_from.manifest
    tick, is_begun = 0 if own is None else own.tick, False
    try:
        if begun is not None and error.code == "sink-ahead":  # before the manifests: one takes its place
            is_begun = begun(tick + 1, "" if own is None else own.writer) is not None
        names = manifest_names(store)
        if not names and not is_begun:
            return error
        is_newest = own is not None and bool(names) and names[-1] == manifest_name(own.tick)
        if is_begun:
            gone_on = f"started tick {tick + 1}"
        elif own is not None and is_newest and writer_of(store, own.tick) in (own.writer, None):
            return error
        else:
            gone_on = f'continued ("{names[-1]}")'
    except StateError:
        return error
    return StateError(
        f"another run of the job has {gone_on}, and this run is at tick {tick}: this run stops, and"
        " nothing is lost",
        code="state-fenced",
        hint="stop the other run, then run again: only one run of a job may use a store at a time",
    )
