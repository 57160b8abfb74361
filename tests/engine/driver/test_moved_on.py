"""A state that moves on while it is opened is opened as it is then; else what is missing is told."""

from __future__ import annotations

import pytest

from tests.state.test_manifest import manifest
from watersmeet.errors import StateError
from watersmeet.runtime.coordinator.restore.job_state import retry_if_superseded
from watersmeet.state.commits import commit
from watersmeet.state.manifest import load_newest, manifest_name
from watersmeet.state.store import MemoryStore
from watersmeet.state.stored_record import missing_error


class Moving(MemoryStore):
    """Each time a manifest is asked for, another run has committed ``ticks`` more, and removed it."""

    def __init__(self, ticks):
        super().__init__()
        self.ticks, self.reads = ticks, 0
        commit(self, manifest(1))

    def read(self, name):
        self.reads += 1
        if self.ticks:
            self.ticks -= 1
            tick = int(name[-17:-5])
            commit(self, manifest(tick + 1))
            self.delete(manifest_name(tick))
        return super().read(name)


@pytest.mark.parametrize("ticks", [0, 1, 3])
def test_the_newest_manifest_by_then_is_read(ticks):
    store = Moving(ticks)
    assert load_newest(store).tick == ticks + 1


def test_a_manifest_that_is_there_and_cannot_be_read_is_missing():
    store = Moving(0)
    store.names = lambda folder: [manifest_name(7)]
    with pytest.raises(StateError, match="state-missing"):
        load_newest(store)


def opening(store, moves):
    """What opens a state, of which a run is missing ``moves`` times and each time another run goes on."""
    calls = []

    @retry_if_superseded
    def open_moving_state(plan, schemas, store):
        calls.append(tick := load_newest(store).tick)
        if len(calls) <= moves:
            commit(store, manifest(tick + 1))
            raise missing_error("runs/x")
        return tick

    return lambda: open_moving_state(None, None, store)


def test_it_is_opened_again_as_it_is_by_then():
    assert opening(Moving(0), 3)() == 4
    with pytest.raises(StateError, match="state-missing"):
        opening(Moving(0), 60)()


def test_missing_file_of_the_newest_state_is_reported():
    @retry_if_superseded
    def open_damaged_state(plan, schemas, store):
        raise missing_error("runs/x")

    with pytest.raises(StateError, match="state-missing"):
        open_damaged_state(None, None, Moving(0))
