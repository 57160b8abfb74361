"""The rows of the tables that sinks write, as they are now, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.spec.model import Sink


def _read(reader: Callable[[Sink], Any], sink: Sink) -> Any:
    """A reader of Arrow's. Raises: EngineError, when the table cannot be read."""
    try:
        return reader(sink)
    except WatersmeetError:
        raise
    except Exception as error:
        raise EngineError(
            f'"{sink.name}": its table cannot be read: {str(error).splitlines()[0]}',
            code="not-compared",
            hint="is it there, and can it be reached from here?",
        ) from None


def _delta(sink: Sink) -> Any:
    from deltalake import DeltaTable

    from watersmeet.sinks.lake.delta import DeltaLakeTable

    table = DeltaLakeTable(sink)
    read = DeltaTable(table.place, storage_options=table.storage_options)
    return read.to_pyarrow_dataset().scanner().to_reader()


def _iceberg(sink: Sink) -> Any:
    from pyiceberg.catalog import load_catalog

    from watersmeet.spec.options.lake import catalog_options, table_name

    options = dict(catalog_options(sink.options))
    catalog = load_catalog(options.pop("name", "default"), **options)
    return catalog.load_table(table_name(sink.options)).scan().to_arrow_batch_reader()


READERS: Mapping[str, Callable[[Sink], Any]] = {
    "delta": partial(_read, _delta),
    "iceberg": partial(_read, _iceberg),
}
"""By connector."""
