"""The contract of a sink that is exactly once, as checks for the tests of whoever wrote it.

Each check stages and publishes ticks as the driver does, makes the sink anew where a job would restart, and
reads the target. No Spark is needed: rows come by the sink's `arrow_part`, or by a frame with ``schema``,
``columns`` and `collect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.errors import SpecError, WatersmeetError, near_names
from watersmeet.sinks.base import CallsInTasks, NeedsSession, Sink, StagesInState
from watersmeet.sinks.part_mark import Identity, Resumed
from watersmeet.spec.model import Column
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import BIGINT, STRING

Row = tuple[int, str | None]

COLUMNS = (Column("id", BIGINT), Column("name", STRING))
"""The columns of the rows that the checks write."""
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
INSERT = "contract"

_ROWS: Mapping[int, Sequence[Row]] = {
    1: [(1, "plain"), (2, None), (3, ""), (4, 'it\'s "quoted", \\ and ü')],
    2: [(5, "second"), (5, "second")],
    3: [(6, "third")],
}
"""By tick; equal rows count twice."""


@dataclass(frozen=True)
class SinkContract:
    """A sink under test.

    Args:
        make: from the name of a target to a new sink for it, as a job makes one when it starts. Each name is
            a target of its own, which is empty at first.
        read: from the name of a target to its rows (id, name) in any order; none if it does not exist.

    >>> from watersmeet.sinks.memory import MemorySink
    >>> from watersmeet.spec.model import Sink
    >>> def read(target):
    ...     return [(row["id"], row["name"]) for row in MemorySink.rows(target)]
    >>> contract = SinkContract(lambda target: MemorySink(Sink(target, "memory")), read)
    >>> contract.check("repeated_tick", "documented")
    >>> list(CHECKS)[:3]
    ['repeated_tick', 'kill_before_publish', 'lost_answer']
    """

    make: Callable[[str], Sink]
    read: Callable[[str], Iterable[Row]]

    def check(self, name: str, target: str | None = None) -> None:
        """Run one of `CHECKS`.

        Args:
            target: the name of the target; None: the check's.

        Raises:
            AssertionError: the sink breaks the contract.
            SpecError: there is no such check, or the sink needs Spark to take rows.
        """
        if name not in CHECKS:
            raise SpecError(f'there is no check "{name}"', code="wrong-option", hint=near_names(name, CHECKS))
        CHECKS[name](_Target(self, target or name))


@dataclass(frozen=True)
class _Target:
    contract: SinkContract
    name: str
    files: MemoryStore = field(default_factory=MemoryStore)

    def start(self, owner: str = "job-1", *, committed: int = 0, pending: bool = False) -> _Run:
        sink = self.contract.make(self.name)
        if isinstance(sink, NeedsSession | CallsInTasks):
            raise SpecError(
                "the contract cannot be checked without Spark: this sink runs code in Spark's tasks",
                code="not-supported",
                hint="test it with a job on Spark",
            )
        if isinstance(sink, StagesInState):
            sink.stage_in(self.files)
        last = {INSERT: (committed, identity_of(committed))} if committed else {}
        sink.prepare(COLUMNS, owner)
        sink.resume([INSERT], Resumed(committed, pending, last))
        return _Run(self, sink)

    def has(self, *ticks: int, otherwise: str) -> None:
        """Check that the target has exactly the rows of these ticks."""
        wanted = sorted((row for tick in ticks for row in _ROWS[tick]), key=repr)
        rows = sorted(map(tuple, self.contract.read(self.name)), key=repr)
        assert rows == wanted, f"{otherwise}: the target has {rows} instead of {wanted}"

    def refuses(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except WatersmeetError:
            return
        raise AssertionError(f"the sink must raise a WatersmeetError for {what}")


@dataclass(frozen=True)
class _Run:
    target: _Target
    sink: Sink

    def stage(self, tick: int, attempt: str, rows: Sequence[Row] | None = None) -> None:
        table = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in (_ROWS[tick] if rows is None else rows)],
            SCHEMA,
        )
        part = self.sink.arrow_part(SCHEMA, INSERT, tick, attempt)
        if part is None:
            self.sink.write(_Frame(table), INSERT, tick, attempt)
        else:
            report = part.write(0, SCHEMA, iter(table.to_batches()))
            self.sink.take_parts(INSERT, tick, attempt, [] if report is None else [report])
        if self.sink.tells_rows:
            staged = self.sink.staged_rows(INSERT, tick, attempt)
            assert staged == table.num_rows, f"staged_rows() returned {staged} of {table.num_rows} rows"

    def publish(self, tick: int, attempt: str, identity: Identity | None = None) -> bool:
        made_from = identity_of(tick) if identity is None else identity
        self.sink.check(INSERT, tick, made_from)
        return self.sink.publish(INSERT, tick, attempt, made_from)

    def run(self, *ticks: int) -> None:
        for tick in ticks:
            self.stage(tick, f"attempt-{tick}")
            assert self.publish(tick, f"attempt-{tick}"), "publish() must return True for a tick with rows"


class _FrameRow(tuple[Any, ...]):
    """A row of a frame, as far as sinks use PySpark's."""

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        return dict(zip(SCHEMA.names, self, strict=True))


