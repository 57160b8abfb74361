"""A table of PostgreSQL: exactly once, several tables in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from watersmeet.errors import EngineError, raise_all
from watersmeet.names import DELETED
from watersmeet.postgres_server import (
    LOG,
    Cursor,
    Server,
    advice,
    client,
    close_idle,
    constraint_of,
    has_row_detail,
    quote_identifier,
    refused_login,
    rows_of,
    table_of_error,
    words,
)
from watersmeet.sinks.base import (
    ArrowPart,
    Frame,
    KeyedRows,
    RowPrinter,
    Schema,
    Sink,
    StagedPart,
    check_unique_names,
    columns_of,
    text_options_sql,
)
from watersmeet.sinks.part_mark import Identity, Resumed, check_same, format_parts, newer_parts
from watersmeet.sinks.postgres.copy import PostgresPart
from watersmeet.sinks.postgres.ledger import (
    ALL_ROWS,
    KEEPALIVES,
    PostgresLedger,
    pooler_error,
    session_of,
    take_lock,
)
from watersmeet.sinks.postgres.publishing import DeadLetterTable, publish_rows, refused_row
from watersmeet.sinks.postgres.staging import StagedRows, StagingTables, leftovers
from watersmeet.sinks.postgres.target import (
    EmptyCheck,
    TargetTable,
    check_schema,
    check_unchanged,
    ensure_table,
    identity_of,
    is_as_json,
    result_problems,
    staged_type,
    staged_type_of,
    written_columns,
)
from watersmeet.sinks.staging import staged_by_tasks
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.postgres import PostgresOptions, database_of, sink_problems, url_of

# A table of PostgreSQL: exactly once.
#
# Tasks COPY rows into a staging table (`part`), and one transaction on the driver moves those of the
# attempts that count into the target and writes that the target has the tick (`ledger`). A repeated tick
# of the same identity finds that, and changes nothing; so does a COMMIT whose answer was lost, which is
# tried again. Which run may write is looked at in the same transaction, under a lock of a row. Besides a
# run holds an advisory lock, by which a second one is refused before it begins; should its connection
# break, the row counts.
#
# Rows are inserted; with a PRIMARY KEY they take the places of those of their keys, or take them away
# (`KeyedRows`). Results that are changes without a key are inserted with their columns ``_diff`` and
# ``_tick``.
#
# Staging tables are unlogged unless it is said otherwise: a server that crashes empties them, which is
# noticed by the number of rows. They stay for a run, and those of earlier runs are dropped when one
# begins.

_FIRST_WAIT_S = 30
"""A server is waited for no longer before the first tick."""
_CORRECT = "correct what the server reports, and run again"


class PostgresSink(Sink):
    """See the module. Options: `spec.options.postgres.PostgresOptions`."""

    idempotent = True
    stages = True
    tells_rows = True

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        self._spec = spec
        raise_all(list(sink_problems(spec)))
        self._key = tuple(spec.primary_key)
        self._options = PostgresOptions.of(spec.options)
        self._url = url_of(spec.options)
        self.database = database_of(self._url)
        self._run = uuid.uuid4().hex
        self._owner: str | None = None
        self._is_locked = False
        self._session = 0  # the server's number of it
        self._ledger: PostgresLedger | None = None
        self._target: TargetTable | None = None
        self._aside: DeadLetterTable | None = None
        self._accepts_target = self._is_other = False
        self._empty_check = EmptyCheck(at_start=not self._key)
        self.server = Server(self._url, spec.name, self._options.max_wait, self._configure_connection)
        self._stages = StagingTables(
            self.server,
            spec.name,
            self._url,
            self._run,
            self._key,
            logged=self._options.staging == "logged",
            aside=self._options.has_dead_letters,
        )
        self._refused: dict[str, int] = {}  # insert -> rows put aside in this run
        self._last: dict[str, tuple[int, str]] = {}  # insert -> (tick, attempt) that was published
        self._had: dict[str, tuple[int, ...]] = {}  # insert -> the last ticks that the server confirmed

    @property
    def secrets(self) -> Mapping[str, str]:
        return {"url": self._url}

    @property
    def keyed(self) -> KeyedRows | None:
        return KeyedRows(self._key) if self._key else None

    def accept_target(self) -> None:
        self._accepts_target = True

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = written_columns(columns_of(schema), self._key)
        check_unique_names(columns, self._spec)
        raise_all(list(result_problems(columns, self._spec)))
        client()
        is_first = owner is not None and self._owner is None
        try:
            self._take(columns, owner, is_first=is_first)
        except BaseException:
            if is_first:
                self._is_locked = False
                self.server.close()
            raise

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """See `ChecksTarget`."""
        client()
        if wait_s is None:
            return
        try:
            self._do(lambda c: check_schema(c, self._find(c).schema, self._spec.name), "be read", wait_s)
        finally:
            self.server.close()

    def _take(self, columns: Sequence[Column], owner: str | None, *, is_first: bool) -> None:
        """Find, create or check the table, and claim it for this job; then drop leftovers of earlier runs."""
        ledger = self._ledger = self._do(self._find, "be read", _FIRST_WAIT_S)
        if self._options.has_dead_letters:
            self._aside = DeadLetterTable(self._spec.name, ledger.schema, ledger.table)
        if is_first:
            self._lock(ledger)

        def take(cursor: Cursor) -> TargetTable:
            unchecked = TargetTable(ledger.schema, ledger.table, {})
            check_schema(cursor, ledger.schema, self._spec.name)
            there = None
            if owner is not None:
                ledger.make(cursor)
                there = identity_of(cursor, unchecked.sql)
                self._is_other |= ledger.take(cursor, owner, self._run, there, accepts=self._accepts_target)
            target = ensure_table(cursor, unchecked, columns, self._spec)
            if owner is not None:
                ledger.record_table(cursor, there or identity_of(cursor, target.sql))
            if self._aside is not None:
                self._aside.make(cursor)
            return target

        self._target = self._do(take, "be written", _FIRST_WAIT_S)
        if is_first:
            self._owner = owner
            left = self._do(lambda cursor: leftovers(cursor, ledger), "be read")
            self._stages.drop_leftovers(ledger, left)

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        ledger = self._there()
        parts = self._do(ledger.ticks, "be read")
        try:
            newer = newer_parts(
                self._spec.name,
                ledger.place,
                parts,
                inserts,
                lambda insert, tick: parts[insert, tick],
                resumed,
            )
        except EngineError as error:
            error.hint = _RESTORE  # rows of a tick are mixed with others: they cannot be moved away
            raise
        if newer:
            raise EngineError(
                f"{ledger.place} has {format_parts(newer)}, which cannot be removed (sink"
                f' "{self._spec.name}"): they are mixed with other rows. Nothing was written',
                code="sink-ahead",
                hint=_RESTORE,
            )
        elsewhere: dict[str, tuple[int, Identity]] = {}
        for insert in inserts:
            last = (resumed.last_parts or {}).get(insert)
            own = [tick for name, tick in parts if name == insert and tick <= resumed.committed]
            self._had[insert] = (max(own),) if own else ()
            if last is not None and not own:
                elsewhere[insert] = last
            elif last is not None and max(own) < last[0]:
                if not self._accepts_target:
                    raise self._build_missing_tick_error(insert, last[0])
                elsewhere[insert] = last
        if self._accepts_target:
            self._do(lambda cursor: ledger.admit(cursor, elsewhere), "be written")
            self._had |= {insert: (tick,) for insert, (tick, _) in elsewhere.items()}
            LOG.warning(ledger.acceptance_notice(is_needed=self._is_other or bool(elsewhere)))
        elif elsewhere:
            lacking = sorted((insert, tick) for insert, (tick, _) in elsewhere.items())
            raise EngineError(
                f"{ledger.place} has no ticks of "
                f"{' and '.join((quote_identifier(name) for name, _ in lacking))},"
                f" but the checkpoint has {format_parts(lacking)}: the database is older than the checkpoint,"
                " the table was recreated, or earlier rows went to another place (sink"
                f' "{self._spec.name}"). Nothing was written',
                code="sink-behind",
                hint=f"{_RESTORE}. If earlier rows are in another place and stay there, run with"
                f" --accept-target {self._spec.name}",
            )
        return []

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        columns = columns_of(frame.schema)
        texts = ["`" + column.name.replace("`", "``") + "`" for column in columns]
        values = [
            f"to_json({text}, {text_options_sql('json')}) AS {text}" if is_as_json(column.type) else text
            for column, text in zip(columns, texts, strict=True)
        ]
        types = [staged_type(column.type) or str(column.type) for column in columns]
        names = [column.name for column in columns if column.name != DELETED]
        rows = frame if values == texts else frame.selectExpr(*values)
        part = self._part(insert, tick, attempt, names, types)
        self.take_parts(insert, tick, attempt, staged_by_tasks(rows, part))

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        types = [staged_type_of(field.type) for field in schema]
        wanted = [type_ for type_ in types if type_ is not None]
        if self._key or len(wanted) < len(types):
            return None
        return self._part(insert, tick, attempt, schema.names, wanted)

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        self._stages.take((attempt, insert, tick), parts)

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        staged = self._stages.staged((attempt, insert, tick))
        assert staged is not None
        return staged.rows

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        def look(cursor: Cursor) -> bool:
            ledger = self._ledger or self._find(cursor)
            return ledger.is_there(cursor) and ledger.tick(cursor, insert, tick) is not None

        return bool(self._do(look, "be read"))

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        def look(cursor: Cursor) -> bool:
            return self._is_there(cursor, insert, tick, identity, is_own=True)

        self._do(look, "be read")

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        def show(cursor: Cursor) -> bool:
            return self.show(cursor, insert, tick, attempt, identity)

        while True:
            try:
                there = self.server.run(show)
                break
            except Exception as error:
                if not self.retries_with_dead_letter(error, insert, tick, attempt):
                    raise self.refusal(error, insert, tick, attempt) from None
        self.shown(insert, tick, attempt, there=there)
        return there

    def show(self, cursor: Cursor, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Publish a tick inside the caller's transaction, as `publish` does.

        Returns:
            True if the target or its dead-letter table then has rows of the tick.
        """
        staged = self._stages.staged((attempt, insert, tick))
        if staged is None and self._last.get(insert) != (tick, attempt):
            raise EngineError(
                f'nothing was staged for tick {tick} of "{insert}" (sink "{self._spec.name}")',
                code="staged-rows-gone",
                hint="run again, which repeats the tick, and please report this bug",
            )
        if self._is_there(cursor, insert, tick, identity):
            return True
        if staged is None or not staged.rows:
            return False
        cursor.execute(DURABLE)
        assert self._target is not None
        check_unchanged(cursor, self._target, self._spec.name)
        if self._empty_check.is_emptied(cursor, self._target.oid, self._target.sql) and not self._is_other:
            self._there().warn_if_emptied(cursor, tick)
        self._move(cursor, staged, insert, tick)
        self._there().add(cursor, insert, tick, identity, staged.rows - staged.refused)
        return True

    def _move(self, cursor: Cursor, staged: StagedRows, insert: str, tick: int) -> None:
        """Move staged rows into the target; rejected rows go to the dead-letter table, if any."""
        target, stage, pieces = self._target, staged.stage, staged.pieces
        assert target is not None
        staged.refused = 0
        if self._aside is not None:
            staged.refused = self._aside.insert_unstaged(cursor, stage, staged.unstaged, insert, tick)
        if self._aside is not None and staged.one_by_one:
            staged.refused += self._aside.divide_rows(cursor, stage, target, pieces, insert, tick)
        elif pieces:
            publish_rows(cursor, stage, target, pieces, self._spec.name)

    def retries_with_dead_letter(self, error: Exception, insert: str, tick: int, attempt: str) -> bool:
        """Return True if calling `show` again would move the rejected rows to the dead-letter table.

        Args:
            error: Error that `show` raised.
        """
        staged = self._stages.staged((attempt, insert, tick))
        if self._aside is None or self._target is None or staged is None or staged.one_by_one:
            return False
        if not self._target.refuses_row(error):
            return False
        staged.one_by_one = True
        return True

    def concerns_table(self, error: Exception) -> bool:
        """Return True if the server attributes the error to this table.

        At the end of a transaction, an error may concern any table in it.
        """
        ledger = self._there()
        return table_of_error(error) == (ledger.schema, ledger.table)

    def refusal(self, error: Exception, insert: str, tick: int, attempt: str) -> Exception:
        """Return the exception to report for an error that `show` raised."""
        staged = self._stages.staged((attempt, insert, tick))
        return self._translate_error(error, "be written", insert, tick, staged)

    def shown(self, insert: str, tick: int, attempt: str, *, there: bool) -> None:
        """Record that the transaction of `show` is committed.

        Args:
            there: The value that `show` returned.
        """
        self._last[insert] = (tick, attempt)
        if there:
            self._had[insert] = (*(had for had in self._had.get(insert, ())[-1:] if had < tick), tick)
        staged = self._stages.done((attempt, insert, tick))
        if staged is not None and staged.refused and self._aside is not None:
            self._refused[insert] = self._refused.get(insert, 0) + staged.refused
            LOG.warning(self._aside.told(insert, tick, staged.refused, self._refused[insert]))

    def discard(self, attempt: str) -> None:
        self._stages.discard(attempt)

    def close(self) -> None:
        self._stages.drop()
        self.server.close()
        close_idle(self._url)

    def _there(self) -> PostgresLedger:
        if self._ledger is None:
            raise EngineError("the sink was not prepared", code="internal", hint="please report this bug")
        return self._ledger

    def _find(self, cursor: Cursor) -> PostgresLedger:
        """Return the ledger of the target, in the schema where the server finds the table."""
        named = self._options.table
        schema = named.schema
        if schema is None:
            ((schema,),) = rows_of(cursor, "SELECT current_schema()::text")
        return PostgresLedger(self._spec.name, schema or "public", named.table)

    def _configure_connection(self, cursor: Cursor) -> None:
        """Configure a new connection.

        The server notices if this machine is gone, and then releases its locks. A connection that replaces
        another one takes the lock, if it is available.
        """
        cursor.execute(KEEPALIVES)
        if self._key:
            cursor.execute(ALL_ROWS)
        self._session = session_of(cursor)
        if self._is_locked and self._ledger is not None:
            rows_of(cursor, "SELECT pg_try_advisory_lock($1)", self._ledger.lock)

    def _lock(self, ledger: PostgresLedger) -> None:
        """Lock the target for this run.

        Raises:
            EngineError: another run has locked the target.
        """
        beside = Server(self._url, self._spec.name, _FIRST_WAIT_S, lambda cursor: None)
        try:
            take_lock(self.server, beside, ledger.lock, ledger.place, self._spec.name)
        except Exception as error:
            raise self._translate_error(error, "be read") from None
        self._is_locked = True

    def _is_there(
        self, cursor: Cursor, insert: str, tick: int, identity: Identity, *, is_own: bool = False
    ) -> bool:
        """Return True if the target has the tick.

        Args:
            is_own: True if the cursor belongs to this sink's session, not to another sink's.

        Raises:
            EngineError: As `check`.
        """
        ledger = self._there()
        if self._owner is not None:
            session = ledger.fence(cursor, self._owner, self._run)
            if is_own and session != self._session:
                raise pooler_error(self._spec.name)
        before, stored = ledger.last_ticks(cursor, insert, tick)
        confirmed = max((had for had in self._had.get(insert, ()) if had < tick), default=None)
        if confirmed is not None and (before is None or before < confirmed):
            raise self._build_missing_tick_error(insert, confirmed)
        if stored is None:
            return False
        check_same(self._spec.name, ledger.place, insert, tick, stored, identity, _RESTORE)
        return True

    def _build_missing_tick_error(self, insert: str, tick: int) -> EngineError:
        return EngineError(
            f'{self._there().place} no longer has "{insert}", tick {tick}, which it had confirmed (sink'
            f' "{self._spec.name}"): the database was restored, failed over to an older copy, or the'
            " table was recreated. Nothing was published",
            code="sink-behind",
            hint=_RESTORE,
        )

    def _part(
        self, insert: str, tick: int, attempt: str, names: Sequence[str], types: Sequence[str]
    ) -> PostgresPart:
        stage = self._stages.table_for((attempt, insert, tick), self._there(), names, types, self._do)
        return PostgresPart(
            self._url,
            self._spec.name,
            insert,
            stage.schema,
            stage.table,
            list(types),
            self._options.max_wait,
            stage.unstaged,
        )

    def _do(self, work: Any, what: str, wait_s: float | None = None) -> Any:
        try:
            return self.server.run(work, wait_s)
        except Exception as error:
            raise self._translate_error(error, what) from None

    def _translate_error(
        self,
        error: Exception,
        what: str,
        insert: str = "",
        tick: int = 0,
        staged: StagedRows | None = None,
    ) -> Exception:
        """Return the exception to report for an error of the server."""
        if not isinstance(error, client().Error):
            return error
        said = words(error, self._url)
        refused = refused_login(said)
        if refused is not None:
            message = f'the server of sink "{self._spec.name}" refuses the login: {refused}'
            return EngineError(message, code="sink-refused", hint=advice(error) or _CORRECT)
        if staged is None or self._target is None or not self._target.refuses_row(error):
            return EngineError(
                f'sink "{self._spec.name}": its table cannot {what}: {said}',
                code="sink-failed",
                hint=advice(error) or _CORRECT,
            )
        constraint = constraint_of(error)
        named = f" (constraint {quote_identifier(constraint)})" if constraint else ""
        row = None if has_row_detail(error) else self._row_in(staged)
        return EngineError(
            f'{self._there().place} rejects a row of "{insert}", tick {tick} (sink'
            f' "{self._spec.name}"): {said}{named}{f"; the row: {row}" if row else ""}. Nothing was'
            " published",
            code="sink-refused-row",
            hint="change the table or the query, and run again, which repeats the tick",
        )

    def _row_in(self, staged: StagedRows) -> str | None:
        """Find the rejected row; None if it cannot be determined."""
        assert self._target is not None
        try:
            return refused_row(self.server, staged.stage, self._target, staged.pieces)
        except Exception as error:
            if not isinstance(error, (client().Error, EngineError)):
                raise
        return None


