"""Windows whose rows come and go, for one hash range of grouping keys: in the tick in which a window changes
its old row is taken back and the new one put out, until it closes. Or, if results are to be final, a window's
row goes out once: in the tick that closes it, made of what is there then.

What is kept is of panes, of which windows consist (`engine.nodes.partial`), and adds up as that of groups
does (`grouped.groups`): so it is exact after deletes, too. A change looks at what is kept of its keys. Panes
that are in no open window are released, as rows are: by a plain limit on their start.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.summed import PANE, WindowGroupShape
from watersmeet.engine.nodes.grouped.groups import added_groups, changed_groups, put_out_anew, put_out_once
from watersmeet.engine.nodes.grouped.sessions import session_group_rows
from watersmeet.engine.nodes.windows import in_parts, last_end, of_piece, passed
from watersmeet.engine.tasks.memory import check_held
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import ENDED, NEVER, below
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import one_batch, one_table, take_rows
from watersmeet.kernel.groups import GROUP
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.kernel.times import to_native
from watersmeet.kernel.windows import Numbers, closing, window_times
from watersmeet.names import ours
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind

_IS_NEW = ours("new")


def window_group_rows(shape: WindowGroupShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The changes of the open windows of the share's hash range; or the rows of those that close."""
    if shape.kind is WindowKind.SESSION:
        return session_group_rows(shape, share)
    if shape.is_final:
        return added_groups(shape, share, partial(_closed, shape), partial(_panes, shape))
    return changed_groups(shape, share, partial(_of_windows, shape), partial(_panes, shape))


def _panes(shape: WindowGroupShape, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    times = rows.column(shape.time).to_numpy(zero_copy_only=True)
    starts, _ = window_times(np.floor_divide(times, np.int64(shape.pane)), shape.pane, shape.pane)
    return {PANE: pa.array(starts)}


def _of_windows(
    shape: WindowGroupShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The rows of windows that some keys take back and put out; see `grouped.groups.OfGroups`."""
    rows = one_table(
        [_told(table, is_new=False) for table in old] + [_told(table, is_new=True) for table in own]
    )
    of_keys, is_new = (rows.column(name).to_numpy() for name in (GROUP, _IS_NEW))
    for row, window in closing(rows.column(PANE).to_numpy(), shape.size, shape.slide, NEVER, ENDED):
        firsts, numbers = _numbered(of_keys[row], window)
        changed = np.zeros(len(firsts), dtype=np.bool_)
        changed[numbers[is_new[row]]] = True
        chosen = changed[numbers]
        if not chosen.any():
            continue
        places = np.cumsum(changed) - 1
        kept = rows.take(pa.array(row[chosen]))
        kept = kept.set_column(kept.schema.get_field_index(GROUP), GROUP, pa.array(places[numbers[chosen]]))
        firsts = firsts[changed]
        columns = _columns(shape, keys, of_keys[row[firsts]], window[firsts])
        was, comes = (_parted(kept, is_new=flag) for flag in (False, True))
        yield from put_out_anew(shape, was, comes, columns, len(firsts))


def _columns(
    shape: WindowGroupShape, rows: pa.RecordBatch, chosen: Rows, windows: Numbers
) -> dict[str, pa.Array]:
    """What is not computed, of pairs of a group and a window: the group's columns are a chosen row's."""
    starts, ends = window_times(windows, shape.size, shape.slide)
    return {
        **{name: rows.column(column).take(pa.array(chosen)) for name, column in shape.keys},
        WINDOW_START: to_native(pa.array(starts), shape.window_type),
        WINDOW_END: to_native(pa.array(ends), shape.window_type),
    }


def _closed(shape: WindowGroupShape, kept: SideSlice, new: SortedRows | None) -> Iterator[pa.RecordBatch]:
    """The rows of the windows that close in the tick."""
    before, now = (limits.get(PANE, NEVER) for limits in (kept.work.old_limits, kept.work.new_limits))
    since, until = last_end(shape, before), last_end(shape, now)
    chosen = [of_piece(piece, np.sort(passed(piece, PANE, before, until))) for piece in kept.old]
    if new is not None:
        starts = new.batch.column(PANE).to_numpy(zero_copy_only=False)
        chosen.append((new.batch, new.slots, np.flatnonzero(below(starts, until))))
    for part in in_parts([choice for choice in chosen if len(choice[2])], shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_held(f'the state of the windows of "{shape.query}" that close in a tick', batches, shape.memory)
        batch = one_batch(batches)
        of_keys = group_numbers(batch, shape.looked_up_by)
        panes = batch.column(PANE).to_numpy(zero_copy_only=False)
        for row, window in closing(panes, shape.size, shape.slide, since, until):
            firsts, numbers = _numbered(of_keys[row], window)
            rows = pa.Table.from_batches([take_rows(batch, row)]).append_column(GROUP, pa.array(numbers))
            columns = _columns(shape, batch, row[firsts], window[firsts])
            yield from put_out_once(shape, rows, columns, len(firsts))


def _told(rows: pa.Table, *, is_new: bool) -> pa.Table:
    return rows.append_column(_IS_NEW, pa.array(np.full(rows.num_rows, is_new)))


def _parted(rows: pa.Table, *, is_new: bool) -> list[pa.Table]:
    """Kept rows of before the tick, or of the tick; none of none."""
    own = rows.filter(pa.array(rows.column(_IS_NEW).to_numpy() == is_new)).drop_columns([_IS_NEW])
    return [own] if own.num_rows else []


def _numbered(keys: Numbers, windows: Numbers) -> tuple[Numbers, Numbers]:
    """(a pair of each different key and window, the number of each pair's)."""
    _, of_window = np.unique(windows, return_inverse=True)
    together = keys * np.int64(int(of_window.max(initial=0)) + 1) + of_window
    _, firsts, numbers = np.unique(together, return_index=True, return_inverse=True)
    return firsts, numbers