@dataclass(frozen=True)
class _Frame:
    """What a sink may use of a frame here."""

    rows: pa.Table
    schema: Sequence[Column] = COLUMNS

    @property
    def columns(self) -> list[str]:
        return list(SCHEMA.names)

    def collect(self) -> list[_FrameRow]:
        return [_FrameRow(row.values()) for row in self.rows.to_pylist()]


def identity_of(tick: int, history: str = "") -> Identity:
    """Return what the rows of a tick were made from, as the engine passes it to a sink."""
    return {"offsets": f"{tick:032x}", "rows": f"{tick + 16:032x}", "ticks before it": f"{history}{tick - 1}"}


def _check_repeated_tick(target: _Target) -> None:
    run = target.start()
    run.run(1)
    run.stage(1, "again")
    assert run.publish(1, "again"), "publish() must return True: the tick is there"
    run.sink.discard("again")
    target.has(1, otherwise="a tick was published twice")
    run.sink.close()


def _check_kill_before_publish(target: _Target) -> None:
    run = target.start()
    run.stage(1, "killed")
    target.has(otherwise="rows are visible before they are published")
    run.sink.close()
    again = target.start(pending=True)
    again.stage(1, "second")
    again.stage(1, "third")
    assert again.publish(1, "third"), "publish() must return True for a tick with rows"
    again.sink.discard("second")
    again.sink.discard("no such attempt")
    target.has(1, otherwise="a job was killed between staging and publishing")
    again.sink.close()


def _check_lost_answer(target: _Target) -> None:
    run = target.start()
    run.run(1, 2)
    run.sink.close()
    again = target.start(committed=1, pending=True)
    if again.sink.idempotent:
        assert again.sink.has_part(INSERT, 2, "job-1"), "has_part() must return True: the tick is there"
    again.stage(2, "repeated")
    assert again.publish(2, "repeated"), "publish() must return True: the tick is there"
    again.run(3)
    target.has(1, 2, 3, otherwise="the answer of a publish was lost")
    again.sink.close()


def _check_other_identity(target: _Target) -> None:
    run = target.start()
    run.run(1)
    run.stage(1, "other", [(9, "other rows")])
    other = identity_of(1, "another history")
    target.refuses("check() of a tick that was made from something else",
                   lambda: run.sink.check(INSERT, 1, other))  # fmt: skip
    target.refuses("publish() of a tick that was made from something else",
                   lambda: run.sink.publish(INSERT, 1, "other", other))  # fmt: skip
    target.has(1, otherwise="a tick of another identity was published")
    run.sink.close()


def _check_other_job(target: _Target) -> None:
    run = target.start()
    run.run(1)
    run.sink.close()

    def start_other() -> None:
        other = target.start("job-2")
        other.stage(1, "other", [(9, "other rows")])
        other.publish(1, "other", identity_of(1, "another job"))

    target.refuses("a target that has rows of another job", start_other)
    target.has(1, otherwise="another job wrote to the target")
    again = target.start(committed=1)
    again.run(2)
    target.has(1, 2, otherwise="the job went on after another one was refused")
    again.sink.close()


def _check_empty_tick(target: _Target) -> None:
    run = target.start()
    run.stage(1, "empty", [])
    run.publish(1, "empty")
    run.publish(1, "empty")
    target.has(otherwise="a tick without rows was published")
    run.run(2)
    run.stage(3, "empty", [])
    run.publish(3, "empty")
    run.sink.close()
    again = target.start(committed=2, pending=True)
    again.run(3)
    target.has(2, 3, otherwise="ticks without rows were published")
    again.sink.close()


def _check_tick_order(target: _Target) -> None:
    run = target.start()
    for tick in (1, 2, 3):
        run.run(tick)
        target.has(*range(1, tick + 1), otherwise=f"tick {tick} was published")
    run.sink.close()
    target.refuses("a checkpoint that is older than the target", lambda: target.start(committed=1))
    target.has(1, 2, 3, otherwise="an older checkpoint was refused")


CHECKS: Mapping[str, Callable[[_Target], None]] = {
    "repeated_tick": _check_repeated_tick,
    "kill_before_publish": _check_kill_before_publish,
    "lost_answer": _check_lost_answer,
    "other_identity": _check_other_identity,
    "other_job": _check_other_job,
    "empty_tick": _check_empty_tick,
    "tick_order": _check_tick_order,
}
"""The checks by name, for ``pytest.mark.parametrize``."""
