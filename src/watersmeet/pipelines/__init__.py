"""Pipelines: two streams joined, as data, in Python and in TOML.

    run_streaming_pipeline(name=…, sources=[Source(…), …], target=Target(…), join=Join(…), state_store=…)
    @pipeline(sources=[…], target=…)        a Pipeline from a function
    Pipeline.from_toml(text), .to_toml()    the same as TOML: [[sources]], [transform.join], [target]

A pipeline is checked when it is made, all of it at once. It makes the same job as SQL and calls do, by the
rule of lateness of joins (SET lateness = join), and is run by the same code.
"""

from watersmeet.pipelines.model import (
    Join,
    Lookup,
    Source,
    StateStore,
    Target,
    Transform,
    Window,
    json_schema,
)
from watersmeet.pipelines.pipeline import Pipeline, pipeline, run_streaming_pipeline

__all__ = [
    "Join",
    "Lookup",
    "Pipeline",
    "Source",
    "StateStore",
    "Target",
    "Transform",
    "Window",
    "json_schema",
    "pipeline",
    "run_streaming_pipeline",
]
