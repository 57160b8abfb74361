"""Two states that are copied into one place at the same time: what is said to be a copy is one."""

from __future__ import annotations

import pytest

from tests.support.ticks import plan_of
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.state.copy import copy_newest
from watersmeet.state.manifest import Manifest, load_newest, manifest_names


def state(value: int, *, ticks: int = 1) -> MemoryStore:
    store = MemoryStore()
    job = LocalJob(plan_of("SELECT l.v, r.v AS w FROM l JOIN r ON l.k = r.k AND l.t = r.t"), store)
    for _ in range(ticks):
        job.tick({"l": [({"t": 1, "k": "a", "v": value, "i": 0}, 1)], "r": []})
    return store


@pytest.mark.parametrize("ticks", [1, 2])
def test_of_two_jobs_the_second_one_to_end_is_refused(ticks: int) -> None:
    target, other = MemoryStore(), state(2, ticks=ticks)

    def copy_other_state(manifest: Manifest) -> None:
        copy_newest(other, target, lambda told: None)

    with pytest.raises(StateError, match="already contains a state"):
        copy_newest(state(1), target, copy_other_state)
    there, wanted = load_newest(target), load_newest(other)
    assert there is not None
    assert wanted is not None
    assert there.writer == wanted.writer


def test_the_same_state_may_be_copied_twice() -> None:
    target, source = MemoryStore(), state(1)

    def copy_same_state(manifest: Manifest) -> None:
        copy_newest(source, target, lambda told: None)

    copied = copy_newest(source, target, copy_same_state)
    assert manifest_names(target) == manifest_names(source)[-1:]
    assert load_newest(target) == copied
