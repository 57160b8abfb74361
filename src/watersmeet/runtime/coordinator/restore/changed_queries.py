"""Decide what becomes of stored state when queries or sources of a job change.

The job resumes a source at its offsets if the source has its name and reads from the same place. It reads a
new source, or one that reads from another place than before, as a new job does; so is one that went and comes
back. A query's fingerprint has the paths of its sources as written: where that is all that differs for
sources of ``JobPlan.moved``, the query is the same one.

A query that goes takes its state along. One that comes begins with the next tick (`restore.new_queries`). A
query that has changed resumes with its rows or restarts as one that comes, by the `Decision` of
`plan.query_evolution`. If it resumes and accepts more pairs, the run says from which times on it has all of
them. A query that went may come back: its sink is known to the manifest as long as the job lives.

What others have stored is not touched; marks and runs that are stored count once a tick is committed. A
tick that was interrupted is repeated if the same queries began it; else it is as with other changed settings:
none of it may be out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from watersmeet.errors import StateError
from watersmeet.event_time import NEVER
from watersmeet.names import format_query_name, input_of
from watersmeet.plan.identity.completeness import (
    Completeness,
    Missing,
    Times,
    completeness,
    format_completeness,
)
from watersmeet.plan.identity.fingerprint import fingerprint_of
from watersmeet.plan.identity.source_location import place_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.query_evolution import (
    ChangeKind,
    Decision,
    Judgement,
    Wider,
    describe_query,
    differences,
    judge,
    wider_joins,
)
from watersmeet.runtime.coordinator.restore.join_order import restore_order
from watersmeet.runtime.coordinator.restore.new_queries import Contents, NewQueries
from watersmeet.runtime.coordinator.restore.state_transfer import (
    RunRewriter,
    Shapes,
    greatest_times,
    rekey_runs,
    transfer_state,
)
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.manifest import Arrangement, Manifest, QueryState
from watersmeet.state.runs.layout import Run, missing_columns
from watersmeet.state.runs.reader import schema_of
from watersmeet.state.store import Store


def goes_on(manifest: Manifest, plan: JobPlan) -> frozenset[str]:
    """Return the sources that the job has read before and continues to read."""
    moved = plan.moved & changed_paths(manifest, plan).keys()
    return frozenset(
        source.name
        for source in plan.sources
        if source.name in manifest.sources
        and (
            source.name in moved
            or manifest.places.get(source.name) in (None, place_of(source))  # None: nobody wrote it down
        )
    )


def are_others(manifest: Manifest, plan: JobPlan) -> bool:
    """Return True if the job's sources differ from those of the state, or have another order."""
    names = [source.name for source in plan.sources]
    return manifest.sources != names or len(goes_on(manifest, plan)) < len(names)


def describe_source_changes(manifest: Manifest, plan: JobPlan) -> list[str]:
    """Describe the differences between the job's sources and those of the state."""
    names, stay = [source.name for source in plan.sources], goes_on(manifest, plan)
    said = [f'source "{name}" is no longer read' for name in manifest.sources if name not in names]
    for name in names:
        if name not in stay:
            where = (
                "reads from another place than before" if name in manifest.sources else "is new to the job"
            )
            said.append(f'source "{name}" {where}: the job reads it as a new job would')
    if not said and are_others(manifest, plan):
        said = [f"the sources are in another order: {', '.join(names)}"]
    return said


def path_before(manifest: Manifest, source: Source) -> str | None:
    """Return the path of a source as it was written in the last run; None: the state does not have it."""
    if manifest.places.get(source.name) == place_of(source):
        return path_of(source.options)
    for query in manifest.described.values():
        reads = query.get("reads", {}).get(source.name, {})
        if "path" in reads:
            return str(reads["path"])
    return None


def changed_paths(manifest: Manifest, plan: JobPlan) -> dict[str, str]:
    """Return, per source of local files that the state knows by another path, that path as it was written."""
    paths = {
        source.name: path_before(manifest, source)
        for source in plan.sources
        if source.traits.files and source.name in manifest.places
    }
    written = {source.name: path_of(source.options) for source in plan.sources}
    return {
        name: path
        for name, path in paths.items()
        if path is not None and path != written[name] and None not in map(local_path, (path, written[name]))
    }


def at_new_paths(manifest: Manifest, plan: JobPlan) -> Manifest:
    """Return the manifest with its queries as they are with the paths of today for ``plan.moved``."""
    paths = {name: path for name, path in changed_paths(manifest, plan).items() if name in plan.moved}
    if not paths:
        return manifest
    fingerprints, descriptions = dict(manifest.fingerprints), dict(manifest.described)
    for query in plan.apart or plan.queries:
        for one in (query, restore_order(manifest, query)) if query.name in fingerprints else ():
            if one and fingerprint_of(one.nodes, one.options, paths) == fingerprints[query.name]:
                fingerprints[query.name], descriptions[query.name] = one.fingerprint, describe_query(one)
                break
    return manifest.model_copy(update={"fingerprints": fingerprints, "described": descriptions})


