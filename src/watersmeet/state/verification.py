"""Whether all that a manifest names is there, and is what was written."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial

from watersmeet.errors import StateError
from watersmeet.state import file_lists, last_output
from watersmeet.state.manifest import Manifest
from watersmeet.state.marks import damaged_marks
from watersmeet.state.runs import merge_lineage
from watersmeet.state.runs.reader import damaged_runs
from watersmeet.state.store import Store


def verify_files(manifest: Manifest, store: Store) -> None:
    """Read all that the manifest names. Raises: StateError when something is missing or damaged."""
    for error in damage_in(manifest, store):
        raise error


def damage_in(manifest: Manifest, store: Store, whole: Container[str] = ()) -> Iterator[StateError]:
    """Yield an error for every missing or damaged object that the manifest names.

    Reads each name once.

    Args:
        whole: names that were read before; they are not read again.
    """
    runs = {live.run.name: live.run for live in manifest.runs() if live.run.name not in whole}
    yield from damaged_runs(store, list(runs.values()))
    segments = {
        (segment.file, segment.offset): segment
        for live in manifest.runs()
        for marks in live.marks.values()
        for segment in marks
        if segment.file not in whole
    }
    yield from damaged_marks(store, segments.values())
    for name, check in _checks(manifest, store):
        if name in whole:
            continue
        try:
            check()
        except StateError as error:
            yield error


def _checks(manifest: Manifest, store: Store) -> Iterator[tuple[str, Callable[[], object]]]:
    moved = {live.merged_from.file: live.merged_from for live in manifest.runs() if live.merged_from}
    for merged in moved.values():
        yield merged.file, partial(merge_lineage.verify_lineage_file, store, merged)
    for file_list in file_lists.lists_of(manifest.host):
        yield file_list.name, partial(file_lists.verify_file_list, store, file_list)
    kept = last_output.last_output_of(manifest.host)
    if kept is not None and kept.file is not None:
        yield kept.file, partial(last_output.verify_output_file, store, kept.file, kept.checksum)
