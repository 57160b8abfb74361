"""Ticks into a topic of Kafka without Spark: ``kafka_ticks.py FOLDER SERVERS TOPIC TICKS POINT TICK
TIMEOUT_MS`` (of transactions).

The file ``committed`` in the folder is the state: the last tick, and its identity; ``files`` is where rows
are staged. The process goes on behind it, and kills itself (SIGKILL) at a point of a tick:

    staged          all records are staged, none is sent
    initialised     (first tick of a run) the transactional id is, and nothing was read
    half-sent       some records are at the broker
    sent            all are, and the mark is not
    marked          all is, and not committed
    answered        it is committed, and nobody knows it
    published       the sink has said so, the state does not have it
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

from tests.sinks.kafka_frames import KeyValue, identity_of, prepare_sink, sink_of, stage, stopping_at
from watersmeet.sinks.kafka import transactions
from watersmeet.sinks.part_mark import Resumed

POINTS = ("staged", "initialised", "half-sent", "sent", "marked", "answered", "published")
OUT = ("answered", "published")
"""Behind these the tick is out."""
ROWS = 60


def rows_of_tick(tick: int) -> list[KeyValue]:
    """Records of a tick, the same whoever asks; every fifth tick has none."""
    draw = random.Random(tick)
    if tick % 5 == 0:
        return []
    return [(f"k{n}", None if draw.random() < 0.2 else f"{n} in {tick}") for n in range(ROWS)]


def main(folder: str, servers: str, topic: str, last: int, point: str, fatal: int, timeout_ms: str) -> None:
    place = Path(folder)
    state = place / "committed"
    committed, last_part = json.loads(state.read_text()) if state.exists() else (0, None)
    now = {"tick": committed + 1 if point == "initialised" else 0}

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    stopping_at(point, f"{topic}-ticks", ROWS // 2, lambda: now["tick"] == fatal, die)
    transactions.POLL_ROWS = 7
    sink = prepare_sink(
        sink_of(servers, topic, **{"transaction.timeout.ms": timeout_ms}), place / "files", begins=False
    )
    known = {} if last_part is None else {"q": tuple(last_part)}
    sink.resume(["q"], Resumed(committed, (place / "begun").exists(), known))
    (place / "begun").touch()
    for tick in range(committed + 1, last + 1):
        now["tick"] = tick
        attempt = stage(sink, tick, rows_of_tick(tick), random.choice([1, 2, 5]))
        if point == "staged" and tick == fatal:
            die()
        sink.check("q", tick, identity_of(tick))
        if sink.publish("q", tick, attempt, identity_of(tick)):
            last_part = [tick, identity_of(tick)]
        if point == "published" and tick == fatal:
            die()
        made_new = state.with_suffix(".new")
        made_new.write_text(json.dumps([tick, last_part]))
        os.replace(made_new, state)
    sink.close()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]), sys.argv[7])
