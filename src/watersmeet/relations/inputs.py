"""Streams and tables of a relation: DataFrames of Spark's, or columns whose rows come from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from watersmeet.errors import SqlError, WatersmeetError, collect_errors, near_names, raise_all
from watersmeet.names import is_ours
from watersmeet.parser.ddl.columns import checked_key
from watersmeet.parser.ddl.options import SourceFields, source_fields
from watersmeet.parser.ddl.quantities import lag_of
from watersmeet.parser.query.views import is_summarized
from watersmeet.parser.statements import declared_sources
from watersmeet.parser.text.source_position import Text, reserved_name_error
from watersmeet.parser.types.inference import type_named
from watersmeet.relations.expressions import names_of, read_select, whole_error
from watersmeet.relations.relation import Relation
from watersmeet.relations.source_frames import Given
from watersmeet.relations.terms import Length, length_node
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.connectors import DATAFRAME, DATAFRAME_TABLE, MEMORY
from watersmeet.spec.model import Column, EventTime, Source
from watersmeet.spec.option_names import IN_PYTHON
from watersmeet.spec.options.changes import (
    ChangeDeclaration,
    is_field,
    primary_key,
    refuse_time_of,
    resolve_change_column,
)
from watersmeet.types.intervals import interval_us
from watersmeet.types.sql_type import INTEGERS

Values = str | int | Sequence[str | int]
"""One, or several."""


@dataclass(frozen=True)
class Changes:
    """Change options of a source.

    They name the column by which records insert and delete, or have a multiplicity, and the key
    columns.
    """

    op: str | None = None
    diff: str | None = None
    inserts: Values | None = None
    deletes: Values | None = None
    key: str | Sequence[str] = ()

    @property
    def has_change_options(self) -> bool:
        """Rows do not only come."""
        return self.op is not None or self.diff is not None or bool(self.key)

    def of(
        self,
        name: str,
        columns: Sequence[Column],
        connector: str,
        times: Sequence[EventTime],
        fields: SourceFields,
    ) -> tuple[ChangeColumn | None, PrimaryKey | None]:
        """Return the change column and the primary key of the source ``name``.

        Args:
            fields: options with ``sequence_by`` and ``tombstones``.

        Raises:
            SqlError: an option is wrong.
        """

        def error(message: str, hint: str | None) -> SqlError:
            return SqlError(f'"{name}": {message}', code="bad-argument", hint=hint)

        for label, column in (("op", self.op), ("diff", self.diff)):
            if column is not None and not (isinstance(column, str) and column.strip()):
                raise whole_error(label, f"is {column!r}", "pass the name of a column")
        inserts, deletes = _words(self.inserts, "inserts"), _words(self.deletes, "deletes")
        said = ChangeDeclaration(self.op, self.diff, inserts, deletes, keyed=bool(self.key))
        change = resolve_change_column(said, columns, error, IN_PYTHON)
        refuse_time_of(
            name, change, times, lambda message, hint: SqlError(message, code="wrong-type", hint=hint)
        )
        return change, self._key(name, columns, connector, change, times, fields)

    def _key(
        self,
        name: str,
        columns: Sequence[Column],
        connector: str,
        change: ChangeColumn | None,
        times: Sequence[EventTime],
        fields: SourceFields,
    ) -> PrimaryKey | None:
        def wrong(message: str, hint: str | None) -> SqlError:
            return SqlError(f'"{name}": {message}', code="primary-key", hint=hint)

        if self.key:
            written = names_of(self.key, "key")
            return checked_key(name, written, columns, connector, change, times, fields, wrong, IN_PYTHON)
        for label, given in (("sequence", fields.sequence_by), ("tombstones", fields.tombstones)):
            if given is not None:
                raise wrong(f"{label} needs a key", "key='id'")
        return None


def _words(given: Values | None, label: str) -> tuple[str, ...] | None:
    """Return values of the column as texts."""
    if given is None:
        return None
    is_one = isinstance(given, str | int)
    values = [given] if is_one else list(given) if isinstance(given, Iterable) else []
    if not values or any(isinstance(value, bool) or not isinstance(value, str | int) for value in values):
        raise whole_error(label, f"is {given!r}", f"values of the column: {label}=['I', 'U'], or {label}=1")
    words = tuple(value.strip() if isinstance(value, str) else str(value) for value in values)
    if "" in words:
        raise whole_error(label, f"has an empty entry: {given!r}", "remove it")
    return words


Lags = str | Mapping[str, Length]


def stream(
    rows: Any,
    *,
    time: Lags | None = None,
    lag: Length | None = None,
    name: str,
    op: str | None = None,
    diff: str | None = None,
    inserts: Values | None = None,
    deletes: Values | None = None,
    key: str | Sequence[str] = (),
    sequence: str | None = None,
    tombstones: Length | None = None,
    idle_timeout: Length | None = None,
    on_idle: str | None = None,
    max_ahead: Length | None = None,
    rows_per_second: float | None = None,
    max_rows: int | None = None,
    max_bytes: str | int | None = None,
) -> Relation:
    """Declare a stream of rows with event times, or of change records of a table.

    Change records have no event times.

    Args:
        rows: a streaming Spark DataFrame with one source, and without state of its own (aggregations,
            dropDuplicates); or columns, as a dictionary from name to type (``{"id": "BIGINT"}``), of
            rows that come from another place, as for `LocalJob`.
        time: the event-time column, a TIMESTAMP, DATE or integer; or several with their lags,
            ``{"delivery_time": "1 minute"}``. None: it is a table that changes, by ``op``, ``diff`` or
            ``key``.
        lag: by how much the watermark lags the greatest time; None: zero.
        name: name of the stream. A job that resumes identifies it by this name.
        op: the column that says whether a record inserts or deletes a row; it is not part of the row.
        diff: the column with the multiplicity of a record (below zero: deletes); it is not part of the
            row.
        inserts: values of ``op`` that insert a row; None: I, i, c, r, +I, +U, INSERT, insert, and with
            a ``key`` U, u, UPDATE, update.
        deletes: values of ``op`` that delete a row; None: D, d, -D, -U, DELETE, delete.
        key: columns by which a record replaces or deletes another record's row.
        sequence: the column that orders the changes of a key. A DataFrame's rows have no other order.
        tombstones: for how long deletes are remembered, so that older changes do not restore a row, or
            ``"off"``; None: a day.
        idle_timeout: after this time without rows the stream stops delaying watermarks; None: never.
        on_idle: what watermarks do then: ``hold`` or ``follow``.
        max_ahead: rows further ahead of the clock are written to the side output.
        rows_per_second: expected rate, for forecasts.
        max_rows: maximum number of its rows that all queries together may retain.
        max_bytes: maximum size of the files of these rows.

    Raises:
        SqlError, SeveralErrors: the declaration is wrong.

    >>> from datetime import timedelta
    >>> from watersmeet import stream
    >>> orders = stream(  # or a DataFrame, with the columns that it has
    ...     {"id": "BIGINT", "at": "TIMESTAMP"}, time="at", lag=timedelta(seconds=10), name="orders")
    >>> [(column.name, str(column.type)) for column in orders.columns]
    [('id', 'BIGINT'), ('at', 'TIMESTAMP')]
    >>> customers = stream(
    ...     {"id": "BIGINT", "name": "STRING", "op": "STRING", "version": "BIGINT"}, name="customers",
    ...     op="op", deletes="removed", key="id", sequence="version")
    >>> [column.name for column in customers.columns]
    ['id', 'name', 'version']
    """
    of_times = {"idle_timeout": idle_timeout, "on_idle": on_idle, "max_ahead": max_ahead}
    of_deletes = {"sequence_by": _column_named(sequence, "sequence"), "tombstones": tombstones}
    limits = {"rows_per_second": rows_per_second, "max_rows": max_rows, "max_bytes": max_bytes}
    columns, frame = columns_of(rows, name)
    if frame is not None and not frame.isStreaming:
        raise whole_error(
            f'"{name}"', "is not a stream: its DataFrame is a batch DataFrame", "use spark.readStream"
        )
    said = Changes(op, diff, inserts, deletes, key)
    if time is None:
        _check_timeless(name, said, {"lag": lag, **of_times})
    connector = MEMORY if frame is None else DATAFRAME
    fields = _fields(name, {**of_times, **limits, **of_deletes}, connector)
    times = () if time is None else event_times_of(name, columns, time, lag)
    change, primary = said.of(name, columns, connector, times, fields)
    source = Source(
        name,
        columns,
        connector,
        {},
        times,
        idle_timeout_us=fields.idle_timeout_us,
        on_idle=fields.on_idle,
        max_ahead_us=fields.max_ahead_us,
        is_table=not times,
        changes=said.has_change_options,
        rows_per_second=fields.rows_per_second,
        max_rows=fields.max_rows,
        max_bytes=fields.max_bytes,
        change_column=change,
        primary_key=primary,
    )
    return relation_of(source, frame)


def table(
    rows: Any,
    *,
    name: str,
    key: str | Sequence[str] = (),
    changes: bool | None = None,
    refresh: Length | None = None,
    max_rows: int | None = None,
    max_bytes: str | int | None = None,
) -> Relation:
    """Declare a table that is read as a whole, repeatedly.

    Each row meets the table as of its tick (`Relation.as_of`), or the table changes by the difference
    of two reads.

    Args:
        rows: a function without arguments that returns a batch Spark DataFrame, called for each read
            (``lambda: spark.read.parquet("items")``), because an existing DataFrame never changes. Or
            columns, as a dictionary from name to type, of rows that come from another place, as for
            `LocalJob`.
        name: name of the table. A job that resumes identifies it by this name.
        key: columns by which a row replaces another; the table then changes by these.
        changes: whether it changes, by ``key`` or by whole rows; None: if there is a key.
        refresh: minimum time between reads; None: a minute.
        max_rows, max_bytes: as in `stream`.

    Raises:
        SqlError, SeveralErrors: the declaration is wrong.

    >>> items = table({"id": "BIGINT", "name": "STRING"}, name="items")
    >>> sales = stream({"item": "BIGINT", "at": "TIMESTAMP"}, time="at", name="sales")
    >>> [c.name for c in sales.alias("s").join(items.alias("i").as_of(), on="s.item = i.id").columns]
    ['item', 'at', 'id', 'name']
    """
    if hasattr(rows, "isStreaming"):
        raise whole_error(
            f'"{name}"',
            "is given a DataFrame, which always reads the files or version of its creation",
            "pass a function that creates it: table(lambda: spark.read.parquet('items'), name='items')",
        )
    makes = rows if callable(rows) else None
    columns, frame = columns_of(rows if makes is None else makes(), name)
    if makes is not None and (frame is None or frame.isStreaming):
        problem = "returns no DataFrame" if frame is None else "returns a streaming DataFrame"
        raise whole_error(f'"{name}"', problem, "use spark.read for tables, and stream(df, …) for streams")
    compared = bool(key) if changes is None else changes
    if key and not compared:
        raise whole_error("key", "is only for changing tables", "remove key, or add changes=True")
    connector = MEMORY if makes is None else DATAFRAME_TABLE
    fields = _fields(name, {"refresh": refresh, "max_rows": max_rows, "max_bytes": max_bytes}, connector)

    def wrong(message: str, hint: str | None) -> SqlError:
        return SqlError(f'"{name}": {message}', code="primary-key", hint=hint)

    source = Source(
        name,
        columns,
        connector,
        is_table=compared,
        changes=compared,
        compared=compared,
        primary_key=primary_key(names_of(key, "key"), None, None, columns, wrong, words=IN_PYTHON)
        if key
        else None,
        refresh_us=fields.refresh_us,
        max_rows=fields.max_rows,
        max_bytes=fields.max_bytes,
    )
    return relation_of(source, makes)


def declared(text: str) -> dict[str, Relation]:
    """Return the streams and tables that SQL declares, by their names.

    They can be files, Kafka topics and databases, with the features of the built-in connectors: broken
    records, changes, tables as of a row's tick.

    Args:
        text: CREATE TABLE, SOURCE or MAPPING statements.

    Raises:
        SqlError, SeveralErrors: the text has errors.

    >>> items = declared('''CREATE TABLE items (id BIGINT, name STRING)
    ...     WITH ('connector' = 'file', 'path' = 'items', 'format' = 'csv')''')["items"]
    >>> sales = stream({"item": "BIGINT", "at": "TIMESTAMP"}, time="at", name="sales")
    >>> [c.name for c in sales.alias("s").join(items.alias("i").as_of(), on="s.item = i.id").columns]
    ['item', 'at', 'id', 'name']
    """
    return {name: relation_of(source) for name, source in declared_sources(text).items()}


def relation_of(source: Source, frame: Any = None) -> Relation:
    """Return a relation of all rows of a declared source."""
    tree = exp.Table(this=exp.to_identifier(source.name, quoted=True))
    return Relation(tree, {source.name.lower(): Given(source, frame)})


def apply_select(relation: Relation, text: str, label: str) -> Relation:
    """Apply a SELECT from a stream or table, by its name, row by row.

    Args:
        label: name of the text for messages.

    Raises:
        SqlError, SeveralErrors: the text is wrong, or contains joins, unions or groups.
    """
    tree, fragment = read_select(text, label)
    if tree.args.get("joins") or is_summarized(tree) or tree.args.get("with_"):
        raise whole_error(
            label,
            "must contain only columns and a filter",
            "write SELECT …, … FROM the source's name WHERE …",
        )
    return relation.checked(tree, fragment)


def _kind_of(rows: Any) -> str:
    """Return the name of a value's class, with the library that it is from."""
    library = type(rows).__module__.partition(".")[0]
    return f"a {'' if library == 'builtins' else f'{library} '}{type(rows).__name__}"


