"""A run that another one has overtaken is told so, and not what it looks like from where it was.

A driver that slept goes on from an old manifest. Files that it needs are gone by then, as if the state were
damaged, and sinks are further on than it, as if the state had been restored from a copy. Nobody is to
restore anything then: what is wrong is that two runs are at work.
"""

from __future__ import annotations

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.errors import StateError, WatersmeetError
from watersmeet.state.manifest import manifest_name, manifest_names, writer_of

_LOOKS_LIKE = frozenset({"state-missing", "sink-ahead"})
"""Codes of errors that being overtaken may come as."""


def unless_overtaken(error: Exception, driver: TickDriver | None) -> Exception:
    """The error with which a run is to end: ``error``, unless others have committed meanwhile. ``driver``:
    the run's, which has the manifest that it goes on from; None: it had none yet."""
    if driver is None or not isinstance(error, WatersmeetError) or error.code not in _LOOKS_LIKE:
        return error
    store, own = driver.store, driver.manifest
    try:
        names = manifest_names(store)
        if not names:
            return error
        is_newest = own is not None and names[-1] == manifest_name(own.tick)
        if own is not None and is_newest and writer_of(store, own.tick) in (own.writer, None):
            return error
    except StateError:
        return error
    tick = 0 if own is None else own.tick
    return StateError(
        f'another run of the job has gone on meanwhile ("{names[-1]}"), and this one is at tick {tick}: it '
        "is stopped, and nothing is lost",
        code="state-fenced",
        hint="only one run of a job may use a store at a time; stop the other one, then run again",
    )
