"""What is checked when state is opened: that it belongs to this plan (that it is whole: `state.whole`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from watersmeet.engine.driver.opening.changed_queries import Change
from watersmeet.engine.driver.opening.moved_paths import changed_paths
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Arrangement, Manifest
from watersmeet.state.runs.columns import lacking
from watersmeet.state.runs.opened import schema_of
from watersmeet.state.runs.run import Run
from watersmeet.state.store import Store

_AS_IT_WAS = "restore the old query, or use a new checkpoint directory (--checkpoint DIR)"


def check_same_job(manifest: Manifest, plan: JobPlan, *, may_change: bool = False) -> None:
    """Whether state and plan belong together. ``may_change``: queries may come, go and
    change, and sources with them.

    Raises:
        StateError: the state is of other queries or other sources.
    """
    change, paths = Change.of(manifest, plan), changed_paths(manifest, plan)
    way_on = "; ".join(change.way_on)
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


def check_not_finished(manifest: Manifest | None) -> None:
    """Raise: StateError, if the job's input was ended."""
    if manifest is not None and manifest.finished:
        raise StateError(
            "the job is finished: its input has ended, so it accepts no more rows",
            code="job-finished",
            hint="to run it again, use a new checkpoint directory (--checkpoint DIR), or watersmeet reset",
        )


def check_columns(manifest: Manifest, shapes: Mapping[str, Sequence[NodeShape]], store: Store) -> None:
    """Whether the stored rows have what the query needs of them. They may have more: in changelog mode a row
    is then taken away by one that is equal to it in what the query needs, and which of those is all the same;
    so what it did not need in the last tick says nothing any more.

    Raises:
        StateError: a column is not in some of the stored rows, or is made of something else there.
    """
    for shape, side, kept, run in _stored(manifest, shapes):
        schema = schema_of(store, run)
        missing = lacking(schema, side.layout.columns)
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


def _stored(
    manifest: Manifest, shapes: Mapping[str, Sequence[NodeShape]]
) -> Iterator[tuple[NodeShape, SideShape, Arrangement, Run]]:
    """All runs of sides, with what they are of."""
    for name, query in manifest.queries.items():
        for shape, state in zip(shapes[name], query.nodes, strict=True):
            for side in shape.stored:
                kept = state.arrangements.get(side.name, Arrangement())
                for live in kept.runs:
                    yield shape, side, kept, live.run
