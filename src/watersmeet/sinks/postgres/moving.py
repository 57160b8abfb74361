"""Staged rows on their way into the target: the statements, and, where the server refuses one, which row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.postgres_server import Cursor, Server, quoted, rows_of
from watersmeet.sinks.postgres.part import PART, column_of, shown_row
from watersmeet.sinks.postgres.target import Target
from watersmeet.sinks.postgres.types import casted

Pieces = Sequence[tuple[int, int]]
"""The numbers of pieces of staged rows that count, and how many rows each has."""


@dataclass(frozen=True)
class Stage:
    """A table that rows are staged in.

    Args:
        names: of the columns in the target.
        types: of the staged values.
        key: of the target; then behind the others is a column that says that a key has no row any more.
        unstaged: a second table, for rows that cannot be staged as they are.
    """

    schema: str
    table: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...] = ()
    unstaged: str | None = None

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def unstaged_sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.unstaged or '')}"

    @property
    def tables(self) -> list[str]:
        """Its tables, in SQL."""
        return [self.sql] if self.unstaged is None else [self.sql, self.unstaged_sql]

    def make(self, cursor: Cursor, *, logged: bool) -> None:
        """Make it, if it is not there."""
        columns = ", ".join(f"{column_of(number)} {type_}" for number, type_ in enumerate(self.types))
        kind = "" if logged else "UNLOGGED "
        for table, told in zip(
            self.tables, (columns, "record text, reason text, sqlstate text"), strict=False
        ):
            cursor.execute(
                f"CREATE {kind}TABLE IF NOT EXISTS {table} ({told}, {PART} bigint)"
                " WITH (autovacuum_enabled = false)"
            )

    def _values(self, target: Target) -> list[str]:
        return [casted(column_of(n), target.types[name]) for n, name in enumerate(self.names)]

    def _is_gone(self) -> str:
        return f"s.{column_of(len(self.names))}"

    def _is_same(self, target: Target) -> str:
        """Return the condition that a row of the target (t) has the key of a staged one (s)."""
        values = dict(zip(self.names, self._values(target), strict=True))
        return " AND ".join(f"t.{quoted(name)} = s.{values[name]}" for name in self.key)

    def removal(self, target: Target, source: str) -> str:
        """Takes the rows of keys that have none any more."""
        condition = f"{self._is_gone()} AND {self._is_same(target)}"
        return f"DELETE FROM {target.sql} AS t USING {source} AS s WHERE {condition}"

    def replace(self, cursor: Cursor, target: Target, source: str) -> bool:
        """Put rows in the places of those of their keys, and take away those of keys that have none.

        Return whether the target has just these rows of the keys then; a trigger, a rule or a policy may keep
        it from that without an error.
        """
        cursor.execute(self.removal(target, source))
        put = self.inserted(cursor, target, source)
        there = f"EXISTS (SELECT FROM {target.sql} AS t WHERE {self._is_same(target)}"
        is_wrong = f"{self._is_gone()} = {there})"
        ((wanted, wrong),) = rows_of(
            cursor,
            f"SELECT count(*) FILTER (WHERE NOT {self._is_gone()}), count(*) FILTER (WHERE {is_wrong})"
            f" FROM {source} AS s",
        )
        if wrong or put == wanted:
            return bool(wrong == 0)
        # Rows that are there as they are may be passed over: by ON CONFLICT DO NOTHING, or by a trigger.
        values = zip(self.names, self._values(target), strict=True)
        as_they_are = " AND ".join(
            f"t.{quoted(name)}::text IS NOT DISTINCT FROM ({value})::text" for name, value in values
        )
        is_missing = f"NOT {self._is_gone()} AND NOT {there} AND {as_they_are})"
        others = f"SELECT 1 FROM {source} AS s WHERE {is_missing} LIMIT 1"
        return not rows_of(cursor, others)

    def insertion(self, target: Target, source: str) -> str:
        """Puts rows there, in the place of those of their keys."""
        columns = ", ".join(map(quoted, self.names))
        values = ", ".join(self._values(target))
        sql = f"INSERT INTO {target.sql} ({columns}) SELECT {values} FROM {source} AS s"
        if not self.key:
            return sql
        others = [quoted(name) for name in self.names if name not in self.key]
        change = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        action = f"UPDATE SET {change}" if others else "NOTHING"
        key = ", ".join(map(quoted, self.key))
        return f"{sql} WHERE NOT {self._is_gone()} ON CONFLICT ({key}) DO {action}"

    def inserted(self, cursor: Cursor, target: Target, source: str) -> int:
        """Do that; how many rows the target took."""
        counted = f"WITH moved AS ({self.insertion(target, source)} RETURNING 1) SELECT count(*) FROM moved"
        return int(rows_of(cursor, counted)[0][0])

    def source(self, pieces: Pieces) -> str:
        """The rows that count, as part of a statement."""
        return f"(SELECT * FROM {self.sql} WHERE {within(pieces)})"

    def dropped(self, target: Target, sink: str) -> EngineError:
        """What is said when the target takes fewer rows than there are, and refuses none."""
        return EngineError(
            f"a trigger or rule of the table {target.sql} ignored some inserts or deletes of this tick"
            f' (sink "{sink}"). Nothing of the tick was published',
            code="sink-refused-row",
            hint="drop the trigger or rule, or filter out such rows, and run again, which repeats the tick",
        )


def move(cursor: Cursor, stage: Stage, target: Target, pieces: Pieces, sink: str) -> None:
    """Put the rows of ``pieces`` into the target.

    Raises:
        EngineError: rows are gone, there are more than were staged, or the table drops some, or keeps those
            of keys that were taken away.
    """
    check_staged(cursor, stage.sql, pieces, sink)
    source = stage.source(pieces)
    if stage.key:
        is_done = stage.replace(cursor, target, source)
    else:
        is_done = stage.inserted(cursor, target, source) == sum(rows for _, rows in pieces)
    if not is_done:
        raise stage.dropped(target, sink)


def check_staged(cursor: Cursor, table: str, pieces: Pieces, sink: str) -> None:
    """Raises: EngineError, when not all rows are there that were staged."""
    sql = f"SELECT {PART}, count(*) FROM {table} WHERE {within(pieces)} GROUP BY {PART}"
    staged = dict(rows_of(cursor, sql))
    if staged != dict(pieces):
        wanted, there = sum(rows for _, rows in pieces), sum(staged.values())
        raise EngineError(
            f'{table} has only {there:,} of {wanted:,} staged rows (sink "{sink}"); nothing was published',
            code="staged-rows-gone",
            hint="run again, which repeats the tick; a server crash empties unlogged tables, so set"
            " 'staging' = 'logged' to keep staged rows",
        )


class _NotKept(Exception):
    """Ends a transaction that was only tried."""


def refused_row(server: Server, stage: Stage, target: Target, pieces: Pieces) -> str | None:
    """The first staged row that the target does not take by itself; None: it takes all of them together."""
    low, high = 0, sum(rows for _, rows in pieces)

    def part(first: int, rows: int) -> str:
        order = f"ORDER BY {PART}, ctid OFFSET {first} LIMIT {rows}"
        return f"(SELECT * FROM {stage.sql} WHERE {within(pieces)} {order})"

    def is_taken(first: int, rows: int) -> bool:
        def insert(cursor: Cursor) -> None:
            cursor.execute(stage.insertion(target, part(first, rows)))
            raise _NotKept

        try:
            server.run(insert)
        except _NotKept:
            return True
        except Exception as error:
            if not target.refuses_row(error):
                raise
        return False

    if is_taken(low, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(low, middle - low) else (low, middle)
    columns = ", ".join(f"{column_of(n)}::text" for n in range(len(stage.names)))
    rows = server.run(lambda cursor: rows_of(cursor, f"SELECT {columns} FROM {part(low, 1)} AS s"))
    texts = [pa.array([value], pa.string()) for value in rows[0]]
    return shown_row(pa.Table.from_arrays(texts, names=list(stage.names)), 0)


def within(pieces: Iterable[tuple[int, int]]) -> str:
    """The condition that a row is of one of these pieces."""
    return f"{PART} = ANY('{{{','.join(str(int(number)) for number, _ in pieces)}}}'::bigint[])"
