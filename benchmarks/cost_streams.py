"""The streams and queries of `benchmarks.cost`: streams from a seed, a minute of event time per tick.

As in `benchmarks.workloads`: there are as many keys as a tick has rows a side, the band is two minutes. Of
the changes a tenth are deletes of rows of the tick before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.workloads import EPOCH_US, KINDS, MINUTE_US, SCHEMA

COLUMNS = "k BIGINT, t TIMESTAMP, v BIGINT, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS"
WORDS = pa.array([f"it{number:04d}" for number in range(1_000)])
MATCHES = 20
"""Of a row, without a key."""


@dataclass(frozen=True)
class Query:
    """``sides``: the streams, a letter each; ``keys``: how many, None: as many as rows; ``deletes``: one row
    in so many of a tick goes again in the next, 0: none."""

    sides: str
    text: str
    settings: str = ""
    keys: int | None = None
    deletes: int = 0

    def sql(self, rows: int) -> str:
        tables = "".join(
            f"CREATE TABLE {side} ({COLUMNS}) WITH ('connector' = 'memory');" for side in self.sides
        )
        return self.settings + tables + self.text.replace("WIDTH", str(MATCHES * MINUTE_US // rows))

    def given(self, tick: int, rows: int) -> Iterator[tuple[str, pa.Table, int]]:
        """What comes in a tick: stream, rows, and 1 or, for deletes, −1."""
        for side in self.sides:
            gone = rows // self.deletes if self.deletes and tick else 0
            yield side, self._minute(side, tick, rows).slice(gone), 1
            if gone:
                yield side, self._minute(side, tick - 1, rows).slice(rows - gone), -1

    def _minute(self, side: str, tick: int, rows: int) -> pa.Table:
        rng = np.random.default_rng([7, ord(side), tick])
        times = EPOCH_US + tick * MINUTE_US + rng.integers(0, MINUTE_US, rows)
        return pa.table(
            [
                pa.array(rng.integers(0, self.keys or rows, rows)),
                pa.array(times).cast(SCHEMA.field("t").type),
                pa.array(np.arange(tick * rows, (tick + 1) * rows)),
                WORDS.take(pa.array(rng.integers(0, len(WORDS), rows))),
            ],
            schema=SCHEMA,
        )


def _joined(kind: str) -> Query:
    sides = KINDS[kind].sides
    return Query("".join(sides), KINDS[kind].select({side: side for side in sides}))


QUERIES = {
    "inner": _joined("inner"),
    "left": _joined("left"),
    "three streams": _joined("left3"),
    "keyless band": Query(
        "lr",
        "SELECT l.t, l.v, r.t AS rt, r.v AS rv FROM l JOIN r "
        "ON r.t BETWEEN l.t AND l.t + INTERVAL 'WIDTH' MICROSECONDS",
    ),
    "ASOF": Query(
        "lr",
        "SELECT l.k, l.t, l.v, r.t AS rt, r.v AS rv FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.t >= r.t) "
        "ON r.k = l.k AND r.t >= l.t - INTERVAL '2' MINUTES",
    ),
    "window": Query(
        "l",
        "SELECT window_start, k, count(*) AS n, sum(v) AS total, max(v) AS most FROM TABLE(HOP(TABLE l, "
        "DESCRIPTOR(t), INTERVAL '1' MINUTE, INTERVAL '2' MINUTES)) GROUP BY window_start, window_end, k",
        keys=1_000,
    ),
    "changes": Query(
        "lr",
        "SELECT l.k, l.t, l.v, l.s, r.t AS rt, r.v AS rv FROM l JOIN r ON l.k = r.k "
        "AND r.t BETWEEN l.t - INTERVAL '2' MINUTES AND l.t + INTERVAL '2' MINUTES",
        settings="SET output_mode = changelog;",
        deletes=10,
    ),
}
