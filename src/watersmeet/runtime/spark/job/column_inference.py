"""Columns that a job's text leaves to its files: inferred once, said, and held on to by the job's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watersmeet.errors import format_count
from watersmeet.objects.remote import RemoteStore
from watersmeet.plan.identity.source_location import place_of
from watersmeet.spec.model import Column, Source


class ColumnInference:
    """Column inference that `parse_job` calls for sources without declared columns.

    ``inferred``: the inferred columns by source name.

    Args:
        checkpoint: a directory that may contain an earlier run of the job; columns inferred then are
            reused.
        store: the place of the state, if it is not in that directory.
        say: receives messages for users about the inferred columns.
    """

    def __init__(
        self,
        checkpoint: str | None = None,
        say: Callable[[str], None] | None = None,
        store: RemoteStore | None = None,
    ) -> None:
        self._store = store
        self.inferred: dict[str, tuple[Column, ...]] = {}
        self._checkpoint = checkpoint
        self._told = say
        self._kept: dict[str, tuple[Column, ...]] | None = None
        self._places: dict[str, str] = {}

    def __call__(self, source: Source, clauses: Sequence[str]) -> tuple[Column, ...]:
        kept = self._load_stored_columns(source)
        if kept is not None:
            self.inferred[source.name] = kept
            self._say(
                f'note: "{source.name}" keeps the columns that were inferred when the job first ran: '
                + ", ".join(map(_format_column, kept))
            )
            return kept
        from watersmeet.runtime.files.inference import infer

        inferred = infer(source)
        self.inferred[source.name] = inferred.columns
        sample = "" if inferred.records is None else f" and {format_count(inferred.records, 'record')}"
        files = format_count(inferred.files, "file")
        self._say(f'note: the columns of "{source.name}" are inferred from {files}{sample}:')
        self._say(format_declaration(source.name, inferred.columns, clauses))
        for note in inferred.notes:
            self._say(f"note: {note}")
        return inferred.columns

    def _load_stored_columns(self, source: Source) -> tuple[Column, ...] | None:
        """Load the source's columns from the job's state.

        Returns:
            The columns; None if there are none, or if they contradict the declaration.
        """
        if self._checkpoint is None:
            return None
        if self._kept is None:
            from watersmeet.runtime.files.inference import load_inferred_columns
            from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
            from watersmeet.state.manifest import load_newest

            manifest = load_newest(Checkpoint(self._checkpoint, self._store).store)
            self._kept = load_inferred_columns({} if manifest is None else manifest.host)
            self._places = {} if manifest is None else manifest.places
        if self._places.get(source.name) not in (None, place_of(source)):
            return None
        columns = self._kept.get(source.name)
        if columns is None or not set(source.columns) <= set(columns):
            return None
        return columns

    def _say(self, words: str) -> None:
        if self._told is not None:
            self._told(words)


def format_declaration(name: str, columns: Sequence[Column], clauses: Sequence[str]) -> str:
    """Format a table declaration that the user can copy, without its options.

    >>> from watersmeet.types.sql_type import DATE, STRING
    >>> columns = [Column("k", STRING), Column("at day", DATE)]
    >>> print(format_declaration("a", columns, ["WATERMARK FOR `at day`"]))
      CREATE TABLE a (
        k STRING,
        `at day` DATE,
        WATERMARK FOR `at day`
      ) WITH (…)
    """
    parts = ",\n    ".join([*map(_format_column, columns), *(" ".join(clause.split()) for clause in clauses)])
    return f"  CREATE TABLE {_quote_name(name)} (\n    {parts}\n  ) WITH (…)"


def _format_column(column: Column) -> str:
    return f"{_quote_name(column.name)} {column.type}"


def _quote_name(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and name.upper() not in _WORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


_WORDS = frozenset({"WATERMARK", "PRIMARY", "CONSTRAINT"})
"""Names that mean something else in a column list."""
