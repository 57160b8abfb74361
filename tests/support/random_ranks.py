"""Random queries of the first rows of partitions over changing tables, and random changes of these.

As `random_groups`: a query comes twice, for DuckDB with an order that says everything. `random_rank_case` is
for the oracle: a case file's case.
"""

from __future__ import annotations

import random
from typing import Any

from tests.support.random_groups import (
    COLUMNS,
    TABLES,
    GroupCase,
    random_group_case,
    random_relation,
)


def random_rank_query(seed: int) -> GroupCase:
    draw = random.Random(seed)
    relation, names = random_relation(draw)
    inner, judged, columns = _draw_row_number_select(draw, relation, names)
    outer = _outer(draw, columns)
    return GroupCase(outer.format(ranked=inner), outer.format(ranked=judged), random_group_case(seed).steps)


def random_rank_case(seed: int) -> dict[str, Any]:
    """Over one table or a join, with restarts onto other numbers of partitions."""
    draw = random.Random(seed)
    relation, names = draw.choice(
        [
            ("a", [f"a.{name}" for name in COLUMNS]),
            ("a", [f"a.{name}" for name in COLUMNS]),
            ("a JOIN b ON a.k = b.k AND a.v <= b.v", [f"{t}.{name}" for t in "ab" for name in COLUMNS]),
            ("a LEFT JOIN b ON a.v = b.v", [f"{t}.{name}" for t in "ab" for name in COLUMNS]),
        ]
    )
    inner, _, columns = _draw_row_number_select(draw, relation, names)
    query = _alone(draw, columns).format(ranked=inner)
    used = [name for name in TABLES if f"{name}." in query]
    steps: list[dict[str, Any]] = []
    for step in random_group_case(seed).steps:
        rows = [[table, {**row, "x": _plain(row["x"])}, diff] for table, row, diff in step if table in used]
        steps.append({"rows": rows})
        if draw.random() < 0.3:
            steps.append(draw.choice([{"restart": True}, {"rescale": draw.choice([1, 3, 7])}]))
    tables = {name: {"columns": dict(COLUMNS)} for name in used}
    return {
        "case": f"ranks-{seed}",
        "tables": tables,
        "options": {"output_mode": "changelog"},
        "query": query,
        "steps": steps,
    }


def _plain(value: Any) -> Any:
    """A number that JSON has."""
    return 7.5 if value is not None and (value != value or abs(value) == float("inf")) else value


def _draw_row_number_select(
    draw: random.Random, relation: str, names: list[str]
) -> tuple[str, str, list[str]]:
    """A SELECT with ROW_NUMBER, the same for DuckDB, and its columns but the number."""
    chosen = draw.sample(names, min(len(names), draw.randint(1, 4)))
    columns = [f"c{n}{name[-1]}" for n, name in enumerate(chosen)]
    by = draw.sample(names, draw.choice([0, 1, 1, 1, 2]))
    partition = f"PARTITION BY {', '.join(by)} " if by else ""
    order, judged = [], []
    for name in draw.sample(names, draw.choice([1, 1, 2])):
        way = draw.choice(["", " ASC", " DESC"])
        nulls = draw.choice(["", "", " NULLS FIRST", " NULLS LAST"])
        expr = f"{name} + 1" if name[-1] == "v" and draw.random() < 0.3 else name
        order.append(f"{expr}{way}{nulls}")
        judged.append(f"{expr}{way}{nulls or (' NULLS LAST' if way == ' DESC' else ' NULLS FIRST')}")
    judged += [f"{name} NULLS FIRST" for name in chosen]
    listed = [f"{name} AS {column}" for name, column in zip(chosen, columns, strict=True)]
    place = draw.randint(0, len(listed))
    where = f" WHERE {draw.choice([n for n in names if n[-1] == 'v'])} <> 1" if draw.random() < 0.2 else ""
    texts = []
    for keys in (order, judged):
        number = f"ROW_NUMBER() OVER ({partition}ORDER BY {', '.join(keys)}) AS rn"
        items = ", ".join([*listed[:place], number, *listed[place:]])
        texts.append(f"SELECT {items} FROM {relation}{where}")
    return texts[0], texts[1], columns


def _filter(draw: random.Random, number: str = "rn") -> str:
    n = draw.randint(1, 4)
    return draw.choice(
        [
            f"{number} <= {n}",
            f"{number} <= {n}",
            f"{number} < {n + 1}",
            f"{number} = 1",
            f"{number} = {n}",
            f"{number} BETWEEN 2 AND {n + 1}",
            f"{n} >= {number} AND {number} <= {n + 2}",
        ]
    )


def _alone(draw: random.Random, columns: list[str]) -> str:
    some = ", ".join(draw.sample(columns, draw.randint(1, len(columns))))
    listed = draw.choice(["*", some, f"{some}, rn", f"rn + 1 AS next, {some}"])
    more = f" AND {columns[0]} IS NOT NULL" if draw.random() < 0.2 else ""
    return f"SELECT {listed} FROM ({{ranked}}) r WHERE {_filter(draw)}{more}"


def _outer(draw: random.Random, columns: list[str]) -> str:
    kind = draw.random()
    if kind < 0.6:
        return _alone(draw, columns)
    column = columns[0]
    keys = [name for name in COLUMNS if name[-1] == column[-1]]
    if kind < 0.8:
        on = f"r.{column} = b.{keys[0]}"
        join = draw.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN"])
        where = _filter(draw, "r.rn")
        if draw.random() < 0.3:
            return f"SELECT r.{column} AS o, b.v AS v FROM b LEFT JOIN ({{ranked}}) r ON {on} AND {where}"
        return f"SELECT r.{column} AS o, b.v AS v FROM ({{ranked}}) r {join} b ON {on} WHERE {where}"
    grouped = f"SELECT r.{column} AS g, count(*) AS n, max(r.rn) AS m FROM ({{ranked}}) r"
    return f"{grouped} WHERE {_filter(draw)} GROUP BY r.{column}"


__all__ = ["random_rank_case", "random_rank_query"]
