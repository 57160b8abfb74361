"""EXPLAIN: the bands of a join that are no time bounds, each end by what it bounds."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from watersmeet.conditions import ExactBand, RealBand
from watersmeet.event_time import Side
from watersmeet.measure import TEXT
from watersmeet.plan.explain.durations import shifted
from watersmeet.plan.join_inputs import unit_of_type
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.plan.model.sides import joined_name


def band_lines(join: MatchPlan) -> Iterator[str]:
    """One line per end of a band; of one in floating point about, and how it is decided."""
    lines: list[tuple[str, str]] = []
    for exact in join.values.exact:
        how = ", by the first bytes, decided as written" if exact.left.measure == TEXT else ""
        lines += [(end, f"from {' and '.join(exact.texts)}{how}") for end in _ends(join, exact)]
    for real in join.values.real:
        how = "" if real.comparison is not None else ", decided as written"
        lines += [(f"about {end}", f"from {real.text}{how}") for end in _ends(join, real)]
    width = max((len(end) for end, _ in lines), default=0)
    for end, origin in lines:
        yield f"{end:<{width}}  {origin}"


def _ends(join: MatchPlan, band: ExactBand | RealBand) -> Iterator[str]:
    left, right = (join.side(side).joined(band.measured(side).column) for side in Side)
    if band.lower is not None:
        yield f"{right} >= {_moved(join, band, left, band.lower)}"
    if band.upper is not None:
        yield f"{left} >= {_moved(join, band, right, -band.upper)}"


def _moved(join: MatchPlan, band: ExactBand | RealBand, name: str, by: float) -> str:
    if isinstance(band, ExactBand) and band.left.measure.kind == "whole":
        return shifted(name, int(by), _is_time(join, name))
    places = band.left.measure.places
    number = f"{Decimal(int(by)).scaleb(-places).normalize():f}" if isinstance(band, ExactBand) else f"{by:g}"
    return name if by == 0 else f"{name} {'-' if by < 0 else '+'} {number.lstrip('-')}"


def _is_time(join: MatchPlan, name: str) -> bool:
    return any(
        joined_name(i.alias, column.name) == name and unit_of_type(column.type).is_time
        for side in Side
        for i in join.side(side).inputs
        for column in i.columns
    )
