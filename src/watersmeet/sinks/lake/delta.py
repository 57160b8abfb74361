"""Delta tables, by the library `deltalake`: no JVM.

What a table knows of a writer are application transactions of its log, which checkpoints keep: one has the
tick as its version, and beside it, in the same commit, one each a number of the tick's identity, of the
attempt, and of the fence. The whole identity is in the commit's own information, as long as the log has it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from watersmeet.durable_files import sync_all
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
    identity_as_text,
    identity_from,
    number_of,
)
from watersmeet.sinks.lake.data_files import FieldIds
from watersmeet.sinks.lake.storage import Storage, is_s3, path_in
from watersmeet.sinks.lake.table_sink import LakeSink
from watersmeet.sinks.part_mark import Identity
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.files import path_of
from watersmeet.spec.options.lake import DeltaOptions, delta_problems, library
from watersmeet.spec.secrets import without_secrets

FORBIDDEN = " ,;{}()\n\t=\0"
"""What Delta allows in no name of a column, unless names are mapped; its library cuts names at a NUL."""
_FEATURES = frozenset({
    "appendOnly", "invariants", "timestampNtz", "checkConstraints", "changeDataFeed", "generatedColumns",
    "identityColumns", "columnMapping", "domainMetadata", "v2Checkpoint",
})  # fmt: skip
"""Of a protocol: those that say nothing of rows, and those of which `_unsupported_features` tells whether
they are used."""
_COMPUTED = ("delta.generation", "delta.identity", "delta.invariants")
"""Of a column's own properties."""
_HISTORY = 30
"""Commits looked through for the whole of an identity, for a message, and for removals when a run begins."""
_MAX_COMMITS = 1000
"""Others' commits looked through for removals between two of a run."""
_REPLACES = re.compile("RESTORE|TRUNCATE|(CREATE OR )?REPLACE TABLE.*")
"""Operations after which rows that were there are not."""
_OF_ALL = ("[]", '["true"]', "true")
"""Conditions of others' commits that hold for all rows; Spark writes a list in JSON."""
_META = "watersmeet"
_DRAWN = re.compile("\\x1b\\[[0-9;]*m|\u21b3")
"""Colours and arrows in what the library says."""


class DeltaSink(LakeSink):
    """Options: ``path``; of S3 ``endpoint`` and ``region``."""

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        raise_all(delta_problems(spec))
        library("deltalake", "delta", spec)
        super().__init__(spec, DeltaLakeTable(spec))


