"""What the statement of a batch answer (`diff.statement`) asks of the SQL that it is written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from watersmeet.types.sql_type import SqlType


@dataclass(frozen=True)
class Named:
    """A column of a statement, ``name``, as it stands there."""

    name: str
    type: SqlType


Names = Mapping[tuple[str, str], Named]
"""By alias ("" for none) and column as expressions mention them."""


class Dialect(Protocol):
    """Every method gives SQL."""

    def expression(self, expr: exp.Expr, names: Names) -> str:
        """The expression. Raises: `Uncommon`, where it may mean something else than on Spark."""
        ...

    def table(self, source: str) -> str:
        """The rows of a source."""
        ...

    def quoted(self, name: str) -> str:
        """A name of the user's."""
        ...

    def row_id(self) -> str:
        """A number that each row has for itself."""
        ...

    def micros(self, value: str, kind: SqlType) -> str:
        """An event time as a whole number (`event_time`), with room for sums beyond 64 bits."""
        ...

    def time(self, micros: str, kind: SqlType) -> str:
        """The event time that such a number is."""
        ...


class Uncommon(Exception):
    """An expression that has no certain meaning in a dialect: the text says which."""
