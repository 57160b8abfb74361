"""Case files on Spark: each step is one tick over frames of its rows instead of a stream.

The scan, the tasks, the driver and the sinks' protocol are those of a job.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from watersmeet.names import DIFF, PARTITION, ROW
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.replay import QUERY, CaseOutput, CaseStep, Row, replay
from watersmeet.runtime.spark.errors import readable_error
from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.sources.scan import scan
from watersmeet.runtime.spark.sources.tables import Table, table_readers
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.runtime.spark.tick.ingest import ingest_reports
from watersmeet.runtime.spark.tick.outputs import Outputs
from watersmeet.runtime.spark.tick.reading.source_rows import TickReading
from watersmeet.runtime.spark.tick.sink_row_counts import SinkRowCounter
from watersmeet.runtime.spark.tick.task_placement import Descriptions
from watersmeet.runtime.spark.tick.tick import SparkTicks
from watersmeet.runtime.tick import TickInput
from watersmeet.runtime.values import Change, InMemoryTables, drop_cancelled_changes, to_json, to_table
from watersmeet.sinks.base import Schema, Sink
from watersmeet.sinks.part_mark import Identity
from watersmeet.spec.model import Source
from watersmeet.state.store import LocalStore, Store


def replay_case(
    case: Mapping[str, Any], partitions: int = 2, store: Store | None = None
) -> list[dict[str, Any]]:
    """Return the output of each step of a case; see `runtime.replay.replay`.

    Args:
        store: an empty store for the state that the session's executors can reach; None: a directory.
    """
    with tempfile.TemporaryDirectory(prefix="watersmeet-replay-") as folder:
        state = store or LocalStore(Path(folder))
        outputs = replay(_add_row_numbers(case), lambda plan: _SparkCase(plan, state), partitions)
    for output in outputs:
        for entry in (*output.get("rows", ()), *(late["row"] for late in output.get("late", ()))):
            entry.pop(ROW, None)
    return outputs


def _add_row_numbers(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case with `ROW` in every stream that has no multiplicities.

    In a stream with multiplicities a retraction with another row number would not equal the row that it
    retracts. In changelog mode all streams have multiplicities.
    """
    changelog = case.get("options", {}).get("output_mode") == "changelog"
    streams = {}
    for name, stream in case.get("streams", {}).items():
        if changelog:
            streams[name] = {**stream, "changes": True}
        elif stream.get("changes"):
            streams[name] = stream
        else:
            streams[name] = {**stream, "columns": {**stream["columns"], ROW: "BIGINT"}}
    return {**case, "streams": streams}


class _CollectingSink(Sink):
    """A sink that keeps the rows of the tick in hand."""

    idempotent = True
    stages = True
    tells_rows = True

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        return

    def write(self, frame: Any, insert: str, tick: int, attempt: str) -> None:
        table: pa.Table = frame.toArrow()
        self.rows = [
            {name: _to_json_value(value) for name, value in row.items()} for row in table.to_pylist()
        ]

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return len(self.rows)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        return False

    def discard(self, attempt: str) -> None:
        self.rows = []


def _to_json_value(value: Any) -> Any:
    return to_json(value.replace(tzinfo=None) if getattr(value, "tzinfo", None) else value)


def _select_late_rows(source: Source, changes: Sequence[Change], records: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the changes that late records tell, but for those that cancel in the step.

    A record is told once per input that reads the source, and does not say whether its row was added.
    """
    if any(ROW in record for record in records):
        return [changes[number][0] for number in sorted({record[ROW] for record in records})]
    late = set(_comparable(source, records))
    keys = _comparable(source, [row for row, _ in changes])
    return drop_cancelled_changes([change for key, change in zip(keys, changes, strict=True) if key in late])


def _comparable(source: Source, rows: Sequence[Row]) -> list[str]:
    """Return a text per row that is the same for rows with equal values in the declared columns."""
    table = to_table(source.columns, rows, [1] * len(rows)).drop_columns([PARTITION])
    return [repr(row) for row in table.to_pylist()]


class _SparkCase:
    def __init__(self, plan: JobPlan, store: Store) -> None:
        self._plan = plan
        self._store = store
        self._spark: SparkSession = session.start(
            session.build_session_settings(master="local[2]", time_zone=plan.queries[0].options.time_zone)
        )
        self._tables = InMemoryTables()
        self._table_sources = {node.source.name: node.source for _, node in plan.lookups}
        self._out, self._late = _CollectingSink(), _CollectingSink()

    def open(self, partitions: int, clock_us: int) -> None:
        scanned = scan(self._spark, self._plan, lambda source: self._frame(source, []), keep_late=True)
        settings = TickSettings(keep_late=True, tasks_asked=True)
        restored = restore(
            self._plan,
            scanned.schemas,
            self._store,
            settings,
            started_us=clock_us,
            tables=table_readers(self._plan, scanned, self._table),
        )
        outputs = Outputs({QUERY: self._out}, late=self._late)
        takings, told = SinkRowCounter(self._spark), Descriptions(self._spark, "replay")
        self._driver = TickDriver(restored)
        self._ticks = SparkTicks(self._spark, restored.context, outputs, partitions, takings, told)

    @property
    def state(self) -> Mapping[str, int]:
        return self._driver.retained()[QUERY]

    def tick(self, step: CaseStep) -> CaseOutput:
        self._out.rows, self._late.rows = [], []
        for name, source in self._table_sources.items():
            self._tables.change(source, step.rows.get(name, []))
        reading: TickReading | None = None
        if any(step.rows.get(source.name) for source in self._plan.sources):
            scanned = scan(
                self._spark,
                self._plan,
                lambda source: self._frame(source, step.rows.get(source.name, [])),
                keep_late=True,
            )
            reading = TickReading(ingest_reports(scanned.sources, self._store))
        try:
            given = TickInput(step.clock_us, advances=step.advances, idle=step.idle, end=step.end)
            result = self._ticks.run(self._driver, reading, {}, given)
        except Exception as error:
            raise readable_error(error) from None
        return CaseOutput(self._out.rows, self._late_rows(step), result.queries[QUERY])

    def _late_rows(self, step: CaseStep) -> list[tuple[str, Row]]:
        """Return the late rows per stream: of a source as the step gives them, of a union as retained."""
        records: dict[str, list[Row]] = defaultdict(list)
        for entry in self._late.rows:
            if entry["reason"] == "late":
                records[entry["stream"]].append(json.loads(entry["record"]))
        sources = {source.name: source for source in self._plan.sources}
        return [
            (stream, row)
            for stream, rows in records.items()
            for row in (
                _select_late_rows(sources[stream], step.rows[stream], rows) if stream in sources else rows
            )
        ]

    def _table(self, source: Source) -> Table:
        def rows() -> DataFrame:
            return self._frame(source, [(row, 1) for row in self._tables.rows(source)])

        return Table(rows, lambda: self._tables.version(source))

    def _frame(self, source: Source, rows: list[tuple[Row, int]]) -> DataFrame:
        numbered = any(column.name == ROW for column in source.columns)
        given = [{**row, ROW: n} if numbered else row for n, (row, _) in enumerate(rows)]
        table = to_table(source.columns, given, [diff for _, diff in rows])
        columns = [f"CAST({quote_name(c.name)} AS {c.type}) AS {quote_name(c.name)}" for c in source.columns]
        return self._spark.createDataFrame(table).selectExpr(*columns, PARTITION, DIFF)
