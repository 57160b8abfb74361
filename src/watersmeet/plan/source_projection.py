"""The source columns that a query evaluates, pushed-down predicates, limits of sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from watersmeet.plan.conditions.conjuncts import join_all, text_of
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.rewrites import conjuncts_of
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.plan.nodes.tree import tree_of
from watersmeet.plan.query_inputs import JoinInputs, refs
from watersmeet.spec.model import Expr, Input, Query, Source
from watersmeet.spec.records.changes import columns_in, computed_of_changes
from watersmeet.spec.time_zones import UTC

# What an engine evaluates of the rows of a source for one input: of which columns, and how it is called.


def source_inputs(source: Source, zone: str = UTC) -> JoinInputs:
    """Inputs of which bare column names are the source's columns."""
    inputs = (Input(alias="", columns=source.columns, event_times=(), branches=()),)
    return JoinInputs(inputs, time_zone=zone)


def mentioned_columns(branch: BranchPlan) -> frozenset[str]:
    """The columns of its source that a branch takes anything from."""
    columns = {ref[1] for _, expr in branch.columns for ref in refs(expr)}
    return frozenset(columns | (set() if branch.flag is None else {ref[1] for ref in refs(branch.flag)}))


def needed_source_columns(source: Source, branches: Iterable[BranchPlan]) -> frozenset[str]:
    """Return the columns of a source that its branches take anything from, and those of which it is computed
    which change a record is."""
    of_changes = (columns_in(own.expr) for own in computed_of_changes(source))
    return frozenset[str]().union(*map(mentioned_columns, branches), *of_changes)


def words_of(branch: BranchPlan, name: str, expr: Expr) -> str:
    """What a column of a branch, or its flag, is called in messages."""
    written = dict(branch.words).get(name)
    return f"the expression {unquoted_text(expr)}" if written is None else f"the condition {written}"


def unquoted_text(expr: Expr) -> str:
    """An expression for people: names without quotes."""
    return text_of(expr).replace("`", "")


# Which sources have limits of their own, and which sides keep rows of them.


def is_limited(source: Source) -> bool:
    """It may be that not all of its rows are kept, or that the job stops by them."""
    return source.max_rows is not None or source.max_bytes is not None


def limited_sources(nodes: Iterable[NodePlan]) -> list[Source]:
    """Of the sources whose rows sides keep, those with limits, each once, in the order of first use."""
    sources = {
        branch.source.name: branch.source
        for node in nodes
        for side in node.sides
        for _, branch in side.sources
    }
    return [source for source in sources.values() if is_limited(source)]


def source_of(side: SidePlan) -> str | None:
    """Whose rows a side holds, as they came; None: what is made of such, or rows of another side."""
    return side.sources[0][1].source.name if side.sources else None


def sides_of(node: NodePlan, source: str) -> tuple[str, ...]:
    """The names of the sides of a node that hold rows of a source, copies too."""
    own = {side.name for side in node.sides if source_of(side) == source}
    return tuple(side.name for side in node.sides if side.name in own or side.copy_of in own)


# Rule: which conjuncts of a query's WHERE decide what its joins make: those that sink into them. The
# others are asked of rows that leave the last join, and queries that differ in them alone join the same.


def pushed_down_predicate(query: Query) -> Expr | None:
    """Of the joins of a query, whatever is grouped of their rows."""
    joined = replace(query, aggregation=None)
    above = {text_of(conjunct.expr) for conjunct in place(tree_of(joined).nodes, query.where).after}
    return join_all([c.expr for c in conjuncts_of(query.where) if text_of(c.expr) not in above])
