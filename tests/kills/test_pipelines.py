"""Pipelines over a real broker into a real PostgreSQL, as TOML and from Python, killed in the middle.

Clicks and impressions within five minutes, by keys of two columns: inner, by times in the payload, and left
with ``reopen``, by the times of the records, some of which come too late but for that. Whatever form says it,
the tables have in the end what two loops over all records give.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.kills.jobs import SOURCES, SPARK, START_US, Process
from tests.support.forked import run_forked
from tests.support.kafka import KafkaBroker
from tests.support.lent_jvms import lent
from tests.support.postgres import Postgres

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.kafka, pytest.mark.full]

WITHIN_MS, LAG_MS, REOPENS_MS = 300_000, 20_000, 300_000
RECORDS, EACH_TICK, APART_MS = 280, 70, 4_000
START_MS = START_US // 1_000
Row = tuple[int, str, int, int]
"""Ad, user, time in ms, number."""

INNER = {
    "how": "inner",
    "event_time_column": "at",
    "min_delta": f"-{WITHIN_MS} milliseconds",
    "max_delta": f"{WITHIN_MS} milliseconds",
}
LEFT = {
    "how": "left",
    "time_window": f"{WITHIN_MS} milliseconds",
    "lateness": "join",
    "allowed_lateness": f"{REOPENS_MS} milliseconds",
}


def parts(name: str, servers: str, join: dict[str, Any]) -> dict[str, Any]:
    """What both forms say."""
    columns = {"ad": "BIGINT", "user": "STRING", "n": "BIGINT"}
    if "event_time_column" in join:
        columns["at"] = "BIGINT"
    return {
        "name": name,
        "sources": [
            {
                "name": topic,
                "columns": columns,
                "lag": f"{LAG_MS} milliseconds",
                "connection": {
                    "connector": "kafka",
                    "bootstrap.servers": servers,
                    "topic": topic,
                    "format": "json",
                    "maxOffsetsPerTrigger": str(EACH_TICK),
                },
            }
            for topic in ("impressions", "clicks")
        ],
        "join": {
            "left_source": "impressions",
            "right_source": "clicks",
            "left_keys": ["ad", "user"],
            "right_keys": ["ad", "user"],
            "output_left_columns": ["ad", "user", "n"],
            "output_right_columns": ["n"],
            **join,
        },
        "target": {"connection": {"connector": "postgres", "url": "${DATABASE}", "table": name}},
        "checkpoint": "state",
    }


def as_toml(said: dict[str, Any]) -> str:
    """By hand: the library's own writer is not what is tested."""
    lines = [f"{name} = {json.dumps(said[name])}" for name in ("name", "checkpoint")]
    for source in said["sources"]:
        lines += [
            "[[sources]]",
            *_keys({k: v for k, v in source.items() if k not in ("columns", "connection")}),
        ]
        lines += ["[sources.columns]", *_keys(source["columns"]), "[sources.connection]"]
        lines += _keys(source["connection"])
    lines += ["[transform.join]", *_keys(said["join"]), "[target.connection]"]
    return "\n".join([*lines, *_keys(said["target"]["connection"])]) + "\n"


def _keys(table: dict[str, Any]) -> list[str]:
    return [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in table.items()]


PYTHON = """
import sys

from tests.kills.kill_at import kill_at
from watersmeet.pipelines import Join, Source, Target, run_streaming_pipeline

if sys.argv[1:]:
    kill_at(sys.argv[1], int(sys.argv[2]))
result = run_streaming_pipeline(
    name={name!r}, checkpoint={checkpoint!r},
    sources=[Source(**source) for source in {sources!r}], join=Join(**{join!r}), target=Target(**{target!r}),
    settings={{"until_caught_up": True, "finish": True, **{spark!r}}},
)
assert result.finished
"""


def records(draw: random.Random) -> list[Row]:
    """In the order in which they come, none behind another by more than the lag."""
    return [
        (draw.randrange(60), draw.choice("uv"), START_MS + n * APART_MS - draw.randrange(LAG_MS), n)
        for n in range(RECORDS)
    ]