def columns_of(rows: Any, name: str) -> tuple[tuple[Column, ...], Any]:
    """Return the columns of rows, and the DataFrame if they are one. Raises: SqlError, SeveralErrors."""
    if not isinstance(name, str) or not name.strip():
        raise whole_error("name", f"is {name!r}", "pass the stream's name: stream(df, …, name='orders')")
    if isinstance(rows, Mapping):
        pairs, frame = [(str(column), str(type_)) for column, type_ in rows.items()], None
    elif hasattr(rows, "schema") and hasattr(rows, "isStreaming"):
        pairs, frame = [(field.name, _written(field.dataType)) for field in rows.schema.fields], rows
    else:
        raise whole_error(
            f'"{name}"',
            f"is {_kind_of(rows)}, not a Spark DataFrame",
            "pass a DataFrame (spark.readStream…), or columns and types: {'id': 'BIGINT', 't':"
            " 'TIMESTAMP'}; use watersmeet.local for Arrow, pandas and Polars data",
        )
    problems: list[WatersmeetError] = []
    columns: dict[str, Column] = {}
    for column, written in pairs:
        if is_ours(column):
            problems.append(reserved_name_error(column))
        elif not column.strip():
            problems.append(
                SqlError(f'"{name}" has a column without a name', code="bad-argument", hint="name it")
            )
        elif column.lower() in columns:
            message = f'"{name}" has two columns named "{column}"'
            problems.append(SqlError(message, code="duplicate-column", hint="rename one of them"))
        else:
            try:
                columns[column.lower()] = Column(column, type_named(written))
            except WatersmeetError as error:
                problem = f'"{name}", column "{column}": {error.message}'
                problems.append(SqlError(problem, code=error.code, hint=error.hint))
    raise_all(problems)
    return tuple(columns.values()), frame


