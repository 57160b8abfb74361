"""Names of the options that describe change records: options of SQL, or arguments of Python.

Both have the same values and rules; an error uses the names of the user's language.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Words of messages in the user's language, quoted if necessary.

    Attributes:
        op, insert, delete, diff, key, sequence, tombstones: the names of the options.
        time: the declaration of event times.
        option: the text before the name of an option.
        equals: the text between a name and its value.
        make: what to do with a column of another type.
    """

    op: str
    insert: str
    delete: str
    diff: str
    key: str
    sequence: str
    tombstones: str
    time: str
    option: str
    equals: str
    make: str

    def such_as(self, name: str, value: str) -> str:
        """Return an example of an option with a value."""
        return f"{name}{self.equals}'{value}'"


IN_SQL = Words(
    op="'op.column'",
    insert="'op.insert'",
    delete="'op.delete'",
    diff="'diff.column'",
    key="PRIMARY KEY",
    sequence="'sequence.by'",
    tombstones="'tombstones'",
    time="WATERMARK FOR",
    option="option ",
    equals=" = ",
    make="declare it",
)
IN_PYTHON = Words(
    op="op",
    insert="inserts",
    delete="deletes",
    diff="diff",
    key="key",
    sequence="sequence",
    tombstones="tombstones",
    time="time",
    option="",
    equals="=",
    make="make it",
)
