"""Rows, state and offsets in one transaction: where the tables of sinks are in the database of the state.

Which is the same is told by how the URLs are written: host, port, database, user and `options`. Sinks that
are elsewhere publish before that, as ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.objects.postgres_store import TablesStore, TransactionStore
from watersmeet.sinks.base import Sink
from watersmeet.sinks.part_mark import Identity
from watersmeet.sinks.postgres.sink import PostgresSink, publish_together
from watersmeet.state.commits import commit
from watersmeet.state.manifest import KnownPart, Manifest
from watersmeet.state.store import Store


@dataclass(frozen=True)
class AtomicCommit:
    """Sinks, each with its insert, whose rows come with the state; see `coordinator.commit.JointCommit`."""

    sinks: tuple[tuple[Sink, str], ...]

    @property
    def inserts(self) -> frozenset[str]:
        return frozenset(insert for _, insert in self.sinks)

    def create(self, store: Store, manifest: Manifest, attempt: str, identity: Identity) -> Manifest:
        return create_manifest_with_rows(store, manifest, self.sinks, attempt, identity)


def find_atomic_commit(store: Store, staged: Sequence[tuple[Sink, str]]) -> AtomicCommit | None:
    """Find the staged sinks that commit their rows together with the state; None without any."""
    if not isinstance(store, TablesStore) or store.place.database is None:
        return None
    database = store.place.database
    sinks = tuple(one for one in staged if isinstance(one[0], PostgresSink) and one[0].database == database)
    return AtomicCommit(sinks) if sinks else None


def create_manifest_with_rows(
    store: Store, manifest: Manifest, sinks: Sequence[tuple[Sink, str]], attempt: str, identity: Identity
) -> Manifest:
    """Commit the manifest as `state.commits.commit` does, with the rows staged in ``sinks``.

    Either everything is committed or nothing.

    Raises:
        StateError: as `state.commits.commit`.
        EngineError: the sinks' tables reject something.
    """
    assert isinstance(store, TablesStore)
    tables, writer = store, uuid.uuid4().hex  # the same when it is done again
    part = KnownPart(tick=manifest.tick, identity=dict(identity))

    def create(cursor: Any, inserts: list[str]) -> Manifest:
        parts = {**manifest.parts, **dict.fromkeys(inserts, part)}
        whole = manifest.model_copy(update={"parts": parts, "writer": writer})
        return commit(TransactionStore(tables, cursor), whole)

    of_tables = [(sink, insert) for sink, insert in sinks if isinstance(sink, PostgresSink)]
    return publish_together(of_tables, manifest.tick, attempt, identity, create)
