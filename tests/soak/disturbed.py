"""A job, and what is done to it meanwhile.

    job, python, jvm  the run is killed: all of it, its Python process, its JVM; the next one starts at once
    rescale           it is stopped, and goes on with another number of tasks and cores
    executor          one is killed
    worker            a Python process of one is
    machine           a worker of the cluster comes, or is killed with its executor
    broker            Kafka's is killed, and comes back after some seconds; sometimes the job is killed then
    database          PostgreSQL crashes, and comes back likewise
    burst             a quarter of a minute's rows come at once

Kills are SIGKILL. Each third of the time has the same, in the same order, with as many tasks and cores: what
a process holds on to goes by those. A run that ends by itself is started again, and told of: it must not,
whatever was done to others.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from typing import Any

import psutil

from tests.soak.job import Job
from tests.soak.sent import Sender
from tests.support.kafka import KafkaBroker
from tests.support.postgres import Postgres
from tests.support.standalone import Cluster

KINDS = {
    "job": 2, "python": 1, "jvm": 1, "rescale": 3, "executor": 5, "worker": 2, "machine": 2, "broker": 3,
    "database": 3, "burst": 3,
}  # fmt: skip
"""How often in ten minutes."""
KILLED = ("job", "python", "jvm", "executor", "worker", "broker", "database")
"""Of these kinds each is a kill; `machine` is one every other time."""
SHORT = ("burst", "executor", "rescale", "broker", "job", "database")
SHORT_MINUTES = 3.0
SIZES = [(tasks, cores) for tasks in (1, 2, 3, 5) for cores in (1, 2, 3)]
TICK_S, STOP_S, END_S = 180.0, 120.0, 900.0
"""How long is waited for a tick, for a stop, and for the end."""
BY_CRASH = ("staged-rows-gone",)
"""How a run may end when its database crashed: unlogged tables are empty then, and the tick is repeated."""
AT_WORK = 0.8
"""So often a run has come to a tick before the next thing is done: if none does, nothing is proved."""


def drawn(draw: random.Random, minutes: float) -> list[str]:
    """What is done, one after the other."""
    if minutes < SHORT_MINUTES:
        return draw.sample(SHORT, len(SHORT))
    third = [kind for kind, often in KINDS.items() for _ in range(max(1, round(often * minutes / 30)))]
    return draw.sample(third, len(third)) * 3


def sizes_drawn(draw: random.Random, events: list[str]) -> list[tuple[int, int]]:
    """Tasks per join and cores from the start on, and after each change, again and again: as many as a third
    of ``events`` has changes."""
    return draw.sample(SIZES, max(2, events.count("rescale") // 3))


class Disturbed:
    """``done``: what was done, and how often; ``ended``: runs that ended by themselves, by what they said;
    ``wrong``: what must not be; ``longest_s``: between two ticks."""

    def __init__(
        self,
        draw: random.Random,
        minutes: float,
        job: Job,
        sender: Sender,
        cluster: Cluster,
        broker: KafkaBroker,
        postgres: Postgres,
    ) -> None:
        self._draw, self._minutes, self._job, self._sender = draw, minutes, job, sender
        self._cluster, self._kafka, self._postgres = cluster, broker, postgres
        self._machine: subprocess.Popen[bytes] | None = None
        self._began = self._last_tick = time.monotonic()
        self._ticks = 0
        self.done, self.ended = Counter[str](), Counter[str]()
        self._crashed_in = 0  # the run in which the database did
        self.wrong: list[str] = []
        self.longest_s = 0.0
        self.account: dict[str, Any] | None = None
        self._events = drawn(draw, minutes)
        self._sizes = cycle(sizes_drawn(draw, self._events))

    def begin(self) -> None:
        """The job, to its first tick."""
        self._job.size = next(self._sizes)
        self._job.start()
        assert self._job.run is not None
        self._job.run.await_ticks(1, TICK_S)
        self._began = self._last_tick = time.monotonic()

    def go(self) -> None:
        apart_s = self._minutes * 60 / len(self._events)
        for number, event in enumerate(self._events):
            self._pass_until(self._began + apart_s * (number + self._draw.uniform(0.2, 0.8)))
            if self._draw.random() < AT_WORK:
                self._pass_until(time.monotonic() + TICK_S, or_tick=True)
            self._say(event)
            self.done[event] += 1
            self._do(event)
        self._pass_until(self._began + self._minutes * 60)

    def finish(self) -> None:
        """All that was sent goes through, and the input ends."""
        self._say("all is sent")
        self._stop()
        self._job.start("--until-caught-up", "--finish")
        assert self._job.run is not None
        code = self._job.run.await_end(END_S)
        if code == 0:
            self.account = self._job.run.account
        _, errors = self._job.detach()
        if code != 0:
            self.wrong.append(f"the last run ended by {code}: {errors[-2000:]}")

    def _do(self, event: str) -> None:
        whole: dict[str, Callable[[], None]] = {
            "job": lambda: self._kill("both"),
            "python": lambda: self._kill("python"),
            "jvm": lambda: self._kill("jvm"),
            "rescale": self._rescale,
            "executor": self._kill_executor,
            "worker": self._kill_worker,
            "machine": self._turn_machine,
            "broker": lambda: self._without(self._kafka.kill, self._kafka.start),
            "database": lambda: self._without(self._crash, self._postgres.start),
            "burst": self._sender.burst,
        }
        whole[event]()

    def _kill(self, whom: str) -> None:
        if self._job.run is not None:
            self._job.run.kill(whom)
            self._job.detach(lingers=whom == "python")
        self._job.start()

    def _rescale(self) -> None:
        self._job.size = next(self._sizes)
        self._say(f"  {self._job.size[0]} tasks and {self._job.size[1]} cores from now on")
        self._stop()
        self._job.start()

    def _stop(self) -> None:
        run = self._job.run
        assert run is not None
        run.process.send_signal(signal.SIGTERM)
        with suppress(AssertionError):
            run.await_end(STOP_S)
        if run.process.poll() is None:
            self.wrong.append(f"told to stop, it did not in {STOP_S:.0f} s")
        code, errors = self._job.detach()
        if code not in (0, -signal.SIGTERM):  # it may be too young to know that it can be told
            self._note(code, errors)

    def _kill_executor(self) -> None:
        self._kill_one(self._job.executors)

    def _kill_worker(self) -> None:
        self._kill_one(
            lambda: [each for one in self._job.executors() for each in one.children(recursive=True)]
        )

    def _kill_one(self, found: Callable[[], list[psutil.Process]]) -> None:
        """As soon as there is one."""
        until = time.monotonic() + TICK_S
        while time.monotonic() < until:
            with suppress(psutil.Error):
                if processes := found():
                    self._draw.choice(processes).kill()
                    return
            self._pass_until(time.monotonic() + 0.5)
        self.wrong.append(f"no executor in {TICK_S:.0f} s")

    def _turn_machine(self) -> None:
        if self._machine is None:
            self._machine = self._cluster.add_worker()
            return
        with suppress(psutil.Error):
            for child in psutil.Process(self._machine.pid).children(recursive=True):
                child.kill()
        self._machine.kill()
        self._machine.wait()
        self._machine = None

    def _crash(self) -> None:
        self._crashed_in = self._job.runs
        self._postgres.stop(crash=True)

    def _without(self, take: Callable[[], None], give: Callable[[], None]) -> None:
        take()
        self._pass_until(time.monotonic() + self._draw.uniform(1, 12))
        if self._draw.random() < 0.3:
            self._say("  and the job meanwhile")
            self.done["job"] += 1
            self._kill("both")
            self._pass_until(time.monotonic() + self._draw.uniform(0, 10))
        give()

    def _pass_until(self, moment: float, *, or_tick: bool = False) -> None:
        """``or_tick``: the run in hand has had one."""
        while True:
            self._job.look()
            self._look_at_ticks()
            if self._job.ended:
                self._note(*self._job.detach())
                self._job.start()
            if time.monotonic() >= moment:
                if or_tick:
                    self.wrong.append(f"no tick in {TICK_S:.0f} s")
                return
            if or_tick and self._job.run is not None and self._job.run.ticks:
                return

    def _look_at_ticks(self) -> None:
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._last_tick)
        if self._job.ticks != self._ticks:
            self._ticks, self._last_tick = self._job.ticks, now

    def _note(self, code: int, errors: str) -> None:
        """A run has ended by itself."""
        named = re.findall(r"\w+Error\[[a-z-]+\]", errors)
        why = f"{named[-1] if named else 'no word'}, {code}"
        self._say(f"  the run ended by itself: {why}")
        self.ended[why] += 1
        if self._crashed_in != self._job.runs or not any(known in why for known in BY_CRASH):
            self.wrong.append(f"a run ended by itself ({why}): {errors[-1500:]}")

    def _say(self, what: str) -> None:
        at = time.monotonic() - self._began
        print(f"{at // 60:3.0f}:{at % 60:04.1f}  tick {self._job.ticks:<6} {what}", flush=True)
