"""The statements of a file → one `Job`. Problems of all statements are found before any is raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot.tokens import Token

from watersmeet.errors import SqlError, WatersmeetError, flat_enough, near_names
from watersmeet.parser.catalog import Catalog
from watersmeet.parser.ddl.create import Infer, declared_name, read_declaration
from watersmeet.parser.ddl.index import read_index
from watersmeet.parser.ddl.settings import STATE_SETTINGS, Settings, read_set, setting_name
from watersmeet.parser.query.expressions.calls import OWN_FUNCTIONS
from watersmeet.parser.query.flow import Flow, JoinedView, flow_of
from watersmeet.parser.query.inserts import (
    free_name,
    insert_of,
    insert_target,
    names_before_insert,
    prepend_ctes,
    refuse_emitted,
    split_emit,
)
from watersmeet.parser.query.select import build_query
from watersmeet.parser.query.views import select_flow
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.text.tokens import TokenCursor, parse_tokens, statements_of
from watersmeet.spec.model import Column, Insert, Job, Query, Sink, Source
from watersmeet.types.sql_type import INTEGERS

_DECLARATIONS = ("MAPPING", "TABLE", "SOURCE", "SINK")
STATEMENTS = (
    *(f"CREATE {what}" for what in (*_DECLARATIONS, "VIEW", "INDEX")),
    "DROP INDEX", "INSERT", "SELECT", "EXPLAIN", "SET",
)  # fmt: skip
"""What a job is written with; SELECT may begin otherwise (`_QUERIES`)."""
_KNOWN = ("CREATE", "INSERT", "SELECT", "EXPLAIN", "SET", "WITH")
_QUERIES = ("INSERT", "SELECT", "WITH", "FROM", "(")
_KEPT = (
    "write results to a sink: CREATE SINK name WITH ('connector' = …); INSERT INTO name SELECT …; or"
    " name a query with CREATE VIEW name AS SELECT …"
)
_CONSOLE = Sink("console", "console")


def parse_job(
    text: str,
    *,
    source_name: str | None = None,
    overrides: Mapping[str, str] | None = None,
    infer: Infer | None = None,
    given: Mapping[str, Flow | JoinedView] | None = None,
    own_functions: bool = False,
) -> Job:
    """Parse the text of a job file.

    Args:
        overrides: External settings (flags), which override SET.
        infer: Infers the columns of sources declared without columns; None: such sources are
            rejected.
        given: Streams, tables and views that the text may name without declaring them.
        own_functions: Spark may have user-defined functions.

    Raises:
        SqlError, SeveralErrors: All problems, in the order of the text.

    >>> job = parse_job('''
    ...     CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON y.t BETWEEN x.t AND x.t + 3''')
    >>> [(insert.name, insert.sink.connector) for insert in job.inserts]
    [('console', 'console')]
    """
    settings = "\n".join([text, *(overrides or {})]).lower()
    own = own_functions or any(name in settings for name in OWN_FUNCTIONS)
    with flat_enough():
        reader = _Reader(Text(text, source_name, own_functions=own), infer)
        for name, flow in (given or {}).items():
            reader.catalog.add(name, flow)
        return reader.read(overrides or {})


def declared_sources(text: str) -> Mapping[str, Source]:
    """Return the streams and tables that a text of CREATE statements declares, by their names.

    Raises:
        SqlError, SeveralErrors: All problems of the text.
    """
    with flat_enough():
        return _Reader(Text(text), None).read_sources()


def run_settings(text: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Read the settings of the run (`Job.run`) from a job's text and flags.

    Ignore problems, because the parser of the job reports them. The exception is a missing variable
    or file that names the state, because the caller would otherwise use another state.

    Raises:
        SqlError, SeveralErrors: That variable or file is missing; includes the job's other problems.
    """
    settings = Settings()
    try:
        whole = Text(text)
        statements = [TokenCursor(whole, tokens) for tokens in statements_of(whole)]
    except WatersmeetError:
        return {}
    given, other = [], {setting_name(name) for name in overrides}
    for cursor in statements:
        problems = len(whole.problems)
        try:
            if cursor.accept("SET"):
                given.append(read_set(cursor)[:2])
        except WatersmeetError:
            continue
        is_missing = len(whole.problems) > problems and setting_name(given[-1][0]) not in other
        if is_missing and setting_name(given[-1][0]) in STATE_SETTINGS:
            parse_job(text, overrides=overrides, infer=_infer_nothing)
            raise whole.all_problems()
    for key, value in [*given, *overrides.items()]:
        try:
            settings.set(key, value)
        except WatersmeetError:
            continue
    return settings.run