class DeltaLakeTable:
    """A `LakeTable`; see the module."""

    widened = False
    ids: FieldIds = MappingProxyType({})

    def __init__(self, spec: SinkSpec) -> None:
        self._sink = f'delta sink "{spec.name}"'
        place = path_of(spec.options)
        options = DeltaOptions.of(spec.options)
        endpoint, region = options.endpoint, options.region
        self._storage = Storage(is_s3(place), endpoint, region)
        self.data = path_in(place)
        self.place = f"s3://{self.data}" if self._storage.s3 else self.data
        self._options = _storage_options(endpoint, region) if self._storage.s3 else None
        self._is_keyed = bool(spec.primary_key)
        self._wanted: list[pa.Schema] = []
        self._checked: str | None = None
        self._table: Any = None
        self._seen_version: int | None = None

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Storage options in the format of the Delta library."""
        return self._options

    def open(self, columns: Sequence[Column]) -> None:
        from deltalake import DeltaTable

        wanted, problems = columns_wanted(columns, self._sink, widened=False, forbidden=FORBIDDEN)
        raise_all(problems)
        if self._storage.s3:
            raise_all(_unsafe(self._sink))
        self._wanted.append(wanted)
        self._checked = None
        try:
            self._storage.make_folder(self.data)
            if not DeltaTable.is_deltatable(self.place, storage_options=self._options):
                DeltaTable.create(self.place, wanted, mode="ignore", storage_options=self._options)
            self._load()
        except WatersmeetError:
            raise
        except Exception as error:
            raise EngineError(
                f"{self._sink} cannot write to {self.place}: {self.shown(error)}",
                code="sink-not-writable",
                hint="check the path, your permission to write there, and the credentials in the environment",
            ) from error

    def look(self, writer: Writer) -> TableWriter:
        return _read_writer(self._load(), writer)

    def peek(self, writer: Writer) -> CommittedTick | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.place, storage_options=self._options):
            return None
        return _read_writer(DeltaTable(self.place, storage_options=self._options), writer).last

    def shown(self, error: object) -> str:
        return without_secrets(" ".join(_DRAWN.sub("", str(error)).split()))

    def named(self) -> set[str]:
        return {uri.rsplit("/", 1)[-1] for uri in self._load().file_uris()}

    def tick_identity(self, writer: Writer, tick: int) -> Identity | None:
        """Return the full identity of a committed tick, if the log still has it; else None."""
        for commit in self._load().history(_HISTORY):
            told: Mapping[str, Any] = identity_from(commit.get(_META)) or {}
            if told.get("app") == _app(writer) and told.get("tick") == tick:
                return identity_from(told.get("made_from"))
        return None

    def removals(self, owner: str) -> list[str]:
        since, now = self._seen_version, self._table.version()
        self._seen_version = now
        if since == now:
            return []
        if since is not None and since > now:
            since = None  # the table was made anew
        told = list[str]()
        for commit in self._table.history(_HISTORY if since is None else min(now - since, _MAX_COMMITS)):
            own: Mapping[str, Any] = identity_from(commit.get(_META)) or {}
            if since is None and str(own.get("app", "")).startswith(_app_prefix(owner)):
                break
            if not own and _removes(commit["operation"], commit.get("operationParameters", {})):
                told.append(f"{commit['operation']} (version {commit['version']})")
        return told[::-1]

    def append(self, files: Sequence[StagedPart], commit: Commit) -> None:
        from deltalake.transaction import AddAction

        begin = len(self.data) + 1
        adds = [
            AddAction(
                path=str(file["path"])[begin:],
                size=int(file["size"]),
                partition_values={},
                modification_time=int(file["written_ms"]),
                data_change=True,
                stats=json.dumps(file["stats"], ensure_ascii=True),
            )
            for file in files
        ]
        if not self._storage.s3:
            sync_all(sorted({os.path.dirname(str(file["path"])) for file in files} | {self.data}))
        self._commit(adds, self._properties(commit))

    def merge(self, rows: pa.Table, key: Sequence[str], commit: Commit) -> None:
        from deltalake.exceptions import CommitFailedError

        table, is_seen = self._table, self._is_seen
        names = [name for name in rows.column_names if name != DELETED]
        values = {_column_sql("t", name): _column_sql("s", name) for name in names}
        deleted = _column_sql("s", DELETED)
        merger = table.merge(
            rows,
            " AND ".join(f"{_column_sql('t', name)} = {_column_sql('s', name)}" for name in key),
            source_alias="s",
            target_alias="t",
            streamed_exec=False,  # by the least and greatest keys files are passed over
            commit_properties=self._properties(commit),
        )
        merger = merger.when_matched_delete(deleted).when_matched_update(values)
        before = table.version()
        try:
            merger.when_not_matched_insert(values, f"NOT {deleted}").execute()
        except CommitFailedError as error:
            raise OvertakenError from error
        finally:
            self._sync_log()
        if table.version() == before:  # there was nothing to change, and the library commits nothing
            self._commit([], self._properties(commit))
        elif is_seen:
            self._seen_version = table.version()

    def fence(self, writer: Writer, number: int) -> None:
        app = _app(writer)
        self._commit([], _properties({f"{app}/fence": number}, {"app": app, "fence": True}))

    def _properties(self, commit: Commit) -> Any:
        done, app = commit.as_committed, _app(commit.writer)
        return _properties(
            {app: done.tick, f"{app}/identity": done.identity, f"{app}/attempt": done.attempt},
            {"app": app, "tick": commit.tick, "made_from": identity_as_text(commit.tick_identity)},
        )

    @property
    def _is_seen(self) -> bool:
        """True if the commits of others up to the loaded version were inspected."""
        return bool(self._seen_version == self._table.version())

    def _commit(self, adds: list[Any], properties: Any) -> None:
        from deltalake.exceptions import CommitFailedError

        is_seen = self._is_seen
        try:
            self._table.create_write_transaction(
                adds, "append", self._table.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise OvertakenError from error
        finally:
            self._sync_log()
        if is_seen:
            self._seen_version = self._table.version()

    def _sync_log(self) -> None:
        if not self._storage.s3:
            log = os.path.join(self.data, "_delta_log")
            newest = max((name for name in os.listdir(log) if name.endswith(".json")), default=None)
            sync_all([log] if newest is None else [os.path.join(log, newest), log])

    def _load(self) -> Any:
        """Load the current table, and check it if others changed it.

        Raises:
            SeveralErrors, SpecError: The table does not accept the rows.
        """
        from deltalake import DeltaTable

        self._table = DeltaTable(self.place, storage_options=self._options)
        told = repr((self._table.schema().to_json(), self._table.metadata(), self._table.protocol()))
        if told != self._checked:
            self._check()
            self._checked = told
        return self._table

    def _check(self) -> None:
        table = self._table
        problems: list[WatersmeetError] = [
            SpecError(f"{self._sink}: {self.place} {said}", code="table-not-supported", hint=hint)
            for said, hint in _unsupported_features(table, is_keyed=self._is_keyed)
        ]
        held = [
            TableField(field.name, pa.field(arrow).type, not field.nullable)
            for field, arrow in zip(table.schema().fields, pa.schema(table.schema().to_arrow()), strict=True)
        ]
        for wanted in self._wanted:
            problems += misfits(wanted, held, self._sink, self.place)
        raise_all(list({str(problem): problem for problem in problems}.values()))


def _read_writer(table: Any, writer: Writer) -> TableWriter:
    app = _app(writer)
    tick, fence = (table.transaction_version(name) for name in (app, f"{app}/fence"))
    if tick is None:
        return TableWriter(None, fence)
    identity, attempt = (table.transaction_version(f"{app}/{what}") for what in ("identity", "attempt"))
    return TableWriter(CommittedTick(tick, identity, attempt), fence)


def _unsupported_features(table: Any, *, is_keyed: bool) -> list[tuple[str, str]]:
    """List the table's features that commits of this sink would not respect.

    Returns:
        Pairs of a description and a hint what to do.
    """
    protocol, metadata = table.protocol(), table.metadata()
    said = []
    others = sorted(set(protocol.writer_features or ()) - _FEATURES)
    if others:
        said.append((f"uses {', '.join(others)}, which is not supported", "write to a table without them"))
    settings = dict(metadata.configuration)
    if metadata.partition_columns:
        columns = ", ".join(metadata.partition_columns)
        said.append((f"is partitioned by {columns}", "write to a table without partitions"))
    if settings.get("delta.columnMapping.mode", "none") != "none":
        said.append(("maps the names of its columns", "write to a table without column mapping"))
    if is_keyed and settings.get("delta.appendOnly", "false").lower() == "true":
        said.append(("keeps all rows (delta.appendOnly), and by a PRIMARY KEY some go", "write without one"))
    checks = sorted(name for name in settings if name.startswith("delta.constraints."))
    if checks:
        said.append((f"has CHECK constraints ({', '.join(checks)})", "drop them: no row would be checked"))
    if "delta.setTransactionRetentionDuration" in settings:
        said.append(
            (
                "forgets which ticks it has (delta.setTransactionRetentionDuration)",
                "unset that property: by it a tick would be written twice",
            )
        )
    for field in table.schema().fields:
        special = [
            name
            for name in field.metadata
            if name.startswith(("delta.generation", "delta.identity", "delta.invariants"))
        ]
        if special:
            said.append(
                (f'computes or checks "{field.name}" ({", ".join(special)})', "write to a plain column")
            )
    return said


def _properties(versions: Mapping[str, int], told: Mapping[str, Any]) -> Any:
    """Build the properties of a commit that fails if the table changed since it was read."""
    from deltalake.transaction import CommitProperties, Transaction

    return CommitProperties(
        app_transactions=[Transaction(app, version) for app, version in versions.items()],
        custom_metadata={_META: json.dumps(told)},
        max_commit_retries=0,  # what others have committed is to be looked at first
    )


def _column_sql(alias: str, name: str) -> str:
    """Quote a column with its alias in the library's SQL."""
    return f'{alias}."' + name.replace('"', '""') + '"'


