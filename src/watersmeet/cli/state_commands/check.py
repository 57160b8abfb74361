"""`state check`: all that is kept is read and compared with its checksums. `state gc`: orphans go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from watersmeet.cli.state_commands.place import Place
from watersmeet.cli.state_commands.ticks import tick_of
from watersmeet.engine.spark.checkpoint.directory import Checkpoint
from watersmeet.errors import StateError, counted
from watersmeet.state.kept_ticks import garbage_in
from watersmeet.state.manifest import FOLDERS, load, manifest_names
from watersmeet.state.whole import damage_in


@dataclass
class Checked:
    """What a check found. ``files``: read, each once; ``problems``: per tick, those of the newest one make
    the state unusable; ``orphans``: names that no kept tick needs."""

    ticks: list[int] = field(default_factory=list)
    files: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"checked {counted(len(self.ticks), 'tick')}, {counted(self.files, 'file')}"
        for tick, problem in self.problems:
            yield f"tick {tick:,}: {problem}"
        if self.orphans:
            yield (
                f"{counted(len(self.orphans), 'file')} that no restorable tick needs: the job deletes them"
                " later, `watersmeet state gc` at once"
            )
        if not self.problems:
            yield "all files are there and match their checksums"


def checked(place: Place) -> Checked:
    """Read all of the state. The job may be running.

    Raises:
        StateError: there is no state.
    """
    store, result, whole = place.checkpoint.store, Checked(), set[str]()
    needed = set[str]()
    place.ticks()
    for read in (place.checkpoint.owner_there, place.checkpoint.intent, place.checkpoint.settings):
        try:
            read()
        except StateError as error:
            result.problems.append((tick_of(place.ticks()[-1]), error.message))
    stored = {name for folder in FOLDERS for name in store.names(folder)}
    for name in place.ticks():
        try:
            manifest = load(store, name)
            problems = [error.message for error in damage_in(manifest, store, whole)]
        except StateError as error:
            manifest, problems = None, [error.message]
        if name not in manifest_names(store):
            continue  # the job has gone on, and its files with it
        result.ticks.append(tick_of(name))
        result.problems += [(tick_of(name), problem) for problem in problems]
        if manifest is not None:
            needed |= manifest.files()
            whole |= set() if problems else manifest.names()
    result.files = len(needed)
    if not any("manifest" in problem for _, problem in result.problems):
        result.orphans = sorted(stored - needed)
    return result


def collected(place: Place) -> list[str]:
    """Remove what no kept tick names; the names.

    Raises:
        StateError: there is no state; the job is running; a kept tick cannot be read, so nobody knows what it
            names; a tick was interrupted, which has to be repeated by what it left.
    """
    place.in_a_directory()
    with place.checkpoint.locked():
        store = place.checkpoint.store
        ticks = place.ticks()
        begun = interrupted(place.checkpoint, tick_of(ticks[-1]))
        if begun is not None:
            raise StateError(
                f"tick {begun:,} was interrupted, and the next run repeats it from these files",
                code="tick-interrupted",
                hint="run the job again: its next tick removes what is not needed",
            )
        needed = set[str]().union(*(load(store, name).files() for name in ticks))
        store.sweep()
        garbage = garbage_in(store, ticks, needed)
        store.delete_all(garbage)
    return garbage


def interrupted(checkpoint: Checkpoint, committed: int) -> int | None:
    """The tick after the last committed one, if it was begun and has to be repeated by what it left."""
    following = committed + 1
    begun = any(name.startswith(f"work/{following}-") for name in checkpoint.store.names("work"))
    return following if begun else None
