"""The query of a case, read for the oracle: inputs, joins (children first), what each retains, outputs.

Written from semantics.md section 3 alone, as plainly as possible: conjuncts are cut at the top-level ANDs,
sink to the join or input they belong to, and each is looked at once.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from sqlglot import exp

from tests.support.oracle.asof import ASOF, AsofRule, asof_rule, parse_asof_query
from tests.support.oracle.bounds import bounds_of
from tests.support.oracle.closure import find_padded_inputs, join_chains, refuse_unbounded
from tests.support.oracle.inputs import Key, Source
from tests.support.oracle.model import JoinPlan, Query
from tests.support.oracle.sql import Function, Scope, compile_expr
from tests.support.oracle.tree import (
    Join,
    Relation,
    columns_of,
    conjuncts_of,
    find_mentioned_aliases,
    qualify_columns,
    read_joins,
    read_relation,
    scope_of,
    sink_all,
)
from tests.support.oracle.values import Refused, Unsupported


def read_query(case: dict[str, Any]) -> Query:
    """The case's query, which nobody changes; raises Refused when the plan is."""
    return _query(json.dumps({name: value for name, value in case.items() if name not in _NOT_READ}))


_NOT_READ = ("case", "steps", "expect")


@lru_cache(maxsize=4)  # laws run a query several times, one time after the other
def _query(text: str) -> Query:
    case = json.loads(text)
    tree = parse_asof_query(case["query"])
    if isinstance(tree, exp.Union):
        tree = exp.select("*").from_(
            exp.Subquery(this=tree, alias=exp.TableAlias(this=exp.to_identifier(UNION)))
        )
    if not isinstance(tree, exp.Select) or tree.args.get("group") or tree.args.get("with_"):
        raise Unsupported("only a plain SELECT")
    return _read(tree, case)[0]


UNION = "union"
"""The alias of a UNION ALL at the top."""


def _read(tree: exp.Select, case: dict[str, Any]) -> tuple[Query, list[Key | None], set[Key]]:
    """A SELECT; per output the column that it is, if it is one; the columns that its joins may pad."""

    def stage(select: exp.Select) -> tuple[Query, list[Key | None], set[Key]]:
        return _read(select, case)

    first = read_relation(tree.args["from_"].this, case, stage)
    root = read_joins(first, tree.args.get("joins") or [], case, stage)
    scope = Scope({s.alias: s.kinds for s in root.inputs})
    where = tree.args.get("where")
    above = sink_all(root, [qualify_columns(c, root) for c in conjuncts_of(where.this if where else None)])
    filters: dict[str, list[Function]] = {}
    joins: list[JoinPlan] = []
    _plan(root, scope, joins, filters)
    outputs = _outputs(tree, root)
    query = Query(
        root.inputs,
        [filters[s.alias] for s in root.inputs],
        joins,
        [compile_expr(c, scope)[1] for c in above],
        [(name, *compile_expr(value, scope)) for name, value in outputs],
    )
    for join in joins:
        if join.as_of and join.kind in ("RIGHT", "FULL"):
            raise Refused(f"{join.kind} JOIN with a table FOR SYSTEM_TIME AS OF is not there")
    for number, join in enumerate(joins):
        join.chains = join_chains(joins, number)
    refuse_unbounded(joins, case.get("options", {}).get("watermark_rule", "tight"))
    plain = [value.unalias() if isinstance(value, exp.Alias) else value for _, value in outputs]
    keys = [(e.table, e.name) if isinstance(e, exp.Column) else None for e in plain]
    aliases = find_padded_inputs(joins)
    return query, keys, {(s.alias, c) for s in root.inputs if s.alias in aliases for c in s.kinds}


