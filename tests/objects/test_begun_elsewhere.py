"""What ticks were begun with, where the state is in an object store: of this history, and of others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.runtime.spark.checkpoint.moved_files import MovedSources
from watersmeet.runtime.spark.checkpoint.remote_checkpoint import TickIntent
from watersmeet.state.commits import commit
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import Manifest, load_newest, manifest_name


def next_manifest(store):
    before = load_newest(store)
    tick, follows = (1, "") if before is None else (before.tick + 1, before.writer)
    made = Manifest(tick=tick, clock_us=0, fingerprints={}, sources=[], queries={}, follows=follows)
    return commit(store, made)


def host(batch, offsets):
    return {"query_id": "q", "batch": batch, "offsets": offsets}


@pytest.fixture
def checkpoint(tmp_path, store):
    return Checkpoint(tmp_path / "one", store)


def test_tick_intent_of_an_abandoned_history_is_replaced(checkpoint, store):
    for _ in range(4):
        newest = next_manifest(store)
    TickIntent(checkpoint).remember(newest, host(4, "of the run elsewhere"))()
    store.delete(manifest_name(4))  # a restore, which that run did not see
    again = next_manifest(store)
    assert again.tick == 4
    begun = TickIntent(checkpoint)
    assert checkpoint.stored_job.begun(5, again.writer) is None
    begun.remember(again, host(4, "read anew"))()
    assert checkpoint.stored_job.begun(5, again.writer)["offsets"] == "read anew"
    with pytest.raises(StateError, match="another process has started tick"):
        TickIntent(checkpoint).remember(newest, host(4, "of the run elsewhere"))()
    assert checkpoint.stored_job.begun(5, again.writer)["offsets"] == "read anew"
    with pytest.raises(StateError, match="another process has started tick"):
        begun.remember(again, host(4, "read by a second run"))()


@pytest.mark.parametrize("behind", [0, 1, 4])
@pytest.mark.parametrize("further", [1, 3])
def test_lagging_run_never_restarts_a_committed_tick(checkpoint, store, behind, further):
    """What it was begun with is garbage by then, and the name is free; a sink that got no rows of the tick
    would take others."""
    kept = TickRetention(store)
    newest = None
    for _ in range(behind):
        newest = next_manifest(store)
        kept.commit(newest)
    laggard, kept = newest, TickRetention(store)  # a driver that begins looks for garbage
    for number in range(further):
        TickIntent(checkpoint).remember(newest, host(behind + number, "as it was read"))()
        newest = next_manifest(store)
        kept.commit(newest)
        kept.settle()
    assert checkpoint.stored_job.begun(behind + 1, "" if laggard is None else laggard.writer) is None
    for batch in ("read otherwise", "as it was read"):
        with pytest.raises(StateError, match="another process has started tick") as raised:
            TickIntent(checkpoint).remember(laggard, host(behind, batch))()
        assert raised.value.code == "state-fenced"


def test_an_own_tick_of_another_history_is_not_repeated(checkpoint, store):
    for _ in range(3):
        newest = next_manifest(store)
    begun = TickIntent(checkpoint)
    begun.intend(newest, Intent(4, 99, False))
    assert begun.intent(newest) == Intent(4, 99, False)
    store.delete(manifest_name(3))
    assert begun.intent(next_manifest(store)) is None


def test_a_batch_that_is_planned_no_more_is_forgotten(checkpoint, store, monkeypatch):
    """As after --accept-loss, or when Spark's checkpoint was made anew as somebody asked."""
    newest = next_manifest(store)
    TickIntent(checkpoint).remember(newest, host(1, "which the next run repeats"))()
    begun = TickIntent(checkpoint)
    monkeypatch.setattr("watersmeet.runtime.spark.checkpoint.remote_checkpoint.are_others", lambda *_: True)
    begun.fit(2, newest, None, 10, MovedSources())
    assert begun.is_due
    monkeypatch.setattr(Checkpoint, "last_planned", lambda self: 1)
    begun.forget_if_replanned()
    assert begun.is_due
    monkeypatch.setattr(Checkpoint, "last_planned", lambda self: 0)
    begun.forget_if_replanned()
    assert not begun.is_due
    begun.remember(newest, host(1, "from other offsets"))()


def test_an_intent_of_a_tick_after_those_that_went_is_dropped(tmp_path):
    """A restore that was killed in between has left it."""
    checkpoint = Checkpoint(tmp_path / "one")
    with checkpoint.lock():
        checkpoint.intend(Intent(9, 1, False))
        newest = next_manifest(checkpoint.store)
        assert TickIntent(checkpoint).intent(newest) is None
        assert checkpoint.intent() is None


def test_mistyped_store_location_is_not_recorded(tmp_path, store, endpoint):
    from tests.support.s3 import store_at

    wrong = Checkpoint(tmp_path / "one", store_at(endpoint, "bucket-nowhere"))
    with pytest.raises(StateError) as raised, wrong.lock():
        pass
    assert raised.value.code == "no-bucket"
    with Checkpoint(tmp_path / "one", store).lock():
        assert (tmp_path / "one" / "store").exists()


@pytest.mark.parametrize("now", ["empty", "another's"])
def test_lost_state_is_refused_and_the_job_never_restarts_empty(checkpoint, store, now):
    with checkpoint.lock():
        checkpoint.owner()
        newest = next_manifest(store)
        for folder in ("offsets", "commits"):
            (checkpoint.spark / folder).mkdir(parents=True)
            (checkpoint.spark / folder / "0").write_text("v1")
        checkpoint.check_not_lost()
    checkpoint.stored_job.remove()
    if now == "another's":
        checkpoint.stored_job.owner(None)
    with checkpoint.lock(), pytest.raises(StateError, match="committed ticks") as raised:
        TickIntent(checkpoint).fit(1, None, None, 10, MovedSources())
    assert raised.value.code == "state-lost"
    assert (checkpoint.spark / "commits" / "0").exists()
    assert newest.tick == 1


def test_run_fenced_by_a_started_tick_reports_fencing_not_sink_ahead(checkpoint, store):
    """And not that its sink is ahead, as after a restore from a copy; what it began itself is no other's."""
    newest = next_manifest(store)
    driver = SimpleNamespace(store=store, manifest=newest)
    ahead = EngineError("ahead", code="sink-ahead")
    begun = TickIntent(checkpoint)
    assert begun.told(ahead, driver) is ahead
    TickIntent(checkpoint).remember(newest, host(1, "of another run"))()
    assert begun.told(ahead, driver).code == "state-fenced"
    begun.remember(newest, host(1, "of another run"))()
    assert begun.told(ahead, driver) is ahead
