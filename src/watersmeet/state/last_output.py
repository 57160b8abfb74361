"""What the last tick of a job in this process put out, kept with the state until that of the next one is.

A job on Spark gives its rows to sinks. In this process they are handed over when the tick is committed: who
is killed between the two would never have them. So the tables are stored before the manifest that names them,
and a job that is opened again has them as it had them then.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from watersmeet.state.checksums import check_content
from watersmeet.state.store import Store
from watersmeet.state.stored_record import FrozenRecord

FOLDER = "outputs"
KEY = "output"
"""Where a manifest's ``host`` names it."""


class LastOutput(FrozenRecord):
    """``tables``: their names, in the order of the file; none where there is no ``file``."""

    file: str | None
    checksum: int
    tables: tuple[str, ...]


def last_output_of(host: Mapping[str, Any]) -> LastOutput | None:
    """Return the last output that a manifest's ``host`` names."""
    entry = host.get(KEY)
    return None if entry is None else LastOutput.model_validate(entry)


def names_in(host: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the files of the last output."""
    kept = last_output_of(host)
    if kept is not None and kept.file is not None:
        yield kept.file


def keep(store: Store, tick: int, tables: Mapping[str, pa.Table]) -> LastOutput:
    """Store the tables that have rows."""
    rows = {name: table for name, table in tables.items() if table.num_rows}
    if not rows:
        return LastOutput(file=None, checksum=0, tables=())
    sink = pa.BufferOutputStream()
    for table in rows.values():
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data = sink.getvalue()
    name = f"{FOLDER}/{tick}-{uuid.uuid4().hex[:16]}.arrow"
    store.write(name, data)
    return LastOutput(file=name, checksum=zlib.crc32(data), tables=tuple(rows))


def read(store: Store, kept: LastOutput) -> dict[str, pa.Table]:
    """Read the tables that had rows.

    Raises:
        StateError: the file is missing or damaged.
    """
    if kept.file is None:
        return {}
    source = pa.BufferReader(verify_output_file(store, kept.file, kept.checksum))
    tables = {}
    for name in kept.tables:
        with pa.ipc.open_stream(source) as reader:
            tables[name] = reader.read_all()
    return tables


def verify_output_file(store: Store, file: str, checksum: int) -> pa.Buffer:
    """Read the output file and verify its checksum.

    Raises:
        StateError: the file is missing or damaged.
    """
    data = store.read(file)
    check_content(store, file, data, checksum, f'output "{file}"')
    return data
