"""The protocol of sinks, and what they share.

A tick reaches a sink in two steps. ``write`` evaluates the frame and *stages* its rows: nobody can see them,
and they may be staged any number of times. ``publish`` makes the staged rows of one attempt visible, in one
step, on the driver. Killed in between, the tick is repeated by a new attempt, whose rows are the same.

* ``idempotent`` True: publishing (insert, tick) a second time changes nothing, and a part of this name that
  was made from something else is refused (`part_mark`). With the engine's repeatable ticks this is exactly
  once.
* ``idempotent`` False: a repeated tick puts its rows out again: at least once. They leave with ``write``
  already, unless the sink ``stages`` them.

This package imports no PySpark; a frame is only ever asked to write itself.
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
    """`TEXT_OPTIONS` of a format as the argument of ``to_json`` or ``to_csv``."""
    texts = [text for pair in TEXT_OPTIONS[wanted].items() for text in pair]
    return "map(" + ", ".join("'" + text.replace("'", "\\'") + "'" for text in texts) + ")"


@dataclass(frozen=True)
class Omission:
    """``what`` is left out, and what to do about it, in words."""

    what: str
    hint: str


@dataclass(frozen=True)
class Topic:
    """A Kafka topic, and how clients reach its brokers."""

    name: str
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KeyedRecords:
    """One record per key and tick, with the columns ``key`` and ``value``, both text, is what a sink takes.

    ``columns``: of the key. ``events``: the value is an event with the row before and after; else it is the
    row, and NULL where the key has none any more. ``plain_key``: the key is the text of its one column, else
    a JSON object of them.
    """

    columns: tuple[str, ...]
    events: bool
    plain_key: bool


@dataclass(frozen=True)
class KeyedRows:
    """One row per key and tick is what a sink takes, with all columns of the result but `CHANGE_COLUMNS`, and
    behind them `DELETED`: True where the key has no row any more, and then the row is the one it had.

    ``columns``: of the key, none of them NULL in a row.
    """

    columns: tuple[str, ...]


Keyed = KeyedRecords | KeyedRows


class RowPrinter(Protocol):
    """What shows the console sink's rows; the command line brings one of its own. ``values``: it takes rows
    as `json_values.rows_of` gives them, and not as text."""

    @property
    def values(self) -> bool: ...

    def show(self, insert: str, tick: int, names: Sequence[str], rows: Sequence[Texts], more: int) -> None:
        """Show ``rows``, and that there were ``more`` that are not shown."""


@runtime_checkable
class ShowsRows(Protocol):
    """A sink that shows the first rows of a tick, and takes those that the driver has without a frame.
    ``most_shown``: how many; ``shows_values``: as `json_values.rows_of` gives them, and not as text."""

    @property
    def most_shown(self) -> int: ...

    @property
    def shows_values(self) -> bool: ...

    def take_shown(
        self, insert: str, tick: int, attempt: str, names: Sequence[str], rows: Sequence[Texts], total: int
    ) -> None:
        """Stage the first rows of a tick, and how many it has, instead of `Sink.write`."""


class ArrowPart(Protocol):
    """Stages rows inside of tasks, which are told of it as JSON: a dataclass of plain values, listed in the
    registry (`PARTS`). A task may run more than once for a partition, at the same time, too.

    Fields that nobody may see are named in a ClassVar ``SECRETS``; tasks get those from `Sink.secrets`.
    """

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart | None:
        """Stage all rows of one partition.

        Returns what the sink has to know of this attempt (`Sink.take_parts`): of the attempts of a task it
        is told of one. None: nothing, for what is staged says by itself which attempt counts.
        """


class Files(Protocol):
    """Where rows may wait within a tick, for all tasks and the driver: the store of the job's state. It can
    be sent to tasks. See `state.store.Store`."""

    def write(self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True) -> None: ...

    def create(self, name: str, data: bytes) -> bool: ...

    def read(self, name: str) -> pa.Buffer: ...

    def has(self, name: str) -> bool: ...

    def delete_all(self, names: Sequence[str]) -> int: ...


@runtime_checkable
class StagesInState(Protocol):
    """A sink whose target has no place for staged rows: they wait beside the job's state."""

    def stage_in(self, files: Files) -> None:
        """Stage rows there; called before `Sink.prepare`. Names begin as `staged_folder` says."""


@runtime_checkable
class RemembersTarget(Protocol):
    """A sink that remembers which target the job has written to, and refuses another one of its name."""

    def accept_target(self) -> None:
        """Take the target that is there now, whichever it is; called before `Sink.prepare`."""


@runtime_checkable
class ChecksTarget(Protocol):
    """A sink that can see without Spark whether its target is there, and this job's."""

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """Raise what `prepare` would say of the target, and write nothing; what is in doubt is left to it.

        Args:
            owner: of the job's state; None: nobody owns it yet.
            wait_s: maximum seconds to wait for a server; None: no server is asked.
        """


@runtime_checkable
class NeedsSession(Protocol):
    """A sink that asks Spark for more than the frames that it is given tell."""

    def use(self, session: Session) -> None:
        """Where the job is run; called before `Sink.prepare`."""


Numbered = Callable[["ArrowPart", int], list[StagedPart]]
"""Lets tasks write the rows ``0, 1, …`` up to a number, each alone, with a part; what that said of each."""


