"""What the queries come to by DuckDB over all events at once, in its own words, without a bound on time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from examples.arrivals import Tick
from examples.running import Rows

WINDOW = "time_bucket(INTERVAL 10 SECOND, {})"
IN_TIME = "auction a JOIN bid b ON b.auction = a.id AND b.dateTime >= a.dateTime AND b.dateTime <= a.expires"
RANKED = f"""
    SELECT a.*, b.bidder, b.price, b.dateTime AS bid_at
    FROM {IN_TIME}
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) = 1
"""
JOINED = {
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a, person p
        WHERE a.seller = p.id AND a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.dateTime, b.extra, a.itemName, a.description,
          a.initialBid, a.reserve, a.dateTime, a.expires, a.seller, a.category, a.extra
        FROM bid b, auction a WHERE b.auction = a.id AND a.category = 10""",
}
INTERVAL = JOINED | {
    "q4": f"""SELECT opened + INTERVAL 10 SECOND, category, avg(price)
        FROM (SELECT *, {WINDOW.format("dateTime")} AS opened FROM ({RANKED})) GROUP BY opened, category""",
    "q7": f"""SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
        FROM bid b, (SELECT {WINDOW.format("dateTime")} AS start, max(price) AS price FROM bid GROUP BY 1) h
        WHERE b.price = h.price AND b.dateTime >= h.start AND b.dateTime <= h.start + INTERVAL 10 SECOND""",
    "q8": f"""SELECT DISTINCT p.id, p.name, {WINDOW.format("p.dateTime")} FROM person p JOIN auction a
        ON a.seller = p.id AND {WINDOW.format("a.dateTime")} = {WINDOW.format("p.dateTime")}""",
    "q9": f"SELECT id, category, price, bidder FROM ({RANKED})",
}
CHANGES = JOINED | {
    "q4": f"SELECT category, avg(price) FROM ({RANKED}) GROUP BY category",
    "q9": f"SELECT id, seller, category, dateTime, expires, bidder, price, bid_at FROM ({RANKED})",
}


def _answers(queries: Mapping[str, str], ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name in ("person", "auction", "bid"):
            database.register(name, pa.concat_tables([tick[name] for tick in ticks]))
        return {name: Counter(database.execute(query).fetchall()) for name, query in queries.items()}


def interval(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    return _answers(INTERVAL, ticks)


def changes(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    return _answers(CHANGES, ticks)
