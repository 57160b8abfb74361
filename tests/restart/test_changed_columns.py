"""A query that is opened again with another projection: fewer columns are accepted, and the rows are those
that the oracle has; columns that stored rows lack are refused as long as there are such rows.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.oracle.case import run_case
from tests.support.oracle.windowed import run_windowed_case
from tests.support.ticks import (
    QUERY,
    Rows,
    arriving,
    check_account,
    plan_of,
    stream,
)
from watersmeet.errors import StateError
from watersmeet.names import CHANGE_COLUMNS, is_ours
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.runs.reader import schema_of
from watersmeet.state.store import MemoryStore, Store

COLUMNS = {"t": "BIGINT", "k": "STRING", "v": "BIGINT", "w": "BIGINT", "i": "BIGINT"}
NEAR = "{}.k = {}.k AND {}.t BETWEEN {}.t - 4 AND {}.t + 4"
STREAMS = {name: stream(3, COLUMNS) for name in "lrs"}


def near(one: str, other: str) -> str:
    return NEAR.format(one, other, one, other, other)


ASOF = "FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k"


def window(calls: str, beneath: str, kind: str = "TUMBLE {} 10") -> str:
    name, _, sizes = kind.partition(" {} ")
    table = f"TABLE({name}({beneath}, DESCRIPTOR(t), {sizes}))"
    return f"SELECT window_end AS e, k AS g, {calls} FROM {table} GROUP BY window_start, window_end, k"


UNION = (
    "SELECT {} FROM (SELECT l.t AS t, l.k AS k, l.v * 2 AS x, l.w + 1 AS y FROM l JOIN r ON "
    + near("l", "r")
    + ""
    " UNION ALL SELECT t, k, v, w FROM s) u JOIN s z ON z.k = u.k AND u.t BETWEEN z.t - 4 AND z.t + 4"
)

CHANGES = {
    "full": (
        f"SELECT l.i AS a, l.v AS x, l.w AS lw, r.i AS b, r.k AS k FROM l FULL JOIN r ON {near('l', 'r')}",
        f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {near('l', 'r')}",
    ),
    "column of the condition": (
        f"SELECT l.i AS a, l.v AS x, r.w AS y FROM l LEFT JOIN r ON {near('l', 'r')} AND l.v > r.v",
        f"SELECT l.i AS a FROM l LEFT JOIN r ON {near('l', 'r')} AND l.v > r.v",
    ),
    "all columns": (
        f"SELECT l.i AS a, l.v AS x, l.w AS y FROM l JOIN r ON {near('l', 'r')}",
        f"SELECT 1 AS one FROM l JOIN r ON {near('l', 'r')}",
    ),
    "other names and expressions": (
        f"SELECT l.i AS a, l.v AS x, r.w AS y FROM l JOIN r ON {near('l', 'r')}",
        f"SELECT l.v + l.i AS b FROM l JOIN r ON {near('l', 'r')}",
    ),
    "a stream with itself": (
        f"SELECT a.v AS x, a.w AS y, b.v AS z FROM l a JOIN l b ON {near('a', 'b')}",
        f"SELECT b.v AS x, a.w AS y FROM l a JOIN l b ON {near('a', 'b')}",
    ),
    "names in a sub-query": (
        f"SELECT r.y AS a, l.i AS b FROM l JOIN (SELECT t, k, v AS x, w AS y FROM r) r ON {near('l', 'r')}",
        f"SELECT r.x AS a, l.i AS b FROM l JOIN (SELECT t, k, w AS x FROM r) r ON {near('l', 'r')}",
    ),
    "chain": (
        f"SELECT l.i AS a, l.v AS x, r.i AS b, r.w AS y, s.i AS c, s.v AS z FROM l LEFT JOIN r ON "
        f"{near('l', 'r')} LEFT JOIN s ON {near('s', 'l')}",
        f"SELECT l.i AS a, s.i AS c FROM l LEFT JOIN r ON {near('l', 'r')} LEFT JOIN s ON {near('s', 'l')}",
    ),
    "chain with a computed key": (
        f"SELECT l.i AS a, r.w AS y, s.i AS c FROM l JOIN r ON {near('l', 'r')} "
        "JOIN s ON s.v = l.v + r.v AND s.t BETWEEN l.t - 4 AND l.t + 4",
        f"SELECT s.i AS c FROM l JOIN r ON {near('l', 'r')} "
        "JOIN s ON s.v = l.v + r.v AND s.t BETWEEN l.t - 4 AND l.t + 4",
    ),
    "semi": (
        f"SELECT l.i AS a, l.v AS x FROM l LEFT SEMI JOIN r ON {near('l', 'r')}",
        f"SELECT l.i AS a FROM l LEFT SEMI JOIN r ON {near('l', 'r')}",
    ),
    "anti": (
        f"SELECT l.i AS a, l.v AS x FROM l LEFT ANTI JOIN r ON {near('l', 'r')}",
        f"SELECT l.i AS a FROM l LEFT ANTI JOIN r ON {near('l', 'r')}",
    ),
    "asof": (
        f"SELECT l.i AS a, l.v AS x, r.i AS b, r.v AS y {ASOF}",
        f"SELECT l.i AS a, r.i AS b {ASOF}",
    ),
    "broadcast": (
        "SELECT /*+ BROADCAST(r) */ l.i AS a, l.v AS x, r.i AS b, r.w AS y FROM l FULL JOIN r ON "
        f"{near('l', 'r')}",
        f"SELECT /*+ BROADCAST(r) */ l.i AS a, r.i AS b FROM l FULL JOIN r ON {near('l', 'r')}",
    ),
    "no key": (
        "SELECT l.i AS a, l.v AS x, r.i AS b, r.w AS y FROM l FULL JOIN r ON r.t BETWEEN l.t - 1 AND l.t + 1",
        "SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON r.t BETWEEN l.t - 1 AND l.t + 1",
    ),
    "union of joins": (UNION.format("u.x AS x, u.y AS y, z.i AS i"), UNION.format("u.y AS y")),
    "partial aggregates": (
        window("sum(v) AS x, max(w + 1) AS y, count(*) AS n, max_by(i, w) AS last", "TABLE l"),
        window("max(w + 1) AS y, max_by(i, w) AS last", "TABLE l"),
    ),
    "partial aggregates, of panes": (
        window("avg(v) AS x, min(w) AS y", "TABLE l", "HOP {} 4, 10"),
        window("min(w) AS y", "TABLE l", "HOP {} 4, 10"),
    ),
    "windows above a join": (
        window("sum(v) AS x, min(w) AS y", f"(SELECT l.t, l.k, l.v, r.w FROM l JOIN r ON {near('l', 'r')})"),
        window("min(w) AS y", f"(SELECT l.t, l.k, l.v, r.w FROM l JOIN r ON {near('l', 'r')})"),
    ),
    "sessions": (
        window("sum(v) AS x, min(w) AS y", "TABLE l", "SESSION {} 2"),
        window("min(w) AS y", "TABLE l", "SESSION {} 2"),
    ),
    "groups of distinct values": (
        window("count(DISTINCT v) AS x, min(w) AS y, count(DISTINCT w) AS z", "TABLE l"),
        window("count(DISTINCT w) AS z", "TABLE l"),
    ),
}


def steps(seed: int, count: int = 7) -> list[dict[str, Any]]:
    source, number, found = random.Random(seed), 0, []
    for step in range(count):
        rows = []
        for _ in range(source.randrange(4, 10)):
            number += 1
            at = step * 4 + source.randrange(-4, 5)
            row = {"t": at, "k": source.choice("abc"), "i": number}
            row |= {name: source.choice([None, *range(5)]) for name in "vw"}
            rows.append([source.choice("lrs"), row])
        found.append({"rows": rows})
    return [*found, {"end": True}]


def compute_expected_ticks(query: str, given: list[dict[str, Any]]) -> list[Counter[Any]]:
    case = {"case": "changed", "streams": STREAMS, "query": query, "steps": given}
    run = run_windowed_case if "window_end" in query else run_case
    return [bag(line["rows"]) for line in run(case)]


def bag(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def as_rows(step: dict[str, Any]) -> Rows:
    return arriving(
        **{name: [row for source, row in step.get("rows", []) if source == name] for name in "lrs"}
    )


def open_job(query: str, store: Store, partitions: int = 2, **options: Any) -> LocalJob:
    used = {name: declared for name, declared in STREAMS.items() if f" {name} " in f"{query} " or name == "l"}
    return LocalJob(plan_of(query, used, **options), store, partitions=partitions)


def run_step(job: LocalJob, step: dict[str, Any]) -> Counter[Any]:
    known = {source.name for source in job.plan.sources}
    rows = {name: found for name, found in as_rows(step).items() if name in known}
    output = job.tick(rows, end=step.get("end", False))
    check_account(output)
    return bag(output.rows[QUERY])


def catch_changed_query_error(query: str, store: Store, **options: Any) -> str:
    with pytest.raises(StateError) as raised:
        open_job(query, store, **options)
    assert raised.value.code == "changed-query"
    assert raised.value.hint
    return raised.value.message


@pytest.mark.parametrize("kind", CHANGES)
def test_query_with_fewer_columns_resumes_with_the_right_rows(seed, kind, monkeypatch):
    """Rows stored before and after the change meet, and are merged; the seed draws the steps."""
    wide, narrow = CHANGES[kind]
    given = steps(seed)
    before, after = compute_expected_ticks(wide, given), compute_expected_ticks(narrow, given)
    assert sum(sum(found.values()) for found in before[1:])
    source = random.Random(f"{seed} {kind}")
    ways = list(enumerate(source.sample(range(1, len(given)), 2)))
    for merging, cut in at_effort(quick=ways[1:], full=ways):
        for name in ("FAN_IN", "COMBINING_FAN_IN"):
            monkeypatch.setattr(merge_policy, name, 2 if merging else 8)
        store = MemoryStore()
        job = open_job(wide, store)
        for number, step in enumerate(given):
            if number == cut:
                job = open_job(narrow, store, 1 + cut % 3)
            assert run_step(job, step) == (before if number < cut else after)[number], (cut, number)


JOIN = f"SELECT l.i AS a, l.v AS x, r.i AS b, r.w AS y FROM l FULL JOIN r ON {near('l', 'r')}"
NARROW = JOIN.replace("l.v AS x, ", "")
OTHER_TYPE = {"l": stream(3, {**COLUMNS, "v": "INT"}), "r": STREAMS["r"]}


def with_rows(query: str, **options: Any) -> MemoryStore:
    store = MemoryStore()
    job = open_job(query, store, **options)
    job.tick(arriving(l=[{"t": 1, "k": "a", "v": 7, "w": 8, "i": 1}], r=[{"t": 2, "k": "b", "w": 1, "i": 2}]))
    return store


def test_a_column_that_comes_back_is_refused_until_no_stored_row_lacks_it() -> None:
    store = with_rows(JOIN)
    open_job(NARROW, store)
    again = open_job(JOIN, store)  # nothing was stored since
    assert run_step(again, {"rows": [["r", {"t": 2, "k": "a", "w": 5, "i": 3}]]}) == bag(
        [{"a": 1, "x": 7, "b": 3, "y": 5}]
    )
    run_step(open_job(NARROW, store), {"rows": [["l", {"t": 3, "k": "a", "v": 1, "w": 1, "i": 4}]]})
    message = catch_changed_query_error(JOIN, store)
    assert "(l, as of tick 3)" in message
    assert "l.v" in message
    assert "r.w" not in message


def test_column_is_accepted_again_once_its_runs_are_evicted() -> None:
    store = with_rows(JOIN)
    narrow = open_job(NARROW, store)
    narrow.tick(arriving(l=[{"t": 100, "k": "z", "i": 5}]))
    catch_changed_query_error(JOIN, store)
    narrow.tick(arriving(r=[{"t": 200, "k": "z", "i": 6}]))  # all rows of l are below its watermark
    assert narrow.state[QUERY]["l"] == 0
    job = open_job(JOIN, store)
    found = run_step(job, {"rows": [["l", {"t": 200, "k": "z", "v": 3, "i": 7}]]})
    assert found == bag([{"a": 7, "x": 3, "b": 6, "y": None}])


@pytest.mark.parametrize(
    ("query", "lacks"),
    [
        (JOIN.replace("l.v AS x", "l.w AS x"), "l.w"),
        (JOIN.replace("r.w AS y", "r.w AS y, r.v AS z"), "r.v"),
        (JOIN.replace("FROM l ", "FROM (SELECT t, k, i, v + 1 AS v FROM l) l "), "l.v"),
    ],
)
def test_columns_that_stored_rows_lack_are_refused(query: str, lacks: str) -> None:
    assert f"lack {lacks}, or have it as another expression or type" in catch_changed_query_error(
        query, with_rows(JOIN)
    )
    open_job(query, MemoryStore())


def test_the_same_column_of_another_input_is_another_one() -> None:
    """Rows of a join hold columns of several inputs."""
    chain = (
        f"SELECT l.v AS x, s.i AS c FROM l JOIN r ON {near('l', 'r')} AND r.v > l.v "
        f"JOIN s ON {near('s', 'l')}"
    )
    store = MemoryStore()
    run_step(open_job(chain, store), {"rows": [["l", {"t": 1, "k": "a", "v": 7, "i": 1}]]})
    run_step(open_job(chain, store), {"rows": [["r", {"t": 1, "k": "a", "v": 8, "i": 1}]]})
    message = catch_changed_query_error(chain.replace("l.v AS x", "r.v AS x"), store)
    assert "(#1, as of tick 2)" in message
    assert "lack r.v" in message


def test_another_type_under_the_same_name_is_refused() -> None:
    store = with_rows(JOIN)
    with pytest.raises(StateError, match=r"lack l\.v, or have it as another expression or type"):
        LocalJob(plan_of(JOIN, OTHER_TYPE), store)
    LocalJob(plan_of(NARROW, OTHER_TYPE), store)


def test_other_names_of_the_result_are_accepted() -> None:
    open_job(JOIN.replace("AS x", "AS v").replace("AS y", "AS w"), with_rows(JOIN))


def test_new_expressions_over_retained_columns_are_accepted() -> None:
    open_job(JOIN.replace("l.v AS x", "l.v + r.w AS x"), with_rows(JOIN))


def test_more_columns_are_accepted_where_nothing_is_stored() -> None:
    store = MemoryStore()
    open_job(NARROW, store).tick({})
    open_job(JOIN, store)


CHANGELOG = {"output_mode": "changelog"}
IN_CHANGES = {
    "inner": (
        f"SELECT l.v AS x, l.w AS lw, r.w AS y FROM l JOIN r ON {near('l', 'r')}",
        f"SELECT l.w AS lw FROM l JOIN r ON {near('l', 'r')}",
    ),
    "full": (
        f"SELECT l.v AS x, l.w AS lw, r.v AS z, r.w AS y FROM l FULL JOIN r ON {near('l', 'r')}",
        f"SELECT r.v AS z, l.w AS w FROM l FULL JOIN r ON {near('l', 'r')}",
    ),
    "column of the condition": (
        f"SELECT l.v AS x, l.w AS lw, r.w AS y FROM l LEFT JOIN r ON {near('l', 'r')} AND l.v > r.v",
        f"SELECT l.k AS k FROM l LEFT JOIN r ON {near('l', 'r')} AND l.v > r.v",
    ),
}


def consolidate_rows(rows: list[dict[str, Any]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        found[tuple(sorted((name, v) for name, v in row.items() if name not in CHANGE_COLUMNS))] += row[
            "_diff"
        ]
    return Counter({row: n for row, n in found.items() if n})


def changes(seed: int, count: int = 9) -> list[list[list[Any]]]:
    """Per tick [stream, row, diff]; many rows differ in few columns, and some are deleted. None is late."""
    source, there, found = random.Random(seed), list[list[Any]](), []
    for step in range(count):
        rows = []
        for _ in range(source.randrange(4, 12)):
            row = {"t": step * 2 + source.randrange(2), "k": source.choice("ab"), "i": 0}
            row |= {name: source.choice([None, 0, 1, 2]) for name in "vw"}
            rows.append([source.choice("lr"), row, 1])
        there = [each for each in there if each[1]["t"] >= step * 2 - 4]
        source.shuffle(there)
        deleted = source.randrange(5)
        rows += [[*each[:2], -1] for each in there[:deleted]]
        there = there[deleted:]
        there += [each for each in rows if each[2] > 0]
        found.append(rows)
    return found


@pytest.mark.parametrize("kind", IN_CHANGES)
def test_deletes_match_stored_rows_by_the_columns_that_are_left(seed, kind, monkeypatch):
    """Also rows that differ in a dropped column alone, which are equal now."""
    wide, narrow = IN_CHANGES[kind]
    source = random.Random(f"{seed} {kind}")
    streams = {name: stream(6, COLUMNS) for name in "lr"}
    for attempt in range(at_effort(quick=2, full=4)):
        given = changes(seed + attempt)
        cut = source.randrange(2, len(given) - 1)
        monkeypatch.setattr(merge_policy, "FAN_IN", 2 if attempt % 2 else 8)
        lines = {
            query: run_case({
                "case": "changed", "streams": streams, "query": query, "options": CHANGELOG,
                "steps": [{"rows": rows} for rows in given],
            })
            for query in (wide, narrow)
        }  # fmt: skip
        store = MemoryStore()
        job = LocalJob(plan_of(wide, streams, **CHANGELOG), store, partitions=2)
        for number, rows in enumerate(given):
            if number == cut:
                job = LocalJob(plan_of(narrow, streams, **CHANGELOG), store, partitions=1 + cut % 3)
            told: Rows = {name: [(row, diff) for of, row, diff in rows if of == name] for name in "lr"}
            output = job.tick(told)
            assert not output.result.queries[QUERY].missing_deletes
            wanted = lines[wide if number < cut else narrow][number]["rows"]
            assert consolidate_rows(output.rows[QUERY]) == consolidate_rows(wanted), (
                seed + attempt,
                cut,
                number,
            )


def test_in_changelog_mode_a_column_comes_back_when_no_stored_row_lacks_it() -> None:
    store = with_rows(JOIN, **CHANGELOG)
    given = {"r": [({"t": 2, "k": "b", "w": 1, "i": 2}, -1)]}
    narrow = open_job(NARROW, store, **CHANGELOG)
    assert consolidate_rows(narrow.tick(given).rows[QUERY]) == consolidate_rows(
        [{"a": None, "b": 2, "y": 1, "_diff": -1}]
    )
    narrow.tick(arriving(l=[{"t": 3, "k": "a", "v": 1, "w": 1, "i": 4}]))
    assert "lack l.v" in catch_changed_query_error(JOIN, store, **CHANGELOG)


def test_a_merge_leaves_what_is_wanted(monkeypatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    store = with_rows(JOIN)
    narrow = open_job(NARROW, store, 1)
    for number in range(3):
        narrow.tick(arriving(l=[{"t": 80 + number, "k": "a", "v": 1, "i": number}]))
    manifest = narrow.driver.manifest
    assert manifest is not None
    runs = manifest.queries[QUERY].nodes[0].arrangements["l"].runs
    merged = [live.run for live in runs if live.run.level]
    assert merged
    for run in merged:
        names = {name for name in schema_of(store, run).names if not is_ours(name)}
        assert names == {"t", "k", "i"}
