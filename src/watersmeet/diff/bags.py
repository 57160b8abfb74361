"""Compare two bags of rows in DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.diff.statement import PENDING, column_name
from watersmeet.errors import EngineError, SpecError
from watersmeet.names import ours
from watersmeet.types.json_values import rows_of

# The DuckDB that answers are compared in. What is more than `MEMORY` of its tables and sums is on disk.

MEMORY = "2GB"

AS_IT_IS = "hive_partitioning = false"
"""Of files: columns are those that are in them, whatever directories are called."""


def open_database(folder: str) -> Any:
    """Open a DuckDB connection.

    Args:
        folder: Folder to which DuckDB spills what does not fit in memory.
    """
    import duckdb

    db = duckdb.connect()
    for setting in (
        "TimeZone = 'UTC'",
        f"memory_limit = '{MEMORY}'",
        "enable_progress_bar = false",
        "preserve_insertion_order = false",
        f"temp_directory = {text(f'{folder}/spilled')}",
    ):
        fetch_rows(db, f"SET {setting}")
    return db


def fetch_rows(db: Any, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement and return all of its rows."""
    rows: list[tuple[Any, ...]] = db.execute(sql).fetchall()
    return rows


def quote_identifier(name: str) -> str:
    """Quote a name for DuckDB's SQL.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Quote a text for DuckDB's SQL.

    >>> text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def types_of(db: Any, relation: str) -> dict[str, str]:
    """Return the columns of a relation with DuckDB's names of their types."""
    return {row[0]: str(row[1]) for row in fetch_rows(db, f"DESCRIBE SELECT * FROM {relation} r")}


# Two bags of rows compared in DuckDB, which keeps on disk what does not fit: what the batch answer has
# and the output lacks (missing), and the other way round (extra), each row with how often, and why.
#
# Rows are equal as Spark groups them: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0; the order of a
# map's entries says nothing.

MISSING, EXTRA = "missing", "extra"

NOT_DUE, LATE, SHED, CHANGED_QUERY, CHANGED_FILE, LATER, UNEXPLAINED = (
    "not yet due",
    "late",
    "shed",
    "changed query",
    "changed file",
    "later tick",
    "unexplained",
)
REASONS = (NOT_DUE, LATE, SHED, CHANGED_QUERY, CHANGED_FILE, LATER, UNEXPLAINED)

COUNT = ours("n")
"""Of the output: how often a row is there."""

SIDE, REASON = ours("side"), ours("reason")

_WRITTEN = {".parquet": "PARQUET", ".csv": "CSV", ".json": "JSON"}

_FOUND, _WHY = ours("found"), ours("why")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


@dataclass(frozen=True)
class Differences:
    """Differences of one query between the batch answer and the output.

    Args:
        names: Columns of the query.
        answered: Number of rows of the batch answer.
        put_out: Number of rows of the output.
        counts: Number of rows by (side, reason); combinations without rows are missing.
        rows: The first differing rows, as (side, reason, count, values), with values as in JSON and
            times in UTC.
        more: Number of distinct rows that are not in ``rows``.
    """

    names: Sequence[str]
    answered: int
    put_out: int
    counts: Mapping[tuple[str, str], int]
    rows: Sequence[tuple[str, str, int, tuple[Any, ...]]]
    more: int

    @property
    def equal(self) -> bool:
        return not self.counts

    @property
    def unexplained(self) -> int:
        """Number of rows without a reason of their own.

        A reason that may apply to any row of the query explains none of them.
        """
        return sum(rows for (_, reason), rows in self.counts.items() if reason not in (NOT_DUE, LATE))


