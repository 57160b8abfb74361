"""Ticks into a table of PostgreSQL without Spark: ``postgres_ticks.py KIND FOLDER URL TICKS POINT TICK``.

The file ``committed`` in the folder is the state: the last tick, and its identity. The process goes on behind
it, and kills itself (SIGKILL) at a point of a tick:

    half-staged     one piece of rows is in the staging table, others are not
    staged          all are
    begun           the transaction that publishes holds its lock
    moved           it has done all, and is not committed
    answered        it is committed, and nobody knows it
    published       the sink has said so, the state does not have it
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.postgres_frames import ArrowFrame
from tests.support.columns import column
from watersmeet.names import DELETED, SHOWN_DIFF, SHOWN_TICK
from watersmeet.postgres_server import Server
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.postgres import copy as parts
from watersmeet.sinks.postgres.ledger import PostgresLedger
from watersmeet.sinks.postgres.sink import PostgresSink
from watersmeet.spec.model import Sink

POINTS = ("half-staged", "staged", "begun", "moved", "answered", "published")
KINDS = ("append", "changes", "upsert")
TYPES = {
    "append": {"n": "BIGINT", "s": "STRING"},
    "changes": {"n": "BIGINT", "s": "STRING", SHOWN_DIFF: "BIGINT", SHOWN_TICK: "BIGINT"},
    "upsert": {"n": "BIGINT", "s": "STRING"},
}


def rows_of_tick(kind: str, tick: int) -> list[tuple[Any, ...]]:
    """Rows of a tick, the same whoever asks; of upserts the last value says whether the key is gone."""
    draw = random.Random(f"{kind}{tick}")
    if kind == "append":
        return [(tick, draw.choice(["a", "ö", None])) for _ in range(draw.randrange(0, 30))]
    if kind == "changes":
        return [(draw.randrange(9), "x", draw.choice([-1, 1]), tick) for _ in range(20)]
    return [(key, f"{key} in {tick}", draw.random() < 0.3) for key in draw.sample(range(40), 15)]


def identity_of(tick: int) -> dict[str, str]:
    return {"rows": f"of tick {tick}"}


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(owner: type, name: str, is_time: Callable[..., bool]) -> None:
    """Die when this method returns, if it is time."""
    method = getattr(owner, name)

    def call_then_die(self: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        if is_time(*arguments):
            die()
        return result

    setattr(owner, name, call_then_die)


def main(kind: str, folder: str, url: str, last: int, point: str, fatal: int) -> None:
    state = Path(folder) / "committed"
    committed, last_part = json.loads(state.read_text()) if state.exists() else (0, None)
    now = {"tick": 0, "publishing": False, "copied": 0}

    def is_tick(*_: object) -> bool:
        return now["tick"] == fatal

    def is_publishing(*_: object) -> bool:
        return now["tick"] == fatal and bool(now["publishing"])

    def is_second_piece(work: Callable[..., object]) -> bool:
        now["copied"] += work.__name__ == "copy"
        return is_tick() and now["copied"] >= 2

    if point == "half-staged":
        after(Server, "run_once", is_second_piece)
    elif point == "staged":
        after(PostgresSink, "take_parts", is_tick)
    elif point == "begun":
        after(PostgresLedger, "fence", is_publishing)
    elif point == "moved":
        after(PostgresLedger, "add", is_tick)
    elif point == "answered":
        after(Server, "run_once", lambda work: is_publishing() and work.__name__ == "show")
    elif point == "published":
        after(PostgresSink, "publish", is_tick)
    parts.CHUNK_ROWS = random.choice([3, 7, 100])
    key = ("n",) if kind == "upsert" else ()
    sink = PostgresSink(Sink("out", "postgres", {"url": url, "table": f"killed_{kind}"}, None, key))
    types = TYPES[kind]
    sink.prepare([column(name, named) for name, named in types.items()], "the job")
    known = {} if last_part is None else {"q": tuple(last_part)}
    sink.resume(["q"], Resumed(committed, True, known))
    for tick in range(committed + 1, last + 1):
        now.update(tick=tick, publishing=False, copied=0)
        attempt, rows = uuid.uuid4().hex, rows_of_tick(kind, tick)
        draw = random.Random()
        draw.shuffle(rows)
        names = [*types, DELETED] if kind == "upsert" else [*types]
        kinds = [pa.string() if name == "s" else pa.int64() for name in names]
        if kind == "upsert":
            kinds[-1] = pa.bool_()
        table = pa.table(
            [pa.array([row[n] for row in rows], kinds[n]) for n in range(len(names))], names=names
        )
        if kind == "changes":
            made = sink.arrow_part(table.schema, "q", tick, attempt)
            assert made is not None
            made.write(
                0, table.schema, iter(table.slice(0, 5).to_batches())
            )  # an attempt that does not count
            told = [
                made.write(0, table.schema, iter(piece.to_batches()))
                for piece in (table.slice(0, 5), table.slice(5))
            ]
            sink.take_parts("q", tick, attempt, told)
        else:
            all_types = [*types.values(), *(["BOOLEAN"] if kind == "upsert" else [])]
            sink.write(ArrowFrame(table, all_types, draw.choice([1, 2, 5])), "q", tick, attempt)
        assert sink.staged_rows("q", tick, attempt) == len(rows)
        now["publishing"] = True
        sink.check("q", tick, identity_of(tick)) if point != "begun" else None
        if sink.publish("q", tick, attempt, identity_of(tick)):
            last_part = [tick, identity_of(tick)]
        made_new = state.with_suffix(".new")
        made_new.write_text(json.dumps([tick, last_part]))
        os.replace(made_new, state)
    sink.close()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
