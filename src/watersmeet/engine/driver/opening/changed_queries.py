"""Queries that come to a job with state, or go from it.

A query that goes takes its state along. One that comes begins with the next tick: rows from then on meet each
other, and those that another query retains which keeps the same rows (`plan.shared`); of a table these are
all that it has. Rows from before never meet each other in it, are never padded or put out by ANTI, and are in
no window. Of sources that come with it (`opening.changed_sources`) it has all rows, and of tables that are
read as a whole. A query that has changed goes, and comes anew, unless it needs no more than it kept (see
`plan.identity.described`): then it goes on with that. So does one that only accepts more pairs, and says
from which times on it has all of them (`opening.wider`).

A query of changes needs all rows of its tables: it is given those that others keep (`opening.contents`).

A query that went may come back: its sink is known to the manifest as long as the job lives.

What others have stored is not touched; marks and runs that are stored count once a tick is committed. A
tick that was interrupted is repeated if the same queries began it; else it is as with other changed settings:
none of it may be out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from watersmeet.engine.driver.opening.changed_sources import goes_on, said_of_sources
from watersmeet.engine.driver.opening.contents import Contents, contents_of
from watersmeet.engine.driver.opening.held_anew import with_held_anew, written_anew
from watersmeet.engine.driver.opening.in_state_order import in_state_order
from watersmeet.engine.driver.opening.moved import with_moved
from watersmeet.engine.driver.opening.moved_paths import at_new_paths, changed_paths
from watersmeet.engine.driver.opening.wider import gone_of, missing_of, seen_of, with_wider
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.errors import StateError
from watersmeet.kernel.batches import same_rows, take_rows
from watersmeet.kernel.pieces import whole
from watersmeet.names import called, input_of
from watersmeet.plan.identity.completeness import Completeness, completeness, said_of
from watersmeet.plan.identity.described import (
    Wider,
    described,
    differences,
    hindrance,
    order_hindrance,
    wider_joins,
)
from watersmeet.plan.identity.origins import side_origins
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import KeptBy, SidePlan
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest, NodeState, QueryState
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.columns import lacking
from watersmeet.state.runs.opened import OpenRun, schema_of
from watersmeet.state.runs.run import Run
from watersmeet.state.store import Store

Shapes = Mapping[str, Sequence[NodeShape]]
"""Per query."""


@dataclass
class Change:
    """How the queries of a job differ from those of its state; names, in the job's order."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    goes_on: list[str] = field(default_factory=list)
    """Of the changed ones, those that keep their state."""
    how: dict[str, list[str]] = field(default_factory=dict)
    """Of the changed ones, in what they differ; nothing where that is not known."""
    why_not: dict[str, str] = field(default_factory=dict)
    """Of those, why they do not go on with their state; empty for those that do."""
    wider: dict[str, tuple[Mapping[int, Wider], Completeness]] = field(default_factory=dict)
    """Of those that do what they accept that they did not accept before, per node, and what that means."""

    @classmethod
    def of(cls, manifest: Manifest, plan: JobPlan) -> Change:
        manifest = at_new_paths(manifest, plan)
        own = cls(removed=[name for name in manifest.fingerprints if name not in _fingerprints(plan)])
        for name, fingerprint in _fingerprints(plan).items():
            if name not in manifest.fingerprints:
                own.added.append(name)
            elif manifest.fingerprints[name] != fingerprint:
                own.changed.append(name)
        if own.changed:
            own._compare(manifest, plan)
        return own

    def _compare(self, manifest: Manifest, plan: JobPlan) -> None:
        """A query whose rows another takes, or that takes some of another, does not go on: what it keeps is
        not its own matter."""
        bound = {name for name in self.changed if _is_bound(manifest, name)}
        for query in plan.apart or plan.queries:
            if query.name in self.changed and query.name in manifest.described:
                ordered = in_state_order(manifest, query)
                old, new = manifest.described[query.name], described(ordered or query)
                self.how[query.name] = differences(old, new)
                shared = "it shares rows with another query" if query.name in bound else ""
                why_not = (
                    order_hindrance(old, new)
                    or hindrance(old, new)
                    or shared
                    or self._widen(manifest, ordered or query)
                )
                if ordered is not None and not why_not:
                    why_not = "its joins are in another order"  # nobody asked `as_kept` for the plan
                self.why_not[query.name] = why_not
                if not why_not:
                    self.goes_on.append(query.name)

    def _widen(self, manifest: Manifest, query: QueryPlan) -> str:
        """Work out what the query accepts that it did not; why it cannot go on by that, if so."""
        wider = wider_joins(manifest.described[query.name], query)
        if not wider:
            return ""
        state = manifest.queries[query.name]
        told = completeness(query, wider, gone_of(state), seen_of(state), missing_of(state))
        if told.problems:
            return "; ".join(dict.fromkeys(told.problems))
        self.wider[query.name] = wider, told
        return ""

    @property
    def begins(self) -> list[str]:
        """The queries that begin with the next tick."""
        return [*self.added, *(name for name in self.changed if name not in self.goes_on)]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        parts = [(self.changed, "changed"), (self.added, "is new"), (self.removed, "is not in the job")]
        texts = [f'"{name}" {what}' for names, what in parts for name in names if name not in self.how]
        return "; ".join([*texts, *(f'in "{name}" {"; ".join(how)}' for name, how in self.how.items())])

    @property
    def way_on(self) -> list[str]:
        """What --change-queries would make of each changed query."""
        return [
            f'"{name}" then keeps its rows, {self._what_of_them(name)}'
            if name in self.goes_on
            else f'"{name}" then starts without its stored rows'
            for name in self.changed
        ]

    def _what_of_them(self, name: str) -> str:
        return (
            "but some that it would need may be gone" if name in self.wider else "which are all that it needs"
        )

    def from_when(self, plan: JobPlan, name: str) -> str:
        """Of a query that goes on and accepts more: what of its results may be missing, and what is not put
        out."""
        if name not in self.wider:
            return ""
        (query,) = (query for query in plan.queries if query.name == name)
        _, told = self.wider[name]
        return said_of(query, told)


