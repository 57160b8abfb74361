"""Columns of a source's frame, and which of them make up each branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from watersmeet.errors import EngineError, near_names, raise_all
from watersmeet.names import ours
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.spec.model import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from watersmeet.runtime.spark.broken_records import RecordCheck


# Whether what a source reads has the columns that are declared.


def check_columns(what: str, source: Source, columns: Sequence[str], where: str) -> None:
    """Raises: EngineError naming the declared columns that ``where`` ("the files have") has not."""
    column_names = {name.lower() for name in columns}
    missing = [column.name for column in source.columns if column.name.lower() not in column_names]
    if missing:
        raise EngineError(
            f"{what}: {where} no column {', '.join(missing)}",
            code="wrong-columns",
            hint=near_names(missing[0], columns) or f"its columns are {', '.join(columns)}",
        )


def check_types(spark: SparkSession, what: str, source: Source, frame: DataFrame) -> None:
    """Raises: EngineError naming the declared columns that ``frame`` has of other types; it has them all."""
    there = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    nulls = [f"CAST(NULL AS {column.type}) AS {quote_name(column.name)}" for column in source.columns]
    wanted = {field.name: field.dataType.simpleString() for field in spark.range(0).selectExpr(*nulls).schema}
    raise_all(
        [
            EngineError(
                f'{what}: column "{name}" is {there[name.lower()].upper()}, but declared {type_.upper()}',
                code="wrong-columns",
                hint="declare the type that it has, and cast it in a view",
            )
            for name, type_ in wanted.items()
            if there[name.lower()] != type_
        ]
    )


# Which columns of a source's frame make up which branch's rows: what ingest tasks are told.

BROKEN, ROUNDED = ours("broken"), ours("rounded")
FILE = ours("file")
"""The file that a row is of, as Spark calls it."""
FILE_NUMBER, BROKEN_FILE = ours("file_number"), ours("broken_file")
"""A number that is made of it; itself, where the record is broken."""
SKIPPED, TRUNCATED = ours("skipped"), ours("truncated")
"""In the place of a broken record's text: it says nothing of rows; it says that the table was emptied, which
is to stop the job."""
BROKEN_CHARACTERS = 200
"""So many of a broken record are told."""
SAMPLE_CHARACTERS = 4_000
"""So many of it are read, to find out why it is broken: of a longer one nothing is said."""
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
