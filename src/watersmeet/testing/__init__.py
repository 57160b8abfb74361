"""The public test kit: joins tried without a cluster, over rows that are given, with a clock that is moved.

* `MemoryJob`: a job tick by tick; `query`: its whole answer at once.
* `SinkContract`: what a sink of one's own must do to be exactly once.
* `load_cases`, `replay_case`: conformance cases, see the README.

>>> from watersmeet.testing import query
>>> query('''
...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
...     CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
...     SELECT a.t, b.t AS u FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3''',
...     {"a": [{"t": 1, "k": "x"}, {"t": 2, "k": "y"}], "b": [{"t": 3, "k": "x"}]})
[{'t': 1, 'u': 3}, {'t': 2, 'u': None}]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watersmeet.runtime.local.replay import replay_case
    from watersmeet.testing.cases import load_cases
    from watersmeet.testing.memory_job import MemoryJob, Tick, query
    from watersmeet.testing.sink_contract import SinkContract

_HOMES = {
    "MemoryJob": "watersmeet.testing.memory_job",
    "SinkContract": "watersmeet.testing.sink_contract",
    "Tick": "watersmeet.testing.memory_job",
    "load_cases": "watersmeet.testing.cases",
    "query": "watersmeet.testing.memory_job",
    "replay_case": "watersmeet.runtime.local.replay",
}

__all__ = ["MemoryJob", "SinkContract", "Tick", "load_cases", "query", "replay_case"]


if not TYPE_CHECKING:  # or every name would be there for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'watersmeet.testing' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
