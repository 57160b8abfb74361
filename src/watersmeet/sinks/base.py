"""Define the protocol of sinks, and their common parts.

A tick reaches a sink in two steps. ``write`` evaluates the frame and *stages* its rows: nobody can see them,
and they may be staged any number of times. ``publish`` makes the staged rows of one attempt visible, in one
step, on the driver. If the process is killed in between, a new attempt repeats the tick with the same rows.

* ``idempotent`` True: publishing (insert, tick) a second time changes nothing, and a part of this name that
  was made from something else is rejected (`part_mark`). With the engine's repeatable ticks this is exactly
  once.
* ``idempotent`` False: a repeated tick emits its rows again: at least once. ``write`` already publishes
  them, unless the sink ``stages`` them.

This package does not import PySpark; a frame is only asked to write itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from watersmeet.errors import SpecError, near_names
from watersmeet.sinks.part_mark import Identity, Resumed
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.types.parser import sql_type

if TYPE_CHECKING:
    import pyarrow as pa

Schema = Any
"""The result's columns: a sequence of `Column`, or Spark's StructType."""

Frame = Any
"""A DataFrame of PySpark, which nothing here may import."""

Session = Any
"""A session of PySpark's, likewise."""

StagedPart = Mapping[str, Any]
"""What a task says of the rows that it staged, in values that JSON has: its files, for example."""

Texts = Sequence[Any]
"""The values of a row as text, NULL as None; or, for who asks for them, as JSON has them."""


