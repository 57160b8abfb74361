"""The rows of the tables that sinks write, as they are now, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import EngineError, SpecError, WatersmeetError
from watersmeet.names import SHOWN_DIFF
from watersmeet.spec.model import Sink

Keep = Callable[[Any], None]
"""Takes a reader of Arrow's, and reads it to its end."""

_AWAY_S = 10
"""A server that is away is waited for no longer."""


@dataclass(frozen=True)
class Wished:
    """``insert``: the query whose rows are asked for; ``columns``: its columns."""

    sink: Sink
    insert: str
    columns: frozenset[str]


def read(wished: Wished, keep: Keep) -> int | None:
    """Read a table.

    Returns:
        The last tick of the query that the table has rows of; None, where it does not say so.

    Raises:
        EngineError: the table cannot be read.
    """
    try:
        return READERS[wished.sink.connector](wished, keep)
    except WatersmeetError:
        raise
    except Exception as error:
        raise unread(wished.sink, str(error)) from None


def unread(sink: Sink, said: str, what: str = "table") -> EngineError:
    """What is said where what a sink has written cannot be read."""
    first = next(iter(said.splitlines()), "no reason was given")
    return EngineError(
        f'"{sink.name}": its {what} cannot be read: {first}',
        code="not-compared",
        hint="is it there, and can it be reached from here?",
    )


def _delta(wished: Wished, keep: Keep) -> None:
    from deltalake import DeltaTable

    from watersmeet.sinks.lake.delta import DeltaLakeTable

    table = DeltaLakeTable(wished.sink)
    read = DeltaTable(table.place, storage_options=table.storage_options)
    keep(read.to_pyarrow_dataset().scanner().to_reader())


def _iceberg(wished: Wished, keep: Keep) -> None:
    from pyiceberg.catalog import load_catalog

    from watersmeet.spec.options.lake import catalog_options, table_name

    options = dict(catalog_options(wished.sink.options))
    catalog = load_catalog(options.pop("name", "default"), **options)
    keep(catalog.load_table(table_name(wished.sink.options)).scan().to_arrow_batch_reader())


def _postgres(wished: Wished, keep: Keep) -> int | None:
    from watersmeet.postgres_errors import words
    from watersmeet.postgres_server import Server
    from watersmeet.spec.options.postgres import url_of

    url = url_of(wished.sink.options)
    server = Server(url, wished.sink.name, _AWAY_S)
    try:
        return server.run(lambda cursor: _in_transaction(cursor, wished, keep))
    except WatersmeetError:
        raise
    except Exception as error:
        raise unread(wished.sink, words(error, url)) from None
    finally:
        server.close()


def _in_transaction(cursor: Any, wished: Wished, keep: Keep) -> int | None:
    """Rows and ticks are those of one moment."""
    from watersmeet.postgres_server import quoted, rows_of
    from watersmeet.sinks.postgres.ledger import Ledger
    from watersmeet.spec.options.postgres import table_of

    named = table_of(wished.sink.options)
    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    schema = named.schema
    if schema is None:
        ((schema,),) = rows_of(cursor, "SELECT current_schema()::text")
    schema = schema or "public"
    stored = rows_of(cursor, _COLUMNS, schema, named.table)
    if not stored:
        raise unread(wished.sink, f'there is no table "{schema}"."{named.table}"')
    shown = [
        _column(wished.sink, name, kind)
        for name, kind in stored
        if name in wished.columns or name == SHOWN_DIFF
    ]
    ledger = Ledger(wished.sink.name, schema, named.table)
    ticks = ledger.ticks(cursor) if ledger.is_there(cursor) else {}
    cursor.execute(f"SELECT {', '.join(shown)} FROM {quoted(schema)}.{quoted(named.table)}")
    keep(cursor.fetch_record_batch())
    return max((tick for insert, tick in ticks if insert == wished.insert), default=None)


_COLUMNS = """SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname::text = $1 AND c.relname::text = $2 AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum"""
_AS_TEXT = ("numeric", "uuid", "json")


def _column(sink: Sink, name: str, kind: str) -> str:
    from watersmeet.postgres_server import quoted

    if kind == "jsonb":
        raise SpecError(
            f'"{sink.name}": column "{name}" is jsonb, which does not keep a value as it was written',
            code="not-compared",
            hint="write the rows to files, too, and name them by --output",
        )
    plain = kind.partition("(")[0]
    return f"{quoted(name)}::text AS {quoted(name)}" if plain in _AS_TEXT else quoted(name)


READERS: Mapping[str, Callable[[Wished, Keep], int | None]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
}
"""By connector."""
