"""What people call that by which records say what becomes of rows: options of SQL, or arguments of Python.

What may be said, and what goes with what, is the same for both; problems are told in the words of whoever
said it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """``op``, ``insert``, ``delete``, ``diff``, ``key``, ``sequence``, ``tombstones``: as in messages, in
    quotes if need be. ``time``: what says event times. ``option``: stands before what is an option.
    ``equals``: between a name and its value. ``make``: what to do with a column of another type.
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
