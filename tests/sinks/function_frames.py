"""A function sink without Spark: rows staged as an attempt does."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.sinks.postgres_frames import ArrowFrame
from tests.support.columns import column
from watersmeet.sinks.function import FunctionSink
from watersmeet.spec.model import Sink
from watersmeet.state.store import LocalStore, Store

COLUMNS = [column("k", "STRING"), column("v", "STRING")]
Row = tuple[str, str | None]


def identity_of(tick: int) -> dict[str, str]:
    return {"rows": f"of tick {tick}"}


def sink_of(name: str, key: Sequence[str] = (), /) -> FunctionSink:
    written = name if ":" in name else f"tests.sinks.given_functions:{name}"
    return FunctionSink(Sink("out", "function", {"function": written}, None, tuple(key)))


def prepare_sink(sink: FunctionSink, files: Any, owner: str = "the job") -> FunctionSink:
    """``files``: a store, or the folder of one."""
    store: Store = files if hasattr(files, "create") else LocalStore(files)
    sink.stage_in(store)
    sink.prepare(COLUMNS, owner)
    return sink


def stage(
    sink: FunctionSink,
    tick: int,
    rows: Sequence[Row],
    partitions: int,
    insert: str = "q",
    attempt: str | None = None,
) -> str:
    """Stage rows as an attempt does, whose name is returned."""
    attempt = attempt or uuid.uuid4().hex
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(2)]
    frame = ArrowFrame(pa.table(columns, names=["k", "v"]), ["STRING", "STRING"], partitions)
    sink.write(frame, insert, tick, attempt)
    assert sink.staged_rows(insert, tick, attempt) == len(rows)
    return attempt
