"""Indexes: who looks rows up there, what that costs, and what becomes of it when an index goes. That results
are right whatever comes and goes, `test_changing_jobs` says."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import watersmeet
from tests.laws.test_kept_by_others import list_shared_inputs
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick

pytestmark = pytest.mark.usefixtures("merge_often")

TABLES = """SET output_mode = changelog;
CREATE TABLE c (id BIGINT, name STRING, d INT)
    WITH ('connector' = 'file', 'path' = 'c', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE o (number BIGINT PRIMARY KEY NOT ENFORCED, customer BIGINT, day STRING)
    WITH ('connector' = 'file', 'path' = 'o', 'format' = 'json');
CREATE TABLE l (number BIGINT, item STRING, d INT)
    WITH ('connector' = 'file', 'path' = 'l', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE names WITH ('connector' = 'file', 'path' = 'names', 'format' = 'json');
CREATE TABLE days WITH ('connector' = 'file', 'path' = 'days', 'format' = 'json');
CREATE TABLE pads WITH ('connector' = 'file', 'path' = 'pads', 'format' = 'json');
"""
INDEXES = {
    "c_by": "CREATE INDEX c_by ON c (id);\n",
    "o_by": "CREATE INDEX o_by ON o (number), (customer);\n",
    "l_by": "CREATE INDEX l_by ON l (number);\n",
}
NAMES = (
    "INSERT INTO names SELECT c.name, l.item FROM c"
    " JOIN o ON o.customer = c.id JOIN l ON l.number = o.number;\n"
)
DAYS = "INSERT INTO days SELECT x.day, y.item FROM o x JOIN l y ON y.number = x.number;\n"
PADS = "INSERT INTO pads SELECT c.name, o.day FROM c LEFT JOIN o ON o.customer = c.id;\n"


def open_job(store: MemoryStore, *statements: str, partitions: int = 1) -> LocalJob:
    plan = watersmeet.plan_job(watersmeet.parse_job(TABLES + "".join(statements)))
    return LocalJob(plan, store, partitions=partitions, change_queries=True)


def changes(rng: random.Random, many: int = 4) -> dict[str, Any]:
    return {
        "c": [
            ({"id": rng.choice([1, 2, None]), "name": rng.choice("ab"), "d": rng.choice([1, 1, 2])}, 1)
            for _ in range(many)
        ],
        "o": [
            ({"number": rng.randrange(5), "customer": rng.choice([1, 2, None]), "day": "m"}, 1)
            for _ in range(many)
        ],
        "l": [
            ({"number": rng.randrange(5), "item": rng.choice("xy"), "d": rng.choice([1, 1, -1])}, 1)
            for _ in range(many)
        ],
    }


def add_changes(total: Counter[str], rows: list[dict[str, Any]]) -> None:
    for row in rows:
        total[repr([value for name, value in row.items() if name not in ("_diff", "_tick")])] += row["_diff"]


def result(statement: str, history: list[dict[str, Any]]) -> Counter[str]:
    """What a query adds up to alone."""
    job, total = open_job(MemoryStore(), statement), Counter[str]()
    (name,) = job.state
    for rows in history:
        add_changes(
            total,
            job.tick({source: rows[source] for source in (s.name for s in job.plan.sources)}).rows[name],
        )
    return +total


class Killed(Exception):
    pass


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.full), 3])
def test_a_query_that_comes_keeps_nothing_of_tables_that_are_indexed(partitions: int) -> None:
    rng, store, history = random.Random(7), MemoryStore(), list[dict[str, Any]]()
    job = open_job(store, *INDEXES.values(), partitions=partitions)
    for _ in range(4):
        history.append(changes(rng))
        told = job.tick(history[-1]).result
        assert not any(of_query.rows_out for of_query in told.queries.values())
    kept = sum(of_query.state_bytes for of_query in told.queries.values())

    def raise_killed(*_: Any) -> None:
        raise Killed

    total = Counter[str]()
    history.append(changes(rng))
    job = open_job(store, *INDEXES.values(), NAMES, DAYS, partitions=partitions)
    with patch.object(ConcludedTick, "commit", raise_killed), pytest.raises(Killed):
        job.tick(history[-1])
    job = open_job(store, *INDEXES.values(), NAMES, DAYS, partitions=4 - partitions)
    assert [said for said in job.driver.said if "looks them up" in said]
    tick = job.tick(history[-1])
    add_changes(total, tick.rows["names"])
    assert +total == result(NAMES, history)
    assert [tick.result.queries[name].state_bytes for name in ("names", "days")] == [0, 0]
    after = sum(of_query.state_bytes for of_query in tick.result.queries.values())
    assert 0 < after < 1.5 * kept  # the tick's own rows are in it
    assert {by for _, by in list_shared_inputs(job.plan)} == {"index c_by", "index o_by", "index l_by"}
    for _ in range(3):
        job = open_job(store, *INDEXES.values(), NAMES, DAYS, partitions=partitions)
        assert not job.driver.said
        history.append(changes(rng))
        add_changes(total, job.tick(history[-1]).rows["names"])
    assert +total == result(NAMES, history)


@pytest.mark.parametrize(
    ("held_otherwise", "goes"),
    [
        pytest.param(False, "c_by", marks=pytest.mark.full),
        pytest.param(False, "l_by", marks=pytest.mark.full),
        (False, "o_by"),
        pytest.param(True, "c_by", marks=pytest.mark.full),
        (True, "l_by"),
        pytest.param(True, "o_by", marks=pytest.mark.full),
    ],
)
def test_whose_index_goes_keeps_the_rows_from_then_on(goes: str, held_otherwise: bool) -> None:
    """Held by the key by which it looks them up, whatever the index had first."""
    indexes = INDEXES
    if held_otherwise:
        indexes = {
            "c_by": "CREATE INDEX c_by ON c (name), (id);\n",
            "o_by": "CREATE INDEX o_by ON o (customer);\n",
            "l_by": "CREATE INDEX l_by ON l (item);\n",
        }
    rng, store, history = random.Random(11), MemoryStore(), list[dict[str, Any]]()
    job, total = open_job(store, *indexes.values(), NAMES, DAYS), Counter[str]()
    assert len(list_shared_inputs(job.plan)) == 5
    for tick in range(6):
        if tick >= 3:
            left = [text for name, text in indexes.items() if name != goes]
            job = open_job(store, *left, NAMES, DAYS, partitions=tick % 3 + 1)
            assert not any("read" in said for said in job.driver.said)
        history.append(changes(rng))
        told = job.tick(history[-1])
        add_changes(total, told.rows["names"])
    assert +total == result(NAMES, history)
    assert told.result.queries["names"].state_bytes > 0


def test_a_query_that_is_no_delta_join_is_given_the_rows() -> None:
    rng, store = random.Random(3), MemoryStore()
    job, history = open_job(store, *INDEXES.values()), [changes(rng) for _ in range(3)]
    for rows in history:
        job.tick(rows)
    job, total = open_job(store, *INDEXES.values(), PADS), Counter[str]()
    history.append(changes(rng))
    add_changes(total, job.tick(history[-1]).rows["pads"])
    assert +total == result(PADS, history)
    assert list_shared_inputs(job.plan) == []


@pytest.mark.parametrize(
    "index",
    [
        pytest.param("", marks=pytest.mark.full),
        pytest.param("CREATE INDEX i ON o (number);", marks=pytest.mark.full),
        "CREATE INDEX i ON twice (n), (m);",
    ],
)
def test_a_column_that_a_view_has_twice(index: str) -> None:
    view = "CREATE VIEW twice AS SELECT number AS n, number AS m, day FROM o;\n"
    asked = NAMES.replace("c.name, l.item", "t.day, l.item").replace(
        "o ON o.customer = c.id JOIN l ON l.number = o.number",
        "twice t ON t.n = c.id JOIN l ON l.number = t.m",
    )
    rng, total, history = random.Random(2), Counter[str](), list[dict[str, Any]]()
    job = open_job(MemoryStore(), view, index, DAYS, asked)
    for _ in range(4):
        history.append(changes(rng))
        add_changes(total, job.tick(history[-1]).rows["names"])
    assert +total == result(view + asked, history)


ALONE = (
    NAMES.replace(";", " WHERE c.name = 'a' AND l.item <> 'x';"),
    PADS.replace(";", " AND o.day = 'm' AND c.name = 'b';"),
    pytest.param(PADS.replace("c.id", "c.id + 1"), marks=pytest.mark.full),
    DAYS.replace("x.number;", "CAST(x.number AS INT) WHERE x.customer > 1;"),
    "INSERT INTO days SELECT upper(name), count(*) FROM c WHERE id = 1 OR id IS NULL GROUP BY upper(name);\n",
)


@pytest.mark.parametrize("statement", ALONE)
@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.full), 2])
def test_new_query_applies_single_table_conditions_to_existing_rows(statement: str, partitions: int) -> None:
    rng, store = random.Random(9), MemoryStore()
    job, history = open_job(store, *INDEXES.values(), partitions=partitions), [changes(rng) for _ in range(3)]
    for rows in history:
        job.tick(rows)
    job, total = open_job(store, *INDEXES.values(), statement, partitions=partitions), Counter[str]()
    for _ in range(2):
        history.append(changes(rng))
        (name,) = (query.name for query in job.plan.queries if not query.is_index)
        add_changes(total, job.tick(history[-1]).rows[name])
    assert +total == result(statement, history)
    assert +total


def test_a_query_that_comes_with_another_key_keeps_the_rows_itself() -> None:
    """Those that are stored are not found by it."""
    by_day = "INSERT INTO days SELECT x.number, c.id FROM o x JOIN c ON c.name = x.day;\n"
    rng, store = random.Random(4), MemoryStore()
    job, history = open_job(store, *INDEXES.values()), [changes(rng) for _ in range(2)]
    for rows in history:
        rows["c"] += [({"id": 7, "name": "m", "d": 1}, 1)]
        job.tick(rows)
    job, total = open_job(store, *INDEXES.values(), by_day), Counter[str]()
    assert list_shared_inputs(job.plan) == []
    history.append(changes(rng))
    add_changes(total, job.tick(history[-1]).rows["days"])
    assert +total == result(by_day, history)
    assert +total


def test_column_missing_from_stored_rows_is_refused_to_new_queries() -> None:
    """Changes that did not look at it left the stored value as it was."""
    asked = "INSERT INTO days SELECT number, {0} FROM o;\n"
    store = MemoryStore()

    def build_order_change(day: str) -> dict[str, Any]:
        return {"o": [({"number": 1, "customer": 2, "day": day}, 1)]}

    open_job(store, asked.format("day")).tick(build_order_change("m"))
    narrow = asked.format("customer").replace("customer FROM", "1 AS one FROM")
    open_job(store, narrow).tick(build_order_change("t"))
    with pytest.raises(StateError, match=r"lack .*day"):
        open_job(store, narrow, "INSERT INTO pads SELECT day, number FROM o;\n")


def test_columns_that_an_index_does_not_have() -> None:
    """Who needs them cannot come, if nobody else keeps them; who began with the index shares it."""
    narrow = INDEXES["o_by"].replace(";", " INCLUDE (number);")
    rng, store = random.Random(5), MemoryStore()
    job = open_job(store, narrow, INDEXES["l_by"])
    assert job.plan.queries[0].root.sides[0].kept == ("number", "customer")
    job.tick(changes(rng) | {"c": []})
    with pytest.raises(StateError, match=r"lack .*day"):
        open_job(store, narrow, INDEXES["l_by"], DAYS)
    together = open_job(MemoryStore(), narrow.replace(", (customer)", ""), INDEXES["l_by"], DAYS)
    assert {own for own, _ in list_shared_inputs(together.plan)} == {"days/x", "days/y"}


@pytest.mark.parametrize(
    ("statement", "uses"),
    [
        ("CREATE INDEX i ON o (number) WHERE customer > 1;", False),
        ("CREATE INDEX i ON o (customer);", True),
        ("CREATE INDEX i ON o (customer), (number);", True),
        ("CREATE INDEX i ON o (number), (customer), (day);", True),
    ],
)
def test_which_queries_go_by_an_index(statement: str, uses: bool) -> None:
    plan = open_job(MemoryStore(), statement, DAYS).plan
    assert [own for own, by in list_shared_inputs(plan) if by == "index i"] == (["days/x"] if uses else [])
    text = watersmeet.explain(plan)
    assert text.startswith("Index i\n")
    assert ("o: for days's x, too" in text) == uses
