"""Whether the table that has a target's name is the one that the job has written to, and still has its rows.

A table is known by the server's system identifier, and the numbers of its database and of itself: another one
of its name, or the same in a database that was restored from a dump, has other numbers.
"""

from __future__ import annotations

from watersmeet.errors import EngineError
from watersmeet.postgres_server import Cursor, quoted, rows_of

_CONTROL = "SELECT coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE'), false)"
_FILES = """SELECT concat(pg_postmaster_start_time(), ' ', pg_relation_filenode($1::bigint::oid), ' ',
    (SELECT string_agg(pg_relation_filenode(t.relid)::text, ' ')
    FROM pg_partition_tree($1::bigint::oid::regclass) t)),
    has_any_column_privilege($1::bigint::oid, 'SELECT') AND NOT row_security_active($1::bigint::oid)"""
"""What TRUNCATE changes, or a crash of the server (of unlogged tables); and whether rows are seen."""


def number_of(cursor: Cursor, table: str) -> int | None:
    """Return the server's number of a table by its name in SQL, as it is now, whatever the transaction sees
    otherwise; None: there is none."""
    ((number,),) = rows_of(cursor, "SELECT to_regclass($1)::oid::bigint", table)
    return None if number is None else int(number)


def identity_of(cursor: Cursor, table: str) -> str | None:
    """Return what tells a table from any other of its name (given in SQL); None: there is none."""
    number, server = number_of(cursor, table), ""
    if number is None:
        return None
    if rows_of(cursor, _CONTROL) == [(True,)]:
        ((server,),) = rows_of(cursor, "SELECT system_identifier::text FROM pg_control_system()")
    named = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"
    ((database,),) = rows_of(cursor, named)
    return f"{server}/{database}/{number}"


def is_same(written: str, now: str | None) -> bool:
    """Return whether two identities are of one table; a user may have no right to ask for the server's."""
    if now is None:
        return False
    (server, *numbers), (server_now, *numbers_now) = written.split("/"), now.split("/")
    return numbers == numbers_now and (server == server_now or not server or not server_now)


def replaced_error(table: str, sink: str) -> EngineError:
    """Return what is said of a table (its name in SQL) that is not the one that the job has written to."""
    return EngineError(
        f'the table {table} is not the one that this job wrote to (sink "{sink}"): it was dropped,'
        " renamed, restored from a dump or moved. Nothing was written",
        code="sink-replaced",
        hint="restore the job's table and run again; or, to continue with this table, run with"
        f" --accept-target {quoted(sink) if ' ' in sink else sink}",
    )


class EmptyCheck:
    """Look whether others have emptied a table, as by TRUNCATE, which gives it other files.

    Args:
        at_start: it is also looked at in the first tick of a run.
    """

    def __init__(self, *, at_start: bool) -> None:
        self._seen = "" if at_start else None

    def finds_empty(self, cursor: Cursor, number: int, table: str) -> bool:
        """Return whether a table has no rows, where that is to be looked at now, and can be."""
        ((files, is_readable),) = rows_of(cursor, _FILES, number)
        if files == self._seen:
            return False
        is_due, self._seen = self._seen is not None and bool(is_readable), files
        return is_due and not rows_of(cursor, f"SELECT 1 FROM {table} LIMIT 1")
