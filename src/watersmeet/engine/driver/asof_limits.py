"""What the driver decides for an ASOF join in a tick: which left times are decided by the watermark alone,
which right rows nobody will ask for any more, and whose rows came first.

What still asks is known before the tasks run as the left rows that were retained a tick ago or came in this
tick, less those that the right watermark decides. So a right row that only they asked for goes a tick later.
One that comes below a time up to which right rows were shed answers nobody: a shed one may have been nearer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from watersmeet.engine.messages.work import AsofWork
from watersmeet.event_time import Watermark
from watersmeet.kernel.asof import Reach
from watersmeet.state.manifest import AsofState
from watersmeet.state.runs.run import Run


def asof_work(
    reach: Reach,
    before: AsofState | None,
    left: Watermark,
    right: Watermark,
    new_left: Sequence[Run],
) -> tuple[AsofWork, Watermark, Watermark]:
    """What the tasks are told; below which left times rows are decided, and below which right ones released.

    Args:
        left, right: W of the two times, allowed_lateness taken off.
        new_left: the runs of left rows that came in this tick.
    """
    before = before or AsofState()
    settled = max(right, before.settled)
    decided = reach.decided_below(settled)
    asking = [run.spans[reach.left][0] for run in new_left]
    if before.waiting is not None:
        asking.append(before.waiting)
    least = min(left, max(min(asking), decided)) if asking else left
    least = max(least, before.asked)
    work = AsofWork(
        settled=settled,
        settled_before=before.settled,
        asked=reach.asked_upto(least),
        asked_before=reach.asked_upto(before.asked),
        least=least,
        waiting=before.waiting,
        shed=before.shed,
    )
    return work, decided, max(reach.asked_from(least), before.shed + 1)


def in_order(runs: Sequence[Run]) -> list[Run]:
    """New runs, those whose rows an ASOF join looks for with the number of rows that came before them.

    Within a tick that is the order of the branches of a UNION ALL, in these of their source's partitions by
    name, in these of the ingest tasks, and in these of the rows.
    """
    rows: dict[tuple[int, str, int], int] = defaultdict(int)
    for run in runs:
        if run.origin is not None:
            rows[run.origin] += run.rows
    before, offsets = 0, {}
    for origin in sorted(rows):
        offsets[origin] = before
        before += rows[origin]
    return [
        run if run.origin is None else run.model_copy(update={"offset": offsets[run.origin]}) for run in runs
    ]
