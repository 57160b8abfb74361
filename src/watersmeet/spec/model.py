"""WHAT a job asks for, by name: the one description that every surface (SQL, later Python and TOML) returns.

Invariants: everything is frozen and complete when built; every column reference in an expression is resolved.
Expressions are sqlglot trees of the Spark dialect:

* inside a `Branch` they mention columns of the branch's source, unqualified (``exp.column("order_time")``);
* inside a `Join`, `Query.where` and `Query.outputs` they mention ``alias.column`` of an `Input`
  (``exp.column("order_time", table="o")``), with aliases and columns spelled as declared. An input inside of
  a view or sub-query that joins has the alias of that before its own: ``od.o``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from sqlglot import exp

from watersmeet.errors import Location
from watersmeet.spec.aggregates import Ranking
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.connectors import NOWHERE, Connector, connector_of
from watersmeet.spec.job_options import AtLimit as AtLimit
from watersmeet.spec.job_options import Lateness as Lateness
from watersmeet.spec.job_options import NullTime as NullTime
from watersmeet.spec.job_options import OnBroken as OnBroken
from watersmeet.spec.job_options import OnIdle as OnIdle
from watersmeet.spec.job_options import Options as Options
from watersmeet.spec.job_options import OutputMode as OutputMode
from watersmeet.spec.job_options import PlanChoice as PlanChoice
from watersmeet.spec.job_options import WatermarkRule as WatermarkRule
from watersmeet.types.sql_type import SqlType

Expr = exp.Expression
"""A sqlglot tree in the Spark dialect."""

_BARE = "bare"


@dataclass(frozen=True)
class Column:
    """A named column.

    Attributes:
        type: Spark type; UNKNOWN for an expression of a view whose type only Spark knows.
        stored_type: type in the identity of stored rows, if that differs from ``type`` (`identity_type`).
    """

    name: str
    type: SqlType
    stored_type: SqlType | None = field(default=None, compare=False, repr=False)

    @property
    def identity_type(self) -> SqlType:
        """The type in digests of what columns are made of (`plan.identity.origins`)."""
        return self.stored_type or self.type


@dataclass(frozen=True)
class EventTime:
    """An event-time column and its lag.

    Attributes:
        lag: how far the watermark stays behind the largest time seen, in µs for TIMESTAMP and DATE columns,
            in plain units for integers. None: the watermark advances only explicitly (replayed cases, tests).
    """

    column: str
    lag: int | None


class ComputedColumn(NamedTuple):
    """A column that a declaration computes from the columns of the records.

    Attributes:
        expr: expression over the record's columns, unqualified.
        place: number of row columns that precede it.
    """

    column: Column
    expr: Expr
    place: int


@dataclass(frozen=True)
class Source:
    """A declared stream or table, before any view: the origin and the columns of its rows.

    Attributes:
        connector: name from `spec.connectors`.
        options: the user's options, with keys as written.
        event_times: event times declared on the source itself (WATERMARK FOR); a table has none.
        partitions: declared partitions (see `first_partitions`).
        is_table: True for a table, which retains its rows until they are deleted.
        changes: rows carry diffs (+1, −1).
        rows_per_second: expected rate, for forecasts only.
        max_rows, max_bytes: maximum number of its rows that all queries together may retain, and maximum
            bytes of their files.
        refresh_us: minimum µs between two readings of a looked-up table; None: the connector's default.
        change_column: column with the kind of change, which is not part of the rows. None: rows arrive with
            their diffs.
        primary_key: key by which changes apply; records are not yet rows of the table
            (`plan.nodes.input_side`).
        compared: it is read repeatedly as a whole; its changes are the differences from its previous
            contents.
        computed: columns computed in addition to those of the records; later parts of the job may name them.
    """

    name: str
    columns: tuple[Column, ...]
    connector: str
    options: Mapping[str, str] = field(default_factory=dict)
    event_times: tuple[EventTime, ...] = ()
    partitions: tuple[str, ...] = ()
    idle_timeout_us: int | None = None
    on_idle: OnIdle = OnIdle.HOLD
    max_ahead_us: int | None = None
    is_table: bool = False
    changes: bool = False
    rows_per_second: float | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    refresh_us: int | None = None
    change_column: ChangeColumn | None = None
    primary_key: PrimaryKey | None = None
    compared: bool = False
    on_broken: OnBroken = OnBroken.STOP
    computed: tuple[ComputedColumn, ...] = ()

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """Columns of its rows: those of its records without the ones that describe the kind of change."""
        unseen = set() if self.change_column is None else {self.change_column.column}
        if self.primary_key is None:  # a row that goes equals the row that came
            exprs = [own.expr for own in self.computed if own.column.name in unseen]
            unseen.update(node.name for expr in exprs for node in expr.find_all(exp.Column))
        return tuple(column for column in self.columns if column.name not in unseen)

    @property
    def traits(self) -> Connector:
        """Capabilities of its connector."""
        return connector_of(self.connector)

    @property
    def is_one_partition(self) -> bool:
        """Its rows carry no partition, for it has only one."""
        return self.traits.one_partition

    @property
    def first_partitions(self) -> tuple[str, ...]:
        """Partitions that the source has before its first row.

        ``("",)`` if it has only one; the engine learns others from their rows.
        """
        return ("",) if self.is_one_partition else self.partitions

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


def with_bare(expr: Expr, stored: Expr) -> Expr:
    """Return ``expr``, which `bare` takes back to ``stored``."""
    expr.meta[_BARE] = stored
    return expr


def bare(expr: Expr) -> Expr:
    """Return a branch's column as stored: other computed columns are computed from ``expr`` itself."""
    stored: Expr = expr.meta.get(_BARE, expr)
    return stored


