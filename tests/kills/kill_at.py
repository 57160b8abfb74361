"""The command line, killed (SIGKILL) at a named point: ``kill_at.py POINT TICK run JOB.SQL …``.

TICK counts from 1; the end of input is the tick that follows its intent, whatever its number. Points:

    advanced        the watermarks moved, nothing is staged
    beneath         the first join of a chain is done, the last one is not
    staged          the first sink has staged the tick's rows
    half-published  of two sinks the first one shows the tick
    untold          all sinks show it but the one that says that it is complete
    published       all sinks show it, no manifest has it
    joint-moved     the transaction of rows, state and offsets has done all, and is not committed
    joint-answered  it is committed, and nobody has been told
    committed       the manifest has it, Spark's checkpoint does not
    caught-up       before the end of input is intended
    intended        behind it, before its tick
    end-…           the same points of that tick
"""

from __future__ import annotations

import os
import signal
import sys

from watersmeet.cli.main import main
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick, RunningTick, StartedTick
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.tick import tick as spark_tick
from watersmeet.runtime.spark.tick.nodes import SinkFrame
from watersmeet.runtime.spark.tick.tick import SparkTicks
from watersmeet.sinks.file_sink import FileSink
from watersmeet.sinks.function import FunctionSink
from watersmeet.sinks.kafka.sink import KafkaSink
from watersmeet.sinks.postgres.sink import PostgresSink


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(point: str, tick: int) -> None:
    """Patch the package so that this process dies at the point."""
    at_the_end = point.startswith("end-")
    point = point.removeprefix("end-")
    now = {"ending": False, "published": 0, "sinks": 0}

    def is_time(number: int) -> bool:
        return now["ending"] if at_the_end else number == tick and not now["ending"]

    run, intend = SparkTicks.run, Checkpoint.intend
    advance, commit = StartedTick.advance, ConcludedTick.commit
    write, settle = SinkFrame.write, RunningTick.settle
    publish_together = spark_tick.publish_together
    publishes = {kind: kind.publish for kind in (FileSink, FunctionSink, KafkaSink, PostgresSink)}

    def patched_run(self, driver, reading, host, given):
        now["ending"], now["published"] = given.end, 0
        now["sinks"] = len(self._outputs.sinks)
        return run(self, driver, reading, host, given)

    def patched_intend(self, intent, *others, **named):
        if point == "caught-up" and intent.end:
            die()
        intend(self, intent, *others, **named)
        if point == "intended" and intent.end:
            die()

    def patched_advance(self, *others, **named):
        running = advance(self, *others, **named)
        if point == "advanced" and is_time(self.start.tick):
            die()
        return running

    def patched_write(self, task, *others):
        found = write(self, task, *others)
        if point == "staged" and is_time(task.tick):
            die()
        return found

    def patched_settle(self, name, number, *others, **named):
        settle(self, name, number, *others, **named)
        if point == "beneath" and number != self.queries[name].query.root.number and is_time(self.start.tick):
            die()

    def patched_publish(self, insert, number, attempt, identity):
        found = publishes[type(self)](self, insert, number, attempt, identity)
        now["published"] += 1
        wanted = {"half-published": 1, "untold": now["sinks"] - 1, "published": now["sinks"]}.get(point)
        if now["published"] == wanted and is_time(number):
            die()
        return found

    def patched_commit(self, *told):
        commit(self, *told)
        if point == "committed" and is_time(self.result.tick):
            die()

    def patched_together(sinks, number, attempt, identity, then):
        def then_die(cursor, inserts):
            made = then(cursor, inserts)
            if point == "joint-moved" and is_time(number):
                die()
            return made

        made = publish_together(sinks, number, attempt, identity, then_die)
        if point == "joint-answered" and is_time(number):
            die()
        return made

    SparkTicks.run = patched_run
    spark_tick.publish_together = patched_together
    Checkpoint.intend = patched_intend
    StartedTick.advance, ConcludedTick.commit = patched_advance, patched_commit
    SinkFrame.write, RunningTick.settle = patched_write, patched_settle
    for kind in publishes:
        kind.publish = patched_publish


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
