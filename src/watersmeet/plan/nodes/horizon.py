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

_BY_COLUMN = "SET lateness = 'column', which compares each row with the watermark of its own event time"

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
            "also has watermark_rule = limit, and both rules define the output watermark of a join",
            "remove watermark_rule",
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
        yield (
            "has rows that can be retracted, but this rule needs final rows",
            f"write EMIT FINAL, or {_BY_COLUMN}",
        )
    yield from (why for node in nodes for why in _of_node(node))
    if len(joins) != 1:
        joined = f"{len(joins)} joins" if joins else "no join"
        yield (
            f"has {joined}, but this rule supports one join of two streams",
            f"write one join per query and the others in a job that reads its results, or {_BY_COLUMN}",
        )


@singledispatch
def _of_node(node: NodePlan) -> Iterator[Why]:
    """Whether it is a join of another form."""
    yield from ()


@_of_node.register
def _(node: ArrangePlan) -> Iterator[Why]:
    yield "runs as a delta join, but this rule supports a join of two inputs", "remove plan = delta"


@_of_node.register
def _(node: LookupPlan) -> Iterator[Why]:
    if any(side.sources for side in node.sides):
        yield (
            "joins a stream with a table FOR SYSTEM_TIME AS OF before the join of the streams, but this"
            " rule needs plain streams",
            f"join the streams first and then the table, or {_BY_COLUMN}",
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
        yield (
            f"has a join that is {kind}, but this rule supports INNER, LEFT, RIGHT and FULL joins",
            _BY_COLUMN,
        )
        return
    wrong = [why for side in join.sides for why in _of_side(side)]
    yield from wrong
    if not wrong and not {bound.evicted for bound in join.bounds}.issuperset(_keys(join)):
        left, right = _keys(join)
        yield (
            f"does not bound {right} both before and after {left}, which this rule needs",
            f"add {right} BETWEEN {left} - … AND {left} + …",
        )


def _beside(nodes: Sequence[NodePlan], join: JoinPlan) -> Iterator[Why]:
    beside = [side.title for node in nodes if node is not join for side in node.sides if side.sources]
    if beside:
        yield (
            f"also reads a stream outside of its join ({beside[0]}), which this rule does not support",
            f"write that stream with an INSERT in another job, or {_BY_COLUMN}",
        )


def _of_side(side: SidePlan) -> Iterator[Why]:
    times = ", ".join(f"{side.title}.{column}" for column in side.event_times)
    if side.feeds:
        yield (
            f"joins derived rows ({side.title}), but this rule needs plain streams",
            f"compute them in another job, or {_BY_COLUMN}",
        )
    elif len(side.event_times) != 1:
        yield (
            (
                f"joins {side.title} by the event times {times or 'none'}, but this rule needs exactly one"
                " per input"
            ),
            "keep only the event time that the condition compares",
        )


def _keys(join: JoinPlan) -> tuple[str, str]:
    """Of both sides, each of one event time."""
    left, right = (join.side(side).watermark_key(join.side(side).event_times[0]) for side in Side)
    return left, right