@dataclass(frozen=True)
class Changed:
    """The state as it is for a changed job, what there is to say of it, and what tables hold for queries that
    come: to be given to them in the next tick; ``begins``: these queries."""

    manifest: Manifest
    said: list[str]
    contents: list[Contents]
    begins: frozenset[str] = frozenset()


def with_changed(manifest: Manifest, plan: JobPlan, shapes: Shapes, store: Store, *, zoned: bool) -> Changed:
    """The state for the queries of ``plan``. ``zoned``: TIMESTAMPs carry UTC.

    Raises:
        StateError: a query cannot come without rows from before.
    """
    of_sources, paths = said_of_sources(manifest, plan), changed_paths(manifest, plan)
    of_sources += [f'the path of "{name}" was "{paths[name]}"' for name in plan.moved & paths.keys()]
    change = Change.of(manifest, plan)
    stay = [query for query in plan.queries if query.name not in change.begins]
    manifest, brought = with_moved(manifest, stay)
    manifest = with_held_anew(manifest, brought, shapes, store)
    if not change:
        return Changed(manifest, of_sources, [])
    queries = {
        query.name: with_wider(manifest, query, shapes[query.name], *change.wider[query.name], store)
        if query.name in change.wider
        else manifest.queries[query.name]
        for query in stay
    }
    said = of_sources + [
        f"{called(name)} keeps its rows: {'; '.join(change.how[name])}; results so far stay, and a row"
        f" that matched under the old condition counts as matched{change.from_when(plan, name)}"
        for name in change.goes_on
    ]
    said += [
        f"{called(name)} starts over: {'; '.join(change.how[name])}; {change.why_not[name]}"
        for name in change.begins
        if change.how.get(name)
    ]
    said += [f"{called(name)} is no longer in the job; its state is deleted" for name in change.removed]
    said += [
        f"{called(name)} now stores the rows of {side} itself; another query stored them before"
        for name, _, side, _ in brought
        if input_of(side) == side
    ]
    problems: list[str] = []
    coming = Coming(manifest, stay, goes_on(manifest, plan), shapes, store, zoned=zoned)
    for query in plan.queries:
        if query.name in change.begins:
            queries[query.name] = state = coming.state(query, shapes[query.name])
            state.account |= {
                own: dict(queries[maker].account[there])
                for own, maker, there in query.inputs_elsewhere
                if there in queries[maker].account
            }
            said += coming.said
            problems += coming.problems
    if problems:
        raise StateError(
            "; ".join(problems),
            code="changed-query",
            hint="run the new query in a job of its own, which reads its sources from the start; or"
            " first run this job without it, with a CREATE INDEX on the table or a SELECT * FROM it to"
            " store its rows",
        )
    coming.write_marks()
    changed = manifest.model_copy(
        update={
            "queries": {query.name: queries[query.name] for query in plan.queries},
            **known_by(plan),
        }
    )
    return Changed(changed, said, coming.contents, frozenset(change.begins))


