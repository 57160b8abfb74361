"""Functions of users as sinks: found by name, called with each part of a tick."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from watersmeet.errors import (
    EngineError,
    SpecError,
    WatersmeetError,
    failure_text,
    format_count,
    near_names,
    raise_all,
)
from watersmeet.names import DELETED
from watersmeet.sinks.base import (
    ArrowPart,
    Files,
    Frame,
    KeyedRows,
    Numbered,
    RowPrinter,
    Schema,
    Session,
    StagedPart,
    check_key_is_there,
    check_unique_names,
    columns_of,
    recorded_parts,
    staged_folder,
)
from watersmeet.sinks.part_mark import Identity, check_same
from watersmeet.sinks.staging import (
    RowsPart,
    Staged,
    StagedFilesSink,
    batches_in,
    schema_in,
    write_numbered_parts,
)
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.function import (
    NAMED,
    FunctionOptions,
    OfBatches,
    call_problem,
    left_undone,
    named_among,
    sink_problems,
)

# A user's function, found by its name: ``package.module:name``.

_PLACES = (
    "install its package where the job runs, on all machines; or name its folder in PYTHONPATH, or, on a"
    " cluster, the file with --conf spark.submit.pyFiles=…"
)


def load(written: str, sink: str) -> Callable[..., Any]:
    """Import the module of a function sink and return the function.

    Args:
        written: The option's value.
        sink: Name of the sink, for messages.

    Raises:
        SpecError: There is no such function, or it cannot be called with a part and its rows.
    """
    module_name, _, name = written.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:  # whatever the module does when it is imported
        what = f"its module cannot be imported: {failure_text(error)}"
        raise _problem(written, sink, what, _PLACES) from None
    function: Any = module
    for own in name.split("."):
        if not hasattr(function, own):
            there = [one for one in getattr(function, "__dict__", {}) if not one.startswith("_")]
            message = f'"{module_name}" ({getattr(module, "__file__", "built in")}) has no "{name}"'
            raise _problem(written, sink, message, near_names(own, there))
        function = getattr(function, own)
    _check(function, written, sink)
    return function  # type: ignore[no-any-return]


def _check(function: Any, written: str, sink: str) -> None:
    problem = call_problem(function, "a part and its rows")
    if problem is not None:
        raise _problem(written, sink, problem, "write it as def put(part, rows): …")


def _problem(written: str, sink: str, what: str, hint: str | None) -> SpecError:
    return SpecError(f'function sink "{sink}", {written}: {what}', code="no-function", hint=hint)


# What functions of users share, wherever they are called: exactly once, if they do nothing when what they
# have comes to them again.
#
# Rows that are out cannot be called back, and a tick is not out in one step. So how a tick is cut must
# not change when it is repeated, whatever the number of tasks, nor what is in each part: rows are staged
# beside the job's state (`staged_rows`), and before the first part goes out a record says which files are
# the parts. It is created if there is none; who comes later, another run of the job, too, goes by the one
# that is there.
#
# A run that slept while others ended the tick, and deleted what belonged to it, might create a record
# anew: it looks whether the state has come to the tick after that, and before anything goes out.

SHOWN_DELETED = "_deleted"
"""`DELETED`, where a function sees it."""


class RecordedSink(StagedFilesSink):
    """See the module. A subclass says how parts go out: `give_out`."""

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._owner = ""
        self._tasks: Numbered = write_numbered_parts
        self._is_over: Callable[[int], bool] = lambda tick: False

    @property
    def keyed(self) -> KeyedRows | None:
        return KeyedRows(self._spec.primary_key) if self._spec.primary_key else None

    def call_in(self, tasks: Numbered, is_over: Callable[[int], bool]) -> None:
        """See `CallsInTasks`."""
        self._tasks, self._is_over = tasks, is_over

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        check_key_is_there(columns, self._spec)
        if self.keyed and any(column.name.lower() == SHOWN_DELETED for column in columns):
            raise SpecError(
                f'the result for "{self._spec.name}" has a column named "{SHOWN_DELETED}", which is'
                " reserved for deletes in sinks with a PRIMARY KEY",
                code="reserved-name",
                hint="rename it with AS",
            )
        self._owner = owner or self._owner

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Return True if the sink may have emitted parts of the tick."""
        return self._there().has(self._record(insert, tick))

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        self._recorded_parts(insert, tick, identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        staged = self._staged.get((insert, tick, attempt))
        parts = self._recorded_parts(insert, tick, identity)
        if parts is None:
            if staged is None:
                raise EngineError(
                    f'nothing was staged for tick {tick} of "{insert}" (sink "{self._spec.name}")',
                    code="staged-rows-gone",
                    hint="run again, which repeats the tick, and please report this bug",
                )
            if not staged:
                return False
            parts = self.record_parts(insert, tick, identity, staged)
        if staged == parts:
            del self._staged[insert, tick, attempt]  # they stay until the tick is over
        else:
            self._remove((insert, tick, attempt))
        self.give_out(insert, tick, parts)
        return True

    def give_out(self, insert: str, tick: int, parts: Sequence[Staged]) -> None:
        """Call the function with the parts of a tick, one at least. Raises: EngineError, when it failed."""
        raise NotImplementedError

    def _part(self, insert: str, tick: int, attempt: str) -> RowsPart:
        return RowsPart(self._there(), staged_folder(tick, attempt), lasting=True)

    def _record(self, insert: str, tick: int) -> str:
        named = "\0".join((self._spec.name, insert)).encode("utf-8", "surrogatepass")
        return recorded_parts(tick, blake2b(named, digest_size=10).hexdigest())

    def _recorded_parts(self, insert: str, tick: int, identity: Identity) -> list[Staged] | None:
        """Load the parts of the tick from its record; None if there is no record.

        Raises:
            EngineError: The record belongs to another tick with this number.
        """
        name = self._record(insert, tick)
        if not self._there().has(name):
            return None
        told = json.loads(bytes(self._there().read(name)))
        hint = (
            "rows that a function has cannot be set aside: was the checkpoint restored from a copy? Begin"
            " anew with an empty checkpoint, which is another job for the function"
        )
        check_same(self._spec.name, "the function", insert, tick, told["identity"], identity, hint)
        return [(str(part), int(rows)) for part, rows in told["parts"]]

    def record_parts(self, insert: str, tick: int, identity: Identity, staged: list[Staged]) -> list[Staged]:
        """Record which files are the parts of a tick, unless another run has; return those recorded.

        Raises:
            EngineError: another run has ended the tick.
        """
        names = {"sink": self._spec.name, "insert": insert}
        told = json.dumps({**names, "identity": dict(identity), "parts": staged})
        if self._there().create(self._record(insert, tick), told.encode()):
            if self._is_over(tick):
                raise EngineError(
                    f'tick {tick} of "{insert}" was finished by another run of this job (sink'
                    f' "{self._spec.name}"): this run wrote nothing',
                    code="sink-taken",
                    hint="stop one of the runs; the other one continues from the last tick",
                )
            return staged
        recorded = self._recorded_parts(insert, tick, identity)
        if recorded is None:  # another run has ended the tick
            raise EngineError(
                f'the record of tick {tick} of "{insert}" is gone (sink "{self._spec.name}"):'
                " another run of this job is active",
                code="sink-taken",
                hint="stop one of the runs; the other one continues from the last tick",
            )
        return recorded


# The call of a user's function with one part of a tick, in whatever process a task runs.

_AGAIN = "; then run the job again: the tick is repeated, with the same parts"


@dataclass
class Part:
    """Part of a tick, which a function receives with its rows.

    ``job``, ``insert``, ``tick`` and ``number`` identify the part: when it is repeated, these and its rows
    are the same.

    Args:
        job: identifies the job's state; another state has other ticks.
        insert: the name of the INSERT.
        tick: the number of the tick, from 1.
        number: the number of the part, from 0, among ``parts`` of this INSERT and tick.
        rows: the number of rows, at least one.
        schema: the columns of the rows.

    >>> seen = set()
    >>> def put(part, rows):
    ...     if (part.tick, part.number) in seen:
    ...         return part.skip()
    ...     seen.add((part.tick, part.number))
    ...     return rows.read_all().num_rows
    >>> table = pa.table({"id": [1, 2]})
    >>> part = Part("job", "orders", tick=1, number=0, parts=1, rows=2, schema=table.schema)
    >>> put(part, table.to_reader())
    2
    >>> put(part, table.to_reader())
    >>> part.is_skipped
    True
    """

    job: str
    insert: str
    tick: int
    number: int
    parts: int
    rows: int
    schema: pa.Schema
    _skipped: bool = field(default=False, init=False, repr=False)

    def skip(self) -> None:
        """Skip the part's rows: they have already reached their destination and need not be read."""
        self._skipped = True

    @property
    def is_skipped(self) -> bool:
        return self._skipped


@dataclass(frozen=True)
class FunctionCalls:
    """Calls of a function with parts, whose numbers arrive as rows; an `ArrowPart`.

    A part whose call fails makes the tick fail; the call is not retried here, as a task would be.

    Args:
        written: the function, as the option names it.
        staged: the files of all parts, in order.
    """

    files: Files = field(repr=False)
    written: str
    sink: str
    job: str
    insert: str
    tick: int
    staged: tuple[Staged, ...]

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Call it with the parts of these numbers, one after the other."""
        function = load(self.written, self.sink)
        numbers = [int(number) for batch in rows for number in batch.column(0).to_pylist()]
        for number in numbers:
            name, count = self.staged[number]
            columns = _user_schema(schema_in(self.files, name))
            part = Part(self.job, self.insert, self.tick, number, len(self.staged), count, columns)
            source = _Source(self.files, name, count, self.sink, columns)
            reader = pa.RecordBatchReader.from_batches(part.schema, source.batches())
            try:
                function(part, reader)
            except BaseException as error:  # whatever it raises, SystemExit, too, the tick failed
                raise source.failed or self._build_function_error(number, failure_text(error)) from None
            if source.failed is not None:
                raise source.failed
            if source.given < count and not part.is_skipped:
                raise self._build_unread_rows_error(number, source.given, count)
        return {"called": numbers}

    def _build_function_error(self, number: int, text: str) -> EngineError:
        return EngineError(
            f'the function {self.written} of sink "{self.sink}" failed at'
            f" {self._describe_part(number)}: {text}",
            code="function-failed",
            hint=f"correct the function or the service it calls{_AGAIN}",
        )

    def _build_unread_rows_error(self, number: int, given: int, count: int) -> EngineError:
        return EngineError(
            f'the function {self.written} of sink "{self.sink}" returned at'
            f" {self._describe_part(number)} after reading {given:,} of {format_count(count, 'row')}",
            code="function-left-rows",
            hint=f"let it read all rows, or call part.skip() if it already has them{_AGAIN}",
        )

    def _describe_part(self, number: int) -> str:
        return f'tick {self.tick} of "{self.insert}", part {number} of {len(self.staged)}'


def _user_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the column names that users know."""
    names = [SHOWN_DELETED if name == DELETED else name for name in schema.names]
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


class _Source:
    """The rows of a part, and how many of them were read."""

    def __init__(self, files: Files, name: str, rows: int, sink: str, schema: pa.Schema) -> None:
        self._files, self._name, self._rows, self._sink = files, name, rows, sink
        self._schema = schema
        self.given = 0
        self.failed: WatersmeetError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches_in(self._files, self._name, self._rows, self._sink):
                self.given += batch.num_rows
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        except WatersmeetError as error:
            self.failed = error
            raise


# A user's function that is found by its name, and called with each part of a tick by Spark's tasks.


class FunctionSink(RecordedSink):
    """See the module. Option: ``function``."""

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        super().__init__(spec)
        raise_all(list(sink_problems(spec)))
        self._written = FunctionOptions.of(spec.options).function
        load(self._written, spec.name)

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return self._part(insert, tick, attempt)

    def give_out(self, insert: str, tick: int, parts: Sequence[Staged]) -> None:
        calling = FunctionCalls(
            self._there(), self._written, self._spec.name, self._owner, insert, tick, tuple(parts)
        )
        called = {number for said in self._tasks(calling, len(parts)) for number in said["called"]}
        if called != {*range(len(parts))}:
            raise EngineError(
                f'only {len(called)} of {len(parts)} parts of tick {tick} of "{insert}" were written'
                f' (sink "{self._spec.name}")',
                code="internal",
                hint="run again, which repeats the tick, and please report this bug",
            )


# A user's function that is called in the job's own process, with a frame of a tick's rows, and its
# number.
#
# What it is called with is recorded and read again as that of a function in tasks (`recorded`): whenever
# a tick comes again, its rows and their partitions are the same.


class ForeachBatchSink(RecordedSink):
    """See the module. ``function``: none in a process that has not made the job."""

    def __init__(self, spec: SinkSpec, function: OfBatches | None) -> None:
        super().__init__(spec)
        if function is None:
            raise SpecError(
                f'sink "{spec.name}" needs the function of the Python program that defines the job',
                code="no-function",
                hint="run the job in the Python program that calls relation.foreach_batch(function)",
            )
        self._function = function
        self._session: Session = None
        self._schemas: dict[str, Schema] = {}

    def use(self, session: Session) -> None:
        """See `NeedsSession`."""
        self._session = session

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self._schemas[insert] = frame.schema
        super().write(frame, insert, tick, attempt)

    def give_out(self, insert: str, tick: int, parts: Sequence[Staged]) -> None:
        numbers = self._session.range(0, len(parts), 1, len(parts))
        reading = _ReadParts(self._there(), self._spec.name, tuple(parts))
        rows = numbers.mapInArrow(reading, self._schemas[insert])
        if self.keyed:
            rows = rows.withColumnRenamed(DELETED, SHOWN_DELETED)
        try:
            named = {"job": self._owner, "insert": insert}
            asked = {name: named[name] for name in named_among(self._function, NAMED)}
            undone = left_undone(self._function(rows, tick, **asked))
        except BaseException as error:  # whatever it raises, SystemExit, too, the tick failed
            raise self._build_function_error(insert, tick, failure_text(error)) from error
        if undone is not None:
            raise self._build_function_error(insert, tick, undone)

    def _build_function_error(self, insert: str, tick: int, why: str) -> EngineError:
        return EngineError(
            f'the function of sink "{self._spec.name}" failed at tick {tick} of "{insert}": {why}',
            code="function-failed",
            hint="correct the function or the service it calls, and run again: the tick is repeated"
            " with the same rows",
        )


@dataclass(frozen=True)
class _ReadParts:
    """The function given to `mapInArrow`: numbers of parts come, and their rows go."""

    files: Files = field(repr=False)
    sink: str
    parts: tuple[Staged, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                name, rows = self.parts[number]
                yield from batches_in(self.files, name, rows, self.sink)
