"""A piece of work that never changes, to say by it how much time other work takes: of a tick's kinds.

Arrays (sort, search, gather, filter, write as Arrow) and Python (objects, dicts, JSON, small arrays). It is
of no engine, and an edit of it asks for new baselines.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS = 20_000
_RNG = np.random.default_rng(3)
_KEYS = _RNG.integers(-(2**62), 2**62, ROWS)
_PROBES = _RNG.integers(-(2**62), 2**62, ROWS)
_TABLE = pa.table(
    {"k": _KEYS, "v": np.arange(ROWS), "s": pa.array([f"it{number % 1000:04d}" for number in range(ROWS)])}
).combine_chunks()
_TEXT = json.dumps(
    [{"name": f"runs/a-{n}", "rows": n, "least": {"t": n * 1000}, "of": ["x", "y"]} for n in range(20)]
)


class _Item:
    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name

    def total(self) -> int:
        return self.number + len(self.name)


def work() -> int:
    """Some milliseconds of it, nearly two thirds of them arrays; gives a number that goes by all of it."""
    return _arrays() + _python()


def _arrays() -> int:
    order = np.argsort(_KEYS, kind="stable")
    places = np.searchsorted(_KEYS[order], _PROBES)
    rows = _TABLE.take(pa.array(order)).combine_chunks()
    twice = rows.take(pa.array(np.repeat(np.flatnonzero(places % 3 == 0), 2)))
    left = twice.filter(pc.greater(twice.column("v"), 100))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, left.schema) as writer:
        writer.write_table(left)
    return int(sink.getvalue().size) + len(np.unique(_KEYS & 1023))


def _python() -> int:
    found = 0
    for _ in range(8):
        items = [_Item(number, f"n{number}") for number in range(150)]
        found += sum(item.total() for item in items)
        by_name = {item.name: item.number for item in items}
        found += sum(number for name, number in sorted(by_name.items()) if name.endswith("7"))
        found += len(json.dumps(json.loads(_TEXT)))
        numbers = np.arange(1000)
        for rest in range(12):
            places = pa.array(np.searchsorted(numbers, numbers[numbers % 7 == rest % 7]))
            found += pa.record_batch({"a": places, "b": places}).slice(0, 5).num_rows
    return found
