"""A job's plan as the text of a Mermaid flowchart: sources, inputs, joins, filters, sinks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import singledispatch

from watersmeet.event_time import Side
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.durations import distance, shifted
from watersmeet.plan.explain.joins import key_lines
from watersmeet.plan.explain.lookups import place_of
from watersmeet.plan.explain.rankings import ranking_order, ranking_partitions, ranking_rows
from watersmeet.plan.explain.windows import as_written, window_name
from watersmeet.plan.explain.words import is_timed, kind_name, plain, qualified, sink_name
from watersmeet.plan.model.delta import ArrangePlan, DeltaPlan
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import (
    GroupedPlan,
    GroupPlan,
    LookupPlan,
    MatchPlan,
    NodePlan,
    RankPlan,
    SnapshotPlan,
    UpsertPlan,
    WindowedPlan,
)
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.order.forecast import key_in_time
from watersmeet.spec.model import Branch

_SAFE = re.compile(r"[^\w .,:()\[\]/*+=?!'|-]")


def mermaid(plan: JobPlan) -> str:
    """The flowchart; a source that several queries read is drawn once. Ends with a newline."""
    numbers = {source.name: number for number, source in enumerate(plan.sources)}
    lines = ["flowchart LR"]
    for source in plan.sources:
        rate = "" if source.rows_per_second is None else f"{source.rows_per_second:g} rows/s"
        texts = [f"{source.name} ({source.connector})", rate]
        lines.append(f"  s{numbers[source.name]}[({_label(texts)})]")
    for place, query in enumerate(plan.queries):
        lines += [f"  {line}" for line in _query(f"q{place}", query.alone, numbers)]
    return "\n".join(lines) + "\n"


def _query(name: str, query: QueryPlan, sources: dict[str, int]) -> Iterator[str]:
    yield f"subgraph {name}[{_label([f'query {query.name}'])}]"
    inputs = {side.name: f"{name}i{number}" for number, side in enumerate(query.sides)}
    for side in query.sides:
        yield f"  {inputs[side.name]}[{_label(_input(side))}]"
    drawn: dict[int, str] = {}
    for node in query.nodes:
        own, shape = f"{name}j{node.number}", _shape(node, query)
        if shape is None:
            first = node.sides[0]
            drawn[node.number] = inputs[first.name] if first.feed is None else drawn[first.feed.node]
            if first.feed is not None:
                continue
        else:
            drawn[node.number] = own
            yield f"  {own}{shape}"
        for side in node.sides:
            for feed in side.feeds:
                taken = own if side.feed is not None else inputs[side.name]
                yield f"  {drawn[feed.node]} --> {taken}"
            if side.feed is None and side.copy_of is None and drawn[node.number] == own:
                yield f"  {inputs[side.name]} --> {own}"
        yield from _beside(node, own)
    last = drawn[query.root.number]
    if query.where is not None:
        where = plain(text_of(as_written(query, query.where)))
        yield f"  {name}f[/{_label(['filter', where])}/]"
        yield f"  {last} --> {name}f"
        last = f"{name}f"
    yield "end"
    for side in query.sides:
        for number in dict.fromkeys(sources[branch.source.name] for _, branch in side.sources):
            yield f"s{number} --> {inputs[side.name]}"
    if query.is_index:
        return
    yield f"{last} --> {name}k[({_label([sink_name(query.sink)])})]"


@singledispatch
def _shape(node: NodePlan, query: QueryPlan) -> str | None:
    """A node with its label; None: it does nothing that could be drawn but to drop rows."""
    return None


@_shape.register
def _(node: MatchPlan, query: QueryPlan) -> str:
    return f"{{{{{_label(_join(node))}}}}}"


@_shape.register
def _(node: UpsertPlan, query: QueryPlan) -> str:
    return f"[({_label(['one row per key', ', '.join(node.primary_key.columns)])})]"


@_shape.register
def _(node: SnapshotPlan, query: QueryPlan) -> str:
    key = node.primary_key
    texts = ["what is there"] if key is None else ["what is there, by", ", ".join(key.columns)]
    return f"[({_label(texts)})]"


@_shape.register
def _(node: WindowedPlan, query: QueryPlan) -> str:
    return f"[[{_label(_windows(node, is_root=node is query.root))}]]"


@_shape.register
def _(node: GroupPlan, query: QueryPlan) -> str:
    texts = [f"by {', '.join(map(plain, node.key_texts))}" if node.key_texts else "all rows"]
    return f"[[{_label([*texts, *_grouped(node, is_root=node is query.root)])}]]"


@_shape.register
def _(node: RankPlan, query: QueryPlan) -> str:
    partitions = ", ".join(ranking_partitions(node))
    texts = [f"{ranking_rows(node)} {f'per {partitions}' if partitions else 'of all'}", *ranking_order(node)]
    return f"[[{_label(texts)}]]"


@_shape.register
def _(node: ArrangePlan, query: QueryPlan) -> str:
    """With its steps, which are not drawn."""
    lookups = [lookup for step in query.every(DeltaPlan) for lookup in step.lookups]
    if not lookups:
        return f"[({_label(['kept by', *(arranged.key for arranged in node.arranged)])})]"
    keys = dict.fromkeys(line for lookup in lookups for line in key_lines(lookup.join))
    return f"{{{{{_label(['delta join', *keys])}}}}}"


@singledispatch
def _beside(node: NodePlan, own: str) -> Iterator[str]:
    """What a node has beside its sides."""
    return iter(())


@_beside.register
def _(node: LookupPlan, own: str) -> Iterator[str]:
    yield f"  {own}t[({_label(_table(node))})]"
    yield f"  {own}t -.-> {own}"


def _input(side: SidePlan) -> Iterator[str]:
    i = side.input
    yield f"input {side.name}"
    for place, column in enumerate(i.event_times):
        lags = [branch.lags[place] for _, branch in side.sources]
        finite = [lag for lag in lags if lag is not None]
        all_known = len(finite) == len(lags)
        parts = [dict(feed.event_times)[column] for _, feed in side.stages]
        if lags:
            parts.append(
                f"lag {distance(max(finite), is_timed(i, column))}" if all_known else "explicit advances"
            )
        yield f"{column}: {', '.join(parts)}"
    filters = [branch.beneath for branch in i.branches if isinstance(branch, Branch) and branch.beneath]
    filters += [branch.above for branch in i.branches if branch.above]
    for text in dict.fromkeys(plain(text_of(f)) for f in filters):
        yield f"where {text}"


def _join(join: MatchPlan) -> Iterator[str]:
    yield kind_name(join.kind)
    for key in join.keys:
        left, right = (qualified(text_of(key.expr(side)), join.side(side)) for side in Side)
        yield f"{left} {'<=>' if key.null_safe else '='} {right}"
    for bound in join.bounds:
        yield f"{bound.evicted} >= {shifted(bound.by, -bound.c, key_in_time(join, bound.evicted))}"
    if join.horizon is not None:
        reach = distance(join.horizon.reach, key_in_time(join, join.horizon.keys[0]))
        yield f"late and released by the join, reach {reach}"
    if join.asof is not None:
        yield f"the {'latest' if join.asof.latest else 'earliest'} of {join.right.title}"
    for _, text in join.filters:
        yield f"where {plain(text)}"
    for _, text in join.one_sided:
        yield plain(text)
    texts = [text for band in join.values.exact for text in band.texts]
    texts += [band.text for band in join.values.real if band.comparison is not None]
    yield from dict.fromkeys((*texts, *join.recheck_texts))
    if join.residual is not None:
        yield plain(text_of(join.residual))


def _table(node: LookupPlan) -> Iterator[str]:
    yield f"table {node.table.name}"
    yield f"{node.source.name} ({place_of(node.source)})"
    yield "as of the tick"


def _windows(node: WindowedPlan, *, is_root: bool) -> Iterator[str]:
    """HAVING of the last ones is part of the query's filter."""
    yield f"{window_name(node)} over {node.time_key}"
    yield f"by {', '.join(['window', *map(plain, node.key_texts)])}"
    yield from _grouped(node, is_root=is_root)


def _grouped(node: GroupedPlan, *, is_root: bool) -> Iterator[str]:
    for call in node.calls:
        yield plain(call.text)
    for _, text in node.filters:
        yield f"where {plain(text)}"
    if node.having is not None and not is_root:
        yield f"having {plain(node.having)}"


def _label(texts: Iterable[str]) -> str:
    """A quoted label of several lines. Whatever may mean something to Mermaid is written as its number."""
    return '"' + "<br/>".join(_SAFE.sub(_numbered, text) for text in texts if text) + '"'


def _numbered(match: re.Match[str]) -> str:
    return f"#{ord(match.group())};"
