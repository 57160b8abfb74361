"""The output of the last tick, as it is kept with the state (`state.last_output`), and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from watersmeet.engine.local.output import Output
from watersmeet.event_time import ENDED, NEVER, Watermark
from watersmeet.state import last_output
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store

_QUERY, _LATE = "query ", "late "
_ENDS: Mapping[Watermark, str] = {NEVER: "none", ENDED: "end"}
_MARKS = {text: mark for mark, text in _ENDS.items()}


def kept_now(output: Output, store: Store) -> dict[str, Any]:
    """Stores the output; what the manifest's ``host`` has to say of it."""
    tables = {_QUERY + name: table for name, table in output.tables.items()}
    tables |= {_LATE + name: table for name, table in output.late_tables.items()}
    kept = last_output.keep(store, output.tick, tables)
    watermarks = {
        query: {key: _ENDS.get(mark, mark) for key, mark in marks.items()}
        for query, marks in output.watermarks.items()
    }
    return {last_output.KEY: kept.model_dump(), "watermarks": watermarks}


def kept_then(manifest: Manifest, store: Store, empty: Mapping[str, pa.Table]) -> Output | None:
    """The output of the manifest's tick; None: it was not kept. ``empty``: per query a table without rows.

    Raises: StateError, when it is missing or damaged.
    """
    kept = last_output.kept_of(manifest.host)
    if kept is None:
        return None
    tables = last_output.read(store, kept)
    return Output(
        manifest.tick,
        dict(empty) | _of(_QUERY, tables),
        _of(_LATE, tables),
        {
            query: {key: _MARKS.get(mark, mark) for key, mark in marks.items()}
            for query, marks in manifest.host["watermarks"].items()
        },
        manifest.host.get("position"),
        manifest.finished,
    )


def _of(kind: str, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name.removeprefix(kind): table for name, table in tables.items() if name.startswith(kind)}