_AS_IT_WAS = "restore the old query, or use a new checkpoint directory (--checkpoint DIR)"


@dataclass(frozen=True)
class ChangedQuery:
    """A query that differs from the stored one.

    Attributes:
        how: Differences, for users; empty if they are unknown.
        wider: Of a query that resumes: per node the pairs that it accepts and did not accept before, and
            from when on its results are complete.
    """

    judgement: Judgement
    how: Sequence[str] = ()
    wider: tuple[Mapping[int, Wider], Completeness] | None = None

    @property
    def resumes(self) -> bool:
        """Return True if the query keeps its stored rows."""
        return self.judgement.kind.decision is not Decision.RESTART

    @property
    def outcome(self) -> str:
        """Effect of --change-queries on the rows of the query."""
        if not self.resumes:
            return "; ".join(filter(None, ["then starts without its stored rows", self.judgement.reason]))
        rest = "but some that it would need may be gone" if self.wider else "which are all that it needs"
        return f"then keeps its rows, {rest}"


@dataclass(frozen=True)
class Change:
    """Differences between the queries of a job and those of its state; names in job order."""

    added: Sequence[str]
    changed: Mapping[str, ChangedQuery]
    removed: Sequence[str]

    @classmethod
    def of(cls, manifest: Manifest, plan: JobPlan) -> Change:
        """Compare the queries of a plan with those of the state."""
        manifest, queries = at_new_paths(manifest, plan), {query.name: query for query in plan.queries}
        apart = {query.name: query for query in plan.apart}
        stored = manifest.fingerprints
        return cls(
            [name for name in queries if name not in stored],
            {
                name: _compare(manifest, apart.get(name, query))
                for name, query in queries.items()
                if stored.get(name, query.fingerprint) != query.fingerprint
            },
            [name for name in stored if name not in queries],
        )

    @property
    def begins(self) -> list[str]:
        """The queries that begin with the next tick."""
        return [*self.added, *(name for name, own in self.changed.items() if not own.resumes)]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        unknown = [name for name, own in self.changed.items() if not own.how]
        parts = [(unknown, "changed"), (self.added, "is new"), (self.removed, "is not in the job")]
        texts = [f'"{name}" {what}' for names, what in parts for name in names]
        return "; ".join(
            [*texts, *(f'in "{name}" {"; ".join(own.how)}' for name, own in self.changed.items() if own.how)]
        )

    def from_when(self, plan: JobPlan, name: str) -> str:
        """Describe the results of a widened query that may be missing or are not emitted.

        Returns:
            The text; empty if the query does not accept more rows than before.
        """
        own = self.changed.get(name)
        if own is None or own.wider is None:
            return ""
        return format_completeness(next(query for query in plan.queries if query.name == name), own.wider[1])


def _compare(manifest: Manifest, query: QueryPlan) -> ChangedQuery:
    """Judge a query whose fingerprint is not that of the state."""
    old = manifest.described.get(query.name)
    if old is None:
        return ChangedQuery(Judgement(ChangeKind.OTHER))
    ordered = restore_order(manifest, query)
    own = ordered or query
    new = describe_query(own)
    judged, how, wider = judge(old, own, new), differences(old, new), None
    if judged.kind.decision is Decision.RESTART:
        return ChangedQuery(judged, how)
    if _shares_rows(manifest, query.name):  # what it keeps is not its own matter
        judged = Judgement(ChangeKind.SHARED, "it shares rows with another query")
    elif judged.kind is ChangeKind.WIDER:
        state, joins = manifest.queries[query.name], wider_joins(old, own)
        told = completeness(
            own, joins, _released_times(state), _greatest_seen_times(state), _missing_rows(state)
        )
        wider = joins, told
        if told.problems:
            judged = Judgement(ChangeKind.UNTIMED, "; ".join(dict.fromkeys(told.problems)))
    if ordered is not None and not judged.reason:  # nobody asked `plan_for_state` for the plan
        judged = Judgement(ChangeKind.OTHER_ORDER, "its joins are in another order")
    return ChangedQuery(judged, how, None if judged.reason else wider)


def _shares_rows(manifest: Manifest, name: str) -> bool:
    """Return True if a query takes rows of another one, or another one takes its."""
    return any(
        own != there and name in (own, there)
        for own, query in manifest.queries.items()
        for node in query.nodes
        for there in node.producers
    )


