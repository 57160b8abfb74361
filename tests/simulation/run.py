"""A run of a job in a world, step by step as `runtime.spark.job.run.JobRun` does it: what is left of Spark
is that tasks run somewhere, more than once perhaps."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tests.simulation.jobs import INSERTS, Log, plan_for, query_of
from tests.simulation.world import Fiber, Killed, Process, Threads, World
from tests.support.columns import column
from tests.support.sinking import stage
from watersmeet.errors import WatersmeetError
from watersmeet.names import SHOWN_DIFF, SHOWN_TICK
from watersmeet.objects.object_store import ObjectStore
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.commit import ResumePoint, StagedParts, explain_fencing
from watersmeet.runtime.coordinator.driver import Restored, TickDriver
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.evaluate import move_to_borders
from watersmeet.runtime.local.tick import SinkStaging, read_side_outputs
from watersmeet.runtime.spark.checkpoint.job_record import StoredJob
from watersmeet.sinks.base import Sink
from watersmeet.sinks.part_mark import Resumed

Result = TypeVar("Result")

TASKS = (1, 1, 2, 2, 4)
"""So many a node has, drawn when a run begins, and now and then later."""

FAN_INS = (2, 3, 8)
"""So many runs of rows are merged into one."""

SHED_INSERT, SHED_COLUMNS = "shed-rows", ("input", "reason", "record")
"""The name of the part of rows that were shed, as on Spark, and some of its columns."""

SETTINGS = "settings"
_TOLD = ("batch", "offsets", "clock_us", "end")


@dataclass(frozen=True)
class Trouble:
    """How often things go wrong with tasks."""

    twice: float = 0.0
    killed: float = 0.0


class Attempts:
    """Tasks on other machines: they may be killed, run twice, or go on when all is over."""

    def __init__(self, world: World, trouble: Trouble) -> None:
        self._world, self._trouble = world, trouble

    def run(self, task: Callable[..., Result], *arguments: Any) -> Result:
        draw, trouble = self._world.random, self._trouble
        while draw.random() < trouble.killed:
            self._spawn(task, arguments, crash_at=draw.randrange(1, 6))
        if draw.random() >= trouble.twice:
            return task(*arguments)
        self._world.counts["tasks run twice"] += 1
        other = self._spawn(task, arguments, sleeps={draw.randrange(1, 6): draw.choice([0.001, 0.1, 5, 60])})
        own = _pickle_round_trip(task)(*_pickle_round_trip(arguments))
        if other.done and other.error is None and not other.killed and draw.random() < 0.5:
            return other.result()
        return own

    def _spawn(self, task: Any, arguments: Any, crash_at: int | None = None, **of: Any) -> Fiber:
        task, arguments = _pickle_round_trip((task, arguments))
        return self._world.spawn(Process("task", crash_at, **of), lambda: task(*arguments))


def _pickle_round_trip(value: Any) -> Any:
    """As it comes to another machine."""
    return pickle.loads(pickle.dumps(value))


@dataclass
class Run:
    """One run of the job, until its input has ended. ``logs``: what there is to be read. ``sinks``: its own,
    per insert. ``draw``: by which it decides what to read. ``near``: hashes of keys are next to the borders
    of tasks. ``set_aside``: parts of later ticks are moved out of sight. ``shed``: where rows
    go that were shed. ``change_queries``: the query may be another one than that of the state.
    ``stops_after``: so many ticks, before the input has ended."""

    world: World
    queries: tuple[str, ...]
    store: ObjectStore
    sinks: Mapping[str, Sink]
    logs: Mapping[str, Log]
    trouble: Trouble
    draw: random.Random
    near: bool = False
    set_aside: bool = False
    shed: Sink | None = None
    change_queries: bool = False
    stops_after: int | None = None
    job: Any = None
    goes_on_from: ResumePoint | None = None
    is_anew: bool = False
    """Nobody has begun the next tick, as far as it knows."""

    def execute(self) -> bool:
        """Raises: WatersmeetError. Whether the input has ended."""
        try:
            return self._execute()
        except WatersmeetError as error:
            begun = StoredJob(self.store).begun if self.is_anew else None
            raise explain_fencing(error, self.goes_on_from, begun) from None

    def _execute(self) -> bool:
        plan, draw = plan_for(self.queries), self.draw
        merge_policy.FAN_IN = draw.choice(FAN_INS)
        stored = StoredJob(self.store)
        attempts = Attempts(self.world, self.trouble)
        record: dict[str, Any] | None = None

        def drive(restored: Restored) -> TickDriver:
            nonlocal record
            self.goes_on_from, newest = restored, restored.manifest
            if newest is not None and newest.finished:
                return TickDriver(restored)
            record = stored.begun(restored.tick + 1, "" if newest is None else newest.writer)
            owner = stored.owner(None if newest is None else newest.owner)
            return TickDriver(restored, owner, repeats=record is not None)

        job = LocalJob(
            plan,
            self.store,
            partitions=draw.choice(TASKS),
            settings=TickSettings(digest=SETTINGS, placing=move_to_borders if self.near else None),
            drive=drive,
            clock_us=self.world.now_us,
            tasks=attempts,
            change_queries=self.change_queries,
        )
        self.job, driver = job, job.driver
        self.goes_on_from = driver
        manifest = driver.manifest
        if driver.is_finished:
            return True
        self.is_anew = record is None
        owner = driver.ledger.owner
        for insert, query in zip(INSERTS, self.queries, strict=False):
            self.sinks[insert].prepare([column(name, "BIGINT") for name in columns_of(query)], owner)
        if self.shed is not None:
            self.shed.prepare([column(name, "STRING") for name in SHED_COLUMNS], owner)
        parts = {} if manifest is None else {n: (p.tick, p.identity) for n, p in manifest.parts.items()}
        for sink in self._each():
            inserts = [insert for insert, own in self._all() if own is sink]
            sink.resume(inserts, Resumed(driver.tick, record is not None, parts, self.set_aside))
        first = driver.tick
        while True:
            before = driver.manifest
            self.is_anew = False
            record = record or self._planned({} if before is None else before.host)
            self._tick(stored, attempts, record, "" if before is None else before.writer)
            if record["end"]:
                self._close()
                for sink in self._each():
                    sink.close()
                return True
            record = None
            if self.stops_after is not None and driver.tick - first >= self.stops_after:
                self._close()
                for sink in self._each():
                    sink.close()
                return False
            if draw.random() < 0.5:
                job.partitions = draw.choice(TASKS)

    def _close(self) -> None:
        self.job.driver.ledger.check()
        self.job.driver.close()

    def _each(self) -> list[Sink]:
        return list({id(sink): sink for _, sink in self._all()}.values())

    def _all(self) -> list[tuple[str, Sink]]:
        return [*self.sinks.items(), *([(SHED_INSERT, self.shed)] if self.shed is not None else [])]

    def _shed_rows(self, tick: RunningTick) -> pa.Table:
        """As Spark's tick makes them of the files that the tasks wrote."""
        rows = [
            {"input": f"{query.name}/{alias}", "reason": reason, "record": json.dumps(row)}
            for query in self.job.plan.queries
            for reason in (query.options.at_limit.value,)
            for alias, row in read_side_outputs(tick, query, reason)
        ]
        return pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in SHED_COLUMNS]))

    def _planned(self, host: Mapping[str, Any]) -> dict[str, Any]:
        """What the next tick reads; the input ends when all is read."""
        ends = json.loads(host["offsets"]) if host else {"l": [0, 0], "r": [0, 0]}
        offsets = {}
        for side, (_, begin) in ends.items():
            offsets[side] = [begin, min(len(self.logs[side].rows), begin + self.draw.randrange(7))]
        is_over = all(end == len(self.logs[side].rows) for side, (_, end) in ends.items())
        return {
            "batch": host["batch"] + 1 if host else 0,
            "offsets": json.dumps(offsets),
            "clock_us": self.world.now_us,
            "end": is_over,
        }

    def _tick(self, stored: StoredJob, attempts: Attempts, record: dict[str, Any], follows: str) -> None:
        job, tick = self.job, self.job.driver.tick + 1
        remembered = Threads().submit(stored.begin, tick, record, follows)
        if self.draw.random() < 0.5:
            remembered.result()
        offsets = json.loads(record["offsets"])
        rows = {side: self.logs[side].rows[begin:end] for side, (begin, end) in offsets.items()}
        host = {name: record[name] for name in _TOLD}
        told = {"offsets": record["offsets"], "settings": SETTINGS}
        queries = dict(zip(INSERTS, self.queries, strict=False))

        def stage_outputs(
            tick: RunningTick, outputs: Mapping[str, tuple[list[str], pa.Table]]
        ) -> StagedParts:
            start = tick.start
            self.world.point("before it is staged")
            try:
                for insert, query in queries.items():
                    names, table = outputs.get(insert) or _nothing(columns_of(query))
                    sink = self.sinks[insert]
                    stage(sink, insert, start, names, table, job.partitions, attempts.run)
                    self.world.point(f"staged of {insert}")
                shed = None if self.shed is None else self._shed_rows(tick)
                if shed is not None and shed.num_rows:
                    stage(self.shed, SHED_INSERT, start, SHED_COLUMNS, shed, job.partitions, attempts.run)
            except Killed:
                raise
            except BaseException:
                for sink in self._each():
                    sink.discard(start.attempt)
                raise
            self.world.point("staged")
            staged = [(self.sinks[insert], insert) for insert in queries]
            staged += [(self.shed, SHED_INSERT)] if shed is not None and shed.num_rows else []
            return StagedParts(staged)

        job.tick(
            rows,
            clock_us=record["clock_us"],
            end=record["end"],
            check=remembered.result,
            to_sinks=SinkStaging(stage_outputs, host, told),
        )
        self.world.counts["ticks"] += 1
        self.world.point("ticked")


def _nothing(columns: tuple[str, ...]) -> tuple[list[str], pa.Table]:
    return list(columns), pa.schema([(name, pa.int64()) for name in columns]).empty_table()


def columns_of(query: str) -> tuple[str, ...]:
    """Of its result, all BIGINT."""
    asked = query_of(query)
    return (*asked.columns, *((SHOWN_DIFF, SHOWN_TICK) if asked.changes else ()))
