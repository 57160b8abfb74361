"""A whole soak: what it needs is started, the job is disturbed, and what came of it is judged and told."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak.disturbed import KILLED, SHORT_MINUTES, Disturbed
from tests.soak.job import Job, Tables, differences, environment
from tests.soak.sent import PARTITIONS, TOPICS, Sender
from tests.soak.watched import Watch
from tests.support.kafka import KafkaBroker
from tests.support.postgres import Postgres
from tests.support.standalone import standalone


@dataclass(frozen=True)
class Result:
    """``wrong``: nothing, if all is well. ``got``: the tables; ``sent``: per topic, what they are made of."""

    wrong: list[str]
    got: Tables
    sent: Mapping[str, str]


def soak(folder: Path, minutes: float, seed: int, rows_per_s: int) -> Result:
    """Do it, and print what came of it."""
    print(
        f"seed {seed}, {minutes:g} minutes, {rows_per_s} rows/s to each of {len(TOPICS)} topics", flush=True
    )
    for name in ("sent", "local"):
        (folder / name).mkdir()
    draw = random.Random(seed)
    with (
        KafkaBroker() as broker,
        Postgres() as postgres,
        standalone(folder / "cluster", environment()) as cluster,
        closing(Job(folder, cluster, broker, postgres)) as job,
    ):
        for topic in TOPICS:
            broker.create_topic(topic, PARTITIONS)
        sender = Sender(folder / "sent", broker.bootstrap_servers, draw.randrange(1 << 32), rows_per_s)
        disturbed, watch = (
            Disturbed(draw, minutes, job, sender, cluster, broker, postgres),
            Watch(job, postgres),
        )
        sender.start()
        disturbed.begin()
        watch.start()
        began = time.monotonic()
        disturbed.go()
        lasted_s = time.monotonic() - began
        watch.end()
        sender.end()
        disturbed.finish()
        caught_up_s = time.monotonic() - began - lasted_s
        got = job.tables()
        wrong = disturbed.wrong + _unequal(broker, sender, disturbed.account)
        wrong += differences(got, sender.files())
    figures = watch.figures(lasted_s)
    print(f"\n{'':32} {'first third':>12} {'last third':>12}")
    for each in figures:
        print(each)
    if minutes >= SHORT_MINUTES:
        wrong += [f"the last third has too much: {each}" for each in figures if not each.holds]
    _tell(sender, job, got, disturbed)
    print(f"{lasted_s:.0f} s, and {caught_up_s:.0f} s to the end of what was sent then")
    for each in wrong:
        print(f"WRONG {each}")
    print(f"seed {seed}: " + (f"{len(wrong)} WRONG" if wrong else "exact"), flush=True)
    return Result(wrong, got, sender.files())


def _unequal(broker: KafkaBroker, sender: Sender, account: dict[str, Any] | None) -> list[str]:
    """What was sent, what the topics hold and what the job counted are the same numbers."""
    found = []
    for topic in TOPICS:
        sent = sender.sent[topic] + sender.broken[topic]
        held = len(broker.consume_all(topic))
        if held != sent:
            found.append(f"{topic} holds {held:,} records of {sent:,} that were sent: the soak itself failed")
        if account is None:
            continue
        sides = [side for side in account["inputs"] if side["input"].split(".")[-1] == topic[0]]  # o, d
        counted = [{name: side[name] for name in ("rows_in", "broken", "late")} for side in sides]
        wanted = {"rows_in": sent, "broken": sender.broken[topic], "late": 0}
        if not counted or any(each != wanted for each in counted):
            found.append(f"of {topic} the job counted {counted}, and was sent {wanted}")
    if account is not None and not account["adds_up"]:
        found.append(f"the account does not add up: {account}")
    return found


def _tell(sender: Sender, job: Job, got: Tables, disturbed: Disturbed) -> None:
    done = disturbed.done
    print("\nkilled: " + ", ".join(f"{kind} {done[kind]} times" for kind in KILLED if done[kind]))
    print("done: " + ", ".join(f"{kind} {count} times" for kind, count in done.items() if kind not in KILLED))
    print(f"runs that ended by themselves: {dict(disturbed.ended) or 'none'}")
    sent, broken = sum(sender.sent.values()), sum(sender.broken.values())
    out = ", ".join(f"{table.num_rows:,} in {name}" for name, table in got.items())
    print(f"{sent:,} rows and {broken} broken records sent; rows out: {out}")
    print(f"{job.ticks:,} ticks in {job.runs} runs, at most {disturbed.longest_s:.0f} s without one")
