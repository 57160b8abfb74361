"""Sessions by a walk over each visitor's views in order of time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from examples.arrivals import Tick, on_time
from examples.running import Rows

GAP, LAG = timedelta(minutes=30), timedelta(minutes=1)


def bought(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    views, purchases = defaultdict(list), defaultdict(list)
    for row in on_time(ticks, "views", "at", LAG):
        views[row["visitor"]].append((row["at"], row["page"]))
    for row in on_time(ticks, "purchases", "at", LAG):
        purchases[row["visitor"]].append((row["at"], row["amount"]))
    found: Rows = Counter()
    for visitor, own in views.items():
        own.sort()
        sessions = [[own[0]]]
        for view in own[1:]:
            if view[0] - sessions[-1][-1][0] <= GAP:
                sessions[-1].append(view)
            else:
                sessions.append([view])
        for session in sessions:
            start, end = session[0][0], session[-1][0] + GAP
            items = sum(page == "item" for _, page in session)
            amounts = [amount for at, amount in purchases[visitor] if start <= at <= end]
            for amount in amounts or [None]:
                found[visitor, start, end, len(session), items, amount] += 1
    return {"bought": found}
