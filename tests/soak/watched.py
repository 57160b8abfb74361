"""What a job holds on to: memory, open files and connections of its processes, and files of its state, looked
at again and again; the last third of the time beside the first, processes at equal age. That counts from when
they were first at work, a driver after its first tick, an executor with a Python worker: how long it takes
to come to that is the machine's.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import mean, median

import psutil

from tests.soak.job import Job
from tests.support.postgres import Postgres
from watersmeet.errors import WatersmeetError

EVERY_S = 2.0
AGE_S = 15
"""Ages are compared in steps of so many seconds."""
LEAST = 4
"""So many looks at an age make a figure, in each third."""
MOST = 1.1
"""By so much the last third may have more than the first; by less than one it always may."""


@dataclass(frozen=True)
class Look:
    """``age_s``: of the process at work; 0 of what is no process."""

    at_s: float
    what: str
    age_s: float
    value: float


@dataclass(frozen=True)
class Figure:
    """The first and the last third. ``ages``: how many ages both have; 0: there is nothing to compare."""

    what: str
    first: float
    last: float
    ages: int

    @property
    def is_judged(self) -> bool:
        return bool(self.ages)

    @property
    def holds(self) -> bool:
        return not self.is_judged or self.last <= self.first * MOST or self.last - self.first < 1

    def __str__(self) -> str:
        if not self.is_judged:
            return f"{self.what:32} not compared: no age that is in both thirds"
        change = (self.last / self.first - 1) * 100 if self.first else 0.0
        said = "" if self.holds else "   TOO MUCH"
        return f"{self.what:32} {self.first:12,.1f} {self.last:12,.1f} {change:+7.1f} %{said}"


class Watch:
    """A thread that looks."""

    def __init__(self, job: Job, postgres: Postgres) -> None:
        self._job, self._postgres = job, postgres
        self._looks: list[Look] = []
        self._at_work: dict[psutil.Process, float] = {}
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def figures(self, lasted_s: float) -> list[Figure]:
        """Per what was looked at."""
        of: dict[str, list[Look]] = defaultdict(list)
        for look in self._looks:
            of[look.what].append(look)
        return [figure(what, looks, lasted_s) for what, looks in sorted(of.items())]

    def _go(self) -> None:
        number = 0
        while not self._stop.wait(EVERY_S):
            for role, processes in self._processes():
                with suppress(psutil.Error, FileNotFoundError, ProcessLookupError):
                    self._look_at(role, processes)
            if number % 5 == 0:
                self._look_around()
            number += 1

    def _processes(self) -> Iterator[tuple[str, list[psutil.Process]]]:
        """Those that are at work; the first of each is the one whose age counts."""
        run = self._job.run
        if run is not None and run.ticks:
            with suppress(psutil.Error):
                yield "driver", [psutil.Process(run.process.pid)]
            for jvm in run.jvms():
                yield "driver's JVM", [jvm]
        for executor in self._job.executors():
            with suppress(psutil.Error):
                if daemons := executor.children():
                    yield "executor's JVM", [executor]
                    below = [child for daemon in daemons for child in daemon.children(recursive=True)]
                    yield "executor's Python", [*daemons, *below]

    def _look_at(self, role: str, processes: list[psutil.Process]) -> None:
        age = time.monotonic() - self._at_work.setdefault(processes[0], time.monotonic())
        megabytes = files = connections = 0.0
        for process in processes:
            with process.oneshot():
                megabytes += process.memory_info().rss / 1e6
                files += process.num_fds()
                connections += len(process.net_connections("tcp"))
        for what, value in (("MB", megabytes), ("open files", files), ("connections", connections)):
            self._add(f"{role}, {what}", age, value)

    def _look_around(self) -> None:
        state = self._job.folder / "state"
        self._add("files of the checkpoint", 0.0, sum(len(names) for _, _, names in os.walk(state)))
        with suppress(WatersmeetError, ValueError):
            asked = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
            self._add("connections of PostgreSQL", 0.0, int(self._postgres.run(asked)))

    def _add(self, what: str, age: float, value: float) -> None:
        self._looks.append(Look(time.monotonic() - self._began, what, age, float(value)))


def figure(what: str, looks: list[Look], lasted_s: float) -> Figure:
    """The median of what was seen at each age, and the mean of those over the ages that both thirds have."""
    thirds: tuple[dict[int, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for look in looks:
        place = 0 if look.at_s < lasted_s / 3 else 1 if look.at_s >= lasted_s * 2 / 3 else None
        if place is not None:
            thirds[place][int(look.age_s // AGE_S)].append(look.value)
    first, last = thirds
    ages = [age for age in first if min(len(first[age]), len(last.get(age, []))) >= LEAST]
    if not ages:
        return Figure(what, 0.0, 0.0, 0)
    means = [mean(median(third[age]) for age in ages) for third in thirds]
    return Figure(what, means[0], means[1], len(ages))
