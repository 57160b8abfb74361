"""Ticks into a user's function without Spark: ``function_ticks.py FOLDER TICKS POINT TICK``.

The function puts rows into ``given.db`` in the folder, by (job, INSERT, tick, part). The file ``committed``
is the state: the last tick; ``files`` is where rows are staged. The process goes on behind it, and kills
itself (SIGKILL) at a point of a tick:

    staged          all rows are staged, nothing is recorded
    recorded        how the tick is cut is, and no part is out
    half-out        some parts are out, one of them half, in a transaction of the function's
    out             all parts are, and the sink has not said so
    published       it has, and the state does not have the tick
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.function_frames import Row, identity_of, prepare_sink, sink_of, stage
from tests.sinks.given_functions import into_sqlite
from watersmeet.sinks.function import FunctionSink
from watersmeet.state.store import LocalStore

POINTS = ("staged", "recorded", "half-out", "out", "published")
ROWS = 40


def rows_of_tick(tick: int) -> list[Row]:
    """Rows of a tick, in whatever order they come; every fifth tick has none."""
    draw = random.Random(tick)
    if tick % 5 == 0:
        return []
    rows = [(f"k{n}", None if draw.random() < 0.2 else f"{n} in {tick}") for n in range(ROWS)]
    random.shuffle(rows)
    return rows


def main(folder: str, last: int, point: str, fatal: int) -> None:
    os.chdir(folder)
    state, store = Path("committed"), LocalStore("files")
    committed = int(state.read_text()) if state.exists() else 0
    now = {"tick": 0}

    def die_at(*points: str) -> None:
        if point in points and now["tick"] == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    record = FunctionSink.record_parts

    def record_and_die(self: FunctionSink, *given: Any) -> Any:
        parts = record(self, *given)
        die_at("recorded")
        return parts

    FunctionSink.record_parts = record_and_die  # type: ignore[method-assign]
    sink = prepare_sink(sink_of("tests.kills.function_ticks:insert_into_sqlite_or_die"), store)

    def tasks(part: Any, count: int) -> list[Any]:
        order = random.sample(range(count), count)
        said = []
        for done, number in enumerate(order):
            is_half = done == count // 2
            os.environ["DIES"] = str(is_half and point == "half-out" and now["tick"] == fatal)
            said.append(_one(part, number))
        die_at("out")
        return said

    sink.call_in(tasks, lambda tick: tick <= committed)
    for tick in range(committed + 1, last + 1):
        now["tick"] = tick
        attempt = stage(sink, tick, rows_of_tick(tick), random.choice([1, 3, 5]))
        die_at("staged")
        sink.check("q", tick, identity_of(tick))
        sink.publish("q", tick, attempt, identity_of(tick))
        die_at("published")
        made_new = state.with_suffix(".new")
        made_new.write_text(json.dumps(tick))
        os.replace(made_new, state)
        store.delete_all([*store.names("work"), *store.names("parts")])
    sink.close()


def _one(part: Any, number: int) -> Any:
    row = pa.record_batch({"id": pa.array([number], pa.int64())})
    return part.write(0, row.schema, iter([row]))


def insert_into_sqlite_or_die(part: Any, rows: pa.RecordBatchReader) -> None:
    """`into_sqlite`, or the half of it: the rows are there, and are not committed."""

    def dying() -> Iterator[pa.RecordBatch]:
        yield from rows
        os.kill(os.getpid(), signal.SIGKILL)

    dies = os.environ.get("DIES") == "True"
    into_sqlite(part, pa.RecordBatchReader.from_batches(part.schema, dying()) if dies else rows)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
