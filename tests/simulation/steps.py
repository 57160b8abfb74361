"""Kinds of points, by the name of the step, and which of them a fault strikes.

Of 500 points of a schedule 300 are requests for files of runs; the one at which a tick's record is created
comes once a tick. So what is struck is drawn by its kind first, and then which time that it comes.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from functools import cache

_ENDS = re.compile(r"[/\d].*|-[0-9a-f]{6}.*")


@cache
def _kind(beginning: str) -> str:
    return " ".join(_ENDS.sub("", beginning).split())


def step_of(what: str) -> str:
    """The kind of a point: without numbers and the names of files.

    >>> step_of("before create begun/000000000001.json"), step_of("after append tick 3")
    ('before create begun', 'after append tick')
    """
    cut = what.find("/")
    return _kind(what if cut < 0 else what[:cut])


@dataclass
class Aim:
    """At a step, the ``time``-th time that a process comes to it."""

    step: str
    time: int
    _came: int = field(default=0)

    def hits(self, step: str) -> bool:
        if step != self.step:
            return False
        self._came += 1
        return self._came == self.time


def draw_aim(draw: random.Random, steps: tuple[str, ...]) -> Aim:
    """At one of these steps, each as likely as the others."""
    return Aim(draw.choice(steps), draw.choice((1, 1, 1, 2, 2, 3, 4, 6)))


_WRITTEN = ("aside", "marks", "merged", "runs", "work")
_OF_STORES = (
    *(f"{verb} {folder}" for folder in ("begun", "job", "manifests") for verb in ("create", "head", "get")),
    *(f"{verb} {folder}" for folder in _WRITTEN for verb in ("overwrite", "get", "list", "delete")),
    *(f"{verb} {folder}" for folder in ("begun", "manifests") for verb in ("list", "delete")),
    *(f"{verb} .probe" for verb in ("create", "get", "delete")),
    "delete",
)  # fmt: skip
_OF_TABLES = (
    "append tick", "fence", "look at the table", "names", "list data files", "put a data file",
    "remove a data file",
)  # fmt: skip
_OF_FILES = ("os.rename", "os.rmdir", "os.unlink", "os.mkdir")
_REMOVED = ("before rmtree removes a file", "before rmtree removes a folder")
_OF_TICKS = ("before it is staged", "staged", "ticked")


def requests(into_files: bool) -> tuple[str, ...]:
    """Of a job by the kind of its sink: what it asks services for."""
    return _OF_STORES if into_files else _OF_STORES + _OF_TABLES


@cache
def steps(into_files: bool) -> tuple[str, ...]:
    """Where a process of such a job may be struck."""
    done = requests(into_files) + (_OF_FILES if into_files else ())
    around = tuple(f"{when} {step}" for step in done for when in ("before", "after"))
    return around + _OF_TICKS + (_REMOVED if into_files else ())
