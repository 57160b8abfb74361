"""What a child process and all that it starts take: memory, CPU.

Memory is the sum over the JVM (its resident set) and the Python processes, driver, daemon and workers
(their proportional sets, PSS, so that pages which forked workers share count once). Mapped files count as
far as they are in memory. Short-lived helpers (``chmod``) do not count: until they have loaded they look
like a second JVM.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

INTERVAL_S = 0.2
KINDS = ("jvm", "python")


@dataclass(frozen=True)
class Sample:
    """``at``: wall clock; ``memory``: bytes, ``cpu_s``: CPU seconds since the start, both of `KINDS`;
    ``threads``: CPU seconds of the JVM by threads' names, if asked for."""

    at: float
    memory: dict[str, int]
    cpu_s: dict[str, float]
    threads: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(self.memory.values())


@dataclass
class Usage:
    samples: list[Sample] = field(default_factory=list)

    def peak(self, until: float) -> Sample:
        """The sample of the greatest memory up to ``until``."""
        return max((s for s in self.samples if s.at <= until), key=lambda s: s.total)

    def cpu_s(self, start: float, end: float) -> dict[str, float]:
        """CPU seconds between two moments, by the samples next to them."""
        before, after = self._at(start).cpu_s, self._at(end).cpu_s
        return {kind: after[kind] - before[kind] for kind in KINDS}

    def thread_cpu_s(self, start: float, end: float) -> dict[str, float]:
        """CPU seconds of the JVM between two moments, by its threads' names without numbers."""
        before, after = self._at(start).threads, self._at(end).threads
        return {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}

    def _at(self, moment: float) -> Sample:
        return min(self.samples, key=lambda s: abs(s.at - moment))


def _kind(process: psutil.Process) -> str | None:
    name = process.name()
    return "jvm" if name == "java" else "python" if name.startswith("python") else None


class _Sampler(threading.Thread):
    def __init__(self, pid: int, threads: bool) -> None:
        super().__init__(name="sampler", daemon=True)
        self.usage = Usage()
        self._root = psutil.Process(pid)
        self._threads: dict[str, tuple[str, float]] | None = {} if threads else None
        self._over = threading.Event()
        self._cpu: dict[tuple[str, int, float], float] = {}

    def run(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._sample()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _sample(self) -> None:
        memory = dict.fromkeys(KINDS, 0)
        try:
            family = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        for process in family:
            try:
                kind = _kind(process)
                if kind is None:
                    continue
                # PSS of a JVM is its resident set, and to add it up holds the JVM's pages for too long
                memory[kind] += process.memory_info().rss if kind == "jvm" else process.memory_full_info().pss
                times = process.cpu_times()
                if kind == "jvm" and self._threads is not None:
                    self._threads.update(threads_of(process.pid))
                self._cpu[(kind, process.pid, process.create_time())] = times.user + times.system
            except psutil.Error:
                continue
        cpu_s = {kind: sum(s for (k, _, _), s in self._cpu.items() if k == kind) for kind in KINDS}
        threads: dict[str, float] = {}
        for name, seconds in (self._threads or {}).values():
            threads[name] = threads.get(name, 0.0) + seconds
        self.usage.samples.append(Sample(time.time(), memory, cpu_s, threads))


def threads_of(pid: int) -> dict[str, tuple[str, float]]:
    """Thread id -> the name that it has now, first two words without numbers, and CPU seconds."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        try:
            text = (path / "stat").read_text()
        except OSError:
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        values = text[text.rindex(")") + 2 :].split()
        seconds = (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
        found[path.name] = " ".join(re.sub(r"[\d#-]+", "", name).split()[:2]), seconds
    return found


class ChildFailed(Exception):
    """A child ended badly. Its last lines of output are the text."""


def run(
    command: Sequence[str], log: Path, *, env: dict[str, str], timeout_s: float, threads: bool = False
) -> Usage:
    """Run a child to its end, sampled (the JVM's ``threads`` too). Raises: ChildFailed."""
    with open(log, "wb") as out:
        child = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        sampler = _Sampler(child.pid, threads)
        sampler.start()
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            sampler.stop()
            if child.poll() is None:
                _end(child)
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        what = f"took more than {timeout_s:.0f} s" if code is None else f"ended with {code}"
        raise ChildFailed(f"{' '.join(command)} {what}:\n{tail}")
    return sampler.usage


def _end(child: subprocess.Popen[bytes]) -> None:
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    for process in family:
        try:
            process.kill()
        except psutil.Error:
            continue
    child.wait()
