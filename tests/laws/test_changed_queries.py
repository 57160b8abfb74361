"""Queries that come to a job with state, and go from it: those that stay put out what they put out alone, and
one that comes what it would have, but for what rows from before would have come to by themselves.

Rows have numbers, so it can be told which of them were there when a query came.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.support.effort import EFFORT, at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.restore import new_queries

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=1, full=40)
CHUNKS = at_effort(quick=1, full=2)
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT ANTI JOIN")

SOURCES = "".join(
    f"CREATE MAPPING {name} (k INT, t BIGINT, n INT, w INT, WATERMARK FOR t AS t - 4) "
    f"TYPE File OPTIONS ('path' = 'in/{name}', 'format' = 'json');\n"
    for name in "su"
)


def query(rng: random.Random, name: str) -> str:
    """A join whose rows show the numbers of the rows that they are made of; all keep rows equally long."""
    left, right = rng.choice([("a", "b"), ("x", "y")])
    kind = rng.choice(KINDS)
    shown = [f"{left}.n AS ln"] + ([] if "ANTI" in kind else [f"{right}.n AS rn"])
    shown += [f"{left}.w"] if rng.random() < 0.5 else []
    more = f" AND {left}.w <= {right}.w + {rng.choice([0, 9])}"
    return (
        f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = 'out/{name}', 'format' = 'json');\n"
        f"INSERT INTO {name} SELECT {', '.join(shown)} FROM s {left} {kind} u {right}"
        f" ON {left}.k = {right}.k AND {right}.t BETWEEN {left}.t - 10 AND {left}.t + 25{more};\n"
    )


def ticks_of(rng: random.Random, count: int) -> list[dict[str, Any]]:
    ticks, now, number = [], 0, 0
    for _ in range(count):
        now += rng.randrange(12)
        rows: dict[str, Any] = {}
        for name in "su":
            rows[name] = []
            for _ in range(rng.randrange(5)):
                number += 1
                row = {"k": rng.randrange(3), "t": now - rng.randrange(7), "n": number, "w": rng.randrange(4)}
                rows[name].append((row, 1))
        ticks.append(rows)
    return ticks


def open_job(texts: list[str], store: MemoryStore, *, change: bool = False) -> LocalJob:
    plan = watersmeet.plan_job(watersmeet.parse_job(SOURCES + "".join(texts)))
    return LocalJob(plan, store, change_queries=change)


def alone(text: str, ticks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    job = open_job([text], MemoryStore())
    (name,) = [query.name for query in job.plan.queries]
    return [job.tick(rows, end=number == len(ticks) - 1).rows[name] for number, rows in enumerate(ticks)]


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_queries_that_come_and_go(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        ticks = ticks_of(rng, 14)
        texts = {name: query(rng, name) for name in ("first", "second", "third")}
        while " AS rn" in texts["third"] and " AS rn" not in texts["first"]:
            texts["first"] = query(rng, "first")  # what no query shows is not stored for one that comes
        came = {"first": 0, "second": 0, "third": rng.randrange(2, 9)}
        goes = rng.choice(["second", "second", None])
        leaves = rng.randrange(came["third"], 12)
        store, live = MemoryStore(), ["first", "second"]
        job = open_job([texts[name] for name in live], store)
        found: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in texts}
        for place, rows in enumerate(ticks):
            before = list(live)
            if place == came["third"]:
                live = ["third", *live] if rng.random() < 0.3 else [*live, "third"]
            if place == leaves and goes is not None:
                live = [name for name in live if name != goes]
            if live != before:
                with pytest.raises(StateError, match=r"is new|is not in the job"):
                    open_job([texts[name] for name in live], store)
                job = open_job([texts[name] for name in live], store, change=True)
                assert job.driver.said
            elif rng.random() < 0.2:
                job = open_job([texts[name] for name in live], store)
            job.partitions = rng.choice([1, 2, 3])
            output = job.tick(rows, end=place == len(ticks) - 1)
            for name in live:
                found[name][place] = output.rows[name]
            told = [list(result.input_watermarks.values()) for result in output.result.queries.values()]
            assert all(watermarks == told[0] for watermarks in told), f"random-{number}, tick {place}"
        for name, text in texts.items():
            old = ticks[: came[name]]
            there = max([row["n"] for rows in old for side in rows.values() for row, _ in side] + [0])
            for place, want in enumerate(alone(text, ticks)):
                if place not in found[name]:
                    continue
                if name == "third":  # rows of which none came with the query or after it
                    want = [row for row in want if max(row.get(side) or 0 for side in ("ln", "rn")) > there]
                assert bag(found[name][place]) == bag(want), f"random-{number}, tick {place}: {text}"


def longer(name: str, low: int, high: int) -> str:
    return (
        f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = 'out/{name}', 'format' = 'json');\n"
        f"INSERT INTO {name} SELECT a.n AS ln, b.n AS rn FROM s a LEFT JOIN u b"
        f" ON a.k = b.k AND b.t BETWEEN a.t + {low} AND a.t + {high};\n"
    )


@pytest.mark.parametrize("retains", ["most", "least"])
def test_a_query_that_keeps_rows_longer_than_those_before(
    seed: int, retains: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have released does not count for rows that come with it or after it: of these it puts out
    each pair, at the tick at which it does alone, and each left row.

    ``retains``: whose rows are there, those of the one that merges runs or of one that has not taken over yet
    what was merged.
    """
    if retains == "least":
        donors = new_queries.NewQueries.donors
        monkeypatch.setattr(
            new_queries.NewQueries, "donors", lambda own, side: reversed(list(donors(own, side)))
        )
    old_pairs = 0
    for number in range(seed, seed + max(1, CASES // 4)):
        rng = random.Random(number)
        ticks = ticks_of(rng, 12)
        ahead = rng.randrange(40)  # of u: its watermark releases rows of s that are still on time
        for rows in ticks:
            for row, _ in rows["u"]:
                row["t"] += ahead
        came, long = rng.randrange(1, 8), longer("long", -rng.randrange(60), rng.randrange(90))
        store, texts = MemoryStore(), [longer("first", -1, 1), longer("second", -9, 5)]
        job, found, left = open_job(texts, store), Counter[str](), set()
        for place, rows in enumerate(ticks):
            if place == came:
                job = open_job([*texts, long], store, change=True)
            job.partitions = rng.choice([1, 2, 3])
            out = job.tick(rows, end=place == len(ticks) - 1).rows.get("long", [])
            found.update(repr((place, row["ln"], row["rn"])) for row in out)
            left |= {row["ln"] for row in out}
        assert max([0, *found.values()]) <= 1, f"random-{number}: {found}"
        there = max([row["n"] for rows in ticks[:came] for side in rows.values() for row, _ in side] + [0])
        for place, want in enumerate(alone(long, ticks)):
            for row in want:
                is_new = min(row["ln"], row["rn"] or there + 1) > there
                said = f"random-{number}, tick {place}: {row}"
                assert not is_new or row["ln"] in left, said
                if is_new and row["rn"] is not None:
                    assert found[repr((place, row["ln"], row["rn"]))], said
                elif row["rn"] is not None:
                    old_pairs += found[repr((place, row["ln"], row["rn"]))]
    assert old_pairs, "no row from before was met"


def test_runs_without_a_column_of_another_are_merged_for_ever() -> None:
    """What is merged of runs that lack a column of a query that came lacks it, too."""

    def text(name: str, columns: str, high: int) -> str:
        return (
            f"CREATE MAPPING {name} TYPE File OPTIONS ('path' = 'out/{name}', 'format' = 'json');\n"
            f"INSERT INTO {name} SELECT {columns} FROM s a JOIN u b"
            f" ON a.k = b.k AND b.t BETWEEN a.t AND a.t + {high};\n"
        )

    def rows(tick: int) -> dict[str, Any]:
        row = {"t": 5 * tick, "n": tick, "w": tick}
        return {"s": [({**row, "k": 1}, 1)], "u": [({**row, "k": 2}, 1)]}

    first, second = text("first", "a.n", 1_000), text("second", "a.n, a.w", 3)
    store, few = MemoryStore(), merge_policy.FAN_IN
    merge_policy.FAN_IN = 1_000
    job = open_job([first], store)
    for tick in range(8):
        job.tick(rows(tick))
    merge_policy.FAN_IN = few
    job = open_job([first, second], store, change=True)
    assert any("lack a.w" in said for said in job.driver.said)
    for tick in range(8, 20):
        job.tick(rows(tick))
    assert job.state["first"]["a"] == 20


TABLES = "".join(
    f"CREATE TABLE {name} (k INT, g INT, n INT, d INT{more})"
    f" WITH ('connector' = 'file', 'path' = 'in/{name}', 'format' = 'json', {says} = 'd');\n"
    for name, more, says in [
        ("x", "", "'diff.column'"),
        ("y", "", "'diff.column'"),
        ("z", ", PRIMARY KEY (n) NOT ENFORCED", "'op.insert' = '1', 'op.delete' = '-1', 'op.column'"),
    ]
)
CHANGING = (
    "SELECT x.n, y.n AS m FROM x LEFT JOIN y ON x.k = y.k",
    "SELECT x.n, z.g FROM x JOIN y ON x.k = y.k JOIN z ON z.k = y.k",
    "SELECT g, count(*) AS c, min(k) AS least FROM z GROUP BY g",
    pytest.param("SELECT count(*) AS c FROM x", marks=pytest.mark.full),
    pytest.param("SELECT z.n FROM z LEFT ANTI JOIN x ON z.k = x.k", marks=pytest.mark.full),
    pytest.param(
        "SELECT x.n, y.n AS m FROM x LEFT JOIN y ON x.k <=> y.k AND x.g BETWEEN y.g - 1 AND y.g",
        marks=pytest.mark.full,
    ),
    pytest.param("SELECT x.n, y.n AS m FROM x JOIN y ON x.g <= y.n", marks=pytest.mark.full),
)


@pytest.mark.parametrize("select", CHANGING)
def test_changes_of_tables_that_come_with_their_query(seed: int, select: str) -> None:
    """It puts out what it puts out alone."""
    declared = TABLES + "".join(
        f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = 'out/{name}', 'format' = 'json');\n"
        for name in ("first", "changes")
    )
    first = longer("first", -9, 5).split("\n", 1)[1]
    changes = f"INSERT INTO changes {select} EMIT CHANGES;\n"
    for number in range(seed, seed + at_effort(quick=1, full=4)):
        rng = random.Random(number)
        ticks, there = ticks_of(rng, 10), {name: Counter[tuple[int, ...]]() for name in "xyz"}
        came = rng.randrange(1, 6)
        for rows in ticks:
            for name in "xyz":
                rows[name] = []
                for _ in range(rng.randrange(4)):
                    values = tuple(rng.randrange(3) for _ in range(3))
                    diff = -1 if there[name][values] and rng.random() < 0.5 else 1
                    there[name][values] += diff
                    rows[name].append((dict(zip("kgnd", (*values, diff), strict=True)), 1))
        store, before = MemoryStore(), open_job([declared, changes], MemoryStore())
        job = open_job([declared, first], store)
        for place, rows in enumerate(ticks):
            if place == came:
                texts = [declared, changes, first] if rng.random() < 0.5 else [declared, first, changes]
                with pytest.raises(StateError, match='"changes" is new'):
                    open_job(texts, store)
                job = open_job(texts, store, change=True)
            read = [source.name for source in job.plan.sources]
            output = job.tick({name: rows[name] for name in read})
            if place >= came:
                want = before.tick({name: of for name, of in rows.items() if name in "xyz" and name in read})
                (rows_alone,) = want.rows.values()
                said = f"random-{number}, tick {place}"
                assert count_rows_without_tick(output.rows["changes"]) == count_rows_without_tick(
                    rows_alone
                ), said


EVERY = "x.k, x.g, x.n, y.k AS yk, y.g AS yg, y.n AS yn"
HELD = (  # by conditions that leave no row out
    ("SELECT * FROM x", "SELECT * FROM y", "SELECT * FROM z"),
    (f"SELECT {EVERY} FROM x FULL JOIN y ON x.g <=> y.g", "SELECT * FROM z"),
    (f"SELECT {EVERY}, z.k AS zk, z.g AS zg, z.n AS zn FROM x JOIN y ON x.g <=> y.n JOIN z ON z.g <=> y.n",),
)


@pytest.mark.parametrize("select", CHANGING)
def test_changes_of_tables_that_others_keep(seed: int, select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with what they hold, and from then on adds up to what it adds up to alone."""
    seen = Counter[str]()
    for number in range(seed, seed + at_effort(quick=1, full=6)):
        rng = random.Random(number)
        monkeypatch.setattr(merge_policy, "FAN_IN", rng.choice([2, 9, 9]))
        held = rng.choice(HELD)
        names = [f"held{n}" for n in range(len(held))]
        declared = TABLES + "".join(
            f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = 'out/{name}', 'format' = 'json');\n"
            for name in (*names, "changes")
        )
        before = "".join(
            f"INSERT INTO {name} {asked} EMIT CHANGES;\n" for name, asked in zip(names, held, strict=True)
        )
        changes = f"INSERT INTO changes {select} EMIT CHANGES;\n"
        there = {name: Counter[tuple[int | None, ...]]() for name in "xyz"}
        store, alone = MemoryStore(), open_job([declared, changes], MemoryStore())
        job, came = open_job([declared, before], store), rng.randrange(2, 7)
        wanted, found = Counter[str](), Counter[str]()
        for place in range(9):
            rows: dict[str, Any] = {}
            for name in "xyz":
                rows[name] = []
                for _ in range(rng.randrange(9)):
                    k, g, n = (rng.choice([None, 0, 1, 2]) for _ in range(3))
                    values, diff = (k, g, rng.randrange(4) if name == "z" else n), 1
                    if there[name] and rng.random() < 0.4:
                        values, diff = rng.choice(sorted(there[name], key=repr)), -1
                    there[name][values] += diff
                    there[name] += Counter()  # without those of which there is none
                    rows[name].append((dict(zip("kgnd", (*values, diff), strict=True)), 1))
            if place == came:
                texts = [declared, changes, before] if rng.random() < 0.5 else [declared, before, changes]
                job = open_job(texts, store, change=True)
                seen.update(text.partition(" with ")[2] for text in job.driver.said)
                if rng.random() < 0.5:
                    job.partitions = 3
                    job = open_job(texts, store, change=True)  # whoever was killed meanwhile
            elif rng.random() < 0.2:
                job = open_job(texts if place > came else [declared, before], store)
            job.partitions = rng.choice([1, 2, 3])
            read = {source.name for source in alone.plan.sources}
            for row in alone.tick({name: of for name, of in rows.items() if name in read}).rows["changes"]:
                wanted.update({without_tick(row): row["_diff"]})
            output = job.tick(rows)
            for row in output.rows.get("changes", []):
                found.update({without_tick(row): row["_diff"]})
            if place >= came:
                said = f"random-{number}, tick {place}, {held}"
                assert +found == +wanted, said
                assert -found == -wanted == Counter(), said
    assert seen
    if EFFORT == "full":  # few cases do not reach it
        assert any(text.startswith("all ") for text in seen), seen


def without_tick(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in row.items() if name not in ("_tick", "_diff")})


def count_rows_without_tick(rows: list[dict[str, Any]]) -> Counter[str]:
    return bag([{name: value for name, value in row.items() if name != "_tick"} for row in rows])


def test_query_changes_are_reported_or_refused_with_a_reason() -> None:
    rng = random.Random(1)
    first = query(rng, "first")
    store = MemoryStore()
    job = open_job([first], store)
    rows = [({"k": 1, "t": number, "n": number, "w": 1}, 1) for number in range(8)]
    job.tick({"s": rows, "u": rows})
    second = first.replace("first", "second")
    with pytest.raises(StateError, match='other queries: it stores "first", but this job has "second"'):
        open_job([second], store)
    came = open_job([first, second], store, change=True)
    assert [said for said in came.driver.said if "with 8 retained rows of" in said], came.driver.said
    came.tick({"s": rows})
    with pytest.raises(StateError, match='"second" is not in the job'):
        open_job([first], store)
    with pytest.raises(StateError, match='in "first"'):
        open_job([first.replace("+ 25", "+ 26"), second], store)
    changed = open_job([first.replace("+ 25", "+ 26"), second], store, change=True)
    changed.tick({"s": rows, "u": rows})
    changes = (
        first.replace("INSERT INTO first SELECT", "INSERT INTO third SELECT")
        .replace("MAPPING first", "MAPPING third")
        .replace("out/first", "out/third")
        .replace(";\nINSERT", ";\nINSERT")
        .rstrip()
        .rstrip(";")
        + " EMIT CHANGES;\n"
    )
    with pytest.raises(StateError, match="can be retracted"):
        open_job([first.replace("+ 25", "+ 26"), second, changes], store, change=True)


def test_the_files_of_a_query_that_went_go() -> None:
    rng = random.Random(2)
    first = query(rng, "first")
    other = first.replace("first", "second").replace(".k =", ".w =").replace(".k AND", ".w AND")
    store = MemoryStore()
    job = open_job([first, other], store)
    rows = [({"k": 1, "t": number, "n": number, "w": 1}, 1) for number in range(8)]
    job.tick({"s": rows, "u": rows})
    both = set(store.names("runs"))
    job = open_job([first], store, change=True)
    assert set(store.names("runs")) == both
    job.tick({})
    assert both <= set(store.names("runs"))  # the manifest before it is whole
    job.tick({})
    assert 0 < len(store.names("runs")) < len(both)


def test_deletes_that_others_remember_are_remembered() -> None:
    declared = (
        "CREATE TABLE z (k INT PRIMARY KEY NOT ENFORCED, n INT, s INT, d INT) WITH ('connector' = 'file',"
        " 'path' = 'in/z', 'format' = 'json', 'op.column' = 'd', 'op.insert' = '1', 'op.delete' = '-1',"
        " 'sequence.by' = 's');\n"
        "CREATE TABLE first WITH ('connector' = 'file', 'path' = 'out/first', 'format' = 'json');\n"
        "CREATE TABLE third WITH ('connector' = 'file', 'path' = 'out/third', 'format' = 'json');\n"
        "INSERT INTO first SELECT k, n, s FROM z EMIT CHANGES;\n"
    )
    third = "INSERT INTO third SELECT n, count(*) AS c FROM z GROUP BY n EMIT CHANGES;\n"

    def row(k: int, n: int, s: int, d: int = 1) -> tuple[dict[str, int], int]:
        return {"k": k, "n": n, "s": s, "d": d}, 1

    store = MemoryStore()
    job = open_job_from_texts([declared], store)
    job.tick({"z": [row(1, 10, 5), row(2, 20, 5), row(3, 30, 5)]})
    job.tick({"z": [row(1, 0, 7, -1), row(2, 21, 6)]})
    job = open_job_from_texts([declared, third], store, change=True)
    assert job.driver.said == ('query "third" starts with all 2 rows of z.z',)
    # stale by what was deleted, and by what is there, in the tick in which the query has what is there
    out = job.tick({"z": [row(1, 11, 6), row(2, 22, 5)]})
    assert count_row_values(out.rows["third"]) == Counter({(21, 1, 1): 1, (30, 1, 1): 1})
    out = job.tick({"z": [row(1, 12, 6), row(3, 31, 6), row(2, 0, 9, -1)]})
    assert count_row_values(out.rows["third"]) == Counter({(21, 1, -1): 1, (30, 1, -1): 1, (31, 1, 1): 1})
    assert out.rows["first"], "both go on"
    accounts = {name: query.account for name, query in out.result.queries.items()}
    assert accounts["third"]["z.z"]["stale"] == 3


@pytest.mark.parametrize(
    "third",
    [
        pytest.param("SELECT k, CASE WHEN n > 15 THEN 'much' ELSE 'little' END AS how FROM z", id="computed"),
        pytest.param("SELECT k, n + 1 AS more FROM z WHERE n * 2 > 30", id="filtered"),
        pytest.param(
            "SELECT CASE WHEN n > 15 THEN 1 ELSE 0 END AS g, count(*) AS c FROM z"
            " GROUP BY CASE WHEN n > 15 THEN 1 ELSE 0 END",
            id="grouped",
        ),
        pytest.param("SELECT l.k, upper(r.t) AS u FROM z l LEFT JOIN z r ON l.n = r.n + 1", id="joined"),
    ],
)
def test_deletes_are_remembered_by_queries_of_other_columns(third: str) -> None:
    """A delete has no values: of which columns a query that comes is made does not matter to it."""
    declared = (
        "CREATE TABLE z (k INT PRIMARY KEY NOT ENFORCED, n INT, t STRING, s INT, d INT)"
        " WITH ('connector' = 'file', 'path' = 'in/z', 'format' = 'json', 'op.column' = 'd',"
        " 'op.insert' = '1', 'op.delete' = '-1', 'sequence.by' = 's');\n"
        "CREATE TABLE first WITH ('connector' = 'file', 'path' = 'out/first', 'format' = 'json');\n"
        "CREATE TABLE third WITH ('connector' = 'file', 'path' = 'out/third', 'format' = 'json');\n"
    )
    first = "INSERT INTO first SELECT k, n, t FROM z EMIT CHANGES;\n"
    third = f"INSERT INTO third {third} EMIT CHANGES;\n"

    def tick(job: LocalJob, *rows: tuple[int, int, str, int, int]) -> Counter[str]:
        given = [(dict(zip("kntsd", row, strict=True)), 1) for row in rows]
        found = Counter[str]()
        for row in job.tick({"z": given}).rows.get("third", []):
            found.update({without_tick(row): row["_diff"]})
        return found

    store = MemoryStore()
    job, alone = (
        open_job_from_texts([declared, first], store),
        open_job_from_texts([declared, third], MemoryStore()),
    )
    found, wanted = Counter[str](), Counter[str]()
    before: list[list[tuple[int, int, str, int, int]]] = [
        [(k, 10 + k, "t", 5, 1) for k in range(1, 9)],
        [(1, 0, "", 7, -1), (2, 21, "u", 6, 1), (3, 0, "", 8, -1)],
        [(3, 33, "back", 9, 1), (4, 0, "", 7, -1)],
    ]
    for rows in before:
        tick(job, *rows)
        wanted.update(tick(alone, *rows))
    open_job_from_texts([declared, first, third], store, change=True)  # killed before its first tick
    job = open_job_from_texts([declared, first, third], store, change=True)
    after: list[list[tuple[int, int, str, int, int]]] = [
        [(1, 11, "stale", 6, 1), (2, 1, "stale", 5, 1), (4, 14, "new", 8, 1)],
        [(1, 12, "stale", 6, 1), (3, 34, "stale", 8, 1), (5, 0, "", 6, -1)],
        [(1, 13, "new", 7, 1), (5, 15, "stale", 5, 1)],
    ]
    for rows in after:
        found.update(tick(job, *rows))
        wanted.update(tick(alone, *rows))
        assert +found == +wanted
        job = open_job_from_texts([declared, first, third], store, change=True)


def test_deletes_that_others_remember_are_forgotten_at_their_time() -> None:
    """Some were forgotten already of a run of which others are remembered."""
    declared = (
        "CREATE TABLE z (k INT PRIMARY KEY NOT ENFORCED, n INT, s INT, d INT) WITH ('connector' = 'file',"
        " 'path' = 'in/z', 'format' = 'json', 'op.column' = 'd', 'op.insert' = '1', 'op.delete' = '-1',"
        " 'sequence.by' = 's', 'tombstones' = '100 s');\n"
        "CREATE TABLE first WITH ('connector' = 'file', 'path' = 'out/first', 'format' = 'json');\n"
        "CREATE TABLE third WITH ('connector' = 'file', 'path' = 'out/third', 'format' = 'json');\n"
        "INSERT INTO first SELECT k, n, s FROM z EMIT CHANGES;\n"
    )
    third = "INSERT INTO third SELECT k, n, s FROM z WHERE n > 0 EMIT CHANGES;\n"
    store = MemoryStore()
    job = open_job_from_texts([declared], store)

    def tick(at: int, *rows: tuple[int, int, int, int]) -> list[Counter[tuple[Any, ...]]]:
        given = [(dict(zip("knsd", row, strict=True)), 1) for row in rows]
        return [
            count_row_values(rows) for rows in job.tick({"z": given}, clock_us=at * 1_000_000).rows.values()
        ]

    tick(0, *((k, 10, 5, 1) for k in range(1, 9)))
    tick(10, *((k, 0, 7, -1) for k in range(1, 5)))
    tick(60, *((k, 0, 7, -1) for k in range(5, 8)))
    tick(70)
    tick(111)  # the deletes of 10 are forgotten
    job = open_job_from_texts([declared, third], store, change=True)
    assert tick(112)[1] == Counter({(8, 10, 5, 1): 1})
    first, third_rows = tick(114, (1, 99, 6, 1), (5, 99, 6, 1))
    assert first == third_rows == Counter({(1, 99, 6, 1): 1})
    tick(165)
    first, third_rows = tick(166, (6, 99, 6, 1))
    assert first == third_rows == Counter({(6, 99, 6, 1): 1})


def test_a_query_that_changed_may_have_more_nodes() -> None:
    sinks = "CREATE TABLE first WITH ('connector' = 'file', 'path' = 'out/first', 'format' = 'json');\n"
    two = "INSERT INTO first SELECT a.n FROM s a JOIN u b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 5"
    three = f"{two} JOIN u c ON c.k = b.k AND c.t BETWEEN b.t AND b.t + 5"
    store = MemoryStore()
    open_job([sinks, two, ";"], store).tick({"s": [({"k": 1, "t": 1, "n": 1, "w": 1}, 1)]})
    job = open_job([sinks, three, ";"], store, change=True)
    assert job.driver.said
    row = {"k": 1, "t": 9, "n": 7, "w": 1}
    assert job.tick({"s": [(row, 1)], "u": [(row, 1)]}).rows["first"] == [{"n": 7}]


def test_what_is_left_out_of_a_table_cannot_be_had() -> None:
    """By a key that may be NULL, a condition or a column."""
    declared = TABLES + "".join(
        f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = 'out/{name}', 'format' = 'json');\n"
        for name in ("first", "third")
    )
    kept = {
        "SELECT x.k, x.n, y.g FROM x JOIN y ON x.k = y.k": '"first" stores no rows with NULL',
        "SELECT v.k, v.n FROM (SELECT * FROM x WHERE g > 1) v": '"first" stores only rows that meet',
        "SELECT v.k FROM (SELECT k FROM x) v FULL JOIN y ON v.k <=> y.k": "lack g, n",
    }
    for select, why in kept.items():
        store, first = MemoryStore(), f"INSERT INTO first {select} EMIT CHANGES;\n"
        job = open_job_from_texts([declared, first], store)
        job.tick({"x": [({"k": 1, "g": 2, "n": 3, "d": 1}, 1)]})
        third = "INSERT INTO third SELECT k, n FROM x EMIT CHANGES;\n"
        with pytest.raises(StateError, match=why):
            open_job_from_texts([declared, first, third], store, change=True)
        assert open_job_from_texts([declared, first], store).tick({}).rows["first"] == []


def open_job_from_texts(texts: list[str], store: MemoryStore, *, change: bool = False) -> LocalJob:
    plan = watersmeet.plan_job(watersmeet.parse_job("".join(texts)))
    return LocalJob(plan, store, change_queries=change)


def count_row_values(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(value for name, value in row.items() if name != "_tick") for row in rows)
