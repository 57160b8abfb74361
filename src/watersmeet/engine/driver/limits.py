"""What a job may keep and put out at most: a tick that comes to more is not committed, and says so.

A tick that has failed by a limit is begun again by the next run; by then the limit may be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.engine.driver.heavy import key_shares
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.engine.messages.work import NodeWork
from watersmeet.errors import EngineError
from watersmeet.plan.explain.words import size_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.state.manifest import Arrangement, LiveRun

_HINT = "raise {}, narrow the time bounds, or check which input's watermark does not advance"


def check_limits(
    query: QueryPlan,
    shape: NodeShape,
    work: NodeWork,
    arrangements: Mapping[str, Arrangement],
    rows_out: int,
) -> None:
    """What one node keeps after the tick, and puts out in it.

    Args:
        shape: of the node; ``work``: what its tasks were told.
        arrangements: what its sides keep.

    Raises:
        EngineError: it is more than a limit. It names the heaviest keys, if some are.
    """
    node = query.nodes[shape.number]
    _check_kept(query, node, shape, arrangements)
    if node is query.root:
        _check_output(query, node, shape, work, rows_out)


def _check_kept(
    query: QueryPlan, node: NodePlan, shape: NodeShape, arrangements: Mapping[str, Arrangement]
) -> None:
    """What one node keeps after the tick.

    Raises:
        EngineError: more rows than ``max_rows`` (copies of an input are not counted twice), or files of more
            bytes than ``max_bytes`` (copies are; files that several sides have, for each). Not where rows are
            shed at these limits.
    """
    options = query.options
    if options.at_limit.sheds:
        return
    rows = {side.title: arrangements[side.name].stored for side in node.sides if side.copy_of is None}
    if options.max_rows is not None and sum(rows.values()) > options.max_rows:
        sizes = ", ".join(f"{title}: {held}" for title, held in rows.items())
        heaviest = _heaviest(node, shape, {name: kept.runs for name, kept in arrangements.items()})
        raise EngineError(
            f"{_of(query, node, rows)} retains {sum(rows.values())} rows ({sizes}), more than"
            f" max_rows = {options.max_rows}{heaviest}",
            code="max-rows",
            hint=_HINT.format("max_rows"),
        )
    if options.max_bytes is None:
        return
    nbytes = dict.fromkeys(rows, 0)
    for side in node.sides:
        nbytes.setdefault(side.title, 0)
        nbytes[side.title] += sum(live.run.nbytes for live in arrangements[side.name].runs)
    if sum(nbytes.values()) > options.max_bytes:
        sizes = ", ".join(f"{title}: {size_of(held)}" for title, held in nbytes.items())
        heaviest = _heaviest(node, shape, {name: kept.runs for name, kept in arrangements.items()})
        raise EngineError(
            f"{_of(query, node, rows)} retains {size_of(sum(nbytes.values()))} in files ({sizes}), more"
            f" than max_bytes = {size_of(options.max_bytes)}{heaviest}",
            code="max-bytes",
            hint=_HINT.format("max_bytes"),
        )


def _check_output(query: QueryPlan, node: NodePlan, shape: NodeShape, work: NodeWork, rows: int) -> None:
    """Raises: EngineError, when a query puts more rows out in one tick than ``max_output_rows_per_tick``."""
    most = query.options.max_output_rows_per_tick
    if most is not None and rows > most:
        met = {
            side.name: [*own.runs, *(LiveRun(run=run) for run in own.new_runs)]
            for side, own in zip(shape.sides, work.sides, strict=False)
        }
        raise EngineError(
            f'"{query.name}" would emit {rows} rows in tick {work.tick}, more than'
            f" max_output_rows_per_tick = {most}{_heaviest(node, shape, met)}",
            code="max-output",
            hint="check whether the join lacks a key or a condition; else raise"
            " max_output_rows_per_tick, or let each tick read less",
        )


def _heaviest(node: NodePlan, shape: NodeShape, runs: Mapping[str, Sequence[LiveRun]]) -> str:
    """What a message says of the heaviest keys of the sides, which hold these runs."""
    told = []
    for side, planned in zip(shape.sides, node.sides, strict=False):
        if planned.copy_of is None and side.name in runs:
            told += [f"of {planned.title} {share}" for share in key_shares(side, runs[side.name])]
    return f"; heaviest keys: {', '.join(told)}" if told else ""


def _of(query: QueryPlan, node: NodePlan, titles: Mapping[str, int]) -> str:
    which = "" if len(query.nodes) == 1 else f"{' and '.join(titles)} in "
    noun = f"{node.noun} of " if node.noun else ""
    return f'the {noun}{which}"{query.name}"'
