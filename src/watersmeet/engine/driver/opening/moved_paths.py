"""The state of a job whose files were moved, as if the job had always read them from their new paths.

A query's fingerprint has the paths of its sources as written. Where that is all that differs for sources of
``JobPlan.moved``, the query is the same one.
"""

from __future__ import annotations

from watersmeet.engine.driver.opening.in_state_order import orders_of
from watersmeet.plan.identity.described import described
from watersmeet.plan.identity.fingerprint import fingerprint_of, place_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.manifest import Manifest


def path_before(manifest: Manifest, source: Source) -> str | None:
    """Return the path of a source as it was written in the last run; None: the state does not have it."""
    if manifest.places.get(source.name) == place_of(source):
        return path_of(source.options)
    for query in manifest.described.values():
        reads = query.get("reads", {}).get(source.name, {})
        if "path" in reads:
            return str(reads["path"])
    return None


def changed_paths(manifest: Manifest, plan: JobPlan) -> dict[str, str]:
    """Return, per source of local files that the state knows by another path, that path as it was written."""
    paths = {
        source.name: path_before(manifest, source)
        for source in plan.sources
        if source.traits.files and source.name in manifest.places
    }
    written = {source.name: path_of(source.options) for source in plan.sources}
    return {
        name: path
        for name, path in paths.items()
        if path is not None and path != written[name] and None not in map(local_path, (path, written[name]))
    }


def at_new_paths(manifest: Manifest, plan: JobPlan) -> Manifest:
    """Return the manifest with its queries as they are with the paths of today for ``plan.moved``."""
    paths = {name: path for name, path in changed_paths(manifest, plan).items() if name in plan.moved}
    if not paths:
        return manifest
    fingerprints, descriptions = dict(manifest.fingerprints), dict(manifest.described)
    for query in plan.apart or plan.queries:
        for one in orders_of(manifest, query) if query.name in fingerprints else ():
            if fingerprint_of(one.nodes, one.options, paths) == fingerprints[query.name]:
                fingerprints[query.name], descriptions[query.name] = one.fingerprint, described(one)
                break
    return manifest.model_copy(update={"fingerprints": fingerprints, "described": descriptions})
