"""Rule: the inputs of stages have names of their own, for watermark keys and state go by them.

An input ``a`` of the second branch of ``u`` is ``u.2.a``; of a stage that is all of ``u``, ``u.a``. Also
here: a query over a stage alone is that stage, with its filter and outputs put on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.flags import over_source
from watersmeet.plan.model.job import FoldedQuery
from watersmeet.spec.model import (
    Expr,
    Input,
    OutputColumn,
    Query,
    Relation,
    StageBranch,
    inputs_of,
)


def folded(query: Query) -> FoldedQuery:
    """The query without inputs that are one stage alone and nothing else, but for an index: what it keeps is
    that stage's rows."""
    i = query.relation
    if query.aggregation is not None or query.indexed_by or not isinstance(i, Input) or len(i.branches) != 1:
        return FoldedQuery(query, None, query.outputs)
    (branch,) = i.branches
    if not isinstance(branch, StageBranch):
        return FoldedQuery(query, None, query.outputs)
    inner = folded(branch.stage)
    columns = columns_of(branch, i, {output.name: output.expr for output in inner.outputs})
    after = [] if inner.after is None else [inner.after]
    if branch.above is not None:
        after.append(over_source(branch.above, {o.name: o.expr for o in inner.outputs}))
    if query.where is not None:
        after.append(over_source(query.where, columns))
    outputs = tuple(replace(o, expr=over_source(o.expr, columns)) for o in query.outputs)
    return FoldedQuery(inner.query, join_all(after), outputs)


def columns_of(branch: StageBranch, i: Input, outputs: Mapping[str, Expr]) -> dict[str, Expr]:
    """The input's columns on this branch over what the stage's ``outputs`` mention."""
    return {
        column.name: over_source(expr, outputs)
        for column, expr in zip(i.columns, branch.columns, strict=True)
    }


def named(query: Query) -> Query:
    """The query, the inputs of whose stages have names of their own; those of the query keep theirs.

    Raises:
        PlanError: two inputs have one name all the same.
    """
    renamed = _named(query, "")
    times = Counter(_aliases(renamed))
    twice = [alias for alias, number in times.items() if number > 1]
    if twice:
        raise PlanError(
            f'two inputs are named "{twice[0]}"', code="duplicate-name", hint="rename one of them with AS"
        )
    return renamed


def _aliases(query: Query) -> list[str]:
    aliases = []
    for i in query.inputs:
        aliases.append(i.alias)
        for stage in i.stages:
            aliases += _aliases(stage)
    return aliases


def _named(query: Query, prefix: str) -> Query:
    names = {i.alias: prefix + i.alias for i in inputs_of(query.relation)}

    def moved(expr: Expr) -> Expr:
        tree = expr.copy()
        for column in list(tree.find_all(exp.Column)) if prefix else ():
            own = column.args.get("table")
            if own is not None:
                quoted = bool(own.args.get("quoted"))
                column.set("table", exp.to_identifier(names[own.name], quoted=quoted))
        return tree

    def outputs(columns: tuple[OutputColumn, ...]) -> tuple[OutputColumn, ...]:
        return tuple(replace(column, expr=moved(column.expr)) for column in columns)

    def relation(part: Relation) -> Relation:
        if isinstance(part, Input):
            return _stages_named(replace(part, alias=names[part.alias]))
        return replace(
            part,
            left=relation(part.left),
            right=relation(part.right),
            on=None if part.on is None else moved(part.on),
            where=None if part.where is None else moved(part.where),
        )

    aggregation = query.aggregation
    if aggregation is not None:
        window = aggregation.window
        window = None if window is None else replace(window, time=moved(window.time))
        keys, aggregates = outputs(aggregation.keys), outputs(aggregation.aggregates)
        aggregation = replace(aggregation, window=window, keys=keys, aggregates=aggregates)
    return replace(
        query,
        relation=relation(query.relation),
        where=None if query.where is None else moved(query.where),
        outputs=outputs(query.outputs),
        aggregation=aggregation,
    )


def _stages_named(i: Input) -> Input:
    several = len(i.branches) > 1
    branches = [
        replace(branch, stage=_named(branch.stage, f"{i.alias}.{n}." if several else f"{i.alias}."))
        if isinstance(branch, StageBranch)
        else branch
        for n, branch in enumerate(i.branches, 1)
    ]
    return replace(i, branches=tuple(branches))
