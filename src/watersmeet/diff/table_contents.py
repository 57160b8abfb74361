"""Compute in DuckDB the contents of a changing table after all records that were read of it.

If the records alone do not determine the contents, the table is rejected, so that no false difference is
reported.

Without a primary key, the multiplicity of a row is the sum of the diffs of its records. If at any point more
rows were deleted than inserted, the query may have ignored deletes of absent rows, depending on the rows that
it retains; such a table is rejected. With a primary key, the last record counts, or, with a sequence, the
last record that is not older than one before it. A delete that the job may have forgotten decides nothing,
and neither do files whose order is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.diff.bags import fetch_rows, quote_identifier, text
from watersmeet.diff.statement import AT, PART
from watersmeet.errors import SpecError
from watersmeet.names import ours
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import MOST_TIMES

FILE, POSITION = ours("file"), ours("position")
"""Columns of records beside `AT`, here the batch that they were read in: in which file (its number,
from 1 on), and where in it."""

MAX_ROWS = 20_000_000
_DIFF, _COUNT, _SUM, _LEAST = ours("d"), ours("n"), ours("sum"), ours("least")
"""Names that no column of a table has."""


def fold_changes(db: Any, source: Source, records: str, table: str, orders: Sequence[Sequence[int]]) -> None:
    """Create a table of the source's contents, with its columns of rows, `PART` and `AT`.

    Args:
        records: a table with the source's declared columns, `AT`, `FILE` and `POSITION`.
        orders: for a table with a primary key, all orders in which its files may have counted: the rank of
            each file; files whose order is unknown have the same rank.

    Raises:
        SpecError: the records do not determine the contents.
    """
    key, change = source.primary_key, source.change_column
    given = f"(SELECT *, {'1' if change is None else _diff(change)} AS {_DIFF} FROM {records} r)"
    rows = [quote_identifier(column.name) for column in source.row_columns]
    if key is None:
        _fold_rows(db, source, given, rows, table)
    else:
        _fold_by_key(db, source, key, given, rows, table, orders)


def _diff(change: ChangeColumn) -> str:
    """Build SQL for the multiplicity of a record's row; NULL for a broken record."""
    column = quote_identifier(change.column)
    if change.is_diff:
        times = f"TRY_CAST({column} AS BIGINT)"
        return f"CASE WHEN {times} BETWEEN -{MOST_TIMES} AND {MOST_TIMES} THEN {times} END"
    arms = " ".join(
        f"WHEN CAST({column} AS VARCHAR) IN ({', '.join(map(text, words))}) THEN {diff}"
        for words, diff in ((change.inserts, 1), (change.deletes, -1))
    )
    return f"CASE {arms} END"


def _fold_rows(db: Any, source: Source, given: str, rows: list[str], table: str) -> None:
    listed = ", ".join(rows)
    by_batch = (
        f"(SELECT {listed}, {AT}, sum({_DIFF}) AS {_DIFF} FROM {given} r WHERE {_DIFF} IS NOT NULL"
        f" GROUP BY {listed}, {AT})"
    )
    summed = ours("summed")
    fetch_rows(
        db,
        f"CREATE OR REPLACE TABLE {summed} AS SELECT {listed}, sum({_DIFF}) AS {_COUNT}, min({_SUM}) AS"
        f" {_LEAST} FROM (SELECT *, sum({_DIFF}) OVER (PARTITION BY {listed} ORDER BY {AT} ROWS UNBOUNDED"
        f" PRECEDING) AS {_SUM} FROM {by_batch} r) r GROUP BY {listed}",
    )
    ((below, total),) = fetch_rows(
        db, f"SELECT count(*) FILTER ({_LEAST} < 0), coalesce(sum({_COUNT}), 0) FROM {summed}"
    )
    if below:
        raise _undetermined_error(
            source,
            f"rows of it ({below:,}) were deleted more often than they had come, and whether these"
            " deletes counted goes by what a query keeps of its rows",
        )
    if total > MAX_ROWS:
        raise _undetermined_error(source, f"it holds {total:,} rows, more than {MAX_ROWS:,}")
    _make(db, table, rows, f"{summed} r, unnest(range(CAST({_COUNT} AS BIGINT)))")


