"""Copy a job's state, as of one tick, to another store, and verify that all its files are intact.

The job may be running: if a file has been deleted because its tick is over, the copy restarts with a newer
tick.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import TypeVar

from watersmeet.errors import StateError
from watersmeet.state import file_lists, last_output
from watersmeet.state.manifest import Manifest, load, load_newest, manifest_name, manifest_names
from watersmeet.state.marks import damaged_marks
from watersmeet.state.runs import layout
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
        yield merged.file, partial(layout.verify_lineage_file, store, merged)
    for file_list in file_lists.lists_of(manifest.host):
        yield file_list.name, partial(file_lists.verify_file_list, store, file_list)
    kept = last_output.last_output_of(manifest.host)
    if kept is not None and kept.file is not None:
        yield kept.file, partial(last_output.verify_output_file, store, kept.file, kept.checksum)


_ATTEMPTS = 8

Read = TypeVar("Read")


def copy_newest(source: Store, target: Store, on_begin: Callable[[Manifest], None]) -> Manifest:
    """Copy the newest manifest and all files that it names; write the manifest last.

    The manifest is written only after every copied file was read back.

    Args:
        target: has no manifest; files of an earlier, interrupted copy there stay or are reused.
        on_begin: receives the manifest to copy, once per attempt.

    Raises:
        StateError: ``source`` has no state or a damaged one, or ``target`` has a state, which may have
            appeared during the copy.
    """
    if manifest_names(target):
        raise _not_empty_error()

    def copy(manifest: Manifest) -> tuple[Manifest, bytes]:
        on_begin(manifest)
        sealed = bytes(source.read(manifest_name(manifest.tick)))
        _copy_files(manifest, source, target)
        return manifest, sealed

    manifest, sealed = read_newest(source, copy)
    verify_files(manifest, target)
    name = manifest_name(manifest.tick)
    is_ours = target.create(name, sealed) or bytes(target.read(name)) == sealed
    if not is_ours or manifest_names(target) != [name]:
        if is_ours:
            target.delete(name)  # of two, each of which finds the other's, none is taken for a state
        raise _not_empty_error()
    return load(target, name)


def _not_empty_error() -> StateError:
    return StateError(
        "the target of the copy already contains a state",
        code="not-empty",
        hint="use an empty target",
    )


def read_newest(source: Store, read: Callable[[Manifest], Read]) -> Read:
    """Apply ``read`` to the newest manifest and the files that it names.

    Retries with a newer manifest if the job commits and deletes files that ``read`` needs.

    Raises:
        StateError: ``source`` has no state, it is damaged, or the job commits too fast.
    """
    for _ in range(_ATTEMPTS):
        manifest = load_newest(source)
        if manifest is None:
            raise StateError("there is no state to copy: the job has committed no tick", code="no-state")
        try:
            return read(manifest)
        except StateError:
            if manifest_name(manifest.tick) in manifest_names(source)[-1:]:
                raise
    raise StateError(
        f"the job committed ticks faster than its state could be copied, {_ATTEMPTS} times",
        code="state-moves-on",
        hint="retain more ticks (SET keep_ticks = 50), or stop the job first: watersmeet stop --savepoint",
    )


def _copy_files(manifest: Manifest, source: Store, target: Store) -> None:
    folders = {name.rpartition("/")[0] for name in manifest.files()}
    there = {name for folder in folders for name in target.names(folder)}
    with target.together():
        for name in sorted(manifest.files() - there):
            target.write(name, source.read(name))
