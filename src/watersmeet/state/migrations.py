"""Manifests of earlier formats, as this version reads them: a chain with a step per format.

A step takes the JSON of a manifest of one format and gives that of the next. It is made together with the new
format, and a state of the old one is put among the tests (`tests/state/formats`) before that. Files that a
manifest names stay as they are: whoever reads them has to know all of their forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from watersmeet.errors import StateError

STATE_VERSION = 9
"""The format that is written. Earlier ones than the first of `STEPS`, or than this, were never released."""

Step = Callable[[dict[str, Any]], dict[str, Any]]


def _eight(manifest: dict[str, Any]) -> dict[str, Any]:
    """Of format 9 runs may be sections of a file (`state.sections`): who does not know of them takes the file
    for one that nobody names. Each run of format 8 is a file of its own, as it may be."""
    return manifest


STEPS: Mapping[int, Step] = {8: _eight}
"""Format -> what makes the next one of it."""


def migrated(manifest: dict[str, Any], steps: Mapping[int, Step] = STEPS) -> dict[str, Any]:
    """A manifest's JSON in today's format.

    Raises:
        StateError: it is of a newer format, or of one that is not read any more.
    """
    version = manifest.get("state_version")
    if not isinstance(version, int):
        return manifest
    check_version(version, steps)
    while version < STATE_VERSION:
        manifest = {**steps[version](manifest), "state_version": version + 1}
        version += 1
    return manifest


def check_version(version: int | None, steps: Mapping[int, Step] = STEPS) -> None:
    """Raises: StateError as `migrated`; None: nobody knows, and nothing is said."""
    if version is None or version == STATE_VERSION:
        return
    if version > STATE_VERSION:
        raise StateError(
            f"the state has format {version}, but this version of watersmeet reads up to {STATE_VERSION}",
            code="state-version",
            hint="use the newer version of watersmeet that wrote it",
        )
    if version not in steps:
        oldest = min(steps, default=STATE_VERSION)
        reads = f"formats {oldest} to {STATE_VERSION}" if oldest < STATE_VERSION else f"{STATE_VERSION}"
        raise StateError(
            f"the state has format {version}, but this version of watersmeet reads {reads}",
            code="state-version",
            hint="use the version of watersmeet that wrote it, or start with an empty checkpoint directory",
        )
