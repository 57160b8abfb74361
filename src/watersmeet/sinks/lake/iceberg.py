"""Iceberg tables, by the library `pyiceberg`: no JVM.

What a table knows of a writer is a property of the table, set in the transaction that adds the rows (what
snapshots say is gone when they expire): tick, identity and attempt. The snapshots say it, too, for people.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

from watersmeet.errors import EngineError, SpecError, WatersmeetError, raise_all
from watersmeet.names import DELETED
from watersmeet.sinks.base import RowPrinter, StagedPart
from watersmeet.sinks.lake.columns import TableField, columns_wanted, misfits
from watersmeet.sinks.lake.commits import (
    Commit,
    CommittedTick,
    OvertakenError,
    TableWriter,
    Writer,
    number_of,
)
from watersmeet.sinks.lake.data_files import FieldIds, ids_in
from watersmeet.sinks.lake.storage import Storage, is_s3, path_in
from watersmeet.sinks.lake.table_sink import LakeSink
from watersmeet.sinks.part_mark import Identity
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.lake import IcebergOptions, catalog_options, iceberg_problems, library
from watersmeet.spec.secrets import HIDDEN, public, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_KEYS_PER_CONDITION = 200
"""Of a merge, in one condition of several columns: conditions are trees, and walked recursively."""


class IcebergSink(LakeSink):
    """Options: ``table``; ``catalog.…`` of the catalog, by its own names."""

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        raise_all(iceberg_problems(spec))
        library("pyiceberg", "iceberg", spec)
        super().__init__(spec, IcebergTable(spec))


class IcebergTable:
    """A `LakeTable`; see the module."""

    widened = True

    def __init__(self, spec: SinkSpec) -> None:
        self._sink = f'iceberg sink "{spec.name}"'
        self._name = IcebergOptions.of(spec.options).table
        self._options = catalog_options(spec.options)
        self._catalog_name = self._options.pop("name", "default")
        self.place = f'table "{self._name}"'
        self.data = ""
        self.ids: FieldIds = {}
        self._key = spec.primary_key
        self._storage = Storage()
        self._scheme = ""
        self._catalog: Any = None
        self._table: Any = None
        self._wanted: list[pa.Schema] = []
        self._checked: str | None = None
        self._seen_snapshot: int | None = None

    @property
    def storage(self) -> Storage:
        return self._storage

    def open(self, columns: Sequence[Column]) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import TableAlreadyExistsError

        wanted, problems = columns_wanted(columns, self._sink, widened=True, forbidden="")
        problems += _key_problems(self._key, self._sink)
        raise_all(problems)
        self._wanted.append(wanted)
        self._checked = None
        try:
            self._catalog = load_catalog(self._catalog_name, **self._options)
            if not self._catalog.table_exists(self._name):
                self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                with suppress(TableAlreadyExistsError):  # somebody else was faster
                    self._catalog.create_table(self._name, schema=wanted)
            self._load()
        except WatersmeetError:
            raise
        except Exception as error:
            raise self._catalog_error(error) from None

    def look(self, writer: Writer) -> TableWriter:
        return _read_writer(self._load().properties, writer)

    def peek(self, writer: Writer) -> CommittedTick | None:
        from pyiceberg.catalog import load_catalog

        try:
            catalog = load_catalog(self._catalog_name, **self._options)
            if not catalog.table_exists(self._name):
                return None
            return _read_writer(catalog.load_table(self._name).properties, writer).last
        except Exception as error:
            raise self._catalog_error(error) from None

    def named(self) -> set[str]:
        return {task.file.file_path.rsplit("/", 1)[-1] for task in self._load().scan().plan_files()}

    def tick_identity(self, writer: Writer, tick: int) -> Identity | None:
        last = self._load().properties.get(_property(writer))
        said = {} if last is None else json.loads(last)
        return said["made_from"] if said.get("tick") == tick else None

    def removals(self, owner: str) -> list[str]:
        from pyiceberg.table.snapshots import TOTAL_RECORDS

        metadata = self._table.metadata
        if metadata.current_snapshot_id == self._seen_snapshot:
            return []
        self._seen_snapshot = metadata.current_snapshot_id
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        lineage = []
        snapshot = snapshots.get(metadata.current_snapshot_id)
        while snapshot is not None:
            lineage.append(snapshot)
            snapshot = snapshots.get(snapshot.parent_snapshot_id)
        own = [one for one in snapshots.values() if _summary_value(one, "watersmeet.job") == owner]
        newest = max(own, key=lambda one: (one.sequence_number or 0, one.timestamp_ms), default=None)
        told = []
        if newest is not None and newest.snapshot_id not in {snapshot.snapshot_id for snapshot in lineage}:
            tick = _summary_value(newest, "watersmeet.tick")
            told.append(f"a rollback to before tick {tick} (snapshot {newest.snapshot_id})")
        for snapshot in lineage:
            if snapshot is newest:
                break
            is_empty = _summary_value(snapshot, TOTAL_RECORDS) == "0"
            if is_empty and _takes_away(snapshot) and not _is_own(snapshot):
                told.append(f"a deletion of all rows (snapshot {snapshot.snapshot_id})")
        return told

    def append(self, files: Sequence[StagedPart], commit: Commit) -> None:
        paths = [f"{self._scheme}{file['path']}" for file in files]
        others = {name for file in files for name, ids in file["ids"].items() if ids != self.ids.get(name)}
        if others:
            raise EngineError(
                f"{self._sink}: the column"
                f" {' and '.join(f'“{name}”' for name in sorted(others))} of {self.place}"
                f" was replaced while rows of tick {commit.tick} were written: the tick was not published",
                code="table-changed",
                hint="run again, which repeats the tick with the table's current columns",
            )
        with self._transaction(commit) as (transaction, said):
            transaction.add_files(paths, snapshot_properties=said, check_duplicate_files=False)

    def merge(self, rows: pa.Table, key: Sequence[str], commit: Commit) -> None:
        import pyarrow.compute as pc

        new = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        with self._transaction(commit) as (transaction, said):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that there is nothing to delete
                for condition in _with_keys(rows.select(list(key))):
                    transaction.delete(condition, snapshot_properties=said)
            # The snapshot of it is there even without rows: by it others see that they were overtaken.
            transaction.append(new, snapshot_properties=said)

    def fence(self, writer: Writer, number: int) -> None:
        with self._own_commit() as table, table.transaction() as transaction:
            said = {"watersmeet.fence": str(number)}
            with transaction.update_snapshot(snapshot_properties=said).fast_append():
                pass  # a snapshot without rows: by it others see that they were overtaken
            transaction.set_properties({f"{_property(writer)}.fence": str(number)})

    @contextmanager
    def _transaction(self, commit: Commit) -> Iterator[tuple[Any, dict[str, str]]]:
        """Open a transaction that also records the commit in the table's properties.

        Yields:
            The transaction, and the properties of its snapshots.
        """
        writer = commit.writer
        said = {
            "watersmeet.job": writer.owner,
            "watersmeet.insert": writer.insert,
            "watersmeet.tick": str(commit.tick),
        }
        told = {
            "insert": writer.insert,
            "tick": commit.tick,
            "made_from": dict(commit.tick_identity),
            "attempt": commit.as_committed.attempt,
        }
        with self._own_commit() as table, table.transaction() as transaction:
            yield transaction, said
            transaction.set_properties({_property(writer): json.dumps(told, sort_keys=True)})

    @contextmanager
    def _own_commit(self) -> Iterator[Any]:
        """Yield the table for a commit that fails if the table changed since it was read.

        If no commit of others was unseen before, none is unseen after it.
        """
        is_seen = self._seen_snapshot == self._table.metadata.current_snapshot_id
        with _detect_conflicts(self._table) as table:
            yield table
        if is_seen:
            self._seen_snapshot = self._table.metadata.current_snapshot_id

    def _load(self) -> Any:
        """Load the current table, and check it if others changed it.

        Raises:
            SeveralErrors, SpecError: The table does not accept the rows.
        """
        self._table = self._catalog.load_table(self._name)
        metadata = self._table.metadata
        told = repr((metadata.location, self._table.schema(), self._table.spec(), metadata.format_version))
        if told != self._checked:
            self._check()
            self._checked = told
        return self._table

    def _check(self) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        table, location = self._table, self._table.location()
        problems: list[WatersmeetError] = [
            SpecError(f"{self._sink}: {self.place} {said}", code="table-not-supported", hint=hint)
            for said, hint in _unsupported_features(table)
        ]
        arrow = schema_to_pyarrow(table.schema())
        held = [TableField(field.name, field.type, not field.nullable) for field in arrow]
        for wanted in self._wanted:
            problems += misfits(wanted, held, self._sink, self.place)
        raise_all(list({str(problem): problem for problem in problems}.values()))
        self.ids = ids_in(arrow)
        options = self._options
        self._storage = Storage(is_s3(location), options.get("s3.endpoint", ""), options.get("s3.region", ""))
        self._scheme = "s3://" if self._storage.s3 else "file://"
        self.data = f"{path_in(location)}/data"

    def _catalog_error(self, error: Exception) -> EngineError:
        return EngineError(
            f"{self._sink} cannot reach {self.place}: {self.shown(error)}",
            code="sink-not-writable",
            hint="check the catalog's options ('catalog.type', 'catalog.uri', 'catalog.warehouse'), its"
            " libraries, and your permission to write",
        )

    def shown(self, error: object) -> str:
        text = str(error)
        told = {**getattr(self._catalog, "properties", {}), **self._options}  # those of the environment, too
        hidden = {
            str(value)
            for name, value in told.items()
            if len(str(value)) > 2 and public(name, str(value)) != str(value)
        }
        for value in sorted(hidden, key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        return without_secrets(text)


class _ConflictCatalog:
    """A catalog that raises `OvertakenError` if another writer committed first.

    `pyiceberg` does not retry after that error: the commits of others have to be inspected first.
    """

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any) -> Any:
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(*arguments)
        except CommitFailedException as error:
            raise OvertakenError from error


@contextmanager
def _detect_conflicts(table: Any) -> Iterator[Any]:
    """Yield the table such that a commit fails if the table changed since it was read."""
    catalog = table.catalog
    table.catalog = _ConflictCatalog(catalog)
    try:
        yield table
    finally:
        table.catalog = catalog


def _with_keys(keys: pa.Table) -> Iterator[Any]:
    """Yield conditions that together match all rows with these keys."""
    made: Any = import_module("pyiceberg.expressions")
    if len(keys.column_names) == 1:
        yield made.In(keys.column_names[0], keys.column(0).to_pylist())
        return
    for begin in range(0, keys.num_rows, _KEYS_PER_CONDITION):
        rows = keys.slice(begin, _KEYS_PER_CONDITION).to_pylist()
        equal = [[made.EqualTo(name, value) for name, value in row.items()] for row in rows]
        yield reduce(made.Or, [reduce(made.And, of_row) for of_row in equal])


def _key_problems(key: Sequence[str], sink: str) -> list[WatersmeetError]:
    """List problems of a PRIMARY KEY: `pyiceberg` reads a dot in a name as field access."""
    return [
        SpecError(
            f'{sink}: the PRIMARY KEY column "{name}" has a dot in its name, which pyiceberg cannot handle',
            code="column-name",
            hint="rename it with AS",
        )
        for name in key
        if "." in name
    ]


def _read_writer(properties: Mapping[str, str], writer: Writer) -> TableWriter:
    last, fence = properties.get(_property(writer)), properties.get(f"{_property(writer)}.fence")
    number = None if fence is None else int(fence)
    if last is None:
        return TableWriter(None, number)
    said = json.loads(last)
    return TableWriter(CommittedTick(said["tick"], number_of(said["made_from"]), said["attempt"]), number)


def _unsupported_features(table: Any) -> list[tuple[str, str]]:
    """List the table's features that commits of this sink would not respect.

    Returns:
        Pairs of a description and a hint what to do.
    """
    said = []
    if not table.spec().is_unpartitioned():
        columns = ", ".join(field.name for field in table.spec().fields)
        said.append((f"is partitioned by {columns}", "write to a table without partitions"))
    if table.metadata.format_version > 2:
        said.append((f"is of format {table.metadata.format_version}", "write to a table of format 1 or 2"))
    scheme = table.location().split(":", 1)[0] if "://" in table.location() else "file"
    if scheme != "file" and not is_s3(table.location()):
        said.append((f'lies in "{scheme}:"', "write to a table in S3 or in a local or mounted directory"))
    return said


def _summary_value(snapshot: Any, name: str) -> str | None:
    """Return what a snapshot's summary has by this name; None: nothing."""
    return None if snapshot.summary is None else snapshot.summary.get(name)


def _is_own(snapshot: Any) -> bool:
    return any(_summary_value(snapshot, f"watersmeet.{what}") is not None for what in ("job", "fence"))


def _takes_away(snapshot: Any) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation.value in ("delete", "overwrite")


def _property(writer: Writer) -> str:
    return f"watersmeet.{number_of(writer.owner):016x}.{number_of(writer.insert):016x}"
