"""Move staged rows into the target; rows that the server rejects go to a table beside it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.postgres_server import (
    NO_RIGHT,
    OF_SERVER,
    Cursor,
    Server,
    literal,
    quote_identifier,
    rows_of,
    state_of,
)
from watersmeet.sinks.postgres.copy import MAX_REJECTED_ROWS, PART, column_of, shown_row
from watersmeet.sinks.postgres.target import TargetTable, cast_value

# Staged rows on their way into the target: the statements, and, where the server refuses one, which row.

Pieces = Sequence[tuple[int, int]]
"""The numbers of pieces of staged rows that count, and how many rows each has."""


@dataclass(frozen=True)
class Stage:
    """Table in which rows are staged.

    Args:
        names: Names of the columns in the target.
        types: Types of the staged values.
        key: Key of the target. With a key, a last column says that the key no longer has a row.
        unstaged: Second table, for rows that cannot be staged as they are.
    """

    schema: str
    table: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...] = ()
    unstaged: str | None = None

    @property
    def sql(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.table)}"

    @property
    def unstaged_sql(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.unstaged or '')}"

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

    def _values(self, target: TargetTable) -> list[str]:
        return [cast_value(column_of(n), target.types[name]) for n, name in enumerate(self.names)]

    def _deleted_flag(self) -> str:
        return f"s.{column_of(len(self.names))}"

    def _is_same(self, target: TargetTable) -> str:
        """Return the condition that a row of the target (t) has the key of a staged one (s)."""
        values = dict(zip(self.names, self._values(target), strict=True))
        return " AND ".join(f"t.{quote_identifier(name)} = s.{values[name]}" for name in self.key)

    def removal(self, target: TargetTable, source: str) -> str:
        """Build the SQL that deletes the rows of keys that no longer have one."""
        condition = f"{self._deleted_flag()} AND {self._is_same(target)}"
        return f"DELETE FROM {target.sql} AS t USING {source} AS s WHERE {condition}"

    def replace(self, cursor: Cursor, target: TargetTable, source: str) -> bool:
        """Put rows in the places of those of their keys, and take away those of keys that have none.

        Return whether the target has just these rows of the keys then; a trigger, a rule or a policy may keep
        it from that without an error.
        """
        cursor.execute(self.removal(target, source))
        put = self.inserted(cursor, target, source)
        there = f"EXISTS (SELECT FROM {target.sql} AS t WHERE {self._is_same(target)}"
        is_wrong = f"{self._deleted_flag()} = {there})"
        ((wanted, wrong),) = rows_of(
            cursor,
            f"SELECT count(*) FILTER (WHERE NOT {self._deleted_flag()}), count(*) FILTER (WHERE {is_wrong})"
            f" FROM {source} AS s",
        )
        if wrong or put == wanted:
            return bool(wrong == 0)
        # Rows that are there as they are may be passed over: by ON CONFLICT DO NOTHING, or by a trigger.
        values = zip(self.names, self._values(target), strict=True)
        as_they_are = " AND ".join(
            f"t.{quote_identifier(name)}::text IS NOT DISTINCT FROM ({value})::text" for name, value in values
        )
        is_missing = f"NOT {self._deleted_flag()} AND NOT {there} AND {as_they_are})"
        others = f"SELECT 1 FROM {source} AS s WHERE {is_missing} LIMIT 1"
        return not rows_of(cursor, others)

    def insertion(self, target: TargetTable, source: str) -> str:
        """Build the SQL that inserts rows into the target and replaces the rows with their keys."""
        columns = ", ".join(map(quote_identifier, self.names))
        values = ", ".join(self._values(target))
        sql = f"INSERT INTO {target.sql} ({columns}) SELECT {values} FROM {source} AS s"
        if not self.key:
            return sql
        others = [quote_identifier(name) for name in self.names if name not in self.key]
        change = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        action = f"UPDATE SET {change}" if others else "NOTHING"
        key = ", ".join(map(quote_identifier, self.key))
        return f"{sql} WHERE NOT {self._deleted_flag()} ON CONFLICT ({key}) DO {action}"

    def inserted(self, cursor: Cursor, target: TargetTable, source: str) -> int:
        """Do that; how many rows the target took."""
        counted = f"WITH moved AS ({self.insertion(target, source)} RETURNING 1) SELECT count(*) FROM moved"
        return int(rows_of(cursor, counted)[0][0])

    def source(self, pieces: Pieces) -> str:
        """Build a subquery with the rows that count."""
        return f"(SELECT * FROM {self.sql} WHERE {pieces_condition(pieces)})"

    def dropped(self, target: TargetTable, sink: str) -> EngineError:
        """Return the error for a target that stores fewer rows than staged but rejects none."""
        return EngineError(
            f"a trigger or rule of the table {target.sql} ignored some inserts or deletes of this tick"
            f' (sink "{sink}"). Nothing of the tick was published',
            code="sink-refused-row",
            hint="drop the trigger or rule, or filter out such rows, and run again, which repeats the tick",
        )


def publish_rows(cursor: Cursor, stage: Stage, target: TargetTable, pieces: Pieces, sink: str) -> None:
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
    """Check that all staged rows exist.

    Raises:
        EngineError: staged rows are missing.
    """
    sql = f"SELECT {PART}, count(*) FROM {table} WHERE {pieces_condition(pieces)} GROUP BY {PART}"
    staged = dict(rows_of(cursor, sql))
    if staged != dict(pieces):
        wanted, there = sum(rows for _, rows in pieces), sum(staged.values())
        raise EngineError(
            f'{table} has only {there:,} of {wanted:,} staged rows (sink "{sink}"); nothing was published',
            code="staged-rows-gone",
            hint="run again, which repeats the tick; a server crash empties unlogged tables, so set"
            " 'staging' = 'logged' to keep staged rows",
        )


class _RollBack(Exception):
    """Ends a transaction that was only tried."""


def refused_row(server: Server, stage: Stage, target: TargetTable, pieces: Pieces) -> str | None:
    """Find the first staged row that the target rejects on its own.

    Returns None if the target accepts all of them together.
    """
    low, high = 0, sum(rows for _, rows in pieces)

    def part(first: int, rows: int) -> str:
        order = f"ORDER BY {PART}, ctid OFFSET {first} LIMIT {rows}"
        return f"(SELECT * FROM {stage.sql} WHERE {pieces_condition(pieces)} {order})"

    def is_accepted(first: int, rows: int) -> bool:
        def insert(cursor: Cursor) -> None:
            cursor.execute(stage.insertion(target, part(first, rows)))
            raise _RollBack

        try:
            server.run(insert)
        except _RollBack:
            return True
        except Exception as error:
            if not target.refuses_row(error):
                raise
        return False

    if is_accepted(low, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_accepted(low, middle - low) else (low, middle)
    columns = ", ".join(f"{column_of(n)}::text" for n in range(len(stage.names)))
    rows = server.run(lambda cursor: rows_of(cursor, f"SELECT {columns} FROM {part(low, 1)} AS s"))
    texts = [pa.array([value], pa.string()) for value in rows[0]]
    return shown_row(pa.Table.from_arrays(texts, names=list(stage.names)), 0)


def pieces_condition(pieces: Iterable[tuple[int, int]]) -> str:
    """Build the SQL condition that a row belongs to one of these chunks."""
    return f"{PART} = ANY('{{{','.join(str(int(number)) for number, _ in pieces)}}}'::bigint[])"


# Rows that the target refuses, put aside: into a table beside it, in the transaction of the tick's rows.
#
# ``_watersmeet_refused`` has a row per refused row: where it was to go, its tick, what the server said,
# and the row as JSON. Which rows those are is found by halves: a range of rows that is taken as a whole
# costs one statement, a range that is refused is cut in two. Of rows that are refused because of each
# other, such as two of one unique value, the first one that was staged is taken. A row that refers to
# what is not there is tried again when all others were, for it may refer to one that came after it.
#
# What cannot even be staged (a NUL character, a text that the database's encoding lacks) is told by
# tasks, as the JSON of the row, in a second staging table.

REFUSED = "_watersmeet_refused"
_RANKED = "_watersmeet_ranked"
_COUNTED = "watersmeet.refused"
_DROPPED, _TOO_MANY = "WM001", "WM002"
"""SQLSTATEs of our own."""
_REFERS_TO_NOTHING = "23503"

_COLUMNS = "target, insert_name, tick, reason, sqlstate, constraint_name, record"


@dataclass(frozen=True)
class DeadLetterTable:
    """Table of the rows that a target rejected."""

    sink: str
    schema: str
    table: str

    @property
    def sql(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(REFUSED)}"

    def make(self, cursor: Cursor) -> None:
        """Make the table, if it is not there.

        Raises:
            EngineError: the user may not make what rows are sorted out in: better now than later.
        """
        ((may_sort,),) = rows_of(cursor, "SELECT has_database_privilege(current_database(), 'TEMP')::int")
        if not may_sort:
            raise EngineError(
                f"sink \"{self.sink}\" cannot use 'on_rejected' = 'dead_letter': its database user may"
                " not create temporary tables",
                code="sink-failed",
                hint="run GRANT TEMPORARY ON DATABASE … TO the user, or remove 'on_rejected'",
            )
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.sql} (target text NOT NULL, insert_name text NOT NULL, tick"
            " bigint NOT NULL, reason text NOT NULL, sqlstate text, constraint_name text, record json NOT"
            " NULL, at timestamptz NOT NULL DEFAULT now())"
        )

    def insert_unstaged(self, cursor: Cursor, stage: Stage, pieces: Pieces, insert: str, tick: int) -> int:
        """Insert the rows that tasks could not stage, and return their number.

        Raises:
            EngineError: Some of the rows are missing.
        """
        if not pieces:
            return 0
        check_staged(cursor, stage.unstaged_sql, pieces, self.sink)
        cursor.execute(
            f"INSERT INTO {self.sql} ({_COLUMNS}) SELECT $1, $2, $3, reason, sqlstate, NULL, record::json"
            f" FROM {stage.unstaged_sql} WHERE {pieces_condition(pieces)}",
            parameters=(self.table, insert, tick),
        )
        return sum(rows for _, rows in pieces)

    def divide_rows(
        self, cursor: Cursor, stage: Stage, target: TargetTable, pieces: Pieces, insert: str, tick: int
    ) -> int:
        """Put those rows into the target that it takes, and the others aside. How many those are.

        Raises:
            EngineError: rows are gone, the target drops some, or too many are refused.
        """
        check_staged(cursor, stage.sql, pieces, self.sink)
        # What is looked at when a transaction ends would be refused with all rows of it.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            f"CREATE TEMPORARY TABLE {_RANKED} ON COMMIT DROP AS SELECT row_number() OVER (ORDER BY {PART},"
            f" ctid) - 1 AS rank, s.* FROM {stage.sql} AS s WHERE {pieces_condition(pieces)}"
        )
        cursor.execute(f"CREATE UNIQUE INDEX ON {_RANKED} (rank)")
        count = sum(rows for _, rows in pieces)
        try:
            cursor.execute(self._bisect_sql(stage, target, count, insert, tick))
        except Exception as error:
            if state_of(error) == _DROPPED:
                raise stage.dropped(target, self.sink) from None
            if state_of(error) == _TOO_MANY:
                raise EngineError(
                    f'the table rejects more than {MAX_REJECTED_ROWS:,} rows of "{insert}", tick {tick} (sink'
                    f' "{self.sink}"). Nothing of the tick was published',
                    code="sink-refused-row",
                    hint="change the table or the query's result, and run again, which repeats the tick;"
                    " 'on_rejected' = 'dead_letter' is for single rows",
                ) from None
            raise
        ((refused,),) = rows_of(cursor, f"SELECT current_setting('{_COUNTED}')::bigint")
        cursor.execute(f"DROP TABLE {_RANKED}")  # another sink may sort its rows out in this transaction
        return int(refused)

    def _bisect_sql(self, stage: Stage, target: TargetTable, rows: int, insert: str, tick: int) -> str:
        """Build the SQL that moves ranked rows by bisection; see the module.

        It runs on the server, because a client would wait for a message at each half.
        """
        end = f"$w{secrets.token_hex(8)}$"
        some = f"(SELECT * FROM {_RANKED} WHERE rank >= wm_low AND rank < wm_high)"
        others = ",".join((*OF_SERVER, _DROPPED[:2]))
        of_policy = f"(wm_state = '{NO_RIGHT}' AND {target.row_security})"
        shown = ", ".join(f"{column_of(n)} AS {quote_identifier(name)}" for n, name in enumerate(stage.names))
        return f"""DO {end}
            DECLARE
                wm_lows bigint[] := ARRAY[0]; wm_highs bigint[] := ARRAY[{rows}];
                wm_low bigint; wm_high bigint; wm_last int; wm_moved bigint; wm_refused bigint := 0;
                wm_again bigint[] := '{{}}'; wm_fewer bigint := {rows + 1}; wm_waits boolean := true;
                wm_state text; wm_said text; wm_detail text; wm_constraint text;
            BEGIN
                WHILE cardinality(wm_lows) + cardinality(wm_again) > 0 LOOP
                    IF cardinality(wm_lows) = 0 THEN  -- as long as that helps
                        wm_waits := cardinality(wm_again) < wm_fewer;
                        wm_fewer := cardinality(wm_again);
                        SELECT array_agg(rank ORDER BY rank DESC), array_agg(rank + 1 ORDER BY rank DESC)
                            INTO wm_lows, wm_highs FROM unnest(wm_again) AS rank;
                        wm_again := '{{}}';
                    END IF;
                    wm_last := cardinality(wm_lows);
                    wm_low := wm_lows[wm_last]; wm_high := wm_highs[wm_last];
                    wm_lows := wm_lows[:wm_last - 1]; wm_highs := wm_highs[:wm_last - 1];
                    BEGIN
                        WITH moved AS ({stage.insertion(target, some)} RETURNING 1)
                            SELECT count(*) INTO wm_moved FROM moved;
                        IF wm_moved <> wm_high - wm_low THEN
                            RAISE EXCEPTION USING ERRCODE = '{_DROPPED}', MESSAGE = 'dropped';
                        END IF;
                    EXCEPTION WHEN OTHERS OR ASSERT_FAILURE THEN  -- which is none of the others
                        GET STACKED DIAGNOSTICS wm_state = RETURNED_SQLSTATE, wm_said = MESSAGE_TEXT,
                            wm_detail = PG_EXCEPTION_DETAIL, wm_constraint = CONSTRAINT_NAME;
                        IF left(wm_state, 2) = ANY('{{{others}}}') AND NOT {of_policy} THEN RAISE; END IF;
                        IF wm_high - wm_low > 1 THEN  -- the first rows first
                            wm_last := (wm_low + wm_high) / 2;
                            wm_lows := wm_lows || ARRAY[wm_last, wm_low];
                            wm_highs := wm_highs || ARRAY[wm_high, wm_last];
                        ELSIF wm_waits AND wm_state = '{_REFERS_TO_NOTHING}'
                                AND cardinality(wm_again) <= {MAX_REJECTED_ROWS} THEN
                            wm_again := wm_again || wm_low;
                        ELSE
                            wm_refused := wm_refused + 1;
                            IF wm_refused > {MAX_REJECTED_ROWS}
                                    OR cardinality(wm_again) > {MAX_REJECTED_ROWS} THEN
                                RAISE EXCEPTION USING ERRCODE = '{_TOO_MANY}', MESSAGE = 'too many';
                            END IF;
                            INSERT INTO {self.sql} ({_COLUMNS}) SELECT {literal(self.table)},
                                {literal(insert)}, {int(tick)}, wm_said || CASE wm_detail WHEN '' THEN ''
                                ELSE ' (' || wm_detail || ')' END, wm_state, nullif(wm_constraint, ''),
                                row_to_json(one.*) FROM (
                                    SELECT {shown} FROM {_RANKED} WHERE rank = wm_low
                                ) AS one;
                        END IF;
                    END;
                END LOOP;
                PERFORM set_config('{_COUNTED}', wm_refused::text, true);
            END {end}"""

    def told(self, insert: str, tick: int, rows: int, in_all: int) -> str:
        """Return the message about rows that were moved to the dead-letter table.

        Args:
            rows: Number of rows of this tick.
            in_all: Number of rows in this run.
        """
        return (
            f'sink "{self.sink}": {rows:,} row{"s" if rows > 1 else ""} of "{insert}", tick {tick}, refused'
            f" and put aside into {self.sql}; {in_all:,} in this run"
        )
