"""Manage the staging tables of a run, and the rows staged in them for current ticks.

A table serves one INSERT and one list of columns for the whole run. It is truncated when it has no pending
rows; when a run begins, it drops tables that earlier runs left for the same target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from watersmeet.postgres_server import LOG, Cursor, Server, quote_identifier, rows_of, words
from watersmeet.sinks.base import StagedPart
from watersmeet.sinks.postgres.ledger import PostgresLedger
from watersmeet.sinks.postgres.publishing import Pieces, Stage

Attempt = tuple[str, str, int]
"""Attempt, INSERT and tick."""


@dataclass
class StagedRows:
    """Rows that wait to be published.

    Args:
        unstaged: rows that could not be staged unchanged.
        one_by_one: the database rejected rows; each row is tried separately to find them.
        refused: number of rows rejected in the last attempted transaction.
    """

    stage: Stage
    pieces: Pieces
    unstaged: Pieces
    one_by_one: bool = False
    refused: int = 0

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in [*self.pieces, *self.unstaged])


class StagingTables:
    """Staging tables of a run (see the module).

    Args:
        sink, url: for messages.
        run: id of this run; part of the names of its tables.
        key: key of the target.
        logged: staged rows survive a crash of the server.
        aside: rows that cannot be staged become dead letters.
    """

    def __init__(
        self, server: Server, sink: str, url: str, run: str, key: Sequence[str], *, logged: bool, aside: bool
    ) -> None:
        self._server, self._sink, self._url = server, sink, url
        self._run, self._key, self._logged, self._aside = run, tuple(key), logged, aside
        self._made = 0
        self.tables: dict[tuple[object, ...], Stage] = {}
        self._of: dict[Attempt, Stage] = {}
        self._staged: dict[Attempt, StagedRows] = {}
        self._filled: set[Stage] = set()

    def table_for(
        self,
        attempt: Attempt,
        ledger: PostgresLedger,
        names: Sequence[str],
        types: Sequence[str],
        do: Callable[[Callable[[Cursor], None], str], None],
    ) -> Stage:
        """Return the table in which rows of these columns are staged, created if necessary.

        Args:
            do: Function that runs a transaction; its second argument is the purpose, for errors.
        """
        asked = (attempt[1], tuple(names), tuple(types))
        if asked not in self.tables:
            table = f"{ledger.staging}{self._run[:8]}_{self._made}"
            self._made += 1
            unstaged = f"{table}_u" if self._aside else None
            stage = Stage(ledger.schema, table, tuple(names), tuple(types), self._key, unstaged)
            do(lambda cursor: stage.make(cursor, logged=self._logged), "be written")
            self.tables[asked] = stage
        self._of[attempt] = self.tables[asked]
        return self.tables[asked]

    def take(self, attempt: Attempt, parts: Sequence[StagedPart]) -> None:
        """Record what tasks have staged and reported."""
        pieces, unstaged = (
            [(int(number), int(rows)) for part in parts for number, rows in part.get(kind, ())]
            for kind in ("parts", "unstaged")
        )
        stage = self._of[attempt]
        self._staged[attempt] = StagedRows(stage, pieces, unstaged)
        if pieces or unstaged:
            self._filled.add(stage)

    def staged(self, attempt: Attempt) -> StagedRows | None:
        """Return the staged rows of an attempt; None if there are none or they are published."""
        return self._staged.get(attempt)

    def done(self, attempt: Attempt) -> StagedRows | None:
        """Return and forget the staged rows of an attempt, which are now published.

        Returns None if they were published earlier.
        """
        staged = self._staged.pop(attempt, None)
        if staged is not None:
            self._of.pop(attempt, None)
            self._clear(self._filled)
        return staged

    def discard(self, attempt: str) -> None:
        """Discard everything that an attempt staged."""
        self._staged = {key: value for key, value in self._staged.items() if key[0] != attempt}
        self._of = {key: value for key, value in self._of.items() if key[0] != attempt}
        self._clear(self.tables.values())  # tasks of it may have staged rows and not said so

    def drop(self) -> None:
        """Drop all staging tables at the end of the run."""
        for stage in self.tables.values():
            self._try_statement(f"DROP TABLE IF EXISTS {', '.join(stage.tables)}")
        self.tables.clear()

    def drop_leftovers(self, ledger: PostgresLedger, named: Iterable[str]) -> None:
        """Drop tables that earlier runs left for this target, which this run now owns."""
        for table in named:
            self._try_statement(
                f"DROP TABLE IF EXISTS {quote_identifier(ledger.schema)}.{quote_identifier(table)}"
            )

    def _clear(self, stages: Iterable[Stage]) -> None:
        """Truncate those of ``stages`` that have no pending rows.

        A table that cannot be truncated is not used again.
        """
        waiting, chosen = set(self._of.values()), set(stages)
        for asked, stage in list(self.tables.items()):
            if stage in chosen and stage not in waiting:
                if not self._try_statement(f"TRUNCATE {', '.join(stage.tables)}"):
                    del self.tables[asked]
                self._filled.discard(stage)

    def _try_statement(self, sql: str) -> bool:
        """Run a statement that can be postponed, and return True if it succeeded.

        It does not wait for tasks that are still writing.
        """

        def do(cursor: Cursor) -> None:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            cursor.execute(sql)

        try:
            self._server.run(do, 0)
        except Exception as error:
            LOG.debug('sink "%s": %s: %s', self._sink, sql, words(error, self._url))
            return False
        return True


def leftovers(cursor: Cursor, ledger: PostgresLedger) -> list[str]:
    """List the names of staging tables for this target."""
    sql = """SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname::text = $1 AND starts_with(c.relname::text, $2) AND c.relkind = 'r'"""
    return [table for (table,) in rows_of(cursor, sql, ledger.schema, ledger.staging)]
