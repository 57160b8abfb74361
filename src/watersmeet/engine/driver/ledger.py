"""What is committed of a job, and the next commit. The one thing of a run that changes from tick to tick."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.engine.driver.opening.new_queries import Contents
from watersmeet.engine.driver.sharing import incomplete_runs
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.state.commits import Commits, Create, fenced
from watersmeet.state.kept_ticks import KeptTicks
from watersmeet.state.manifest import KnownPart, Manifest, QueryState
from watersmeet.state.store import Store


@dataclass(frozen=True)
class Committed:
    """What the next tick goes on from.

    Args:
        manifest: the newest one; None before the first tick.
        begins: queries that begin with the next tick, in a job that has state.
        contents: rows of tables that other queries keep for those.
        incomplete: runs that several sides share and that lack a column of one of them.
    """

    manifest: Manifest | None = None
    begins: frozenset[str] = frozenset()
    contents: tuple[Contents, ...] = ()
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
        restored: Committed,
        shapes: Mapping[str, Sequence[NodeShape]],
        owner: str,
        keep_ticks: int,
    ) -> None:
        self.owner, self._store, self._shapes = owner, store, shapes
        self._newest = restored
        self._commits, self._kept = Commits(store), KeptTicks(store, keep_ticks)

    @property
    def newest(self) -> Committed:
        """Return what the next tick goes on from."""
        return self._newest

    def check(self) -> None:
        """Wait until it is known that the newest manifest may stay. Raises: StateError (`state.commits`)."""
        self._commits.check()

    def check_newest(self, before: Committed) -> None:
        """Raise StateError if a tick that goes on from ``before`` was committed meanwhile."""
        if before is not self._newest:
            raise fenced(before.tick + 1)

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
        self._newest = Committed(stored, incomplete=before.incomplete)
        if before.incomplete:  # what they were merged into is so, too
            merged = incomplete_runs(self._shapes, stored, self._store, before.manifest)
            self._newest = Committed(stored, incomplete=before.incomplete | merged)

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
