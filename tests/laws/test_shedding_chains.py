"""Laws of shedding in a chain of joins, against two plain joins one after the other: each keeps no more rows
than it may, whoever has made them. Joined rows that were shed meet nothing any more and are never padded;
what the account says of inputs adds up without them, and they are counted apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support.effort import at_effort
from tests.support.shed_joins import AFTER, BEFORE, LAG, MOST, Plain, by_rows, ticks
from tests.support.split_keys import split_every_key
from tests.support.ticks import arriving, check_account
from watersmeet.cli.state_commands.show import state_report
from watersmeet.observe.reports import account_of
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.results import QueryResult
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

DECLARED = "".join(
    f"CREATE TABLE {name} (k STRING, t BIGINT, i BIGINT, WATERMARK FOR t AS t - {LAG})"
    " WITH ('connector' = 'memory');"
    for name in ("l", "r", "s")
)


HIDING = ("LEFT SEMI", "LEFT ANTI")


def plan_join_chain(first: str, second: str, at_limit: str, limits: str = f"SET max_rows = {MOST};") -> Any:
    columns = "l.i AS li, r.i AS ri" + ("" if second in HIDING else ", s.i AS si")
    band = f"BETWEEN l.t - {BEFORE} AND l.t + {AFTER}"
    return plan_job(
        parse_job(
            f"{limits} SET at_limit = {at_limit}; SET plan = cascade; {DECLARED}"
            "CREATE SINK q WITH ('connector' = 'memory');"
            f"INSERT INTO q SELECT {columns} FROM l {first} JOIN r ON l.k = r.k AND r.t {band}"
            f" {second} JOIN s ON l.k = s.k AND s.t {band}"
            " AND l.i + s.i > 0;"
        )
    )


def flat(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As it goes out, of one whose left side is a pair."""
    left, *others = row
    return (*(left or (None, None)), *others)


def shed_of(files: list[tuple[str, dict[str, Any]]]) -> dict[str, list[Any]]:
    """Per side the numbers of its rows; of joined ones both."""
    shed: dict[str, list[Any]] = {"l": [], "r": [], "s": [], "#1": []}
    for alias, row in files:
        shed[alias].append((row["l.i"], row["r.i"]) if alias == "#1" else row["i"])
    return shed


def check_shown(job: LocalJob, result: QueryResult, joined: int) -> None:
    """By `watersmeet state show`."""
    manifest = job.driver.manifest
    assert manifest is not None
    report = state_report(manifest, job.plan)
    shed = {name: own["shed"] for name, own in result.account.items() if own.get("shed")}
    assert report.shed == ({"q": shed} if shed else {})
    assert report.shed_joined == ({"q": {"l with r": joined}} if joined else {})
    said = [line for line in report.lines() if "shed so far" in line]
    assert len(said) == len(shed) + (joined > 0)
    assert not joined or said[-1].startswith(f"q/l with r: {joined:,} joined rows shed so far")


def check(plan: Any, first: str, second: str, at_limit: str, seed: int) -> int:
    """How many joined rows were shed."""
    store, random, total = MemoryStore(), np.random.default_rng(seed), 0
    beneath, above = Plain(first, True), Plain(second, True)
    judge = by_rows(at_limit)
    left: dict[int, dict[str, Any]] = {}
    given, others = ticks(seed), ticks(seed + 1)
    none: dict[str, list[Any]] = {"l": [], "r": []}
    for number, (rows, of_s) in enumerate(zip([*given, none], [*others, none], strict=True)):
        end = number == len(given)
        left |= {row["i"]: row for row in rows["l"]}
        came = [{**row, "i": 10_000 + row["i"]} for row in of_s["r"]]
        job = LocalJob(plan, store, partitions=int(random.integers(1, 4)))
        output = job.tick(arriving(**rows, s=came), end=end)

        joined = [
            {"k": left[of[0]]["k"], "t": left[of[0]]["t"], "i": of}
            for of, times in beneath.tick(rows, end=end).items()
            for _ in range(times)
        ]
        mark = min([beneath.marks["l"], *(row["t"] for row in beneath.kept["l"])])
        expected = above.tick({"l": joined, "r": came}, end=end, left_mark=mark)
        expected = Counter({flat(row): n for row, n in expected.items()})
        assert Counter(tuple(row.values()) for row in output.rows["q"]) == expected, number

        shed = shed_of(output.shed)
        judge(beneath, {*shed["l"], *shed["r"]})
        judge(above, {*shed["#1"], *shed["s"]})
        assert all(len(set(own)) == len(own) for own in shed.values())
        for plain, of in ((beneath, ("l", "r")), (above, ("#1", "s"))):
            plain.shed({row for name in of for row in shed[name]})
        total += len(shed["#1"])
        check_account(output)
        result = output.result.queries["q"]
        kept = {"l": beneath.kept["l"], "r": beneath.kept["r"], "s": above.kept["r"]}
        assert result.state == {name: len(own) for name, own in kept.items()}
        assert {name: own.get("shed", 0) for name, own in result.counts.items()} == {
            name: len(shed[name]) for name in kept
        }
        assert sum(result.shed_joined.values()) == total
        account = account_of(output.result)
        assert account.adds_up()
        assert account.as_dict()["shed_joined"] == ({"l with r": total} if total else {})
        check_shown(job, result, total)
    assert not any([*beneath.kept.values(), *above.kept.values()])
    return total


