"""Pipelines: two streams joined, as data, in Python and in TOML.

    run_streaming_pipeline(name=…, sources=[Source(…), …], target=Target(…), join=Join(…), state_store=…)
    @pipeline(sources=[…], target=…)        a Pipeline from a function
    Pipeline.from_toml(text), .to_toml()    the same as TOML: [[sources]], [transform.join], [target]

A pipeline is checked when it is made, all of it at once. It makes the same job as SQL and calls do, by the
rule of lateness of joins (SET lateness = join), and is run by the same code.

>>> from watersmeet import pipelines as p
>>> of = {"connector": "memory"}
>>> shown, clicked = (
...     p.Source(name=name, connection=of, columns={"ad": "BIGINT", "at": "TIMESTAMP"})
...     for name in ("shown", "clicked"))
>>> both = p.Pipeline(
...     name="both", sources=[shown, clicked], target=p.Target(connection={"connector": "console"}),
...     transform=p.Transform(join=p.Join(
...         left_source=shown, right_source=clicked, left_keys="ad", right_keys="ad", time_window="1 second",
...         event_time_column="at")))
>>> print(both.explain().splitlines()[0])
Query "console" into console
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
