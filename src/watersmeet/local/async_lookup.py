"""A service that is asked about rows on their way, before a join or behind it: `map_async`.

The tick that takes the rows waits for their answers, so that no watermark passes them. Answers are stored
before anything is made of them, by what the row says and how often it was there before: a tick that is done
again asks for those alone that never came. What was stored counts for its tick, and goes with the next one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import (
    EngineError,
    SpecError,
    WatersmeetError,
    collect_errors,
    failure_text,
    raise_all,
)
from watersmeet.relations.inputs import columns_of
from watersmeet.runtime.local.input_rows import add_utc_zone, build_table
from watersmeet.spec.model import Column
from watersmeet.state.store import Store
from watersmeet.state.stored_record import damage_error

FOLDER = "answers"
_KEY = "__ws_asked"

Row = dict[str, Any]
Ask = Callable[[Row], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True)
class AsyncMap:
    """Asynchronous lookup and its options; create one with `map_async`.

    >>> async def city(row):
    ...     return {"city": "Kiel"}
    >>> map_async(city, answers={"city": "STRING"}, timeout=5).timeout
    5
    """

    fn: Ask
    columns: tuple[Column, ...]
    max_in_flight: int
    timeout: float | None
    ordered: bool


def map_async(
    fn: Ask,
    *,
    answers: Mapping[str, str],
    max_in_flight: int = 100,
    timeout: float | None = 30.0,
    ordered: bool = True,
) -> AsyncMap:
    """Create a lookup that calls a service for each row, for `run`.

    Args:
        fn: a coroutine function from a row, with values as Arrow converts them to Python, to the
            columns that it adds. It runs in the loop of an ``async for``, or in the run's own loop.
        answers: the added columns, as a dictionary from name to SQL type.
        max_in_flight: maximum number of concurrent calls.
        timeout: seconds for one call; None: no limit.
        ordered: True: rows continue in the order of arrival; False: in the order of the answers.

    Raises:
        SpecError: an argument is wrong.
        SeveralErrors: several arguments are wrong.

    >>> from watersmeet import local
    >>> async def city(row):
    ...     return {"city": {1: "Kiel", 2: "Bremen"}[row["id"]]}
    >>> text = '''
    ...     CREATE TABLE a (t INT, id INT, city STRING, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
    ...     SELECT x.city, y.city AS next FROM a x JOIN a y ON y.t = x.t + 1'''
    >>> asked = local.map_async(city, answers={"city": "STRING"})
    >>> (output, _) = local.run(text, a=[[{"t": 1, "id": 1}, {"t": 2, "id": 2}]], before={"a": asked})
    >>> output.table.to_pylist()
    [{'city': 'Kiel', 'next': 'Bremen'}]
    """
    problems: list[WatersmeetError] = []

    def problem(message: str, hint: str | None = None) -> None:
        problems.append(SpecError(f"map_async: {message}", code="bad-value", hint=hint))

    asked: Any = fn
    if not callable(asked):
        problem(f"{fn!r} cannot be called", "give a coroutine function of a row")
    if isinstance(max_in_flight, bool) or not isinstance(max_in_flight, int) or max_in_flight < 1:
        problem(f"max_in_flight is {max_in_flight!r}", "a whole number above zero")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
    ):
        problem(f"timeout is {timeout!r}", "seconds, above zero, or None")
    columns: tuple[Column, ...] = ()
    if not isinstance(answers, Mapping) or not answers:
        problem(f"answers is {answers!r}", 'the columns that come: {"city": "STRING"}')
    else:
        with collect_errors(problems):
            columns, _ = columns_of(answers, "map_async")
    raise_all(problems)
    return AsyncMap(fn, columns, max_in_flight, timeout, ordered)


class Asking:
    """Asks for one place of a job: the rows of one source, or of one query.

    Args:
        where: names the place, in messages and of what is stored.
    """

    def __init__(self, asked: AsyncMap, where: str, store: Store) -> None:
        self.asked, self._where, self._store = asked, where, store

    async def answered(self, rows: pa.Table, tick: int) -> pa.Table:
        """Return the rows with their answers, once the answers are stored.

        Raises:
            EngineError: a call failed or timed out; the other answers are stored nevertheless.
        """
        answered = self._load_answers(tick)
        keys, asked_of = list[str](), list[Row]()
        times = Counter[str]()
        for row in rows.to_pylist():
            digest = hashlib.blake2b(repr((self._where, row)).encode(), digest_size=16).hexdigest()
            keys.append(f"{digest}-{times[digest]}")
            times[digest] += 1
            asked_of.append(row)
        answers = {key: answered[key] for key in keys if key in answered}
        order = [at for at, key in enumerate(keys) if key in answers]
        fresh: dict[str, pa.Table] = {}

        def take(at: int, answer: pa.Table) -> None:
            fresh[keys[at]] = answer
            order.append(at)

        try:
            await self._ask([(at, asked_of[at]) for at, key in enumerate(keys) if key not in answers], take)
        finally:
            self._keep(fresh, tick)
        answers |= fresh
        chosen = sorted(order) if self.asked.ordered else order
        given = pa.concat_tables([self._table([]), *(answers[keys[at]] for at in chosen)]).combine_chunks()
        taken = rows if chosen == list(range(len(keys))) else rows.take(pa.array(chosen, pa.int64()))
        for name in given.column_names:
            taken = taken.append_column(name, given.column(name))
        return taken

    async def _ask(self, rows: Sequence[tuple[int, Row]], take: Callable[[int, pa.Table], None]) -> None:
        left = iter(rows)
        ended = False

        async def work() -> None:
            for at, row in left:
                answer = await self._call(row)
                if ended:  # cancelled, and the function went on all the same
                    return
                take(at, answer)

        workers = [asyncio.create_task(work()) for _ in range(min(self.asked.max_in_flight, len(rows)))]
        try:
            await asyncio.gather(*workers)
        finally:
            ended = True
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _call(self, row: Row) -> pa.Table:
        """Call the function for one row and copy its answer, which the function may change later."""
        try:
            async with asyncio.timeout(self.asked.timeout) as limit:
                answer = await self.asked.fn(row)
            late = limit.expired()  # it caught what told it so
        except TimeoutError as error:
            if not limit.expired():
                raise self._build_call_error(error) from error
            late = True
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._build_call_error(
                error
            ) from error  # what the function itself waited for was cancelled
        except Exception as error:
            raise self._build_call_error(error) from error
        if late:
            raise EngineError(
                f"{self._where}: a call was not answered within {self.asked.timeout} s",
                code="answer-timeout",
                hint="repeat the tick: calls that were answered are not repeated",
            )
        names = {column.name for column in self.asked.columns}
        if not isinstance(answer, Mapping) or set(answer) != names:
            raise EngineError(
                f"{self._where}: the function returned {answer!r}, not the columns"
                f" {', '.join(sorted(names))}",
                code="bad-value",
            )
        return self._table([answer])

    def _build_call_error(self, error: BaseException) -> EngineError:
        return EngineError(
            f"{self._where}: a call failed: {failure_text(error)}",
            code="answer-failed",
            hint="repeat the tick: calls that were answered are not repeated",
        )

    def _table(self, answers: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Build a table of answers.

        Raises:
            EngineError: A value does not have the type of its column.
        """
        return add_utc_zone(build_table(self.asked.columns, answers), self.asked.columns)

    def _load_answers(self, tick: int) -> dict[str, pa.Table]:
        """Load the stored answers of the tick, and delete those of ticks before the previous one."""
        answered: dict[str, pa.Table] = {}
        schema = self._table([]).schema
        for name in self._store.names(FOLDER):
            of = int(name.removeprefix(f"{FOLDER}/").partition("-")[0])
            if of < tick - 1:
                self._store.delete(name)
            if of != tick:
                continue
            data = self._store.read(name)
            if name != _build_file_name(tick, data):
                raise damage_error(f'answers "{name}"', "their content is not what was written")
            table = pa.ipc.open_stream(data).read_all()
            rows = table.drop_columns([_KEY])
            if rows.schema == schema:
                keys = table.column(_KEY).to_pylist()
                answered |= {key: rows.slice(at, 1) for at, key in enumerate(keys)}
        return answered

    def _keep(self, answers: Mapping[str, pa.Table], tick: int) -> None:
        if not answers:
            return
        table = pa.concat_tables(answers.values()).combine_chunks().add_column(0, _KEY, [list(answers)])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        self._store.write(_build_file_name(tick, data), data)


def _build_file_name(tick: int, data: pa.Buffer) -> str:
    return f"{FOLDER}/{tick}-{hashlib.blake2b(data, digest_size=16).hexdigest()}.arrow"
