"""The rows that a tick sets aside: late ones, those that were shed, and records that do not parse."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.engine.driver.open_tick import RunningTick
from watersmeet.engine.spark.tick.ingest import BROKEN_REASON
from watersmeet.engine.spark.tick.outputs import BROKEN_INSERT, LATE_INSERT, SHED_INSERT
from watersmeet.engine.spark.tick.side_output import Aside
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.spec.model import AtLimit

_SHED_REASONS = tuple(choice.value for choice in AtLimit if choice.sheds)
_INSERTS = {BROKEN_REASON: BROKEN_INSERT, **dict.fromkeys(_SHED_REASONS, SHED_INSERT)}


def insert_of(file: Aside) -> str:
    """Return the insert that takes the rows of a file."""
    return _INSERTS.get(file.reason, LATE_INSERT)


def set_aside(tick: RunningTick, of_ingest: list[Aside]) -> list[Aside]:
    """Return all files of rows that a tick sets aside; ``of_ingest``: those that its ingest tasks wrote."""
    plan = tick.begun.run.plan
    return [*of_ingest, *_of_readers(plan, of_ingest), *_of_nodes(plan, tick), *_of_tables(plan, tick)]


def _of_readers(plan: JobPlan, of_ingest: list[Aside]) -> Iterator[Aside]:
    """Yield the same rows for queries whose inputs others read."""
    for query in plan.queries:
        for own, reader, there in query.inputs_elsewhere:
            yield from (
                file.of(f"{query.name}/{own}") for file in of_ingest if file.owner == f"{reader}/{there}"
            )


def _of_nodes(plan: JobPlan, tick: RunningTick) -> Iterator[Aside]:
    """Yield late rows of stages, and rows that joins have shed."""
    for query in plan.queries:
        for alias, files in tick.aside(query.name).items():
            for file in files:
                yield Aside(
                    source=_source_of(query, alias) if file.reason else alias,
                    owner=f"{query.name}/{_title_of(query, alias)}",
                    reason=file.reason or "late",
                    name=file.name,
                    rows=file.rows,
                )


def _of_tables(plan: JobPlan, tick: RunningTick) -> Iterator[Aside]:
    """Yield records of tables that do not parse."""
    for query in plan.queries:
        for source, files in tick.broken(query.name).items():
            for file in files:
                yield Aside(source=source, owner="", reason=BROKEN_REASON, name=file.name, rows=file.rows)


def _source_of(query: QueryPlan, alias: str) -> str:
    """Return the name of an input's source; of a UNION ALL that of the input, of joined rows the inputs'."""
    names = [branch.source.name for side in query.sides if side.name == alias for _, branch in side.sources]
    return names[0] if len(names) == 1 else _title_of(query, alias)


def _title_of(query: QueryPlan, alias: str) -> str:
    """Return an input's alias; of joined rows those of the inputs."""
    return next((side.title for node in query.nodes for side in node.sides if side.name == alias), alias)
