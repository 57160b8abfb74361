"""Where the rows of a merged run were before, for those who keep the same rows and did not merge them.

One Arrow file per merged run: by row the number of its run before among those that were merged, and its row
number there, both uint32. It is named by the manifest of the tick that merged, which is the only one that
needs it: the others take the merged run over in the next tick.
"""

from __future__ import annotations

import uuid
import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.batches import batches_in, one_batch
from watersmeet.state.checksums import check_content
from watersmeet.state.store import Store
from watersmeet.state.stored_record import FrozenRecord

FOLDER = "merged"
_NUMBER, _ROW = "number", "row"

Numbers = npt.NDArray[np.int64]


class MergedFrom(FrozenRecord):
    """``runs``: the names of all runs that were merged, in order; ``file``: of which each row comes."""

    runs: tuple[str, ...]
    file: str
    checksum: int


def write_places(
    store: Store, tick: int, runs: tuple[str, ...], numbers: Numbers, rows: Numbers
) -> MergedFrom:
    """Store of which of the ``runs`` each row comes, and its row number there."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array(numbers.astype(np.uint32)), pa.array(rows.astype(np.uint32))], names=[_NUMBER, _ROW]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    name = f"{FOLDER}/{tick}-{uuid.uuid4().hex[:16]}.arrow"
    store.write(name, data)
    return MergedFrom(runs=runs, file=name, checksum=zlib.crc32(data))


def verify_lineage_file(store: Store, merged: MergedFrom) -> pa.Buffer:
    """Read the lineage file and verify its checksum.

    Raises:
        StateError: the file is missing or damaged.
    """
    data = store.read(merged.file)
    check_content(store, merged.file, data, merged.checksum, f'file "{merged.file}"')
    return data


def read_places(store: Store, merged: MergedFrom, start: int, stop: int) -> tuple[Numbers, Numbers]:
    """Return (numbers of runs, row numbers) of the rows [start, stop).

    Raises:
        StateError: the file is damaged.
    """
    data = verify_lineage_file(store, merged)
    batch = one_batch(list(batches_in(pa.ipc.open_file(pa.BufferReader(data)))))
    numbers, rows = (
        batch.column(name).slice(start, stop - start).to_numpy(zero_copy_only=True).astype(np.int64)
        for name in (_NUMBER, _ROW)
    )
    return numbers, rows
