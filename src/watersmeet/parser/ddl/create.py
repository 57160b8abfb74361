"""CREATE MAPPING, TABLE, SOURCE and SINK."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.deprecated_names import options_of_today
from watersmeet.errors import SpecError, SqlError, WatersmeetError, near_names
from watersmeet.parser.ddl.columns import (
    ComputedClause,
    KeyClause,
    WatermarkClause,
    check_key,
    check_times,
    computed_clause,
    computed_columns,
    event_times_of,
    key_clause,
    key_of,
    key_of_sink,
    not_enforced,
    watermark_clause,
)
from watersmeet.parser.ddl.options import (
    SourceFields,
    change_option,
    changes_of,
    connector_options,
    infers_columns,
    is_same_option,
    is_snapshot_source,
    source_fields,
)
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.text.tokens import TokenCursor
from watersmeet.spec.change_kinds import ChangeColumn
from watersmeet.spec.connectors import connector_of, find_connector, list_names
from watersmeet.spec.model import Column, EventTime, Sink, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT, is_field, refuse_time_of
from watersmeet.spec.options.files import FORMATS
from watersmeet.spec.options.kafka import METADATA, records_of
from watersmeet.spec.options.records import inline_files
from watersmeet.spec.secrets import public_option
from watersmeet.types.parser import parse_type
from watersmeet.types.sql_type import SqlType

# What to write in the place of clauses and connectors that other engines have in CREATE TABLE.


def format_hint(named: str) -> str | None:
    """Return what to write where a format, or a connector of Flink's, is named as the connector."""
    plain = named.lower()
    if plain in (*FORMATS, DEBEZIUM):
        topics = "" if plain == "parquet" else "; for topics 'connector' = 'kafka'"
        return f"{plain} is a format: write 'connector' = 'file', 'format' = '{plain}'{topics}"
    if plain == "upsert-kafka":
        return "write 'connector' = 'kafka', 'format' = 'upsert-json', and a PRIMARY KEY (…) NOT ENFORCED"
    return None


def metadata_clause(cursor: TokenCursor, column: str, start: int) -> SqlError:
    """Return the refusal of METADATA FROM, as Flink has it."""
    cursor.accept("METADATA")
    key = cursor.string("the name of the metadata") if cursor.accept("FROM") else column
    hint = f"write it as an option: WITH (…, 'metadata.{column}' = '{key}')"
    if key.lower() not in METADATA:
        hint = f"'metadata.{column}' in WITH fills a column of a Kafka source from {', '.join(METADATA)}"
    return cursor.text.not_supported(f'METADATA after column "{column}" is', start, hint)


# CREATE MAPPING, TABLE, SOURCE and SINK → `Source` and `Sink`.
#
# What follows ``CREATE [OR REPLACE] [EXTERNAL] MAPPING|TABLE|SOURCE|SINK [IF NOT EXISTS]``::
#
#     name [EXTERNAL NAME x] [(column type [PRIMARY KEY NOT ENFORCED], column AS expression, …,
#                              WATERMARK FOR column AS column [- lag], PRIMARY KEY (column, …) NOT
#                                ENFORCED, …)]
#     TYPE connector OPTIONS ('k' = 'v', …)     Hazelcast's way
#     WITH ('connector' = 'kafka', …)           Flink's and RisingWave's
#     USING connector OPTIONS (k 'v', …)        Spark's
#
# Without columns, or with ``'columns' = 'infer'``, those of files are given by whoever can look at them.

Infer = Callable[[Source, Sequence[str]], Sequence[Column]]
"""Gives the columns of a source from what is there: those that it declares as they are, and the others.
Called with the source so far, and the texts of its WATERMARK clauses, for people. Raises: WatersmeetError."""


