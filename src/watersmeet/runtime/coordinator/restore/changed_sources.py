"""Sources that come to a job with state, go from it, move, or stand in another order: which the job resumes.

The job resumes a source at its offsets if the source has its name and reads from the same place. It reads a
new source, or one that reads from another place than before, as a new job does; so is one that went and comes
back. A query's fingerprint has the paths of its sources as written: where that is all that differs for
sources of ``JobPlan.moved``, the query is the same one.
"""

from __future__ import annotations

from watersmeet.plan.identity.fingerprint import fingerprint_of
from watersmeet.plan.identity.source_location import place_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.query_evolution import describe_query
from watersmeet.runtime.coordinator.restore.join_order import restore_order
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.manifest import Manifest


def goes_on(manifest: Manifest, plan: JobPlan) -> frozenset[str]:
    """Return the sources that the job has read before and continues to read."""
    moved = plan.moved & changed_paths(manifest, plan).keys()
    return frozenset(
        source.name
        for source in plan.sources
        if source.name in manifest.sources
        and (
            source.name in moved
            or manifest.places.get(source.name) in (None, place_of(source))  # None: nobody wrote it down
        )
    )


def are_others(manifest: Manifest, plan: JobPlan) -> bool:
    """Return True if the job's sources differ from those of the state, or have another order."""
    names = [source.name for source in plan.sources]
    return manifest.sources != names or len(goes_on(manifest, plan)) < len(names)


def said_of_sources(manifest: Manifest, plan: JobPlan) -> list[str]:
    """Describe the differences between the job's sources and those of the state."""
    names, stay = [source.name for source in plan.sources], goes_on(manifest, plan)
    said = [f'source "{name}" is no longer read' for name in manifest.sources if name not in names]
    for name in names:
        if name not in stay:
            where = (
                "reads from another place than before" if name in manifest.sources else "is new to the job"
            )
            said.append(f'source "{name}" {where}: the job reads it as a new job would')
    if not said and are_others(manifest, plan):
        said = [f"the sources are in another order: {', '.join(names)}"]
    return said


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
        for one in (query, restore_order(manifest, query)) if query.name in fingerprints else ():
            if one and fingerprint_of(one.nodes, one.options, paths) == fingerprints[query.name]:
                fingerprints[query.name], descriptions[query.name] = one.fingerprint, describe_query(one)
                break
    return manifest.model_copy(update={"fingerprints": fingerprints, "described": descriptions})
