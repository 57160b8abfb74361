"""Each accepted ``*.sql``, run over random rows, gives what the nested-loop oracle gives.

The declarations become the streams of a case, views are written into their queries, every INSERT is a case of
its own. A failure prints the seed and a shrunk case.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import _compare_normalized_step, check, differences
from tests.support.oracle.case import run_case
from tests.support.oracle.windowed import has_windows, run_windowed_case
from tests.support.package_paths import find_paths
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import replay_case
from watersmeet.spec.model import Source
from watersmeet.testing.cases import compare_step

HERE = Path(__file__).parent
TIMES, MAX_TIMES = 6, 30
"""How often each query runs over other rows; up to ``MAX_TIMES`` until a row comes out."""
NOT_HERE = {
    "residual_by_spark": "Spark computes its condition",
    "groups": "the oracle groups over windows alone",
    "window_changes": "streams of changes: tests/oracle/test_window_changes.py",
    "session_changes": "streams of changes: tests/oracle/test_window_changes.py",
    "final_windows": "streams of changes: tests/laws/test_final_windows.py",
    "ranks": "above what is numbered this oracle has no group: tests/oracle/test_ranks.py",
    "windows": "Spark computes percentile_approx",
    "keyed": "tests/engine/nodes/test_upsert.py has an oracle of primary keys",
    "broadcast_of_changes": "output_mode is not said to the oracle, which makes no changelog of a SEMI join",
}
NOTHING = {"inverted": "no pair can satisfy its condition"}
ACCEPTED = [
    path
    for path in find_paths(HERE, "*.sql")
    if not path.read_text().startswith("-- fail=") and path.stem not in NOT_HERE
]
SEMI_JOINS = {
    "semi_and_anti": """SELECT c.id, c.page FROM clicks c
      LEFT SEMI JOIN buys b ON b.click = c.id AND b.bought BETWEEN c.at AND c.at + INTERVAL '1' HOUR
      LEFT ANTI JOIN bots x ON x.click = c.id AND x.seen BETWEEN c.at - INTERVAL '5' MINUTES AND c.at
      WHERE c.page <> '/'""",
}
"""The oracle reads no EXISTS."""
START = datetime(2024, 2, 28, 22)


def queries_of(sql: str) -> list[str]:
    """The SELECTs, with the views that are more than an order of a stream written into them."""
    views: dict[str, str] = {}
    found = []
    for statement in map(str.strip, re.sub(r"^--.*$", "", sql, flags=re.MULTILINE).split(";")):
        view = re.match(r"CREATE VIEW (\w+) AS\s+(.*)", statement, re.DOTALL)
        if view and "IMPOSE_ORDER" in view[2]:
            continue
        body = view[2] if view else re.sub(r"^INSERT INTO \w+\s+", "", statement)
        if not body.startswith("SELECT"):
            continue
        for name, inner in views.items():
            body = re.sub(rf"\bTABLE {name}\b", lambda _, inner=inner: f"({inner})", body)
            body = re.sub(
                rf"\b(FROM|JOIN)(\s+){name}\b(\s+[a-z]\w*)?",
                lambda m, inner=inner, name=name: f"{m[1]}{m[2]}({inner}){m[3] or ' ' + name}",
                body,
            )
        if view:
            views[view[1]] = body
        else:
            found.append(body)
    return found


def ordered_views(sql: str) -> dict[str, tuple[str, str, str]]:
    """Of views that impose an order: the stream, its column, the lag as text."""
    pattern = (
        r"CREATE VIEW (\w+) AS SELECT \* FROM "
        r"TABLE\(IMPOSE_ORDER\(TABLE (\w+), DESCRIPTOR\((\w+)\), INTERVAL '(\d+)' (\w+)"
    )
    found = re.findall(pattern, sql)
    return {view: (stream, column, f"{count} {unit}") for view, stream, column, count, unit in found}


def describe_source(source: Source) -> dict[str, Any]:
    units = {column.name: column.type.is_time for column in source.columns}
    return {
        "columns": {column.name: str(column.type) for column in source.columns},
        "time": {
            time.column: {"lag": f"{time.lag // 1_000_000} SECONDS" if units[time.column] else time.lag}
            for time in source.event_times
        },
    }


def cases_of(path: Path) -> list[dict[str, Any]]:
    """Without steps."""
    sql = path.read_text()
    plan = plan_job(parse_job(sql))
    streams, tables = {}, {}
    for source in plan.sources:
        streams[source.name] = describe_source(source)
    for view, (stream, column, lag) in ordered_views(sql).items():
        streams[view] = {"columns": streams[stream]["columns"], "time": {column: {"lag": lag}}}
    for _, lookup in plan.lookups:
        columns = describe_source(lookup.source)["columns"]
        tables[lookup.source.name] = {"columns": columns}
    found = re.findall(r"^SET (\w+) = '?([^;']+)'?;", sql, flags=re.MULTILINE)
    options = {name: int(value) if value.isdigit() else value for name, value in found}
    found = []
    for number, query in enumerate(queries_of(sql)):
        own = {name: each for name, each in streams.items() if re.search(rf"\b{name}\b", query)}
        met = {name: each for name, each in tables.items() if re.search(rf"\b{name}\b", query)}
        found.append(
            {
                "case": f"{path.stem}-{number}",
                "streams": own,
                "tables": met,
                "query": query,
                "options": options,
            }
        )
    return found


def drawn(rng: random.Random, kind: str, at: datetime, texts: list[str]) -> Any:
    if rng.random() < 0.06:
        return None
    if kind.startswith("TIMESTAMP"):
        return (at + timedelta(seconds=rng.choice([1, 1, 10, 60, 900]) * rng.randrange(-5, 15))).isoformat()
    if kind == "DATE":
        return str((at + timedelta(days=rng.randrange(-2, 2))).date())
    if kind == "BOOLEAN":
        return rng.random() < 0.5
    if kind == "STRING":
        return rng.choice(texts)
    if kind == "DOUBLE":
        return rng.choice([0.0, 0.5, 1.25, -3.0, 39.9, 250.0])
    if kind.startswith("DECIMAL"):
        return rng.choice(["0.00", "1.50", "1.51", "-2.25", "7.00"])
    return rng.choice([0, 1, 1, 1, 2, 7, 60])


def steps_of(rng: random.Random, case: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of all streams by a clock that moves on; tables change, the job restarts; the end."""
    texts = sorted({"a", "/", *re.findall(r"'([^' 0-9]+)'", case["query"])})
    kinds = {kind for each in case["streams"].values() for kind in each["columns"].values()}
    steps: list[dict[str, Any]] = []
    for number in range(rng.randrange(4, 10)):
        at = START + timedelta(minutes=15 * number)
        rows: list[list[Any]] = []
        for name, each in case["streams"].items():
            for _ in range(rng.choice([0, 2, 4, 7])):
                row = {column: drawn(rng, kind, at, texts) for column, kind in each["columns"].items()}
                if kinds == {"BIGINT"}:
                    row |= {column: 4 * number + rng.randrange(-5, 6) for column in each["time"]}
                rows.append([name, row])
        for name, each in case["tables"].items():
            for _ in range((16 if number == 0 else 2) if len(each["columns"]) > 1 else number == 1):
                row = {column: drawn(rng, kind, at, texts) for column, kind in each["columns"].items()}
                rows.append([name, row])
        rng.shuffle(rows)
        steps.append({"rows": rows})
        if rng.random() < 0.15:
            steps.append({"restart": True})
    return [*steps, {"end": True}]


