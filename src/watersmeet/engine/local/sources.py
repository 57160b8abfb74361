"""The sources of a plan as the in-process job reads them: streams branch by branch, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.driver.tables import TableReader
from watersmeet.engine.local.evaluate import BranchEvaluator, declared_schema
from watersmeet.engine.local.tables import LocalSnapshot, reader_of
from watersmeet.engine.values import HeldTables, arrow_type
from watersmeet.errors import EngineError
from watersmeet.plan.evaluated import needed_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Column, Source


class JobSources:
    """``declared``: all of them, by name; ``streams``: those that are ingested, with the columns that count;
    ``tables``: those that rows meet as of their tick, or that are compared. ``branches``: per (arrangement,
    number) the stream's name and what it gives; ``schemas``: of the kept columns, per arrangement;
    ``readers``, ``compared``: as `restore`.

    Args:
        given: see `LocalJob`.
    """

    def __init__(self, plan: JobPlan, held: HeldTables, *, given: bool) -> None:
        self.branches = {
            (f"{query.name}/{side.name}", number): (
                branch.source.name,
                BranchEvaluator(side, branch, query.options.time_zone, f'INSERT "{query.name}": '),
            )
            for query in plan.queries
            for side in query.sides
            for number, branch in side.ingested
        }
        streams = {source.name: source for source in plan.sources}
        self.streams, self.tables = streams, {source.name: source for source in plan.tables}
        self.declared = self.streams | self.tables
        if given:  # columns of types that are not known here may be there, if nobody asks for them
            self.streams = {
                name: replace(source, columns=self._mentioned(source)) for name, source in streams.items()
            }
            self.tables = {
                name: replace(source, columns=_known(source.columns)) for name, source in self.tables.items()
            }
        self.schemas: dict[str, pa.Schema] = {
            f"{query.name}/{side.name}": declared_schema(side)
            for query in plan.queries
            for side in query.sides
            if not side.sources
        }
        for (arrangement, _), (source, evaluator) in self.branches.items():
            if arrangement not in self.schemas:
                self.schemas[arrangement] = evaluator.schema(streams[source])
        self.readers: dict[str, TableReader] = {}
        for query, node in plan.lookups:
            ((_, branch),) = node.table.sources
            evaluator = BranchEvaluator(node.table, branch, query.options.time_zone)
            name = f"{query.name}/{node.table.name}"
            self.schemas[name] = evaluator.schema(branch.source)
            self.readers[name] = reader_of(self.tables[branch.source.name], evaluator, held, given=given)
        self.compared: dict[str, LocalSnapshot] = {}
        for query, snapshot in plan.compared:
            side, ((_, branch),) = snapshot.side, snapshot.side.sources
            evaluator = BranchEvaluator(side, branch, query.options.time_zone)
            name = f"{query.name}/{side.name}"
            self.schemas[name] = evaluator.schema(branch.source)
            reader = reader_of(self.tables[branch.source.name], evaluator, held, given=given)
            self.compared.setdefault(branch.source.name, LocalSnapshot()).readers[name] = reader

    def _mentioned(self, source: Source) -> tuple[Column, ...]:
        """The columns of a source that the branches that read it mention, and those that say which change a
        record is by what is computed of them."""
        columns = [
            column
            for name, evaluator in self.branches.values()
            if name == source.name
            for column in evaluator.columns
        ]
        names = needed_of(source, ()).union(column.name for column in columns)
        return tuple(column for column in source.columns if column.name in names)


def _known(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Those of types that this engine has."""
    kept = []
    for column in columns:
        with suppress(EngineError):
            arrow_type(column.type)
            kept.append(column)
    return tuple(kept)