@pytest.mark.parametrize(
    "at_limit", at_effort(quick=["shed_heaviest"], full=["shed_oldest", "shed_heaviest"])
)
@pytest.mark.parametrize(
    "second", at_effort(quick=["FULL", "LEFT SEMI"], full=["INNER", "LEFT", "FULL", *HIDING])
)
@pytest.mark.parametrize("first", at_effort(quick=["LEFT"], full=["INNER", "LEFT"]))
def test_rows_are_those_of_the_joins_without_shed_rows(first, second, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    if second == "FULL":
        split_every_key(monkeypatch)
    assert check(plan_join_chain(first, second, at_limit), first, second, at_limit, seed) > 0


DECLARED_MORE = (
    f"{DECLARED} CREATE SINK q WITH ('connector' = 'memory'); CREATE SINK p WITH ('connector' = 'memory');"
)
BAND = "BETWEEN l.t - 9 AND l.t + 9"


def job_of(queries: str, limits: str = "SET max_rows = 4; SET at_limit = shed_oldest;") -> LocalJob:
    return LocalJob(
        plan_job(parse_job(f"{limits} SET plan = cascade; {DECLARED_MORE} {queries}")), MemoryStore()
    )


def rows_of(*times: int) -> list[dict[str, Any]]:
    return [{"k": "k", "t": time, "i": time} for time in times]


def test_null_time_of_a_shed_row_is_reported_as_null():
    """Of a row that was padded beneath, and waits above for its other time's sake."""
    job = job_of(
        "INSERT INTO q SELECT l.t AS lt, r.i AS ri, s.i AS si FROM l RIGHT JOIN r ON l.k = r.k AND l.t = r.t"
        " LEFT JOIN s ON s.k = r.k AND s.t BETWEEN r.t AND r.t + 90 AND r.i + s.i < 0;"
    )
    job.tick(arriving(r=rows_of(1, 2, 3, 4)))
    shed = []
    for time in (50, 51, 52):
        shed += job.tick(arriving(l=rows_of(time), r=rows_of(time))).shed
    records = [row for alias, row in shed if alias == "#1"]
    assert [(row["r.t"], row["l.t"]) for row in records][:3] == [(1, None), (2, None), (3, None)]
    last = job.tick({}, end=True)
    assert not {row["ri"] for row in last.rows["q"]} & {row["r.i"] for row in records}
    check_account(last)


def test_a_union_of_a_join_and_a_stream_is_an_input_with_an_account_of_its_own():
    job = job_of(
        "INSERT INTO q SELECT u.i AS ui, s.i AS si FROM"
        f" (SELECT l.k, l.t, r.i FROM l JOIN r ON l.k = r.k AND r.t {BAND} UNION ALL SELECT k, t, i FROM s) u"
        " LEFT JOIN s ON u.k = s.k"
        " AND s.t BETWEEN u.t - 30 AND u.t + 30 AND u.i + s.i < 0;"
    )
    shed: Counter[str] = Counter()
    for time in range(0, 60, 2):
        output = job.tick(arriving(l=rows_of(time), r=rows_of(time, time + 1), s=rows_of(time + 1)))
        shed.update(alias for alias, _ in output.shed)
        check_account(output)
    account = output.result.queries["q"].account
    assert shed["u"] > 0 < shed["s"]
    assert {alias: account[alias].get("shed", 0) for alias in ("u", "s")} == {a: shed[a] for a in ("u", "s")}
    assert not output.result.queries["q"].shed_joined


def test_queries_that_have_a_join_in_common_shed_above_it_each_for_itself():
    first = f"FROM l JOIN r ON l.k = r.k AND r.t {BAND}"
    above = "JOIN s ON s.k = l.k AND s.t BETWEEN l.t - {0} AND l.t + {0} AND l.i + s.i < 0"
    job = job_of(
        f"INSERT INTO q SELECT l.i AS li, s.i AS si {first} LEFT {above.format(30)};"
        f"INSERT INTO p SELECT l.i AS li, s.i AS si {first} FULL {above.format(20)};",
        "SET max_rows = 6; SET at_limit = shed_oldest;",
    )
    shed: Counter[str] = Counter()
    for time in range(0, 60, 2):
        output = job.tick(arriving(l=rows_of(time), r=rows_of(time, time + 1), s=rows_of(time + 1)))
        shed.update(alias for alias, _ in output.shed)
        assert account_of(output.result).adds_up()
    joined = [sum(of.shed_joined.values()) for of in output.result.queries.values()]
    assert all(joined)
    assert sum(joined) == shed["#1"]
