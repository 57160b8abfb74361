"""The same two questions by plain loops over all rows, in pandas' and watersmeet's absence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from examples.arrivals import Tick, on_time
from examples.running import Rows

HALF_AN_HOUR = timedelta(minutes=30)
LAG = timedelta(seconds=30)


def attributed(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    """Each click with the last impression of its ad to its user in the half hour before it, or with none."""
    shown = defaultdict(list)
    for row in on_time(ticks, "impressions", "at", LAG):
        shown[row["ad"], row["user"]].append((row["at"], row["cost"]))
    found: Rows = Counter()
    for click in on_time(ticks, "clicks", "at", LAG):
        candidates = [
            (at, cost)
            for at, cost in shown[click["ad"], click["user"]]
            if click["at"] - HALF_AN_HOUR <= at <= click["at"]
        ]
        at, cost = max(candidates, key=lambda candidate: candidate[0], default=(None, None))
        found[click["click"], click["ad"], click["user"], click["at"], at, cost] += 1
    return {"attributed": found}


def pairs(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    """Every impression with every click on it within half an hour, and what has no partner, alone."""
    impressions = [row for tick in ticks for row in tick["impressions"].to_pylist()]
    clicks = [row for tick in ticks for row in tick["clicks"].to_pylist()]
    by_place = defaultdict(list)
    for number, click in enumerate(clicks):
        by_place[click["ad"], click["user"]].append((number, click))
    found: Rows = Counter()
    met = set[int]()
    for shown in impressions:
        partners = [
            (number, click)
            for number, click in by_place[shown["ad"], shown["user"]]
            if timedelta(0) <= click["at"] - shown["at"] <= HALF_AN_HOUR
        ]
        met.update(number for number, _ in partners)
        for _, click in partners:
            found[shown["ad"], shown["user"], shown["at"], click["click"], click["at"]] += 1
        if not partners:
            found[shown["ad"], shown["user"], shown["at"], None, None] += 1
    for number, click in enumerate(clicks):
        if number not in met:
            found[None, None, None, click["click"], click["at"]] += 1
    return {"pairs": found}
