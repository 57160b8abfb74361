"""A stream without rows that comes to a tick of Spark's begins anew, with rows."""

from __future__ import annotations

import os

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.tick.reading.arrow_ingest import ArrowReading
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE s (k STRING, v INT)
    WITH ('connector' = 'file', 'path' = '{folder}', 'format' = 'csv', 'maxFilesPerTrigger' = '1');
CREATE SINK out WITH ('connector' = 'memory');
INSERT INTO out SELECT k, v FROM s;
"""
FILES = [b"k,v\na,1\n", b"k,v\nb,2\rc,3\n", "k,v\nmüller,4\n".encode("latin-1")]
"""Of these tasks read the first, and Spark alone the second; the third stops a job."""


def test_the_next_stream_fails_in_its_own_words(spark, tmp_path, monkeypatch):
    """That the stream before was to end is no reason to pass over its error."""
    begun, begin_stream = [], ArrowReading.begin_stream

    def begin_and_record_stream(self):
        begun.append(begin_stream(self))
        return begun[-1]

    monkeypatch.setattr(ArrowReading, "begin_stream", begin_and_record_stream)
    MemorySink.clear()
    (tmp_path / "in").mkdir()
    for number, content in enumerate(FILES):
        path = tmp_path / "in" / f"{number}.csv"
        path.write_bytes(content)
        os.utime(path, (1e9 + number,) * 2)  # Spark reads the oldest first
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, JOB.format(folder=tmp_path / "in"), tmp_path / "state")
    assert caught.value.code == "file-not-utf8"
    assert begun == [True, False], "a stream without rows, then one with rows"
    assert sorted(row["v"] for row in MemorySink.rows("out")) == [1, 2, 3]
    MemorySink.clear()
