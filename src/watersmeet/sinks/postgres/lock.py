"""The lock by which a second run is refused before it begins: an advisory lock of the driver's session.

Behind a pooler that gives each transaction another session the lock would be the pooler's: it would stay when
the run is over, and two runs could have it. Such a pooler is refused, where it is noticed: by a second
connection that is given the session of the first one, or by a session that has become another in mid-run.
"""

from __future__ import annotations

import time

from watersmeet.errors import EngineError
from watersmeet.postgres_server import Cursor, Server, rows_of

LOCK_WAIT_S = 10.0
"""Seconds to wait for the lock: the session of a killed run may hold it for a while."""


KEEPALIVES = """SELECT set_config(name, wanted, false) FROM pg_settings JOIN (VALUES
    ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '60000')) AS ours (name, wanted) USING (name)"""
"""Sets those that the server has: it notices then that this machine is gone, and ends its session."""

ALL_ROWS = "SELECT set_config('row_security', 'off', false)"
"""A policy that would hide rows from a keyed sink is an error then: they would not be replaced."""


def session_of(cursor: Cursor) -> int:
    """The number of the server's process."""
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

    try:
        if beside.run(is_shared):
            raise pooled(sink)
    finally:
        beside.close()


def pooled(sink: str) -> EngineError:
    """What is said of such a pooler."""
    return EngineError(
        f'the connection of sink "{sink}" goes through a pooler that changes the session for each'
        " transaction, so a run cannot hold its lock",
        code="sink-pooled",
        hint="use the server itself in the url, or a pooler with pool_mode = session; nothing was published",
    )