@dataclass(frozen=True)
class Branch:
    """One source that feeds an input: views flattened to expressions over the source's columns.

    Branches of one input have the input's types in common: `bare` is a column as stored, without a
    cast to that type.

    Attributes:
        columns: aligned with `Input.columns`.
        lags: aligned with `Input.event_times`.
        beneath: filter before IMPOSE_ORDER: rows that fail it do not belong to the stream. None: no filter.
        above: filter after IMPOSE_ORDER: rows that fail it may still be late and still advance the watermark.
            None: no filter.
    """

    source: Source
    columns: tuple[Expr, ...]
    beneath: Expr | None = None
    above: Expr | None = None
    lags: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class StageBranch:
    """Path of a stage's rows into an input.

    A stage is a query that runs separately, because the next step reads its rows as a stream: one branch of a
    UNION ALL that joins, or an aggregation over windows.

    Attributes:
        columns: expressions over the stage's outputs by name, unqualified, aligned with `Input.columns`. They
            do not determine watermarks: an event time of the input is here a plain output of the stage that
            is an event time there.
        above: filter of the stage's rows; rows that fail it have already advanced the watermark.
    """

    stage: Query
    columns: tuple[Expr, ...]
    above: Expr | None = None


@dataclass(frozen=True)
class Input:
    """One alias of a query: a UNION ALL of branches (usually one), its columns and event times.

    Attributes:
        event_times: columns that are event times in every branch: of a source by a lag, of a stage because
            they are event times there.
        as_of: its only source is read as a table, and a row joins with the table as of the row's tick (FOR
            SYSTEM_TIME AS OF); such an input is the right side of a join.
        broadcast: every task of its join receives all its rows (BROADCAST).
    """

    alias: str
    columns: tuple[Column, ...]
    event_times: tuple[str, ...]
    branches: tuple[Branch | StageBranch, ...]
    as_of: bool = False
    broadcast: bool = False

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of its own branches, without those of its stages."""
        return tuple(branch.source for branch in self.branches if isinstance(branch, Branch))

    @property
    def stages(self) -> tuple[Query, ...]:
        return tuple(branch.stage for branch in self.branches if isinstance(branch, StageBranch))

    @property
    def primary_key(self) -> PrimaryKey | None:
        """Primary key of an input whose records are changes of a table that has one.

        These records are not yet rows of the table. None if the table has no key, or if the input is read
        as of a time.
        """
        keys = [source.primary_key for source in self.sources]
        return keys[0] if keys and not self.as_of else None

    @property
    def is_compared(self) -> bool:
        """True if a source is read repeatedly as a whole, and compared with its previous contents."""
        return not self.as_of and any(source.compared for source in self.sources)

    @property
    def names_whole_rows(self) -> bool:
        """True if a retraction names the whole row, and may name a row that does not exist.

        A change by a primary key, of a compared source, or of a result of groups names a row that exists.
        """
        if self.as_of:
            return False
        beneath = [i for stage in self.stages if stage.aggregation is None for i in stage.inputs]
        return any(
            (source.changes or source.is_table) and not (source.primary_key or source.compared)
            for source in self.sources
        ) or any(i.changes and i.primary_key is None and not i.is_compared for i in beneath)

    @property
    def is_table(self) -> bool:
        """True if its rows are retained until they are deleted: tables, and joins of tables."""
        beneath = (i.is_table for stage in self.stages for i in stage.inputs)
        return self.as_of or (all(source.is_table for source in self.sources) and all(beneath))

    @property
    def changes(self) -> bool:
        """True if rows of the input, or of its stages, may be retracted.

        The match of a row with a table as of its tick never changes.
        """
        if self.as_of:
            return False
        own = any(source.changes or source.is_table for source in self.sources)
        return own or any(i.changes for stage in self.stages for i in stage.inputs)

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


class JoinKind(Enum):
    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "LEFT SEMI"
    ANTI = "LEFT ANTI"
    ASOF = "ASOF"
    ASOF_LEFT = "LEFT ASOF"

    @property
    def pads_left(self) -> bool:
        """True if the join emits left rows that never match: padded, or unchanged by an ANTI join."""
        return self in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI, JoinKind.ASOF_LEFT)

    @property
    def pads_right(self) -> bool:
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def hides_right(self) -> bool:
        """Its rows are rows of the left side: nothing above it can mention the right one."""
        return self in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def is_asof(self) -> bool:
        """Every left row meets one right row at most: the nearest."""
        return self in (JoinKind.ASOF, JoinKind.ASOF_LEFT)


class Clause(Enum):
    """SQL clause of a join's condition; ``NONE``: comma, CROSS JOIN."""

    ON = "ON"
    USING = "USING"
    EXISTS = "EXISTS"
    NONE = "NONE"


