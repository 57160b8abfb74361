"""Laws of shedding at the limits of sources and of the job, against two plain joins: of all that both keep of
a source, or at all, the oldest rows go, or those of the heaviest keys, wherever they are kept; the job goes
on, keeps no more than it may, and its account adds up. By tasks whose number changes, with crashes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support.effort import at_effort
from tests.support.shed_joins import (
    AFTER,
    BEFORE,
    LAG,
    NEVER,
    Plain,
    run_tick_with_crash,
    ticks,
    up_to_the_last,
)
from tests.support.ticks import check_account
from watersmeet.observe.reports import account_of
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

MOST = 14
JOINS = {"q": ("a", "b", "l", "r"), "p": ("c", "d", "l", "s")}
"""Per query the aliases of both sides, and the sources of which they are."""
SHED = ["shed_oldest", "shed_heaviest"]


def plan_two_joins(
    at_limit: str, whose: str, kinds: dict[str, str], limit: str = f"max_rows = {MOST}", more: str = ""
) -> Any:
    """``whose``: the source whose limit it is; ``job``: of all. ``more``: limits of each join."""
    name, _, most = limit.partition(" = ")
    own = {"l": "", "r": "", "s": ""} | {whose: f", '{name}' = '{most}'"}
    text = f"SET at_limit = {at_limit}; {more}"
    if whose == "job":
        text += f"SET {name.replace('max_', 'max_job_')} = {most};"
    for source in ("l", "r", "s"):
        text += (
            f"CREATE TABLE {source} (k STRING, t BIGINT, i BIGINT, WATERMARK FOR t AS t - {LAG})"
            f" WITH ('connector' = 'memory'{own[source]});"
        )
    for query, (left, right, of_left, of_right) in JOINS.items():
        text += (
            f"CREATE SINK {query} WITH ('connector' = 'memory'); INSERT INTO {query}"
            f" SELECT {left}.i AS li, {right}.i AS ri"
            f" FROM {of_left} {left} {kinds[query]} JOIN {of_right} {right} ON {left}.k = {right}.k"
            f" AND {right}.t BETWEEN {left}.t - {BEFORE} AND {left}.t + {AFTER} AND {left}.i + {right}.i > 0;"
        )
    return plan_job(parse_job(text))


def counting(plain: dict[str, Plain], whose: str) -> list[tuple[str, dict[str, Any]]]:
    """The rows that the limit is of, each with its alias."""
    return [
        (alias, row)
        for query, (left, right, of_left, of_right) in JOINS.items()
        for alias, source, side in ((left, of_left, "l"), (right, of_right, "r"))
        if whose in ("job", source)
        for row in plain[query].kept[side]
    ]


def query_of(alias: str) -> str:
    return next(query for query, (left, right, _, _) in JOINS.items() if alias in (left, right))


def check_shed_rows(
    rows: list[tuple[str, dict[str, Any]]], shed: set[tuple[str, int]], at_limit: str
) -> None:
    excess = len(rows) - MOST
    if at_limit == "shed_oldest":
        gone = up_to_the_last([{"t": row["t"], "i": (alias, row["i"])} for alias, row in rows], excess)
        assert shed == gone
        return
    keys: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for alias, row in rows:
        keys.setdefault((query_of(alias), row["k"]), set()).add((alias, row["i"]))
    gone_keys = {key for key, own in keys.items() if own & shed}
    assert shed == set().union(*(keys[key] for key in gone_keys))
    assert bool(shed) == (excess > 0)
    if shed:
        least = min(len(keys[key]) for key in gone_keys)
        assert all(len(own) <= least for key, own in keys.items() if key not in gone_keys)
        assert len(shed) - least < excess


def whole(rows: list[tuple[str, dict[str, Any]]], shed: set[tuple[str, int]], at_limit: str) -> None:
    """All rows of some times, or of some keys: how many follows from the bytes of files."""
    if at_limit == "shed_oldest":
        last = max((row["t"] for alias, row in rows if (alias, row["i"]) in shed), default=NEVER)
        assert shed == {(alias, row["i"]) for alias, row in rows if row["t"] <= last}
        return
    keys = {(query_of(alias), row["k"]) for alias, row in rows if (alias, row["i"]) in shed}
    assert shed == {(alias, row["i"]) for alias, row in rows if (query_of(alias), row["k"]) in keys}


def measure_retained_bytes(job: LocalJob, whose: str) -> float:
    assert job.driver.manifest is not None
    aliases = {left for left, _, of, _ in JOINS.values() if whose in ("job", of)}
    aliases |= {right for _, right, _, of in JOINS.values() if whose in ("job", of)}
    return sum(
        live.run.nbytes * (live.run.rows - live.released) / live.run.rows
        for query in job.driver.manifest.queries.values()
        for alias, kept in query.nodes[0].arrangements.items()
        if alias in aliases
        for live in kept.runs
    )


def check(
    whose: str,
    at_limit: str,
    seed: int,
    kinds: dict[str, str],
    *,
    crashes: bool = False,
    nbytes: int | None = None,
    more: str = "",
) -> Counter[str]:
    """How many rows each query has shed. ``nbytes``: the limit is one of bytes. ``more``: others."""
    limit = f"max_rows = {MOST}" if nbytes is None else f"max_bytes = {nbytes}"
    plan, store = plan_two_joins(at_limit, whose, kinds, limit, more), MemoryStore()
    random = np.random.default_rng(seed)
    plain = {query: Plain(kinds[query], True) for query in JOINS}
    width = 0 if nbytes is None else 1_000
    given, others, total = ticks(seed, width=width), ticks(seed + 1, width=width), Counter[str]()
    none: dict[str, list[Any]] = {"l": [], "r": []}
    for number, (rows, of_s) in enumerate(zip([*given, none], [*others, none], strict=True)):
        end = number == len(given)
        came = rows | {"s": [{**row, "i": 10_000 + row["i"]} for row in of_s["r"]]}
        job, output, seen = run_tick_with_crash(plan, at_limit, store, random, came, end=end, crashes=crashes)
        shed = {(alias, row["i"]) for alias, row in output.shed}
        assert len(shed) == len(output.shed)
        assert seen is None or {(alias, row["i"]) for alias, row in seen} == shed, "a repeat shed others"
        for query, (_, _, of_left, of_right) in JOINS.items():
            expected = plain[query].tick({"l": came[of_left], "r": came[of_right]}, end=end)
            assert Counter(tuple(row.values()) for row in output.rows[query]) == expected, number
        if more:
            assert shed <= {(alias, row["i"]) for alias, row in counting(plain, "job")}
        elif nbytes is None:
            check_shed_rows(counting(plain, whose), shed, at_limit)
        else:
            whole(counting(plain, whose), shed, at_limit)
        for query, (left, right, _, _) in JOINS.items():
            plain[query].shed({i for alias, i in shed if alias in (left, right)})
            total[query] += sum(query_of(alias) == query for alias, _ in shed)
            result, kept = output.result.queries[query], plain[query].kept
            assert result.state == {left: len(kept["l"]), right: len(kept["r"])}
            assert {alias: own.get("shed", 0) for alias, own in result.counts.items()} == {
                name: sum(alias == name for alias, _ in shed) for name in (left, right)
            }
        if nbytes is None:
            assert len(counting(plain, whose)) <= MOST
        elif not crashes:
            assert measure_retained_bytes(job, whose) <= nbytes
        check_account(output)
        assert account_of(output.result).adds_up()
    return total


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_heaviest"], full=SHED))
@pytest.mark.parametrize("whose", at_effort(quick=["job"], full=["l", "job"]))
def test_rows_are_those_of_the_joins_without_shed_rows(whose, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    total = check(whose, at_limit, seed, {"q": "LEFT", "p": "FULL"})
    assert total["q"] > 0 < total["p"]


@pytest.mark.parametrize(
    ("whose", "at_limit"),
    at_effort(quick=[("r", "shed_oldest")], full=[("r", "shed_oldest"), ("job", "shed_heaviest")]),
)
def test_a_repeated_tick_sheds_the_same_by_other_tasks(whose, at_limit, seed):
    total = check(whose, at_limit, seed, {"q": "FULL", "p": ""}, crashes=True)
    assert total["q"] > 0
    assert (total["p"] > 0) == (whose == "job"), "of no other source rows are shed"


@pytest.mark.parametrize(
    ("whose", "at_limit", "crashes"),
    [
        pytest.param("l", "shed_heaviest", False, marks=pytest.mark.full),
        ("job", "shed_oldest", True),
    ],
)
def test_at_bytes(whose, at_limit, crashes, seed):
    total = check(whose, at_limit, seed, {"q": "LEFT", "p": "FULL"}, crashes=crashes, nbytes=120_000)
    assert total["q"] > 0 < total["p"]


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_heaviest"], full=SHED))
def test_a_row_is_shed_once_by_whatever_limit(at_limit, seed, monkeypatch):
    """Of its join and of the job, by rows and by keys."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    more = "SET max_rows = 9; SET max_rows_per_key = 4;"
    total = check("job", at_limit, seed, {"q": "LEFT", "p": "FULL"}, crashes=True, more=more)
    assert total["q"] > 0 < total["p"]
