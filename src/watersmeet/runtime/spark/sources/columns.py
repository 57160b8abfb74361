"""Check a source's columns, and name those that the engine adds to its frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from watersmeet.errors import EngineError, near_names, raise_all
from watersmeet.names import ours
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.spec.model import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Whether what a source reads has the columns that are declared.


def check_columns(what: str, source: Source, columns: Sequence[str], where: str) -> None:
    """Check that all declared columns exist.

    Args:
        where: the holder of the columns and its verb, for the message: "the files have".

    Raises:
        EngineError: declared columns are missing; the message names them.
    """
    column_names = {name.lower() for name in columns}
    missing = [column.name for column in source.columns if column.name.lower() not in column_names]
    if missing:
        raise EngineError(
            f"{what}: {where} no column {', '.join(missing)}",
            code="wrong-columns",
            hint=near_names(missing[0], columns) or f"its columns are {', '.join(columns)}",
        )


def check_types(spark: SparkSession, what: str, source: Source, frame: DataFrame) -> None:
    """Check that the columns of ``frame`` have their declared types; all of them must exist.

    Raises:
        EngineError, SeveralErrors: columns have other types; the message names them.
    """
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
