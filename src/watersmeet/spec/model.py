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
    """A named column; ``type``: Spark's, or UNKNOWN for an expression of a view whose type Spark alone can
    tell. ``stored_type``: that by which stored rows know it, where that is another (`identity_type`)."""

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

    ``lag``: how far the watermark stays behind the largest time seen: µs for TIMESTAMP and DATE columns,
    plain units for integers. None: the watermark moves only by explicit advances (replayed cases, tests).
    """

    column: str
    lag: int | None


class ComputedColumn(NamedTuple):
    """A column that a declaration computes of those of the records. ``expr`` mentions these, unqualified;
    ``place``: the number of columns of rows that stand before it."""

    column: Column
    expr: Expr
    place: int


@dataclass(frozen=True)
class Source:
    """A declared stream (or table), before any view: where its rows come from and what they look like.

    ``connector``: as in `spec.connectors`. ``options`` are the user's, keys as written. ``event_times`` are
    those declared on the source itself (WATERMARK FOR). A table (``is_table``) has none and keeps its rows
    until they are deleted. ``computed``: columns beside those of the records, which all that follows may
    name. ``changes``: rows carry diffs (+1, −1); ``change_column``: which column says it, and is none of the
    rows' (None: they come with their diffs). ``primary_key``: changes go by it, and records are no rows of
    the table yet (`plan.nodes.input_side`). ``compared``: it is read as a whole, again and again, and
    changes by
    what it held before and holds now. ``partitions`` are the declared ones (see `first_partitions`).
    ``rows_per_second``: how many are expected, for forecasts alone. ``max_rows``, ``max_bytes``: of its rows,
    how many all queries together may retain, and bytes of their files. ``refresh_us``: read as a table, it is
    looked at no more often; None: as its connector has it.
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
        """The columns of its rows: those of its records that do not say what becomes of them."""
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
    """Return a branch's column as it is stored: what is computed of it is computed of ``expr``."""
    stored: Expr = expr.meta.get(_BARE, expr)
    return stored


@dataclass(frozen=True)
class Branch:
    """One source that feeds an input: views flattened to expressions over the source's columns.

    ``columns`` is aligned with `Input.columns`; ``lags`` with `Input.event_times`. ``beneath``
    filters before IMPOSE_ORDER: rows that fail it do not belong to the stream. ``above`` filters
    after it: rows that fail it may still be late and still advance the watermark. None: no filter.
    Branches of one input have the input's types in common: `bare` is a column as stored, without a
    cast to that type.
    """

    source: Source
    columns: tuple[Expr, ...]
    beneath: Expr | None = None
    above: Expr | None = None
    lags: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class StageBranch:
    """The way of a stage's rows into an input. A stage is a query that is run for itself, because what
    follows takes its rows as a stream: one branch of a UNION ALL that joins, or an aggregation over windows.

    ``columns`` are aligned with `Input.columns` and mention the stage's outputs by name, unqualified; they
    have no say in its watermarks: an event time of the input is, here, a plain output of the stage that is an
    event time there. ``above``: a filter of the stage's rows; those that fail have moved the watermark.
    """

    stage: Query
    columns: tuple[Expr, ...]
    above: Expr | None = None


@dataclass(frozen=True)
class Input:
    """One alias of a query: a UNION ALL of branches (most often one), its columns and event times.

    ``event_times`` names those columns that every branch orders: a source's by a lag, a stage's because they
    are event times there. ``as_of``: its one source is read as a table, and a row that is joined with it
    meets it as it is in the row's tick (FOR SYSTEM_TIME AS OF); such an input is the right side of a join.
    ``broadcast``: every task of the join of which it is a side is to have all its rows (BROADCAST).
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
        """It is a source that is read as a whole, and changes by what it held before and holds now."""
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
        """Its rows are kept until they are deleted: those of tables, and of joins of tables."""
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
    """``left kind JOIN right ON on``; ``on`` None is TRUE (comma join, CROSS JOIN).

    The parser converts USING to equalities in ``on``; `Query.outputs` defines its columns. ``where``:
    a filter of the rows that leave the join, including padded rows (WHERE of a view or subquery).
    ``match``: the MATCH_CONDITION of an ASOF join, whose first comparison defines the nearest row;
    None: the one inequality of times in ``on`` defines it. ``clause``: for messages. ``plan``: the
    plan that a hint requests for the joins of its SELECT.
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
        """Rows of the left side meet a table as it is in their tick; neither is kept for the other."""
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
    """One column of the result; ``origin``: where it comes from, for messages (``l.t``, ``expression 3``)."""

    name: str
    expr: Expr
    origin: str


class WindowKind(Enum):
    TUMBLE = "TUMBLE"
    HOP = "HOP"
    SESSION = "SESSION"


@dataclass(frozen=True)
class Window:
    """Windows over one event time. ``time``: ``alias.column``. ``size`` and ``slide``: µs, or plain units of
    an integer time; windows begin at multiples of ``slide`` (TUMBLE: equal to ``size``). SESSION: ``size`` is
    the gap at which a session ends, ``slide`` is 0."""

    kind: WindowKind
    time: Expr
    size: int
    slide: int


@dataclass(frozen=True)
class Aggregation:
    """GROUP BY a window and keys. ``window`` None: groups over all rows, which change as rows come and go;
    without ``keys`` there is one, even of no row. ``keys``: any expressions; ``aggregates``: one function
    each; both mention ``alias.column`` of the inputs. ``columns`` of a group's result, which ``having`` and
    `Query.outputs` mention: window, keys, aggregates. ``ranking``: rows are numbered, not grouped; ``keys``
    are all columns. ``clause``, ``location``: what groups rows as written, and where, for messages."""

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
    aggregates by name, and of windows ``window_start`` and ``window_end``, the query's event times.
    ``mode``: what EMIT asks for; None: it says nothing. ``indexed_by``: of an index (CREATE INDEX), whose
    rows are kept for others and go nowhere, the keys by which they are found: columns of its one input.
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

    ``columns`` None: the columns of the query. ``connector``: a name from `spec.connectors`.
    ``primary_key``: the columns by which a row replaces another in the sink.
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
        """Its format cannot hold two columns of one name."""
        return self.traits.unique_names


@dataclass(frozen=True)
class Insert:
    """One INSERT (or bare SELECT, whose sink is the console), or an index. ``name`` is unique in the job and
    stable: it names the insert's state and its parts."""

    name: str
    sink: Sink
    query: Query

    @property
    def is_index(self) -> bool:
        """Its rows are kept for other queries and go nowhere (CREATE INDEX)."""
        return self.sink.is_nowhere


@dataclass(frozen=True)
class Job:
    """All that one file asks for. ``settings``: the SETs that are neither options nor known to watersmeet, as
    Spark configuration. ``run``: settings of the run itself (checkpoint, partitions, trigger, late_output,
    broken_output, …), as strings. ``explains``: the queries of EXPLAIN statements."""

    inserts: tuple[Insert, ...]
    options: Options = field(default_factory=Options)
    settings: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, str] = field(default_factory=dict)
    explains: tuple[Query, ...] = ()
    sinks: tuple[Sink, ...] = ()
