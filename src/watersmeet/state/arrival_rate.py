"""How many rows come per unit of event time: what EXPLAIN forecasts from, once a job has run.

Measured against the watermark of an event time and never against a clock: rows stay for stretches of event
time, and a backlog is read many times faster than it came. A source that falls silent moves no watermark, so
silence does not count; what was read in one burst counts by the time that it covers.

What is remembered is two stretches of at most a day or so: the one at hand, and the one before it. So a rate
is that of the last day or two, not that of years. Numbers have no days: of them it is that since the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.event_time import DAY_US, ENDED, NEVER, Watermark
from watersmeet.state.stored_record import StoredRecord


class Pace(StoredRecord):
    """The arrival rate of one event time of one side of a node.

    ``mark``: its watermark as of the last counted tick. ``rows``, ``span``: the number of rows that
    arrived, and the event time that they cover. ``rows_before``, ``span_before``: the number of rows
    and the event time of the preceding stretch. ``first``: least and greatest time of the rows that
    arrived before the first watermark; it covers them.
    """

    mark: Watermark = NEVER
    rows: int = 0
    span: int = 0
    rows_before: int = 0
    span_before: int = 0
    first: tuple[int, int] | None = None

    def moved(self, rows: int, spans: Sequence[tuple[int, int]], mark: Watermark, *, timed: bool) -> Pace:
        """Compute the arrival rate after a tick.

        Args:
            rows: the number of rows that arrived and were retained.
            spans: least and greatest time of parts of these rows. Empty: their times are unknown; such
                rows do not count until there is a watermark.
            mark: the watermark as of the tick.
            timed: times are µs, not numbers.
        """
        if mark == ENDED:
            return self
        moved: dict[str, Any] = {"mark": mark}
        counted, span = self.rows, self.span
        if isinstance(self.mark, int) and isinstance(mark, int):
            counted, span = counted + rows, span + mark - self.mark
        elif spans:
            all_spans = [*spans] if self.first is None else [*spans, self.first]
            first, last = min(low for low, _ in all_spans), max(high for _, high in all_spans)
            counted, span = counted + rows, last - first
            moved["first"] = first, last
        if timed and span >= DAY_US and isinstance(mark, int):
            moved |= {"rows_before": counted, "span_before": span}
            counted = span = 0
        return self.model_copy(update={**moved, "rows": counted, "span": span})

    @property
    def measured(self) -> tuple[int, int]:
        """Rows, and the event time that they cover; a span of 0: nothing can be said yet."""
        return self.rows_before + self.rows, self.span_before + self.span
