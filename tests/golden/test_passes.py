"""Each pass of the planner by itself: what it is given of a query, and what it makes of that.

Beside ``passes/*.sql`` the golden file of the pass of that name. After a wanted change:
``WATERSMEET_GOLDEN=write pytest tests/golden``, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.columns import column
from tests.support.package_paths import find_paths
from watersmeet.conditions import ExactBand, RealBand
from watersmeet.event_time import Side
from watersmeet.parser.statements import parse_job
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.delta.paths import NoDelta
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.build_plans import ClassifiedQuery
from watersmeet.plan.nodes.join import Draft
from watersmeet.plan.nodes.tree import QueryNode, Tree
from watersmeet.plan.passes import PASSES, Planning
from watersmeet.spec.model import Input, with_inputs

HERE = Path(__file__).parent / "passes"

Lines = Iterator[str]

DECLARED = "-- declared "
KEY = "-- primary key "
EQUAL = {False: "=", True: "<=>"}


def query_of(sql: str) -> Planning:
    job = parse_job(sql)
    (insert,) = job.inserts
    query = insert.query
    if sql.startswith(DECLARED):  # the front itself refuses such a text; a job that is built may be like it
        name, type_ = sql.splitlines()[0].removeprefix(DECLARED).split()
        relation = with_inputs(query.relation, partial(override_column_type, name=name, type_=type_))
        query = replace(query, relation=relation)
    sink = insert.sink
    if sql.startswith(KEY):  # of a console, which needs no server
        sink = replace(sink, primary_key=tuple(sql.splitlines()[0].removeprefix(KEY).split(", ")))
    return Planning.of(insert.name, sink, query, job.options)


def override_column_type(i: Input, name: str, type_: str) -> Input:
    return replace(i, columns=tuple(column(name, type_) if c.name == name else c for c in i.columns))


def inputs(query: Planning) -> Lines:
    for i in query.query.inputs:
        columns = ", ".join(f"{column.name} {column.type}" for column in i.columns)
        branches = ", ".join("a query" if stage else "a source" for stage in map(is_stage, i.branches))
        yield f"{i.alias} ({columns}), event times {', '.join(i.event_times)}, of {branches}"


def is_stage(branch: object) -> bool:
    return hasattr(branch, "stage")


def outputs(query: Planning) -> Lines:
    for output in query.outputs:
        yield f"{text_of(output.expr)} AS {output.name}"


def tree(query: Planning) -> Lines:
    return tree_lines(query.tree, "the query")


def tree_lines(tree: Tree, name: str) -> Lines:
    for (alias, branch), stage in tree.stages.items():
        yield from tree_lines(stage, f"branch {branch + 1} of {alias}")
    for node in tree.nodes:
        sides = " with ".join(side_of(node, side) for side in node.sides)
        yield f"{name}: node {node.number}, {type(node).__name__} of {sides}"


def side_of(node: QueryNode, side: Side) -> str:
    child = node.side(side)
    return f"node {child.number}" if isinstance(child, QueryNode) else child.alias


def conditions(query: Planning) -> Lines:
    for node in query.tree.nodes:
        yield f"node {node.number}: ON {'' if node.on is None else text_of(node.on)}"
    where = query.tree.query.where
    yield f"WHERE {'' if where is None else text_of(where)}"


def understood(query: Planning) -> Lines:
    return drafts(query.understood)


def drafts(understood: ClassifiedQuery) -> Lines:
    for draft in understood.drafts:
        yield from (f"node {draft.node.number}: {line}" for line in draft_lines(draft))
    for alias, conjuncts in understood.conditions.inputs.items():
        yield from (f"input {alias}: {conjunct.text}" for conjunct in conjuncts)
    for (number, side), conjuncts in understood.conditions.sides.items():
        yield from (f"side {side.value} of node {number}: {conjunct.text}" for conjunct in conjuncts)
    yield from (f"after: {conjunct.text}" for conjunct in understood.conditions.after)


def draft_lines(draft: Draft) -> Lines:
    for key in draft.keys:
        yield f"key {text_of(key.expr(Side.LEFT))} {EQUAL[key.null_safe]} {text_of(key.expr(Side.RIGHT))}"
    for band in (*draft.bands, *draft.values.every):
        yield band_line(band)
    for (evicted, by), link in draft.links.items():
        yield f"bound {'.'.join(evicted)} >= {'.'.join(by)} - {link.c}"
    for side, conjunct in draft.parts.one_sided:
        yield f"of {side.value} rows {conjunct.text}"
    if draft.residual is not None:
        yield f"residual {text_of(draft.residual.expr)}"


def band_line(band: ExactBand | RealBand) -> str:
    lower, upper = ("open" if end is None else end for end in (band.lower, band.upper))
    kind = type(band).__name__
    left, right = band.left.column, band.right.column
    return f"{kind} {lower} <= right {right} - left {left} <= {upper} ({band.left.measure.kind})"


def nodes(query: Planning) -> Lines:
    for node in query.nodes:
        yield f"node {node.number}: {type(node).__name__}"
        for side in node.sides:
            yield from (f"  {line}" for line in side_lines(side))
        yield from (f"  {bound.evicted} >= {bound.by} - {bound.c}" for bound in node.bounds)


def side_lines(side: SidePlan) -> Lines:
    where = "sources" if side.feed is None else f"node {side.feed.node}"
    yield f"{side.name} of {where}: kept {', '.join(side.kept)}; leaving {', '.join(side.carried)}"
    for _, branch in side.sources:
        for name, expr in branch.columns if hasattr(branch, "columns") else ():
            yield f"  {name} = {text_of(expr)}"
        if branch.flag is not None:
            yield f"  flag {text_of(branch.flag)}"


def horizons(query: Planning) -> Lines:
    for join in (node for node in query.nodes if isinstance(node, JoinPlan)):
        yield from (f"node {join.number}: {bound.evicted} >= {bound.by} - {bound.c}" for bound in join.bounds)
        if join.horizon is not None:
            keys, reach = " and ".join(join.horizon.keys), join.horizon.reach
            yield f"node {join.number}: the least of {keys}, reach {reach}"


def plan(query: Planning) -> Lines:
    yield f"where {'' if query.plan.where is None else text_of(query.plan.where)}"
    for output in query.plan.outputs:
        yield f"{output.name} = {text_of(output.expr)}"
    yield f"fingerprint {query.plan.fingerprint}"


def delta(query: Planning) -> Lines:
    found = query.understood.delta
    if isinstance(found, NoDelta):
        yield f"a cascade: {found.why}"
        return
    for path in found.paths:
        yield f"changes of {path.start.alias} look up {', '.join(i.alias for i in path.order)}"


def nothing(query: Planning) -> Lines:
    return iter(())


def mode(query: Planning) -> Lines:
    own = query.options.output_mode
    yield f"output mode {'of no one' if own is None else own.value}"


def rankings(query: Planning) -> Lines:
    yield f"WHERE {'' if query.query.where is None else text_of(query.query.where)}"
    for part in query.query.every:
        if part.aggregation is not None and part.aggregation.ranking is not None:
            yield f"ROW_NUMBER() up to {part.aggregation.ranking.most}"


def key_rows(query: Planning) -> Lines:
    yield from stages(query)
    yield f"key rows {None if query.key_rows is None else query.key_rows.value}"
    yield from query.warnings


def stages(query: Planning) -> Lines:
    for part in query.query.every:
        yield f"of {', '.join(i.alias for i in part.inputs)}"
        yield from (f"  {text_of(output.expr)} AS {output.name}" for output in part.outputs)
    if query.after is not None:
        yield f"after {text_of(query.after)}"
    yield from outputs(query)


def order(query: Planning) -> Lines:
    for node in query.plan.nodes:
        yield f"node {node.number}: {' with '.join(side.title for side in node.sides)}"
    yield from (f"reordered {', '.join(aliases)}" for aliases in query.plan.reordered)


SHOWN: dict[str, tuple[Callable[[Planning], Lines], Callable[[Planning], Lines]]] = {
    "mode": (mode, mode),
    "rankings": (rankings, rankings),
    "key-rows": (key_rows, key_rows),
    "keyed": (stages, stages),
    "names": (stages, stages),
    "stages": (stages, stages),
    "tree": (inputs, tree),
    "event-times": (inputs, nothing),
    "query": (outputs, nothing),
    "aggregates": (tree, nothing),
    "changelog": (tree, nothing),
    "conditions": (conditions, understood),
    "delta": (understood, delta),
    "bounded-state": (understood, nothing),
    "nodes": (understood, nodes),
    "lateness": (horizons, horizons),
    "plan": (outputs, plan),
    "order": (order, order),
}
"""What a pass is given, and what it works out; besides it says what is wrong."""


def describe_pass(name: str, sql: str) -> Lines:
    query = query_of(sql)
    before, after = SHOWN[name]
    for own in PASSES:
        if own.name == name:
            assert own.applies(query)
            yield from ("given", *(f"  {line}" for line in before(query)))
            query, problems = own.run(query)
            yield from ("made of it", *(f"  {line}" for line in after(query)))
            yield from ("problems", *(f"  {problem}" for problem in problems))
            return
        if own.applies(query):
            query, _ = own.run(query)


@pytest.mark.parametrize("name", [own.name for own in PASSES])
def test_pass(name):
    golden = HERE / f"{name}.pass"
    got = "\n".join(describe_pass(name, golden.with_suffix(".sql").read_text())) + "\n"
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        golden.write_text(got)
    assert got == golden.read_text()


def test_no_golden_file_is_of_no_pass():
    assert {path.stem for path in find_paths(HERE, "*")} == {own.name for own in PASSES}
