"""Runs are written: rows are put in order of slots, and what finds or releases them is laid beside them."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.asof import CAME
from watersmeet.kernel.batches import numbers, size
from watersmeet.kernel.gather import Columns, as_one_batch, reorder_rows
from watersmeet.kernel.match.probe import Rows, sorted_prefixes
from watersmeet.kernel.ordinals import ordinals_of
from watersmeet.kernel.slots import Slots, borders, buckets_in, encode, hash_columns, order_of, shift_for
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.state.runs.heavy_hitters import heavy_keys_in
from watersmeet.state.runs.layout import (
    ARRIVAL,
    SLOT,
    Run,
    RunLayout,
    least_times,
    order_of_times,
    with_origins,
)
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import ALIGNMENT, Section, Store

MAX_SECTIONS = 16
"""Of one object: manifests list each, and whoever has more tasks fetches what is several's."""
_OPTIONS = pa.ipc.IpcWriteOptions()
SECTION_BYTES = 256 << 10
"""Of less, a request takes longer than the bytes."""


def sort_rows(
    batch: Columns, hashes: Slots, layout: RunLayout, index: str | None = None
) -> tuple[SortedRows, Rows]:
    """Sort ``batch`` by slot; return it and the rows' earlier positions: int64[n].

    Args:
        hashes: int64[n]; only the upper halves count.
        index: the name of the index that sorts rows within a hash; None: the first one of the layout.
    """
    count, chosen = batch.num_rows, layout.index(index)
    spans = {}
    values = np.zeros(count, dtype=np.int64)
    for measured in layout.measured:
        ordinals = ordinals_of(batch.column(measured.column), measured.measure)
        spans[measured.name] = (int(ordinals.min()), int(ordinals.max())) if count else (0, 0)
        if measured == chosen:
            values = ordinals
    base, greatest = (0, 0) if chosen is None else spans[chosen.name]
    if layout.by_value:
        shift, slots = 0, values
    else:
        shift = shift_for(base, greatest)
        slots = encode(hashes, values, base, shift)
    order = order_of(slots)
    if layout.ties is not None:
        came = batch.column(CAME).to_numpy(zero_copy_only=True)
        order = _with_ties(order, slots, values, came if layout.ties == "ascending" else -came)
    rows = SortedRows(
        slots[order],
        base,
        shift,
        greatest,
        reorder_rows(batch, order),
        chosen,
        spans,
        layout.by_value,
    )
    return rows, order


def _with_ties(order: Rows, slots: Slots, times: Slots, came: npt.NDArray[np.int64]) -> Rows:
    """Reorder rows with equal slots by time and ``came``. Cost: one sort of those rows."""
    slots_in_order = slots[order]
    same = slots_in_order[1:] == slots_in_order[:-1]
    if not same.any():
        return order
    places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    rows = order[places]
    order[places] = rows[np.lexsort((came[rows], times[rows], slots[rows]))]
    return order


def _new_run_name(arrangement: str, tick: int) -> str:
    """Return a new run name that lets people recognize the arrangement.

    User-defined names may be long and contain any character, so only a safe prefix is used.
    """
    return f"runs/{_letters(arrangement)}-{tick}-{os.urandom(8).hex()}.arrow"