def _infer_nothing(*_: object) -> Sequence[Column]:
    """Raise StatementRejected to skip sources whose columns are inferred from files.

    Callers that only check a text for problems use this function.
    """
    raise StatementRejected


class _Reader:
    """Takes statements one after the other; holds what they have declared."""

    def __init__(self, text: Text, infer: Infer | None) -> None:
        self.text = text
        self.infer = infer
        self.catalog = Catalog()
        self.settings = Settings()
        self.inserts: list[Insert] = []
        self.indexes: dict[str, Insert] = {}
        self.explains: list[Query] = []
        self.sources: dict[str, Source] = {}

    def read(self, overrides: Mapping[str, str]) -> Job:
        self._each(self._statement)
        for key, value in overrides.items():
            try:
                self.settings.set(key, value)
            except SqlError as error:
                self.text.problems.append(error)
        self._check_lengths()
        self._check_names()
        if self.text.problems:
            raise self.text.all_problems()
        if not self.inserts and not self.explains and not self.indexes:
            raise SqlError(
                "there is nothing to run: no INSERT, SELECT, EXPLAIN or CREATE INDEX",
                code="nothing-to-run",
                hint="add INSERT INTO sink SELECT …, or a SELECT to see rows on the console",
            )
        return Job(
            (*self.indexes.values(), *self.inserts),
            self.settings.options,
            self.settings.spark,
            self.settings.run,
            tuple(self.explains),
            tuple(self.catalog.sinks.values()),
        )

    def read_sources(self) -> Mapping[str, Source]:
        self._each(self._declaration)
        if self.text.problems:
            raise self.text.all_problems()
        return {source.name: source for source in self.sources.values()}

    def _declaration(self, cursor: TokenCursor) -> None:
        """CREATE TABLE, SOURCE or MAPPING with columns: what can be read, as it is."""
        start, before = cursor.offset, dict(self.sources)
        if not cursor.accept("CREATE"):
            raise cursor.syntax_error("only declarations such as CREATE TABLE")
        self._create(cursor)
        if self.sources == before:
            hint = "CREATE TABLE, SOURCE or MAPPING, with columns; views, sinks and indexes are for sql(…)"
            message = "the text declares no stream or table"
            raise self.text.error(message, "not-supported", start, hint)

    def _each(self, read: Callable[[TokenCursor], None]) -> None:
        """Read every statement and collect the problems."""
        for tokens in statements_of(self.text):
            try:
                read(TokenCursor(self.text, tokens))
            except StatementRejected:
                pass
            except WatersmeetError as error:
                self.text.problems.append(error)

    def _statement(self, cursor: TokenCursor) -> None:
        if cursor.accept("CREATE"):
            self._create(cursor)
        elif cursor.accept("DROP", "INDEX"):
            self._drop_index(cursor)
        elif cursor.accept("SET"):
            problems = len(self.text.problems)
            setting = read_set(cursor)
            if len(self.text.problems) == problems:
                self.settings.set(*setting)
        elif cursor.accept("EXPLAIN"):
            cursor.accept("PLAN", "FOR") or cursor.accept("EXTENDED") or cursor.accept("FORMATTED")
            sink, query = self._query(cursor)
            self.explains.append(insert_of("explain", sink, query, self.text).query)
        elif any(cursor.looks_at(word) for word in _QUERIES):
            sink, query = self._query(cursor)
            self.inserts.append(
                insert_of(
                    free_name(sink.name, [insert.name for insert in self.inserts]), sink, query, self.text
                )
            )
        else:
            self._refuse(cursor)

    def _refuse(self, cursor: TokenCursor) -> None:
        word = cursor.take().text.upper().split()[0]
        hint = f"statements are {', '.join(STATEMENTS[:-1])} and {STATEMENTS[-1]}"
        if word in ("DROP", "ALTER", "DELETE", "UPDATE", "TRUNCATE"):
            hint = f"remove it: a job reads sources and inserts into sinks; {word} in the target system"
            hint += "; the one DROP here is DROP INDEX" if word == "DROP" else ""
        elif (near := near_names(word, _KNOWN)) and near.startswith("did"):
            hint = near
        raise self.text.error(
            f"the statement {word} is not supported", "not-supported", cursor.tokens[0].start, hint
        )

    def _create(self, cursor: TokenCursor) -> None:
        replaces = cursor.accept("OR", "REPLACE")
        for word in ("GLOBAL", "EXTERNAL", "TEMPORARY", "TEMP"):
            cursor.accept(word)
        if cursor.accept("VIEW"):
            self._create_view(cursor, replaces)
            return
        if cursor.looks_at("UNIQUE"):
            hint = "leave UNIQUE out; that a table has one row per key says its PRIMARY KEY (…) NOT ENFORCED"
            raise self.text.not_supported("CREATE UNIQUE INDEX is", cursor.offset, hint)
        if cursor.accept("INDEX"):
            self._create_index(cursor, replaces)
            return
        if cursor.looks_at("MATERIALIZED"):
            raise self.text.not_supported("CREATE MATERIALIZED VIEW is", cursor.offset, _KEPT)
        kind = next((word for word in _DECLARATIONS if cursor.accept(word)), None)
        if kind is None:
            word = "" if cursor.at_end else cursor.tokens[cursor.index].text
            near = near_names(word, (*_DECLARATIONS, "VIEW", "INDEX")) or ""
            raise cursor.syntax_error(
                "MAPPING, TABLE, SOURCE, SINK, VIEW or INDEX after CREATE",
                near if near.startswith("did") else None,
            )
        name = self._new_name(cursor, replaces)
        if name is None:
            return
        self.catalog.broken.add(name.lower())
        if cursor.looks_at("AS"):
            raise self.text.not_supported(f"CREATE {kind} … AS is", cursor.offset, _KEPT)
        declared = read_declaration(cursor, kind, name, self.infer)
        self.catalog.broken.discard(name.lower())
        self.catalog.sinks[name.lower()] = declared.sink
        if declared.inferred is not None:
            self.catalog.inferred[name.lower()] = declared.inferred
        if declared.source is not None:
            self.sources[name.lower()] = declared.source
            self.catalog.add(name, flow_of(declared.source))
            if declared.source.primary_key is not None:
                self.catalog.keyed.add(name.lower())

    def _create_view(self, cursor: TokenCursor, replaces: bool) -> None:
        name = self._new_name(cursor, replaces)
        if name is None:
            return
        try:
            self.catalog.add(name, self._view(cursor))
        except (StatementRejected, WatersmeetError):
            self.catalog.broken.add(name.lower())  # and not before: it may name itself, and then is unknown
            raise

    def _create_index(self, cursor: TokenCursor, replaces: bool) -> None:
        sql = self._slice(cursor.tokens)
        keeps, start = cursor.accept("IF", "NOT", "EXISTS"), cursor.offset
        name = cursor.name("a name, then ON table (column, …)")
        if not name.strip():
            raise self.text.error("syntax: the name of the index is empty", "syntax", start)
        if name.lower() in self.indexes and not replaces:
            if keeps:
                return
            hint = "use another name, or CREATE OR REPLACE"
            raise self.text.error(f'the index "{name}" already exists', "duplicate-name", start, hint)
        self.indexes[name.lower()] = read_index(cursor, name, self.catalog, sql)

    def _drop_index(self, cursor: TokenCursor) -> None:
        """Remove an index that an earlier statement of the text created from the job."""
        may_be_missing, start = cursor.accept("IF", "EXISTS"), cursor.offset
        name = cursor.name("the index's name")
        cursor.end()
        if self.indexes.pop(name.lower(), None) is None and not may_be_missing:
            hint = near_names(name, self.indexes)
            raise self.text.error(
                f'there is no index "{name}" in this text',
                "unknown-index",
                start,
                hint
                or "an index of an earlier run ends with the job whose text does not make it:"
                f" DROP INDEX IF EXISTS {name}, or no statement at all",
            )

    def _view(self, cursor: TokenCursor) -> Flow | JoinedView:
        if cursor.looks_at("("):
            raise self.text.not_supported(
                "a column list of a view is", cursor.offset, "name the columns with AS in its SELECT"
            )
        cursor.expect("AS")
        if cursor.at_end:
            raise cursor.syntax_error("SELECT")
        tokens = cursor.rest()
        refuse_emitted(tokens, self.text)
        return select_flow(parse_tokens(self.text, tokens), self.catalog, self.text)

    def _new_name(self, cursor: TokenCursor, replaces: bool) -> str | None:
        """Read the name that a statement declares; None if IF NOT EXISTS retains an earlier declaration.

        Raises:
            SqlError: The name is declared and the statement may not replace it.
        """
        keeps, start = cursor.looks_at("IF", "NOT", "EXISTS"), cursor.offset
        name = declared_name(cursor)
        if name.lower() not in self.catalog.flows and name.lower() not in self.catalog.sinks:
            return name
        if replaces:
            self.catalog.drop(name)
            return name
        if keeps:
            return None
        hint = "use another name, or CREATE OR REPLACE"
        raise self.text.error(f'"{name}" is declared twice', "duplicate-name", start, hint)

    def _query(self, cursor: TokenCursor) -> tuple[Sink, tuple[Query, tuple[str, ...] | None, int]]:
        """INSERT or SELECT: the sink, and the query with the INSERT's column list and its place."""
        start = cursor.offset
        sink, columns = _CONSOLE, None
        names = names_before_insert(cursor)
        if cursor.accept("INSERT"):
            sink, columns = insert_target(cursor, self.catalog)
        if cursor.at_end:
            raise cursor.syntax_error("SELECT")
        tokens = cursor.rest()
        asked, mode = split_emit(tokens, self.text)
        sql = " ".join(self._slice(part) for part in (names, tokens) if part)
        tree = parse_tokens(self.text, prepend_ctes(names, asked))
        query = build_query(tree, self.catalog, self.text, sql)
        return sink, (replace(query, mode=mode), columns, start)

    def _slice(self, tokens: Sequence[Token]) -> str:
        return self.text.sql[tokens[0].start : tokens[-1].end + 1]

    def _check_names(self) -> None:
        """Indexes and INSERTs are queries of one job."""
        indexes = {index.name.lower(): index.name for index in self.indexes.values()}
        for insert in self.inserts:
            if insert.name.lower() in indexes:
                message = f'the sink "{insert.sink.name}" has the name of one of the job\'s indexes'
                self.text.problem(message, "duplicate-name", None, "give the sink or the index another name")

    def _check_lengths(self) -> None:
        """Report an interval for integer event times, and a number of µs for max_drift.

        An interval has no meaning for integer times, and a user does not mean a number as µs.
        """
        queries = [insert.query for insert in self.inserts] + self.explains
        times = [
            (f"{i.alias}.{name}", column.type)
            for query in queries
            for i in query.inputs
            for name in i.event_times
            if (column := i.column(name)) is not None
        ]
        for setting, is_interval in self.settings.durations.items():
            if setting == "max_drift" and self.settings.options.max_drift is None:
                continue
            wrong = next((name for name, type_ in times if (type_ in INTEGERS) == is_interval), None)
            if wrong is not None and is_interval:
                message = f'{setting} is an interval, but the event time "{wrong}" is an integer'
                self.text.problem(message, "bad-setting", None, "write it as a whole number")
            elif wrong is not None and setting == "max_drift":
                message = f'{setting} is a number, but the event time "{wrong}" is not an integer'
                self.text.problem(message, "bad-setting", None, "write INTERVAL '1' HOUR")