@dataclass(frozen=True)
class Join:
    """``left kind JOIN right ON on``.

    The parser converts USING to equalities in ``on``; `Query.outputs` defines its columns.

    Attributes:
        on: condition; None is TRUE (comma join, CROSS JOIN).
        where: filter of the rows that leave the join, including padded rows (WHERE of a view or subquery).
        match: MATCH_CONDITION of an ASOF join, whose first comparison defines the nearest row; None: the only
            inequality of times in ``on`` defines it.
        clause: SQL clause of the condition, for messages.
        plan: the plan that a hint requests for the joins of its SELECT.
    """

    left: Relation
    right: Relation
    kind: JoinKind
    on: Expr | None
    where: Expr | None = None
    match: Expr | None = None
    clause: Clause = field(default=Clause.ON, compare=False)
    plan: PlanChoice | None = None

    @property
    def is_lookup(self) -> bool:
        """True if rows of the left side join with a table as of their tick; neither side is retained."""
        return isinstance(self.right, Input) and self.right.as_of


Relation = Input | Join


def inputs_of(relation: Relation) -> Iterator[Input]:
    """Yield the inputs of a relation, in the query's order."""
    if isinstance(relation, Input):
        yield relation
    else:
        yield from inputs_of(relation.left)
        yield from inputs_of(relation.right)


def with_inputs(relation: Relation, change: Callable[[Input], Input]) -> Relation:
    """Return the relation with ``change`` applied to each input."""
    if isinstance(relation, Input):
        return change(relation)
    left, right = with_inputs(relation.left, change), with_inputs(relation.right, change)
    return replace(relation, left=left, right=right)


def with_branches(query: Query, change: Callable[[Branch], Branch | StageBranch]) -> Query:
    """Apply ``change`` to each branch of the query and its stages that reads a source.

    Branches of inputs that are looked up as of a time stay unchanged.
    """

    def of_branch(branch: Branch | StageBranch) -> Branch | StageBranch:
        if isinstance(branch, StageBranch):
            return replace(branch, stage=with_branches(branch.stage, change))
        return change(branch)

    def of_input(given: Input) -> Input:
        return given if given.as_of else replace(given, branches=tuple(map(of_branch, given.branches)))

    return replace(query, relation=with_inputs(query.relation, of_input))


def visible_inputs(relation: Relation) -> Iterator[Input]:
    """Yield the inputs whose columns the relation's rows have, in the query's order."""
    if isinstance(relation, Input):
        yield relation
    else:
        yield from visible_inputs(relation.left)
        if not relation.kind.hides_right:
            yield from visible_inputs(relation.right)


@dataclass(frozen=True)
class OutputColumn:
    """One column of the result.

    Attributes:
        origin: description of its origin, for messages (``l.t``, ``expression 3``).
    """

    name: str
    expr: Expr
    origin: str