def _written(type_: Any) -> str:
    """Write a Spark type as SQL, with quoted field names, which Spark leaves unquoted."""
    kind = type_.typeName()
    if kind == "array":
        return f"ARRAY<{_written(type_.elementType)}>"
    if kind == "map":
        return f"MAP<{_written(type_.keyType)}, {_written(type_.valueType)}>"
    if kind == "struct":
        fields = (f"`{field.name.replace('`', '``')}`: {_written(field.dataType)}" for field in type_.fields)
        return f"STRUCT<{', '.join(fields)}>"
    written: str = type_.simpleString()
    if " collate " in written:
        raise whole_error("a column", f"is of type {written}", "cast it: CAST(name AS STRING)")
    return written


def _fields(name: str, given: Mapping[str, Any], connector: str) -> SourceFields:
    options = {
        key: value if isinstance(value, str) else str(value)
        for key, value in given.items()
        if value is not None
    }
    for key in ("idle_timeout", "max_ahead", "refresh", "tombstones"):
        if given.get(key) not in (None, "off"):
            options[key] = f"{_us(given[key], key)} microseconds"

    def error(message: str, hint: str | None) -> SqlError:
        return SqlError(f'"{name}": {message}', code="bad-argument", hint=hint)

    return source_fields(options, connector, error)


