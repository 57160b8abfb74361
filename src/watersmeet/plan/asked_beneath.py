"""Rule: which conjuncts of a query's WHERE decide what its joins make: those that sink into them. The others
are asked of rows that leave the last join, and queries that differ in them alone join the same."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.plan.conditions.conjuncts import join_all, text_of
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.rewritten import conjuncts_of
from watersmeet.plan.nodes.tree import tree_of
from watersmeet.spec.model import Expr, Query


def asked_beneath(query: Query) -> Expr | None:
    """Of the joins of a query, whatever is grouped of their rows."""
    joined = replace(query, aggregation=None)
    above = {text_of(conjunct.expr) for conjunct in place(tree_of(joined).nodes, query.where).after}
    return join_all([c.expr for c in conjuncts_of(query.where) if text_of(c.expr) not in above])
