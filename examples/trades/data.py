"""Quotes and trades of a trading day of six hours, both up to two seconds out of order.

Quotes are eight in nine rows. Prices of a symbol walk at random by cents; a trade is made at the last
price, or a few cents beside it.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.arrivals import MINUTE, SECOND, START_US, Streams, times

SYMBOLS = np.array(["ACME", "BOLT", "CORE", "DUNE", "ECHO", "FLUX", "GRID", "HALO"])
LAG = 2 * SECOND


def streams(rows: int, seed: int) -> Streams:
    random = np.random.default_rng(seed)
    span, quotes = 6 * 60 * MINUTE, rows * 8 // 9
    trades = rows - quotes
    quoted = START_US + np.sort(random.integers(0, span, quotes))
    symbol = random.integers(0, len(SYMBOLS), quotes)
    cents = np.zeros(quotes, np.int64)
    for each in range(len(SYMBOLS)):
        own = symbol == each
        cents[own] = 10_000 * (each + 1) + np.cumsum(random.integers(-3, 4, int(own.sum())))
    traded = START_US + random.integers(0, span, trades)
    trade_symbol = random.integers(0, len(SYMBOLS), trades)
    near = np.array([_last(quoted, symbol, cents, at, s) for at, s in zip(traded, trade_symbol, strict=True)])
    prices = near + random.integers(-6, 7, trades)
    return {
        "quotes": (
            pa.table(
                {"symbol": SYMBOLS[symbol], "at": times(quoted), "bid": money(cents), "ask": money(cents + 2)}
            ),
            quoted + random.integers(0, LAG, quotes),
        ),
        "trades": (
            pa.table(
                {
                    "trade": np.arange(trades),
                    "symbol": SYMBOLS[trade_symbol],
                    "at": times(traded),
                    "price": money(prices),
                    "shares": random.integers(1, 500, trades),
                }
            ),
            traded + random.integers(0, LAG, trades),
        ),
    }


def money(cents: np.ndarray) -> pa.Array:
    """DECIMAL(10,2) of cents."""
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pc.multiply(whole, pa.scalar(Decimal("0.01"), pa.decimal128(3, 2))).cast(pa.decimal128(10, 2))


def _last(quoted: np.ndarray, symbol: np.ndarray, cents: np.ndarray, at: int, wanted: int) -> int:
    """About the price of a symbol at a time: that of its last quote among the 200 before."""
    place = int(np.searchsorted(quoted, at))
    before = np.flatnonzero(symbol[max(0, place - 200) : place] == wanted)
    return int(cents[max(0, place - 200) + before[-1]]) if len(before) else 10_000 * (wanted + 1)