def differences(
    db: Any,
    names: Sequence[str],
    answer: str,
    output: str,
    scenarios: Iterable[Callable[[], str]],
    *,
    groups: Sequence[int] = (),
    whole: str | None,
    limit: int,
) -> Differences:
    """Compare.

    Args:
        db: a connection to DuckDB; tables of a comparison before are replaced.
        answer: a relation with the columns of `statement`; ``output``: one with `column_name` and `COUNT`.
        scenarios: called one by one as long as there are differences without a reason: relations like
            ``answer``, what the answer were without rows that may have been late.
        groups: numbers of columns: an extra row that has in them what a row has that is missing because of
            late rows is that group without them.
        whole: the reason of all differences that have no other one; None: they are unexplained.
        limit: of rows that are shown.

    Raises:
        EngineError: a column has another type in the output.
    """
    columns = [column_name(n) for n in range(len(names))]
    shape = _shape(db, names, columns, answer, output)
    listed = ", ".join(columns)
    ((answered,),) = fetch_rows(db, f"SELECT count(*) FROM {answer} r")
    ((put_out,),) = fetch_rows(db, f"SELECT coalesce(sum({COUNT}), 0) FROM {output} r")
    fetch_rows(
        db,
        f"CREATE OR REPLACE TABLE {_FOUND} AS SELECT {listed}, sum(n) AS n, sum(a) AS a,"
        f" CASE WHEN sum(n) > 0 THEN least(sum(n), sum(p)) ELSE 0 END AS due, 0 AS late FROM ("
        f"SELECT {shape}, 1 AS n, CASE WHEN {PENDING} THEN 1 ELSE 0 END AS p, 1 AS a FROM {answer} r"
        f" UNION ALL SELECT {shape}, -{COUNT}, 0, 0 FROM {output} r) r GROUP BY {listed} HAVING sum(n) <> 0",
    )
    for scenario in scenarios:
        ((left,),) = fetch_rows(db, f"SELECT count(*) FROM {_FOUND} WHERE abs(n) > due + late")
        if not left:
            break
        _explain(db, columns, shape, scenario())
    if groups:
        same = " AND ".join(f"m.{columns[n]} IS NOT DISTINCT FROM f.{columns[n]}" for n in groups)
        fetch_rows(
            db,
            f"UPDATE {_FOUND} f SET late = abs(n) - due WHERE n < 0 AND EXISTS"
            f" (SELECT 1 FROM {_FOUND} m WHERE m.n > 0 AND m.late > 0 AND {same})",
        )
    rest = UNEXPLAINED if whole is None else whole
    of_one = [(NOT_DUE, "due"), (LATE, "late"), (rest, "abs(n) - due - late")]
    by_reason = " UNION ALL ".join(
        f"SELECT CASE WHEN n > 0 THEN '{MISSING}' ELSE '{EXTRA}' END AS {SIDE}, '{reason}' AS {REASON},"
        f" {rows} AS {COUNT}, {listed} FROM {_FOUND} WHERE {rows} > 0"
        for reason, rows in of_one
    )
    fetch_rows(db, f"CREATE OR REPLACE TABLE {_WHY} AS {by_reason}")
    return _summarize_differences(db, names, columns, int(answered), int(put_out), limit)


def _explain(db: Any, columns: Sequence[str], shape: str, scenario: str) -> None:
    """Compute how many copies of each differing row the scenario explains.

    That is the difference between the row's counts in the scenario and in the batch answer.
    """
    listed, same = ", ".join(columns), " AND ".join(f"f.{c} IS NOT DISTINCT FROM s.{c}" for c in columns)
    fetch_rows(
        db,
        f"CREATE OR REPLACE TABLE {_FOUND} AS SELECT f.* EXCLUDE (late), greatest(f.late, least(abs(f.n) -"
        f" f.due, CASE WHEN f.n > 0 THEN f.a - coalesce(s.k, 0) ELSE coalesce(s.k, 0) - f.a END)) AS late"
        f" FROM {_FOUND} f LEFT JOIN (SELECT {listed}, count(*) AS k FROM"
        f" (SELECT {shape} FROM {scenario} r) r GROUP BY {listed}) s ON {same}",
    )


