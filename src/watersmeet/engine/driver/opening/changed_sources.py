"""Sources that come to a job with state, go from it, or stand in another order: which go on being read.

A source goes on from where it was if it has its name and reads from the same place. One that is new, or reads
from another place than before, is read as by a job that begins; so is one that went and comes back.
"""

from __future__ import annotations

from watersmeet.engine.driver.opening.moved_paths import changed_paths
from watersmeet.plan.identity.fingerprint import place_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest


def goes_on(manifest: Manifest, plan: JobPlan) -> frozenset[str]:
    """The sources that the job has read, and goes on reading."""
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
    """Whether the job reads other sources than the state was made with, or in another order."""
    names = [source.name for source in plan.sources]
    return manifest.sources != names or len(goes_on(manifest, plan)) < len(names)


def said_of_sources(manifest: Manifest, plan: JobPlan) -> list[str]:
    """What there is to say of it, for people."""
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