class Coming:
    """Makes the states with which queries begin, from those of the queries that ``stay``.

    ``read_before``: the sources of which rows were read already. ``said``, ``problems``: of the query that
    was asked for last; ``contents``: what tables hold, for all of them.
    """

    def __init__(
        self,
        manifest: Manifest,
        stay: Sequence[QueryPlan],
        read_before: Collection[str],
        shapes: Shapes,
        store: Store,
        *,
        zoned: bool,
    ) -> None:
        self._manifest = manifest
        self._stay = stay
        self._read_before = read_before
        self._shapes = shapes
        self._store, self._zoned = store, zoned
        self._merged_by_others = {
            name for live in manifest.runs() if live.merged_from for name in live.merged_from.runs
        }
        self._settled: list[LiveRun] = []
        self.said: list[str] = []
        self.problems: list[str] = []
        self.contents: list[Contents] = []

    def state(self, query: QueryPlan, shapes: Sequence[NodeShape]) -> QueryState:
        """That of a query which has seen nothing but what others retain."""
        self.said, self.problems = [], []
        missed = [side for side in query.sides if self._has_missed(side)]
        nodes = [NodeState(arrangements={s.name: Arrangement() for s in shape.sides}) for shape in shapes]
        state = QueryState(nodes=nodes)
        for node in query.nodes:
            for side, shape in zip(node.sides, shapes[node.number].sides, strict=True):
                if side.feed is not None or side.copy_of is not None:
                    continue
                if side.kept_by is not None:
                    self._begin_beside(query, side, side.kept_by)
                    continue
                if node.changes and side in missed:
                    (table,) = (own for own in shapes[node.number].stored if own.name == side.name)
                    self._begin_with_contents(query, node.number, side, shape, table, state)
                elif side.sources or not node.changes:
                    self._begin(query, node.number, side, shape, state)
        return state

    def _begin_beside(self, query: QueryPlan, side: SidePlan, kept_by: KeptBy) -> None:
        """Of a query that looks the rows up where another one keeps them."""
        if all(kept_by.query != other.name for other in self._stay):
            return  # that one begins, too
        rows = self._manifest.queries[kept_by.query].nodes[kept_by.node].arrangements.get(kept_by.side)
        count = 0 if rows is None else rows.retained
        self.said.append(
            f"{called(query.name)} starts with all rows of {side.title} ({count} stored) and looks them"
            f" up in the state of {called(kept_by.query)}"
        )

    def _begin_with_contents(
        self,
        query: QueryPlan,
        node: int,
        side: SidePlan,
        shape: SideShape,
        table: SideShape,
        state: QueryState,
    ) -> None:
        """Of a query of changes, which needs all rows; ``table``: how its node stores them."""
        contents: Contents | str = "the state stores all rows of tables only, not of streams"
        if all(branch.source.is_table for _, branch in side.sources):
            contents = contents_of(
                side,
                shape,
                table,
                self._stay,
                self._shapes,
                self._manifest,
                self._store,
                zone=query.options.time_zone,
                zoned=self._zoned,
            )
        if isinstance(contents, str):
            self.problems.append(
                f"{called(query.name)} cannot be added to a job with state: its rows can be retracted,"
                f' so it needs all rows of "{side.title}", and the job has already read some:'
                f" {contents}"
            )
            return
        self.contents.append(contents)
        state.nodes[node].arrangements[side.name] = contents.deletes
        self.said.append(f"{called(query.name)} starts with all {contents.rows} rows of {side.title}")

    def _begin(
        self, query: QueryPlan, node: int, side: SidePlan, shape: SideShape, state: QueryState
    ) -> None:
        other = None if side.stages else next(self.donors(side), None)
        rows, why = Arrangement(), "no other query stores them in the form it needs"
        if other is not None:
            name, _, own = other
            before = self._manifest.queries[name]
            state.inputs[side.name] = deepcopy(before.inputs[own.name])
            for column in side.event_times:
                late = before.late_below.get(own.watermark_key(column))
                if late is not None:
                    state.late_below[side.watermark_key(column)] = late
            if shape.shared is not None and shape.shared == self._shared(*other):
                rows, why = self._taken(self._kept_by(*other), shape)
        state.nodes[node].arrangements[side.name] = rows
        state.account[side.name] = {"in": rows.retained}
        if not self._has_missed(side) and not side.stages:
            self.said.append(f'query "{query.name}" starts with all rows of {side.title}')
            return
        if why and any(branch.source.is_table for _, branch in side.sources):
            self.problems.append(
                f'query "{query.name}" cannot be added to a job with state: the rows of table'
                f' "{side.title}" are not available to it, because {why}'
            )
        with_rows = f"with {rows.retained} retained rows of {side.title}"
        without = f"without earlier rows of {side.title}: {why}"
        self.said.append(f'query "{query.name}" starts {without if why else with_rows}')

    def _has_missed(self, side: SidePlan) -> bool:
        """Whether rows of it may have been read before the query came."""
        return any(
            not branch.source.compared and branch.source.name in self._read_before
            for _, branch in side.sources
        )

    def donors(self, side: SidePlan) -> Iterator[tuple[str, int, SidePlan]]:
        """Yield inputs of queries that stay and have the side's watermarks, the best ones first.

        Each is a query, the number of its node and the input. Inputs that share the side's rows come before
        all others, and those that retain more rows before those that retain fewer.
        """
        asked = _times_of(side)
        candidates = [
            (query.name, node.number, own)
            for query in self._stay
            for node in query.nodes
            for own in node.sides
            if own.feed is None and not own.stages and own.copy_of is None and _times_of(own) == asked
        ]
        yield from sorted(
            candidates,
            key=lambda other: (
                f"{other[0]}/{other[2].name}" not in side.sharers,
                -self._kept_by(*other).retained,
            ),
        )

    def _kept_by(self, name: str, node: int, side: SidePlan) -> Arrangement:
        return self._manifest.queries[name].nodes[node].arrangements.get(side.name, Arrangement())

    def _shared(self, query: str, number: int, side: SidePlan) -> SideShape | None:
        """What a side has its runs written with, if it is not alone: of a type that its engine made, too."""
        (shape,) = (s for s in self._shapes[query][number].sides if s.name == side.name)
        return shape.shared

    def _taken(self, other: Arrangement, shape: SideShape) -> tuple[Arrangement, str]:
        """The rows that another retains, none of which is to be padded; and why there are none.

        The other's limits may be above those of the query, which are by its own bounds: by them rows would be
        gone that come from now on. So it begins without any, and has runs of its own instead of those of
        which the other has released rows, and of those that are to be taken over with such ones.
        """
        for live in other.runs:
            missing = lacking(schema_of(self._store, live.run), shape.layout.columns)
            if missing:
                return Arrangement(), f"the stored rows lack {', '.join(c.text for c in missing)}"
        runs = [
            LiveRun(run=self._retained(live, other, shape) if self._is_copied(live) else live.run)
            for live in other.runs
            if live.retained
        ]
        if shape.padded:
            self._settled += runs
        update = {"runs": runs, "limits": {}, "candidates": {}, "unknown_below": {}, "gone_below": {}}
        return other.model_copy(update=update), ""

    def _is_copied(self, live: LiveRun) -> bool:
        return bool(live.released) or live.run.name in self._merged_by_others

    def _retained(self, live: LiveRun, other: Arrangement, shape: SideShape) -> Run:
        """A run of those rows alone that the other retains."""
        opened = OpenRun.open(self._store, live.run, shape.layout)
        rows = np.flatnonzero(opened.live(other.limits, 0, live.run.rows))
        same_rows(f'what is retained of run "{live.run.name}"', live.retained, len(rows))
        held = opened.sorted_rows
        chosen, slots = take_rows(whole(held.batch), rows), held.slots[rows]
        made_in = self._manifest.tick + 1
        return written_anew(live.run, chosen, slots, shape, self._store, made_in, live.run.index)

    def write_marks(self) -> None:
        """Have all rows of padded sides count as matched."""
        marks = MarkWriter()
        for name, rows in {live.run.name: live.run.rows for live in self._settled}.items():
            marks.add(name, "matched", 0, np.ones(rows, dtype=np.bool_))
        written = marks.write(self._store, self._manifest.tick + 1)
        for live in self._settled:
            live.marks = written[live.run.name]


def _times_of(side: SidePlan) -> object:
    """What watermarks of an input are made by."""
    origins = side_origins(side)
    return (
        [(branch.source.name, branch.lags) for _, branch in side.sources],
        [(column, origins[column].digest) for column in side.event_times],
        bool(side.stages) or side.copy_of,
    )


def known_by(plan: JobPlan) -> dict[str, Any]:
    """What a manifest knows the queries by."""
    own = {query.name: described(query) for query in plan.apart or plan.queries}
    return {"fingerprints": _fingerprints(plan), "described": own}


def _is_bound(manifest: Manifest, name: str) -> bool:
    """Whether a query takes rows of another one, or another one takes its."""
    return any(
        own != there and name in (own, there)
        for own, query in manifest.queries.items()
        for node in query.nodes
        for there in [
            *([node.elsewhere.query] if node.elsewhere else []),
            *(kept.query for kept in node.kept_by.values()),
        ]
    )


def _fingerprints(plan: JobPlan) -> dict[str, str]:
    return {query.name: query.fingerprint for query in plan.queries}