def _check_timeless(name: str, said: Changes, of_times: Mapping[str, Any]) -> None:
    """Check a source that has no event time.

    Raises:
        SqlError: it has no change options, or has options that need an event time.
    """
    if not said.has_change_options:
        raise whole_error(
            f'"{name}"',
            "has no event time, and no column tells inserts from deletes",
            "add time='order_time', lag='10 seconds'; for a changing table op='op', diff='d' or"
            " key='id'; for a batch DataFrame use table(lambda: …, name='…')",
        )
    label = next((label for label, given in of_times.items() if given is not None), None)
    if label is not None:
        raise whole_error(label, f'needs an event time, but "{name}" has none', "remove it, or add time")


def _column_named(given: Any, label: str) -> str | None:
    if given is not None and not (isinstance(given, str) and given.strip()):
        raise whole_error(label, f"is {given!r}", "the name of a column")
    return given


def _us(length: Length, label: str) -> int:
    value = interval_us(length_node(length, label))
    if value is None:
        raise whole_error(label, f"is {length!r}, not a length of time", "for example '30 seconds'")
    return value


def event_times_of(
    name: str, columns: Sequence[Column], time: Lags, lag: Length | None
) -> tuple[EventTime, ...]:
    """Return the event times among the columns of rows. Raises: SqlError, SeveralErrors."""
    if isinstance(time, str):
        wanted: Mapping[str, Length | None] = {time: lag}
    elif isinstance(time, Mapping) and time:
        if lag is not None:
            raise whole_error("lag", "cannot be combined with the lags in time", "time={'t': '10 seconds'}")
        wanted = time
    else:
        raise whole_error("time", f"is {time!r}", "pass the event-time column, or {'t': '10 seconds'}")
    by_name = {column.name.lower(): column for column in columns}
    times: list[EventTime] = []
    problems: list[WatersmeetError] = []
    for written, length in wanted.items():
        if not isinstance(written, str):
            raise whole_error("time", f"is {time!r}", "pass names of columns with their lags")
        column = by_name.get(written.lower())
        if column is None:
            field = (
                f"make it a column: df.selectExpr('*', '{written} AS ts'), or ts AS {written} in declared(…)"
            )
            hint = near_names(written, [other.name for other in columns])
            hint = field if is_field(written, columns) else hint
            message = f'"{name}" has no column "{written}", which its event time names'
            problems.append(SqlError(message, code="unknown-column", hint=hint))
        elif any(before.column == column.name for before in times):
            problems.append(SqlError(f'"{column.name}" has two lags', code="already-ordered"))
        else:
            with collect_errors(problems):
                times.append(EventTime(column.name, _lag(column, length)))
    raise_all(problems)
    return tuple(times)


def _lag(column: Column, length: Length | None) -> int:
    if length is None:
        length = 0 if column.type in INTEGERS else "0 seconds"
    return lag_of(length_node(length, f'the lag of "{column.name}"'), column.name, column.type, Text(""))
