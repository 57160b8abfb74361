"""All examples, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from examples.arrivals import Streams, Tick, in_ticks
from examples.clicks import answer as clicks_answer
from examples.clicks import data as clicks_data
from examples.flights_weather import answer as flights_answer
from examples.flights_weather import data as flights_data
from examples.nexmark import answer as nexmark_answer
from examples.nexmark import generator
from examples.orders import answer as orders_answer
from examples.orders import data as orders_data
from examples.running import Example
from examples.sensors import answer as sensors_answer
from examples.sensors import data as sensors_data
from examples.sessions import answer as sessions_answer
from examples.sessions import data as sessions_data
from examples.tpch_q3 import answer as tpch_answer
from examples.tpch_q3 import data as tpch_data
from examples.trades import answer as trades_answer
from examples.trades import data as trades_data


def _cut(streams: Callable[[int, int], Streams]) -> Callable[[int, int, int], Sequence[Tick]]:
    return lambda rows, ticks, seed: in_ticks(streams(rows, seed), ticks)


EXAMPLES = {
    example.name: example
    for example in (
        Example(
            "flights_weather",
            _cut(flights_data.streams),
            {"flights_weather.sql": flights_answer.weather, "connections.sql": flights_answer.connections},
        ),
        Example(
            "clicks",
            _cut(clicks_data.streams),
            {"attributed.sql": clicks_answer.attributed, "pairs.toml": clicks_answer.pairs},
        ),
        Example("orders", _cut(orders_data.streams), {"followed.sql": orders_answer.followed}),
        Example("trades", _cut(trades_data.streams), {"quotes.sql": trades_answer.answers}),
        Example("sensors", _cut(sensors_data.streams), {"job.py": sensors_answer.before}),
        Example("sessions", _cut(sessions_data.streams), {"bought.sql": sessions_answer.bought}),
        Example(
            "nexmark",
            _cut(generator.streams),
            {"interval.sql": nexmark_answer.interval, "changes.sql": nexmark_answer.changes},
        ),
        Example("tpch_q3", tpch_data.ticks, {"q3.sql": tpch_answer.revenue}),
    )
}
