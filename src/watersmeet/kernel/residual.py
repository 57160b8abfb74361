"""Residual conditions: whatever of an ON condition is neither a key nor a time band, on candidate pairs.

They run in an embedded SQL engine over Arrow, so that SQL's rules for NULLs hold. TRUE is a match; NULL and
FALSE are not.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.batches import one_array, same_rows

_connection: duckdb.DuckDBPyConnection | None = None


def connection() -> duckdb.DuckDBPyConnection:
    """The process's embedded engine: one thread, UTC."""
    global _connection
    if _connection is None:
        _connection = duckdb.connect(":memory:", config={"threads": 1})
        _connection.execute("SET TimeZone = 'UTC'")
    return _connection


def computed(texts: Mapping[str, str], rows: pa.Table) -> pa.Table:
    """The values of DuckDB texts for every row, in order, under their names.

    Raises:
        EngineError: an expression fails on a value.
    """
    parts = ", ".join(f"({text}) AS {_quoted(name)}" for name, text in texts.items())
    cursor = connection().cursor()
    try:
        cursor.register("joined", rows)
        return cursor.sql(f"SELECT {parts} FROM joined").to_arrow_table()
    except duckdb.Error as error:
        raise EngineError(
            f"an expression over joined rows failed: {error}",
            code="condition-failed",
            hint=f"the expressions were: {', '.join(texts.values())}",
        ) from None
    finally:
        cursor.close()


def holds(condition: str, pairs: pa.Table) -> Mask:
    """For which rows of ``pairs`` the DuckDB text ``condition`` is TRUE: bool[n], in order.

    Raises:
        EngineError: the condition fails on a value (a cast, a division by zero where that is an error).
    """
    if pairs.num_rows == 0:
        return np.zeros(0, dtype=np.bool_)
    cursor = connection().cursor()
    try:
        cursor.register("pairs", pairs)
        answer = cursor.sql(f"SELECT CAST(({condition}) AS BOOLEAN) AS holds FROM pairs").to_arrow_table()
    except duckdb.Error as error:
        raise EngineError(
            f"the join condition {condition} failed: {error}",
            code="condition-failed",
            hint="guard the expression (for example with TRY_CAST or NULLIF), or filter such rows in a view",
        ) from None
    finally:
        cursor.close()
    same_rows("checked pairs", pairs.num_rows, answer.num_rows)
    truth = pc.fill_null(one_array(answer.column("holds")), False)
    result: Mask = truth.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return result


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
