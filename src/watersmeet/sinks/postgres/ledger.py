"""The owner of a table, the ticks it has, and the lock of a run."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from watersmeet.errors import EngineError
from watersmeet.postgres_server import LOG, Cursor, Server, quote_identifier, rows_of
from watersmeet.sinks.part_mark import Identity
from watersmeet.sinks.postgres.target import is_same, replaced_error

# Whose a table is, and which ticks it has: two small tables beside it, written with its rows.
#
# ``_watersmeet_sinks`` has a row per target: the job's id (``owner``), its run, and which table of that
# name the rows went to (`identity`). A run that starts puts its number there; each transaction of a run
# that shows rows locks that row first, and finds its own number in it, or is refused.
# ``_watersmeet_ticks`` has a row per insert and tick with rows, with the tick's identity; those that are
# `RETAINED_TICKS` ticks back are dropped.

OWNERS, TICKS = "_watersmeet_sinks", "_watersmeet_ticks"
RETAINED_TICKS = 1000

_WRITTEN = "written_to"

_CREATION_LOCK = 0x77617465
"""The lock under which the two tables are made."""


@dataclass(frozen=True)
class PostgresLedger:
    """Ledger of one target table."""

    sink: str
    schema: str
    table: str

    @property
    def place(self) -> str:
        return f'the table "{self.schema}"."{self.table}"'

    @property
    def lock(self) -> int:
        """The number of the advisory lock that a run holds."""
        return int.from_bytes(self._digest(8), "big", signed=True)

    @property
    def staging(self) -> str:
        """Prefix of the names of tables with staged rows for this target."""
        return f"_watersmeet_{self._digest(8).hex()}_"

    def _digest(self, size: int) -> bytes:
        named = json.dumps(["watersmeet", self.schema, self.table])
        return hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=size).digest()

    def _qualify_table(self, table: str) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(table)}"

    def is_there(self, cursor: Cursor) -> bool:
        """Return True if the schema has a ledger."""
        sql = """SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname::text = $1 AND c.relname::text = $2"""
        return bool(rows_of(cursor, sql, self.schema, TICKS))

    def make(self, cursor: Cursor) -> None:
        """Make the two tables, if they are not there; those of earlier versions get what they lack."""
        if self.is_there(cursor):
            column = f"SELECT 1 FROM pg_attribute WHERE attrelid = $1::regclass AND attname = '{_WRITTEN}'"
            if not rows_of(cursor, column, self._qualify_table(OWNERS)):
                self._add_column(cursor)
            return
        rows_of(cursor, "SELECT 1 FROM pg_advisory_xact_lock($1)", _CREATION_LOCK)
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self._qualify_table(OWNERS)} (target text PRIMARY KEY,"
            " owner text NOT NULL, run text NOT NULL, since timestamptz NOT NULL DEFAULT now(),"
            f" {_WRITTEN} text)"
        )
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self._qualify_table(TICKS)}"
            " (target text, insert_name text, tick bigint, identity text NOT NULL, rows bigint NOT NULL,"
            " at timestamptz NOT NULL DEFAULT now(),"
            " PRIMARY KEY (target, insert_name, tick))"
        )

    def _add_column(self, cursor: Cursor) -> None:
        """Add the column for the table's identity. Raises: EngineError, when another user has to do so."""
        sql = f"ALTER TABLE {self._qualify_table(OWNERS)} ADD COLUMN IF NOT EXISTS {_WRITTEN} text"
        owns = "SELECT pg_has_role(relowner, 'USAGE')::int FROM pg_class WHERE oid = $1::regclass"
        ((may_alter,),) = rows_of(cursor, owns, self._qualify_table(OWNERS))
        if not may_alter:
            raise EngineError(
                f"{self._qualify_table(OWNERS)} lacks a column that this version needs"
                f' (sink "{self.sink}"), and its owner is another user',
                code="sink-failed",
                hint=f"ask its owner to run once: {sql}",
            )
        cursor.execute("SET LOCAL lock_timeout = '10s'")  # who waits for it keeps other jobs waiting
        cursor.execute(sql)
        cursor.execute("SET LOCAL lock_timeout = 0")

    def take(self, cursor: Cursor, owner: str, run: str, table: str | None, *, accepts: bool) -> bool:
        """Make the target this job's, and this run's, from now on; `make` comes first.

        Args:
            table: the identity of the table that has the target's name now; None: there is none.
            accepts: whether it may be another one than the job has written to.

        Return whether it is another one.

        Raises:
            EngineError: there are rows of another job in it, or it is another table.
        """
        cursor.execute(
            f"INSERT INTO {self._qualify_table(OWNERS)} (target, owner, run) VALUES ($1, $2, $3)"
            " ON CONFLICT (target) DO NOTHING",
            parameters=(self.table, owner, run),
        )
        # A statement sees what was committed when it began: ticks are looked at when the row is held.
        sql = f"SELECT owner, {_WRITTEN} FROM {self._qualify_table(OWNERS)} WHERE target = $1 FOR UPDATE"
        ((holder, written),) = rows_of(cursor, sql, self.table)
        ticks = f"SELECT 1 FROM {self._qualify_table(TICKS)} WHERE target = $1 LIMIT 1"
        has_ticks = bool(rows_of(cursor, ticks, self.table))
        if holder != owner and has_ticks:
            target = self.table.replace("'", "''")
            raise EngineError(
                f"{self.place} contains rows of another job, or of this job with another checkpoint"
                f' directory (sink "{self.sink}"); nothing was written there',
                code="sink-of-another-run",
                hint="run the job with the checkpoint directory that it had before (--checkpoint DIR);"
                f" or, to start over with this table, run DELETE FROM {self._qualify_table(TICKS)} WHERE"
                f" target = '{target}'",
            )
        is_other = has_ticks and written is not None and not is_same(written, table)
        if is_other and not accepts:
            raise replaced_error(self._qualify_table(self.table), self.sink)
        cursor.execute(
            f"UPDATE {self._qualify_table(OWNERS)} SET owner = $2, run = $3, since = now() WHERE target = $1",
            parameters=(self.table, owner, run),
        )
        return is_other

    def record_table(self, cursor: Cursor, table: str | None) -> None:
        """Remember the identity of the table that the rows go to from now on."""
        sql = f"UPDATE {self._qualify_table(OWNERS)} SET {_WRITTEN} = $2 WHERE target = $1"
        cursor.execute(sql, parameters=(self.table, table))

    def warn_if_emptied(self, cursor: Cursor, tick: int) -> None:
        """Warn that the target has no rows, if it has taken some, as far as the ledger goes back."""
        sql = f"SELECT 1 FROM {self._qualify_table(TICKS)} WHERE target = $1 AND rows > 0 LIMIT 1"
        if rows_of(cursor, sql, self.table):
            LOG.warning(
                f'sink "{self.sink}": {self.place} has no rows before tick {tick}: others have removed those'
                " that were put there"
            )

    def acceptance_notice(self, *, is_needed: bool) -> str:
        """Return the notice about a target that the user has accepted, whichever it is."""
        how = "is accepted as it is" if is_needed else "is the one that the job has written to"
        return f'sink "{self.sink}": {self.place} {how}; leave --accept-target out from now on'

    def fence(self, cursor: Cursor, owner: str, run: str) -> int:
        """Prevent other runs from taking the target until the end of the transaction.

        Returns:
            The number of the server's session.

        Raises:
            EngineError: Another run has taken the target.
        """
        owners = self._qualify_table(OWNERS)
        sql = f"UPDATE {owners} SET run = run WHERE target = $1 AND owner = $2 AND run = $3"
        held = rows_of(cursor, f"{sql} RETURNING pg_backend_pid()", self.table, owner, run)
        if not held:
            raise EngineError(
                f'{self.place} now belongs to another run (sink "{self.sink}"): nothing was published',
                code="sink-taken",
                hint=f"stop other runs that write there, check {self._qualify_table(OWNERS)}, and run again,"
                " which repeats the tick",
            )
        return int(held[0][0])

    def ticks(self, cursor: Cursor) -> dict[tuple[str, int], Identity]:
        """Load all recorded ticks of the target, by INSERT and tick."""
        sql = f"SELECT insert_name, tick, identity FROM {self._qualify_table(TICKS)} WHERE target = $1"
        return {
            (insert, tick): json.loads(identity)
            for insert, tick, identity in rows_of(cursor, sql, self.table)
        }

    def tick(self, cursor: Cursor, insert: str, tick: int) -> Identity | None:
        """Load the identity of a tick that the target has; None if it has no rows of the tick."""
        sql = (
            f"SELECT identity FROM {self._qualify_table(TICKS)}"
            " WHERE target = $1 AND insert_name = $2 AND tick = $3"
        )
        for (identity,) in rows_of(cursor, sql, self.table, insert, tick):
            return dict(json.loads(identity))
        return None

    def last_ticks(self, cursor: Cursor, insert: str, tick: int) -> tuple[int | None, Identity | None]:
        """Load the last tick before this one that the target has rows of, and this tick's identity.

        Each of them is None if the target has no such rows.
        """
        sql = (
            f"SELECT tick, identity FROM {self._qualify_table(TICKS)} WHERE target = $1 AND insert_name = $2"
            " AND tick <= $3 ORDER BY tick DESC LIMIT 2"
        )
        rows = rows_of(cursor, sql, self.table, insert, tick)
        identities = {there: dict(json.loads(text)) for there, text in rows}
        return max((there for there in identities if there < tick), default=None), identities.get(tick)

    def admit(self, cursor: Cursor, parts: Mapping[str, tuple[int, Identity]]) -> None:
        """Count the rows of these ticks, and those before, as being elsewhere."""
        for insert, (tick, identity) in sorted(parts.items()):
            self.add(cursor, insert, tick, identity, 0)

    def add(self, cursor: Cursor, insert: str, tick: int, identity: Identity, rows: int) -> None:
        """Record that the target has the rows of a tick, and delete the records of old ticks."""
        cursor.execute(
            f"INSERT INTO {self._qualify_table(TICKS)} (target, insert_name, tick, identity, rows)"
            " VALUES ($1, $2, $3, $4, $5)",
            parameters=(self.table, insert, tick, json.dumps(dict(identity)), rows),
        )
        cursor.execute(
            f"DELETE FROM {self._qualify_table(TICKS)} WHERE target = $1 AND insert_name = $2 AND tick < $3",
            parameters=(self.table, insert, tick - RETAINED_TICKS),
        )


