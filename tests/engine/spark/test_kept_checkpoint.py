"""A checkpoint that was killed in a tick, as it was written once, is resumed by this version."""

import pytest

import watersmeet
from tests.engine.spark.kept.kept import FILES, KEPT_FILES, add_files, place, read_sink_rows, unpack
from watersmeet.history import reader
from watersmeet.state.store import LocalStore

pytestmark = pytest.mark.spark


def test_stored_checkpoint_of_an_earlier_version_resumes(spark, monkeypatch):
    with place() as folder:
        monkeypatch.chdir(folder)
        expected = unpack(folder)
        add_files(folder, KEPT_FILES, FILES)
        ticks = []
        watersmeet.run(
            (folder / "job.sql").read_text(),
            {"checkpoint": "state", "until_caught_up": True, "finish": True},
            on_tick=lambda result, seconds, parts: ticks.append(result.tick),
        )
        assert ticks[0] == KEPT_FILES, "the tick that was killed is repeated"
        rows = read_sink_rows(folder)
        assert {sink for sink in expected if not expected[sink]} == set()
        assert rows == expected
        history = reader.read(LocalStore(folder / "state" / "state"))
        assert history.problems == []
        assert len(history.runs) == 2
        assert history.ticks > FILES