@dataclass
class _Columns:
    """The parts of a column list that were parsed so far.

    Attributes:
        names: Names of the columns, in lower case.
        clauses: Texts of ``watermarks`` and ``computed``.
        keys: The PRIMARY KEY clauses.
    """

    columns: list[Column] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    watermarks: list[WatermarkClause] = field(default_factory=list)
    clauses: list[str] = field(default_factory=list)
    keys: list[KeyClause] = field(default_factory=list)
    computed: list[ComputedClause] = field(default_factory=list)


@dataclass(frozen=True)
class TimeOf:
    """An event time; ``lag``: how far its watermark stays behind, for a column of a type."""

    column: str
    lag: Callable[[SqlType], exp.Expression]


@dataclass(frozen=True)
class Declaration:
    """Source and sink that one declaration defines.

    ``source`` is None if the declaration can only be written to. ``inferred`` builds the source when
    a statement first reads it; it is set when not all columns are declared.
    """

    name: str
    source: Source | None
    sink: Sink
    inferred: Callable[[], Source] | None = None


def declared_name(cursor: TokenCursor) -> str:
    """Read the declared name, after an optional IF NOT EXISTS."""
    cursor.accept("IF", "NOT", "EXISTS")
    return cursor.take_dotted_name("a name")


def read_declaration(cursor: TokenCursor, kind: str, name: str, infer: Infer | None = None) -> Declaration:
    """Read the part of a CREATE statement that follows its name.

    Args:
        infer: Infers columns that are not declared; None: the statement must declare all columns.
    """
    start, problems = cursor.offset, len(cursor.text.problems)
    options: dict[str, str] = {}
    if cursor.accept("EXTERNAL", "NAME"):
        options["external_name"] = cursor.take_dotted_name("the external name")
    listed = _column_list(cursor) if cursor.accept("(") else None
    connector: str | None = None
    while not cursor.at_end:
        if cursor.accept("TYPE") or cursor.accept("USING"):
            start = cursor.offset
            connector = cursor.take_dotted_name("a connector")
        elif cursor.accept("OPTIONS") or cursor.accept("WITH"):
            _option_list(cursor, name, options)
        else:
            raise cursor.syntax_error("TYPE, USING, OPTIONS or WITH")
    if len(cursor.text.problems) > problems:
        raise StatementRejected
    connector = _connector(connector, options, cursor, start)
    options = options_of_today(options, connector)
    if kind != "SINK":
        options = inline_files(
            options, lambda message, hint: cursor.text.error(message, "bad-option", start, hint)
        )
    asked = infers_columns(
        options, lambda message, hint: cursor.text.error(message, "bad-option", start, hint)
    )
    columns = tuple(listed.columns) if listed and listed.columns and not asked else None
    sink = Sink(name, connector, connector_options(options), columns)
    if kind == "SINK":
        if listed is not None and listed.keys:
            sink = replace(sink, primary_key=key_of_sink(sink, listed.keys, cursor))
        if asked or (listed is not None and (listed.computed or not (listed.columns or listed.keys))):
            raise cursor.text.error(
                f'"{name}" is a sink, which has the declared columns or those of the query',
                "bad-option",
                start,
                "remove 'columns', WATERMARK and computed columns",
            )
        return Declaration(name, None, sink)
    if columns is not None and listed is not None:
        return Declaration(name, _source(name, connector, options, listed, cursor, start), sink)
    given = listed or _Columns()
    inferring = _InferredSource(name, connector, options, given, cursor, start, infer)
    if asked or listed is not None:
        return Declaration(name, inferring(), sink)
    return Declaration(name, None, sink, inferring)


