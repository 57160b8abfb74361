"""Which store a run's settings name, and a reset of what is there."""

from __future__ import annotations

import pytest

from watersmeet.errors import SpecError, StateError
from watersmeet.objects.settings import store_of
from watersmeet.parser.statements import run_settings
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent, check_reset_finished


def test_settings_name_a_store():
    text = """SET state_store = 's3://bucket/jobs/one/'; SET state_store_region = 'eu-west-1';
              SET state_store_endpoint = 'http://localhost:9000'; SET state_store_allow_http = 'true';
              SET state_cache = '64 MB'"""
    store = store_of(run_settings(text, {}))
    assert store.place.url == "s3://bucket/jobs/one"
    assert dict(store.place.options) == {"endpoint": "http://localhost:9000", "region": "eu-west-1"}
    assert store.place.allow_http
    assert store.cache.limit == 64 << 20
    assert store_of({}) is None
    assert store_of({"state_store": "s3://bucket", "state_cache": "none"}).cache is None


@pytest.mark.parametrize(
    "settings",
    [
        {"state_cache": "1 GB"},
        {"state_store_region": "eu-west-1"},
        {"state_store": "state"},
        {"state_store": "s3://bucket", "state_cache": "much"},
        {"state_store": "s3://bucket", "state_cache": "3 KB"},
        {"state_store": "s3://bucket", "state_store_endpoint": "http://me:word@localhost:9000"},
    ],
)
def test_what_names_none_is_refused(settings):
    with pytest.raises(SpecError) as raised:
        store_of(settings)
    assert raised.value.hint


def test_what_makes_a_job_the_same_is_in_the_store(tmp_path, store):
    one, two = (Checkpoint(tmp_path / name, store) for name in ("one", "two"))
    with one.lock(), two.lock():
        assert one.owner() == two.owner()
        one.keep_settings("d1", {"lag": "1"})
        one.keep_settings("d2", {"lag": "2"})
        assert two.settings("d1") == ("d1", {"lag": "1"})
        assert two.settings("d3") is None
        one.intend(Intent(7, 99, False))
        one.intend(Intent(7, 99, False))
        assert two.intent(7) == Intent(7, 99, False)
        assert two.intent(8) is None
        with pytest.raises(StateError, match="another process has started tick"):
            two.intend(Intent(7, 100, False))
        with pytest.raises(StateError, match="another process has started tick"):
            two.stored_job.begin(7, {"query_id": "q", "batch": 3, "offsets": "o"})


def test_a_reset_that_was_killed_is_known_and_done_again(tmp_path, store, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "one", store)
    checkpoint.owner()
    store.create("manifests/000000000001.json", b"x")
    store.write("runs/a", b"x")
    store.write("others/a", b"somebody's")

    def interrupt_clear(self, folders, last):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "clear", interrupt_clear)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.stored_job.remove()
    with pytest.raises(StateError, match="was interrupted"):
        check_reset_finished(checkpoint, "watersmeet reset")
    checkpoint.stored_job.remove()
    check_reset_finished(checkpoint, "watersmeet reset")
    assert [store.names(folder) for folder in ("manifests", "runs", "job")] == [[], [], []]
    assert store.names("others") == ["others/a"]
