"""Rows that the target refuses, put aside: into a table beside it, in the transaction of the tick's rows.

``_watersmeet_refused`` has a row per refused row: where it was to go, its tick, what the server said, and the
row as JSON. Which rows those are is found by halves: a range of rows that is taken as a whole costs one
statement, a range that is refused is cut in two. Of rows that are refused because of each other, such as two
of one unique value, the first one that was staged is taken. A row that refers to what is not there is tried
again when all others were, for it may refer to one that came after it.

What cannot even be staged (a NUL character, a text that the database's encoding lacks) is told by tasks, as
the JSON of the row, in a second staging table.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from watersmeet.errors import EngineError
from watersmeet.postgres_errors import NO_RIGHT, OF_SERVER, state_of
from watersmeet.postgres_server import Cursor, literal, quoted, rows_of
from watersmeet.sinks.postgres.moving import Pieces, Stage, check_staged, within
from watersmeet.sinks.postgres.part import MOST_REFUSED, PART, column_of
from watersmeet.sinks.postgres.target import Target

REFUSED = "_watersmeet_refused"
_RANKED = "_watersmeet_ranked"
_COUNTED = "watersmeet.refused"
_DROPPED, _TOO_MANY = "WM001", "WM002"
"""SQLSTATEs of our own."""
_REFERS_TO_NOTHING = "23503"

_COLUMNS = "target, insert_name, tick, reason, sqlstate, constraint_name, record"


@dataclass(frozen=True)
class RefusedRows:
    """Those of one target."""

    sink: str
    schema: str
    table: str

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(REFUSED)}"

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

    def take_unstaged(self, cursor: Cursor, stage: Stage, pieces: Pieces, insert: str, tick: int) -> int:
        """Rows that tasks could not stage. How many they are.

        Raises:
            EngineError: some of them are gone.
        """
        if not pieces:
            return 0
        check_staged(cursor, stage.unstaged_sql, pieces, self.sink)
        cursor.execute(
            f"INSERT INTO {self.sql} ({_COLUMNS}) SELECT $1, $2, $3, reason, sqlstate, NULL, record::json"
            f" FROM {stage.unstaged_sql} WHERE {within(pieces)}",
            parameters=(self.table, insert, tick),
        )
        return sum(rows for _, rows in pieces)

    def sort_out(
        self, cursor: Cursor, stage: Stage, target: Target, pieces: Pieces, insert: str, tick: int
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
            f" ctid) - 1 AS rank, s.* FROM {stage.sql} AS s WHERE {within(pieces)}"
        )
        cursor.execute(f"CREATE UNIQUE INDEX ON {_RANKED} (rank)")
        count = sum(rows for _, rows in pieces)
        try:
            cursor.execute(self._by_halves(stage, target, count, insert, tick))
        except Exception as error:
            if state_of(error) == _DROPPED:
                raise stage.dropped(target, self.sink) from None
            if state_of(error) == _TOO_MANY:
                raise self._too_many(insert, tick) from None
            raise
        ((refused,),) = rows_of(cursor, f"SELECT current_setting('{_COUNTED}')::bigint")
        cursor.execute(f"DROP TABLE {_RANKED}")  # another sink may sort its rows out in this transaction
        return int(refused)

    def _by_halves(self, stage: Stage, target: Target, rows: int, insert: str, tick: int) -> str:
        """SQL that moves ranked rows; see the module. On the server, for who asks a client would have a
        message to wait for at each half."""
        end = f"$w{secrets.token_hex(8)}$"
        some = f"(SELECT * FROM {_RANKED} WHERE rank >= wm_low AND rank < wm_high)"
        others = ",".join((*OF_SERVER, _DROPPED[:2]))
        of_policy = f"(wm_state = '{NO_RIGHT}' AND {target.row_security})"
        shown = ", ".join(f"{column_of(n)} AS {quoted(name)}" for n, name in enumerate(stage.names))
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
                                AND cardinality(wm_again) <= {MOST_REFUSED} THEN
                            wm_again := wm_again || wm_low;
                        ELSE
                            wm_refused := wm_refused + 1;
                            IF wm_refused > {MOST_REFUSED} OR cardinality(wm_again) > {MOST_REFUSED} THEN
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
        """What is said of rows that were put aside."""
        return (
            f'sink "{self.sink}": {rows:,} row{"s" if rows > 1 else ""} of "{insert}", tick {tick}, refused'
            f" and put aside into {self.sql}; {in_all:,} in this run"
        )

    def _too_many(self, insert: str, tick: int) -> EngineError:
        return EngineError(
            f'the table rejects more than {MOST_REFUSED:,} rows of "{insert}", tick {tick} (sink'
            f' "{self.sink}"). Nothing of the tick was published',
            code="sink-refused-row",
            hint="change the table or the query's result, and run again, which repeats the tick;"
            " 'on_rejected' = 'dead_letter' is for single rows",
        )