_TIMES = {
    "timestampformat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS[XXXXX]",
    "timestampntzformat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
TEXT_OPTIONS: dict[str, dict[str, str]] = {
    "json": {**_TIMES, "ignorenullfields": "false"},
    "csv": {**_TIMES, "ignoreleadingwhitespace": "false", "ignoretrailingwhitespace": "false"},
}
"""What Spark is told when it writes values as text, unless the user says otherwise. Its own defaults cut
times to milliseconds, offsets from UTC to minutes, and, in CSV, the blanks around a text."""


def text_options_sql(wanted: str) -> str:
    """Return the `TEXT_OPTIONS` of a format as a SQL argument of ``to_json`` or ``to_csv``."""
    texts = [text for pair in TEXT_OPTIONS[wanted].items() for text in pair]
    return "map(" + ", ".join("'" + text.replace("'", "\\'") + "'" for text in texts) + ")"


@dataclass(frozen=True)
class Omission:
    """Rows that a target cannot represent.

    Attributes:
        what: description of the rows.
        hint: how to resolve it.
    """

    what: str
    hint: str


@dataclass(frozen=True)
class Topic:
    """A Kafka topic, and how clients reach its brokers."""

    name: str
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KeyedRecords:
    """Format of a sink that takes one record per key and tick.

    Records have the columns ``key`` and ``value``, both text.

    Args:
        columns: Columns of the key.
        events: If True, the value is an event with the row before and after; if False, the value is
            the row, or NULL where the key no longer has a row.
        plain_key: If True, the key is the text of its only column; if False, it is a JSON object of
            the key columns.
    """

    columns: tuple[str, ...]
    events: bool
    plain_key: bool


@dataclass(frozen=True)
class KeyedRows:
    """Format of a sink that takes one row per key and tick.

    Rows have all columns of the result except `CHANGE_COLUMNS`, followed by `DELETED`. `DELETED` is
    True where the key no longer has a row; the row then has its last values.

    Args:
        columns: Columns of the key. None of them is NULL in any row.
    """

    columns: tuple[str, ...]


Keyed = KeyedRecords | KeyedRows


class RowPrinter(Protocol):
    """Printer of the console sink's rows; the command line supplies its own.

    Args:
        values: If True, it takes rows as `json_values.rows_of` returns them, not as text.
    """

    @property
    def values(self) -> bool: ...

    def show(self, insert: str, tick: int, names: Sequence[str], rows: Sequence[Texts], more: int) -> None:
        """Show ``rows``, and that there were ``more`` that are not shown."""


@runtime_checkable
class ShowsRows(Protocol):
    """A sink that shows the first rows of a tick, and accepts rows from the driver without a frame.

    Attributes:
        most_shown: maximum number of rows that it shows.
        shows_values: it shows rows as `json_values.rows_of` returns them, and not as text.
    """

    @property
    def most_shown(self) -> int: ...

    @property
    def shows_values(self) -> bool: ...

    def take_shown(
        self, insert: str, tick: int, attempt: str, names: Sequence[str], rows: Sequence[Texts], total: int
    ) -> None:
        """Stage the first rows of a tick, and how many it has, instead of `Sink.write`."""


class ArrowPart(Protocol):
    """Writer that stages rows inside Spark tasks.

    Tasks receive it as JSON: it is a dataclass of plain values, listed in the registry (`PARTS`). Spark
    may run a task more than once for a partition, also at the same time. A ClassVar ``SECRETS`` names
    the fields that nobody may see; tasks get their values from `Sink.secrets`.
    """

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart | None:
        """Stage all rows of one partition.

        Returns:
            What the sink needs to know about this attempt. `Sink.take_parts` receives this value for one
            attempt of each task. None if the staged data itself shows which attempt counts.
        """


class Files(Protocol):
    """Storage for rows within a tick, shared by all tasks and the driver: the job's state store.

    It can be sent to tasks. See `state.store.Store`.
    """

    def write(self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True) -> None: ...

    def create(self, name: str, data: bytes) -> bool: ...

    def read(self, name: str) -> pa.Buffer: ...

    def has(self, name: str) -> bool: ...

    def delete_all(self, names: Sequence[str]) -> int: ...


@runtime_checkable
class StagesInState(Protocol):
    """A sink whose target cannot stage rows, so that they are stored with the job's state."""

    def stage_in(self, files: Files) -> None:
        """Set the storage for staged rows; called before `Sink.prepare`.

        Names must begin as `staged_folder` returns.
        """


@runtime_checkable
class RemembersTarget(Protocol):
    """A sink that remembers which target the job has written to, and refuses another one of its name."""

    def accept_target(self) -> None:
        """Take the target that is there now, whichever it is; called before `Sink.prepare`."""


@runtime_checkable
class ChecksTarget(Protocol):
    """A sink that can see without Spark whether its target is there, and this job's."""

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """Raise the errors that `prepare` would raise for the target, without writing anything.

        Doubtful cases are left to `prepare`.

        Args:
            owner: Owner of the job's state; None if it has no owner yet.
            wait_s: Maximum seconds to wait for a server; None to contact no server.
        """


@runtime_checkable
class NeedsSession(Protocol):
    """A sink that needs the Spark session, in addition to its frames."""

    def use(self, session: Session) -> None:
        """Set the Spark session that runs the job; called before `Sink.prepare`."""


Numbered = Callable[["ArrowPart", int], list[StagedPart]]
"""Lets tasks write the rows ``0, 1, …`` up to a number, each alone, with a part; what that said of each."""


@runtime_checkable
class CallsInTasks(Protocol):
    """A sink that gives out rows within tasks when its tick is published, and not in one step."""

    def call_in(self, tasks: Numbered, is_over: Callable[[int], bool]) -> None:
        """Set the function that runs parts in tasks; called before `Sink.prepare`.

        Args:
            tasks: Function that lets tasks write numbered rows with a part.
            is_over: Function that returns True if the state has reached a tick, through any run.
        """


def staged_folder(tick: int, attempt: str) -> str:
    """Return the prefix of the names of staged rows in `Files`.

    Later ticks remove what a killed attempt left under this prefix.
    """
    return f"work/passing-{tick}-{attempt}-"


class Sink(Protocol):
    """One target of one job. All calls come from the driver, one at a time.

    A class that inherits the defaults has a target that records no ticks, and tasks stage no parts for it.
    """

    idempotent: bool
    stages: bool = False
    sets_aside: bool = False
    """`resume` can move parts of later ticks out of the way; else it rejects them."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """Secrets that the sink's parts need in tasks, by field name.

        Tasks receive them inside functions, never where Spark records its input.
        """
        return {}

    @property
    def tells_rows(self) -> bool:
        """It knows by itself how many rows a frame had; else they are counted on their way."""

    @property
    def appends_to(self) -> Topic | None:
        """The topic that rows are appended to, if its brokers report how many arrived."""
        return None

    @property
    def keyed(self) -> Keyed | None:
        """Format into which rows are converted before writing; None to leave them unchanged."""
        return None

    def leaves_out(self, columns: int) -> Omission | None:
        """Return which rows the target cannot represent; None if it represents all rows.

        Args:
            columns: Number of columns of the rows.
        """
        return None

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        """Check, before the first tick, everything that can be checked; drop the rows of a dead attempt.

        May be called once per insert that writes to this sink.

        Args:
            owner: identifies the job's state: rows of another owner must not be mistaken for this job's rows.

        Raises:
            SpecError: an option is missing or wrong, or the columns do not fit.
            EngineError: the target cannot be written, or belongs to another job.
        """

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        """Compare the target with the state, after `prepare` and before the first tick of a run.

        Args:
            inserts: INSERTs that write to this sink.
            resumed: Where the job resumes.

        Returns:
            Descriptions of the parts that were moved out of the way.

        Raises:
            EngineError: The target has parts of ticks that the state has not reached, or parts of another
                history.
        """
        return []

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        """Evaluate all of ``frame`` once (the sink may ask for more often) and stage its rows."""

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        """Return the number of rows that `write` staged.

        Called before the rows are published, and only for sinks that count their rows (`tells_rows`).
        """

    def arrow_part(self, schema: pa.Schema, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        """Return the part with which tasks of a plan node stage rows, instead of `write`.

        The driver also uses it for rows that the driver produced. If tasks cannot receive the part
        (`registry.is_known_part`), only the driver uses it, with columns as Spark would deliver them.

        Args:
            schema: Columns of the rows.

        Returns:
            The part, or None if this sink takes frames only.
        """
        return None

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        """Receive what `arrow_part`'s parts returned: for each task, the attempt whose rows count.

        The sink must not publish rows that other attempts staged. Called once, after all rows are staged
        and before `staged_rows`.
        """
        return

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Return True if rows of this tick are visible; called for idempotent sinks.

        It may also be called before `prepare`; ``owner`` is then the owner that `prepare` would receive.
        """
        return False

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        """Raise the errors of `publish` before any sink has published anything of the tick.

        Raises:
            EngineError: a part of another identity is there, or the target now belongs to another job.
        """
        return

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Make the rows that ``attempt`` staged visible, together with their identity.

        A part of this tick and identity that is already visible stays as it is.

        Returns:
            True if the tick now has a visible part, that is, if it had rows.

        Raises:
            EngineError: a part of another identity is there, or the target now belongs to another job.
        """

    def discard(self, attempt: str) -> None:
        """Drop the rows that ``attempt`` staged, if any; never fail for an attempt that has none."""

    def close(self) -> None:
        """Release the target at the end of the run, so that other runs may use it."""
        return


class FrameSink(Sink):
    """Base of sinks that take each tick as a frame, in the driver, and know how many rows they staged."""

    stages = True
    tells_rows = True


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of a StructType or of a sequence of `Column`."""
    fields: Iterable[Any] = schema.fields if hasattr(schema, "fields") else schema
    return tuple(
        field if isinstance(field, Column) else Column(field.name, sql_type(field.dataType.simpleString()))
        for field in fields
    )


def check_unique_names(columns: Sequence[Column], sink: SinkSpec) -> None:
    """Raise if two columns have the same name; Spark does not distinguish ``a`` from ``A``."""
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise SpecError(
                f'the result for "{sink.name}" has two columns named "{column.name}"',
                code="duplicate-column",
                hint="rename one of them with AS",
            )
        seen.add(column.name.lower())


def check_key_is_there(columns: Sequence[Column], sink: SinkSpec) -> None:
    """Raise if the result lacks a column of the sink's PRIMARY KEY."""
    names = [column.name for column in columns]
    for name in sink.primary_key:
        if name not in names:
            raise SpecError(
                f'PRIMARY KEY of {sink.connector} sink "{sink.name}": the result has no column "{name}"',
                code="unknown-column",
                hint=near_names(name, names),
            )


def recorded_parts(tick: int, digest: str) -> str:
    """Return the name in `Files` of the record of how a tick is split into parts.

    Later ticks remove the record.
    """
    return f"parts/{tick:012d}-{digest}.json"


def recorded_inserts(files: Files, names: Iterable[str], tick: int) -> list[tuple[str, str]]:
    """Return the (sink, INSERT) names for which a tick has records of its parts.

    The result includes sinks and INSERTs that the job no longer has.

    Args:
        names: Names of all records.
    """
    told = [
        json.loads(bytes(files.read(name)))
        for name in names
        if name.startswith(recorded_parts(tick, "")[:-5])
    ]
    return [(str(one["sink"]), str(one["insert"])) for one in told]
