"""Joins in this process, without Spark and without SQL: for services, engines and tests.

* `JoinSpec`: a join of two streams as data, its condition made of `left`, `right`, `Equal`, `Comparison`,
  `Between`, `AllOf`, `AnyOf`.
* `job`: opens a `watersmeet.LocalJob` of that, or of a job's text: push rows, advance watermarks, tick.
* `run`: ticks over iterables, or async iterables, of Arrow batches, with `Advance` between them.
* `map_async`: a service that is asked about rows on the way.

>>> from watersmeet import local
>>> spec = local.JoinSpec(
...     left={"order_id": "BIGINT", "at": "TIMESTAMP"}, right={"order_id": "BIGINT", "at": "TIMESTAMP"},
...     left_times={"at": "10 seconds"}, right_times={"at": "1 minute"},
...     condition=local.AllOf(
...         local.Equal(local.left("order_id"), local.right("order_id")),
...         local.Between(local.right("at"), local.left("at"), local.left("at") + "1 hour")),
...     outputs={"order_id": local.left("order_id"), "delivered": local.right("at")},
...     names=("orders", "deliveries"))
>>> job = local.job(spec)
>>> job.push("orders", {"order_id": 1, "at": "2022-03-01T10:00:00"})
>>> job.push("deliveries", {"order_id": 1, "at": "2022-03-01T10:40:00"})
>>> [str(value) for value in job.tick().table.to_pylist()[0].values()]
['1', '2022-03-01 10:40:00+00:00']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watersmeet.local.async_lookup import AsyncMap, map_async
    from watersmeet.local.batches import Advance, Run, run
    from watersmeet.local.conditions import AllOf, AnyOf, Between, Comparison, Equal, left, right
    from watersmeet.local.jobs import job
    from watersmeet.local.join_spec import JoinSpec
    from watersmeet.runtime.local.output import Output

_HOMES = {
    "Advance": "watersmeet.local.batches",
    "AllOf": "watersmeet.local.conditions",
    "AnyOf": "watersmeet.local.conditions",
    "AsyncMap": "watersmeet.local.async_lookup",
    "Between": "watersmeet.local.conditions",
    "Comparison": "watersmeet.local.conditions",
    "Equal": "watersmeet.local.conditions",
    "JoinSpec": "watersmeet.local.join_spec",
    "Output": "watersmeet.runtime.local.output",
    "Run": "watersmeet.local.batches",
    "job": "watersmeet.local.jobs",
    "left": "watersmeet.local.conditions",
    "map_async": "watersmeet.local.async_lookup",
    "right": "watersmeet.local.conditions",
    "run": "watersmeet.local.batches",
}

__all__ = [
    "Advance",
    "AllOf",
    "AnyOf",
    "AsyncMap",
    "Between",
    "Comparison",
    "Equal",
    "JoinSpec",
    "Output",
    "Run",
    "job",
    "left",
    "map_async",
    "right",
    "run",
]


if not TYPE_CHECKING:  # or every name would be there for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'watersmeet.local' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
