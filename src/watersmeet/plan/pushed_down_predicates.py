"""The conjuncts of a query's WHERE that its joins evaluate, and that decide what these return.

The others are evaluated over rows that leave the last join: queries that differ only in those join the same.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.plan.conditions.conjuncts import join_all, text_of
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.rewrites import conjuncts_of
from watersmeet.plan.nodes.tree import tree_of
from watersmeet.spec.model import Expr, Query


def pushed_down_predicate(query: Query) -> Expr | None:
    """Return the part of WHERE that the joins of a query evaluate, independent of its grouping."""
    joined = replace(query, aggregation=None)
    above = {text_of(conjunct.expr) for conjunct in place(tree_of(joined).nodes, query.where).after}
    return join_all([c.expr for c in conjuncts_of(query.where) if text_of(c.expr) not in above])
