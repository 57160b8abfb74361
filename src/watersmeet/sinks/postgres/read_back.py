"""The rows of a table that a sink writes, read again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from watersmeet.errors import SpecError, WatersmeetError
from watersmeet.names import SHOWN_DIFF
from watersmeet.postgres_server import Cursor, Server, quote_identifier, rows_of, words
from watersmeet.sinks.postgres.ledger import PostgresLedger
from watersmeet.sinks.read_hints import unreadable_error
from watersmeet.spec.model import Sink
from watersmeet.spec.options.postgres import PostgresOptions, url_of

_AWAY_S = 10
"""A server that is away is waited for no longer."""


def read_back(sink: Sink, insert: str, columns: Collection[str], keep: Callable[[Any], None]) -> int | None:
    """Read the rows of a table.

    Args:
        insert: Query whose ticks are requested.
        columns: Columns to read, besides `SHOWN_DIFF`.
        keep: Function that receives an Arrow reader and reads it to its end.

    Returns:
        The last tick of the query that the table has rows of; None if there is none.

    Raises:
        SpecError, EngineError: The table cannot be read.
    """
    url = url_of(sink.options)
    server = Server(url, sink.name, _AWAY_S)
    try:
        return server.run(lambda cursor: _in_transaction(cursor, sink, insert, columns, keep))
    except WatersmeetError:
        raise
    except Exception as error:
        raise unreadable_error(sink, words(error, url)) from None
    finally:
        server.close()


def _in_transaction(
    cursor: Cursor, sink: Sink, insert: str, columns: Collection[str], keep: Callable[[Any], None]
) -> int | None:
    """Read the rows and the ticks from one snapshot of the database."""
    named = PostgresOptions.of(sink.options).table
    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    schema = named.schema
    if schema is None:
        ((schema,),) = rows_of(cursor, "SELECT current_schema()::text")
    schema = schema or "public"
    stored = rows_of(cursor, _COLUMNS, schema, named.table)
    if not stored:
        raise unreadable_error(sink, f'there is no table "{schema}"."{named.table}"')
    shown = [_column(sink, name, kind) for name, kind in stored if name in columns or name == SHOWN_DIFF]
    ledger = PostgresLedger(sink.name, schema, named.table)
    ticks = ledger.ticks(cursor) if ledger.is_there(cursor) else {}
    cursor.execute(
        f"SELECT {', '.join(shown)} FROM {quote_identifier(schema)}.{quote_identifier(named.table)}"
    )
    keep(cursor.fetch_record_batch())
    return max((tick for of, tick in ticks if of == insert), default=None)


_COLUMNS = """SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname::text = $1 AND c.relname::text = $2 AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum"""
_AS_TEXT = ("numeric", "uuid", "json")


def _column(sink: Sink, name: str, kind: str) -> str:
    if kind == "jsonb":
        raise SpecError(
            f'"{sink.name}": diff cannot compare column "{name}": jsonb does not preserve the written text',
            code="not-compared",
            hint="also write the rows to files and pass them with --output",
        )
    plain = kind.partition("(")[0]
    return (
        f"{quote_identifier(name)}::text AS {quote_identifier(name)}"
        if plain in _AS_TEXT
        else quote_identifier(name)
    )
