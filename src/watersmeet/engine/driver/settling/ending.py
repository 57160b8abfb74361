"""How a tick ends: the sinks show its rows, then its manifest is created. In this order, on any engine:

    check all sinks ──> publish each ──> commit

A sink that shows rows of a tick which no manifest has yet is asked for the same tick again, and sees by its
identity that it is there. The other way round rows would be lost. Rows that come in one transaction with the
manifest (`Joint`) are there or not there with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from watersmeet.engine.driver.identity import Identity
from watersmeet.engine.driver.open_tick import ConcludedTick
from watersmeet.engine.driver.results import TickResult
from watersmeet.errors import WatersmeetError
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store


class Shows(Protocol):
    """Of a sink, what the end of a tick asks; see `sinks.base.Sink`."""

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        """Raise what `publish` would."""

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Show what ``attempt`` staged; whether there is a part of the tick now."""


class Completion(Protocol):
    """What is told last, when all sinks show their rows."""

    def check(self, tick: int, identity: Identity) -> None:
        """Raise what `tell` would."""

    def tell(self, result: TickResult, attempt: str, identity: Identity) -> list[str]:
        """Say that the tick is complete; the inserts of which there is a part now."""


class Joint(Protocol):
    """Rows that come with the manifest. ``inserts``: whose."""

    @property
    def inserts(self) -> frozenset[str]: ...

    def create(self, store: Store, manifest: Manifest, attempt: str, identity: Identity) -> Manifest:
        """As `state.commits.commit`, with the rows that ``attempt`` staged, or nothing."""


@dataclass(frozen=True)
class Staged:
    """What the tasks of a tick have staged.

    Args:
        parts: sinks that have rows of it, each with the insert that they are of.
        completion: what is told when all of them show their rows.
        joint: of some of ``parts``; with a ``completion`` there is none, for that comes after all rows.
    """

    parts: Sequence[tuple[Shows, str]] = ()
    completion: Completion | None = None
    joint: Joint | None = None


def check_parts(tick: ConcludedTick, staged: Staged) -> None:
    """Raise what publishing would, before any sink publishes."""
    plan, number = tick.begun.run.plan, tick.result.tick
    for sink, insert in staged.parts:
        with _named(plan, insert):
            sink.check(insert, number, tick.identity)
    if staged.completion is not None:
        staged.completion.check(number, tick.identity)


def end_tick(
    tick: ConcludedTick,
    staged: Staged,
    host: Mapping[str, Any],
    *,
    mark: Callable[[str], None] = lambda phase: None,
) -> None:
    """Publish what a tick has staged, and commit it. All sinks have agreed (`check_parts`).

    Args:
        host: what the manifest remembers for the engine.
        mark: is told that a phase is done, for timings.
    """
    plan, number, attempt = tick.begun.run.plan, tick.result.tick, tick.begun.start.attempt
    completion, joint = staged.completion, staged.joint
    published = []
    for sink, insert in staged.parts:
        if joint is not None and insert in joint.inserts:
            continue
        with _named(plan, insert):
            published += [insert] if sink.publish(insert, number, attempt, tick.identity) else []
    if completion is not None:
        published += completion.tell(tick.result, attempt, tick.identity)
    mark("publish")
    create = None if joint is None else partial(joint.create, attempt=attempt, identity=tick.identity)
    tick.commit(host, published, create)
    mark("commit")


@contextmanager
def _named(plan: JobPlan, insert: str) -> Iterator[None]:
    """Of several INSERTs an error says which one it is of: sinks know what they are called, and several
    INSERTs may go to one."""
    try:
        yield
    except WatersmeetError as error:
        if f'"{insert}"' not in error.message:
            is_query = any(query.name == insert for query in plan.queries)
            error.message = f'{"INSERT " if is_query else ""}"{insert}": {error.message}'
        raise