def check_same_job(manifest: Manifest, plan: JobPlan, *, may_change: bool = False) -> None:
    """Check that state and plan belong together.

    Args:
        may_change: queries may come, go and change, and sources with them.

    Raises:
        StateError: the state is of other queries or other sources.
    """
    change, paths = Change.of(manifest, plan), changed_paths(manifest, plan)
    way_on = "; ".join(f'"{name}" {own.outcome}' for name, own in change.changed.items())
    if change and paths.keys() & plan.moved and may_change:
        raise StateError(
            f"a path and a query changed at once: {change}",
            code="changed-query",
            hint="run the old query with --accept-moved first, then change it with --change-queries",
        )
    if change and not may_change:
        stored, own = (", ".join(f'"{name}"' for name in names) for names in (change.removed, change.added))
        if change.removed and len(change.removed) == len(manifest.fingerprints):
            raise StateError(
                f"the checkpoint belongs to other queries: it stores {stored}, but this job has {own}",
                code="changed-query",
                hint="if they are another job's, use this job's own checkpoint directory (--checkpoint DIR);"
                f" or run with --change-queries, which drops the state of {stored}",
            )
        same = "".join(f" --accept-moved {quote(name)}" for name in sorted(paths.keys() - plan.moved))
        raise StateError(
            f"the job differs from the stored state: {change}",
            code="changed-query",
            hint=(f"if only the path of the same files changed, run with{same}. Otherwise " if same else "")
            + f"restore the old query, or run with --change-queries{f' ({way_on})' if way_on else ''}, or"
            " with a new checkpoint directory (--checkpoint DIR)",
        )
    sources = [source.name for source in plan.sources]
    if manifest.sources != sources and not may_change:
        raise StateError(
            f"the job reads the sources {', '.join(sources)}, but its state belongs to"
            f" {', '.join(manifest.sources)}, in this order",
            code="changed-sources",
            hint="restore the sources and their order, or run with --change-queries, or with a new checkpoint"
            " directory (--checkpoint DIR)",
        )


def check_columns(manifest: Manifest, shapes: Mapping[str, Sequence[NodeShape]], store: Store) -> None:
    """Check that the stored rows have what the query needs of them.

    They may have more: in changelog mode a row is then taken away by one that is equal to it in what the
    query needs, and which of those is all the same; so what it did not need in the last tick says nothing.

    Raises:
        StateError: a column is not in some of the stored rows, or is made of something else there.
    """
    for shape, side, kept, run in _stored_runs(manifest, shapes):
        schema = schema_of(store, run)
        missing = missing_columns(schema, side.layout.columns)
        if kept.columns and not missing:
            missing = [column for column in side.layout.columns if column.origin not in kept.columns]
        rows = f'retained rows of "{shape.query}" ({side.name}, as of tick {run.tick})'
        if missing:
            names = ", ".join(column.text for column in missing)
            raise StateError(
                f"the {rows} were stored for another query: they lack {names}, or have it as another"
                " expression or type",
                code="changed-query",
                hint=f"remove these columns from the query until the rows are released, or {_AS_IT_WAS}",
            )
        for key in side.layout.found_by:
            if key.prefixes not in schema.names:
                raise StateError(
                    f"the {rows} were stored for another query: they are not indexed by"
                    f" {', '.join(key.columns)}",
                    code="changed-query",
                    hint=_AS_IT_WAS,
                )


def _stored_runs(
    manifest: Manifest, shapes: Mapping[str, Sequence[NodeShape]]
) -> Iterator[tuple[NodeShape, SideShape, Arrangement, Run]]:
    """Yield all runs of sides, with what they are of."""
    for name, query in manifest.queries.items():
        for shape, state in zip(shapes[name], query.nodes, strict=True):
            for side in shape.stored:
                kept = state.arrangements.get(side.name, Arrangement())
                for live in kept.runs:
                    yield shape, side, kept, live.run


@dataclass(frozen=True)
class Changed:
    """The state for a job whose queries changed.

    Attributes:
        said: Messages on the changes.
        contents: Contents of tables for queries that begin, which they get in the next tick.
        begins: The queries that begin.
    """

    manifest: Manifest
    said: list[str]
    contents: list[Contents]
    begins: frozenset[str] = frozenset()


