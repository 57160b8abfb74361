"""What was read of a source's first rows, and refusals of what is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from watersmeet.engine.spark.sources.files.contents import WHOLE
from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.errors import EngineError
from watersmeet.spec.model import Source

Row = dict[str, Any]

KEPT_RECORDS = 1_000


@dataclass
class FirstRows:
    """``rows``: of Python's values, TIMESTAMPs as naive UTC. ``left_out``: records that were not taken, the
    first of them ``first``, its beginning ``example``, and the first `KEPT_RECORDS` of them ``records``.
    ``more``: there are others that were not looked at. ``unchecked``: columns whose values were not looked
    at. ``left_out_files``: those of which all records were left out, and how many."""

    rows: list[Row] = field(default_factory=list)
    files: int = 0
    left_out: int = 0
    example: str = ""
    more: bool = False
    unchecked: tuple[str, ...] = ()
    records: list[str] = field(default_factory=list)
    first: str = ""
    left_out_files: list[tuple[str, int]] = field(default_factory=list)

    def leave_out(self, record: str) -> None:
        self.left_out += 1
        self.example = self.example or record[:80]
        self.first = self.first or record
        if len(self.records) < KEPT_RECORDS:
            self.records.append(record[:200])


def damaged(source: Source, file: str, why: str) -> EngineError:
    why = " ".join(why.split()).rstrip(".")
    return EngineError(
        f'"{source.name}": {shown(file)} is damaged: {why}',
        code="file-unreadable",
        hint=f"{WHOLE}; a run would fail at it",
    )


def refused(source: Source, why: str) -> EngineError:
    return EngineError(
        f'"{source.name}": {why}',
        code="not-previewed",
        hint="use `watersmeet run`, which can read it; the preview cannot",
    )
