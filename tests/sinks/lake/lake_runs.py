"""Runs of a little job over table sinks, without Spark, each in a process of its own that may be killed.

A process that has imported everything forks one for each run. A run goes on from its state (a file, as the
manifest is), writes ticks by the sinks' protocol, and may be killed by SIGKILL before or after each step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.names import DELETED
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink, part_from, plain_part
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.types.parser import sql_type

LAST = 4
COLUMNS = (Column("k", sql_type("BIGINT")), Column("v", sql_type("STRING")))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def rows_of(insert: str, tick: int, keyed: bool) -> list[tuple[int, str, bool]]:
    """What a tick puts out: key, value, whether the key goes. The third tick has no rows."""
    if tick == 3:
        return []
    if not keyed:
        return [(n, f"{insert}{tick}", False) for n in range(tick + 1)]
    begin = 0 if insert == "a" else 100
    return [(begin + n, f"{insert}{tick}", n == tick) for n in range(tick - 1, tick + 4)]


def compute_expected_rows(inserts: list[str], keyed: bool, last: int = LAST) -> list[tuple[int, str]]:
    """What the table holds after all ticks, in order."""
    if not keyed:
        return sorted(
            (k, v) for insert in inserts for t in range(1, last + 1) for k, v, _ in rows_of(insert, t, keyed)
        )
    held: dict[int, str] = {}
    for tick in range(1, last + 1):
        for insert in inserts:
            for k, v, gone in rows_of(insert, tick, keyed):
                if gone:
                    held.pop(k, None)
                else:
                    held[k] = v
    return sorted(held.items())


def identity(tick: int) -> dict[str, str]:
    return {"clock": f"c{tick}", "rows": f"r{tick}"}


def batch(rows: list[tuple[int, str, bool]], keyed: bool) -> pa.RecordBatch:
    columns = {"k": [r[0] for r in rows], "v": [r[1] for r in rows]}
    schema = SCHEMA
    if keyed:
        columns[DELETED], schema = [r[2] for r in rows], SCHEMA.append(pa.field(DELETED, pa.bool_()))
    return pa.record_batch(columns, schema)


def stage_in_two_tasks(sink: Any, insert: str, tick: int, attempt: str, rows: list[Any], keyed: bool) -> None:
    """As two tasks stage rows, of which one runs twice: what its first attempt wrote does not count."""
    schema = batch([], keyed).schema
    part = part_from(json.loads(json.dumps(plain_part(sink.arrow_part(schema, insert, tick, attempt)))), {})
    said = []
    for partition, some in enumerate((rows[::2], rows[1::2])):
        reports = [part.write(partition, schema, iter([batch(some, keyed)])) for _ in range(2 - partition)]
        said += [report for report in reports[-1:] if report is not None]
    sink.take_parts(insert, tick, attempt, said)
    assert sink.staged_rows(insert, tick, attempt) == len(rows)


def state_of(path: Path) -> tuple[int, dict[str, Any]]:
    return tuple(json.loads(path.read_text())) if path.exists() else (0, {})


class Steps:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, at: int | None, tell: int) -> None:
        self.count, self._at, self._tell = 0, at, tell

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        done = getattr(owner, name)

        def call_between_steps(*args: Any, **named: Any) -> Any:
            self()
            answer = done(*args, **named)
            self()
            return answer

        setattr(owner, name, call_between_steps)


def run(task: dict[str, Any], steps: Steps) -> None:
    """All ticks that are left."""
    from watersmeet.sinks.lake.data_files import LakePart
    from watersmeet.sinks.lake.storage import Storage

    keyed, inserts, state = task["keyed"], task["inserts"], Path(task["state"])
    spec = SinkSpec("out", task["connector"], task["options"], COLUMNS, ("k",) if keyed else ())
    sink = make_sink(spec)
    steps.around(LakePart, "write")
    steps.around(Storage, "remove")
    for name in ("open", "look", "append", "merge", "fence"):
        steps.around(sink.table, name)
    for _ in inserts:
        sink.prepare(COLUMNS, "job-1")
    committed, parts = state_of(state)
    last_parts = {insert: (tick, identity(tick)) for insert, tick in parts.items()}
    sink.resume(inserts, Resumed(committed, committed < LAST, last_parts))
    for tick in range(committed + 1, LAST + 1):
        attempt = uuid.uuid4().hex
        for insert in inserts:
            stage_in_two_tasks(sink, insert, tick, attempt, rows_of(insert, tick, keyed), keyed)
        for insert in inserts:
            sink.check(insert, tick, identity(tick))
        for insert in inserts:
            if sink.publish(insert, tick, attempt, identity(tick)):
                parts[insert] = tick
        steps()
        Path(f"{state}.new").write_text(json.dumps([tick, parts]))
        os.replace(f"{state}.new", state)
        steps()
    sink.close()


def serve() -> None:
    """One run per line of standard input; a line for each: how it ended, and how many steps it took."""
    for line in sys.stdin:
        task = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            steps = Steps(task["kill_at"], writing)
            try:
                run(task, steps)
                os.write(writing, json.dumps({"steps": steps.count}).encode())
            except BaseException:
                os.write(writing, json.dumps({"error": traceback.format_exc()}).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            text = said.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(text if text else json.dumps({"killed": killed}), flush=True)


if __name__ == "__main__":
    import pyiceberg.catalog
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    serve()
