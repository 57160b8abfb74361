"""Windows whose rows come and go, for one hash range of grouping keys: in the tick in which a window changes
its old row is taken back and the new one put out, until it closes.

What is kept is of panes, of which windows consist (`engine.nodes.partial`), and adds up as that of groups
does (`grouped.groups`): so it is exact after deletes, too. A change looks at what is kept of its keys. Panes
that are in no open window are released, as rows are: by a plain limit on their start. Nothing goes out then:
a window that closes stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.summed import PANE, WindowGroupShape
from watersmeet.engine.nodes.grouped.groups import changed_groups, put_out_anew
from watersmeet.engine.tasks.share import Share
from watersmeet.event_time import ENDED, NEVER
from watersmeet.kernel.batches import one_table
from watersmeet.kernel.groups import GROUP
from watersmeet.kernel.times import to_native
from watersmeet.kernel.windows import Numbers, closing, window_times
from watersmeet.names import ours
from watersmeet.spec.model import WINDOW_END, WINDOW_START

_IS_NEW = ours("new")


def window_group_rows(shape: WindowGroupShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The changes of the open windows of the share's hash range."""
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
        starts, ends = window_times(window[firsts], shape.size, shape.slide)
        columns = {
            name: keys.column(column).take(pa.array(of_keys[row[firsts]])) for name, column in shape.keys
        }
        columns |= {
            WINDOW_START: to_native(pa.array(starts), shape.window_type),
            WINDOW_END: to_native(pa.array(ends), shape.window_type),
        }
        was, comes = (_parted(kept, is_new=flag) for flag in (False, True))
        yield from put_out_anew(shape, was, comes, columns, len(firsts))


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