def source_from_options(
    name: str,
    options: Mapping[str, str],
    columns: Sequence[Column],
    time: TimeOf | None,
    infer: Infer | None = None,
) -> Source:
    """Build the source that a declaration with these options would define, without a SQL text.

    Args:
        columns: The declared columns; if empty, they are inferred.
        time: The event time; None: it has none.

    Raises:
        SqlError: The options have an error; the error has no location.
    """
    cursor, given = TokenCursor(Text(""), ()), dict(options)
    connector = _connector(None, given, cursor, 0)

    def error(message: str, hint: str | None) -> SqlError:
        return cursor.text.error(message, "bad-option", None, hint)

    given = inline_files(given, error)
    listed = _Columns(list(columns), {column.name.lower() for column in columns})
    inferred = infers_columns(given, error) or not columns
    if inferred:
        listed.columns = list(_InferredSource(name, connector, given, listed, cursor, 0, infer).columns())
    if time is not None:
        column = next((c for c in listed.columns if c.name.lower() == time.column.lower()), None)
        if column is None:
            message = f'"{name}" has no column "{time.column}", which its event time names'
            query = f'make it a column: query = "SELECT *, {time.column} AS ts FROM {name}"'
            hint = near_names(time.column, [c.name for c in listed.columns])
            hint = query if is_field(time.column, listed.columns) else hint
            raise cursor.text.error(message, "unknown-column", None, hint)
        listed.watermarks.append(WatermarkClause(column.name, time.lag(column.type), 0))
    return _source(name, connector, given, listed, cursor, 0, inferred)


@dataclass
class _InferredSource:
    """Source of a declaration without all its columns, built on first use.

    It raises a problem only once.
    """

    name: str
    connector: str
    options: dict[str, str]
    listed: _Columns
    cursor: TokenCursor
    start: int
    infer: Infer | None
    source: Source | None = None
    failed: bool = False

    def __call__(self) -> Source:
        if self.failed:
            raise StatementRejected
        if self.source is None:
            self.failed = True
            listed = replace(self.listed, columns=list(self.columns()))
            self.source = _source(
                self.name, self.connector, self.options, listed, self.cursor, self.start, True
            )
            self.failed = False
        return self.source

    def columns(self) -> Sequence[Column]:
        """Return the declared and the inferred columns, in order."""
        text = self.cursor.text
        if not connector_of(self.connector).files:
            raise text.error(
                f'"{self.name}" is declared without columns, which can be inferred for files only',
                "cannot-infer",
                self.start,
                f"declare them: CREATE TABLE {self.name} (name type, …) WITH (…)",
            )
        if self.infer is None:
            raise text.error(
                f'"{self.name}" is declared without columns, and parse_job cannot read its files',
                "cannot-infer",
                self.start,
                "declare the columns, or pass a function that infers them to parse_job",
            )
        bare = Source(self.name, tuple(self.listed.columns), self.connector, connector_options(self.options))
        try:
            return self.infer(bare, self.listed.clauses)
        except WatersmeetError as error:
            raise text.error(error.message, error.code, self.start, error.hint) from None


def _connector(written: str | None, options: dict[str, str], cursor: TokenCursor, start: int) -> str:
    of_options = next((value for key, value in options.items() if key.lower() == "connector"), None)
    named = written or of_options
    if written and of_options and written.lower() != of_options.lower():
        raise cursor.text.error(
            f"TYPE says \"{written}\", but its options say 'connector' = '{of_options}'",
            "duplicate-option",
            start,
            "leave out one of them",
        )
    if named is None:
        raise cursor.text.error(
            "the connector is missing",
            "unknown-connector",
            start,
            "add TYPE Kafka (or File, Jdbc, Generator, Console, Memory), or 'connector' = 'kafka' in WITH",
        )
    try:
        connector = find_connector(named)
    except SpecError as error:
        raise cursor.text.error(error.message, error.code, start, error.hint) from error
    if connector is None:
        hint = format_hint(named) or near_names(named, [name.capitalize() for name in list_names()])
        shown = public_option("connector", named)
        raise cursor.text.error(f'unknown connector "{shown}"', "unknown-connector", start, hint)
    return connector.name


