"""A run's history, from what the run tells of itself while it goes on."""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from watersmeet.errors import StateError
from watersmeet.history import runs
from watersmeet.history.figures import figures_of
from watersmeet.history.keeping import Keeping
from watersmeet.history.points import Figures, subject_of
from watersmeet.observe.progress import Backlog
from watersmeet.observe.reports import TickResult, integer_columns
from watersmeet.plan.explain import explain
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Job
from watersmeet.spec.secrets import public_setting
from watersmeet.state.store import Store

MOST_NOTICES = 100


@dataclass(frozen=True)
class About:
    """What is written down of a run when it begins: ``settings`` of the run and of Spark, as they may be
    shown; ``plan``: EXPLAIN; ``integer_times``: the subjects (``time/…``) whose watermarks are integers."""

    settings: Mapping[str, str]
    plan: str
    integer_times: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, plan: JobPlan) -> About:
        every = (*job.run.items(), *job.settings.items())
        settings = {name: public_setting(name, value) for name, value in every}
        integers = {subject_of("time", *names) for names in integer_columns(plan)}
        return cls(settings, explain(plan), tuple(sorted(integers)))


class Outcome(Protocol):
    """What is read of how a run ended."""

    @property
    def finished(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...


class Recording:
    """What a run tells, kept beside the state. Begins when the run holds its checkpoint (`begin`): a run that
    does not come so far leaves nothing.

    Args:
        store: gives the store of the state, once the run has begun.
        say: is told, once, that the history cannot be written; None: nobody is.
    """

    def __init__(self, store: Callable[[], Store], say: Callable[[str], None] | None, about: About) -> None:
        self._place = store
        self._say = say or (lambda _: None)
        self._about = about
        self._notices: list[str] = []
        self._told: dict[tuple[str, str], str] = {}
        self._backlog: Mapping[str, Backlog] = {}
        self._before: float | None = None
        self._keeping: Keeping | None = None
        self._store: Store | None = None
        self._run: str | None = None

    @contextmanager
    def of_a_run(self) -> Iterator[Callable[[Outcome], None]]:
        """Around the run; what it gives is called with how the run ended."""
        outcomes: list[Outcome] = []
        try:
            yield outcomes.append
        except Exception as error:
            self.end("failed", error)
            raise
        except BaseException:  # Ctrl-C before the run could take it for a wish to stop
            self.end("stopped")
            raise
        for outcome in outcomes:
            self.end("stopped" if outcome.stopped else "finished" if outcome.finished else "caught up")

    def begin(self, *_: object) -> None:
        """The run holds its checkpoint, and has no tick yet."""
        about = self._about
        begun = runs.Begun(
            started_us=_now_us(),
            version=_version(),
            machine=platform.node(),
            settings=about.settings,
            plan=about.plan,
            integer_times=about.integer_times,
        )
        self._store = self._place()
        self._keeping = Keeping(self._store, self._say)
        try:
            self._run = runs.begin(self._store, uuid.uuid4().hex[:8], begun)
        except (StateError, OSError) as error:
            self._say(f"the history of the job cannot be written: {error}")

    def notice(self, text: str) -> None:
        """What a person was told."""
        if len(self._notices) < MOST_NOTICES:
            self._notices.append(text)

    def behind(self, backlog: Mapping[str, tuple[int, str]]) -> None:
        """What is not read yet when the next tick that is told of ended."""
        self._backlog = {name: Backlog(count, of) for name, (count, of) in backlog.items()}

    def tick(self, result: TickResult, seconds: float, parts: Mapping[str, float]) -> None:
        """A tick is over."""
        now = time.monotonic()
        elapsed = seconds if self._before is None else now - self._before
        self._before = now
        if self._keeping is None:
            return
        try:
            figures = figures_of(result, seconds, elapsed, parts, self._backlog)
            told = [words for words in figures.told if self._told.get(words[:2]) != words[2]]
            self._told = {words[:2]: words[2] for words in figures.told}
            self._keeping.add(result.tick, _now_us(), Figures(figures.amounts, figures.levels, told))
        except Exception as error:  # it is for people: no job ends by it
            self._say(
                f"the history of the job has no more ticks of this run: {type(error).__name__}: {error}"
            )
            self._keeping.close()
            self._keeping = None

    def end(self, how: str, error: BaseException | None = None) -> None:
        """The run is over: ``how``, and with which error."""
        if self._keeping is not None:
            self._keeping.close()
        if self._store is None or self._run is None:
            return
        told = None if error is None else str(error)
        ended = runs.Ended(ended_us=_now_us(), how=how, error=told, notices=tuple(self._notices))
        try:
            runs.end(self._store, self._run, ended)
        except (StateError, OSError) as problem:
            self._say(f"the history of the job cannot be written: {problem}")


def _version() -> str:
    try:
        return version("watersmeet")
    except PackageNotFoundError:  # it runs from a source tree
        return "none"


def _now_us() -> int:
    return time.time_ns() // 1000
