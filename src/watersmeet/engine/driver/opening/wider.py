"""The state of a query that accepts more than it did: what of it stays, and what is known of that no more.

Rows that were released stay away, so limits by which more would be retained now begin anew, and runs of which
rows were released are written once more without them. Rows of which nobody knows whether they had a partner
(`plan.identity.completeness`) are marked, and a side remembers below which times all its rows are such ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.event_time import NEVER, below
from watersmeet.kernel.batches import same_rows, take_rows
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.pieces import whole
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.plan.identity.completeness import Completeness, Missing, Times
from watersmeet.plan.identity.described import Wider
from watersmeet.plan.model.job import QueryPlan
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest, QueryState
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter, read_marks
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.runs.written import sort_rows, write_run
from watersmeet.state.store import Store

_KEPT: tuple[MarkKind, ...] = ("matched", "unknown")
"""The marks of rows that stay. Those that are gone do not."""


def gone_of(state: QueryState) -> dict[tuple[int, str], Times]:
    """Per side and event time, below which its rows were released."""
    return {
        (number, name): _greatest(kept.limits, kept.gone_below)
        for number, node in enumerate(state.nodes)
        for name, kept in node.arrangements.items()
    }


def missing_of(state: QueryState) -> dict[int, Missing]:
    """Per node, which rows were missing of it already."""
    return {number: node.missing for number, node in enumerate(state.nodes)}


def seen_of(state: QueryState) -> Times:
    """Per key of an input the greatest time that its rows had."""
    seen: Times = {}
    for alias, own in state.inputs.items():
        for partition in (partition for branch in own.branches for partition in branch.partitions.values()):
            for column, time in partition.greatest.items():
                key = f"{alias}.{column}"
                seen[key] = max(time, seen.get(key, NEVER))
    return seen


def with_wider(
    manifest: Manifest,
    query: QueryPlan,
    shapes: Sequence[NodeShape],
    wider: Mapping[int, Wider],
    told: Completeness,
    store: Store,
) -> QueryState:
    """The state of a query, as the next tick is to find it. Cost: the rows of sides that keep them longer,
    and times of those of padded sides, in the driver, once."""
    state = manifest.queries[query.name]
    kept_anew = KeptAnew(manifest, store)
    nodes = list(state.nodes)
    for node in query.nodes:
        arrangements = dict(nodes[node.number].arrangements)
        evicted = {key for key, _ in wider[node.number].bounds} if node.number in wider else set()
        for side, shape in zip(node.sides, shapes[node.number].sides, strict=True):
            if side.name not in arrangements:
                continue
            of_side = node.number, side.name
            is_longer = any(side.watermark_key(column) in evicted for column in side.event_times)
            times = told.retained_below.get(of_side, {}) if side.padded else {}
            if is_longer or times:
                kept = kept_anew.side(arrangements[side.name], shape, times, is_longer=is_longer)
                arrangements[side.name] = kept
            if side.padded:
                arrangements[side.name] = unknown_below(arrangements[side.name], told.below.get(of_side, {}))
        nodes[node.number] = nodes[node.number].model_copy(
            update={"arrangements": arrangements, "missing": list(told.missing[node.number])}
        )
    complete_from = _greatest(state.complete_from, told.complete_from)
    return state.model_copy(update={"nodes": nodes, "complete_from": complete_from})


def unknown_below(kept: Arrangement, times: Times) -> Arrangement:
    """Of whose rows below these times, too, nobody knows whether they had a partner."""
    return kept.model_copy(update={"unknown_below": _greatest(kept.unknown_below, times)})


def _greatest(before: Times, now: Times) -> Times:
    return {name: max(before.get(name, NEVER), now.get(name, NEVER)) for name in {**before, **now}}


class KeptAnew:
    """Writes what is known of retained rows, and runs without those that are not."""

    def __init__(self, manifest: Manifest, store: Store) -> None:
        self._store, self._made_in = store, manifest.tick + 1
        self._merged_by_others = {
            name for live in manifest.runs() if live.merged_from for name in live.merged_from.runs
        }

    def side(self, kept: Arrangement, shape: SideShape, times: Times, *, is_longer: bool) -> Arrangement:
        """A side, whose rows below one of the ``times`` are marked. ``is_longer``: it begins without limits,
        and without rows that these, or marks, have taken away."""
        runs, marks = [], MarkWriter()
        for live in kept.runs:
            if is_longer and not live.retained:
                continue
            opened = OpenRun.open(self._store, live.run, shape.layout)
            rows, of_kind = opened.sorted_rows, dict[MarkKind, MarkArray]()
            # others keep what they have: not all that was merged for them is there any more
            own = live.model_copy(update={"merged_from": None} if is_longer else {})
            if is_longer and (live.released or live.run.name in self._merged_by_others):
                there = opened.live(kept.limits, 0, live.run.rows) & ~self._read(live, "gone")
                own, rows, order = self._without_released(live, opened, np.flatnonzero(there), shape)
                of_kind = {kind: self._read(live, kind)[order] for kind in _KEPT if kind in live.marks}
            if times:
                unknown = of_kind["unknown"] if "unknown" in of_kind else self._read(own, "unknown")
                for column, time in times.items():
                    unknown = unknown | below(rows.times(column), time)
                of_kind["unknown"] = unknown
            for kind, of_rows in of_kind.items():
                marks.add(own.run.name, kind, 0, of_rows)
            runs.append(own)
        written = marks.write(self._store, self._made_in)
        for own in runs:
            own.marks = {**own.marks, **written.get(own.run.name, {})}
        if is_longer:
            gone_below = _greatest(kept.limits, kept.gone_below)
            kept = kept.model_copy(update={"limits": {}, "candidates": {}, "gone_below": gone_below})
        return kept.model_copy(update={"runs": runs})

    def _read(self, live: LiveRun, kind: MarkKind) -> MarkArray:
        return read_marks(self._store, kind, live.marks.get(kind, ()), 0, live.run.rows)

    def _without_released(
        self, live: LiveRun, opened: OpenRun, rows: Rows, shape: SideShape
    ) -> tuple[LiveRun, SortedRows, Rows]:
        """A run of these rows of ``live`` alone, and which of its rows they are, in their order there."""
        same_rows(f'what is retained of run "{live.run.name}"', live.retained, len(rows))
        held = opened.sorted_rows
        chosen = take_rows(whole(held.batch), rows)
        left, order = sort_rows(chosen, held.slots[rows], shape.layout, live.run.index)
        run = write_run(
            self._store,
            shape.arrangement,
            left,
            shape.layout,
            tick=live.run.tick,
            made_in=self._made_in,
            level=live.run.level,
            group=live.run.group,
        )
        return LiveRun(run=run), left, rows[order]
