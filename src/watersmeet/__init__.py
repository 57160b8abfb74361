"""Joins of live streams on event time: the public names, and nothing else.

``parse_job`` reads a job's text, ``plan_job`` plans it, ``explain`` says in words how it would be run.
``run`` runs a job's text on Spark, as the command ``watersmeet run`` does. ``stream`` makes a `Relation` of a
streaming DataFrame; relations are joined, filtered and grouped by calls, and ``job`` runs them. ``pipelines``
has joins as data, of TOML too: ``run_streaming_pipeline`` and the decorator ``pipeline``. A `LocalJob` runs a
plan in this process: ``local`` opens one of a text or of a `JoinSpec`, a join as data, and runs it over
iterables of Arrow batches; for tests, `watersmeet.testing` has it with all that is around. Every error raised
on purpose is a `WatersmeetError`.

>>> import watersmeet
>>> job = watersmeet.parse_job('''
...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3''')
>>> print(watersmeet.explain(watersmeet.plan_job(job)).split("Eviction bounds")[1].split("Retention")[0])
<BLANKLINE>
  y.t -> {x.t: 3}
  x.t -> {y.t: 0}
<BLANKLINE>

Importing this module imports nothing else: a name is loaded when it is first asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from watersmeet import local, pipelines
    from watersmeet.background_job import StartedJob
    from watersmeet.errors import (
        EngineError,
        Location,
        PlanError,
        SeveralErrors,
        SpecError,
        SqlError,
        StateError,
        WatersmeetError,
    )
    from watersmeet.local.join_spec import JoinSpec
    from watersmeet.parser.statements import parse_job
    from watersmeet.pipelines.pipeline import pipeline, run_streaming_pipeline
    from watersmeet.plan.explain import explain
    from watersmeet.plan.planner import plan_job
    from watersmeet.relations.inputs import declared, stream, table
    from watersmeet.relations.job import Job, job, sql
    from watersmeet.relations.outputs import (
        console,
        delta,
        files,
        iceberg,
        kafka,
        memory,
        postgres,
        sink,
    )
    from watersmeet.relations.relation import Grouped, Output, Relation
    from watersmeet.relations.terms import Between, Window, between, hop, session, tumble
    from watersmeet.running import run
    from watersmeet.runtime.local import LocalJob
    from watersmeet.sinks.function import Part
    from watersmeet.state.store import MemoryStore

    __version__: str

_HOMES = {
    "EngineError": "watersmeet.errors",
    "Location": "watersmeet.errors",
    "PlanError": "watersmeet.errors",
    "SeveralErrors": "watersmeet.errors",
    "SpecError": "watersmeet.errors",
    "SqlError": "watersmeet.errors",
    "StateError": "watersmeet.errors",
    "WatersmeetError": "watersmeet.errors",
    "JoinSpec": "watersmeet.local.join_spec",
    "LocalJob": "watersmeet.runtime.local",
    "MemoryStore": "watersmeet.state.store",
    "Part": "watersmeet.sinks.function",
    "Between": "watersmeet.relations.terms",
    "Grouped": "watersmeet.relations.relation",
    "Job": "watersmeet.relations.job",
    "Output": "watersmeet.relations.relation",
    "Relation": "watersmeet.relations.relation",
    "StartedJob": "watersmeet.background_job",
    "Window": "watersmeet.relations.terms",
    "between": "watersmeet.relations.terms",
    "console": "watersmeet.relations.outputs",
    "declared": "watersmeet.relations.inputs",
    "delta": "watersmeet.relations.outputs",
    "explain": "watersmeet.plan.explain",
    "files": "watersmeet.relations.outputs",
    "hop": "watersmeet.relations.terms",
    "iceberg": "watersmeet.relations.outputs",
    "job": "watersmeet.relations.job",
    "kafka": "watersmeet.relations.outputs",
    "memory": "watersmeet.relations.outputs",
    "parse_job": "watersmeet.parser.statements",
    "pipeline": "watersmeet.pipelines.pipeline",
    "plan_job": "watersmeet.plan.planner",
    "postgres": "watersmeet.relations.outputs",
    "run": "watersmeet.running",
    "run_streaming_pipeline": "watersmeet.pipelines.pipeline",
    "session": "watersmeet.relations.terms",
    "sink": "watersmeet.relations.outputs",
    "sql": "watersmeet.relations.job",
    "stream": "watersmeet.relations.inputs",
    "table": "watersmeet.relations.inputs",
    "tumble": "watersmeet.relations.terms",
}
"""Name -> the module that has it."""

_MODULES = ("local", "pipelines")
"""Names that are modules of the package."""

__all__ = [
    "Between",
    "EngineError",
    "Grouped",
    "Job",
    "JoinSpec",
    "LocalJob",
    "Location",
    "MemoryStore",
    "Output",
    "Part",
    "PlanError",
    "Relation",
    "SeveralErrors",
    "SpecError",
    "SqlError",
    "StartedJob",
    "StateError",
    "WatersmeetError",
    "Window",
    "__version__",
    "between",
    "console",
    "declared",
    "delta",
    "explain",
    "files",
    "hop",
    "iceberg",
    "job",
    "kafka",
    "local",
    "memory",
    "parse_job",
    "pipeline",
    "pipelines",
    "plan_job",
    "postgres",
    "run",
    "run_streaming_pipeline",
    "session",
    "sink",
    "sql",
    "stream",
    "table",
    "tumble",
]


if not TYPE_CHECKING:  # or every name would be there for type checkers

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            value: Any = _version()
        elif name in _HOMES or name in _MODULES:
            from importlib import import_module

            home = import_module(_HOMES.get(name, f"watersmeet.{name}"))
            value = home if name in _MODULES else getattr(home, name)
        else:
            raise AttributeError(f"module 'watersmeet' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """Return the installed version; ``0+unknown`` if the package is used from its sources."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("watersmeet")
    except PackageNotFoundError:
        return "0+unknown"
