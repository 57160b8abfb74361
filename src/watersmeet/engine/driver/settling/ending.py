"""How a tick ends: the sinks show its rows, then its manifest is created. In this order, on any engine:

    conclude ──> identify ──> check all sinks ──> publish each ──> commit

A sink that shows rows of a tick which no manifest has yet is asked for the same tick again, and sees by its
identity that it is there. The other way round rows would be lost. Rows that come in one transaction with the
manifest (`Joint`) are there or not there with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.identity import Identity
from watersmeet.engine.driver.results import TickResult
from watersmeet.errors import WatersmeetError
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


def end_tick(
    driver: TickDriver,
    staged: Sequence[tuple[Shows, str]],
    attempt: str,
    *,
    host: Mapping[str, Any],
    told: Mapping[str, str],
    completion: Completion | None = None,
    joint: Joint | None = None,
    mark: Callable[[str], None] = lambda part: None,
    leave: Callable[[], None] = lambda: None,
) -> TickResult:
    """End the open tick, all nodes of which are settled.

    Args:
        staged: sinks that have staged rows of it, each with the insert that they are of.
        attempt: by which they were staged.
        host: what the manifest remembers for the engine.
        told: what tells the tick from others of its number; see `identity_of`.
        joint: of some of ``staged``; with a ``completion`` there is none, for that comes after all rows.
        mark: is told that a part of it is done, for timings.
        leave: is told that rows may be out from now on.
    """
    result = driver.conclude()
    identity = driver.identify(told)
    for sink, insert in staged:
        with _named(driver, insert):
            sink.check(insert, result.tick, identity)
    if completion is not None:
        completion.check(result.tick, identity)
    leave()
    parts = []
    for sink, insert in staged:
        if joint is not None and insert in joint.inserts:
            continue
        with _named(driver, insert):
            parts += [insert] if sink.publish(insert, result.tick, attempt, identity) else []
    if completion is not None:
        parts += completion.tell(result, attempt, identity)
    mark("publish")
    if joint is None:
        driver.commit(host, parts)
    else:
        driver.commit(host, parts, partial(joint.create, attempt=attempt, identity=identity))
    mark("commit")
    return result


@contextmanager
def _named(driver: TickDriver, insert: str) -> Iterator[None]:
    """Of several INSERTs an error says which one it is of: sinks know what they are called, and several
    INSERTs may go to one."""
    try:
        yield
    except WatersmeetError as error:
        if f'"{insert}"' not in error.message:
            is_query = any(query.name == insert for query in driver.plan.queries)
            error.message = f'{"INSERT " if is_query else ""}"{insert}": {error.message}'
        raise
