"""A stream without rows that comes to a tick of Spark's begins anew: what is remembered of its end."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from watersmeet.engine.spark.job.breaking import Stopping
from watersmeet.engine.spark.job.query import JobRun


@pytest.mark.parametrize("failed", [None, ValueError("of another thread")])
def test_the_next_stream_fails_in_its_own_words(failed):
    """Spark's errors count unless the stream was told to stop: that the one before was is forgotten. What
    failed meanwhile is not."""
    run = JobRun.__new__(JobRun)
    run._scanned, run._failure, run.by_tasks = [()], None, SimpleNamespace(gave_up=False)
    run.settings = SimpleNamespace(stop=threading.Event(), until_caught_up=False)
    run._heartbeat = nullcontext
    begun = []

    def stream_once():
        begun.append(run._failure)
        run.by_tasks.gave_up = len(begun) == 1
        if run.by_tasks.gave_up:
            run._failure = failed or Stopping()

    run._stream_once = stream_once
    run._stream()
    assert begun == [None, failed]
