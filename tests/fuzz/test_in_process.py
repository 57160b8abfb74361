"""Hostile values through the engine in this process: keys of every type, residual conditions over hostile
texts, times at the ends of their types, restarts; against nested loops."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from tests.fuzz.rows import ALL, Row, as_text, bag, difference, draw_rows, join
from tests.fuzz.values import Drawer
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local.evaluate import move_to_borders
from watersmeet.runtime.local.job import LocalJob
from watersmeet.spec.model import Sink
from watersmeet.spec.options.files import sink_problems
from watersmeet.state.store import LocalStore, MemoryStore

ENDS = [-(2**63), -(2**63) + 1, -(2**63) + 3, -1, 0, 1, 2**62, 2**63 - 3, 2**63 - 2, 2**63 - 1]
WITHIN = 3

JOB = """
CREATE TABLE l ({columns}, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
CREATE TABLE r ({columns}, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');
SELECT {chosen}, r.id AS rid, r.s AS rs FROM l {kind} JOIN r
  ON l.{key} = r.{key} AND l.t BETWEEN r.t - 3 AND r.t + 3 AND {residual};
"""
RESIDUALS = {
    "l.s <> r.s OR l.s IS NULL OR r.s IS NULL": lambda a, b: (
        a["s"] is None or b["s"] is None or a["s"] != b["s"]
    ),
    "l.s < r.s": lambda a, b: None not in (a["s"], b["s"]) and a["s"].encode() < b["s"].encode(),
    "l.s = r.s OR l.o": lambda a, b: a["o"] is True or (a["s"] is not None and a["s"] == b["s"]),
    "l.i64 > r.i64 OR l.i64 = r.i64": lambda a, b: None not in (a["i64"], b["i64"]) and a["i64"] >= b["i64"],
}


def encode_row(row: Row) -> Row:
    """A row as the engine takes it."""
    texts = {name: ALL[name] for name in ("d", "ts") if row[name] is not None}
    return {**row, **{name: as_text(row[name], type_) for name, type_ in texts.items()}}


def build_output_values(row: Row) -> list[Any]:
    """What the engine gives out of a row of the left side."""
    found = encode_row(row)
    if row["ts"] is not None:
        found["ts"] = found["ts"].removesuffix("Z")
    return [found["id"], found["t"], *(str(v) if isinstance(v := found[n], Decimal) else v for n in ALL)]


@pytest.mark.parametrize("key", ALL)
def test_keys_of_every_type(seed, count, canary, key):
    """One tick with all rows, a restart, the end of the input; a share of the cases each with other tasks."""
    rng = random.Random(f"{seed} {key}")
    drawer = Drawer(rng, str(canary))
    columns = {"id": "BIGINT", "t": "BIGINT", **ALL}
    for kind in ("INNER", "LEFT"):
        text, residual = rng.choice(list(RESIDUALS.items()))
        left = draw_rows(drawer, count // 2, ALL, times=ENDS)
        right = draw_rows(drawer, count // 2, ALL, first=10_000, times=ENDS)
        ddl = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        chosen = ", ".join(f"l.{name}" for name in columns)
        sql = JOB.format(columns=ddl, chosen=chosen, kind=kind, key=key, residual=f"({text})")
        plan, store = plan_job(parse_job(sql)), MemoryStore()
        placing = move_to_borders if rng.random() < 0.5 else None
        tasks = rng.choice([1, 2, 7])
        job = LocalJob(plan, store, partitions=tasks, settings=TickSettings(placing=placing))
        found = job.tick(
            {"l": [(encode_row(row), 1) for row in left], "r": [(encode_row(row), 1) for row in right]}
        )
        again = LocalJob(plan, store, partitions=rng.choice([1, 3]), settings=TickSettings(placing=placing))
        last = again.tick({}, end=True)
        got = bag(tuple(row.values()) for step in (found, last) for row in step.rows["console"])
        pairs = join(left, right, key, WITHIN, residual)
        want = Counter()
        for row, other in pairs:
            if other is not None or kind == "LEFT":
                want += bag([(*build_output_values(row), other and other["id"], other and other["s"])])
        assert not difference(got, want), f"{kind} {key} {text}"
        assert not found.late
        account = last.result.queries["console"].account["l"]
        assert (account["in"], account["retained"]) == (len(left), 0)


TABLES = [
    "../canary/file", "%2F..", "~", "-rf", "a\nb", 'a"b', "a`b", "a'b", "x/y", "\x1b[31m", "\u202ea",
    "x" * 150, "x" * 300, "\u00e9" * 120, "{0}", "%s", "*", "_x", "a\\b", "job", "lock", "$(touch file)",
]  # fmt: skip
NAMED = """
CREATE TABLE left_rows (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE right_rows (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE {sink} WITH ('connector' = 'memory');
INSERT INTO {sink} SELECT {left}.id FROM left_rows AS {left} JOIN right_rows AS {right}
  ON {left}.id = {right}.id AND {left}.t BETWEEN {right}.t - 3 AND {right}.t + 3;
"""


@pytest.mark.parametrize("name", TABLES, ids=range(len(TABLES)))
def test_names_of_inputs_and_inserts(tmp_path, canary, name):
    """They are in names of files: nothing is written outside of the state, and none is too long."""
    left, right, sink = ("`" + each.replace("`", "``") + "`" for each in (name, f"{name}r", f"{name}o"))
    plan = plan_job(parse_job(NAMED.format(left=left, right=right, sink=sink)))
    root = tmp_path / "state"
    rows = {"left_rows": [({"id": 1, "t": 1}, 1)], "right_rows": [({"id": 1, "t": 2}, 1)]}
    found = [LocalJob(plan, LocalStore(root)).tick(rows).rows[f"{name}o"] for _ in range(3)]
    assert [len(each) for each in found] == [1, 3, 5]
    assert {path.name for path in tmp_path.iterdir()} == {"state", "canary"}


@pytest.mark.parametrize(("name", "fits"), [("x" * 200, True), ("x" * 201, False), ("\u00e9" * 40, False)])
def test_sinks_whose_names_are_no_names_of_directories(name, fits):
    problems = sink_problems(Sink(name, "file", {"path": "out"}))
    assert [each.code for each in problems] == [] if fits else ["name-too-long"]
