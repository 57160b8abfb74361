"""What all queries of a job may keep together, of one source and of all: judged when a tick's nodes are
settled, before anything of it is published.

Rows in files that several sides have are counted once: as many of each file as the side of them keeps that
keeps most. Rows that joins make for others are no source's; in the job they count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.driver.heavy import key_shares
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.errors import EngineError
from watersmeet.plan.explain.words import size_of
from watersmeet.plan.limited import is_limited, source_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import LiveRun, QueryState

TOLD_SIDES = 5


@dataclass(frozen=True)
class _Kept:
    """What a side keeps. ``source``: whose rows it holds, as they came; None: what is made of such.
    ``name``: for people."""

    name: str
    source: str | None
    shape: SideShape | None
    runs: Sequence[LiveRun]
    is_copy: bool

    @property
    def is_table(self) -> bool:
        """A copy of a table that rows meet as of their tick."""
        return self.shape is None


def check_job_limits(
    plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]], states: Mapping[str, QueryState]
) -> None:
    """Raises: EngineError, when more is kept than a source's options or those of the job allow. It names the
    sides that keep most, and the heaviest keys, if some are."""
    options = plan.queries[0].options
    sources = {
        branch.source.name: branch.source
        for query in plan.queries
        for node in query.nodes
        for side in (*node.sides, *node.tables)
        for _, branch in side.sources
    }
    limited = [source for source in sources.values() if is_limited(source)]
    if not limited and options.max_job_rows is None and options.max_job_bytes is None:
        return
    kept = list(_kept(plan, shapes, states))
    if options.at_limit.sheds:
        kept = [side for side in kept if side.is_table]  # of all else as many rows are left as may be
    for source in limited:
        own = [side for side in kept if side.source == source.name]
        whose, option = f'of "{source.name}"', "'{}' of CREATE … " + f'"{source.name}"'
        _check_rows(whose, option.format("max_rows"), source.max_rows, own)
        _check_bytes(whose, option.format("max_bytes"), source.max_bytes, own)
    _check_rows("in the whole job", "max_job_rows", options.max_job_rows, kept)
    _check_bytes("in the whole job", "max_job_bytes", options.max_job_bytes, kept)


def _kept(
    plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]], states: Mapping[str, QueryState]
) -> Iterator[_Kept]:
    for query in plan.queries:
        for node, shape, state in zip(query.nodes, shapes[query.name], states[query.name].nodes, strict=True):
            of_query = f' in "{query.name}"' if len(plan.queries) > 1 else ""
            for side, own in zip(node.sides, shape.sides, strict=False):
                if side.name in state.arrangements:
                    source = source_of(side)
                    runs = state.arrangements[side.name].runs
                    yield _Kept(f"{side.title}{of_query}", source, own, runs, side.copy_of is not None)
            if state.table is not None and node.tables:
                (side,) = node.tables
                copy = [LiveRun(run=run) for run in state.table.runs]
                yield _Kept(f"{side.title}{of_query}", side.sources[0][1].source.name, None, copy, False)


def _check_rows(whose: str, option: str, most: int | None, sides: Sequence[_Kept]) -> None:
    sides = [side for side in sides if not side.is_copy]
    rows = sum(max(own) for own in _by_file(sides, lambda live: live.stored).values())
    if most is not None and rows > most:
        told = _told(sides, lambda live: live.stored, str)
        raise EngineError(
            f"the job retains {rows} rows {whose} ({told}), more than {option} = {most}{_heaviest(sides)}",
            code="max-rows",
            hint=_hint(option),
        )


def _check_bytes(whose: str, option: str, most: int | None, sides: Sequence[_Kept]) -> None:
    nbytes = sum(max(own) for own in _by_file(sides, lambda live: live.run.nbytes).values())
    if most is not None and nbytes > most:
        told = _told(sides, lambda live: live.run.nbytes, size_of)
        raise EngineError(
            f"retained rows {whose} take {size_of(nbytes)} in files ({told}), more than {option} ="
            f" {size_of(most)}{_heaviest(sides)}",
            code="max-bytes",
            hint=_hint(option),
        )


def _hint(option: str) -> str:
    return (
        f"raise {option}, narrow the time bounds, or check which input's watermark does not advance"
        " (`watersmeet state show JOB` lists what is retained)"
    )


def _by_file(sides: Sequence[_Kept], measure: Callable[[LiveRun], int]) -> dict[str, list[int]]:
    """Per file what each of the sides has of it. Files that one side has merged in this tick, and others have
    for one tick more, are left out."""
    merged = {
        name
        for side in sides
        for live in side.runs
        if live.merged_from is not None
        for name in live.merged_from.runs
    }
    of_file: dict[str, list[int]] = {}
    for side in sides:
        for live in side.runs:
            if live.run.name not in merged:
                of_file.setdefault(live.run.name, []).append(measure(live))
    return of_file


def _told(sides: Sequence[_Kept], measure: Callable[[LiveRun], int], shown: Callable[[int], str]) -> str:
    """The sides that keep most."""
    by_name: dict[str, int] = {}
    for side in sides:
        by_name[side.name] = by_name.get(side.name, 0) + sum(map(measure, side.runs))
    order = sorted(by_name, key=lambda name: -by_name[name])
    more = [f"{len(order) - TOLD_SIDES} more"] if len(order) > TOLD_SIDES else []
    return ", ".join([*(f"{name}: {shown(by_name[name])}" for name in order[:TOLD_SIDES]), *more])


def _heaviest(sides: Sequence[_Kept]) -> str:
    told = [
        f"of {side.name} {share}"
        for side in sides
        if side.shape is not None and not side.is_copy
        for share in key_shares(side.shape, side.runs)
    ]
    return f"; heaviest keys: {', '.join(told[:TOLD_SIDES])}" if told else ""