def _column_list(cursor: TokenCursor) -> _Columns:
    columns = _Columns()
    while True:
        if cursor.looks_at("WATERMARK"):
            start = cursor.offset
            cursor.accept("WATERMARK")
            columns.watermarks.append(watermark_clause(cursor))
            columns.clauses.append(cursor.text.sql[start : cursor.tokens[cursor.index - 1].end + 1])
        elif cursor.looks_at("PRIMARY", "KEY") or cursor.looks_at("CONSTRAINT"):
            columns.keys.append(key_clause(cursor))
        else:
            start, column = cursor.offset, _column(cursor, columns)
            if column is None:
                columns.clauses.append(cursor.text.sql[start : cursor.tokens[cursor.index - 1].end + 1])
            else:
                columns.columns.append(column)
        if not cursor.accept(","):
            break
    cursor.expect(")", ", or )")
    return columns


def _column(cursor: TokenCursor, before: _Columns) -> Column | None:
    """Read a column of the records; for a computed column, add it and return None."""
    start = cursor.offset
    name = cursor.name("a column name")
    if name.lower() in before.names:
        raise cursor.text.error(
            f'column "{name}" is declared twice', "duplicate-column", start, "remove or rename one of them"
        )
    before.names.add(name.lower())
    if cursor.accept("AS"):
        before.computed.append(computed_clause(cursor, name, start, len(before.columns)))
        return None
    column = Column(name, parse_type(cursor))
    while not cursor.looks_at(",") and not cursor.looks_at(")"):
        if cursor.accept("COMMENT"):
            cursor.string("the comment")
        elif cursor.looks_at("PRIMARY", "KEY"):
            before.keys.append(KeyClause((name,), cursor.offset))
            cursor.accept("PRIMARY", "KEY")
            not_enforced(cursor)
        elif cursor.looks_at("METADATA"):
            raise metadata_clause(cursor, name, start)
        elif not (cursor.accept("NOT", "NULL") or cursor.accept("NULL")):
            what = cursor.take().text.upper() if not cursor.at_end else "nothing"
            hint = "remove its type: the expression determines it" if what == "AS" else None
            raise cursor.text.not_supported(f'{what} after column "{name}" is', start, hint)
    return column


def _option_list(cursor: TokenCursor, name: str, options: dict[str, str]) -> None:
    """Read ``('k' = 'v', k 'v', a.b = 5)`` and add the options to ``options``.

    Args:
        name: The relation that the options belong to.
    """
    cursor.expect("(")
    while not cursor.accept(")"):
        start = cursor.offset
        key = cursor.take_dotted_name("an option's name")
        before = next((option for option in options if is_same_option(option, key)), None)
        if before is not None:
            also = "" if before == key else f", also as '{before}'"
            raise cursor.text.error(
                f"\"{name}\": option '{key}' is set twice{also}",
                "duplicate-option",
                start,
                "leave out one of them",
            )
        cursor.accept("=")
        options[key] = _option_value(cursor, key)
        if not cursor.accept(",") and not cursor.looks_at(")"):
            raise cursor.syntax_error(", or )")


def _option_value(cursor: TokenCursor, key: str) -> str:
    content = cursor.external_value()
    if content is not None:
        return content
    negative = "-" if cursor.accept("-") else ""
    token = cursor.take()
    if token.token_type is TokenType.STRING and not negative:
        return cursor.fill(token.text, token.start)
    if token.token_type is TokenType.NUMBER or token.token_type is TokenType.STRING:
        return negative + token.text
    if token.text.upper() in ("TRUE", "FALSE"):
        return token.text.lower()
    message = f"the value of option '{key}' must be a string, a number, TRUE, FALSE or FROM FILE 'path'"
    raise cursor.text.error(message, "syntax", token.start)


