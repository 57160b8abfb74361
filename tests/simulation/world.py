"""One thread after the other, by one seed: who goes on, what fails, what time it is.

Everything that a simulated process asks of what others see too (a store, a table, a file system) begins and
ends with a *point*. At a point the process may be killed, sleep, or let others go on; nothing else lets them
go on. So a seed says all that happens. Fibers are threads of which one runs at a time.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.simulation.steps import Aim, step_of

SECOND_US = 1_000_000
MOST_POINTS = 30_000
"""Of one schedule: with more it runs in circles."""


class Killed(BaseException):
    """Stands for kill -9: nothing of the process goes on."""


class StuckError(Exception):
    """A schedule that does not come to an end."""


@dataclass
class Process:
    """A driver, or a task's attempt on another machine. What it has in memory goes with it.

    Attributes:
        points: how many it has come to.
        crash_at: it is killed at this one.
        sleeps: at these it sleeps, for so many seconds.
        aims: there it sleeps, too, or is killed (None). Of several processes: who comes there first.
    """

    name: str
    crash_at: int | None = None
    sleeps: dict[int, float] = field(default_factory=dict)
    aims: Sequence[tuple[Aim, float | None]] = ()
    points: int = 0
    dead: bool = False
    asleep: bool = False
    on_death: list[Callable[[], None]] = field(default_factory=list)

    def die(self) -> None:
        if not self.dead:
            self.dead = True
            for last in self.on_death:
                last()


class Fiber:
    """A thread of a process; see `World.spawn`."""

    def __init__(self, number: int, process: Process, run: Callable[[], Any]) -> None:
        self.number, self.process, self.run = number, process, run
        self.baton = threading.Lock()
        self.baton.acquire()
        self.wake_us = 0
        self.awaits: Callable[[], bool] | None = None
        self.done = False
        self.killed = False
        self.value: Any = None
        self.error: BaseException | None = None

    def result(self) -> Any:
        """What it gave, once it is done."""
        if self.error is not None:
            raise self.error
        return self.value


class Worker(threading.Thread):
    """A thread that runs fibers, one after the other."""

    free: ClassVar[list[Worker]] = []

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wake = threading.Lock()
        self.wake.acquire()
        self.job: Callable[[], None] = lambda: None
        self.is_over = False

    def run(self) -> None:
        while True:
            self.wake.acquire()
            if self.is_over:
                return
            self.job()

    @classmethod
    def end_all(cls) -> None:
        """No thread is left."""
        while cls.free:
            worker = cls.free.pop()
            worker.is_over = True
            worker.wake.release()
            worker.join()

    @classmethod
    def do(cls, job: Callable[[], None]) -> None:
        if cls.free:
            worker = cls.free.pop()
        else:
            worker = cls()
            worker.start()
        worker.job = job
        worker.wake.release()


class World:
    """See the module. ``now_us``: its clock. ``counts``: what happened, by kind. ``struck``: steps, each with
    what went wrong there."""

    current: ClassVar[World | None] = None

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_us = 1_000 * SECOND_US
        self.counts: Counter[str] = Counter()
        self.struck: Counter[tuple[str, str]] = Counter()
        self.fibers: list[Fiber] = []
        self.fiber: Fiber | None = None
        self.points = 0
        self.over = False
        self.log: Callable[[str], None] | None = None
        self._main = threading.Lock()
        self._main.acquire()
        self._numbers = 0
        self._digest = hashlib.blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """Of all that happened: equal for schedules in which the same happened in the same order."""
        return self._digest.hexdigest()

    def note(self, text: str) -> None:
        """For the digest, and the log of a schedule that is replayed."""
        who = "" if self.fiber is None else f"{self.fiber.process.name}/{self.fiber.number}"
        line = f"{self.now_us / SECOND_US:.6f} {who} {text}"
        self._digest.update(line.encode())
        if self.log is not None:
            self.log(line)

    def spawn(self, process: Process, run: Callable[[], Any]) -> Fiber:
        """A new thread of a process; it begins when it is its turn."""
        self._numbers += 1
        fiber = Fiber(self._numbers, process, run)
        self.fibers.append(fiber)
        Worker.do(lambda: self._work(fiber))
        return fiber

    def run(self, process: Process, run: Callable[[], Any]) -> Any:
        """Let ``run`` go on to its end, and with it all that it spawns; what it gives."""
        fiber = self.spawn(process, run)
        self._pass_on(None)
        self._main.acquire()
        return fiber.result()

    def _work(self, fiber: Fiber) -> None:
        fiber.baton.acquire()
        try:
            if self.over or fiber.process.dead:
                raise Killed
            fiber.value = fiber.run()
        except Killed:
            fiber.killed = True
        except BaseException as error:
            fiber.error = error
        fiber.done = True
        self.fibers.remove(fiber)
        worker = threading.current_thread()
        assert isinstance(worker, Worker)
        Worker.free.append(worker)
        self._pass_on(None)

    def point(self, what: str) -> None:
        """The process is about to do this, or has done it."""
        fiber = self.fiber
        if fiber is None:
            return
        process = fiber.process
        self._check(fiber)
        self.points += 1
        process.points += 1
        self.note(what)
        step = step_of(what)
        hit = [seconds for aim, seconds in process.aims if aim.hits(step)]
        if process.points == process.crash_at or None in hit:
            self.kill(process, what)
            raise Killed
        self.now_us += 1 + self.random.randrange(2_000)
        seconds = hit[0] if hit else process.sleeps.pop(process.points, None)
        if seconds is not None:
            self.counts["sleeps"] += 1
            self.struck[step, "sleep"] += 1
            self.note(f"sleeps {seconds:.1f} s")
            process.asleep = True
            self.sleep(seconds)
            process.asleep = False
        elif len(self.fibers) > 1:
            self._switch(fiber)
        if self.points > MOST_POINTS:
            self.over = True
            raise StuckError(f"more than {MOST_POINTS} points")

    def kill(self, process: Process, what: str) -> None:
        """What it was about to do, or had done, is not told to it."""
        if not process.dead:
            self.counts["crashes"] += 1
            self.struck[step_of(what), "crash"] += 1
            self.note(f"killed {process.name}: {what}")
            process.die()

    def sleep(self, seconds: float) -> None:
        fiber = self.fiber
        if fiber is None:
            return
        fiber.wake_us = self.now_us + int(seconds * SECOND_US)
        self._switch(fiber)

    def wait(self, until: Callable[[], bool]) -> None:
        """Let others go on until that is so."""
        fiber = self.fiber
        assert fiber is not None
        if not until():
            fiber.awaits = until
            self._switch(fiber)

    def end(self) -> None:
        """Nothing goes on: called by the one fiber that is left to see to it."""
        self.over = True

    def _check(self, fiber: Fiber) -> None:
        if self.over or fiber.process.dead:
            raise Killed

    def _switch(self, fiber: Fiber) -> None:
        if self._pass_on(fiber) is not fiber:
            fiber.baton.acquire()
        self._check(fiber)

    def _pass_on(self, fiber: Fiber | None) -> Fiber | None:
        """Let a fiber go on; which. Without one the schedule is over."""
        following = self._next()
        self.fiber = following
        if following is None:
            self._main.release()
        elif following is not fiber:
            following.baton.release()
        return following

    def _next(self) -> Fiber | None:
        while self.fibers:
            ready = [fiber for fiber in self.fibers if self._is_ready(fiber)]
            if ready:
                chosen = ready[0] if len(ready) == 1 else ready[self.random.randrange(len(ready))]
                chosen.awaits = None
                return chosen
            sleeping = [fiber.wake_us for fiber in self.fibers if fiber.awaits is None]
            if not sleeping:  # all wait for each other
                self.over = True
                self.counts["deadlocks"] += 1
                continue
            self.now_us = min(sleeping)
        return None

    def _is_ready(self, fiber: Fiber) -> bool:
        if self.over or fiber.process.dead:
            return True
        if fiber.awaits is not None:
            return fiber.awaits()
        return fiber.wake_us <= self.now_us


class Threads:
    """In the place of a ThreadPoolExecutor: its threads are fibers of the process that asks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._fibers: list[Fiber] = []

    def submit(self, run: Callable[..., Any], *arguments: Any) -> Future:
        world = World.current
        assert world is not None
        assert world.fiber is not None
        fiber = world.spawn(world.fiber.process, lambda: run(*arguments))
        self._fibers.append(fiber)
        return Future(world, fiber)

    def map(self, run: Callable[[Any], Any], values: Any) -> list[Any]:
        if World.current is None or World.current.fiber is None:  # somebody looks at what is left
            return [run(value) for value in values]
        return [future.result() for future in [self.submit(run, value) for value in values]]

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        world = World.current
        if world is not None and world.fiber is not None and not world.fiber.process.dead and not world.over:
            world.wait(lambda: all(fiber.done for fiber in self._fibers))

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


@dataclass
class Future:
    """Of what a fiber gives."""

    world: World
    fiber: Fiber

    def done(self) -> bool:
        return self.fiber.done

    def result(self) -> Any:
        self.world.wait(lambda: self.fiber.done)
        if self.fiber.killed:
            raise Killed
        return self.fiber.result()
