"""Tables that are compared with what they held before, in process: random tables against plain counters, over
restarts, repeated ticks and numbers of partitions; keys that are NULL or come twice; what is counted."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.errors import EngineError
from watersmeet.kernel.slots import BUCKET_MASK
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.runtime.local.sources import LocalSnapshot
from watersmeet.runtime.operators import tables as node
from watersmeet.runtime.values import InMemoryTables

TABLE = """
SET output_mode = changelog;
CREATE TABLE t ({columns}) WITH ('connector' = 'memory', 'changes' = 'snapshot');
"""
WHOLE = "id BIGINT, x DOUBLE, name STRING"
KEYED = "id BIGINT, x DOUBLE, name STRING, PRIMARY KEY (id, x) NOT ENFORCED"
NAN = float("nan")

Row = tuple[Any, ...]


def values(row: dict[str, Any]) -> Row:
    """A row of the table by which it is told from others: NaN is NaN, and both zeros are one."""
    return tuple("nan" if v != v else v + 0.0 if isinstance(v, float) else v for v in row.values())


class Killed(Exception):
    """Stands for a kill: nothing after it runs."""


class Table:
    """A job over what a table holds, and what it has put out in sum."""

    def __init__(self, text: str, partitions: int = 1) -> None:
        self.plan = plan_job(parse_job(text))
        self.store, self.held, self.partitions = MemoryStore(), InMemoryTables(), partitions
        self.now: list[dict[str, Any]] = []
        self.sums: Counter[Row] = Counter()
        self.last: list[tuple[Row, int]] = []
        self.open()

    def open(self, settings: TickSettings | None = None, *, repeats: bool = False) -> None:
        self.job = LocalJob(
            self.plan,
            self.store,
            partitions=self.partitions,
            tables=self.held,
            settings=settings,
            drive=partial(TickDriver, repeats=repeats),
        )

    def becomes(self, rows: list[dict[str, Any]]) -> Any:
        """A tick in which the table holds these rows."""
        changes = [(row, -1) for row in self.now] + [(row, 1) for row in rows]
        self.now = rows
        return self.take(self.job.tick({"t": changes}))

    def take(self, output: Any) -> Any:
        name = self.plan.queries[0].name
        names = ("_diff", "_tick")
        self.last = [
            (values({n: v for n, v in row.items() if n not in names}), row["_diff"])
            for row in output.rows[name]
        ]
        for row, diff in self.last:
            self.sums[row] += diff
            if not self.sums[row]:
                del self.sums[row]
        return output.result.queries[name]


def row(rng: random.Random) -> dict[str, Any]:
    return {
        "id": rng.choice([1, 2, 3, None]),
        "x": rng.choice([0.0, -0.0, 1.5, NAN, None]),
        "name": rng.choice(["a", "b", "", None]),
    }


def in_order(name: str | None) -> tuple[bool, str]:
    return name is None, name or ""


def by_key(rows: list[dict[str, Any]]) -> tuple[Counter[Row], Counter[Row]]:
    """(what the table is, what is broken) by a plain dictionary."""
    table: dict[Row, list[dict[str, Any]]] = {}
    broken: Counter[Row] = Counter()
    for given in rows:
        key = values({"id": given["id"], "x": given["x"]})
        if None in key:
            broken[values(given)] += 1
        else:
            table.setdefault(key, []).append(given)
    rows_of_keys: Counter[Row] = Counter()
    for of_key in table.values():
        least, *others = sorted(of_key, key=lambda r: in_order(r["name"]))
        rows_of_keys[values(least)] += 1
        broken.update(map(values, others))
    return rows_of_keys, broken


@pytest.mark.parametrize("seed", range(at_effort(quick=5, full=40)))
@pytest.mark.parametrize("columns", [WHOLE, KEYED])
def test_random_tables_against_counters(columns, seed):
    rng = random.Random(f"{columns}/{seed}")
    text = TABLE.replace("{columns}", columns) + "SELECT id, x, name FROM t"
    table = Table(text, partitions=rng.choice([1, 2, 5]))
    before: Counter[Row] = Counter()
    broken_before: Counter[Row] = Counter()
    counted: Counter[str] = Counter()
    for _ in range(8):
        kept = [given for given in table.now if rng.random() < 0.7]
        rows = kept + [row(rng) for _ in range(rng.randrange(6))]
        if rng.random() < 0.1:
            rows = []
        rng.shuffle(rows)
        if rng.random() < 0.5:
            table.partitions = rng.choice([1, 2, 3, 7])
            table.open()
        result = table.becomes(rows)
        now, broken = (Counter(map(values, rows)), Counter()) if columns == WHOLE else by_key(rows)
        assert table.sums == now, seed
        told: Counter[Row] = Counter()
        for changed, diff in table.last:
            told[changed] += diff
        expected = Counter(now)
        expected.subtract(before)
        assert told == Counter({r: n for r, n in expected.items() if n})
        assert len(told) == len(table.last)
        come, gone = sum((now - before).values()), sum((before - now).values())
        fresh = sum((broken - broken_before).values())
        counted.update({"in": come + gone + fresh, "deleted": 2 * gone, "broken": fresh})
        account = dict(result.account["t.t" if "t.t" in result.account else "t"])
        assert account.pop("retained") == sum(now.values())
        assert Counter(account) == Counter({what: n for what, n in counted.items() if n})
        before, broken_before = now, broken


def test_a_tick_in_which_nothing_has_changed_reads_nothing():
    table = Table(TABLE.replace("{columns}", KEYED) + "SELECT id, name FROM t", partitions=3)
    table.becomes([{"id": 1, "x": 1.0, "name": "a"}])
    runs = table.store.names("runs")
    assert runs
    for _ in range(3):
        table.take(table.job.tick({}))
        assert table.store.names("runs") == runs
        assert not table.last
    table.becomes([])
    assert not table.sums
    table.take(table.job.tick({}))  # the last tick but one is not needed any more
    assert not table.store.names("runs")


JOINED = """
CREATE TABLE w (id BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
SELECT a.id, a.name, b.name AS other, w.id AS w FROM t a JOIN t b ON b.id = a.id LEFT JOIN w ON w.id = a.id
"""


@pytest.mark.parametrize("where", ["after-reading", "before-commit"])
def test_a_repeated_tick_compares_what_the_first_attempt_read(where):
    table = Table(TABLE.replace("{columns}", WHOLE) + JOINED, partitions=2)
    table.becomes([{"id": 1, "x": 1.0, "name": "a"}])
    driver = table.job.driver
    table.held.change(table.job._sources.tables["t"], [({"id": 1, "x": 1.0, "name": "b"}, 1)])
    if where == "after-reading":
        driver.begin(5).advance([]).node_task("console", 0)
    else:

        def raise_killed(*_: Any) -> None:
            raise Killed

        with patch.object(ConcludedTick, "commit", raise_killed), pytest.raises(Killed):
            table.job.tick({}, clock_us=5)
    # The table changes again before the next attempt.
    table.held.change(table.job._sources.tables["t"], [({"id": 1, "x": 1.0, "name": "c"}, 1)])
    table.open(repeats=True)
    table.take(table.job.tick({}, clock_us=5))
    names = {"a", "b"}
    assert table.sums == Counter((1, one, other, None) for one in names for other in names)
    table.take(table.job.tick({}))
    names |= {"c"}
    assert table.sums == Counter((1, one, other, None) for one in names for other in names)


def test_all_inputs_that_read_a_table_have_one_reading(monkeypatch):
    """Right after each reading another row comes."""
    table = Table(TABLE.replace("{columns}", WHOLE) + JOINED, partitions=2)
    source, read = table.job._sources.tables["t"], LocalSnapshot.read

    def read_then_change_table(self: LocalSnapshot, *others: Any) -> Any:
        runs = read(self, *others)
        table.held.change(source, [({"id": 1, "x": 1.0, "name": "late"}, 1)])
        return runs

    monkeypatch.setattr(LocalSnapshot, "read", read_then_change_table)
    table.held.change(source, [({"id": 1, "x": 1.0, "name": "a"}, 1)])
    for late in range(3):
        table.take(table.job.tick({}))
        names = Counter({"a": 1, "late": late} if late else {"a": 1})
        pairs = {(1, one, other, None): names[one] * names[other] for one in names for other in names}
        assert table.sums == Counter(pairs)


def test_snapshot_of_a_run_with_other_settings_is_not_reused():
    table = Table(TABLE.replace("{columns}", WHOLE) + "SELECT id FROM t")
    table.open(TickSettings(digest="before"))
    table.job.driver.begin(5).advance([]).node_task("console", 0)
    table.held.change(table.job._sources.tables["t"], [({"id": 7, "x": 1.0, "name": "b"}, 1)])
    table.open(TickSettings(digest="now"), repeats=True)
    table.take(table.job.tick({}))
    assert table.sums == {(7,): 1}


def test_it_is_looked_at_no_more_often_than_refresh_says(tmp_path):
    text = f"""
    SET output_mode = changelog;
    CREATE TABLE t (id BIGINT) WITH ('connector' = 'file', 'format' = 'json', 'path' = '{tmp_path}',
      'changes' = 'snapshot', 'refresh' = '10 s');
    SELECT id FROM t
    """
    table = Table(text)
    second = 1_000_000
    # The last clock was set back.
    for clock_s, number, seen in ((100, 1, [1]), (109, 2, [1]), (110, 3, [1, 2, 3]), (90, 4, [1, 2, 3, 4])):
        (tmp_path / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        assert table.job.driver.is_table_read_due(clock_s * second) == (clock_s != 109)
        table.take(table.job.tick({}, clock_us=clock_s * second))
        assert sorted(row[0] for row in table.sums) == seen


def test_a_folder_without_files_says_nothing(tmp_path):
    text = f"""
    SET output_mode = changelog;
    CREATE TABLE t (id BIGINT) WITH ('connector' = 'file', 'format' = 'json', 'path' = '{tmp_path}',
      'changes' = 'snapshot');
    SELECT id FROM t
    """
    table = Table(text)
    with pytest.raises(EngineError, match="has no file, so its rows are unknown"):
        table.job.tick({})
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    table.take(table.job.tick({}))
    (tmp_path / "rows.json").unlink()
    table.take(table.job.tick({}))
    assert table.sums == {(1,): 1}
    (tmp_path / "none.json").write_text("")
    table.take(table.job.tick({}))
    assert not table.sums


def test_rows_of_one_hash_are_compared_in_full(monkeypatch):
    """Whatever is of one hash is still told apart, and a part of a task's range is compared at a time."""
    monkeypatch.setattr(node, "max_run_bytes", lambda memory: 1)
    table = Table(TABLE.replace("{columns}", KEYED) + "SELECT id, x, name FROM t")
    table.open(TickSettings(placing=lambda hashes: hashes & BUCKET_MASK & 0))
    rows = [{"id": n, "x": 0.5, "name": str(n % 3)} for n in range(50)]
    table.becomes(rows)
    assert table.sums == Counter(map(values, rows))
    table.becomes(rows[::2])
    assert table.sums == Counter(map(values, rows[::2]))
