"""Both questions as DuckDB answers them over all rows at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from examples.arrivals import Tick
from examples.running import Rows

VALID = """
    SELECT t.trade, t.symbol, t."at", t.price, q."at", q.bid, q.ask
    FROM trades t ASOF LEFT JOIN (
      FROM quotes QUALIFY row_number() OVER (PARTITION BY symbol, "at" ORDER BY came) = 1
    ) q ON q.symbol = t.symbol AND t."at" >= q."at"
"""
NEAR = """
    SELECT t.trade, t.symbol, t.price, q."at", q.bid
    FROM trades t JOIN quotes q ON q.symbol = t.symbol
      AND abs(epoch_us(q."at") - epoch_us(t."at")) <= 5000000
      AND t.price >= q.bid - 0.02 AND t.price <= q.ask + 0.02
"""


def answers(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    """No row is late: the data are out of order by less than the lag."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name in ("trades", "quotes"):
            table = pa.concat_tables([tick[name] for tick in ticks])
            database.register(name, table.append_column("came", pa.array(range(table.num_rows))))
        valid = [
            (
                *row[:4],
                *((None,) * 3 if row[4] is None or (row[2] - row[4]).total_seconds() > 60 else row[4:]),
            )
            for row in database.execute(VALID).fetchall()
        ]
        return {"valued": Counter(valid), "near": Counter(database.execute(NEAR).fetchall())}
