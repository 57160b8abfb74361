"""No rows: those of a node in whose place another query's is run."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from watersmeet.engine.messages.shapes import RestShape
from watersmeet.engine.tasks.share import Share


def no_rows(shape: RestShape, share: Share) -> Iterator[pa.RecordBatch]:
    """Nobody asks for any."""
    yield from ()