# The lock by which a second run is refused before it begins: an advisory lock of the driver's session.
#
# Behind a pooler that gives each transaction another session the lock would be the pooler's: it would
# stay when the run is over, and two runs could have it. Such a pooler is refused, where it is noticed: by
# a second connection that is given the session of the first one, or by a session that has become another
# in mid-run.

LOCK_WAIT_S = 10.0
"""Seconds to wait for the lock: the session of a killed run may hold it for a while."""


KEEPALIVES = """SELECT set_config(name, wanted, false) FROM pg_settings JOIN (VALUES
    ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '60000')) AS ours (name, wanted) USING (name)"""
"""Sets those that the server has: it notices then that this machine is gone, and ends its session."""

ALL_ROWS = "SELECT set_config('row_security', 'off', false)"
"""A policy that would hide rows from a keyed sink is an error then: they would not be replaced."""


def session_of(cursor: Cursor) -> int:
    """Return the process number of the server's session."""
    ((number,),) = rows_of(cursor, "SELECT pg_backend_pid()")
    return int(number)


def take_lock(server: Server, beside: Server, lock: int, place: str, sink: str) -> None:
    """Take the lock in the session of ``server``.

    Args:
        beside: another connection to the same server, which is closed again.

    Raises:
        EngineError: another run has it, or a pooler is in between.
    """
    until = time.monotonic() + LOCK_WAIT_S
    asked = "SELECT pg_try_advisory_lock($1), pg_backend_pid()"
    while True:
        is_taken, session = server.run(lambda cursor: rows_of(cursor, asked, lock)[0])
        if is_taken:
            break
        if time.monotonic() > until:
            raise EngineError(
                f'another run is writing to {place} (sink "{sink}")',
                code="sink-in-use",
                hint="stop the other run, or give each sink of each job a table of its own",
            )
        time.sleep(0.2)

    def is_shared(cursor: Cursor) -> bool:
        if session_of(cursor) != session:
            return False
        rows_of(cursor, "SELECT pg_advisory_unlock($1)", lock)
        return True

    with closing(beside):
        if beside.run(is_shared):
            raise pooler_error(sink)


def pooler_error(sink: str) -> EngineError:
    """Return the error for a pooler that changes the session for each transaction."""
    return EngineError(
        f'the connection of sink "{sink}" goes through a pooler that changes the session for each'
        " transaction, so a run cannot hold its lock",
        code="sink-pooled",
        hint="use the server itself in the url, or a pooler with pool_mode = session; nothing was published",
    )
