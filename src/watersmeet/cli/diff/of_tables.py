"""The rows of the tables that sinks write, as they are now, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.sinks.unread import unread
from watersmeet.spec.model import Sink

Keep = Callable[[Any], None]
"""Takes a reader of Arrow's, and reads it to its end."""


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


def _delta(wished: Wished, keep: Keep) -> None:
    from deltalake import DeltaTable

    from watersmeet.sinks.lake.delta import DeltaLakeTable

    table = DeltaLakeTable(wished.sink)
    read = DeltaTable(table.place, storage_options=table.storage_options)
    keep(read.to_pyarrow_dataset().scanner().to_reader())


def _iceberg(wished: Wished, keep: Keep) -> None:
    from pyiceberg.catalog import load_catalog

    from watersmeet.spec.options.lake import IcebergOptions, catalog_options

    options = dict(catalog_options(wished.sink.options))
    catalog = load_catalog(options.pop("name", "default"), **options)
    keep(catalog.load_table(IcebergOptions.of(wished.sink.options).table).scan().to_arrow_batch_reader())


def _postgres(wished: Wished, keep: Keep) -> int | None:
    from watersmeet.sinks.postgres.read_back import read_back

    return read_back(wished.sink, wished.insert, wished.columns, keep)


READERS: Mapping[str, Callable[[Wished, Keep], int | None]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
}
"""By connector."""
