"""The small records of a checkpoint are read, and written, as they were in the first version."""

from __future__ import annotations

import pytest

from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.store import MemoryStore

INTENT = Intent(8, 99, True)
IN_DIRECTORY = {
    "job": '{"id": "abc"}',
    "intent": '{"tick": 8, "clock_us": 99, "end": true}',
    "settings": '{"digest": "d", "settings": {"lag": "1"}}',
}
IN_STORE = {
    "job/id": '{"id": "abc"}',
    "settings/d": '{"lag": "1"}',
    "begun/000000000007.json": '{"batch": 6, "follows": "w", "offsets": "o", "query_id": "q"}',
    "begun/000000000008.json": '{"clock_us": 99, "end": true, "follows": "w"}',
}
BATCH = {"query_id": "q", "batch": 6, "offsets": "o"}


def test_those_of_a_directory_are_read(tmp_path):
    for name, text in IN_DIRECTORY.items():
        (tmp_path / name).write_bytes(add_checksum(name, text))
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.owner("abc") == checkpoint.find_owner() == "abc"
    assert checkpoint.intent() == INTENT
    assert checkpoint.settings() == ("d", {"lag": "1"})


def test_those_of_a_directory_are_written(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.owner("abc")
    checkpoint.intend(INTENT)
    checkpoint.keep_settings("d", {"lag": "1"})
    assert {n: verify_checksum(n, (tmp_path / n).read_bytes()).decode() for n in IN_DIRECTORY} == IN_DIRECTORY


@pytest.fixture
def store():
    return MemoryStore()


def test_those_of_a_store_are_read(tmp_path, store):
    for name, text in IN_STORE.items():
        store.create(name, add_checksum(name, text))
    checkpoint = Checkpoint(tmp_path, store)
    assert checkpoint.owner() == "abc"
    assert checkpoint.settings("d") == ("d", {"lag": "1"})
    assert checkpoint.stored_job.begun(7, "w") == {**BATCH, "follows": "w"}
    assert checkpoint.intent(8, "w") == INTENT
    assert checkpoint.intent(8, "another") is None


def test_those_of_a_store_are_written(tmp_path, store, monkeypatch):
    checkpoint = Checkpoint(tmp_path, store)
    monkeypatch.setattr(checkpoint.stored_job, "check_not_committed", lambda tick, follows: None)
    checkpoint.owner("abc")
    checkpoint.keep_settings("d", {"lag": "1"})
    checkpoint.stored_job.begin(7, BATCH, "w")
    checkpoint.intend(INTENT, "w")
    assert {n: verify_checksum(n, bytes(store.read(n))).decode() for n in IN_STORE} == IN_STORE
