"""A run that another one has overtaken says so; what is really missing, or restored, is told as it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.state.test_manifest import manifest
from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.coordinator.commit import explain_fencing
from watersmeet.sinks.part_mark import Resumed, newer_parts
from watersmeet.state.commits import commit
from watersmeet.state.store import MemoryStore
from watersmeet.state.stored_record import missing_error

BEFORE, NOW = 3, 5


def driver(own, store):
    return SimpleNamespace(store=store, manifest=own)


def ahead():
    with pytest.raises(EngineError) as raised:
        newer_parts("out", "lake", [("q", NOW)], ["q"], lambda *_: None, Resumed(BEFORE))
    return raised.value


@pytest.mark.parametrize("error", [ahead(), missing_error("runs/x")], ids=lambda error: error.code)
def test_fenced_run_is_reported_as_fenced(error):
    store = MemoryStore()
    own = commit(store, manifest(BEFORE))
    assert explain_fencing(error, driver(own, store)) is error
    commit(store, manifest(BEFORE + 1))
    for begins_at in (own, None):
        told = explain_fencing(error, driver(begins_at, store))
        assert isinstance(told, StateError)
        assert told.code == "state-fenced"
        assert "restore" not in f"{told.message} {told.hint}"


def test_a_manifest_of_the_same_tick_by_another_run_is_seen():
    store = MemoryStore()
    own = commit(store, manifest(BEFORE))
    other = own.model_copy(update={"writer": "another"})
    assert explain_fencing(ahead(), driver(other, store)).code == "state-fenced"


def test_what_is_no_such_error_or_cannot_be_looked_into_stays():
    store, lost = MemoryStore(), missing_error("runs/x")
    assert explain_fencing(lost, None) is lost
    assert explain_fencing(lost, driver(None, store)) is lost
    own = commit(store, manifest(BEFORE))
    commit(store, manifest(NOW))
    for other in (ValueError("x"), EngineError("x", code="sink-behind")):
        assert explain_fencing(other, driver(own, store)) is other

    def away(folder):
        raise StateError("away", code="store-away")

    store.names = away
    assert explain_fencing(lost, driver(own, store)) is lost


def test_uncommitted_tick_of_another_run_is_reported_as_fenced():
    """The sink has it, and the manifests do not yet say that anybody went on."""
    empty, store, asked = MemoryStore(), MemoryStore(), []

    def somebody(tick, writer):
        asked.append((tick, writer))
        return {"offsets": "of another"}

    own = commit(store, manifest(BEFORE))
    for one in (driver(None, empty), driver(own, store)):
        assert explain_fencing(ahead(), one, lambda *_: None).code == "sink-ahead"
        told = explain_fencing(ahead(), one, somebody)
        assert told.code == "state-fenced"
        assert "another run of the job has started tick" in told.message
    assert asked == [(1, ""), (BEFORE + 1, own.writer)]
    lost = missing_error("runs/x")
    assert explain_fencing(lost, driver(own, store), somebody) is lost
