"""A driver that sleeps while it commits, before any of its requests, and others that go on, back (`state
restore`) and on meanwhile, or begin anew (`reset`), in all interleavings: the state stays that of those who
came last.

The others go by what is there, as `commit` and the command do; what stays is compared with what they did.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement

import pytest

from tests.support.effort import at_effort
from tests.support.far_store import FarStore
from watersmeet.errors import StateError
from watersmeet.state.checksums import add_checksum
from watersmeet.state.commits import commit
from watersmeet.state.manifest import Manifest, load, load_newest, manifest_name, manifest_names

KEEP = 3
ASKED = 7
"""More requests than a commit makes."""


class SteppedStore(FarStore):
    """``before``: told of each request, while it is set."""

    before: Callable[[], None] | None = None

    def _step(self) -> None:
        if self.before is not None:
            before, self.before = self.before, None  # what others do is not told
            before()
            self.before = before

    def create(self, name, data):
        self._step()
        return super().create(name, data)

    def read(self, name):
        self._step()
        return super().read(name)

    def has(self, name):
        self._step()
        return super().has(name)

    def names(self, folder):
        self._step()
        return super().names(folder)

    def delete(self, name):
        self._step()
        super().delete(name)


def next_of(store, owner):
    newest = load_newest(store)
    tick, follows = (1, "") if newest is None else (newest.tick + 1, newest.writer)
    return Manifest(
        tick=tick, clock_us=0, fingerprints={}, sources=[], queries={}, owner=owner, follows=follows
    )


class Others:
    """``last``: what they committed last, or went back to."""

    def __init__(self, store):
        self.store, self.owner, self.last = store, "a", None
        self.store.create("job/id", add_checksum("job/id", json.dumps({"id": "a"})))

    def tick(self):
        try:
            self.last = commit(self.store, next_of(self.store, self.owner))
        except StateError as error:
            if error.code == "state-fenced":  # the sleeper was there first
                self.last = None
            elif error.code != "state-forked":  # what it created is not taken away yet
                raise
            return
        for name in manifest_names(self.store)[:-KEEP]:
            self.store.delete(name)

    def back(self, tick) -> Iterator[None]:
        """The newest manifest goes first, one a step; as much as the command, where that tick is there."""
        names = manifest_names(self.store)
        if manifest_name(tick) in names:
            for name in reversed(names[names.index(manifest_name(tick)) + 1 :]):
                self.store.delete(name)
                yield
            self.last = load(self.store, manifest_name(tick))

    def reset(self):
        for name in ("job/id", *manifest_names(self.store)):
            self.store.delete(name)
        self.owner = "b"
        self.store.create("job/id", add_checksum("job/id", json.dumps({"id": "b"})))
        self.last = None

    def steps(self, what: str) -> list[Callable[[], object]]:
        """``t``: a tick; a digit: back to that tick, two steps at least; ``r``: a reset."""
        steps: list[Callable[[], object]] = []
        for each in what:
            if each == "t":
                steps.append(self.tick)
            elif each == "r":
                steps.append(self.reset)
            else:
                going: list[Iterator[None]] = []

                def begins(tick=int(each), going=going):
                    going.append(self.back(tick))
                    next(going[0], None)

                steps += [begins, lambda going=going: list(going[0])]
        return steps


# The sleeper's tick is 5, and 3 and 4 are kept beside it.
@pytest.mark.parametrize(
    "what",
    at_effort(
        quick=["tt5t", "t4tt", "3tt", "rt"],
        full=["tt", "tt5", "tt5t", "tt4t", "t4tt", "3tt", "4t4t", "r", "rt", "ttt6t"],
    ),
)
def test_who_was_passed_takes_away_nothing_but_its_own(what):
    ended = Counter()
    count = len(Others(SteppedStore()).steps(what))
    for at in combinations_with_replacement(range(ASKED + 1), count):
        store = SteppedStore()
        others = Others(store)
        for _ in range(4):
            others.tick()
        steps, asked = others.steps(what), -1

        def run_due_steps(at=at, steps=steps, upto=None):
            nonlocal asked
            asked += 1
            while steps and at[-len(steps)] <= (asked if upto is None else upto):
                steps.pop(0)()

        mine, own = next_of(store, "a"), None
        store.before = run_due_steps
        try:
            own = commit(store, mine)
        except StateError as error:
            if error.code != "state-fenced":
                raise
        store.before = None
        run_due_steps(upto=ASKED)
        newest = load_newest(store)  # no history is forked
        ended["stays" if own else "fenced"] += 1
        if others.last is not None:
            assert newest is not None, at
            if newest.writer != others.last.writer:  # unless the sleeper's tick is the one that follows
                assert own is not None, at
                assert newest.follows == others.last.writer, at
        elif others.owner == "b":
            assert newest is None or newest.owner == "b", at
        else:
            assert newest is not None, at
    assert ended["fenced"], ended
    assert ended["stays"] or "r" in what or "3" in what, ended