def delay_clicks_beyond_reach(impressions: list[Row], clicks: list[Row]) -> int:
    """Let some clicks come when the watermark is more than the reach behind them, but not more than what
    reopens; each is of an impression that came in time. How many.

    A tick is judged by the watermark at its start, so that these clicks are behind it by the least and most
    that ``behind`` says.
    """
    behind = (310_000, WITHIN_MS + REOPENS_MS - 10_000)
    assert behind[1] - behind[0] >= EACH_TICK * APART_MS, "the watermark moves by so much with a tick"
    far = (behind[1] + LAG_MS) // APART_MS
    late = range(far + 5, RECORDS, 6)
    for n in late:
        time = START_MS + n * APART_MS - LAG_MS - behind[1]
        clicks[n] = (1_000 + n, "u", time, n)
        partner = n - far + 25
        impressions[partner] = (1_000 + n, "u", START_MS + partner * APART_MS, partner)
    return len(late)


def compute_expected_join(impressions: list[Row], clicks: list[Row], how: str) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for ad, user, time, number in impressions:
        met = [c[3] for c in clicks if c[:2] == (ad, user) and abs(c[2] - time) <= WITHIN_MS]
        rows.update((ad, user, number, other) for other in met or ([None] if how == "left" else []))
    return rows


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker() as started:
        yield started


@pytest.mark.parametrize("join", [INNER, LEFT], ids=["inner", "left"])
def test_killed_in_the_middle(join, seed, tmp_path, monkeypatch, broker, postgres):
    draw = random.Random(f"{seed} {join['how']}")
    sides = records(draw), records(draw)
    if join["how"] == "left":
        assert delay_clicks_beyond_reach(*sides) > 10
    wanted = compute_expected_join(*sides, join["how"])
    assert len(wanted) > RECORDS // 2
    assert (join["how"] == "left") == any(row[3] is None for row in wanted)
    for topic, rows in zip(("impressions", "clicks"), sides, strict=True):
        name = f"{topic}-{join['how']}"
        broker.create_topic(name)
        payloads = [({"ad": ad, "user": user, "n": n, "at": time}, time) for ad, user, time, n in rows]
        if "event_time_column" not in join:
            for payload, _ in payloads:
                del payload["at"]
        broker.produce(name, [(0, None, json.dumps(payload), time) for payload, time in payloads])
    monkeypatch.setenv("DATABASE", postgres.url)
    for form in ("toml", "python"):
        said = parts(f"{form}_{join['how']}", broker.bootstrap_servers, join)
        for source in said["sources"]:
            source["connection"]["topic"] += f"-{join['how']}"
        folder = tmp_path / form
        folder.mkdir()
        run_with_one_kill(folder, form, said, postgres)
        columns = "left_ad, left_user, left_n, right_n"
        text = postgres.run(f"SELECT json_build_array({columns}) FROM {said['name']}")
        assert Counter(tuple(json.loads(line)) for line in text.splitlines()) == wanted, (
            f"{form}, seed {seed}"
        )


def run_with_one_kill(folder: Path, form: str, said: dict[str, Any], postgres: Postgres) -> None:
    """To the end, killed between what the sink shows and what the manifest has of a tick in the middle."""
    (folder / "job.toml").write_text(as_toml(said))
    told = {**said, "checkpoint": str(folder / "state"), "spark": SPARK}
    (folder / "job.py").write_text(PYTHON.format(**told))
    for kill_at in (("published", "3"), ()):
        if form == "toml":
            status, words = by_command(folder, kill_at)
        else:
            status, words = by_script(folder, kill_at)
        assert status == (-signal.SIGKILL if kill_at else 0), words
        assert postgres.password not in words
        assert int(postgres.run(f"SELECT count(*) FROM {said['name']}")) > 0


def by_command(folder: Path, kill_at: tuple[str, ...]) -> tuple[int, str]:
    point = (kill_at[0], int(kill_at[1])) if kill_at else None
    run = Process(folder, "--until-caught-up", "--finish", kill_at=point, job="job.toml")
    try:
        return run.await_end(), run.errors.read_text()
    finally:
        run.clean_up()


def by_script(folder: Path, kill_at: tuple[str, ...]) -> tuple[int, str]:
    paths = f"{SOURCES}{os.pathsep}{REPOSITORY}"
    return run_forked(["job.py", *kill_at], 240, cwd=folder, env=os.environ | {"PYTHONPATH": paths} | lent())
