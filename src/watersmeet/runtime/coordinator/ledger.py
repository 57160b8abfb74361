"""Committed state of a run, and the identity by which a repeated tick is recognized."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.retained_runs import incomplete_runs
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.messages.work import TickStart
from watersmeet.state.commits import Commits, Create, fencing_error
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import KnownPart, Manifest, QueryState
from watersmeet.state.store import Store

# What is committed of a job, and the next commit. The one thing of a run that changes from tick to tick.


class TableBackfill(Protocol):
    """Rows of a table that a new query receives in its first tick; another query retains them."""

    def report(self, start: TickStart, store: Store) -> IngestReport:
        """Write the rows as rows of the tick, and return the report that an ingest task would return."""


@dataclass(frozen=True)
class CommittedState:
    """State from which the next tick resumes.

    Args:
        manifest: the newest manifest; None before the first tick.
        begins: queries that start with the next tick, in a job that already has state.
        contents: rows of tables that other queries retain and that backfill the starting queries.
        incomplete: runs that several sides share and that lack a column of one of them.
    """

    manifest: Manifest | None = None
    begins: frozenset[str] = frozenset()
    contents: tuple[TableBackfill, ...] = ()
    incomplete: frozenset[str] = frozenset()

    @property
    def tick(self) -> int:
        """Return the number of the last committed tick; 0 before the first."""
        return self.manifest.tick if self.manifest else 0

    def query(self, name: str) -> QueryState:
        """Return the state of a query; an empty one before its first tick."""
        return self.manifest.queries[name] if self.manifest else QueryState()


class Ledger:
    """The commits of one run over one store.

    Args:
        restored: what the store held when the run began.
        shapes: per query, of its nodes.
        owner: the id of the state.
        keep_ticks: how many manifests stay, the newest among them.
    """

    def __init__(
        self,
        store: Store,
        restored: CommittedState,
        shapes: Mapping[str, Sequence[NodeShape]],
        owner: str,
        keep_ticks: int,
    ) -> None:
        self.owner, self._store, self._shapes = owner, store, shapes
        self._newest = restored
        self._commits, self._kept = Commits(store), TickRetention(store, keep_ticks)

    @property
    def newest(self) -> CommittedState:
        """Return what the next tick goes on from."""
        return self._newest

    def check(self) -> None:
        """Wait until it is known that the newest manifest may stay. Raises: StateError (`state.commits`)."""
        self._commits.check()

    def check_newest(self, before: CommittedState) -> None:
        """Raise StateError if a tick that goes on from ``before`` was committed meanwhile."""
        if before is not self._newest:
            raise fencing_error(before.tick + 1)

    def commit(
        self,
        manifest: Manifest,
        host: Mapping[str, Any],
        published: Collection[str] = (),
        create: Create | None = None,
    ) -> None:
        """Create the manifest of a tick. What is no longer needed stays until `collect_garbage`.

        Args:
            host: what it remembers for the engine.
            published: the inserts of which there is a part of this tick now.
            create: as `state.commits.commit`.
        """
        before = self._newest
        part = KnownPart(tick=manifest.tick, identity=manifest.identity)
        parts = {} if before.manifest is None else before.manifest.parts
        fields = {
            "host": dict(host),
            "owner": self.owner,
            "follows": "" if before.manifest is None else before.manifest.writer,
            "parts": {**parts, **dict.fromkeys(published, part)},
        }
        stored = self._commits.commit(manifest.model_copy(update=fields), create)
        self._newest = CommittedState(stored, incomplete=before.incomplete)
        if before.incomplete:  # what they were merged into is so, too
            merged = incomplete_runs(self._shapes, stored, self._store, before.manifest)
            self._newest = CommittedState(stored, incomplete=before.incomplete | merged)

    def collect_garbage(self) -> None:
        """Delete what no kept manifest names, in remote stores behind the next tick."""
        assert self._newest.manifest is not None
        self._kept.commit(self._newest.manifest, self._commits.check)

    def settle(self) -> None:
        """Wait until nothing is deleted behind the last tick."""
        self._kept.settle()

    def close(self) -> None:
        """Let nothing of the last tick go on: called before another run may begin."""
        self._commits.close()
        self._kept.close()


# What a tick's rows were made from: by this a tick is known again when it is repeated, and told from
# another one that has its number.
#
# The same for every attempt at a tick, on however many tasks. Names are for people: a refusal says which
# of them differ.

Identity = dict[str, str]
"""Name -> digest."""


def build_tick_identity(
    plan: JobPlan,
    before: Manifest | None,
    manifest: Manifest,
    rows_in: Mapping[str, int],
    told: Mapping[str, str],
) -> Identity:
    """Build the identity of the tick that ``manifest`` is about to commit.

    Args:
        before: the last committed manifest.
        rows_in: rows read, per source.
        told: further facts of the engine (offsets, settings), as text.
    """
    return {
        "ticks before it": compute_digest(before.identity if before is not None else {}),
        "clock": compute_digest([manifest.clock_us, manifest.finished]),
        **{name: compute_digest(text) for name, text in told.items()},
        "rows": compute_digest([rows_in, _partitions(plan, manifest)]),
        "tables": compute_digest(_tables(manifest)),
    }


def compute_digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _partitions(plan: JobPlan, manifest: Manifest) -> list[Any]:
    """List the greatest times of all source partitions and which partitions are idle.

    The list omits when a partition was last active: each attempt takes that from its own clock.
    """
    return [
        [
            query.name,
            side.name,
            [
                [name, {c: str(t) for c, t in partition.greatest.items()}, partition.idle]
                for name, partition in sorted(
                    manifest.queries[query.name].inputs[side.name].branches[number].partitions.items()
                )
            ],
        ]
        for query in plan.queries
        for side in query.sides
        for number, _ in side.ingested
    ]


def _tables(manifest: Manifest) -> list[Any]:
    """List the contents (version and checksums) of the table copies that rows joined with."""
    return [
        [name, number, node.table.version, [run.checksum for run in node.table.runs]]
        for name, query in manifest.queries.items()
        for number, node in enumerate(query.nodes)
        if node.table is not None
    ]
