"""Query 3 by DuckDB, over what the changes come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from examples.arrivals import Tick
from examples.running import Rows

Q3 = """
    SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)), o_orderdate, o_shippriority
    FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
    WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
    GROUP BY ALL
"""


def revenue(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    with duckdb.connect() as database:
        for name in ticks[0]:
            changes = pa.concat_tables([tick[name] for tick in ticks])
            database.register("changes", changes)
            database.execute(  # rows have keys: each is there once or not at all
                f"CREATE TABLE {name} AS SELECT * EXCLUDE (d) FROM changes GROUP BY ALL HAVING sum(d) > 0"
            )
        return {"revenue": Counter(database.execute(Q3).fetchall())}
