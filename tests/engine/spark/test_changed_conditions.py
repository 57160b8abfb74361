"""A job that runs, is stopped, and runs again with another text over its state, by the command line over one
Spark: joins in another order, a narrower query, a wider one. The oracle replays its ticks by brute force."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.laws.test_narrower_queries import Condition, Row
from tests.laws.test_wider_queries import Replay
from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.state.manifest import QueryState, load_newest

pytestmark = pytest.mark.spark

SOURCES = "".join(
    f"CREATE MAPPING {name} (k INT, t BIGINT, n INT, w INT, WATERMARK FOR t AS t - 6)"
    f" TYPE File OPTIONS ('path' = '{{folder}}/in/{name}', 'format' = 'json');\n"
    for name in "suv"
)
SINKS = "".join(
    f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = '{{folder}}/out/{name}', 'format' = 'json');\n"
    for name in "oc"
)
OLD, NARROW, WIDE = Condition(-5, 9, None), Condition(-2, 6, None), Condition(-12, 20, None)
CHAIN = Condition(-5, 9, None)


def text_of(pairs: str, chain: str) -> str:
    return (
        f"{SOURCES}{SINKS}INSERT INTO o SELECT {pairs};\n"
        f"INSERT INTO c SELECT a.n AS na, b.n AS nb, c.n AS nc FROM {chain};\n"
    )


def straight(own: Condition) -> str:
    return f"a.n AS na, b.n AS nb FROM s a LEFT JOIN u b ON {own.text('a', 'b')}"


def flip_join(own: Condition) -> str:
    """From the other side, with its columns in another order."""
    between = f"a.t BETWEEN b.t - {own.high} AND b.t - {own.low}"
    return f"b.n AS nb, a.n AS na FROM u b RIGHT JOIN s a ON b.k = a.k AND {between}"


AB, BC = CHAIN.text("a", "b"), CHAIN.text("b", "c")
CHAINS = (
    f"s a JOIN u b ON {AB} JOIN v c ON {BC}",
    f"v c JOIN u b ON {BC} JOIN s a ON {AB}",
    f"v c, u b, s a WHERE {AB} AND {BC}",
)


@pytest.fixture
def job_runner(spark: Any, tmp_path: Path, capfd: Any) -> Callable[..., str]:
    """Runs a text to its end, which is to be of this status; what was said on standard error."""

    def run(text: str, status: int, *flags: str) -> str:
        job = tmp_path / "job.sql"
        job.write_text(text.replace("{folder}", str(tmp_path)))
        capfd.readouterr()
        words = ["run", str(job), "--json", "--checkpoint", str(tmp_path / "state")]
        found = main([*words, "--until-caught-up", *flags])
        said: str = capfd.readouterr().err
        assert found == status, said
        return said

    return run


@pytest.mark.full
def test_a_job_goes_on_with_another_text(seed, tmp_path, job_runner):
    rng = random.Random(seed)
    came: dict[str, list[Row]] = {name: [] for name in "suv"}
    replay = Replay("LEFT JOIN")

    def run(number: int, text: str, condition: Condition, *flags: str, changed: bool = False) -> str:
        rows = rows_of(rng, number)
        for name, own in rows.items():
            came[name] += own
            folder = tmp_path / "in" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in own))
        said: str = job_runner(text, 0, *flags)
        if changed:  # a tick of its own remembers it
            replay.tick(([], []), condition, is_last=False)
        replay.tick((rows["s"], rows["u"]), condition, is_last=False)
        return said

    run(0, text_of(straight(OLD), CHAINS[0]), OLD)
    narrower = text_of(flip_join(NARROW), CHAINS[1])
    refused = job_runner(narrower, 2)
    assert f"the join of a and b was ON {OLD.text('a', 'b')}, now it is ON b.k = a.k AND a.t BETW" in refused
    assert '"o" then keeps its rows, which are all that it needs' in refused
    run(1, narrower, NARROW, "--change-queries", changed=True)
    said = run(2, text_of(straight(WIDE), CHAINS[2]), WIDE, "--change-queries", changed=True)
    assert "complete are its results with a.t >= " in said
    run(3, text_of(flip_join(WIDE), CHAINS[1]), WIDE, "--finish")
    replay.tick(([], []), WIDE, is_last=True)

    found = Counter((row.get("na"), row.get("nb")) for row in read_sink_rows(tmp_path, "o"))
    pairs = Counter({pair: n for pair, n in found.items() if None not in pair})
    assert pairs == replay.pairs
    pads, withheld = Counter({na: n for (na, nb), n in found.items() if nb is None}), 0
    state = state_of(tmp_path)
    for row, had_one in replay.alone[0]:
        out = pads.pop(row["n"], 0)
        assert out <= (not had_one)
        assert out or row["t"] < state.complete_from["a.t"]
        withheld += not out
    assert not pads
    assert withheld == state.unknown
    in_chain = Counter(
        tuple(row[name] for name in ("na", "nb", "nc")) for row in read_sink_rows(tmp_path, "c")
    )
    assert in_chain == Counter(
        (a["n"], b["n"], c["n"])
        for a in came["s"]
        for b in came["u"]
        if CHAIN.holds(a, b)
        for c in came["v"]
        if CHAIN.holds(b, c)
    )
    assert min(len(in_chain), len(pairs), len(found.keys() - pairs.keys()), withheld) > 0


def rows_of(rng: random.Random, number: int) -> dict[str, list[Row]]:
    """None is late."""
    rows: dict[str, list[Row]] = {}
    for place, name in enumerate("suv"):
        numbers = range(number * 100 + place * 30, number * 100 + place * 30 + 25)
        rows[name] = [
            {"k": rng.randrange(25), "t": number * 12 + 6 + rng.randrange(6), "n": n, "w": 0} for n in numbers
        ]
    return rows


def read_sink_rows(folder: Any, sink: str) -> list[Row]:
    files = (folder / "out" / sink).glob("*.json")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def state_of(folder: Any) -> QueryState:
    manifest = load_newest(Checkpoint(folder / "state").store)
    assert manifest is not None
    return manifest.queries["o"]