def _fold_by_key(
    db: Any,
    source: Source,
    key: PrimaryKey,
    given: str,
    rows: list[str],
    table: str,
    orders: Sequence[Sequence[int]],
) -> None:
    keys = ", ".join(map(quote_identifier, key.columns))
    clear = [f"{quote_identifier(name)} IS NOT NULL" for name in key.columns]
    clear += [f"{_DIFF} <> 0"]
    if key.sequence is not None:
        clear.append(f"({_DIFF} < 0 OR {quote_identifier(key.sequence)} IS NOT NULL)")
    records = f"(SELECT * FROM {given} r WHERE {' AND '.join(clear)})"
    unordered = _count_unordered_keys(db, key, records, keys, orders)
    if unordered:
        raise _undetermined_error(
            source,
            f"keys of it ({unordered:,}) have records in several files, and which of these counted last is"
            " not known",
        )
    rank = _rank(orders[0])
    order = f"PARTITION BY {keys} ORDER BY {rank}, {POSITION}"
    before = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    stale, last = ours("stale"), ours("last")
    is_stale = "FALSE"
    if key.sequence is not None:
        sequence = quote_identifier(key.sequence)
        is_stale = f"coalesce({sequence} < max({sequence}) {before}, FALSE)"
    judged = ours("judged")
    fetch_rows(
        db,
        f"CREATE OR REPLACE TABLE {judged} AS SELECT *, last_value(CASE WHEN NOT {stale} THEN {_DIFF} END"
        f" IGNORE NULLS) {before} AS {last} FROM (SELECT *, {is_stale} AS {stale} FROM {records} r) r",
    )
    ((forgotten,),) = fetch_rows(db, f"SELECT count(*) FROM {judged} WHERE {stale} AND {last} < 0")
    if forgotten:
        raise _undetermined_error(
            source,
            f"changes of it ({forgotten:,}) came after a delete that is newer, and whether the job remembered"
            " that is not known",
        )
    counts = f"(SELECT * FROM {judged} r WHERE NOT {stale})"
    newest = (
        f"(SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {rank} DESC, {POSITION} DESC) AS"
        f" {_COUNT} FROM {counts} r)"
    )
    _make(db, table, rows, f"{newest} r WHERE {_COUNT} = 1 AND {_DIFF} > 0")


def _count_unordered_keys(
    db: Any, key: PrimaryKey, records: str, keys: str, orders: Sequence[Sequence[int]]
) -> int:
    """Count the keys for which it is unknown which of their records counted last.

    The order of files does not matter if each record of a key has its own distinct time and none is a
    delete.
    """
    own = ""
    if key.sequence is not None:
        clear = f"min({_DIFF}) > 0 AND count(DISTINCT {quote_identifier(key.sequence)}) = count(*)"
        own = f" WHERE ({keys}) IN (SELECT ({keys}) FROM {records} r GROUP BY {keys} HAVING NOT ({clear}))"
    ranks = {ours(f"rank{n}"): order for n, order in enumerate(orders)}
    places = {rank: ours(f"place{n}") for n, rank in enumerate(ranks)}
    ranked = ", ".join(f"{_rank(order)} AS {rank}" for rank, order in ranks.items())
    placed = ", ".join(
        f"row_number() OVER (PARTITION BY {keys} ORDER BY {rank}) AS {place}"
        for rank, place in places.items()
    )
    unlike = [f"count(DISTINCT {rank}) < count(*)" for rank in ranks]
    unlike += [f"bool_or({place} <> {places[next(iter(ranks))]})" for place in [*places.values()][1:]]
    ((keys_without,),) = fetch_rows(
        db,
        f"SELECT count(*) FROM (SELECT {keys} FROM (SELECT *, {placed} FROM (SELECT DISTINCT {keys},"
        f" {ranked}, {FILE} FROM {records} r{own}) r) r GROUP BY {keys} HAVING {' OR '.join(unlike)}) r",
    )
    return int(keys_without)


def _rank(order: Sequence[int]) -> str:
    """Build SQL for the rank of a record's file."""
    return f"list_extract(CAST([{', '.join(map(str, order))}] AS BIGINT[]), {FILE})"


def _make(db: Any, table: str, rows: list[str], relation: str) -> None:
    shown = ", ".join([*rows, f"'' AS {PART}", f"CAST(1 AS BIGINT) AS {AT}"])
    fetch_rows(db, f"CREATE OR REPLACE TABLE {table} AS SELECT {shown} FROM {relation}")


def _undetermined_error(source: Source, why: str) -> SpecError:
    return SpecError(
        f'the rows of "{source.name}" cannot be determined: {why}',
        code="not-compared",
        hint="run `watersmeet why job.sql` to see the outcome of each record",
    )
