"""A query whose joins are written in another order goes on with its state, without a flag: in each tick it
puts out what the query puts out that nobody touched, and in the end what brute force finds.

The ways of writing a query are made here by what joins mean: sides of an outer join change places with its
name, INNER and FULL joins read from both sides, inner ones that stand together are made in any order.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import watersmeet
from tests.laws.test_narrower_queries import (
    KINDS,
    OF_LEFT,
    TARGET,
    Condition,
    Found,
    KilledError,
    Killing,
    Row,
    build_unchanged_query,
    compute_expected_join,
    numbers,
    open_job,
    ticks_of,
)
from tests.plan.test_order import AC as NEAR_AC
from tests.plan.test_order import CB as NEAR_CB
from tests.plan.test_order import UNCONNECTED, chain, plan
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.plan.identity.settings import settings_of
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import manifest_names

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=2, full=20)
REACHED = at_effort(quick=any, full=all)
COUNT = 12
MIRRORED = {"JOIN": "JOIN", "LEFT JOIN": "RIGHT JOIN", "RIGHT JOIN": "LEFT JOIN", "FULL JOIN": "FULL JOIN"}
ALIASES = {"a": "s", "b": "u", "c": "v"}


@dataclass
class Link:
    """The join of ``left`` and ``right``, two aliases, by a condition. ``turned``: that is written from the
    other side; conditions over both keep their words."""

    kind: str
    left: str
    right: str
    condition: Condition
    turned: bool = False

    @property
    def text(self) -> str:
        left, right, own = self.left, self.right, self.condition
        if not self.turned:
            return own.text(left, right)
        more = "" if own.more is None else f" AND abs({left}.w - {right}.w) <= {own.more}"
        between = f"{left}.t BETWEEN {right}.t - {own.high} AND {right}.t - {own.low}"
        return f"{right}.k = {left}.k AND {between}{more}"


def written(links: list[Link], rng: random.Random) -> str:
    """FROM and what follows, in any order that means the same."""
    one, *others = links
    first = _mirror_join_at_random(
        ALIASES[one.left] + f" {one.left}", ALIASES[one.right] + f" {one.right}", one, rng
    )
    if not others:
        return first
    (two,) = others
    if one.kind == two.kind == "JOIN":
        how = rng.randrange(4)
        if how == 0:  # the other join first
            beneath = _mirror_join_at_random(
                ALIASES[two.left] + f" {two.left}", ALIASES[two.right] + f" {two.right}", two, rng
            )
            return _mirror_join_at_random(ALIASES[one.left] + f" {one.left}", f"({beneath})", one, rng)
        if how == 1:  # conditions where they can only be sorted out
            names = [f"{source} {alias}" for alias, source in ALIASES.items()]
            rng.shuffle(names)
            return f"{', '.join(names)} WHERE {one.text} AND {two.text}"
    return _mirror_join_at_random(f"({first})", ALIASES[two.right] + f" {two.right}", two, rng)


def _mirror_join_at_random(left: str, right: str, link: Link, rng: random.Random) -> str:
    if link.kind in MIRRORED and rng.random() < 0.5:
        return f"{right} {MIRRORED[link.kind]} {left} ON {link.text}"
    return f"{left} {link.kind} {right} ON {link.text}"


def text_of(links: list[Link], rng: random.Random) -> str:
    shown = ["a"] if links[0].kind in OF_LEFT else list("abc"[: len(links) + 1])
    columns = [f"{alias}.{column} AS {column}{alias}" for alias in shown for column in "nw"]
    rng.shuffle(columns)
    return f"{TARGET}SELECT {', '.join(columns)} FROM {written(links, rng)};\n"


def links_of(rng: random.Random, which: int) -> list[Link]:
    """``which``: of one join its kind, in turn with inner chains and any others."""
    alone, at = [*KINDS, *OF_LEFT], which % 10
    kinds = [alone[at]] if at < 6 else ["JOIN", "JOIN"] if at < 8 else [rng.choice(KINDS), rng.choice(KINDS)]
    links = []
    for place, kind in enumerate(kinds):
        low = rng.choice([-12, -5, 0])
        more = 2 if kind in OF_LEFT else rng.choice([None, None, 2])
        condition = Condition(low, low + rng.choice([6, 20]), more)
        links.append(Link(kind, "abc"[place], "abc"[place + 1], condition))
    return links


def forget_orders(store: MemoryStore) -> None:
    """The newest manifest as one was that did not say what joins ask."""
    name = manifest_names(store)[-1]
    content = json.loads(verify_checksum(name, bytes(store.read(name))))
    content["described"] = {}
    store.delete(name)
    store.create(name, add_checksum(name, json.dumps(content)))


def bag(rows: list[Row]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def read_by(job: LocalJob, rows: dict[str, Any]) -> dict[str, Any]:
    return {source.name: rows[source.name] for source in job.plan.sources}


def test_joins_in_another_order_go_on(seed: int) -> None:
    seen = Counter[str]()
    for number in range(seed, seed + CASES):
        rng = random.Random(number)
        links = links_of(rng, number)
        rows, ticks = ticks_of(rng, COUNT)
        beside = build_unchanged_query(rng.choice(KINDS), links[0].condition) if rng.random() < 0.5 else ""
        text = text_of(links, rng) + beside
        said = [f"random-{number}: {text}"]
        store, found = Killing(), Counter[tuple[int | None, ...]]()
        job, untouched = open_job(text, store), open_job(text, MemoryStore())
        began_with = settings_of(job.plan)['joins and inputs of "o"']
        sources = [source.name for source in job.plan.sources]
        for place, given in enumerate(ticks):
            if rng.random() < 0.4 and place:
                if rng.random() < 0.3:
                    forget_orders(store)
                    seen["forgotten"] += 1
                turned = rng.random() < 0.5
                for link in links:
                    link.turned = turned and rng.random() < 0.7
                text = text_of(links, rng) + beside
                said.append(f"tick {place}: {text}")
                job = open_job(text, store)
                assert not job.driver.said, said
                columns = [output.name for output in job.plan.queries[0].outputs]
                assert columns == [
                    output.name for output in open_job(text, MemoryStore()).plan.queries[0].outputs
                ]
                if not any(link.turned for link in links):  # else the tick, if any, is one of another text
                    now = settings_of(job.plan)['joins and inputs of "o"']
                    assert now == began_with, said
                assert [source.name for source in job.plan.sources] == sources, said
                seen["changed"] += bool(job.plan.queries[0].ordered_by_state)
                if rng.random() < 0.3:
                    store.kill = True
                    with pytest.raises(KilledError):
                        job.tick(read_by(job, given))
                    job = open_job(text_of(links, rng) + beside, store)
                    seen["killed"] += 1
            job.partitions = rng.choice([1, 2, 3])
            is_last = place == COUNT - 1
            out = job.tick(read_by(job, given), end=is_last).rows
            wanted = untouched.tick(read_by(untouched, given), end=is_last).rows
            assert {name: bag(of) for name, of in out.items()} == {n: bag(of) for n, of in wanted.items()}, (
                said
            )
            for row in out.get("o", []):
                found[tuple(row[name] for name in ("na", "nb", "nc") if name in row)] += 1
            seen["shared"] += any(side.sharers for query in job.plan.queries for side in query.sides)
        lefts: list[Found] = [(row,) for row in rows["s"]]
        for place, link in enumerate(links):
            asked = (link.condition, link.condition, 0)
            lefts = compute_expected_join(lefts, rows[ALIASES[link.right]], link.kind, asked, place + 1)
        assert found == numbers(lefts), said
        seen.update(link.kind for link in links)
        seen["inner chain"] += [link.kind for link in links] == ["JOIN", "JOIN"]
    assert seen["changed"], seen
    others = ("killed", "forgotten", "shared", "inner chain", *KINDS, *OF_LEFT)
    assert REACHED(seen[what] for what in others), seen


def test_order_and_condition_change_at_once(seed: int) -> None:
    """By the flag; the law is the query whose condition alone changes."""
    seen = Counter[str]()
    for number in range(seed, seed + CASES // 2):
        rng = random.Random(number)
        links = links_of(rng, number % 4)
        _, ticks = ticks_of(rng, COUNT)
        texts = {False: text_of(links, rng)}
        texts[True] = texts[False]
        stores = {False: MemoryStore(), True: MemoryStore()}
        jobs = {moves: open_job(texts[moves], stores[moves]) for moves in (False, True)}
        came = rng.randrange(2, COUNT - 2)
        for place, given in enumerate(ticks):
            if place == came:
                old = links[0].condition
                wider = rng.random() < 0.5
                by = rng.randrange(1, 4) * (1 if wider else -1)
                links[0].condition = Condition(old.low - by, old.high + by, old.more)
                for moves in (False, True):
                    texts[moves] = text_of(links, random.Random(number + came + moves))
                    with pytest.raises(
                        StateError, match=r"the join of (a and b|b and a) was ON .* now it is ON"
                    ) as refused:
                        open_job(texts[moves], stores[moves])
                    assert "keeps its rows" in str(refused.value.hint), (number, texts)
                    jobs[moves] = open_job(texts[moves], stores[moves], change=True)
                    assert "keeps its rows" in jobs[moves].driver.said[0]
                    seen["ordered"] += bool(jobs[moves].plan.queries[0].ordered_by_state)
                seen["wider" if wider else "narrower"] += 1
            out = {
                moves: job.tick(read_by(job, given), end=place == COUNT - 1).rows["o"]
                for moves, job in jobs.items()
            }
            assert bag(out[False]) == bag(out[True]), (number, texts, place)
        complete = [
            job.driver.manifest.queries["o"].complete_from for job in jobs.values() if job.driver.manifest
        ]
        assert complete[0] == complete[1], number
    assert REACHED(seen[what] for what in ("ordered", "wider", "narrower")), seen


TABLES = "".join(
    f"CREATE TABLE {name} (k INT, l INT, n INT, op STRING) WITH ('connector' = 'file', 'path' = '{name}',"
    " 'op.column' = 'op', 'op.insert' = 'I', 'op.delete' = 'D');\n"
    for name in "xyz"
)
CONDITIONS = {"xy": "x.k = y.k", "yz": "y.l = z.l"}


def delta_text(rng: random.Random, *, outer: bool) -> str:
    head = "CREATE TABLE o WITH ('connector' = 'memory');\nINSERT INTO o SELECT x.n AS nx, y.n AS ny"
    if outer:
        kind, sides = rng.choice([("LEFT", "xy"), ("RIGHT", "yx")])
        return f"{head} FROM {sides[0]} {kind} JOIN {sides[1]} ON {CONDITIONS['xy']} EMIT CHANGES;\n"
    names = list("xyz")
    rng.shuffle(names)
    conditions = " AND ".join([CONDITIONS["xy"], CONDITIONS["yz"]])
    if rng.random() < 0.3:
        beneath = f"(y JOIN z ON {CONDITIONS['yz']})"
        return f"{head}, z.n AS nz FROM x JOIN {beneath} ON {CONDITIONS['xy']} EMIT CHANGES;\n"
    return f"{head}, z.n AS nz FROM {', '.join(names)} WHERE {conditions} EMIT CHANGES;\n"


def test_changing_tables_in_another_order(seed: int) -> None:
    """Each tick's rows, summed, are those of the untouched job; all of them the join of what is there."""
    seen = Counter[str]()
    for number in range(seed, seed + CASES // 2):
        rng = random.Random(number)
        outer = rng.random() < 0.4
        beside = (
            "CREATE TABLE p WITH ('connector' = 'memory');\nINSERT INTO p SELECT y.n AS ny, z.n AS nz"
            " FROM y JOIN z ON y.l = z.l EMIT CHANGES;\n"
            if rng.random() < 0.5
            else ""
        )
        first = rng.random() < 0.5

        def whole(rng: random.Random, outer: bool = outer, beside: str = beside, first: bool = first) -> str:
            own = delta_text(rng, outer=outer)
            return TABLES + (beside + own if first else own + beside)

        text = whole(rng)
        store, there = Killing(), {name: Counter[tuple[int, int, int]]() for name in "xyz"}
        planned = watersmeet.plan_job(watersmeet.parse_job(text))
        job, untouched, total = LocalJob(planned, store), LocalJob(planned, MemoryStore()), Counter[Any]()
        at = 0
        for place in range(COUNT):
            given: dict[str, Any] = {name: [] for name in "xyz"}
            for name in "xyz":
                for _ in range(rng.randrange(4)):
                    at += 1
                    row = (rng.randrange(3), rng.randrange(3), at)
                    if there[name].total() and rng.random() < 0.4:
                        row = rng.choice(sorted(there[name].elements()))
                        there[name][row] -= 1
                        given[name].append((dict(zip("kln", row, strict=True)) | {"op": "D"}, 1))
                    else:
                        there[name][row] += 1
                        given[name].append((dict(zip("kln", row, strict=True)) | {"op": "I"}, 1))
            if place and rng.random() < 0.4:
                if rng.random() < 0.3:
                    forget_orders(store)
                text = whole(rng)
                job = LocalJob(watersmeet.plan_job(watersmeet.parse_job(text)), store)
                assert not job.driver.said
                seen["changed"] += any(query.ordered_by_state for query in job.plan.queries)
                if rng.random() < 0.3:
                    store.kill = True
                    with pytest.raises(KilledError):
                        job.tick(read_by(job, given))
                    job = LocalJob(watersmeet.plan_job(watersmeet.parse_job(whole(rng))), store)
            job.partitions = rng.choice([1, 2, 3])
            out, wanted = (of.tick(read_by(of, given)).rows for of in (job, untouched))
            for name in out:
                assert _sum_changes(out[name]) == _sum_changes(wanted[name]), (number, place, text)
            total.update(_sum_changes(out["o"]))
        assert {row: n for row, n in total.items() if n} == _compute_expected_join(there, outer=outer), (
            number,
            text,
        )
        seen["beside"] += bool(beside)
        seen["outer" if outer else "delta"] += 1
    assert REACHED(seen[what] for what in ("changed", "beside", "outer", "delta")), seen


def _sum_changes(rows: list[Row]) -> Counter[Any]:
    summed = Counter[Any]()
    for row in rows:
        summed[tuple(row.get(name) for name in ("nx", "ny", "nz"))] += row["_diff"]
    return Counter({row: n for row, n in summed.items() if n})


def _compute_expected_join(there: dict[str, Counter[tuple[int, int, int]]], *, outer: bool) -> dict[Any, int]:
    result = Counter[Any]()
    x, y, z = (list(there[name].elements()) for name in "xyz")
    for row in x:
        partners = [other for other in y if other[0] == row[0]]
        if outer:
            result.update((row[2], other[2], None) for other in partners)
            result[row[2], None, None] += not partners
        else:
            result.update(
                (row[2], other[2], third[2]) for other in partners for third in z if third[1] == other[1]
            )
    return {row: n for row, n in result.items() if n}


NEAR = "{0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 5 AND {0}.t + 9"
AB, AC, BC = NEAR.format("a", "b"), NEAR.format("a", "c"), NEAR.format("b", "c")
SHOWN = f"{TARGET}SELECT a.n, a.w FROM "


def build_store_after_first_tick(*froms: str, head: str = SHOWN) -> MemoryStore:
    store = MemoryStore()
    (text,) = (f"{head}{own};" for own in froms)
    job = open_job(text, store)
    job.tick({source.name: [] for source in job.plan.sources})
    return store


@pytest.mark.parametrize(
    ("before", "after", "told", "why"),
    [
        (
            f"s a LEFT JOIN u b ON {AB} JOIN v c ON {AC}",
            f"s a JOIN v c ON {AC} LEFT JOIN u b ON {AB}",
            "its joins were ((a, b), c) and are now ((a, c), b)",
            "its joins are in another order: the state has joined rows of a with b, but the query needs"
            " those of a with c",
        ),
        (
            f"s a LEFT JOIN u b ON {AB} JOIN v c ON {AC}",
            f"s a JOIN v c ON {AC} LEFT JOIN u b ON {AB.replace('+ 9', '+ 8')}",
            "now ((a, c), b); it was ON b.t BETWEEN a.t - 5 AND a.t + 9,"
            " now it is ON b.t BETWEEN a.t - 5 AND a.t + 8",
            "its joins are in another order",
        ),
        (
            f"s a LEFT JOIN u b ON {AB}",
            f"u b LEFT JOIN s a ON {AB}",
            "was LEFT, now it is RIGHT",
            "more changed",
        ),
        (
            f"s a LEFT ANTI JOIN u b ON {AB}",
            f"u a LEFT ANTI JOIN s b ON {AB}",
            "its inputs were a of s, b of u, now they are a of u, b of s",
            "more changed",
        ),
        (
            f"s a JOIN u b ON {AB} JOIN v c ON {BC}",
            f"v c JOIN u b ON {BC} JOIN s a ON {AB} AND a.k > 1",
            "the join of a and b is now also ON a.k > 1",
            "more changed",
        ),
    ],
)
def test_orders_with_other_results_are_refused_by_name(before: str, after: str, told: str, why: str) -> None:
    """And what is different beside an order that would not be, is said without that."""
    store = build_store_after_first_tick(before)
    with pytest.raises(StateError) as refused:
        open_job(f"{SHOWN}{after};", store)
    assert told in refused.value.message
    assert "starts without its stored rows" in str(refused.value.hint)
    job = open_job(f"{SHOWN}{after};", store, change=True)
    assert any(told in said and why in said for said in job.driver.said)
    assert not job.plan.queries[0].ordered_by_state, "it begins in its own order"


def test_explain_says_whose_order_it_is() -> None:
    store = build_store_after_first_tick(f"s a LEFT JOIN u b ON {AB}")
    job = open_job(f"{SHOWN}u b RIGHT JOIN s a ON {AB};", store)
    told = watersmeet.explain(job.plan)
    assert "Order of the joins (that of the state; under another sink's name the query's)" in told
    assert "  a, b: the order of the stored state" in told
    assert "that of the state" not in watersmeet.explain(
        open_job(f"{SHOWN}s a LEFT JOIN u b ON {AB};", store).plan
    )


def test_an_order_that_the_planner_has_for_declared_rates_is_the_state_s() -> None:
    """Declared rates change the plan's order, not the query; so does a text by which it has another one."""
    store, before, after = (
        MemoryStore(),
        plan(chain(), type_="TIMESTAMP"),
        plan(chain(), (1000, 900, 5, 1), type_="TIMESTAMP"),
    )
    assert before.queries[0].reordered == () != after.queries[0].reordered
    for planned in (before, after, plan(chain(), (1000, 5, 900, 1), "cascade", "TIMESTAMP")):
        job = LocalJob(planned, store)
        assert job.plan.queries[0].reordered == ()
        assert job.plan.queries[0].fingerprint == before.queries[0].fingerprint
        job.tick({"a": [], "b": [], "c": []})
    linked = UNCONNECTED.format(ac=NEAR_AC, cb=NEAR_CB)
    LocalJob(plan(linked), store := MemoryStore()).tick({"a": [], "b": [], "c": []})
    for written in (linked.replace("a, b, c", "b, c, a"), linked.replace("a, b, c", "c, a, b")):
        assert LocalJob(plan(written), store).plan.queries[0].nodes == plan(linked).queries[0].nodes


def test_queries_that_take_the_same_rows_may_be_written_otherwise(seed: int) -> None:
    """The first makes them for both, whatever the order of each."""
    rng = random.Random(seed)
    link = Link("LEFT JOIN", "a", "b", Condition(-5, 9, 2))
    second = TARGET.replace(" o ", " p ").replace("out/o", "out/p") + "SELECT a.n AS na, b.n AS nb FROM "
    before = f"s a LEFT JOIN u b ON {link.text}"
    after = f"u b RIGHT JOIN s a ON {link.text}"
    first = f"{TARGET}SELECT a.n AS na, b.n AS nb FROM "
    texts = [
        f"{first}{one};\n{second}{two};\n"
        for one, two in ((before, before), (after, before), (before, after), (after, after))
    ]
    _, ticks = ticks_of(rng, COUNT)
    store, text = MemoryStore(), texts[0]
    untouched = open_job(texts[0], MemoryStore())
    for place, given in enumerate(ticks):
        text = rng.choice(texts) if place else text
        job = open_job(text, store)
        assert job.plan.queries[1].taken, text
        assert not job.driver.said, text
        own = {name: given[name] for name in "su"}
        is_last = place == COUNT - 1
        out, wanted = (of.tick(own, end=is_last).rows for of in (job, untouched))
        assert {name: bag(rows) for name, rows in out.items()} == {n: bag(rows) for n, rows in wanted.items()}
    with pytest.raises(StateError):
        open_job(texts[0].replace("+ -5", "+ -4"), store)
