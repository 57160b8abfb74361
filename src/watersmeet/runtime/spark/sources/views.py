"""Columns of a source's frame that make up each branch: what ingest tasks are told."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.runtime.spark.broken_records import RecordCheck


@dataclass(frozen=True)
class BranchView:
    """A branch's columns: name for ingest -> column of the frame.

    Args:
        arrangement: ``query/alias``.
        branch: number of the branch within the input.
        columns: kept columns, and as wanted `FLAG`, `PARTITION`, `DIFF`.
    """

    arrangement: str
    branch: int
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SourceView:
    """All that ingest does with the rows of one source.

    Args:
        late: declared columns -> columns of the frame, when rejected rows are to be kept; else None.
        parses: the frame has `BROKEN`, not NULL in records that are broken.
        keeps_broken: it goes to a side output, and is their whole text, or as JSON the columns that queries
            use, where only a value's size breaks them; else the beginning of it.
        rounds: the frame has `ROUNDED`: a value of the record before it was rounded, else NULL.
        check: explains why a record is broken, where something does.
    """

    source: str
    branches: tuple[BranchView, ...]
    late: tuple[tuple[str, str], ...] | None = None
    parses: bool = False
    keeps_broken: bool = False
    rounds: bool = False
    check: RecordCheck | None = None
