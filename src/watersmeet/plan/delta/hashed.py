"""Rule: by which of its equalities a look-up finds rows. The others are asked of what it finds.

Rows of an input are kept once for each set of columns by which they are found. So a look-up goes by few:
by those that make one row known at most, if the input has such; and where the equalities come from several
inputs, by those of one of them that another path goes by alone, if so a copy less is kept. Then a path looks
at no more rows than it would find if the other equalities were asked in a later step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

Columns = tuple[str, ...]
"""Kept columns of the input that is looked up, in order."""

OneRow = Callable[[str, Collection[str]], bool]
"""Whether an input, by its alias, has at most one row per values of these columns."""

Sources = frozenset[str]
"""Aliases from which the other side of an equality comes."""


@dataclass(frozen=True)
class Equalities:
    """Those of a look-up of the input ``alias``, in the order of its columns: each of one of its columns."""

    alias: str
    parts: tuple[tuple[Sources, str], ...]

    @property
    def columns(self) -> Columns:
        return tuple(dict.fromkeys(column for _, column in self.parts))

    @property
    def by_source(self) -> dict[Sources, Columns]:
        """The columns by the inputs with which they are equated."""
        sources = dict.fromkeys(source for source, _ in self.parts)
        return {
            source: tuple(dict.fromkeys(column for other, column in self.parts if other == source))
            for source in sources
        }


def hashed_by(lookups: Sequence[Equalities], one_row: OneRow) -> list[Columns]:
    """Per look-up, of all paths in the query's order, the columns by which it finds rows."""
    least = [_of_one_row(asked, one_row) or asked.columns for asked in lookups]
    alone: dict[str, dict[Sources, Columns]] = {}
    for asked, columns in zip(lookups, least, strict=True):
        sources = asked.by_source
        if list(sources.values()) == [columns]:
            alone.setdefault(asked.alias, {}).update(sources)
    fewer = [
        _of_one_source(asked, alone.get(asked.alias, {})) if columns == asked.columns else None
        for asked, columns in zip(lookups, least, strict=True)
    ]
    kept = {
        (asked.alias, columns)
        for asked, columns, instead in zip(lookups, least, fewer, strict=True)
        if instead is None
    }
    return [
        columns if instead is None or (asked.alias, columns) in kept else instead
        for asked, columns, instead in zip(lookups, least, fewer, strict=True)
    ]


def _of_one_row(asked: Equalities, one_row: OneRow) -> Columns:
    """Those without which there could be several rows; none: there may be several anyway."""
    columns = asked.columns
    if not one_row(asked.alias, columns):
        return ()
    for column in columns:
        fewer = tuple(other for other in columns if other != column)
        if fewer and one_row(asked.alias, fewer):
            columns = fewer
    return columns


def _of_one_source(asked: Equalities, alone: dict[Sources, Columns]) -> Columns | None:
    """Of the sources by which alone some path finds rows the one with most columns, then the first."""
    sources = asked.by_source
    if len(sources) < 2:
        return None
    usable = [columns for source, columns in alone.items() if sources.get(source) == columns]
    return max(usable, key=len, default=None)