def write(db: Any, names: Sequence[str], file: str) -> None:
    """Write all differing rows of the last comparison to a file.

    The columns are ``side``, ``reason``, ``count``, and those of the query.

    Raises:
        SpecError: The file's name does not show a format.
        EngineError: The file cannot be written.
    """
    import duckdb

    kind = next((kind for ending, kind in _WRITTEN.items() if file.lower().endswith(ending)), None)
    if kind is None:
        raise SpecError(
            f"--to {file}: the name does not show the format",
            code="unknown-format",
            hint=f"use a name that ends in {', '.join(_WRITTEN)}",
        )
    own = {name.lower() for name in names}
    heads = [f"_{head}" if head in own else head for head in ("side", "reason", "count")]
    columns = [f"{there} AS {head}" for there, head in zip((SIDE, REASON, COUNT), heads, strict=True)]
    columns += [f"{column_name(n)} AS {quote_identifier(name)}" for n, name in enumerate(names)]
    try:
        fetch_rows(db, f"COPY (SELECT {', '.join(columns)} FROM {_WHY}) TO {text(file)} (FORMAT {kind})")
    except duckdb.Error as error:
        raise EngineError(
            f"{file} cannot be written: {str(error).splitlines()[0]}",
            code="cannot-write",
            hint="use a file in an existing directory that you can write to",
        ) from None


def _summarize_differences(
    db: Any, names: Sequence[str], columns: Sequence[str], answered: int, put_out: int, limit: int
) -> Differences:
    counted = fetch_rows(
        db, f"SELECT {SIDE}, {REASON}, sum({COUNT}), count(*) FROM {_WHY} GROUP BY ALL ORDER BY ALL"
    )
    order = {reason: n for n, reason in enumerate(REASONS)}
    counts = {(side, reason): int(rows) for side, reason, rows, _ in counted}
    listed = ", ".join(columns)
    cases = " ".join(f"WHEN '{reason}' THEN {-n}" for reason, n in order.items())
    shown = db.sql(
        f"SELECT {SIDE}, {REASON}, CAST({COUNT} AS BIGINT), {listed} FROM {_WHY}"
        f" ORDER BY CASE {REASON} {cases} END, {listed}, {SIDE} LIMIT {limit}"
    ).to_arrow_table()
    rows = [(side, reason, n, tuple(values)) for side, reason, n, *values in rows_of(shown)]
    different = sum(of for *_, of in counted)
    return Differences(names, answered, put_out, counts, rows, different - len(rows))


def _shape(db: Any, names: Sequence[str], columns: Sequence[str], answer: str, output: str) -> str:
    """Build the column expressions that are compared.

    Raises:
        EngineError: The types of a column in the answer and the output are not comparable.
    """
    types = [types_of(db, of) for of in (answer, output)]
    shaped = []
    for name, column in zip(names, columns, strict=True):
        expected, given = (of[column] for of in types)
        if not _comparable(expected, given):
            raise EngineError(
                f'column "{name}" is {given} in the output, but {expected} in the batch answer',
                code="not-compared",
                hint="pass the right output with --output, or cast the column in the query to the sink's"
                " type",
            )
        shaped.append(f"{_normalize_maps(column, expected)} AS {column}")
    return ", ".join(shaped)


def is_exact(kind: str) -> bool:
    """Return True if values of a DuckDB type are exact numbers: integers or DECIMALs."""
    return kind in _WHOLE or kind[:8] == "DECIMAL("


def _comparable(a: str, b: str) -> bool:
    whole = all(kind in _WHOLE for kind in (a, b))
    decimals = all("DECIMAL(" in kind for kind in (a, b))
    untyped = '"NULL"' in (a, b)
    return a == b or whole or decimals or untyped


def _normalize_maps(column: str, kind: str) -> str:
    """Sort the entries of a map column, so that equal maps compare as equal.

    DuckDB already treats all NaNs as equal, and zeros of either sign.
    """
    if kind[:4] == "MAP(":
        return f"list_sort(map_entries({column}))"
    return column
