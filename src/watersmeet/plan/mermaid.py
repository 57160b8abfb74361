"""A job's plan as the text of a Mermaid flowchart: sources, inputs, joins, filters, sinks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from watersmeet.event_time import Side
from watersmeet.plan.conjuncts import text_of
from watersmeet.plan.durations import distance, shifted
from watersmeet.plan.explain.words import is_timed, kind_name, plain, qualified, sink_name
from watersmeet.plan.forecast import key_in_time
from watersmeet.plan.model import JobPlan, JoinPlan, QueryPlan, SidePlan

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
        lines += [f"  {line}" for line in _query(f"q{place}", query, numbers)]
    return "\n".join(lines) + "\n"


def _query(name: str, query: QueryPlan, sources: dict[str, int]) -> Iterator[str]:
    yield f"subgraph {name}[{_label([f'query {query.name}'])}]"
    inputs = {side.name: f"{name}i{number}" for number, side in enumerate(query.sides)}
    for side in query.sides:
        yield f"  {inputs[side.name]}[{_label(_input(side))}]"
    for join in query.joins:
        node = f"{name}j{join.number}"
        yield f"  {node}{{{{{_label(_join(join))}}}}}"
        for own in Side:
            plan = join.side(own)
            beneath = inputs[plan.name] if plan.feed is None else f"{name}j{plan.feed.join}"
            yield f"  {beneath} --> {node}"
    last = f"{name}j{query.root.number}"
    if query.where is not None:
        yield f"  {name}f[/{_label(['filter', plain(text_of(query.where))])}/]"
        yield f"  {last} --> {name}f"
        last = f"{name}f"
    yield "end"
    for side in query.sides:
        for number in dict.fromkeys(sources[branch.source.name] for branch in side.branches):
            yield f"s{number} --> {inputs[side.name]}"
    yield f"{last} --> {name}k[({_label([sink_name(query.sink)])})]"


def _input(side: SidePlan) -> Iterator[str]:
    i = side.input
    yield f"input {side.name}"
    for place, column in enumerate(i.event_times):
        lags = [branch.lags[place] for branch in side.branches]
        known = [lag for lag in lags if lag is not None]
        all_known = len(known) == len(lags)
        lag = f"lag {distance(max(known), is_timed(i, column))}" if all_known else "explicit advances"
        yield f"{column}: {lag}"
    filters = [f for branch in i.branches for f in (branch.beneath, branch.above) if f is not None]
    for text in dict.fromkeys(plain(text_of(f)) for f in filters):
        yield f"where {text}"


def _join(join: JoinPlan) -> Iterator[str]:
    yield kind_name(join.kind)
    for key in join.keys:
        left, right = (qualified(text_of(key.expr(side)), join.side(side)) for side in Side)
        yield f"{left} {'<=>' if key.null_safe else '='} {right}"
    for bound in join.bounds:
        yield f"{bound.evicted} >= {shifted(bound.by, -bound.c, key_in_time(join, bound.evicted))}"
    for _, text in join.filters:
        yield f"where {plain(text)}"
    for _, text in join.one_sided:
        yield plain(text)
    texts = [text for band in join.values.exact for text in band.texts]
    texts += [band.text for band in join.values.real if band.comparison is not None]
    yield from dict.fromkeys((*texts, *join.recheck_texts))
    if join.residual is not None:
        yield plain(text_of(join.residual))


def _label(texts: Iterable[str]) -> str:
    """A quoted label of several lines. Whatever may mean something to Mermaid is written as its number."""
    return '"' + "<br/>".join(_SAFE.sub(_numbered, text) for text in texts if text) + '"'


def _numbered(found: re.Match[str]) -> str:
    return f"#{ord(found.group())};"
