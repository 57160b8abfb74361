"""A schedule: all runs of a job from its first row to the end of its input, by one seed, and whether what
came out is right."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.bucket import FAULTS, Bucket, Network, place_of
from tests.simulation.cached import SpoiltCache
from tests.simulation.determinism import simulate_world
from tests.simulation.jobs import ALIKE, INSERTS, QUERIES, Log, compute_expected_rows, on_time
from tests.simulation.run import Run, Trouble
from tests.simulation.steps import Aim, draw_aim, requests, steps
from tests.simulation.table import AwayError, SimulatedLakeSink, TableServer
from tests.simulation.world import SECOND_US, Fiber, Process, StuckError, World
from tests.support.in_memory import folder_in_memory
from tests.support.parquet_rows import table_in
from watersmeet.errors import WatersmeetError
from watersmeet.objects.object_store import ObjectStore
from watersmeet.sinks.base import Sink
from watersmeet.sinks.file_sink import FileSink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.state.checksums import verify_checksum
from watersmeet.state.copy import verify_files
from watersmeet.state.manifest import is_manifest, load_newest
from watersmeet.state.runs import writer

OF_OTHERS = frozenset({"state-fenced", "sink-taken"})
"""So a run may end that others were at work beside, or whose requests came late."""
OF_SERVICES = frozenset({"store-away", "sink-failed"})
"""So a run may end when services are away, or fail."""

MOST_RUNS = 5
"""Then one runs alone, and nothing goes wrong any more."""

_POINTS = 150
"""Of a run, about."""

_AIMED = 5
"""So many crashes and sleeps at most are drawn by the kind of the step first; others by its number."""

_TWO_INSERTS = 0.15
"""Of schedules: jobs with two, half of them into one sink."""

_CACHED = 0.15
"""Of schedules: those whose runs have a cache, in which files are spoilt between runs."""

_NARROWED = 0.5
"""Of those with an INNER join alone: they go on with a narrower one."""

_IN_SECTIONS = 0.5
"""Those whose runs are written in sections, where there are several tasks."""

_NAPS = (0.01, 1, 10, 300)
"""Seconds."""


class WrongError(AssertionError):
    """What came out of a schedule is not what had to."""


@dataclass
class Outcome:
    """Of a schedule. ``wrong``: what is; None: nothing. ``digest``: of all that happened. ``struck``: steps,
    each with what went wrong there."""

    seed: int
    counts: Counter[str]
    digest: str
    points: int
    wrong: str | None = None
    ended: Counter[str] = field(default_factory=Counter)
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)


def play(seed: int, *, log: Callable[[str], None] | None = None) -> Outcome:
    """Play the schedule of this seed."""
    with simulate_world(seed) as world:
        world.log = log
        schedule = Schedule(world, seed)
        wrong = None
        try:
            schedule.play()
        except (WrongError, StuckError, WatersmeetError) as error:
            wrong = str(error)
        finally:
            schedule.clean_up()
        return Outcome(seed, world.counts, world.digest, world.points, wrong, schedule.ended, world.struck)


class Schedule:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        draw = self.draw = random.Random(f"schedule {seed}")
        self.queries: tuple[str, ...] = (draw.choice(list(QUERIES)),)
        self.is_one_sink = True
        if draw.random() < _TWO_INSERTS:
            self.queries = (draw.choice(ALIKE), draw.choice(ALIKE))
            self.is_one_sink = draw.random() < 0.5
        self.changes = QUERIES[self.queries[0]].changes
        self.logs = {side: Log(draw, side, self.changes) for side in "lr"}
        self.folder = _folder() if draw.random() < 0.2 else None
        self.network = Network(world, draw.choice([0, 0, 0.01, 0.05]))
        if self.network.rate:
            asked = requests(self.folder is not None)
            self.network.aims = [
                (draw_aim(draw, asked), draw.choice(FAULTS)) for _ in range(draw.randrange(9))
            ]
        self.server = TableServer(self.network)
        self.servers = [self.server]
        if not self.is_one_sink:
            self.servers.append(TableServer(self.network, "lake/other", self.server.files))
        self.bucket = Bucket()
        self.store_place = place_of(self.bucket, self.network)
        self.trouble = draw.choice([Trouble(), Trouble(0.1, 0.05), Trouble(0.4, 0.2)])
        self.crashes = draw.choice([0.3, 0.7, 0.95])
        self.sleepers = 0.0 if self.folder else draw.choice([0, 0.3, 0.7])
        self.aims = self._aims()
        self.near = draw.random() < 0.2
        self.ended: Counter[str] = Counter()
        self.errors: list[str] = []
        self.finished = False
        self.runs: list[Process] = []
        self.overlapped: set[str] = set()
        more = self.more = random.Random(f"more of {seed}")  # the draws above stay as they are
        self.cache = SpoiltCache(_folder(), more, world.counts) if more.random() < _CACHED else None
        self.narrows = self.queries == ("inner",) and more.random() < _NARROWED
        self.narrowed = False
        if more.random() < _IN_SECTIONS:
            writer.SECTION_BYTES = 1
        into = "files" if self.folder else "a table"
        world.note(f"{' and '.join(self.queries)} into {into} ({len(self.servers)}), {self.trouble}")

    def play(self) -> None:
        self.world.run(Process("supervisor"), self._supervise)
        if self.world.counts["deadlocks"]:
            raise WrongError("all wait for each other")
        self.check()

    def _supervise(self) -> None:
        world, draw = self.world, self.draw
        for _ in range(MOST_RUNS):
            if self.finished:
                break
            self._change()
            process = self._process()
            fiber = world.spawn(process, partial(self.run, process))
            if draw.random() < 0.05 and self.network.rate:
                self.network.away_until_us = world.now_us + draw.choice([20, 200]) * SECOND_US
            self._await(process, fiber)
        world.sleep(draw.choice([0, 1, 400]))  # who slept may come back
        for fiber in list(world.fibers):
            if fiber.process.name.startswith("run"):
                fiber.process.die()
        self.network.rate = self.network.away_until_us = 0
        self.network.aims = []
        self.trouble, self.crashes, self.sleepers = Trouble(), 0.0, 0.0
        last = Process("run alone")
        fiber = world.spawn(last, partial(self.run, last))
        world.wait(lambda: fiber.done)
        if not self.finished:
            self.errors.append(f"a run alone did not come to the end: {fiber.error!r}")
        world.wait(lambda: all(f.process.name == "supervisor" for f in world.fibers))

    def _change(self) -> None:
        """Now and then the job goes on with a narrower query: by hand, so nothing of it goes on meanwhile,
        and no tick is interrupted."""
        if not self.narrows or self.narrowed:
            return
        manifests = sorted(name for name in self.bucket.objects if is_manifest(name))
        if not manifests or any(fiber.process.name != "supervisor" for fiber in self.world.fibers):
            return
        tick = int(manifests[-1].rpartition("/")[2].partition(".")[0])
        if f"begun/{tick + 1:012d}.json" not in self.bucket.objects:
            self.narrowed = True
            self.queries = ("narrow",)
            self.world.counts["queries changed"] += 1
            self.world.note("the query is narrower from now on")

    def _process(self) -> Process:
        draw = self.draw
        crash_at = draw.randrange(1, _POINTS) if draw.random() < self.crashes / 2 else None
        sleeps = {}
        if draw.random() < self.sleepers / 2:
            sleeps = {draw.randrange(1, _POINTS): draw.choice(_NAPS) for _ in range(2)}
        self.world.counts["runs"] += 1
        return Process(f"run{self.world.counts['runs']}", crash_at, sleeps, self.aims)

    def _aims(self) -> list[tuple[Aim, float | None]]:
        """Where runs are killed (None), or sleep."""
        draw, kinds = self.draw, steps(self.folder is not None)
        killed = [(draw_aim(draw, kinds), None) for _ in range(_AIMED) if draw.random() < self.crashes]
        asleep = [
            (draw_aim(draw, kinds), draw.choice(_NAPS))
            for _ in range(_AIMED)
            if draw.random() < self.sleepers
        ]
        return [*killed, *asleep]

    def _await(self, process: Process, fiber: Fiber) -> None:
        """Until the run has ended, or another one begins beside it."""
        world = self.world
        if self.folder is None and self.draw.random() < self.sleepers:
            world.wait(lambda: fiber.done or process.asleep)
            if not fiber.done:
                world.counts["takeovers"] += 1
            return
        world.wait(lambda: fiber.done)

    def run(self, process: Process) -> None:
        """One run, to its end, and how it ended."""
        self.runs = [other for other in self.runs if not other.dead]
        if self.runs:
            self.overlapped |= {process.name, *(other.name for other in self.runs)}
        self.runs.append(process)
        each = [self._sink(process, place) for place in range(len(self.servers))]
        sinks = {INSERTS[number]: each[self._place(number)] for number in range(len(self.queries))}
        run = Run(
            self.world, self.queries, self._store(), sinks, self.logs, self.trouble,
            random.Random(self.draw.random()), self.near, change_queries=self.narrowed,
            stops_after=self._stops_after(process),
        )  # fmt: skip
        try:
            self.finished |= run.execute()
            self.ended["finished"] += 1
        except WatersmeetError as error:
            self.ended[error.code] += 1
            self.world.note(f"ended: {error.code} {error.message}")
            if process.name == "run alone":
                raise
            if not self._may_end(process, error.code):
                self.errors.append(f"{process.name} ended by {error.code}: {error.message}")
        except AwayError:
            self.ended["files-away"] += 1
            if not self._faults():
                self.errors.append(f"{process.name}: the files were away, and nothing failed")
        except Exception as error:
            self.errors.append(f"{process.name}: {type(error).__name__}: {error}")
            raise
        finally:
            process.die()

    def _stops_after(self, process: Process) -> int | None:
        """Somebody stops the run, whose query is to be changed then."""
        if not self.narrows or self.narrowed or process.name == "run alone":
            return None
        return self.more.randrange(1, 4)

    def _store(self) -> ObjectStore:
        return ObjectStore(self.store_place, None if self.cache is None else self.cache.begin())

    def _may_end(self, process: Process, code: str) -> bool:
        """Whether something was done to the run by which it may end so."""
        if code in OF_OTHERS:
            return process.name in self.overlapped or self.world.counts["fault: late"] > 0
        return code in OF_SERVICES and self._faults() > 0

    def _faults(self) -> int:
        return sum(count for name, count in self.world.counts.items() if name.startswith("fault: "))

    def _place(self, number: int) -> int:
        """Of an insert, by its number: where its rows go."""
        return 0 if self.is_one_sink else number

    def _sink(self, process: Process, place: int) -> Sink:
        if self.folder is None:
            return SimulatedLakeSink(SinkSpec("out", "delta", {"path": "lake"}), self.servers[place])
        sink = FileSink(SinkSpec("out", "file", {"path": str(self.folder / f"out{place}")}))
        process.on_death.append(sink.close)  # the lock goes with the process
        return sink

    def check(self) -> None:
        """Raises: WrongError."""
        if self.errors:
            raise WrongError("; ".join(self.errors))
        store = ObjectStore(self.store_place)
        manifest = load_newest(store)
        if manifest is None or not manifest.finished:
            raise WrongError("the job is not at its end")
        verify_files(manifest, store)
        cuts = self._cuts()
        for side, parts in cuts.items():
            ends = [0, *(end for _, end in parts)]
            if [begin for begin, _ in parts] != ends[:-1] or ends[-1] != len(self.logs[side].rows):
                raise WrongError(f"{side} was read in the parts {parts}")
        for place in range(len(self.servers)):
            queries = [query for number, query in enumerate(self.queries) if self._place(number) == place]
            wanted = sum(
                (compute_expected_rows(query, self.logs, cuts) for query in queries),
                Counter[tuple[Any, ...]](),
            )
            got = self._result(place)
            if self.narrowed:  # rows of ticks before are those of the query before
                wide = compute_expected_rows("inner", self.logs, cuts)
                if not got <= wide:
                    raise WrongError(f"narrowed: too many {dict(got - wide)}, cut at {cuts}")
                got &= wanted
            if got != wanted:
                lost, more = dict(wanted - got), dict(got - wanted)
                raise WrongError(f"{' and '.join(queries)}: lost {lost}, too many {more}, cut at {cuts}")
        for insert, query in zip(INSERTS, self.queries, strict=False):
            account = manifest.queries[insert].account
            for alias, side in (("l", "l"), ("r", "r"), ("s", "r")):
                late = on_time(self.logs[side], cuts[side])[1]
                if alias in account and account[alias].get("late", 0) != late:
                    raise WrongError(
                        f"{query}: {late} rows of {alias} were late, and {account[alias]} counted"
                    )

    def _cuts(self) -> dict[str, list[tuple[int, int]]]:
        """In which parts each source was read, as the first manifest of each tick says."""
        ticks = sorted(filter(is_manifest, self.bucket.created))
        hosts = [json.loads(verify_checksum(name, self.bucket.created[name]))["host"] for name in ticks]
        offsets = [json.loads(host["offsets"]) for host in hosts]
        return {side: [tuple(each[side]) for each in offsets] for side in "lr"}

    def _result(self, place: int) -> Counter[tuple[Any, ...]]:
        if self.folder is None:
            server = self.servers[place]
            gone = sorted(set(server.named) - server.files.keys())
            if gone:
                raise WrongError(f"the table has files that are gone: {gone}")
            rows = server.rows()
        else:
            rows = [
                tuple(row.values())
                for file in sorted((self.folder / f"out{place}").glob("*.parquet"))
                if file.parent.name[0] != "_"
                for row in table_in(file).to_pylist()
            ]
        if not self.changes:
            return Counter(rows)
        total: Counter[tuple[Any, ...]] = Counter()
        for *row, diff, _ in rows:
            total[tuple(row)] += diff
        return Counter({row: count for row, count in total.items() if count})

    def clean_up(self) -> None:
        if self.cache is not None:
            self.cache.remove()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _folder() -> Path:
    return Path(tempfile.mkdtemp(dir=folder_in_memory()))
