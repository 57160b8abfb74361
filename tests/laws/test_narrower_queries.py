"""A query that is changed so that it accepts less goes on with its state: pairs that are complete before the
change are put out by the old condition, those that are complete after it by the new one, and a row of a side
that is padded is padded once, if it had neither.

The oracle knows in which tick each row came, and nothing of state: a pair is complete in the tick of its
later row.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=3, full=20)
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
OF_LEFT = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
SOURCES = "".join(
    f"CREATE MAPPING {name} (k INT, t BIGINT, n INT, w INT, WATERMARK FOR t AS t - 6) "
    f"TYPE File OPTIONS ('path' = 'in/{name}', 'format' = 'json');\n"
    for name in "suv"
)
END = 10**9
Row = dict[str, Any]
Found = tuple[Row | None, ...]


class Condition:
    """Of one join: how far the right time may be from the left one, by how much their weights may differ
    (``more``), and by how much the left one may be the greater (``over``). ``added``: which of these two came
    by a change, and are tested on pairs."""

    def __init__(
        self,
        low: int,
        high: int,
        more: int | None,
        over: int | None = None,
        added: frozenset[str] = frozenset(),
    ) -> None:
        self.low, self.high, self.more, self.over, self.added = low, high, more, over, added

    def text(self, left: str, right: str) -> str:
        texts = {
            "over": None if self.over is None else f"{left}.w <= {right}.w + {self.over}",
            "more": None if self.more is None else f"abs({left}.w - {right}.w) <= {self.more}",
        }
        more = "".join(
            f" AND ({text}) IS TRUE" if name in self.added else f" AND {text}"
            for name, text in texts.items()
            if text is not None
        )
        between = f"{right}.t BETWEEN {left}.t + {self.low} AND {left}.t + {self.high}"
        return f"{left}.k = {right}.k AND {between}{more}"

    def holds(self, left: Row, right: Row) -> bool:
        near = self.low <= right["t"] - left["t"] <= self.high
        return left["k"] == right["k"] and near and self._weighs(left, right)

    def _weighs(self, left: Row, right: Row) -> bool:
        difference = left["w"] - right["w"]
        near = self.more is None or abs(difference) <= self.more
        return near and (self.over is None or difference <= self.over)

    def narrower(self, rng: random.Random) -> Condition:
        low, high = self.low + rng.randrange(8), self.high - rng.randrange(8)
        if low > high:
            low, high = self.low, self.high
        more = rng.choice([self.more, self.more if self.more is not None else rng.randrange(3)])
        over = rng.choice(
            [self.over, rng.randrange(2) if self.over is None else self.over - rng.randrange(2)]
        )
        added = {"more"} if self.more is None else set()
        added |= {"over"} if self.over is None else set()
        return Condition(low, high, more, over, frozenset(added))


def text_of(kinds: list[str], conditions: list[Condition]) -> str:
    names = "abc"[: len(kinds) + 1]
    shown = names[:1] if kinds[0] in OF_LEFT else names
    text = "CREATE MAPPING o TYPE File OPTIONS ('path' = 'out/o', 'format' = 'json');\nINSERT INTO o SELECT "
    text += ", ".join(f"{name}.n AS n{name}, {name}.w AS w{name}" for name in shown) + " FROM s a"
    for kind, condition, source, place in zip(kinds, conditions, "uv", (1, 2), strict=False):
        text += f" {kind} {source} {names[place]} ON {condition.text(names[place - 1], names[place])}"
    return text + ";\n"


def build_unchanged_query(kind: str, condition: Condition) -> str:
    """Another query, that does not change, and keeps rows as the first one did."""
    return (
        "CREATE MAPPING p TYPE File OPTIONS ('path' = 'out/p', 'format' = 'json');\nINSERT INTO p"
        f" SELECT a.n, a.w, b.n AS m, b.w AS v FROM s a {kind} u b ON {condition.text('a', 'b')}"
        " AND a.w + b.w < 99;\n"
    )


def open_job(text: str, store: MemoryStore, *, change: bool = False) -> LocalJob:
    return LocalJob(watersmeet.plan_job(watersmeet.parse_job(SOURCES + text)), store, change_queries=change)


def compute_expected_join(
    lefts: list[Found], rights: list[Row], kind: str, asked: tuple[Condition, Condition, int], width: int = 1
) -> list[Found]:
    """By brute force. ``asked``: the old condition, the new one, and the tick with which that came. The left
    row of a pair is the last of ``lefts``; ``width``: so many rows each of these has."""
    old, new, came = asked
    pairs: list[Found] = []
    matched_left, matched_right = set[int](), set[int]()
    for number, left in enumerate(lefts):
        for right in rights:
            last = left[-1]
            if last is None:
                continue
            tick = max(row["tick"] for row in (*left, right) if row is not None)
            if (old if tick < came else new).holds(last, right):
                pairs.append((*left, right))
                matched_left.add(number)
                matched_right.add(right["n"])
    if kind in OF_LEFT:
        wanted = "SEMI" in kind
        return [left for number, left in enumerate(lefts) if (number in matched_left) == wanted]
    if kind in ("LEFT JOIN", "FULL JOIN"):
        pairs += [(*left, None) for number, left in enumerate(lefts) if number not in matched_left]
    if kind in ("RIGHT JOIN", "FULL JOIN"):
        pairs += [(*[None] * width, right) for right in rights if right["n"] not in matched_right]
    return pairs


def numbers(found: list[Found]) -> Counter[tuple[int | None, ...]]:
    return Counter(tuple(None if row is None else row["n"] for row in rows) for rows in found)


class KilledError(Exception):
    """The process ended."""


class Killing(MemoryStore):
    """A store whose process ends instead of committing, once when asked."""

    kill = False

    def create(self, name: str, data: Any) -> bool:
        if self.kill and name.startswith("manifests/"):
            self.kill = False
            raise KilledError
        return super().create(name, data)


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize(
    ("was", "added"),
    [
        ("abs(b.w - c.w) <= 2", "a.w = b.w"),
        ("b.w <= c.w + 2", "b.w >= c.w - 3"),
        ("b.w <= c.w", "a.w = c.w + 1"),
        ("b.w <= c.w", "a.t BETWEEN c.t - 20 AND c.t + 20"),
        ("b.x <= c.x + 0.5D", "a.x <= c.x + 1.5D"),
    ],
)
def test_a_further_lookup_restarts_the_query_and_the_error_says_how_it_would_not(
    was: str, added: str, keys: bool
) -> None:
    """Rows are not stored by it. Tested on pairs it finds none of them, and the query keeps its rows."""
    text = text_of(["JOIN", "JOIN"], [Condition(-12, 8, None), Condition(0, 9, None)])
    text = text.replace(" FROM s a", ", a.x, b.x AS xb, a.t FROM s a").removesuffix(";\n")
    text = text if keys else re.sub(r"\w\.k = \w\.k AND ", "", text)
    first, further, tested = (
        watersmeet.plan_job(
            watersmeet.parse_job(
                f"{SOURCES.replace('w INT', 'w INT, x DOUBLE')}{text} AND {' AND '.join(conditions)};"
            )
        )
        for conditions in ([was], [was, added], [was, f"({added}) IS TRUE"])
    )
    store = MemoryStore()
    rows = [({"k": 1, "t": 1, "n": 1, "w": 1, "x": 1.0}, 1)]
    LocalJob(first, store).tick({"s": rows, "u": rows, "v": []})
    with pytest.raises(StateError) as refused:
        LocalJob(further, store)
    why = f"rows are not stored by {added}; written as ({added}) IS TRUE it is tested on pairs"
    assert f"starts without its stored rows; {why}" in str(refused.value.hint)
    assert any(why in said for said in LocalJob(further, store, change_queries=True).driver.said)
    with pytest.raises(StateError) as refused:
        LocalJob(tested, store)
    assert "keeps its rows" in str(refused.value.hint)
    LocalJob(tested, store, change_queries=True).tick({name: [] for name in "suv"})
    with pytest.raises(StateError) as refused:
        LocalJob(further, store)
    assert f"written as ({added}) IS TRUE" in str(refused.value.hint)
    found = LocalJob(tested, store).tick({"s": [], "u": [], "v": rows}, end=True).rows["o"]
    assert len(found) == (added != "a.w = c.w + 1")


def test_a_narrower_query_goes_on_with_its_state(seed: int) -> None:
    seen = Counter[str]()
    for number in range(seed, seed + CASES):
        rng = random.Random(number)
        kinds = [rng.choice(KINDS) for _ in range(rng.choice([1, 1, 2]))]
        if len(kinds) == 1 and rng.random() < 0.4:
            kinds = [rng.choice(OF_LEFT)]
        if len(kinds) == 2 and rng.random() < 0.5:
            kinds[0] = "JOIN"
        low = [rng.choice([-12, -5, 0]) for _ in kinds]
        old = [
            Condition(
                at,
                at + rng.choice([6, 20]),
                2 if kinds[0] in OF_LEFT else rng.choice([None, None, 2]),
                rng.choice([None, None, 1]),
            )
            for at in low
        ]
        # the tick in which a padded row reaches the second join is the engine's matter: only where there is
        # none may that condition change
        may_change = [True, kinds[0] == "JOIN"]
        new = [each.narrower(rng) if may_change[place] else each for place, each in enumerate(old)]
        count, came = 14, rng.randrange(2, 11)
        rows, ticks = ticks_of(rng, count)
        texts = [text_of(kinds, old), text_of(kinds, new)]
        beside = build_unchanged_query(rng.choice(KINDS), old[0])
        if has_other := rng.random() < 0.5:
            texts = [text + beside for text in texts]
        store, said = Killing(), f"random-{number}: {texts[0]} then {texts[1]}at tick {came}"
        job, found = open_job(texts[0], store), Counter[tuple[int | None, ...]]()
        seen["shared"] += any(side.sharers for query in job.plan.queries for side in query.sides)
        others, alone = Counter[str](), Counter[str]()
        other = open_job(beside, MemoryStore())
        for place, given in enumerate(ticks):
            is_last = place == count - 1
            of_tick = {source.name: given[source.name] for source in job.plan.sources}
            if place == came and texts[0] != texts[1]:
                with pytest.raises(StateError, match=r"in \"o\" the join of .* ON") as refused:
                    open_job(texts[1], store)
                assert "keeps its rows" in str(refused.value.hint), said
                job = open_job(texts[1], store, change=True)
                assert any("keeps its rows" in told for told in job.driver.said), said
                if rng.random() < 0.5:
                    store.kill = True
                    with pytest.raises(KilledError):
                        job.tick(of_tick)
                    job = open_job(texts[1], store, change=True)
                    seen["killed"] += 1
            elif rng.random() < 0.2:
                job = open_job(texts[place >= came], store)
            job.partitions = rng.choice([1, 2, 3])
            out = job.tick(of_tick, end=is_last).rows
            for row in out.get("o", []):
                found[tuple(value for name, value in row.items() if name in ("na", "nb", "nc"))] += 1
            if has_other:
                others.update(map(repr, out.get("p", [])))
                alone.update(map(repr, other.tick({n: given[n] for n in "su"}, end=is_last).rows["p"]))
                assert others == alone, said
        lefts: list[Found] = [(row,) for row in rows["s"]]
        for place, kind in enumerate(kinds):
            lefts = compute_expected_join(
                lefts, rows["uv"[place]], kind, (old[place], new[place], came), place + 1
            )
        assert found == numbers(lefts), f"{said}: {found - numbers(lefts)}, {numbers(lefts) - found}"
        seen.update(kinds)
    reached = at_effort(quick=any, full=all)
    assert reached(seen[what] for what in (*KINDS, *OF_LEFT)), seen
    assert reached(seen[what] for what in ("killed", "shared")), seen


def ticks_of(rng: random.Random, count: int) -> tuple[dict[str, list[Row]], list[dict[str, Any]]]:
    """(all rows of each source, each with the tick in which it comes; what each tick is given)."""
    rows: dict[str, list[Row]] = {name: [] for name in "suv"}
    ticks, now, number = [], 0, 0
    for tick in range(count):
        now += rng.randrange(9)
        for name in "suv":
            for _ in range(rng.randrange(4)):
                number += 1
                row = {"k": rng.randrange(2), "t": now - rng.randrange(6), "n": number, "w": rng.randrange(4)}
                rows[name].append({**row, "tick": tick})
        ticks.append({name: [(_bare(r), 1) for r in rows[name] if r["tick"] == tick] for name in "suv"})
    return rows, ticks


def _bare(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "tick"}


TARGET = "CREATE MAPPING o TYPE File OPTIONS ('path' = 'out/o', 'format' = 'json');\nINSERT INTO o "
BASE = "SELECT a.n, b.n AS m, a.w FROM s a LEFT JOIN u b ON a.k = b.k AND b.t BETWEEN a.t - 5 AND a.t + 9"


@pytest.mark.parametrize(
    ("select", "told", "why"),
    [
        (BASE.replace("LEFT", "FULL"), "was LEFT, now it is FULL", "more changed"),
        (BASE.replace("a.k = b.k AND ", ""), "no longer ON a.k = b.k", "rows are stored by a.k = b.k"),
        (BASE + " AND a.w + b.w <> 1", "now also ON a.w + b.w <> 1", "columns that the state does not have"),
        (BASE + " AND b.k > 1", "now also ON b.k > 1", "more changed"),
        (
            BASE.replace("u b", "v b"),
            "its inputs were a of s, b of u, now they are a of s, b of v",
            "more changed",
        ),
    ],
)
def test_change_beyond_stored_rows_is_refused_or_discards_state(select: str, told: str, why: str) -> None:
    """The message says what is different, and what --change-queries would do."""
    target = TARGET
    other = target.replace(" o ", " p ").replace("out/o", "out/p") + "SELECT k, t FROM v;\n"
    store = MemoryStore()
    open_job(f"{target}{BASE};\n{other}", store).tick({"s": [], "u": [], "v": []})
    with pytest.raises(StateError) as refused:
        open_job(f"{target}{select};\n{other}", store)
    assert told in refused.value.message
    assert "starts without its stored rows" in str(refused.value.hint)
    assert any(
        why in said for said in open_job(f"{target}{select};\n{other}", store, change=True).driver.said
    )


RENAMED = (
    "SELECT a.n, a.x, a.y, b.n AS m FROM (SELECT t, n, {x} AS x, {y} AS y FROM s) a LEFT JOIN u b"
    " ON a.x {equals} b.k AND b.t BETWEEN a.t - 5 AND a.t + 9"
)


@pytest.mark.parametrize("equals", ["=", "<=>", "= b.n AND a.y ="])
def test_columns_that_change_their_names_are_another_query(equals: str) -> None:
    """The rows that are kept lie by the hashes of what was called so."""
    store = MemoryStore()
    before, after = (
        f"{TARGET}{RENAMED.format(x=x, y=y, equals=equals)};" for x, y in (("k", "w"), ("w", "k"))
    )
    open_job(before, store).tick({"s": [], "u": []})
    with pytest.raises(StateError, match="what its names stand for") as refused:
        open_job(after, store)
    assert "starts without its stored rows" in str(refused.value.hint)
    open_job(before.replace("+ 9", "+ 8"), store, change=True).tick({"s": [], "u": []})


def test_a_further_condition_may_ask_for_renamed_columns() -> None:
    store = MemoryStore()
    text = f"{TARGET}{RENAMED.format(x='k', y='w', equals='=')}"
    open_job(f"{text};", store).tick({"s": [], "u": []})
    said = open_job(f"{text} AND a.y + b.n < 9;", store, change=True).driver.said
    assert any("keeps its rows" in told for told in said)
    open_job(f"{text} AND a.y + b.n < 9;", store, change=True).tick({"s": [], "u": []})
    with pytest.raises(StateError, match="differs from the stored state"):
        open_job(f"{TARGET}{RENAMED.format(x='k', y='w + 0', equals='=')} AND a.y + b.n < 9;", store)


JOINED = (
    "SELECT a.n, a.w, b.n AS m, b.w AS v FROM s a LEFT JOIN u b ON {} AND b.t BETWEEN a.t - 5 AND a.t + 9;"
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a.k = b.k AND a.w = b.w", "a.k = b.k", "no longer ON a.w = b.w"),
        ("a.k = b.k AND a.w = b.w", "b.k = a.k AND a.w + 1 = b.w", "was ON a.k = b.k AND a.w = b.w, now"),
        ("a.k = b.k", "a.k <=> b.k", "was ON a.k = b.k, now it is ON a.k IS NOT DISTINCT FROM b.k"),
    ],
)
def test_removed_equality_error_names_the_equality_that_stores_rows(old: str, new: str, told: str) -> None:
    store = MemoryStore()
    open_job(TARGET + JOINED.format(old), store).tick({"s": [], "u": []})
    with pytest.raises(StateError) as refused:
        open_job(TARGET + JOINED.format(new), store)
    assert told in refused.value.message
    gone = "a.w = b.w" if "a.w" in old else "a.k = b.k"
    assert "starts without its stored rows" in str(refused.value.hint)
    begun = open_job(TARGET + JOINED.format(new), store, change=True)
    assert any(f"rows are stored by {gone}" in said for said in begun.driver.said)
    assert "IS TRUE" not in refused.value.message
