"""Specs of two (or more) streams from a line of SQL, without the SQL surface."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp

from tests.support.columns import column
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import (
    Branch,
    Input,
    Insert,
    Job,
    Join,
    JoinKind,
    Options,
    OutputColumn,
    Query,
    Relation,
    Sink,
    Source,
)

DEFAULTS = Options()

Declared = Mapping[str, str]
"""Column name -> type; event times are marked by a leading ``*`` on the name."""

INTS: Declared = {"*t": "BIGINT", "k": "STRING", "v": "BIGINT"}
STAMPS: Declared = {
    "*ts": "TIMESTAMP",
    "k": "STRING",
    "n": "INT",
    "d": "DATE",
    "x": "DOUBLE",
    "m": "DECIMAL(10,2)",
}


def stream(alias: str, declared: Declared, *, is_table: bool = False, changes: bool = False) -> Input:
    columns = tuple(column(name.lstrip("*"), type_) for name, type_ in declared.items())
    times = tuple(name[1:] for name in declared if name.startswith("*"))
    source = Source(f"{alias}_source", columns, "memory", is_table=is_table, changes=changes)
    branch = Branch(source, tuple(exp.column(c.name) for c in columns), lags=(0,) * len(times))
    return Input(alias, columns, times, (branch,))


def query(sql: str, *inputs: Input) -> Query:
    """``sql`` over ``inputs``, each mentioned by its alias."""
    tree = sqlglot.parse_one(sql, dialect="spark")
    assert isinstance(tree, exp.Select)
    by_alias = {i.alias: i for i in inputs}
    relation: Relation = by_alias[tree.args["from_"].this.name]
    for join in tree.args.get("joins") or []:
        kind = JoinKind(join.side or "INNER")
        relation = Join(relation, by_alias[join.this.name], kind, join.args.get("on"))
    where = tree.args.get("where")
    outputs = tuple(
        OutputColumn(e.alias_or_name, e.unalias(), e.unalias().sql(dialect="spark")) for e in tree.expressions
    )
    return Query(relation, None if where is None else where.this, outputs, sql)


def job(sql: str, *inputs: Input, options: Options = DEFAULTS, connector: str = "memory") -> Job:
    return Job((Insert("out", Sink("out", connector), query(sql, *inputs)),), options)


def plan_sql(sql: str, *inputs: Input, options: Options = DEFAULTS) -> QueryPlan:
    return plan_job(job(sql, *inputs, options=options)).queries[0]


def plan_two_way_join(on: str, left: Declared = INTS, right: Declared = INTS, kind: str = "") -> JoinPlan:
    """The plan of ``l kind JOIN r ON on``, all columns of both put out."""
    sql = f"SELECT l.{_first(left)} AS a, r.{_first(right)} AS b FROM l {kind} JOIN r ON {on}"
    return plan_sql(sql, stream("l", left), stream("r", right)).root


def _first(declared: Declared) -> str:
    return next(iter(declared)).lstrip("*")


def bounds(join: JoinPlan) -> dict[str, dict[str, int]]:
    """The postpone map ``by -> {evicted: c}``."""
    result: dict[str, dict[str, int]] = {}
    for bound in join.bounds:
        result.setdefault(bound.by, {})[bound.evicted] = bound.c
    return result