def _plan(
    relation: Relation, scope: Scope, joins: list[JoinPlan], filters: dict[str, list[Function]]
) -> int | None:
    """Note a relation's joins, children first, and its inputs' filters; the number of its own join."""
    if not isinstance(relation, Join):
        filters[relation.source.alias] = [compile_expr(c, scope)[1] for c in relation.filters]
        return None
    feeds = (_plan(relation.left, scope, joins, filters), _plan(relation.right, scope, joins, filters))
    joins.append(_split(relation, feeds, scope))
    return len(joins) - 1


def _split(join: Join, feeds: tuple[int | None, int | None], scope: Scope) -> JoinPlan:
    """What each conjunct of a join says about rows that can match nothing, and about time."""
    sides = (join.left.sources, join.right.sources)
    side_of = {source.alias: side for side in (0, 1) for source in sides[side]}
    times = {(source.alias, t) for side in sides for source in side for t in source.times}
    condition: list[Function] = []
    never: tuple[list[Function], list[Function]] = ([], [])
    bands: dict[tuple[Key, Key], Any] = {}
    for conjunct in [*join.match, *join.conjuncts]:
        function = compile_expr(conjunct, scope)[1]
        condition.append(function)
        on = {side_of[alias] for alias in find_mentioned_aliases(conjunct)}
        if len(on) < 2:
            for side in on or {0, 1}:
                never[side].append(function)
            continue
        if isinstance(conjunct, exp.EQ):
            operands = (conjunct.this, conjunct.expression)
            ends = [{side_of[alias] for alias in find_mentioned_aliases(operand)} for operand in operands]
            if len(ends[0]) == 1 and len(ends[1]) == 1:
                for end, operand in zip(ends, operands, strict=True):
                    never[min(end)].append(_not_null(compile_expr(operand, scope)[1]))
        for a, b, c in bounds_of(conjunct, scope):
            bands[a, b] = min(c, bands.get((a, b), c))
            for alias, column in (a, b):
                getter = compile_expr(exp.column(column, table=alias), scope)[1]
                never[side_of[alias]].append(_not_null(getter))
    for (a, b), c in bands.items():
        back = bands.get((b, a))
        if back is not None and c + back < 0:
            for side in (0, 1):
                never[side].append(lambda rows: False)
    links = {(a, b): c for (a, b), c in bands.items() if a in times and b in times}
    after = [compile_expr(c, scope)[1] for c in join.after]
    asof = _asof(join, feeds, times, scope) if join.kind in ASOF else None
    return JoinPlan(join.kind, sides, feeds, condition, never, links, after, asof=asof)


def _asof(join: Join, feeds: tuple[int | None, int | None], times: set[Key], scope: Scope) -> AsofRule:
    """What an ASOF join's condition over both of its sides says."""
    if feeds[1] is not None:
        raise Refused("the right side of an ASOF join is a join")
    aliases = ({s.alias for s in join.left.sources}, {s.alias for s in join.right.sources})
    over_both = [
        c
        for c in join.conjuncts
        if find_mentioned_aliases(c) & aliases[0] and find_mentioned_aliases(c) & aliases[1]
    ]
    return asof_rule(join.match, over_both, aliases, times, scope)


def _not_null(f: Function) -> Function:
    return lambda rows: f(rows) is not None


def _outputs(tree: exp.Select, root: Relation) -> list[tuple[str, exp.Expression]]:
    """(name, qualified expression) per output column; names see the root's inputs."""
    visible = scope_of(root).inputs
    columns: list[tuple[str, exp.Expression]] = []
    for item in tree.expressions:
        if isinstance(item, exp.Star):
            columns += columns_of(root)
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            alias = next((a for a in visible if a.lower() == item.table.lower()), None)
            if alias is None:
                raise Refused(f'unknown input "{item.table}" in {item.sql()}')
            columns += [(c, exp.column(c, table=alias)) for c in visible[alias]]
        else:
            columns.append((item.alias_or_name or item.sql(dialect="spark"), qualify_columns(item, root)))
    return columns


__all__ = ["JoinPlan", "Key", "Query", "Source", "read_query"]
