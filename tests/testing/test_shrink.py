"""The shrinker takes conjuncts out of every condition of a query, and keeps only what a failure needs."""

from __future__ import annotations

import pytest

from tests.support.oracle.case import run_case
from tests.support.random_multiway import random_multiway_case
from tests.support.shrink import conditions, shrink, smaller

pytestmark = pytest.mark.full


def test_conditions_of_a_tree_of_joins() -> None:
    query = (
        "SELECT a.t AS t FROM a LEFT JOIN (b JOIN c ON b.t = c.t AND (b.v = 1 OR c.v = 2)) ON a.t = b.t "
        "FULL OUTER JOIN d ON d.t BETWEEN a.t AND a.t + 1 WHERE a.v > 1 AND 1 = 1"
    )
    assert [query[start:end] for start, end in conditions(query)] == [
        "a.v > 1 AND 1 = 1",
        "d.t BETWEEN a.t AND a.t + 1",
        "a.t = b.t",
        "b.t = c.t AND (b.v = 1 OR c.v = 2)",
    ]
    case = {"case": "x", "query": query, "steps": []}
    queries = [candidate["query"] for candidate in smaller(case)]
    assert query.replace("b.t = c.t AND ", "") in queries
    assert query.replace(" AND (b.v = 1 OR c.v = 2)", "") in queries
    assert query.replace(" AND 1 = 1", "") in queries


def test_shrunk_case_still_fails_and_is_smaller() -> None:
    def fails(case: dict[str, object]) -> bool:
        return any(line.get("rows") for line in run_case(case))

    case = next(c for c in map(random_multiway_case, range(100)) if fails(c))
    small = shrink(case, fails)
    assert fails(small)
    assert len(str(small)) < len(str(case)) / 2
