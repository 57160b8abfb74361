"""Random queries that group over changing tables, and random changes of these.

A query comes twice: as watersmeet takes it, and as DuckDB does, where that has to say in other words what
Spark means. Values are hostile: NULL, NaN, infinities, both zeros, sums that cancel out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

COLUMNS = {
    "k": "STRING",
    "v": "INT",
    "n": "BIGINT",
    "p": "DECIMAL(12,2)",
    "x": "DOUBLE",
    "b": "BOOLEAN",
    "t": "TIMESTAMP",
}
TABLES = ("a", "b", "c")
NAN = float("nan")
VALUES: dict[str, list[Any]] = {
    "k": ["p", "q", "", None],
    "v": [0, 1, 2, 2, -3, None],
    "n": [2**40, -(2**40), 7, None],
    "p": ["0.01", "-12.50", "9999999999.99", "3.00", None],
    "x": [0.1, 0.2, -0.3, 1e300, -1e300, 1e-300, 0.0, -0.0, NAN, float("inf"), float("-inf"), None],
    "b": [True, False, None],
    "t": ["2024-01-01T00:00:00", "2024-01-02T00:00:00", None],
}


@dataclass(frozen=True)
class GroupCase:
    """``query`` and, for DuckDB, ``judged``; ``steps``: of each tick the changes (table, row, diff)."""

    query: str
    judged: str
    steps: list[list[tuple[str, dict[str, Any], int]]]


def random_group_case(seed: int) -> GroupCase:
    draw = random.Random(seed)
    query, judged = _query(draw)
    return GroupCase(query, judged, _steps(draw))


def _steps(draw: random.Random) -> list[list[tuple[str, dict[str, Any], int]]]:
    """Rows that come, most of them alike, and go; some that go are not there."""
    hostile = draw.random() < 0.4
    there: list[tuple[str, dict[str, Any]]] = []
    steps = []
    for _ in range(draw.randint(3, 7)):
        step: list[tuple[str, dict[str, Any], int]] = []
        for _ in range(draw.choice([0, 1, 3, 8, 12])):
            if there and draw.random() < 0.45:
                table, row = there.pop(draw.randrange(len(there)))
                step.append((table, row, -1))
                if draw.random() < 0.4:  # an update
                    row = {**row, draw.choice("vnpxbt"): None}
                    step.append((table, row, 1))
                    there.append((table, row))
                continue
            table = draw.choice(TABLES)
            row = {name: draw.choice(_tame(name) if not hostile else VALUES[name]) for name in COLUMNS}
            if draw.random() < 0.05 and None not in (row["k"], row["v"], row["b"]):
                step.append((table, row, -1))  # one with a NULL key, beneath an outer join, is applied
                continue
            diff = draw.choice([1, 1, 1, 2])
            step.append((table, row, diff))
            there += [(table, row)] * diff
        draw.shuffle(step)
        steps.append(step)
    return steps


def _tame(name: str) -> list[Any]:
    return [0.1, 0.2, -0.3, 2.5, None] if name == "x" else VALUES[name]


def _query(draw: random.Random) -> tuple[str, str]:
    relation, names = random_relation(draw)
    keys = draw.sample([name for name in names if name[-1] in "kvbxp"], draw.choice([0, 1, 1, 1, 2]))
    if keys and draw.random() < 0.12:
        columns = ", ".join(f"{name} AS o{n}" for n, name in enumerate(keys))
        text = f"SELECT DISTINCT {columns} FROM {relation}"
        return text, text
    calls = [_call(draw, names) for _ in range(draw.randint(0 if keys else 1, 4))]
    having = ""
    if draw.random() < 0.3:
        having = " HAVING " + draw.choice(["count(*) > 1", f"min({draw.choice(names)}) IS NOT NULL"])
    where = f" WHERE {draw.choice([n for n in names if n[-1] == 'v'])} <> 1" if draw.random() < 0.2 else ""
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    texts = []
    for place in (0, 1):
        listed = [f"{name} AS g{n}" for n, name in enumerate(keys)]
        listed += [f"{call[place]} AS o{n}" for n, call in enumerate(calls)]
        texts.append(f"SELECT {', '.join(listed)} FROM {relation}{where}{group}{having}")
    return texts[0], texts[1]


def random_relation(draw: random.Random) -> tuple[str, list[str]]:
    """What stands in FROM, and the columns that there are; the last letter of each says its type."""

    def of(*aliases: str) -> list[str]:
        return [f"{alias}.{name}" for alias in aliases for name in COLUMNS]

    kind = draw.choice(["", "", "LEFT ", "FULL ", "RIGHT "])
    inner = (
        "SELECT k, count(*) AS v, sum(v) AS n, max(x) AS x, min(p) AS p, bool_or(b) AS b, max(t) AS t FROM a"
    )
    return draw.choice(
        [
            ("a", of("a")),
            ("a", of("a")),
            (f"a {kind}JOIN b ON a.k = b.k", of("a", "b")),
            (f"a {kind}JOIN b ON a.k = b.k AND a.v <= b.v", of("a", "b")),
            (f"a {kind}JOIN b ON a.k = b.k LEFT JOIN c ON c.v = b.v AND c.b = a.b", of("a", "b", "c")),
            ("a LEFT SEMI JOIN b ON a.v = b.v", of("a")),
            ("(SELECT * FROM a UNION ALL SELECT * FROM b) u", of("u")),
            (f"(SELECT a.* FROM a {kind}JOIN b ON a.k = b.k UNION ALL SELECT * FROM c) u", of("u")),
            (f"({inner} GROUP BY k) g {kind}JOIN b ON g.k = b.k", of("g", "b")),
            (f"({inner} GROUP BY k) g", of("g")),
            (f"({inner} GROUP BY k HAVING count(*) > 1) g JOIN c ON g.v = c.v", of("g", "c")),
            (
                "(SELECT max(v) AS v, count(*) AS n FROM a) g LEFT JOIN b ON g.v = b.v",
                [*of("b"), "g.v", "g.n"],
            ),
            ("(SELECT DISTINCT k, v FROM a) g JOIN b ON g.k = b.k", [*of("b"), "g.k", "g.v"]),
        ]
    )


def _of_reals(function: str, name: str, chosen: str) -> tuple[str, str]:
    """DuckDB gives the numbers, for what it adds up depends on their order."""
    if not name.endswith("x"):
        text = f"{function}({name}){chosen}"
        return text, text
    return f"{function}({name}){chosen}", f"{{'function': '{function}', 'of': list({name}){chosen}}}"


def _call(draw: random.Random, names: list[str]) -> tuple[str, str]:
    def one(of: str) -> str:
        return draw.choice([name for name in names if name[-1] in of] or names)

    def both(text: str) -> tuple[str, str]:
        return text, text

    chosen = f" FILTER (WHERE {one('v')} > 0)" if draw.random() < 0.2 else ""
    made: tuple[str, str] | None = draw.choice(
        [
            both(f"count(*){chosen}"),
            both(f"count({one('vxptk')}){chosen}"),
            both(f"count(DISTINCT {one('vxptk')}){chosen}"),
            both(f"count(DISTINCT {one('vk')}, {one('bt')})"),
            both(f"sum({one('vn')}){chosen}"),
            both(f"sum({one('p')}){chosen}"),
            both(f"sum(DISTINCT {one('v')}){chosen}"),
            _of_reals("sum", one("x"), chosen),
            _of_reals("avg", one("x"), chosen),
            both(f"avg({one('vn')}){chosen}"),
            (f"avg({(p := one('p'))}){chosen}", f"round(avg({p}){chosen}, 6)"),
            both(f"min({one('vnpxtkb')}){chosen}"),
            both(f"max({one('vnpxtkb')}){chosen}"),
            both(f"bool_and({one('b')}){chosen}"),
            both(f"max({one('v')} + 1)"),
            None,
        ]
    )
    if made is not None:
        function = made[0].split("(")[0]
        if function == "count" and made[0].count(",") == 1:  # of rows without NULL in either
            first, second = made[0][len("count(DISTINCT ") : -1].split(", ")
            rows = f"{first} IS NOT NULL AND {second} IS NOT NULL"
            return made[0], f"count(DISTINCT ({first}, {second})) FILTER (WHERE {rows})"
        return made
    value, by = one("vk"), one("t")
    which, least = draw.choice([("min_by", "first"), ("max_by", "last")])
    return (
        f"{which}({value}, {by})",
        f"{least}({value} ORDER BY {by}, {value} NULLS FIRST) FILTER (WHERE {by} IS NOT NULL)",
    )
