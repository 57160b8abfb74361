"""Commit a tick: publish the sinks' rows, create the manifest, detect fencing by another run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from watersmeet.errors import StateError, WatersmeetError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.ledger import Identity
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.state.manifest import Manifest, manifest_name, manifest_names, writer_of
from watersmeet.state.store import Store

# How a tick ends: the sinks show its rows, then its manifest is created. In this order, on any engine:
#
#     check all sinks ──> publish each ──> commit
#
# A sink that shows rows of a tick which no manifest has yet is asked for the same tick again, and sees by
# its identity that it is there. The other way round rows would be lost. Rows that come in one transaction
# with the manifest (`JointCommit`) are there or not there with it.


class Publisher(Protocol):
    """Interface of a sink that `commit_tick` uses; see `sinks.base.Sink`."""

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        """Raise what `publish` would."""

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Show what ``attempt`` staged; whether there is a part of the tick now."""


class Completion(Protocol):
    """Interface of the final step of a tick, after all sinks show their rows."""

    def check(self, tick: int, identity: Identity) -> None:
        """Raise what `tell` would."""

    def tell(self, result: TickResult, attempt: str, identity: Identity) -> list[str]:
        """Say that the tick is complete; the inserts of which there is a part now."""


class JointCommit(Protocol):
    """Rows that come with the manifest. ``inserts``: whose."""

    @property
    def inserts(self) -> frozenset[str]: ...

    def create(self, store: Store, manifest: Manifest, attempt: str, identity: Identity) -> Manifest:
        """Commit the manifest and the rows that ``attempt`` staged atomically, or neither.

        See `state.commits.commit`.
        """


@dataclass(frozen=True)
class StagedParts:
    """Rows of a tick that tasks staged.

    Args:
        parts: the sinks that have rows of the tick, each with the name of its INSERT.
        completion: the final step, called after all ``parts`` show their rows.
        joint: commits the rows of some of ``parts`` with the manifest. None if there is a
            ``completion``, because the completion follows all rows.
    """

    parts: Sequence[tuple[Publisher, str]] = ()
    completion: Completion | None = None
    joint: JointCommit | None = None


def check_parts(tick: ConcludedTick, staged: StagedParts) -> None:
    """Raise what publishing would, before any sink publishes."""
    plan, number = tick.begun.run.plan, tick.result.tick
    for sink, insert in staged.parts:
        with _name_insert_in_errors(plan, insert):
            sink.check(insert, number, tick.identity)
    if staged.completion is not None:
        staged.completion.check(number, tick.identity)


def commit_tick(
    tick: ConcludedTick,
    staged: StagedParts,
    host: Mapping[str, Any],
    *,
    mark: Callable[[str], None] = lambda phase: None,
) -> None:
    """Publish the staged rows of a tick and commit its manifest.

    All sinks must have passed `check_parts`.

    Args:
        host: engine data that the manifest stores.
        mark: called with the name of each finished phase, for timings.
    """
    plan, number, attempt = tick.begun.run.plan, tick.result.tick, tick.begun.start.attempt
    completion, joint = staged.completion, staged.joint
    published = []
    for sink, insert in staged.parts:
        if joint is not None and insert in joint.inserts:
            continue
        with _name_insert_in_errors(plan, insert):
            published += [insert] if sink.publish(insert, number, attempt, tick.identity) else []
    if completion is not None:
        published += completion.tell(tick.result, attempt, tick.identity)
    mark("publish")
    create = None if joint is None else partial(joint.create, attempt=attempt, identity=tick.identity)
    tick.commit(host, published, create)
    mark("commit")


@contextmanager
def _name_insert_in_errors(plan: JobPlan, insert: str) -> Iterator[None]:
    """Add the name of the INSERT to the message of an error that does not contain it.

    Sinks know only their own names, and several INSERTs may write to one sink.
    """
    try:
        yield
    except WatersmeetError as error:
        if f'"{insert}"' not in error.message:
            is_query = any(query.name == insert for query in plan.queries)
            error.message = f'{"INSERT " if is_query else ""}"{insert}": {error.message}'
        raise


# A run that another one has overtaken is told so, and not what it looks like from where it was.
#
# A driver that slept goes on from an old manifest. Files that it needs are gone by then, as if the state
# were damaged, and sinks are further on than it, as if the state had been restored from a copy. Nobody is
# to restore anything then: what is wrong is that two runs are at work.

_FENCING_CODES = frozenset({"state-missing", "sink-ahead"})
"""Codes of errors that being overtaken may come as."""


LoadIntent = Callable[[int, str], object | None]
"""With what a tick was begun by who goes on from the manifest of that writer, if it was."""


class ResumePoint(Protocol):
    """Point from which a run resumes: a store and the newest manifest that the run knows."""

    @property
    def store(self) -> Store: ...

    @property
    def manifest(self) -> Manifest | None: ...


def explain_fencing(
    error: Exception, goes_on_from: ResumePoint | None, begun: LoadIntent | None = None
) -> Exception:
    """Return the error that ends a run: ``error``, or `state-fenced` if another run took over.

    Another run took over if it committed in the meantime, or if it started the next tick, of which it
    may have published rows, and has not committed that tick yet.

    Args:
        goes_on_from: the run's resume point; None if the run has not read its state yet.
        begun: loads the write-ahead intent of the next tick. None if the run itself started that tick,
            or knew before it checked its sinks that the tick was started.
    """
    if goes_on_from is None or not isinstance(error, WatersmeetError) or error.code not in _FENCING_CODES:
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
