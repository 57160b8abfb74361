"""Which columns of the scan's frame make up which branch's rows: what ingest tasks are told."""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.names import ours

TAG, BROKEN = ours("tag"), ours("broken")
LATE = "late:"


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
        broken: the frame's column with the text of broken records, when they are to be kept.
    """

    source: str
    branches: tuple[BranchView, ...]
    late: tuple[tuple[str, str], ...] | None = None
    broken: str | None = None


@dataclass(frozen=True)
class Split:
    """Per source, by its tag (its number in the union). A row of source n has tag n, a broken one −1 − n."""

    sources: tuple[SourceView, ...]
    slots: tuple[str, ...] = field(default=())


__all__ = ["BROKEN", "LATE", "TAG", "BranchView", "SourceView", "Split"]
