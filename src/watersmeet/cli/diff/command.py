"""`diff`: what a job has put out against the batch answer of its queries, over what it has read so far."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from watersmeet.cli.diff.duckdb_rows import LocalTables
from watersmeet.cli.diff.outputs import EmittedRows, Wanted, output_of
from watersmeet.cli.diff.replay import ReplayedTicks, inputs_of, reads_changes, tick_dependence
from watersmeet.cli.diff.report import QueryReport, Step, is_terminal, print_json, print_text, progress
from watersmeet.cli.diff.source_rows import SourceFiles, WholeTables, collect_source_files, history_of
from watersmeet.cli.job_file import job_in, settings_in
from watersmeet.cli.output import to_stderr
from watersmeet.diff.bags import (
    CHANGED_FILE,
    CHANGED_QUERY,
    LATER,
    SHED,
    Differences,
    differences,
    fetch_rows,
    open_database,
    quote_identifier,
    write,
)
from watersmeet.diff.dialect import Dialect, UnsupportedInDialect
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.diff.explanations import QueryFacts, collect_query_facts
from watersmeet.diff.statement import group_columns, statement
from watersmeet.errors import EngineError, SpecError, StateError, WatersmeetError, near_names, raise_all
from watersmeet.spec.model import Insert, Job, Lateness, OutputMode
from watersmeet.spec.time_zones import UTC

DUCKDB, SPARK, TICKS = "duckdb", "spark", "ticks"
NOT_COMPARED = "not-compared"
_BY_DUCKDB = "what changing tables hold is told by DuckDB alone"


@dataclass(frozen=True)
class DiffFlags:
    """The flags, as they are written."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    engine: str
    limit: int
    to: str | None
    as_json: bool
    strict: bool


@dataclass(frozen=True)
class _Job:
    """Inputs of the comparison of one job.

    Attributes:
        facts: Facts of each query.
        read: Files of each source.
        tables: Contents, as far as known, of the tables that are read as a whole.
        ticks: Runs ticks again.
    """

    job: Job
    plan: Any
    tick: int | None
    facts: Mapping[str, QueryFacts]
    read: Mapping[str, SourceFiles]
    outputs: Mapping[str, str]
    tables: WholeTables
    ticks: ReplayedTicks


def diff_text(
    text: str, source_name: str, overrides: Mapping[str, str], default_checkpoint: Path, asked: DiffFlags
) -> bool:
    """Compare all queries of a job and print what differs; whether there is nothing without a reason.

    Raises:
        WatersmeetError: the job or the flags are wrong, or something cannot be compared, which is named.
    """
    import duckdb

    began = time.monotonic()
    settings = settings_in(text, source_name, overrides)
    compared, tick_now = _prepare_comparison(
        text, source_name, overrides, settings, default_checkpoint, asked
    )
    with tempfile.TemporaryDirectory(prefix="watersmeet_") as folder:
        db = open_database(folder)
        try:
            undecided: list[WatersmeetError] = []
            steps = len(compared.read) + 2 * len(compared.plan.queries)
            with progress(steps, shown=not asked.as_json and is_terminal(sys.stderr)) as step:
                shown = list(
                    _compare_queries(db, folder, compared, asked, settings, tick_now, undecided, step)
                )
        except duckdb.Error as error:
            raise EngineError(
                f"DuckDB cannot read the rows to compare: {str(error).splitlines()[0]}",
                code="not-compared",
                hint="check whether the files changed after they were written, or pass others with --output"
                " or --input",
            ) from None
        finally:
            db.close()
    if asked.as_json:
        print_json(shown)
    elif shown:
        print_text(shown, compared.tick, time.monotonic() - began, asked.to)
    raise_all(undecided)
    return not any(of.differences.unexplained or (asked.strict and of.differences.counts) for of in shown)


def _prepare_comparison(
    text: str,
    source_name: str,
    overrides: Mapping[str, str],
    settings: Mapping[str, str],
    default_checkpoint: Path,
    asked: DiffFlags,
) -> tuple[_Job, Callable[[], int | None]]:
    from watersmeet.objects.settings import store_of
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state
    from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
    from watersmeet.runtime.spark.job.column_inference import ColumnInference
    from watersmeet.state.manifest import load_newest

    directory = settings.get("checkpoint", str(default_checkpoint))
    remote = store_of(settings)
    store = Checkpoint(directory, remote).store
    manifest = load_newest(store)
    infer = ColumnInference(directory, None if asked.as_json else to_stderr, remote)
    job = job_in(text, source_name, overrides, infer)
    inserts = {insert.name: insert for insert in job.inserts if not insert.is_index}
    if not inserts:
        raise SpecError("the job has no query to compare", code="no-query", hint="add an INSERT")
    outputs = _pairs("--output", asked.outputs)
    for name in outputs:
        if name not in inserts:
            raise SpecError(
                f'--output {name}: the job has no query "{name}"',
                code="wrong-option",
                hint=near_names(name, inserts),
            )
    planned = plan = plan_job(job)
    facts: dict[str, QueryFacts] = {}
    if manifest is not None:
        plan = plan_for_state(plan, manifest)
        for query in plan.queries:
            if manifest.fingerprints.get(query.name) != query.fingerprint:
                raise StateError(
                    f'the state in {directory} belongs to another version of query "{query.name}"',
                    code="plan-changed",
                    hint="pass the job's text with which the state was made",
                )
            facts[query.name] = collect_query_facts(
                manifest,
                query.name,
                query.shared_inputs,
                late_by_column=query.options.lateness is Lateness.COLUMN,
                settled=query.options.mode is OutputMode.CHANGELOG,
            )
    tick = None if manifest is None else manifest.tick
    history = cache(partial(history_of, store, tick or 0))
    keeps_late = "late_output" in job.run
    read = collect_source_files(
        plan, manifest, store, _pairs("--input", asked.inputs), history, keeps_late=keeps_late
    )
    tables = WholeTables(plan, manifest, history)
    ticks = ReplayedTicks(job, planned, plan, read, manifest, store, history)

    def tick_now() -> int | None:
        newest = load_newest(store)
        return None if newest is None else newest.tick

    return _Job(job, plan, tick, facts, {**tables.read, **read}, outputs, tables, ticks), tick_now


