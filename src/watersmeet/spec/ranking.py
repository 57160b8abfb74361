"""ROW_NUMBER: rows of one partition, numbered in an order, of which the first ones go out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SortKey:
    """What rows are ordered by: a column of theirs, by its ``name``."""

    name: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Ranking:
    """Rows of equal ``partition`` (names of columns; none: all rows) are numbered from 1 in the order of
    ``order``: of what is asked for, and then of all other columns, so that no two rows that differ are equal
    in it; equal rows have as many numbers as they are. ``number``: the column that holds it. ``most``: rows
    with a greater number do not go out; None: nothing has said so yet. ``text``: as it was written.
    """

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    number: str
    most: int | None
    text: str