def oracle_of(case: dict[str, Any]) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    if has_windows(case):
        return run_windowed_case
    joins = SEMI_JOINS.get(case["case"].split("-")[0])
    return run_case if joins is None else lambda one: run_case({**one, "query": joins})


def disagreements(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    got = list(replay_case(case, partitions=partitions, hash_seed=hash_seed))
    return differences(case, oracle_of(case)(case), got, compare_step if has_windows(case) else _as_named)


def _as_named(case: dict[str, Any], index: int, line: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Of a view's columns that nobody reads, the engine names the watermarks by their columns within."""
    if "(SELECT" in case["query"]:
        line, expected = ({k: v for k, v in each.items() if k != "watermarks"} for each in (line, expected))
    return _compare_normalized_step(case, index, line, expected)


def test_goldens_that_are_left_out_exist():
    assert find_paths(HERE, *(f"{name}.sql" for name in (*NOT_HERE, *NOTHING)))


@pytest.mark.full
@pytest.mark.parametrize("path", ACCEPTED, ids=lambda path: path.stem)
def test_an_accepted_golden_gives_what_the_oracle_gives(path: Path, seed: int) -> None:
    cases = cases_of(path)
    assert cases
    for case in cases:
        rows = 0
        for number in range(MAX_TIMES):
            if number >= TIMES and (rows or path.stem in NOTHING):
                break
            rng = random.Random(f"{case['case']} {seed} {number}")
            one = {**case, "case": f"{case['case']}, seed {seed}, {number}", "steps": steps_of(rng, case)}
            lines = oracle_of(case)(one)
            assert "error" not in lines[-1], lines[-1]
            rows += sum(len(line["rows"]) for line in lines)
            check(one, rng.choice([1, 2, 5]), rng.choice([None, "borders"]), disagreements)
        assert rows or path.stem in NOTHING, "no row came out: nothing was compared"
