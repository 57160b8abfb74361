"""Tables with a primary key: at any tick the sum of what went out is the join of what a dict per table holds.

The oracle is a dict: per key the greatest sequence, and the row, or None and when it was deleted.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.phases import replace_phase
from watersmeet.errors import StateError
from watersmeet.names import CASE_PARTITION
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.parser.case_file import case_job
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.evaluate import move_to_borders
from watersmeet.state.store import MemoryStore

SECOND = 1_000_000


@dataclass
class Table:
    """What a table with a primary key holds, by its records one after the other."""

    key: Sequence[str]
    sequence: str | None = None
    tombstones: int | None = 10
    """Seconds; None: deletes are not remembered."""
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    sequences: dict[Any, Any] = field(default_factory=dict)
    deleted: dict[Any, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, row: dict[str, Any], diff: int, clock: int) -> None:
        self.counts["in"] += abs(diff)
        key = tuple(plain(row.get(name)) for name in self.key)
        sequence = None if self.sequence is None else plain(row.get(self.sequence))
        if None in key or (diff > 0 and self.sequence is not None and sequence is None):
            self.counts["unmatchable"] += abs(diff)
            return
        known = self.sequences.get(key)
        if sequence is not None and known is not None and rank(sequence) < rank(known):
            self.counts["stale"] += 1
            return
        if sequence is not None:
            self.sequences[key] = sequence
        there = self.rows.pop(key, None) is not None
        self.deleted.pop(key, None)
        self.counts["deleted"] += there
        if diff > 0:
            self.rows[key] = row
        else:
            self.counts["deleted" if there else "missing_deletes"] += 1
            self.deleted[key] = clock

    def end(self, clock: int) -> None:
        """The tick is over."""
        for key, at in list(self.deleted.items()):
            if self.tombstones is None or clock >= at + self.tombstones:
                del self.deleted[key]
                self.sequences.pop(key, None)


class Killed(Exception):
    """Nothing after it runs."""


def raise_killed(*_: Any, **__: Any) -> None:
    raise Killed


def plain(value: Any) -> Any:
    """Equal for equal values, as Spark has it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def rank(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value == "NaN" else (False, value)


def format_value(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


KEYS = {
    "number": (("k",), {"k": "BIGINT"}, lambda r: {"k": r.choice([1, 2, 3, 4, None])}),
    "text and double": (
        ("k", "x"),
        {"k": "STRING", "x": "DOUBLE"},
        lambda r: {"k": r.choice(["a", "b", "", None]), "x": r.choice([0.0, -0.0, math.nan, 1.5])},
    ),
    "decimal and date": (
        ("x", "k"),
        {"k": "DATE", "x": "DECIMAL(20,2)"},
        lambda r: {
            "k": r.choice(["0001-01-01", "2024-02-29"]),
            "x": r.choice([Decimal("1.50"), Decimal("-1.50")]),
        },
    ),
}
SEQUENCES = {
    None: ("BIGINT", lambda r: r.randrange(5)),
    "BIGINT": ("BIGINT", lambda r: r.choice([-3, 0, 1, 2, 2**62, None])),
    "DOUBLE": ("DOUBLE", lambda r: r.choice([-0.0, 0.0, 1.5, math.nan, -math.inf, None])),
    "STRING": ("STRING", lambda r: r.choice(["", "2024", "2024-01", "é", None])),
    "DECIMAL(30,3)": (
        "DECIMAL(30,3)",
        lambda r: r.choice([Decimal("-1.5"), Decimal("10.25"), Decimal("9.5")]),
    ),
    "TIMESTAMP": ("TIMESTAMP", lambda r: r.choice(["0001-01-01T00:00:00", "2024-07-01T10:00:00", None])),
}


def case_of(
    kind: str, columns: dict[str, str], key: Sequence[str], sequence: str | None, tombstones: int | None
) -> dict[str, Any]:
    table: dict[str, Any] = {"columns": columns, "primary_key": list(key)}
    if sequence is not None:
        table |= {"sequence_by": sequence, "tombstones": tombstones}
    on = " AND ".join(f"c.{name} = o.{name}" for name in columns if name in ("k", "x"))
    return {
        "case": "upserts",
        "query": f"SELECT c.v, c.g, o.number, o.g AS og FROM o {kind} JOIN c ON {on} AND c.g <= o.g",
        "options": {"output_mode": "changelog"},
        "tables": {
            "c": table,
            "o": {
                "columns": {
                    **{n: t for n, t in columns.items() if n in ("k", "x")},
                    "number": "INT",
                    "g": "INT",
                },
                "primary_key": ["number"],
            },
        },
        "steps": [],
    }


def join_tables(kind: str, tables: dict[str, Table], names: Sequence[str]) -> Counter[Any]:
    """The join of what the tables hold, by trying all pairs."""
    rows: Counter[Any] = Counter()
    met: set[Any] = set()
    for o in tables["o"].rows.values():
        partners = [
            (key, c)
            for key, c in tables["c"].rows.items()
            if all(o.get(n) is not None and plain(c[n]) == plain(o[n]) for n in names) and c["g"] <= o["g"]
        ]
        met.update(key for key, _ in partners)
        rows.update((c["v"], c["g"], o["number"], o["g"]) for _, c in partners)
        if not partners and kind in ("LEFT", "FULL"):
            rows[None, None, o["number"], o["g"]] += 1
    if kind == "FULL":
        rows.update((c["v"], c["g"], None, None) for key, c in tables["c"].rows.items() if key not in met)
    return rows


@pytest.mark.parametrize("seed", range(at_effort(quick=6, full=24)))
def test_sum_of_random_changes_is_the_join_of_the_tables(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six seeds in a row have each type of sequence once, and each kind of join and of key twice."""
    r = random.Random(seed)
    monkeypatch.setattr(merge_policy, "FAN_IN", r.choice([2, 3, 8]))
    kind = ["INNER", "LEFT", "FULL"][(seed + seed // 6) % 3]
    key, key_columns, make_key = list(KEYS.values())[(seed // 2 + seed // 6) % 3]
    sequence = list(SEQUENCES)[seed % 6]
    sequence_type, make_sequence = SEQUENCES[sequence]
    tombstones = r.choice([None, 1, 7, 1000]) if sequence else None
    columns = {**key_columns, "v": "INT", "g": "INT", "s": sequence_type}
    plan = plan_job(case_job(case_of(kind, columns, key, "s" if sequence else None, tombstones)))
    tables = {
        "c": Table(key, "s" if sequence else None, tombstones),
        "o": Table(("number",)),
    }
    placing = r.choice([None, move_to_borders, collide_hashes])
    partitioned = r.random() < 0.5
    store, total, clock, job = MemoryStore(), Counter[Any](), 0, None
    for tick in range(14):
        clock += r.choice([0, 1, 5])
        if job is None or r.random() < 0.3:
            job = LocalJob(plan, store, settings=TickSettings(placing=placing), clock_us=clock * SECOND)
        job.partitions = r.choice([1, 2, 4])
        given: dict[str, list[tuple[dict[str, Any], int]]] = {"c": [], "o": []}
        for _ in range(r.choice([0, 1, 3, 12])):
            row = {**make_key(r), "v": r.randrange(100), "g": r.randrange(4), "s": make_sequence(r)}
            diff = r.choice([1, 1, 1, -1])
            if diff < 0 and r.random() < 0.5:
                row = {name: value for name, value in row.items() if name in (*key, "s")}
            given["c"].append((row, diff))
        for _ in range(r.choice([0, 1, 4])):
            given["o"].append(
                ({**make_key(r), "number": r.randrange(6), "g": r.randrange(4)}, r.choice([1, 1, -1]))
            )
        for name, changes in given.items():
            for row, _ in changes if partitioned else ():
                row[CASE_PARTITION] = r.choice(["a", "b", "10", "9"])
            for row, diff in sorted(changes, key=lambda change: change[0].get(CASE_PARTITION, "")):
                tables[name].take(row, diff, clock)
        written = {
            name: [({n: written_value(v) for n, v in row.items()}, diff) for row, diff in changes]
            for name, changes in given.items()
        }
        if r.random() < 0.3:
            phase = r.choice(["node_task", "settle", "conclude", "commit"])
            with replace_phase(phase, raise_killed), pytest.raises(Killed):
                job.tick(written, clock_us=(clock + 100) * SECOND)  # what it decided does not count
            job = LocalJob(
                plan, store, partitions=3, settings=TickSettings(placing=placing), clock_us=clock * SECOND
            )
        output = job.tick(written, clock_us=clock * SECOND)
        for table in tables.values():
            table.end(clock)
        for row in output.rows["q"]:
            total[row["v"], row["g"], row["number"], row["og"]] += row["_diff"]
        wanted = join_tables(kind, tables, list(key_columns))
        assert +total == wanted, (seed, tick)
        assert not -total, (seed, tick)
        counts = output.result.queries["q"].account
        for alias, of in counts.items():
            assert InputAccount.of(alias, of, of["retained"]).adds_up(), (seed, tick, alias, of)
        for name, table in tables.items():
            account = dict(counts[f"{name}.{name}"])
            assert account.pop("retained") == len(table.rows), (seed, tick, name)
            assert account == +table.counts, (seed, tick, name)
            stored = job.driver.manifest.queries["q"]
            (arrangement,) = [
                n.arrangements[f"{name}.{name}"] for n in stored.nodes if f"{name}.{name}" in n.arrangements
            ]
            remembered = [k for k in table.deleted if k in table.sequences] if table.sequence else []
            assert arrangement.stored == len(table.rows) + len(remembered), (seed, tick, name)


def written_value(value: Any) -> Any:
    """As case files have it."""
    if isinstance(value, Decimal):
        return str(value)
    return value


def collide_hashes(hashes: Any) -> Any:
    """Keys of few hashes: equal ones do not tell keys apart."""
    return (hashes >> 62) << 62


def test_deletes_in_one_run_are_forgotten_at_their_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    columns = {"k": "BIGINT", "v": "INT", "g": "INT", "s": "BIGINT"}
    plan = plan_job(case_job(case_of("LEFT", columns, ["k"], "s", 10)))
    job = LocalJob(plan, MemoryStore(), partitions=2)

    def tick(clock: int, diff: int, sequence: int, keys: Iterable[int]) -> tuple[dict[str, int], int]:
        rows = [({"k": k, "v": 0, "g": 0, "s": sequence}, diff) for k in keys]
        output = job.tick({"c": rows}, clock_us=clock * SECOND)
        state = job.driver.manifest.queries["q"]
        (own,) = [node.arrangements["c.c"] for node in state.nodes if "c.c" in node.arrangements]
        return dict(output.result.queries["q"].counts["c.c"]), own.stored

    assert tick(0, -1, 5, range(20))[1] == 20
    assert tick(6, -1, 5, range(20, 40))[1] == 40
    assert tick(7, 1, 9, [])[1] == 40  # merged
    assert tick(10, 1, 4, range(40)) == ({"in": 40, "stale": 40}, 20)  # what comes still meets them all
    assert tick(11, 1, 4, range(40)) == ({"in": 40, "stale": 20}, 40)
    assert tick(16, 1, 3, range(40)) == ({"in": 40, "stale": 40}, 20)
    assert tick(16, 1, 4, range(40)) == ({"in": 40, "deleted": 20}, 40)


@pytest.mark.parametrize("partitions", [1, 12])
def test_when_runs_are_merged_does_not_depend_on_how_many_tasks_there_are(partitions: int) -> None:
    """A tick's rows are one group of runs, and its remembered deletes another one."""
    columns = {"k": "BIGINT", "v": "INT", "g": "INT", "s": "BIGINT"}
    plan = plan_job(case_job(case_of("LEFT", columns, ["k"], "s", 1000)))
    job = LocalJob(plan, MemoryStore(), partitions=partitions)
    rows = [({"k": k, "v": 0, "g": 0, "s": 1}, 1 if k % 2 else -1) for k in range(100)]
    for tick in range(1, merge_policy.FAN_IN):
        given = [({**row, "k": row["k"] + 100 * tick}, diff) for row, diff in rows]
        job.tick({"c": given}, clock_us=SECOND)
    (own,) = (
        n.arrangements["c.c"] for n in job.driver.manifest.queries["q"].nodes if "c.c" in n.arrangements
    )
    assert len({live.run.group for live in own.runs}) == 2 * (merge_policy.FAN_IN - 1)
    assert {live.run.level for live in own.runs} == {0}


# from SQL


DECLARED = """
SET output_mode = changelog;
CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, level INT, op STRING)
    WITH ('connector' = 'memory', 'op.column' = 'op');
CREATE TABLE o (number BIGINT, customer BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE old (id BIGINT, name STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""


class Sums:
    """A job, and the sum of what it has put out."""

    def __init__(self, query: str) -> None:
        self.job = LocalJob(plan_job(parse_job(DECLARED + query)), MemoryStore(), partitions=2)
        self.total: Counter[tuple[Any, ...]] = Counter()

    def tick(self, **given: Sequence[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
        columns = {
            "c": ("id", "name", "level", "op"),
            "o": ("number", "customer", "d"),
            "old": ("id", "name", "d"),
        }
        rows = {
            name: [(dict(zip(columns[name], row, strict=True)), 1) for row in of_table]
            for name, of_table in given.items()
        }
        for row in self.job.tick(rows).rows["console"]:
            self.total[tuple(value for name, value in row.items() if name not in ("_diff", "_tick"))] += row[
                "_diff"
            ]
        assert not -self.total
        return +self.total


def test_a_filter_of_a_view_takes_away_the_row_that_no_longer_passes_it():
    sums = Sums(
        "CREATE VIEW high AS SELECT id, upper(name) AS name FROM c WHERE level > 1;"
        "SELECT o.number, h.name FROM o LEFT JOIN high h ON h.id = o.customer"
    )
    assert sums.tick(c=[(1, "ada", 5, "I")], o=[(7, 1, 1)]) == {(7, "ADA"): 1}
    assert sums.tick(c=[(1, "ada", 1, "I")]) == {(7, None): 1}
    assert sums.tick(c=[(1, "eve", 2, "I"), (1, None, None, "D"), (1, "bob", 2, "I")]) == {(7, "BOB"): 1}
    assert sums.tick(c=[(1, "other", 9, "D")]) == {(7, None): 1}


def test_a_query_without_a_join_puts_out_the_changes_of_a_table():
    sums = Sums("SELECT name, level * 2 AS twice FROM c WHERE level > 0")
    assert sums.tick(c=[(1, "a", 1, "I"), (2, "b", 0, "I"), (3, "c", 3, "I")]) == {("a", 2): 1, ("c", 6): 1}
    assert sums.tick(c=[(2, "b", 4, "I"), (1, "a", 0, "I"), (3, "", None, "D")]) == {("b", 8): 1}


def test_a_table_may_be_joined_with_itself_and_be_in_a_union():
    sums = Sums("SELECT a.name, b.name AS other FROM c a JOIN c b ON a.level = b.id")
    assert sums.tick(c=[(1, "a", 2, "I"), (2, "b", 2, "I")]) == {("a", "b"): 1, ("b", "b"): 1}
    assert sums.tick(c=[(2, "x", 1, "I")]) == {("a", "x"): 1, ("x", "a"): 1}
    sums = Sums(
        "CREATE VIEW u AS SELECT id, name FROM c UNION ALL SELECT id, name FROM old;"
        "SELECT o.number FROM o LEFT SEMI JOIN u ON u.id = o.customer AND u.name = 'a'"
    )
    assert sums.tick(c=[(1, "a", 0, "I")], old=[(1, "a", 1)], o=[(7, 1, 1)]) == {(7,): 1}
    assert sums.tick(c=[(1, "b", 0, "I")]) == {(7,): 1}
    assert sums.tick(old=[(1, "a", -1)]) == {}


def test_table_retains_only_the_needed_columns():
    plan = plan_job(parse_job(DECLARED + "SELECT o.number, c.name FROM o JOIN c ON c.id = o.customer"))
    sides = [side for node in plan.queries[0].nodes for side in node.sides]
    kept = {side.name: side.kept for side in sides if side.feed is None}  # else rows on their way
    assert kept == {"o": ("number", "customer"), "c.c": ("id", "name"), "c": ("id", "name")}


def test_another_time_for_tombstones_goes_on_with_the_state_and_another_key_does_not():
    def job(store: MemoryStore, table: dict[str, Any]) -> LocalJob:
        columns = {"k": "BIGINT", "v": "INT", "g": "INT", "s": "BIGINT"}
        case = case_of("LEFT", columns, ["k"], "s", 1)
        case["tables"]["c"] |= table
        return LocalJob(plan_job(case_job(case)), store, clock_us=0)

    store = MemoryStore()
    job(store, {}).tick({"c": [({"k": 1, "v": 1, "g": 1, "s": 5}, -1)]}, clock_us=0)
    output = job(store, {"tombstones": None}).tick({"c": [({"k": 1, "v": 1, "g": 1, "s": 4}, 1)]}, clock_us=0)
    assert output.result.queries["q"].account["c.c"] == {
        "in": 2,
        "missing_deletes": 1,
        "stale": 1,
        "retained": 0,
    }
    output = job(store, {"tombstones": 9}).tick({"c": [({"k": 1, "v": 1, "g": 1, "s": 4}, 1)]}, clock_us=0)
    assert output.result.queries["q"].account["c.c"]["retained"] == 1  # forgotten by the tick before
    with pytest.raises(StateError):
        job(store, {"primary_key": ["k", "v"]})
    with pytest.raises(StateError):
        job(store, {"sequence_by": "g"})


def test_delete_evaluates_only_its_key():
    sums = Sums("SELECT c.id, o.number FROM o JOIN c ON CAST(c.name AS BIGINT) = o.customer")
    assert sums.tick(c=[(1, "5", 0, "I")], o=[(7, 5, 1)]) == {(1, 7): 1}
    assert sums.tick(c=[(1, "no number", 0, "D")]) == {}


def test_union_of_a_table_with_itself_is_supported():
    sums = Sums("SELECT name FROM c WHERE level > 0 UNION ALL SELECT name FROM c WHERE level > 1")
    assert sums.tick(c=[(1, "a", 2, "I"), (2, "b", 1, "I")]) == {("a",): 2, ("b",): 1}
    assert sums.tick(c=[(1, "a", 1, "I"), (2, None, None, "D")]) == {("a",): 1}
