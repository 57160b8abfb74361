"""A case played in this process, and what its job put out compared with the batch answer by DuckDB."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from watersmeet.diff.bags import COUNT, Differences, differences, fetch_rows, quote_identifier
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.diff.explanations import QueryFacts, collect_query_facts
from watersmeet.diff.statement import AT, PART, column_name, group_columns, statement
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.replay import _parse_step
from watersmeet.runtime.values import to_table
from watersmeet.spec.model import Job, OutputMode
from watersmeet.state.store import MemoryStore


class Played:
    """``output``: all rows that the query put out, with times without a zone; ``facts``: what the last
    manifest says. Raises: WatersmeetError, as the case does."""

    def __init__(self, case: Mapping[str, Any], *, job: Job | None = None) -> None:
        self.job = case_job(case) if job is None else job
        plan = plan_job(self.job)
        self.query = plan.queries[0]
        self.changes = self.query.options.output_mode is OutputMode.CHANGELOG
        local = LocalJob(plan, MemoryStore())
        self._sources = {source.name: source for source in plan.sources}
        self._rows: dict[str, list[tuple[int, list[Any]]]] = defaultdict(list)
        # Without an idle_timeout a job takes no stream for idle, and order says which rows were late; a case
        # may say of any stream that it is.
        self._is_steady = not any(step.get("idle") for step in case["steps"])
        tables, clock_us = [], 0
        for number, step in enumerate(case["steps"], 1):
            if "restart" in step or "rescale" in step:
                continue
            clock_us += round(step.get("clock", 0) * 1_000_000)
            given = _parse_step(plan, step, clock_us)
            output = local.tick(
                given.rows, clock_us=clock_us, advances=given.advances, idle=given.idle, end=given.end
            )
            tables += list(output.tables.values())
            for name, rows in given.rows.items():
                self._rows[name].append((number, [row for row, _ in rows]))
        self.output = pa.concat_tables(tables) if tables else None
        manifest = local.driver.manifest
        self.facts = QueryFacts()
        if manifest is not None:
            self.facts = collect_query_facts(
                manifest, self.query.name, self.query.shared_inputs, settled=self.changes
            )

    def compared(self, db: Any, output: pa.Table, limit: int = 1000) -> Differences:
        """Raises: Uncommon."""
        tables = {name: self._filled(db, name) for name in self._sources}

        def answer(name: str, without: frozenset[str]) -> str:
            sql = statement(
                self.job.inserts[0].query,
                DuckDb(tables),
                self.facts,
                ordered=tables if self._is_steady else (),
                allowed_lateness=self.job.options.allowed_lateness,
                without=without,
            )
            fetch_rows(db, f"CREATE OR REPLACE TABLE {name} AS {sql}")
            return name

        first = answer("answer", frozenset())
        names = [output.name for output in self.job.inserts[0].query.outputs]
        db.register("given", output.rename_columns([column_name(n) for n in range(output.num_columns)]))
        found = differences(
            db,
            names,
            first,
            f"(SELECT *, 1 AS {COUNT} FROM given)",
            [partial(answer, f"without{n}", of) for n, of in enumerate(self.facts.late_inputs)],
            groups=group_columns(self.job.inserts[0].query),
            whole=None,
            limit=limit,
        )
        db.unregister("given")
        return found

    def _filled(self, db: Any, name: str) -> str:
        source = self._sources[name]
        rows = [(row, tick) for tick, rows in self._rows[name] for row in rows]
        table = to_table(source.columns, [row for row, _ in rows], [1] * len(rows))
        table = table.select([column.name for column in source.columns])
        table = table.append_column(PART, pa.array([""] * len(rows), pa.string()))
        table = table.append_column(AT, pa.array([tick for _, tick in rows], pa.int64()))
        db.register("given", table)
        fetch_rows(db, f"CREATE OR REPLACE TABLE {quote_identifier(name)} AS SELECT * FROM given")
        db.unregister("given")
        return quote_identifier(name)
