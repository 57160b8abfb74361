"""What became of each order, by look-ups in dictionaries; and which payments came too late, by a loop over
ticks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from examples.arrivals import Tick, on_time
from examples.running import Rows

LAG, DAY = timedelta(minutes=10), timedelta(days=1)


def followed(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    payments = {row["order_id"]: row for row in on_time(ticks, "payments", "paid_at", LAG)}
    shipments = {row["order_id"]: row for row in on_time(ticks, "shipments", "sent_at", LAG)}
    found: Rows = Counter()
    for order in on_time(ticks, "orders", "ordered_at", LAG):
        number, at = order["order_id"], order["ordered_at"]
        payment = payments.get(number)
        if payment is not None and not at <= payment["paid_at"] <= at + DAY:
            payment = None
        shipment = shipments.get(number)
        if shipment is not None and not at <= shipment["sent_at"] <= at + 4 * DAY:
            shipment = None
        state = ("paid, " if payment else "not paid, ") + ("sent" if shipment else "not sent")
        paid_at = payment and payment["paid_at"]
        found[number, at, order["amount"], paid_at, shipment and shipment["sent_at"], state] += 1
    return {"followed": found}


def late(ticks: Sequence[Tick]) -> int:
    """How many payments are counted as late."""
    came: int = sum(tick["payments"].num_rows for tick in ticks)
    return came - len([*on_time(ticks, "payments", "paid_at", LAG)])
