"""Records of a relation that say what becomes of rows: the arguments that say it, as SQL's options do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watersmeet.errors import SqlError
from watersmeet.parser.ddl.columns import checked_key
from watersmeet.parser.ddl.options import SourceFields
from watersmeet.relations.expressions import names_of, whole_error
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.model import Column, EventTime
from watersmeet.spec.option_names import IN_PYTHON
from watersmeet.spec.options.changes import Said, change_said, refuse_time_of

Values = str | int | Sequence[str | int]
"""One, or several."""


@dataclass(frozen=True)
class Changes:
    """Change options of a source.

    They name the column by which records insert and delete, or have a multiplicity, and the key
    columns.
    """

    op: str | None = None
    diff: str | None = None
    inserts: Values | None = None
    deletes: Values | None = None
    key: str | Sequence[str] = ()

    @property
    def are_said(self) -> bool:
        """Rows do not only come."""
        return self.op is not None or self.diff is not None or bool(self.key)

    def of(
        self,
        name: str,
        columns: Sequence[Column],
        connector: str,
        times: Sequence[EventTime],
        fields: SourceFields,
    ) -> tuple[ChangeColumn | None, PrimaryKey | None]:
        """Return the change column and the primary key of the source ``name``.

        Args:
            fields: options with ``sequence_by`` and ``tombstones``.

        Raises:
            SqlError: an option is wrong.
        """

        def error(message: str, hint: str | None) -> SqlError:
            return SqlError(f'"{name}": {message}', code="bad-argument", hint=hint)

        for label, column in (("op", self.op), ("diff", self.diff)):
            if column is not None and not (isinstance(column, str) and column.strip()):
                raise whole_error(label, f"is {column!r}", "pass the name of a column")
        inserts, deletes = _words(self.inserts, "inserts"), _words(self.deletes, "deletes")
        said = Said(self.op, self.diff, inserts, deletes, keyed=bool(self.key))
        change = change_said(said, columns, error, IN_PYTHON)
        refuse_time_of(
            name, change, times, lambda message, hint: SqlError(message, code="wrong-type", hint=hint)
        )
        return change, self._key(name, columns, connector, change, times, fields)

    def _key(
        self,
        name: str,
        columns: Sequence[Column],
        connector: str,
        change: ChangeColumn | None,
        times: Sequence[EventTime],
        fields: SourceFields,
    ) -> PrimaryKey | None:
        def wrong(message: str, hint: str | None) -> SqlError:
            return SqlError(f'"{name}": {message}', code="primary-key", hint=hint)

        if self.key:
            written = names_of(self.key, "key")
            return checked_key(name, written, columns, connector, change, times, fields, wrong, IN_PYTHON)
        for label, given in (("sequence", fields.sequence_by), ("tombstones", fields.tombstones)):
            if given is not None:
                raise wrong(f"{label} needs a key", "key='id'")
        return None


def _words(given: Values | None, label: str) -> tuple[str, ...] | None:
    """Return values of the column as texts."""
    if given is None:
        return None
    is_one = isinstance(given, str | int)
    values = [given] if is_one else list(given) if isinstance(given, Iterable) else []
    if not values or any(isinstance(value, bool) or not isinstance(value, str | int) for value in values):
        raise whole_error(label, f"is {given!r}", f"values of the column: {label}=['I', 'U'], or {label}=1")
    words = tuple(value.strip() if isinstance(value, str) else str(value) for value in values)
    if "" in words:
        raise whole_error(label, f"has an empty entry: {given!r}", "remove it")
    return words
