"""Rule: by ``lateness = join`` one horizon says which rows of a join are late, how long they are retained,
and what its output watermark is (`conditions.Horizon`). What that rule does not define is refused.

It is for one join of two streams, each of one event time, INNER, LEFT, RIGHT or FULL, whose condition bounds
how far these times may be apart. Windows may be laid over it: they go by its output watermark. Its rows may
meet tables as of their tick: nothing is kept of such a row, and none of these is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatch

from watersmeet.conditions import Horizon
from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.model.delta import ArrangePlan
from watersmeet.plan.model.nodes import JoinPlan, LookupPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import JoinKind, Options, OutputMode, WatermarkRule

KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)

_BY_COLUMN = "SET lateness = column, by which a row is late by the watermark of its own event time"

Why = tuple[str, str]
"""What the rule asks for and does not find, and what helps."""


def with_horizon(
    nodes: Sequence[NodePlan], query: str, options: Options
) -> tuple[tuple[NodePlan, ...], list[PlanError]]:
    """The nodes of a query, its join with a horizon; or as they are, with what is wrong."""
    problems = list(_problems(nodes, options))
    if problems:
        return tuple(nodes), [
            PlanError(f'lateness = join: "{query}" {why}', code="join-lateness", hint=hint)
            for why, hint in problems
        ]
    (join,) = _joins(nodes)
    horizon = Horizon(_keys(join), max(abs(bound.c) for bound in join.bounds))
    return tuple(replace(join, horizon=horizon) if node is join else node for node in nodes), []


def _problems(nodes: Sequence[NodePlan], options: Options) -> Iterator[Why]:
    if options.watermark_rule is WatermarkRule.LIMIT:
        yield (
            "has watermark_rule = limit, and by this rule a join has an output watermark of its own",
            "leave watermark_rule out",
        )
    form = list(_of_form(nodes, options))
    if form:
        yield form[0]
        return
    (join,) = _joins(nodes)
    yield from list(_of_join(join)) or _beside(nodes, join)


def _of_form(nodes: Sequence[NodePlan], options: Options) -> Iterator[Why]:
    """Whether it is a query of one join. Others follow from the first."""
    joins = _joins(nodes)
    if options.output_mode is OutputMode.CHANGELOG or any(node.changes for node in nodes):
        yield "has rows that are taken back, and the rule is for final ones", f"EMIT FINAL; or {_BY_COLUMN}"
    yield from (why for node in nodes for why in _of_node(node))
    if len(joins) != 1:
        joined = f"{len(joins)} joins" if joins else "no join"
        yield (
            f"has {joined}, and the rule is for one join of two streams",
            f"one join per query, others in a job that reads what this one writes; or {_BY_COLUMN}",
        )


@singledispatch
def _of_node(node: NodePlan) -> Iterator[Why]:
    """Whether it is a join of another form."""
    yield from ()


@_of_node.register
def _(node: ArrangePlan) -> Iterator[Why]:
    yield "is run as a delta join, and the rule is for a join of two sides", "leave plan = delta out"


@_of_node.register
def _(node: LookupPlan) -> Iterator[Why]:
    if any(side.sources for side in node.sides):
        yield (
            "has a stream that meets a table FOR SYSTEM_TIME AS OF before its join, and the rule is for"
            " streams as they come",
            f"join the streams first, the table behind them; or {_BY_COLUMN}",
        )


def _joins(nodes: Sequence[NodePlan]) -> list[JoinPlan]:
    return [join for node in nodes for join in _join(node)]


@singledispatch
def _join(node: NodePlan) -> Iterator[JoinPlan]:
    """The node, if it is a join that keeps the rows of its sides."""
    yield from ()


@_join.register
def _(node: JoinPlan) -> Iterator[JoinPlan]:
    yield node


def _of_join(join: JoinPlan) -> Iterator[Why]:
    if join.asof is not None or join.kind not in KINDS:
        kind = "ASOF" if join.asof is not None else join.kind.value
        yield f"has a join that is {kind}, and the rule is for INNER, LEFT, RIGHT and FULL ones", _BY_COLUMN
        return
    wrong = [why for side in join.sides for why in _of_side(side)]
    yield from wrong
    if not wrong and not {bound.evicted for bound in join.bounds}.issuperset(_keys(join)):
        left, right = _keys(join)
        yield (
            f"does not say how far {right} may be before {left}, and how far behind: the rule takes both",
            f"{right} BETWEEN {left} - … AND {left} + …",
        )


def _beside(nodes: Sequence[NodePlan], join: JoinPlan) -> Iterator[Why]:
    beside = [side.title for node in nodes if node is not join for side in node.sides if side.sources]
    if beside:
        yield (
            f"reads a stream beside its join ({beside[0]}), and the rule says nothing of its rows",
            f"INSERT them by themselves, in another job; or {_BY_COLUMN}",
        )


def _of_side(side: SidePlan) -> Iterator[Why]:
    times = ", ".join(f"{side.title}.{column}" for column in side.event_times)
    if side.feeds:
        yield (
            f"joins rows that are made of others ({side.title}), and the rule is for streams as they come",
            f"make them in another job; or {_BY_COLUMN}",
        )
    elif len(side.event_times) != 1:
        yield (
            f"joins {side.title} by the event times {times or 'none'}, and the rule is for one of each side",
            "order it by the one that the condition compares; others are plain columns then",
        )


def _keys(join: JoinPlan) -> tuple[str, str]:
    """Of both sides, each of one event time."""
    left, right = (join.side(side).watermark_key(join.side(side).event_times[0]) for side in Side)
    return left, right
