"""Bugs, each put into the package while a simulation looks for it: what does not see them proves nothing.

The first three are those by which protocols like this one mostly fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any
from unittest.mock import patch

from tests.simulation.table import SimulatedTable
from tests.simulation.world import World
from watersmeet.errors import StateError
from watersmeet.runtime import tick as tick_module
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.input_watermarks import InputStates
from watersmeet.runtime.coordinator.query_tick import QueryTick
from watersmeet.runtime.coordinator.restore import job_state
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick, StartedTick
from watersmeet.runtime.spark.checkpoint.job_record import StoredJob
from watersmeet.sinks.lake.commits import Commit, TableWriter, Writer, commit_once, number_of
from watersmeet.sinks.lake.table_sink import LakeSink
from watersmeet.state import manifest as manifests
from watersmeet.state.checksums import add_checksum
from watersmeet.state.commits import Commits


@contextmanager
def commit_before_publish() -> Iterator[None]:
    """The manifest is created, and then the sink shows the rows."""

    def commit_tick(tick: ConcludedTick, staged: StagedParts, host: Any, **_: Any) -> None:
        tick.commit(host, [insert for _, insert in staged.parts])
        for sink, insert in staged.parts:
            sink.publish(insert, tick.result.tick, tick.begun.start.attempt, tick.identity)

    with patch.object(tick_module, "commit_tick", commit_tick):
        yield


@contextmanager
def second_sink_after_commit() -> Iterator[None]:
    """Of several inserts the last one is published when the manifest is there."""

    def commit_tick(tick: ConcludedTick, staged: StagedParts, host: Any, **_: Any) -> None:
        number, attempt = tick.result.tick, tick.begun.start.attempt
        before = staged.parts[: max(1, len(staged.parts) - 1)]
        for sink, insert in before:
            sink.publish(insert, number, attempt, tick.identity)
        tick.commit(host, [insert for _, insert in staged.parts])
        for sink, insert in staged.parts[len(before) :]:
            sink.publish(insert, number, attempt, tick.identity)

    with patch.object(tick_module, "commit_tick", commit_tick):
        yield


@contextmanager
def mark_after_commit() -> Iterator[None]:
    """The table takes the rows in one step, and the tick they are of in the next."""

    def append(self: Any, files: Sequence[Mapping[str, Any]], commit: Commit) -> None:
        named = [str(file["path"]) for file in files]
        self._commit("append", lambda: self._server.named.extend(named))
        self._ask("mark", lambda: self._mark(commit))

    with patch.object(SimulatedTable, "append", append):
        yield


@contextmanager
def stale_attempt_accepted() -> Iterator[None]:
    """What is staged of a tick is published, whichever attempt of a task wrote it."""
    take = LakeSink.take_parts

    def take_parts(self: Any, insert: str, tick: int, attempt: str, parts: Any) -> None:
        take(self, insert, tick, attempt, parts)
        told = {str(part["path"]): part for part in parts}
        others = [path for path in self._files(insert, tick) if path not in told]
        for path in others if parts else []:
            self._staged[insert, tick, attempt].append({**parts[0], "path": path, "rows": 0})

    with patch.object(LakeSink, "take_parts", take_parts):
        yield


@contextmanager
def fences_ignored() -> Iterator[None]:
    """Of two drivers none is told of the other: not by the manifest, not by what a tick begins with, not by
    the table. (With one of these fences alone nothing is lost: the next one holds.)"""
    begin, look = StoredJob.begin, SimulatedTable.look
    fences: dict[tuple[int, Writer], int] = {}

    def commit(self: Any, manifest: Any, create: Any = None) -> Any:
        assert World.current is not None
        name, number = manifests.manifest_name(manifest.tick), World.current.points
        stored = manifest.model_copy(update={"writer": f"{number:032x}"})
        self._store.create(name, add_checksum(name, stored.model_dump_json()))
        return stored

    def begin_ignoring_state_errors(self: Any, tick: int, record: Any, follows: str = "") -> None:
        with suppress(StateError):
            begin(self, tick, record, follows)

    def fence(self: Any, writer: Writer, number: int) -> None:
        fences[id(self), writer] = number

    def look_with_local_fence(self: Any, writer: Writer) -> TableWriter:
        return TableWriter(look(self, writer).last, fences.get((id(self), writer)))

    with (
        patch.object(Commits, "commit", commit),
        patch.object(StoredJob, "begin", begin_ignoring_state_errors),
        patch.object(SimulatedTable, "fence", fence),
        patch.object(SimulatedTable, "look", look_with_local_fence),
        patch("watersmeet.sinks.lake.commits.check_before", lambda *_: None),
        patch("watersmeet.sinks.lake.table_sink.check_before", lambda *_: None),
    ):
        yield


@contextmanager
def look_not_waited_for() -> Iterator[None]:
    """Nobody asks what came of the look after a manifest was created. (That shows where a run slept just then
    and another one went on for long: `test_takeovers`.)"""
    with patch.object(Commits, "check", lambda _: None):
        yield


@contextmanager
def beginning_forgotten() -> Iterator[None]:
    """A tick that is repeated is made of whatever there is to be read by then."""
    with patch.object(StoredJob, "begin", lambda *_: None):
        yield


@contextmanager
def passed_not_seen() -> Iterator[None]:
    """Who begins a tick does not look whether others have committed it meanwhile."""
    with patch.object(StoredJob, "check_not_committed", lambda *_: None):
        yield


@contextmanager
def repeated_with_other_files() -> Iterator[None]:
    """A tick that the table has is put into it once more, when it is another attempt that publishes it."""

    def again(table: Any, commit: Commit, put: Any, *of: Any) -> Any:
        there = commit_once(table, commit, put, *of)
        if there is not None and there.tick == commit.tick and there.attempt != number_of(commit.attempt):
            put()
            return None
        return there

    with patch("watersmeet.sinks.lake.table_sink.commit_once", again):
        yield


@contextmanager
def watermark_of_what_came_to_nothing() -> Iterator[None]:
    """A run that repeats a tick begins with the watermarks to which an attempt before had moved them."""
    advance, states = StartedTick.advance, InputStates.at
    moved: dict[tuple[int, int], Any] = {}

    def advance_and_save_inputs(self: StartedTick, *of: Any, **named: Any) -> Any:
        running = advance(self, *of, **named)
        moved[id(World.current), self.start.tick] = deepcopy(self.inputs)
        return running

    def load_saved_inputs(self: Any, manifest: Any, clock_us: int) -> Any:
        tick = 1 if manifest is None else manifest.tick + 1
        there = moved.get((id(World.current), tick))
        return states(self, manifest, clock_us) if there is None else deepcopy(there)

    with (
        patch.object(StartedTick, "advance", advance_and_save_inputs),
        patch.object(InputStates, "at", load_saved_inputs),
    ):
        yield


@contextmanager
def released_before_matched() -> Iterator[None]:
    """In a tick that is repeated what is released goes before it is matched."""
    made_driver, work = TickDriver.__init__, QueryTick.work
    repeated: set[tuple[int, str, int]] = set()

    def key(tick: int) -> tuple[int, str, int]:
        world = World.current
        assert world is not None
        assert world.fiber is not None
        return id(world), world.fiber.process.name, tick

    def drives(self: Any, restored: Any, owner: Any = None, *, repeats: bool = False) -> None:
        made_driver(self, restored, owner, repeats=repeats)
        if repeats:
            repeated.add(key(self.tick + 1))

    def of_node(self: Any, number: int) -> Any:
        made = work(self, number)
        if key(self.tick) in repeated:
            for side in made.sides:
                side.old_limits = side.new_limits
        return made

    with patch.object(TickDriver, "__init__", drives), patch.object(QueryTick, "work", of_node):
        yield


@contextmanager
def cache_not_compared() -> Iterator[None]:
    """What a cache has under a name is taken for what the store has, whatever it is."""
    with patch("watersmeet.objects.cache.checksum", lambda *_: b"0" * 20):
        yield


@contextmanager
def narrowed_from_nothing() -> Iterator[None]:
    """A query that is taken over when it is narrower begins without the rows that were kept."""
    restore = job_state.restore

    def restore_without_runs(*of: Any, **named: Any) -> Any:
        restored = restore(*of, **named)
        if restored.context.settings.change_queries and restored.manifest is not None:
            for query in restored.manifest.queries.values():
                for node in query.nodes:
                    for kept in node.arrangements.values():
                        kept.runs.clear()
        return restored

    with patch("watersmeet.runtime.local.job.restore", restore_without_runs):
        yield


@contextmanager
def sections_are_files() -> Iterator[None]:
    """What is needed of the store goes by the names of sections, which are no object's."""
    with patch.object(manifests.Manifest, "files", manifests.Manifest.names):
        yield


MISFIT = re.compile(r"\b(TypeError|AttributeError|NameError|ImportError)\b")
"""Of what a planted bug leads to, if the code has changed beneath it: then it proves nothing."""

PLANTED: dict[str, Callable[[], Any]] = {
    "commit before publish": commit_before_publish,
    "second sink after commit": second_sink_after_commit,
    "mark after commit": mark_after_commit,
    "stale attempt accepted": stale_attempt_accepted,
    "fences ignored": fences_ignored,
    "beginning forgotten": beginning_forgotten,
    "passed not seen": passed_not_seen,
    "repeated with other files": repeated_with_other_files,
    "watermark of what came to nothing": watermark_of_what_came_to_nothing,
    "released before matched": released_before_matched,
    "cache not compared": cache_not_compared,
    "narrowed from nothing": narrowed_from_nothing,
    "sections are files": sections_are_files,
}
