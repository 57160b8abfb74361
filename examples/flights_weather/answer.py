"""Both questions by look-ups in dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from examples.arrivals import Tick
from examples.running import Rows

HOURS = timedelta(hours=1), timedelta(hours=4)


def weather(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    """Each flight with the observation of its hour."""
    observed = {
        (row["origin"], row["observed"]): row for tick in ticks for row in tick["weather"].to_pylist()
    }
    found: Rows = Counter()
    for tick in ticks:
        for row in tick["flights"].to_pylist():
            hour = row["sched_dep"].replace(minute=0)
            seen = observed.get((row["origin"], hour), {})
            names = ("carrier", "flight", "tailnum", "origin", "dest", "sched_dep", "dep_delay")
            measured = ("observed", "temp", "wind_speed", "precip", "visib")
            found[(*(row[name] for name in names), *(seen.get(name) for name in measured))] += 1
    return {"flights_with_weather": found}


def connections(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    """Each landing away from New York with the aircraft's departures from there within four hours.

    Rows without a departure or a landing are none: both are event times.
    """
    departures = defaultdict(list)
    moved = [row for tick in ticks for row in tick["movements"].to_pylist()]
    for row in moved:
        if row["departed"] is not None:
            departures[row["tailnum"]].append(row)
    found: Rows = Counter()
    for away in moved:
        if away["landed"] is None or away["tailnum"] is None:
            continue
        for back in departures[away["tailnum"]]:
            if away["landed"] <= back["departed"] <= away["landed"] + HOURS[1]:
                inbound = (away["tailnum"], away["carrier"], away["flight"], away["dest"], away["landed"])
                found[(*inbound, back["flight"], back["origin"], back["dest"], back["departed"])] += 1
    return {"connections": found}
