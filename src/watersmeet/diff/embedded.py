"""Batch answers in DuckDB, in this process: of queries all of whose expressions mean the same there and on
Spark (`duckdb_sql`), over rows that are at hand as Arrow tables or Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.diff.database import quoted, ran, types_of
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.diff.known import Known
from watersmeet.diff.statement import statement
from watersmeet.spec.model import Query

_TYPES = {"TIMESTAMP WITH TIME ZONE"}


def without_zone(db: Any, relation: str, columns: Mapping[str, str]) -> str:
    """A relation's columns under other names, times with a zone as they are in UTC.

    Args:
        columns: own name -> name there; names of the engine are not quoted.
    """
    types = types_of(db, relation)
    shown = []
    for own, there in columns.items():
        value = quoted(there)
        if types.get(there) in _TYPES:
            value = f"timezone('UTC', {value})"
        shown.append(f"{value} AS {quoted(own)}")
    return f"(SELECT {', '.join(shown)} FROM {relation} r)"


@dataclass(frozen=True)
class Embedded:
    """``tables``: per source the name of its rows; ``ordered``: those with an order (`statement`)."""

    db: Any
    tables: Mapping[str, str]
    ordered: frozenset[str] = frozenset()
    allowed_lateness: int = 0

    def answer(self, query: Query, known: Known, name: str, without: frozenset[str] = frozenset()) -> str:
        """A table of that name with the batch answer. Raises: Uncommon, SpecError."""
        sql = statement(
            query,
            DuckDb(self.tables),
            known,
            ordered=self.ordered,
            allowed_lateness=self.allowed_lateness,
            without=without,
        )
        ran(self.db, f"CREATE OR REPLACE TABLE {quoted(name)} AS {sql}")
        return quoted(name)
