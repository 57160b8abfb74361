"""What a document says of the state: per side of a join what it keeps, beside its forecast, the keys that
have most of its rows, and how far the limits are away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.history.past import Past
from watersmeet.history.planned import Limit
from watersmeet.page.charts import name_of

_FIGURES = ("retained", "file_bytes", "forecast_rows", "forecast_bytes")


def sides_of(past: Past) -> list[dict[str, Any]]:
    """As of the last time that somebody looked. ``hot_keys``: each with about how many rows it has."""
    keys = past.keys("hot_keys")
    sides = []
    for subject in past.subjects("side"):
        told = {"name": name_of(subject), **{figure: _last(past, subject, figure) for figure in _FIGURES}}
        heaviest = sorted(keys.get(subject, {}).items(), key=lambda key: (-key[1], key[0]))
        sides.append({**told, "hot_keys": [{"key": key, "rows": rows} for key, rows in heaviest]})
    return sides


def used_of(past: Past, limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """The limits, each with how much of it is ``used``; NULL: not known."""
    told = []
    for limit in limits:
        amounts = [
            _last(past, subject, "file_bytes" if limit.in_bytes else "retained") for subject in limit.of
        ]
        told_of = [amount for amount in amounts if amount is not None]
        told.append(
            {"name": limit.name, "owner": limit.owner, "limit": limit.most}
            | {"kind": "bytes" if limit.in_bytes else "rows", "used": sum(told_of) if told_of else None}
        )
    return told


def _last(past: Past, subject: str, figure: str) -> int | None:
    values = past.series(subject, figure).values()
    return values[-1] if values else None
