"""Where the hint for unbounded state says that a bound belongs, by how the join is written."""

from __future__ import annotations

import pytest

from watersmeet.errors import PlanError, SeveralErrors
from watersmeet.front.sql import parse_job
from watersmeet.plan.planner import plan_job

STREAMS = "".join(
    f"CREATE TABLE {name} (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');\n"
    for name in "abc"
)


def hints(query: str) -> list[str | None]:
    with pytest.raises(SeveralErrors) as caught:
        plan_job(parse_job(STREAMS + query))
    assert {error.code for error in caught.value.errors} == {"unbounded-state"}
    return [error.hint for error in caught.value.errors]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT a.t FROM a JOIN b ON a.k = b.k", "add to the ON condition: AND "),
        ("SELECT a.t FROM a JOIN b ON TRUE", "add to the ON condition: AND "),
        (
            "SELECT a.t FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
            "add to WHERE in the sub-query of EXISTS: AND ",
        ),
        (
            "SELECT a.t FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AND a.k <> ''",
            "add to WHERE in the sub-query of EXISTS: AND ",
        ),
        ("SELECT a.t FROM a, b WHERE a.k = b.k", "add to WHERE: AND "),
        ("SELECT a.t FROM a CROSS JOIN b WHERE a.k = b.k", "add to WHERE: AND "),
        ("SELECT a.t FROM a JOIN b USING (k)", "USING takes names alone: write ON a.k = b.k AND "),
    ],
)
def test_a_bound_belongs_where_the_condition_stands(query, words):
    left, right = hints(query)
    end = " instead" if "USING" in query else ""
    assert left == f"{words}a.t >= b.t - 10{end}"
    assert right == f"{words}b.t >= a.t - 10{end}"


@pytest.mark.parametrize(
    ("clause", "place"),
    [
        ("JOIN c ON c.k = a.k AND c.t >= a.t - 5", "to the ON condition"),
        (", c WHERE c.k = a.k AND c.t >= a.t - 5", "to WHERE"),
        (
            "WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.t >= a.t - 5)",
            "to WHERE in the sub-query of EXISTS",
        ),
    ],
)
def test_so_does_one_for_rows_of_a_join(clause, place):
    """``c`` is bounded, the rows it meets are not."""
    query = f"SELECT a.t FROM a LEFT JOIN b ON a.k = b.k AND a.t BETWEEN b.t - 5 AND b.t + 5 {clause}"
    with pytest.raises(PlanError) as caught:
        plan_job(parse_job(STREAMS + query))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(
        f"add a condition between a time of a with b and a time of c {place}, of an input that"
    )


@pytest.mark.parametrize(
    "query",
    [
        ("SELECT a.t FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND {})"),
        ("SELECT a.t FROM a, b WHERE a.k = b.k AND {}"),
        ("SELECT a.t FROM a CROSS JOIN b WHERE a.k = b.k AND {}"),
        ("SELECT a.t FROM a JOIN b ON a.k = b.k AND {}"),
    ],
)
def test_what_the_hints_say_is_planned(query):
    plan_job(parse_job(STREAMS + query.format("a.t >= b.t - 10 AND b.t >= a.t - 10")))
