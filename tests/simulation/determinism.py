"""What a simulated world has in the place of clocks, random numbers and threads: the one place where the
package is told. Nothing of a schedule depends on anything else."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.simulation.files import SimulatedFiles
from tests.simulation.table import SimulatedStorage
from tests.simulation.world import SECOND_US, Threads, World
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.state.runs import writer


class _Os:
    """``os`` of a module, with a point around what changes files."""

    STEPS = ("rename", "unlink", "rmdir", "mkdir")

    def __getattr__(self, name: str) -> Any:
        done = getattr(os, name)
        if name not in self.STEPS:
            return done

        def call_between_points(*arguments: Any, **named: Any) -> Any:
            world = World.current
            if world is None or world.fiber is None:
                return done(*arguments, **named)
            world.point(f"before os.{name}")
            answer = done(*arguments, **named)
            world.point(f"after os.{name}")
            return answer

        return call_between_points


@contextmanager
def simulate_world(seed: int) -> Iterator[World]:
    """A world of this seed, and the package in it."""
    world = World(seed)
    state = random.getstate()
    random.seed(seed)
    ids = random.Random(f"ids of {seed}")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    def clock() -> float:
        return world.now_us / SECOND_US

    fake_time = SimpleNamespace(
        sleep=world.sleep,
        monotonic=clock,
        time=clock,
        time_ns=lambda: world.now_us * 1_000,
        gmtime=time.gmtime,
        strftime=time.strftime,
        perf_counter=clock,
    )
    with ExitStack() as patches:
        for where, value in {
            "uuid.uuid4": uuid4,
            "tenacity.nap.time": fake_time,
            "tenacity.time": fake_time,
            "watersmeet.sinks.lake.commits.time": fake_time,
            "watersmeet.sinks.lake.data_files.time": fake_time,
            "watersmeet.sinks.lake.data_files.Storage": SimulatedStorage,
            "watersmeet.sinks.lake.table_sink.randbits": ids.getrandbits,
            "watersmeet.sinks.file_sink.time": fake_time,
            "watersmeet.sinks.file_sink.os": _Os(),
            "watersmeet.sinks.file_sink.shutil": SimulatedFiles,
            "watersmeet.sinks.file_sink.sync": _no_disk,
            "watersmeet.sinks.file_sink.sync_all": _no_disk,
            "watersmeet.sinks.file_sink.make_folders": _folders,
            "watersmeet.sinks.directory.sync": _no_disk,
            "watersmeet.sinks.parquet.os": _Os(),
            "watersmeet.objects.object_store.ThreadPoolExecutor": Threads,
            "watersmeet.parallel.ThreadPoolExecutor": Threads,
            "watersmeet.state.garbage_collection.ThreadPoolExecutor": Threads,
            "watersmeet.state.commits.ThreadPoolExecutor": Threads,
            "watersmeet.runtime.coordinator.merge_policy.FAN_IN": merge_policy.FAN_IN,
            "watersmeet.state.runs.writer.SECTION_BYTES": writer.SECTION_BYTES,
        }.items():
            patches.enter_context(patch(where, value))
        World.current = world
        try:
            yield world
        finally:
            World.current = None
            random.setstate(state)


def _folders(path: Any) -> None:
    os.makedirs(path, exist_ok=True)


def _no_disk(*_: Any) -> None:
    """What the disk has is what was written: power failures are not simulated."""
