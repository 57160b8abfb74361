"""Where the hint for unbounded state says that a bound belongs, by how the join is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.package_paths import find_paths
from watersmeet.errors import PlanError, SeveralErrors, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job

STREAMS = "".join(
    f"CREATE TABLE {name} (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');\n"
    for name in "abc"
)


def hints(query: str) -> list[str | None]:
    with pytest.raises(PlanError) as caught:
        plan_job(parse_job(STREAMS + query))
    assert caught.value.code == "unbounded-state"
    return [caught.value.hint]


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
        ("SELECT a.t FROM a, b WHERE a.k = b.k", "add it to WHERE: "),
        (
            "SELECT a.t FROM a CROSS JOIN b WHERE a.k = b.k",
            "add it to WHERE: ",
        ),
        ("SELECT a.t FROM a JOIN b USING (k)", "replace USING with ON a.k = b.k AND "),
    ],
)
def test_a_bound_belongs_where_the_condition_stands(query, words):
    (hint,) = hints(query)
    bound = re.compile(r"(\w)\.t BETWEEN (\w)\.t - 10 AND \2\.t \+ 10")
    assert hint is not None
    assert hint.startswith(words)
    assert bound.fullmatch(hint.removeprefix(words))


@pytest.mark.parametrize(
    "joins",
    [
        "a JOIN b ON a.k = b.k JOIN x FOR SYSTEM_TIME AS OF PROCTIME() ON x.k = a.k",
        "a JOIN x FOR SYSTEM_TIME AS OF PROCTIME() ON x.k = a.k JOIN b ON a.k = b.k AND b.t > x.d",
    ],
)
def test_conditions_on_a_table_of_the_tick_are_no_trouble(joins):
    table = "CREATE TABLE x (k STRING, d BIGINT) WITH ('connector' = 'memory');\n"
    with pytest.raises(WatersmeetError, match='input "b"') as caught:
        plan_job(parse_job(f"{STREAMS}{table}SELECT a.t FROM {joins}"))
    assert re.search(
        r"add to the ON condition: AND b.t (>= a.t - 10|BETWEEN a.t - 10 AND)", str(caught.value)
    )


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
        f"add a condition between a time of a with b and a time of c {place}, from an input that"
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


TIMES = "".join(
    f"CREATE TABLE {name} (t BIGINT, s BIGINT, k STRING, WATERMARK FOR t AS t - 5, WATERMARK FOR s AS s)"
    " WITH ('connector' = 'memory');\n"
    for name in "abc"
)
BOUND = "SELECT a.t, a.s FROM a JOIN b ON b.t BETWEEN a.t - 5 AND a.t + 5"
BY_LIMIT = [
    BOUND + " JOIN c ON c.t BETWEEN a.s AND a.s + 5",
    BOUND + " LEFT JOIN c ON c.k = a.k AND c.t BETWEEN a.s AND a.s + 5",
    BOUND + " ASOF JOIN c ON c.t <= a.s",
    f"SELECT count(*) AS n, w.window_end FROM TABLE(TUMBLE(TABLE ({BOUND}), DESCRIPTOR(s), 5)) w"
    " GROUP BY w.window_end",
]


@pytest.mark.parametrize("query", BY_LIMIT)
def test_what_the_rule_limit_keeps_is_helped_by_tight_alone(query):
    """A column that the first join leaves unbound: a bound more would change the result."""
    with pytest.raises(PlanError) as caught:
        plan_job(parse_job(TIMES + "SET watermark_rule = limit;" + query))
    assert not isinstance(caught.value, SeveralErrors)
    assert caught.value.code == "unbounded-state"
    assert caught.value.hint == "SET watermark_rule = tight: it joins the same rows"
    assert "first" not in caught.value.message
    setting, _, _ = caught.value.hint.partition(":")
    hinted = plan_job(parse_job(f"{TIMES}{setting};{query}")).queries[0]
    plain = plan_job(parse_job(TIMES + query)).queries[0]
    assert [node.bounds for node in hinted.nodes] == [node.bounds for node in plain.nodes], "nothing is added"


def test_hint_omits_watermark_rule_when_a_time_may_be_null():
    """``tight`` is no help where a time may be missing: b is padded before it is to bound c."""
    query = "SELECT a.t FROM a LEFT JOIN b ON a.k = b.k AND a.t BETWEEN b.t - 5 AND b.t + 5"
    for rule in ("tight", "limit"):
        text = f"{STREAMS} SET watermark_rule = {rule}; {query} JOIN c ON c.k = a.k AND c.t >= a.t - 5"
        with pytest.raises(PlanError) as caught:
            plan_job(parse_job(text))
        assert "SET watermark_rule" not in str(caught.value)


GOLDENS = Path(__file__).parents[1] / "golden"


APPLIED = {
    "refused_key_only": [[("<= a.deadline", "<= a.deadline AND a.t >= b.t - 10 AND b.t >= a.t - 10")]],
    "refused_inside_of_a_union": [
        [("= b.k)", "= b.k AND a.t >= b.t - INTERVAL '1' HOUR AND b.t >= a.t - INTERVAL '1' HOUR)")]
    ],
    "refused_inside_of_a_view": [
        [("d.t FROM", "d.t, o.t AS ot FROM"), ("= r.id", "= r.id AND r.t >= od.ot - 10")],
        [("= r.id", "= r.id AND od.ot >= r.t - 10")],
    ],
    "refused_asof_for_ever": [[("l.k = r.k", "l.k = r.k AND r.at <= l.at + INTERVAL '1' HOUR")]],
}
"""What the hints say, done: per round of refusals, texts and what comes for them."""


def test_every_golden_with_such_a_hint_is_tried():
    found = {
        path.stem for path in find_paths(GOLDENS, "*.explain") if "[unbounded-state]" in path.read_text()
    }
    assert found == set(APPLIED)


@pytest.mark.parametrize("name", APPLIED)
def test_the_hints_of_the_goldens_help(name):
    text = (GOLDENS / f"{name}.sql").read_text()
    for changes in APPLIED[name]:
        with pytest.raises(WatersmeetError) as caught:
            plan_job(parse_job(text))
        hints = re.sub(r"\b(?:\w+\.)+(\w+\.\w+)", r"\1", str(caught.value))
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
            for condition in new.removeprefix(old).split(" AND ")[1:]:
                time, _, distance = condition.rstrip(")").replace("od.ot", "o.t").partition(" - ")
                either = "add a condition between a time of" in hints
                assert either or (time in hints and distance in hints)
    plan_job(parse_job(text))
