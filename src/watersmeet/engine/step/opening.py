"""What is checked when state is opened: that it belongs to this plan, and that it is whole."""

from __future__ import annotations

from watersmeet.errors import StateError
from watersmeet.plan.model import JobPlan
from watersmeet.state.manifest import Manifest
from watersmeet.state.marks import stored_marks
from watersmeet.state.run import verify_run
from watersmeet.state.store import Store


def check_same_job(manifest: Manifest, plan: JobPlan) -> None:
    """Raises: StateError when the state is of another query or other sources."""
    fingerprints = {query.name: query.fingerprint for query in plan.queries}
    if manifest.fingerprints != fingerprints:
        changed = sorted(
            name
            for name in {*manifest.fingerprints, *fingerprints}
            if manifest.fingerprints.get(name) != fingerprints.get(name)
        )
        raise StateError(
            f"the stored state is of another query: {', '.join(changed)} changed",
            code="changed-query",
            hint="run the query that the checkpoint was made with, or use a new checkpoint directory",
        )
    sources = [source.name for source in plan.sources]
    if manifest.sources != sources:
        raise StateError(
            f"the sources are {', '.join(sources)}, "
            f"but the state was made with {', '.join(manifest.sources)}",
            code="changed-sources",
            hint="keep the sources and their order, or use a new checkpoint directory",
        )


def verify_files(manifest: Manifest, store: Store) -> None:
    """Read all that the manifest names. Raises: StateError when something is missing or damaged."""
    for live in manifest.runs():
        verify_run(store, live.run)
        for segments in live.marks.values():
            for segment in segments:
                stored_marks(store, segment, verify=True)
