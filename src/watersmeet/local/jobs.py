"""Opens a job in this process: whatever says what is asked, wherever its state is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from watersmeet.errors import SpecError, near_names
from watersmeet.parser.statements import parse_job
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.input_rows import coerce_rows, list_changes
from watersmeet.runtime.local.job import LocalJob
from watersmeet.runtime.local.output import check_names
from watersmeet.runtime.values import InMemoryTables
from watersmeet.spec.model import Job
from watersmeet.spec.options.files import local_path
from watersmeet.state.store import LocalStore, MemoryStore, Store

if TYPE_CHECKING:
    from watersmeet.local.join_spec import JoinSpec
    from watersmeet.relations.job import Job as RelationsJob
    from watersmeet.relations.relation import Relation

Asked: TypeAlias = "str | JoinSpec | RelationsJob | Relation | Job | JobPlan"
Place = str | os.PathLike[str] | Store


def job(
    query: Asked,
    *,
    store: Place | None = None,
    settings: Mapping[str, str] | None = None,
    tables: Mapping[str, Any] | None = None,
    partitions: int = 1,
    clock: Callable[[], int] | None = None,
    change_queries: bool = False,
) -> LocalJob:
    """Create a job in this process whose sources are pushed rows.

    Args:
        query: the text of a job (its sources may have any connector, but none is read), a `JoinSpec`,
            a job of relations, a relation, or a plan.
        store: where the state and the last tick's output are: a directory, the URL of an object store
            or of PostgreSQL tables (``s3://…``, ``postgresql://…``), or a `Store`. The job resumes from
            it. None: in memory, and lost with the job.
        settings: settings for a text, like the command line's ``--set``.
        tables: initial rows of tables that rows meet as of their tick, as for `LocalJob.push`. They are
            not in the store; pass them again when the job is opened again.
        partitions: number of partitions into which a tick's work is split.
        clock: returns the time in µs since 1970; None: the wall clock.
        change_queries: allow queries that were added, removed or changed since the state was created.

    Raises:
        WatersmeetError: the query or the state is wrong.

    >>> from watersmeet import local
    >>> opened = local.job('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.k, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3''')
    >>> opened.push("a", [{"t": 1, "k": "x"}, {"t": 2, "k": "y"}, {"t": 3, "k": "x"}])
    >>> opened.tick().table.to_pylist()
    [{'k': 'x', 'u': 3}]
    """
    plan = plan_of(query, settings)
    check_names(plan, "table")
    place = MemoryStore() if store is None else _store(store)
    now = _wall_clock if clock is None else clock
    return LocalJob(
        plan,
        place,
        partitions=partitions,
        clock_us=now(),
        tables=_build_memory_tables(plan, place, tables),
        given=True,
        change_queries=change_queries,
        clock=now,
        keep_output=store is not None,
    )


def _wall_clock() -> int:
    return time.time_ns() // 1_000


def plan_of(query: Asked, settings: Mapping[str, str] | None) -> JobPlan:
    """Return the plan of any form of a query.

    Args:
        settings: settings for a text, like SET.

    Raises:
        WatersmeetError: the query is wrong.
    """
    if settings and not isinstance(query, str):
        raise SpecError(
            "settings can be passed only with SQL text",
            code="bad-argument",
            hint="pass them where the job is made: job(…, settings={…}), JoinSpec(…, options={…})",
        )
    plan = query if isinstance(query, JobPlan) else getattr(query, "plan", None)
    if isinstance(plan, JobPlan):
        return plan
    job = parse_job(query, overrides=settings) if isinstance(query, str) else query
    if not isinstance(job, Job):
        raise SpecError(
            f"the job must be SQL text, a job, a relation, a JoinSpec or a plan, not {query!r}",
            code="bad-argument",
            hint="Path('job.sql').read_text(), or watersmeet.job(…)",
        )
    if not job.inserts:
        raise SpecError("the job has no query other than EXPLAIN", code="nothing-to-run", hint="add a SELECT")
    return plan_job(job)


def _store(place: Any) -> Store:
    if isinstance(place, str) and "://" in place and not place.startswith("file://"):
        from watersmeet.objects.settings import STORE, store_of

        remote = store_of({STORE: place})
        assert remote is not None
        return remote
    if isinstance(place, str | os.PathLike):
        path = local_path(os.fspath(place)) or os.fspath(place)
        there = Path(os.path.abspath(path))
        while not there.exists():
            there = there.parent
        if not there.is_dir():
            raise SpecError(
                f"the state cannot be stored in {path}: {there} is not a directory",
                code="bad-store",
                hint="use a directory; it is created if it does not exist",
            )
        return LocalStore(path)
    if hasattr(place, "create") and hasattr(place, "names"):
        own: Store = place
        return own
    raise SpecError(
        f"{place!r} is not a place for a state", code="bad-value", hint="pass a directory or a URL"
    )


def _build_memory_tables(plan: JobPlan, store: Store, tables: Mapping[str, Any] | None) -> InMemoryTables:
    sources = {source.name: source for source in plan.tables}
    if sources and tables is None and store.names("manifests"):
        raise SpecError(
            f"the store does not have the rows of the tables {', '.join(sources)}",
            code="no-tables",
            hint="pass them: job(…, tables={…})",
        )
    held = InMemoryTables()
    for name, rows in (tables or {}).items():
        if name not in sources:
            raise SpecError(
                f'no query of this job joins a table "{name}" FOR SYSTEM_TIME AS OF',
                code="unknown-table",
                hint=near_names(name, sources) or "there is none: give the rows of others by push",
            )
        held.change(
            sources[name], list_changes([coerce_rows(sources[name], rows, naive_is_utc=plan.is_in_utc)])
        )
    return held
