"""EXPLAIN of ROW_NUMBER: what rows are ordered by, how many of each partition go out, what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.plan.explain.words import Sections, plain
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import RankPlan
from watersmeet.spec.ranking import SortKey


def ranking_sections(node: RankPlan, query: QueryPlan) -> Sections:
    """What there is to say of the first rows of partitions."""
    partitions = ranking_partitions(node)
    spread = "by ranges of the hash of the partitions' columns"
    return [
        ("Partitions", partitions or ["nothing: all rows are one"]),
        ("Order (the columns that are not asked for decide between equal rows)", list(ranking_order(node))),
        ("Rows that go out", [f"{ranking_rows(node)} of each partition{_numbers(node)}"]),
        (
            "Retention",
            [
                f"{node.side.title}: every row, each different one once with how often it is there, until it"
                " is deleted; all rows of a partition are looked at when one of them comes or goes"
            ],
        ),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        (
            "Task partitions",
            [spread if partitions else "one task: there is no PARTITION BY"],
        ),
    ]


def ranking_partitions(node: RankPlan) -> list[str]:
    texts = _texts(node)
    return [texts[name] for name in node.ranking.partition]


def ranking_order(node: RankPlan) -> Iterator[str]:
    texts = _texts(node)
    for key in node.ranking.order:
        yield f"{texts[key.name]}{_way(key)}"


def ranking_rows(node: RankPlan) -> str:
    return "the first row" if node.most == 1 else f"the first {node.most} rows"


def _numbers(node: RankPlan) -> str:
    return f", with their numbers ({node.ranking.number})" if node.numbered else ", without their numbers"


def _texts(node: RankPlan) -> dict[str, str]:
    names = [name for name, _ in node.keys]
    return dict(zip(names, map(plain, node.key_texts), strict=True))


def _way(key: SortKey) -> str:
    way = " DESC" if key.descending else ""
    if key.nulls_first is not key.descending:
        return way
    return f"{way} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
