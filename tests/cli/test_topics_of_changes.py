"""Topics whose records change rows, read again by `why` from their logs as Kafka has them, against what a
nested-loop oracle and plain counting know of every record."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support.changing_fates import keyed_case
from tests.support.topic_cases import TopicCase
from tests.why.test_random_changes import OF_KEYS, check_records, told
from watersmeet.cli.why.topic_order import unordered
from watersmeet.engine.values import to_table
from watersmeet.why.recorded import recorded
from watersmeet.why.reread import UNREAD, Portion

CASES = 9
KEYED = {"columns": {"id": "BIGINT", "k": "STRING"}, "primary_key": ["id"]}


def test_every_record_of_a_topic_of_changes_has_its_fate(seed: int, monkeypatch: Any) -> None:
    seen: Counter[str] = Counter()
    for number in range(seed, seed + CASES):
        case = keyed_case(number)
        run = TopicCase(case, random.Random(number))
        assert run.problem is None, (number, run.problem, case)
        reread = run.read_again(monkeypatch)
        assert not any(own.missing for own in reread.values())
        check_records(number, case, run, reread, seen)
    assert all(seen[what] for what in OF_KEYS), seen


def ran(*steps: Any) -> TopicCase:
    case = {
        "case": "c",
        "tables": {"a": KEYED, "b": KEYED},
        "query": "SELECT a.id AS id, b.k AS k FROM a JOIN b ON a.k = b.k",
        "options": {"output_mode": "changelog"},
        "steps": [{"rows": rows} for rows in steps],
    }
    run = TopicCase(case, random.Random(0))
    assert run.problem is None, run.problem
    return run


def row(name: str, id: int, k: str | None = None) -> Any:
    return [name, {"id": id}, -1] if k is None else [name, {"id": id, "k": k}, 1]


def test_topics_of_which_the_state_names_no_partition_are_not_read_yet(monkeypatch: Any) -> None:
    run = ran([row("a", 1, "x")], [row("a", 1), row("b", 2, "x")])
    reread = run.read_again(monkeypatch, is_read=False)
    assert [own.missing for own in reread.values()] == [(), ()]
    assert [fate.what for fate in told(run, "a", recorded(run.past), reread)] == ["not_read"] * 2


@pytest.mark.parametrize(
    ("parts", "at", "ticks"),
    [
        (["t/0", "t/1"], [0, 0], [1]),
        (["t/0", "t/0"], [0, 0], []),
        (["t/0", "t/1"], [0, 1], []),
        (["t/0", "t/1"], [0, UNREAD], []),
    ],
)
def test_records_of_one_key_in_two_partitions_that_a_tick_read_are_in_no_order(
    parts: list[str], at: list[int], ticks: list[int]
) -> None:
    """``at``: in which of two ticks each was read."""
    run = ran([row("a", 1, "x")], [row("a", 2, "x")])
    (source,) = [own for own in run.plan.sources if own.name == "a"]
    history = recorded(run.past)
    rows = to_table(source.columns, [{"id": 7, "k": "x"}], [1])
    portions = [
        Portion(rows, part, position, part, offsets=np.array([position]))
        for part, position in zip(parts, at, strict=True)
    ]

    class Told:
        """A history by which a record stands at its tick."""

        ticks = history.ticks

        def __len__(self) -> int:
            return len(history)

        def slot_of(self, source: str, part: str, position: int) -> tuple[int, bool]:
            return position, True

    missing = unordered(source, portions, Told())  # type: ignore[arg-type]
    assert [own.words.split(" read ")[0] for own in missing] == [f"tick {tick}" for tick in ticks]