@runtime_checkable
class CallsInTasks(Protocol):
    """A sink that gives out rows within tasks when its tick is published, and not in one step."""

    def call_in(self, tasks: Numbered, is_over: Callable[[int], bool]) -> None:
        """Where it does so; called before `Sink.prepare`.

        Args:
            is_over: whether the state has come to a tick, by whichever run.
        """


def staged_folder(tick: int, attempt: str) -> str:
    """How names of staged rows begin in `Files`: what a killed attempt left goes with later ticks."""
    return f"work/passing-{tick}-{attempt}-"


class Sink(Protocol):
    """One target of one job. All calls come from the driver, one at a time."""

    idempotent: bool
    stages: bool

    @property
    def sets_aside(self) -> bool:
        """Whether `resume` can set parts of later ticks aside; else it refuses them."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """What its parts need in tasks and nobody may see, by the names of their fields. It goes to tasks
        within functions, and not where Spark writes down what it is told."""

    @property
    def tells_rows(self) -> bool:
        """It knows by itself how many rows a frame had; else they are counted on their way."""

    @property
    def appends_to(self) -> Topic | None:
        """The topic that rows are appended to, where its brokers tell how many came."""

    @property
    def keyed(self) -> Keyed | None:
        """What the rows of a tick are made into before they are written; None: they stay as they are."""

    def leaves_out(self, columns: int) -> Omission | None:
        """Which rows of so many columns the target has no form for; None: it has one for all."""

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        """Check, before the first tick, all that can be checked; drop what a dead attempt left.

        ``owner`` identifies the job's state: rows of another owner must not be taken for this job's own. May
        be called once per insert that goes here.

        Raises:
            SpecError: an option is missing or wrong, or the columns do not fit.
            EngineError: the target cannot be written, or belongs to another job.
        """

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        """Compare what is there with what the state knows, before the first tick of a run; after `prepare`.

        ``inserts``: those that go here. Returns what was set aside, in words.

        Raises:
            EngineError: parts of ticks that the state has not come to, or of another history.
        """

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        """Evaluate all of ``frame`` once (the sink may ask for more often) and stage its rows."""

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        """How many rows `write` staged; asked of sinks that tell, before they are published."""

    def arrow_part(self, schema: pa.Schema, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        """With what a node's tasks stage rows of ``schema`` themselves, instead of `write`; so does the
        driver with those that it made. It alone does, with columns as Spark would hand them over, where tasks
        cannot be told of the part (`registry.is_known_part`).

        None: this sink takes frames only.
        """

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        """What the parts of `arrow_part` said, of each task the attempt whose rows count; what others staged
        must not be published. Called once all rows are staged, before `staged_rows`."""

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Whether rows of this tick are visible; asked of idempotent sinks, before `prepare`, too, and then
        ``owner`` is who `prepare` would be told."""

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        """Raise what `publish` would, before any sink has published anything of the tick.

        Raises:
            EngineError: a part of another identity is there, or the target is another job's by now.
        """

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Make what ``attempt`` staged visible, with what it was made from; a part of this tick and identity
        that is there already stays as it is. Whether there is a part of the tick now: it had rows.

        Raises:
            EngineError: as `check`.
        """

    def discard(self, attempt: str) -> None:
        """Drop what ``attempt`` staged, if anything. Never fails for an attempt that is gone."""

    def close(self) -> None:
        """The run is over: others may have the target."""


class WithoutParts:
    """What sinks share whose rows are out with a tick and do not say which one: there is no part to look
    at."""

    sets_aside = False
    stages = False

    @property
    def secrets(self) -> Mapping[str, str]:
        return {}

    @property
    def appends_to(self) -> Topic | None:
        return None

    @property
    def keyed(self) -> Keyed | None:
        return None

    def leaves_out(self, columns: int) -> Omission | None:
        return None

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return None

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        """No task stages any."""

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        """Nothing can be compared."""
        return []

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Nobody knows."""
        return False

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        """Nothing that is there is in the way."""

    def close(self) -> None:
        """Nothing is held."""


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The columns of a StructType or of a sequence of `Column`."""
    fields: Iterable[Any] = schema.fields if hasattr(schema, "fields") else schema
    return tuple(
        field if isinstance(field, Column) else Column(field.name, sql_type(field.dataType.simpleString()))
        for field in fields
    )


def check_unique_names(columns: Sequence[Column], sink: SinkSpec) -> None:
    """Raise if two columns have one name; Spark does not tell ``a`` from ``A``."""
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
    """Raise if the result has not all columns of the sink's PRIMARY KEY."""
    names = [column.name for column in columns]
    for name in sink.primary_key:
        if name not in names:
            raise SpecError(
                f'PRIMARY KEY of {sink.connector} sink "{sink.name}": the result has no column "{name}"',
                code="unknown-column",
                hint=near_names(name, names),
            )


def recorded_parts(tick: int, digest: str) -> str:
    """The name in `Files` of what says how a tick is cut; it goes with later ticks."""
    return f"parts/{tick:012d}-{digest}.json"


def recorded_inserts(files: Files, names: Iterable[str], tick: int) -> list[tuple[str, str]]:
    """Of which sinks and INSERTs, by name, there are such records of a tick, those that the job has no more
    among them. ``names``: of all records."""
    told = [
        json.loads(bytes(files.read(name)))
        for name in names
        if name.startswith(recorded_parts(tick, "")[:-5])
    ]
    return [(str(one["sink"]), str(one["insert"])) for one in told]
