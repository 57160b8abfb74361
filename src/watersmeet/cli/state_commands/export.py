"""Command `state export`: write a job's retained rows as Parquet files for DuckDB, Spark and others.

The command writes a file per side that retains rows, and `INDEX`, which describes each file. The files
exclude rows that the state still stores but that are released or deleted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from watersmeet.cli.state_commands.show import StateLocation, needs_job
from watersmeet.errors import EngineError, StateError, format_count
from watersmeet.event_time import Watermark
from watersmeet.names import format_column_name, input_of, is_computed
from watersmeet.plan.explain.wording import node_name
from watersmeet.plan.identity.origins import Origins, origins_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.runtime.coordinator.restore.changed_queries import Change
from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state
from watersmeet.runtime.coordinator.shapes import find_null_column
from watersmeet.state.copy import read_newest
from watersmeet.state.manifest import LiveRun, Manifest
from watersmeet.state.marks import MarkKind
from watersmeet.state.runs.layout import StoredColumn, null_column, origins_in
from watersmeet.state.runs.reader import MATCHED, retained_rows, schema_of
from watersmeet.state.store import Store

INDEX = "index.json"
SHOWN_MATCHED = "_matched"
"""`MATCHED` in the files, where no column of the rows is called so."""
MATCHES: tuple[MarkKind, ...] = ("matched", "count")


@dataclass(frozen=True)
class ExportedFile:
    """Parquet file of an export.

    Attributes:
        partial: True if the rows are partial aggregates.
        columns: the description of each column.
        matched: the column that says whether a row has had a match, or the number of its matches.
    """

    file: str
    query: str
    node: str
    input: str
    rows: int
    partial: bool
    columns: dict[str, str]
    matched: str | None = None

    @property
    def entry(self) -> dict[str, object]:
        """Entry of the file in `INDEX`."""
        return {
            "file": self.file,
            "query": self.query,
            "node": self.node,
            "input": self.input,
            "rows": self.rows,
            "partial": self.partial,
            "columns": self.columns,
            "matched": self.matched,
        }


@dataclass(frozen=True)
class _ExportedSide:
    """Retained rows of one side.

    Args:
        plan: Query, node and side of the plan; None if the job's text has changed.
    """

    query: str
    number: int
    name: str
    runs: Sequence[LiveRun]
    limits: dict[str, Watermark]
    plan: tuple[QueryPlan, NodePlan, SidePlan] | None

    @property
    def partial(self) -> bool:
        return any(live.run.stands_for for live in self.runs)


def export_state(place: StateLocation, to: Path) -> Iterator[str]:
    """Write the files, all or none of them, and yield a line of text for each.

    Args:
        to: a directory that is empty or does not exist yet.

    Raises:
        SpecError: ``place`` was named by its directory; only the job's text defines the meaning of columns.
        StateError: there is no state, it is damaged, or ``to`` is not empty or within the checkpoint.
        EngineError: the files cannot be written.
    """
    place.check_outside(to)
    plan = _plan_of(place)
    place.ticks()
    store, target = place.checkpoint.store, Path(os.path.realpath(to))  # a link stays one
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StateError(f"{to} is not empty", code="not-empty", hint="use an empty directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=".export-"))
        try:
            tick, files = read_newest(store, lambda manifest: _written(store, manifest, plan, folder))
            folder.chmod(0o755)
            os.replace(folder, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise EngineError(
            f"the rows cannot be written to {to}: {error.strerror}",
            code="cannot-write",
            hint="use a directory with free space that you may write to",
        ) from error
    for file in files:
        what = format_count(file.rows, "partial aggregate" if file.partial else "row")
        yield f"{file.file}: {what} of {file.query}/{file.input} ({file.node})"
    yield f"exported tick {tick:,} to {to}; {INDEX} describes the columns"


def _plan_of(place: StateLocation) -> JobPlan:
    from watersmeet.cli.job_file import job_in
    from watersmeet.objects.settings import store_of
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    if place.text is None:
        raise needs_job(place.named)
    infer = ColumnInference(str(place.checkpoint.root), store=store_of(place.settings))
    return plan_job(job_in(place.text, place.named, infer=infer))


def _written(store: Store, manifest: Manifest, plan: JobPlan, folder: Path) -> tuple[int, list[ExportedFile]]:
    """Delete the files of an earlier tick from ``folder``, then write those of one tick."""
    for old in folder.iterdir():
        old.unlink()
    files = [
        _file(store, kept, folder, number) for number, kept in enumerate(_retained_sides(manifest, plan), 1)
    ]
    index = {"tick": manifest.tick, "clock_us": manifest.clock_us, "files": [file.entry for file in files]}
    (folder / INDEX).write_text(json.dumps(index, ensure_ascii=False, indent=1), "utf-8")
    return manifest.tick, files


def _retained_sides(manifest: Manifest, plan: JobPlan) -> Iterator[_ExportedSide]:
    as_planned = plan_for_state(plan, manifest)
    changed = Change.of(manifest, as_planned).changed
    plans = {query.name: query for query in as_planned.queries if query.name not in changed}
    for query, state in manifest.queries.items():
        for number, node in enumerate(state.nodes):
            sides = _sides(plans.get(query), number)
            for name, own in node.arrangements.items():
                runs = [live for live in own.runs if live.run.stands_for != 0]
                if runs:
                    yield _ExportedSide(query, number, name, runs, own.limits, sides.get(name))
            if node.table is not None and node.table.runs:
                runs = [LiveRun(run=run) for run in node.table.runs]
                table = next((side for side in sides.values() if side[2] in side[1].tables), None)
                yield _ExportedSide(query, number, "table", runs, {}, table)


def _sides(query: QueryPlan | None, number: int) -> dict[str, tuple[QueryPlan, NodePlan, SidePlan]]:
    if query is None or number >= len(query.nodes):
        return {}
    node = query.nodes[number]
    return {side.name: (query, node, side) for side in (*node.sides, *node.tables)}


def _file(store: Store, kept: _ExportedSide, folder: Path, number: int) -> ExportedFile:
    stored = _columns(store, kept)
    matches = next((kind for kind in MATCHES if any(kind in live.marks for live in kept.runs)), None)
    kinds: dict[str, pa.DataType] = {}
    for live in kept.runs:
        schema = schema_of(store, live.run)
        if kept.plan is None and not kept.limits.keys() <= set(schema.names):
            raise StateError(
                f'query "{kept.query}" differs between the text and the state, so the event times of'
                f' "{kept.name}" are not known',
                code="changed-query",
                hint="pass the text with which the job last ran",
            )
        held = origins_in(schema)
        for column in stored:
            if column.origin in held:
                kinds.setdefault(column.name, schema.field(held[column.origin][0]).type)
    times = _times(kept)
    texts = _file_column_names(stored, kinds)
    title = input_of(kept.name)
    name = f"{number:02d}-" + re.sub(r"[^A-Za-z0-9_.-]", "_", f"{kept.query}.{title}")[:80] + ".parquet"
    fields = [
        pa.field(texts[column], times.get(column, kind)) for column, kind in kinds.items() if column in texts
    ]
    own, matched = {text: column for column, text in texts.items()}, None
    if matches is not None:
        matched = _free(SHOWN_MATCHED, own)
        own[matched] = MATCHED
        fields.append(pa.field(matched, pa.bool_() if matches == "matched" else pa.int32()))
    schema, rows = pa.schema(fields), 0
    with parquet.ParquetWriter(folder / name, schema, compression="zstd") as writer:
        for live in kept.runs:
            for batch in retained_rows(store, live, kept.limits, stored, matches):
                writer.write_batch(_to_file_columns(batch, schema, own))
                rows += batch.num_rows
    meanings = {texts[column.name]: column.text for column in stored if column.name in texts}
    node = f"node {kept.number + 1}" if kept.plan is None else node_name(kept.plan[0], kept.plan[1])
    return ExportedFile(name, kept.query, node, title, rows, kept.partial, meanings, matched)


def _columns(store: Store, kept: _ExportedSide) -> list[StoredColumn]:
    """Return the columns that the plan retains, or all stored columns if the plan does not say."""
    if kept.plan is not None and not kept.partial:
        query, node, side = kept.plan
        origins: Origins = origins_of(query.nodes)[node.number, side.name]
        own = [StoredColumn(name, origins[name].digest, origins[name].text) for name in side.kept]
        return [*own, *(find_null_column(name, origins[name]) for name in side.nullable)]
    there: dict[str, StoredColumn] = {}
    for live in kept.runs:
        for origin, names in origins_in(schema_of(store, live.run)).items():
            there.setdefault(origin, StoredColumn(names[0], origin, format_column_name(names[0])))
    return list(there.values())


def _times(kept: _ExportedSide) -> dict[str, pa.DataType]:
    """Return the type of each TIMESTAMP column.

    An instant has a time zone, whatever type the state stores it in.
    """
    if kept.plan is None:
        return {}
    side = kept.plan[2]
    declared = {
        name: str(column.type)
        for i in side.inputs
        for column in i.columns
        for name in (column.name, joined_name(i.alias, column.name))
    }
    kinds = {"TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us")}
    return {name: kinds[type_] for name, type_ in declared.items() if type_ in kinds}


def _file_column_names(stored: Sequence[StoredColumn], kinds: dict[str, pa.DataType]) -> dict[str, str]:
    """Map each column of the state to its name in the file.

    Computed columns are named after their expression. No two names are equal when case is ignored.
    """
    nulls = {null_column(column.name) for column in stored}
    there = [column for column in stored if column.name not in nulls and column.name in kinds]
    names = {column.name: column.name for column in there if not is_computed(column.name)}
    for column in there:
        if column.name not in names:
            taken = {name.lower() for name in names.values()}
            name = column.text if column.text.lower() not in taken else format_column_name(column.name)
            names[column.name] = _free(name, taken)
    return {column.name: names[column.name] for column in there}


def _free(name: str, taken: Collection[str]) -> str:
    """Make the name differ from all ``taken`` names, ignoring case, by leading underscores."""
    lower = {other.lower() for other in taken}
    while name.lower() in lower:
        name = f"_{name}"
    return name


def _to_file_columns(batch: pa.RecordBatch, schema: pa.Schema, own: dict[str, str]) -> pa.RecordBatch:
    """Convert the rows to the columns of the file."""
    arrays = []
    for field in schema:
        name = own[field.name]
        if name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(name)
        if array.type != field.type:
            array = array.cast(field.type)
        if null_column(name) in batch.schema.names:
            array = pc.if_else(batch.column(null_column(name)), pa.scalar(None, field.type), array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
