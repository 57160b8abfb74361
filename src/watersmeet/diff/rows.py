"""A SELECT that is part of a batch answer, and what it knows of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.diff.dialect import Names
from watersmeet.event_time import Watermark
from watersmeet.types.sql_type import SqlType

_BEYOND = 10**25
"""More than any event time, with whatever is added to it."""


@dataclass(frozen=True)
class Rows:
    """``names``: what expressions above it may mention; ``times``: its event times, (column, type, watermark
    key); ``here``: of each visible input a column that is TRUE, NULL where it was padded; ``pending``:
    columns that are TRUE in rows that the job may put out later; ``waits``: any row of it may be such one,
    though nothing of it is padded."""

    sql: str
    names: Names
    times: tuple[tuple[str, SqlType, str], ...] = ()
    here: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    waits: bool = False


def number(mark: Watermark) -> str:
    """A watermark as a number of SQL."""
    if isinstance(mark, float):
        return str(_BEYOND if mark > 0 else -_BEYOND)
    return str(mark)