@cache
def _letters(arrangement: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.#]", "_", arrangement.replace("/", "."))[:80]


def write_run(
    store: Store,
    arrangement: str,
    rows: SortedRows,
    layout: RunLayout,
    *,
    tick: int,
    made_in: int | None = None,
    level: int = 0,
    group: str | None = None,
    origin: tuple[int, str, int] | None = None,
    stands_for: int | None = None,
    arrival: Rows | None = None,
    lasting: bool = True,
) -> Run:
    """Write sorted rows (at least one) as a new run. Cost: one sort per releasing column and further key.

    Args:
        tick: of the newest of its rows; ``made_in``: of its name, if a later one writes it
        (`state.garbage_collection`).
        arrival: per row its place in the order in which they came; asked for in the tick in which they do.
        lasting: it becomes part of the state; else it brings rows within this tick.
    """
    rows = replace(rows, batch=as_one_batch(rows.batch))
    batch, schema, keys = _laid_out(rows, layout, arrival)
    data = _encode_batch(batch, schema)
    name = _new_run_name(arrangement, tick if made_in is None else made_in)
    store.write(name, data, lasting=lasting)
    run = _make_run(
        name, data, keys, rows, layout, tick, group or name, level=level, origin=origin, stands_for=stands_for
    )
    OpenRun.written(store, run, layout, batch, schema, as_one_batch(rows.batch))
    return run


def write_sections(
    store: Store,
    arrangement: str,
    rows: SortedRows,
    layout: RunLayout,
    *,
    tick: int,
    tasks: int,
    origin: tuple[int, str, int] | None = None,
    lasting: bool = True,
) -> list[Run]:
    """Write sorted rows (at least one) as one run per task, split by hash.

    All runs are sections of one object, one after the other, so that each task fetches only its own.
    There are fewer runs if they would be small. Merges treat them as one group.
    """
    rows = replace(rows, batch=as_one_batch(rows.batch))
    places = _places(rows, tasks)
    if len(places) == 2:
        return [write_run(store, arrangement, rows, layout, tick=tick, origin=origin, lasting=lasting)]
    spanned = _split_with_spans(rows, layout, places)
    name, sink, runs = _new_run_name(arrangement, tick), pa.BufferOutputStream(), list[Run]()
    for part in spanned:
        batch, schema, keys = _laid_out(part, layout, None)
        data = _encode_batch(batch, schema)
        sink.write(bytes(-sink.tell() % ALIGNMENT))
        section = Section(name, sink.tell(), data.size)
        sink.write(data)
        runs.append(_make_run(section.name, data, keys, part, layout, tick, name, origin=origin))
    store.write(name, sink.getvalue(), lasting=lasting, sections=[run.name for run in runs])
    return runs


def _places(rows: SortedRows, tasks: int) -> list[int]:
    """Return the places where rows are cut into sections, including 0 and the end.

    Sections begin where the hash ranges of tasks begin. Several tasks share a section if each would
    have too few bytes or if there are too many tasks.
    """
    few = min(MAX_SECTIONS, tasks, size(as_one_batch(rows.batch).columns) // SECTION_BYTES)
    if few < 2:
        return [0, len(rows)]
    of_tasks = borders(tasks)
    cuts = [of_tasks[tasks * section // few] for section in range(1, few)]
    places = np.searchsorted(rows.slots, np.array(cuts, dtype=np.int64), side="left").tolist()
    return sorted({0, *places, len(rows)})


def _split_with_spans(rows: SortedRows, layout: RunLayout, places: Sequence[int]) -> list[SortedRows]:
    """Split sorted rows at these places; each part gets its own spans."""
    ordinals = {index.name: rows.ordinals(index) for index in layout.measured}
    parts = []
    for low, high in pairwise(places):
        own = {name: (int(of[low:high].min()), int(of[low:high].max())) for name, of in ordinals.items()}
        greatest = rows.greatest if rows.index is None else own[rows.index.name][1]
        parts.append(replace(rows.part(low, high), spans={**rows.spans, **own}, greatest=greatest))
    return parts


def _laid_out(
    rows: SortedRows, layout: RunLayout, arrival: Rows | None
) -> tuple[pa.RecordBatch, pa.Schema, tuple[int, ...]]:
    """Return a run file's columns, its schema, and the number of keys if it is counted."""
    arrays: list[pa.Array] = [numbers(rows.slots)]
    names = [SLOT]
    for column in layout.ordering:
        order = order_of(rows.times(column))
        arrays.append(numbers(order.astype(np.uint32)))
        names.append(order_of_times(column))
        for other in layout.suffix_minima:
            least = np.minimum.accumulate(rows.times(other)[order][::-1])[::-1]
            arrays.append(numbers(np.ascontiguousarray(least)))
            names.append(least_times(other))
    if arrival is not None:
        arrays.append(numbers(arrival.astype(np.uint32)))
        names.append(ARRIVAL)
    kept = as_one_batch(rows.batch)
    keys = [buckets_in(rows.slots)] if layout.counts_keys else []
    for key in layout.found_by:
        by_hash = sorted_prefixes(hash_columns([kept.column(column) for column in key.columns], len(rows)))
        keys.append(by_hash.keys)
        arrays += [pa.array(by_hash.prefixes), pa.array(by_hash.places)]
        names += [key.prefixes, key.places]
    arrays += kept.columns
    names += kept.schema.names
    schema = with_origins((*names,), (*(array.type for array in arrays),), layout.columns)
    return pa.RecordBatch.from_arrays(arrays, names=names), schema, tuple(keys)


def _encode_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.RecordBatchFileWriter(sink, schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _make_run(
    name: str,
    data: pa.Buffer,
    keys: tuple[int, ...],
    rows: SortedRows,
    layout: RunLayout,
    tick: int,
    group: str,
    *,
    level: int = 0,
    origin: tuple[int, str, int] | None = None,
    stands_for: int | None = None,
) -> Run:
    return Run(
        name=name,
        rows=len(rows),
        nbytes=data.size,
        checksum=zlib.crc32(data),
        tick=tick,
        index=None if rows.index is None else rows.index.name,
        base=rows.base,
        shift=rows.shift,
        low=int(rows.slots[0]),
        high=int(rows.slots[-1]),
        spans=dict(rows.spans),
        group=group,
        level=level,
        origin=origin,
        stands_for=stands_for,
        keys=keys,
        heavy=heavy_keys_in(rows.slots, as_one_batch(rows.batch), layout.key),
    )