def _pairs(flag: str, written: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise SpecError(
                f"{flag} {text!r} is not NAME=PATH", code="wrong-option", hint=f"such as {flag} name=path/"
            )
        if name.strip() in pairs:
            raise SpecError(f'{flag} names "{name.strip()}" twice', code="wrong-option", hint="name it once")
        pairs[name.strip()] = value.strip()
    return pairs


def _compare_queries(
    db: Any,
    folder: str,
    compared: _Job,
    asked: DiffFlags,
    settings: Mapping[str, str],
    tick_now: Callable[[], int | None],
    undecided: list[WatersmeetError],
    step: Step,
) -> Iterator[QueryReport]:
    """Yield the differences of each query, in the order of the job's text.

    Args:
        undecided: Receives the reasons why other queries cannot be compared.
        step: Function that receives a description of each step.
    """
    import duckdb

    answers = _Answers(db, folder, compared, asked.engine, settings, step)
    inserts = [insert for insert in compared.job.inserts if not insert.is_index]
    for nth, insert in enumerate(inserts):
        query = next(q for q in compared.plan.queries if q.name == insert.name)
        facts = compared.facts.get(insert.name, QueryFacts(settled=False))
        own = {source.name for given in inputs_of(insert) for source in given.sources}
        read = {name: of for name, of in compared.read.items() if name in own}
        step(f"{insert.name}: batch answer")
        try:
            ticks_matter = tick_dependence(insert, compared.tables)
            if ticks_matter is None:
                answer, by, why = answers.first(insert, facts)
            else:
                answer, by, why = compared.ticks.answer(db, insert, f"ticks{nth}", ticks_matter), TICKS, ""
        except WatersmeetError as error:
            if error.code != NOT_COMPARED:
                raise
            undecided += [] if error in undecided else [error]
            continue
        names = [output.name for output in insert.query.outputs]
        wanted = Wanted(
            insert.name,
            insert.sink,
            names,
            query.options.mode if not insert.sink.primary_key else OutputMode.APPEND,
            compared.tick,
            compared.outputs.get(insert.name),
            sum(other.sink.name == insert.sink.name for other in inserts) == 1,
        )
        step(f"{insert.name}: output")
        try:
            output = output_of(db, wanted, answer, folder)
            whole = _query_wide_reason(facts, read)
            if whole is None and _has_later_rows(output, compared.tick, tick_now):
                whole = LATER
            rows = differences(
                db,
                names,
                answer,
                output.relation,
                [partial(answers._recompute, insert, facts, without) for without in facts.late_inputs]
                if ticks_matter is None
                else [],
                groups=group_columns(insert.query) if ticks_matter is None else (),
                whole=whole,
                limit=asked.limit,
            )
        except duckdb.Error as error:
            raise EngineError(
                f'what "{insert.name}" has written cannot be read: {str(error).splitlines()[0]}',
                code="not-compared",
                hint="check that this is the output of this query",
            ) from None
        if asked.to is not None and rows.counts:
            write(db, names, _file(asked.to, insert.name if len(inserts) > 1 else None))
        late = [] if ticks_matter is None else _late_note(facts)
        notes = [note for of in read.values() for note in of.notes()]
        yield QueryReport(insert.name, rows, facts, by, why, [*notes, *_topic_notes(read, rows), *late])


def _late_note(facts: QueryFacts) -> list[str]:
    """Return a note about late rows, which are neither in the answer nor in the output.

    Empty if there are no late rows.
    """
    late = ", ".join(f"{rows:,} of {alias}" for alias, rows in facts.counted("late").items())
    return [f"rows that were late are neither in the answer nor in the output: {late}"] if late else []


def _topic_notes(read: Mapping[str, SourceFiles], rows: Differences) -> list[str]:
    """Return notes about topics whose missing records may explain differences without a reason."""
    if not rows.unexplained:
        return []
    return [
        f"{name}: records that its topics have no more, by retention or compaction, are not in the batch"
        " answer; watersmeet why says if there are such"
        for name, own in read.items()
        if own.ends
    ]


def _has_later_rows(output: EmittedRows, tick: int | None, tick_now: Callable[[], int | None]) -> bool:
    """Return True if the output has, or may have, rows of ticks after the state was read."""
    return output.is_later or (output.may_be_later and tick is not None and tick_now() != tick)


def _file(to: str, query: str | None) -> str:
    path = Path(to)
    return to if query is None else str(path.with_name(f"{path.stem}-{query.replace('/', '_')}{path.suffix}"))


def _query_wide_reason(facts: QueryFacts, read: Mapping[str, SourceFiles]) -> str | None:
    """Return the reason for differences that have no reason of their own; None if there is none.

    It applies when facts about the query show that rows may differ, but not which rows.

    Args:
        read: Sources of the query.
    """
    if facts.counted("shed"):
        return SHED
    if facts.complete_from:
        return CHANGED_QUERY
    if any(of.changed or of.gone for of in read.values()):
        return CHANGED_FILE
    return None


class _Answers:
    """Batch answers, by DuckDB where that is certain, else by Spark, which is started when it is needed."""

    def __init__(
        self,
        db: Any,
        folder: str,
        compared: _Job,
        engine: str,
        settings: Mapping[str, str],
        step: Step = lambda name: None,
    ) -> None:
        self._db = db
        self._folder = folder
        self._compared = compared
        self._engine = engine
        self._settings = settings
        self._here = LocalTables(db, compared.read, compared.job.options.time_zone, step)
        self._spark: Any = None
        self._of_spark: set[str] = set()
        self._number = 0
        self._now_us = time.time_ns() // 1000

    def first(self, insert: Insert, facts: QueryFacts) -> tuple[str, str, str]:
        """Compute a query's batch answer.

        Returns:
            The relation, the engine that computed it, and why DuckDB did not (empty if DuckDB did).
        """
        why = ""
        if self._engine != SPARK:
            try:
                return self._compute_with_duckdb(insert, facts, frozenset()), DUCKDB, ""
            except UnsupportedInDialect as uncommon:
                why = str(uncommon)
                if self._engine == DUCKDB or reads_changes(insert):
                    raise EngineError(
                        f'"{insert.name}": DuckDB may answer differently from Spark: {why}',
                        code="not-compared",
                        hint=_BY_DUCKDB if reads_changes(insert) else "--engine spark",
                    ) from None
        elif reads_changes(insert):
            raise EngineError(
                f'"{insert.name}": diff cannot run a query over changing tables on Spark',
                code="not-compared",
                hint=_BY_DUCKDB,
            )
        self._of_spark.add(insert.name)
        return self._compute_with_spark(insert, facts, frozenset()), SPARK, why

    def _recompute(self, insert: Insert, facts: QueryFacts, without: frozenset[str]) -> str:
        by = self._compute_with_spark if insert.name in self._of_spark else self._compute_with_duckdb
        return by(insert, facts, without)

    def _sql(
        self,
        insert: Insert,
        facts: QueryFacts,
        dialect: Dialect,
        ordered: frozenset[str],
        without: frozenset[str],
    ) -> str:
        return statement(
            insert.query,
            dialect,
            facts,
            ordered=ordered,
            allowed_lateness=self._compared.job.options.allowed_lateness,
            without=without,
            now_us=self._now_us,
        )

    def _compute_with_duckdb(self, insert: Insert, facts: QueryFacts, without: frozenset[str]) -> str:
        import duckdb

        utc = self._compared.job.options.time_zone == UTC
        ordered = frozenset(name for name, read in self._compared.read.items() if not read.named)
        sql = self._sql(insert, facts, DuckDb(self._here, utc=utc), ordered, without)
        name = self._new()
        try:
            fetch_rows(self._db, f"CREATE OR REPLACE TABLE {quote_identifier(name)} AS {sql}")
        except duckdb.Error as error:
            raise UnsupportedInDialect(str(error).splitlines()[0]) from None
        return quote_identifier(name)

    def _compute_with_spark(self, insert: Insert, facts: QueryFacts, without: frozenset[str]) -> str:
        from watersmeet.cli.diff.spark_answer import SparkAnswers, check_servers
        from watersmeet.runtime.spark.start_failures import check_pyspark

        if self._spark is None:
            check_pyspark(f'the batch answer of "{insert.name}", which Spark computes,')
            compared = self._compared
            sinks = [i.sink for i in compared.job.inserts if i.name not in compared.outputs]
            check_servers(compared.read, sinks, compared.job.settings)
            self._spark = SparkAnswers(self._compared.job, self._compared.read, self._settings)
        ordered = frozenset(name for name, read in self._compared.read.items() if not read.named)
        sql = self._sql(insert, facts, self._spark.dialect, ordered, without)
        folder = f"{self._folder}/{self._new()}"
        return str(self._spark.answer(self._db, sql, folder))

    def _new(self) -> str:
        self._number += 1
        return f"answer{self._number}"