class WindowKind(Enum):
    TUMBLE = "TUMBLE"
    HOP = "HOP"
    SESSION = "SESSION"


@dataclass(frozen=True)
class Window:
    """Windows over one event time.

    Attributes:
        time: the event time, as ``alias.column``.
        size: length of a window, in µs, or in plain units of an integer time. SESSION: the gap that ends a
            session.
        slide: distance between the starts of windows, in the same unit; windows begin at its multiples.
            TUMBLE: equal to ``size``. SESSION: 0.
    """

    kind: WindowKind
    time: Expr
    size: int
    slide: int


@dataclass(frozen=True)
class Aggregation:
    """GROUP BY a window and keys.

    Attributes:
        window: the window. None: groups over all rows, which change as rows are inserted and deleted.
        keys: any expressions over ``alias.column`` of the inputs. Without keys there is one group, even if
            there are no rows. With ``ranking``: all columns.
        aggregates: one function each, over ``alias.column`` of the inputs.
        columns: columns of a group's result, which ``having`` and `Query.outputs` mention: window, keys,
            aggregates.
        ranking: rows are numbered instead of grouped.
        clause: the text that groups rows, as written, for messages.
        location: location of the clause, for messages.
    """

    window: Window | None
    keys: tuple[OutputColumn, ...]
    aggregates: tuple[OutputColumn, ...]
    columns: tuple[Column, ...]
    having: Expr | None = None
    ranking: Ranking | None = None
    clause: str = field(default="", compare=False, repr=False)
    location: Location | None = field(default=None, compare=False, repr=False)

    @property
    def event_times(self) -> tuple[str, ...]:
        """The columns of the result that are event times."""
        return () if self.window is None else (WINDOW_START, WINDOW_END)


WINDOW_START = "window_start"
WINDOW_END = "window_end"


@dataclass(frozen=True)
class Query:
    """Rows of a relation that pass ``where``, as ``outputs``.

    With an ``aggregation`` the rows that pass are grouped, and ``outputs`` mention, unqualified, its keys and
    aggregates by name and, with windows, ``window_start`` and ``window_end``, the query's event times.

    Attributes:
        mode: mode that EMIT requests; None without EMIT.
        indexed_by: for an index (CREATE INDEX), whose rows are retained for other queries and not emitted,
            the look-up keys: columns of its only input.
    """

    relation: Relation
    where: Expr | None
    outputs: tuple[OutputColumn, ...]
    sql: str
    aggregation: Aggregation | None = None
    mode: OutputMode | None = None
    indexed_by: tuple[tuple[str, ...], ...] = ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(inputs_of(self.relation))

    @property
    def every(self) -> tuple[Query, ...]:
        """The query and its stages, each before its own stages."""
        return (self, *(query for i in self.inputs for stage in i.stages for query in stage.every))


@dataclass(frozen=True)
class Sink:
    """Destination of an INSERT.

    Attributes:
        connector: name from `spec.connectors`.
        columns: declared columns; None: the columns of the query.
        primary_key: columns by which a row replaces another in the sink.
    """

    name: str
    connector: str
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] | None = None
    primary_key: tuple[str, ...] = ()

    @property
    def traits(self) -> Connector:
        """Capabilities of its connector."""
        return connector_of(self.connector)

    @property
    def is_nowhere(self) -> bool:
        """It is that of an index, which puts nothing out."""
        return self.connector == NOWHERE

    @property
    def needs_unique_names(self) -> bool:
        """True if its format cannot have two columns with the same name."""
        return self.traits.unique_names


@dataclass(frozen=True)
class Insert:
    """One INSERT, a bare SELECT, whose sink is the console, or an index.

    Attributes:
        name: unique in the job, and stable: it names the insert's state and its parts.
    """

    name: str
    sink: Sink
    query: Query

    @property
    def is_index(self) -> bool:
        """True if its rows are retained for other queries and not emitted (CREATE INDEX)."""
        return self.sink.is_nowhere


@dataclass(frozen=True)
class Job:
    """Everything that one file requests.

    Attributes:
        settings: Spark configuration: all SETs that are neither options nor known to watersmeet.
        run: settings of the run (checkpoint, partitions, trigger, late_output, broken_output, …), as strings.
        explains: queries of EXPLAIN statements.
    """

    inserts: tuple[Insert, ...]
    options: Options = field(default_factory=Options)
    settings: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, str] = field(default_factory=dict)
    explains: tuple[Query, ...] = ()
    sinks: tuple[Sink, ...] = ()
