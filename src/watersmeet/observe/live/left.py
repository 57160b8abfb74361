"""How much of a source is still to be read, and how long that may take.

Of Kafka it is known in rows, of files in files: rows of those are reckoned by the rows that those had which
were read since the first tick. More files than are known of may come meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from watersmeet.observe.progress import TickReport

FILES = "files"


@dataclass(frozen=True)
class _Files:
    """Of a source: files that were still to be read after the last tick, files that were read since the
    first, and the rows that these had."""

    unread: int
    read: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Left:
    """``rows``: that were read; ``unread``: rows that are still to be read, about; None: that cannot be said
    yet."""

    rows: int = 0
    unread: float | None = None
    _files: Mapping[str, _Files] = field(default_factory=dict)

    def after(self, report: TickReport) -> Left:
        """The same after one more tick."""
        files, unread = dict(self._files), 0.0
        can_tell = bool(report.backlog)
        for source, backlog in report.backlog.items():
            if backlog.unit != FILES:
                unread += backlog.count
                continue
            before, rows = files.get(source), report.rows_in.get(source, 0)
            now = _Files(backlog.count)
            if before is not None:
                read = max(0, before.unread - backlog.count)
                now = _Files(backlog.count, before.read + read, before.rows + (rows if read else 0))
            files[source] = now
            if now.unread and not now.read:
                can_tell = False
            elif now.unread:
                unread += now.unread * now.rows / now.read
        return replace(self, rows=self.rows + report.read, unread=unread if can_tell else None, _files=files)

    @property
    def done(self) -> float | None:
        """The share that was read of what is known of."""
        if self.unread is None:
            return None
        return self.rows / (self.rows + self.unread) if self.rows or self.unread else 1.0

    def seconds(self, rate: float) -> float | None:
        """How long the rest takes at so many rows a second."""
        return None if self.unread is None or rate <= 0 else self.unread / rate