def with_changed(manifest: Manifest, plan: JobPlan, shapes: Shapes, store: Store, *, zoned: bool) -> Changed:
    """Return the state for the queries of ``plan``. ``zoned``: TIMESTAMPs carry UTC.

    Raises:
        StateError: a query cannot come without rows from before.
    """
    of_sources, paths = describe_source_changes(manifest, plan), changed_paths(manifest, plan)
    of_sources += [f'the path of "{name}" was "{paths[name]}"' for name in plan.moved & paths.keys()]
    change = Change.of(manifest, plan)
    stay = [query for query in plan.queries if query.name not in change.begins]
    manifest, brought = transfer_state(manifest, stay)
    manifest = rekey_runs(manifest, brought, shapes, store)
    if not change:
        return Changed(manifest, of_sources, [])
    queries, said = dict(manifest.queries), list(of_sources)
    for query in stay:
        own = change.changed.get(query.name)
        if own is not None and own.wider is not None:
            queries[query.name] = _widen(manifest, query, shapes[query.name], *own.wider, store)
    said += [
        f"{format_query_name(name)} keeps its rows: {'; '.join(own.how)}; results so far stay, and a row"
        f" that matched under the old condition counts as matched{change.from_when(plan, name)}"
        for name, own in change.changed.items()
        if own.resumes
    ]
    said += [
        f"{format_query_name(name)} starts over: {'; '.join(own.how)}; {own.judgement.reason}"
        for name, own in change.changed.items()
        if own.how and not own.resumes
    ]
    said += [
        f"{format_query_name(name)} is no longer in the job; its state is deleted" for name in change.removed
    ]
    said += [
        f"{format_query_name(name)} now stores the rows of {side} itself; another query stored them before"
        for name, _, side, _ in brought
        if input_of(side) == side
    ]
    coming = NewQueries(manifest, stay, goes_on(manifest, plan), shapes, store, zoned=zoned)
    for query in plan.queries:
        if query.name in change.begins:
            queries[query.name] = state = coming.state(query, shapes[query.name])
            state.account |= {
                own: dict(queries[maker].account[there])
                for own, maker, there in query.shared_inputs
                if there in queries[maker].account
            }
    if coming.problems:
        raise StateError(
            "; ".join(coming.problems),
            code="changed-query",
            hint="run the new query in a job of its own, which reads its sources from the start; or"
            " first run this job without it, with a CREATE INDEX on the table or a SELECT * FROM it to"
            " store its rows",
        )
    coming.write_marks()
    changed = manifest.model_copy(
        update={
            "queries": {query.name: queries[query.name] for query in plan.queries},
            **identify_queries(plan),
        }
    )
    return Changed(changed, said + coming.said, coming.contents, frozenset(change.begins))


def identify_queries(plan: JobPlan) -> dict[str, Any]:
    """Return what a manifest knows the queries by."""
    own = {query.name: describe_query(query) for query in plan.apart or plan.queries}
    return {"fingerprints": {query.name: query.fingerprint for query in plan.queries}, "described": own}


def _released_times(state: QueryState) -> dict[tuple[int, str], Times]:
    """Return per side and event time below which times its rows were released."""
    return {
        (number, name): greatest_times(kept.limits, kept.gone_below)
        for number, node in enumerate(state.nodes)
        for name, kept in node.arrangements.items()
    }


def _missing_rows(state: QueryState) -> dict[int, Missing]:
    """Return per node which rows were missing of it already."""
    return {number: node.missing for number, node in enumerate(state.nodes)}


def _greatest_seen_times(state: QueryState) -> Times:
    """Return per key of an input the greatest time that its rows had."""
    seen: Times = {}
    for alias, own in state.inputs.items():
        for partition in (partition for branch in own.branches for partition in branch.partitions.values()):
            for column, time in partition.greatest.items():
                key = f"{alias}.{column}"
                seen[key] = max(time, seen.get(key, NEVER))
    return seen


def _widen(
    manifest: Manifest,
    query: QueryPlan,
    shapes: Sequence[NodeShape],
    wider: Mapping[int, Wider],
    told: Completeness,
    store: Store,
) -> QueryState:
    """Return the state of a query for the next tick.

    Cost: the driver reads once the rows of sides that retain them longer, and the times of rows of padded
    sides.
    """
    state = manifest.queries[query.name]
    rewriter = RunRewriter(manifest, store)
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
                kept = rewriter.retained(arrangements[side.name], shape, times, is_longer=is_longer)
                arrangements[side.name] = kept
            if side.padded:
                arrangements[side.name] = _unknown_below(arrangements[side.name], told.below.get(of_side, {}))
        nodes[node.number] = nodes[node.number].model_copy(
            update={"arrangements": arrangements, "missing": list(told.missing[node.number])}
        )
    complete_from = greatest_times(state.complete_from, told.complete_from)
    return state.model_copy(update={"nodes": nodes, "complete_from": complete_from})


def _unknown_below(kept: Arrangement, times: Times) -> Arrangement:
    """Remember that rows below these times may have lost a partner, too."""
    return kept.model_copy(update={"unknown_below": greatest_times(kept.unknown_below, times)})