def _app(writer: Writer) -> str:
    """Return the application id of a job's INSERT in the log.

    An id with a suffix, such as that of the fence, is never the id of another INSERT.
    """
    return f"{_app_prefix(writer.owner)}{number_of(writer.insert):016x}/{writer.insert}"


def _app_prefix(owner: str) -> str:
    return f"watersmeet/{owner}/"


def _removes(operation: str, parameters: Mapping[str, Any]) -> bool:
    """Return True for a commit after which the rows from before are not there."""
    is_of_all = str(parameters.get("predicate") or "[]") in _OF_ALL
    if operation == "WRITE":
        return is_of_all and str(parameters.get("mode", "")).lower() == "overwrite"
    return (operation == "DELETE" and is_of_all) or _REPLACES.fullmatch(operation) is not None


def _unsafe(sink: str) -> list[SpecError]:
    """List environment settings with which two runs could commit the same version of the log."""
    settings = {name.upper(): value.strip().lower() for name, value in os.environ.items()}
    wrong = [
        name
        for name, values in (
            ("AWS_S3_ALLOW_UNSAFE_RENAME", ("true", "1", "yes", "y", "on", "t")),
            ("AWS_CONDITIONAL_PUT", ("disabled",)),
        )
        if settings.get(name) in values
    ]
    return [
        SpecError(
            f"{sink}: the environment variable {name} is set, with which a commit may overwrite the"
            " commit of another run",
            code="no-conditional-put",
            hint=f"unset {name}, and use an object store with conditional writes",
        )
        for name in wrong
    ]


def _storage_options(endpoint: str, region: str) -> dict[str, str]:
    options = {"AWS_REGION": region} if region else {}
    if endpoint:
        options |= {"AWS_ENDPOINT_URL": endpoint}
        options |= {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {}
    return options