def _source(
    name: str,
    connector: str,
    options: dict[str, str],
    listed: _Columns,
    cursor: TokenCursor,
    start: int,
    by_files: bool = False,
) -> Source:
    """Build the source of a declaration.

    Args:
        by_files: The columns were inferred from files.
    """
    text = cursor.text
    fields = source_fields(
        options, connector, lambda message, hint: text.error(message, "bad-option", start, hint)
    )
    clauses = [replace(c, place=len(listed.columns)) if by_files else c for c in listed.computed]
    keyed = bool(listed.keys)
    computed = computed_columns(clauses, listed.columns, change_option(options), text, is_keyed=keyed)
    columns = [*listed.columns, *(one.column for one in computed)]
    change = changes_of(
        options,
        columns,
        lambda message, hint: text.error(f'"{name}": {message}', "bad-option", start, hint),
        keyed=keyed,
    )
    times = event_times_of(listed.watermarks, columns, text, by_files=by_files)
    traits = connector_of(connector)
    if fields.partitions and traits.one_partition:
        raise text.error(
            f"\"{name}\" has 'partitions', but a {connector} source has no partitions",
            "bad-option",
            start,
            "remove 'partitions'; for Kafka they are detected",
        )
    if times and traits.snapshot:
        raise text.error(
            f'"{name}" has WATERMARK FOR, but a jdbc source is a table without event times',
            "not-a-stream",
            start,
            "remove WATERMARK FOR, and join it with JOIN … FOR SYSTEM_TIME AS OF PROCTIME()",
        )
    if times and fields.refresh_us is not None and fields.changes is None:
        raise text.error(
            f"\"{name}\" has an event time, so it is a stream, but 'refresh' is for tables",
            "bad-option",
            start,
            "remove WATERMARK FOR or 'refresh'",
        )
    records = records_of(options)
    tells = (traits.log or traits.files) and records in (DEBEZIUM, UPSERT)
    is_compared = is_snapshot_source(
        name,
        connector,
        change,
        records if tells else None,
        times,
        fields,
        lambda message, hint: text.error(message, "bad-option", start, hint),
    )
    _check_changes(name, change, connector, times, fields, cursor, start)
    if not keyed:
        check_times(change, computed, times, text, start)
    if tells and change is not None:
        raise text.error(
            f'"{name}" tells inserts from deletes both by its format and by "{change.column}"',
            "bad-option",
            start,
            "remove 'op.column' and 'diff.column'",
        )
    key = key_of(
        name,
        listed.keys,
        columns,
        connector,
        records,
        change,
        times,
        fields,
        lambda message, hint: text.error(message, "primary-key", start, hint),
        cursor,
    )
    if key is not None and tells:
        check_key(name, key, computed, records, text, listed.keys[0].start)
    changes = tells or change is not None or key is not None or is_compared
    return Source(
        name,
        tuple(listed.columns),
        connector,
        connector_options(options),
        tuple(times),
        fields.partitions,
        fields.idle_timeout_us,
        fields.on_idle,
        fields.max_ahead_us,
        is_table=changes and not times,
        changes=changes,
        rows_per_second=fields.rows_per_second,
        max_rows=fields.max_rows,
        max_bytes=fields.max_bytes,
        refresh_us=fields.refresh_us,
        change_column=change,
        primary_key=key,
        compared=is_compared,
        on_broken=fields.on_broken,
        computed=computed,
    )


def _check_changes(
    name: str,
    change: ChangeColumn | None,
    connector: str,
    times: Sequence[EventTime],
    fields: SourceFields,
    cursor: TokenCursor,
    start: int,
) -> None:
    if change is None:
        return
    traits, said = connector_of(connector), f'"{name}" tells inserts from deletes by "{change.column}"'
    if traits.snapshot or traits.own_rate:
        what = "has no records of changes" if traits.snapshot else "generates its rows"
        hint = "remove 'op.column' and 'diff.column'"
        raise cursor.text.error(f"{said}, but a {connector} source {what}", "bad-option", start, hint)
    if fields.refresh_us is not None:
        hint = "remove 'refresh', or the options that tell inserts from deletes"
        raise cursor.text.error(f"{said}, so it is never read completely", "bad-option", start, hint)
    refuse_time_of(
        name, change, times, lambda message, hint: cursor.text.error(message, "wrong-type", start, hint)
    )
