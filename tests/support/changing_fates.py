"""What became of every record of a case whose rows are taken back, by the nested-loop oracle and by counting:
equal rows of a source have one number (`numbered_changes`), and records of a primary key are made changes of
rows here (`as_changes`). No code of the engine or of `why` is used.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.support.oracle.case import Oracle
from tests.support.oracle.sql import Rows

ROW = "rid"

Others = frozenset[tuple[str, int | None]]
"""Per other input the number of its row, None where it is padded."""


def collect_declarations(case: Mapping[str, Any]) -> dict[str, Any]:
    return {**case.get("streams", {}), **case.get("tables", {})}


def numbered_changes(case: dict[str, Any], *, apart: bool = False) -> dict[str, Any]:
    """The case with a number in every row, the same for equal rows of a source, which come in one partition
    then, for the oracle tells them apart by it; ``apart``: for none."""
    case = copy.deepcopy(case)
    for declared in collect_declarations(case).values():
        declared["columns"][ROW] = "BIGINT"
    case["query"] = (
        case["query"]
        .replace("(SELECT ", f"(SELECT {ROW}, ")
        .replace("UNION ALL SELECT ", f"UNION ALL SELECT {ROW}, ")
    )
    numbers: dict[str, int] = {}
    partitions: dict[int, str | None] = {}
    for step in case["steps"]:
        for given in step.get("rows", ()):
            values = {c: given[1].get(c) for c in collect_declarations(case)[given[0]]["columns"] if c != ROW}
            text = json.dumps([len(numbers) if apart else given[0], values], sort_keys=True)
            number = numbers.setdefault(text, len(numbers))
            partition = partitions.setdefault(number, given[1].get("_partition"))
            given[1] = {c: own for c, own in given[1].items() if c != "_partition"} | {ROW: number}
            if partition is not None:
                given[1]["_partition"] = partition
    return case


@dataclass
class KnownChanges:
    """Of one number of one input. ``verdicts``: per tick, late, null_time, filtered, or new; ``diffs``: per
    tick how often its row came, of what was new; ``out``: per other rows and tick, how often it came out."""

    verdicts: dict[int, str] = field(default_factory=dict)
    diffs: Counter[int] = field(default_factory=Counter)
    out: dict[Others, Counter[int]] = field(default_factory=dict)

    def counts(self, ticks: int) -> list[int]:
        """How often the row was there after each tick, from 0 on; a delete of what is not there is none."""
        counts = [0]
        for tick in range(1, ticks + 1):
            counts.append(max(0, counts[-1] + self.diffs[tick]))
        return counts

    def below_zero(self) -> bool:
        total = 0
        for tick in sorted(self.diffs):
            total += self.diffs[tick]
            if total < 0:
                return True
        return False

    def results(self, since: int, until: int | None, ticks: int) -> set[tuple[Others, int, int | None]]:
        """What of the output was made with it while it was there: with whom, from when until when."""
        found: set[tuple[Others, int, int | None]] = set()
        for others, diffs in self.out.items():
            total, began = 0, None
            spans: list[tuple[int, int | None]] = []
            for tick in range(1, ticks + 1):
                total += diffs[tick]
                if total > 0 and began is None:
                    began = tick
                elif total <= 0 and began is not None:
                    spans.append((began, tick))
                    began = None
            if began is not None:
                spans.append((began, None))
            for start, end in spans:
                if (end is None or end > since) and (until is None or start < until):
                    found.add((others, max(start, since), end))
        return found


def changing_fates(case: dict[str, Any]) -> tuple[int, dict[tuple[str, int], KnownChanges]]:
    """The number of ticks, and what is known per input and number.

    Raises: Refused, Unsupported, as the oracle.
    """
    oracle: Any = Oracle(case)
    (block,) = oracle.blocks
    heard: dict[tuple[str, int], KnownChanges] = {}
    judge = block.judge
    put_out = block.join_rows if block.joins else block.pass_through
    tick = 0

    def record_verdict(source: Any, branch: Any, rows: Rows, values: Any, diff: int) -> str:
        verdict: str = judge(source, branch, rows, values, diff)
        known = heard.setdefault((source.alias, values[ROW]), KnownChanges())
        known.verdicts[tick] = verdict
        if verdict == "new":
            known.diffs[tick] += diff
        return verdict

    def join_and_record_output(*ended: Any) -> Any:
        rows, rose = put_out(*ended)
        for row, diff in rows:
            if all(f(row) is True for f in block.query.where):
                shown = [(s.alias, own.get(ROW)) for s, own in zip(block.query.inputs, row, strict=True)]
                for who in shown:
                    if who[1] is not None:
                        others = frozenset(own for own in shown if own[0] != who[0])
                        heard[who].out.setdefault(others, Counter())[tick] += diff
        return rows, rose

    block.judge = record_verdict
    setattr(block, "join_rows" if block.joins else "pass_through", join_and_record_output)
    for step in case["steps"]:
        if "restart" not in step and "rescale" not in step:
            tick += 1
        oracle.step(step)
    return tick, heard


# primary keys

KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def keyed_case(seed: int) -> dict[str, Any]:
    """Two or three tables, some with a primary key, some of these with a sequence; records have numbers."""
    rng = random.Random(seed)
    names = "abc"[: rng.choice([1, 2, 2, 2, 3])]
    tables: dict[str, Any] = {}
    for name in names:
        tables[name] = {
            "columns": {"id": "BIGINT", "k": "STRING", "v": "BIGINT", "s": "BIGINT", ROW: "BIGINT"}
        }
        if name == "a" or rng.random() < 0.6:
            tables[name]["primary_key"] = ["id"]
            if rng.random() < 0.4:
                tables[name] |= {"sequence_by": "s", "tombstones": 1_000_000}
    query = "a"
    if rng.random() < 0.3:
        query = "(SELECT * FROM a WHERE v > 1) a"
    for before, name in pairwise(names):
        conditions = rng.sample([f"{before}.k = {name}.k", f"{before}.v <= {name}.v", f"{name}.v > 0"], 2)
        query += f" {rng.choice(KINDS)} {name} ON {' AND '.join(conditions)}"
    where = f" WHERE {names[-1]}.v < 4" if rng.random() < 0.2 else ""
    columns = ", ".join(f"{name}.{ROW} AS r{name}" for name in names)
    steps, number = [], 0
    held: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(rng.randint(3, 6)):
        told: list[Any] = []
        for name in names:
            for _ in range(rng.randrange(4)):
                row = {
                    "id": rng.randrange(3),
                    "k": rng.choice(["x", "y", "y", None]),
                    "v": rng.randrange(5),
                    "s": rng.randrange(8),
                    ROW: number,
                }
                number += 1
                if rng.random() < 0.35:
                    if "primary_key" in tables[name]:
                        told.append([name, {"id": row["id"], "s": row["s"]}, -1])
                        continue
                    if held[name]:
                        at = rng.randrange(len(held[name]))
                        row = held[name][at] if rng.random() < 0.6 else held[name].pop(at)
                        told.append([name, row, -1])
                        continue
                held[name].append(row)
                told.append([name, row, 1])
        steps.append({"rows": told})
    return {
        "case": f"keyed-{seed}",
        "tables": tables,
        "query": f"SELECT {columns} FROM {query}{where}",
        "options": {"output_mode": "changelog"},
        "steps": steps,
    }


@dataclass
class KeyedRecord:
    """What became of a record of a primary key: ``what``: as an answer says; ``left``: the tick in which its
    row went; ``by``: the number of the one that took its place, None: it was deleted; ``took``: the number of
    the row that a delete took away."""

    what: str
    left: int | None = None
    by: int | None = None
    took: int | None = None


def as_changes(case: dict[str, Any]) -> tuple[dict[str, Any], dict[tuple[str, int, int], KeyedRecord]]:
    """The case with its records of primary keys as changes of rows; and what became of each record, by table,
    tick and place among the table's records of the tick."""
    case = copy.deepcopy(case)
    fates: dict[tuple[str, int, int], KeyedRecord] = {}
    keyed = {name for name, own in case["tables"].items() if "primary_key" in own}
    sequences = {name: case["tables"][name].get("sequence_by") for name in keyed}
    for name in keyed:
        case["tables"][name].pop("primary_key")
        case["tables"][name].pop("sequence_by", None)
        case["tables"][name].pop("tombstones", None)
    now: dict[tuple[str, int], tuple[dict[str, Any], KeyedRecord]] = {}
    greatest: dict[tuple[str, int], int] = {}
    for tick, step in enumerate(case["steps"], 1):
        before = dict(now)
        places: Counter[str] = Counter()
        changed: dict[tuple[str, int], None] = {}
        told: list[Any] = [given for given in step["rows"] if given[0] not in keyed]
        came: list[tuple[tuple[str, int], KeyedRecord]] = []
        for name, row, diff in [given for given in step["rows"] if given[0] in keyed]:
            who = (name, row["id"])
            at = (name, tick, places[name])
            places[name] += 1
            if sequences[name] is not None:
                if row["s"] < greatest.get(who, -1):
                    fates[at] = KeyedRecord("stale")
                    continue
                greatest[who] = row["s"]
            changed[who] = None
            if diff > 0:
                fates[at] = KeyedRecord("there")
                now[who] = (row, fates[at])
                came.append((who, fates[at]))
            elif who in now:
                gone = now.pop(who)
                fates[at] = KeyedRecord("delete", took=gone[0][ROW])
                gone[1].what, gone[1].left = "withdrawn", tick
            else:
                fates[at] = KeyedRecord("delete_of_nothing")
        for who in changed:
            old, new = before.get(who), now.get(who)
            if old is not None and (new is None or new[1] is not old[1]):
                told.append([who[0], old[0], -1])
                old[1].left = tick
                old[1].what = "withdrawn" if new is None else "replaced"
                old[1].by = None if new is None else new[0][ROW]
            if new is not None and (old is None or new[1] is not old[1]):
                told.append([who[0], new[0], 1])
        for who, own in came:
            if now.get(who, (None, None))[1] is not own:
                own.what, own.left = "never_there", None
        step["rows"] = told
    return case, fates