DURABLE = """SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') = 'off'"""
"""What a server has confirmed and then loses would be lost here, for the checkpoint goes on."""

_RESTORE = (
    "restore the checkpoint and the database from copies of one moment, or start over with an empty"
    " checkpoint and an empty table"
)


# Rows of several tables of one database, and what else is to be there with them, in one transaction.

Result = TypeVar("Result")


def publish_together(
    sinks: Sequence[tuple[PostgresSink, str]],
    tick: int,
    attempt: str,
    identity: Identity,
    then: Callable[[Cursor, list[str]], Result],
) -> Result:
    """Publish what is staged for all of ``sinks`` (with their inserts), and do ``then``, or nothing of that.

    Args:
        sinks: of one database and user.
        then: is given those inserts of which the tables have rows of the tick. It may be called more than
            once: the answer to a COMMIT may be lost.

    Raises:
        EngineError: as `Sink.publish`, or what ``then`` raised.
    """
    doing = sinks[0]

    def work(cursor: Cursor) -> tuple[list[bool], Result]:
        nonlocal doing
        cursor.execute(DURABLE)
        there = []
        for doing in sinks:
            sink, insert = doing
            there.append(sink.show(cursor, insert, tick, attempt, identity))
        return there, then(cursor, [insert for (_, insert), has in zip(sinks, there, strict=True) if has])

    while True:
        try:
            shown, result = sinks[0][0].server.run(work)
            break
        except Exception as error:
            # What is looked at when a transaction ends may be any of them.
            again = [sink.retries_with_dead_letter(error, insert, tick, attempt) for sink, insert in sinks]
            if not any(again):
                sink, insert = next((one for one in sinks if one[0].concerns_table(error)), doing)
                raise sink.refusal(error, insert, tick, attempt) from None
    for (sink, insert), has in zip(sinks, shown, strict=True):
        sink.shown(insert, tick, attempt, there=has)
    return result
