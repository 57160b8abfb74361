"""What a row takes in state, by the types of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watersmeet.plan.model.nodes import AggregatePlan
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.types.sql_type import DOUBLE, UNKNOWN, SqlType

STRING_BYTES = 20
"""What a text, or any value without a fixed width, is assumed to take."""

SLOT_BYTES, ORDER_BYTES, TIME_BYTES, OFFSET_BYTES, CAME_BYTES, COUNT_BYTES = 8, 4, 8, 4, 8, 8
FURTHER_KEY_BYTES = 8
"""What it takes at most to find a row by a further key of an arrangement."""
_BITS = {
    "BOOLEAN": 1, "FLOAT": 32, "DOUBLE": 64, "DECIMAL": 128, "DATE": 32, "TIMESTAMP": 64, "TIMESTAMP_NTZ": 64,
}  # fmt: skip


@dataclass(frozen=True)
class RowBytes:
    """Bytes of a row in state. ``assumed``: columns whose width is not fixed, counted as `STRING_BYTES`;
    ``measured``: as its files have them."""

    bytes: float
    assumed: tuple[str, ...]
    measured: bool = False


def bytes_of(plan: SidePlan, orders: int, types: Mapping[str, SqlType]) -> RowBytes:
    """What a row takes in a run. ``orders``: of how many times; ``types``: of kept columns, as far as
    they are known."""
    total: float = SLOT_BYTES + ORDER_BYTES * orders
    if orders == 1:
        total += TIME_BYTES * (len(plan.event_times) - 1)
    total += len(plan.nullable) / 8
    assumed = []
    for name in plan.kept:
        if name in plan.event_times:
            total += TIME_BYTES
            continue
        width = _width(types.get(name, UNKNOWN))
        total += OFFSET_BYTES + STRING_BYTES if width is None else width
        if width is None:
            assumed.append(name)
    return RowBytes(total, tuple(assumed))


def _width(kind: SqlType) -> float | None:
    """Bytes of a value of the type; None: that is not fixed, or not known."""
    bits = kind.bits or _BITS.get(kind.name)
    return None if bits is None else bits / 8


def partial_bytes(node: AggregatePlan) -> RowBytes:
    """What a group's partial aggregates of one pane take in a run: slot, order, start, rows counted, the keys
    and what is kept of each call."""
    types = types_of_inputs(node.side)
    results = {column.name: column.type for column in node.results}
    widths: dict[str, float | None] = {column: _width(types.get(column, UNKNOWN)) for _, column in node.keys}
    for call in node.calls:
        kind = results.get(call.name)
        widths[call.text] = None if kind is None else _width(kind)
        if call.function in ("sum", "avg"):
            exact = kind != DOUBLE and (call.function == "sum" or kind is not None)
            widths[call.text] = (16 if exact else 8) + (8 if call.function == "avg" else 0)
        elif call.function in ("min_by", "max_by"):
            widths[f"{call.text} at"] = _width(types.get(call.columns[1], UNKNOWN))
    total: float = SLOT_BYTES + ORDER_BYTES + TIME_BYTES + COUNT_BYTES
    total += sum(OFFSET_BYTES + STRING_BYTES if width is None else width for width in widths.values())
    return RowBytes(total, tuple(name for name, width in widths.items() if width is None))


def types_of_inputs(plan: SidePlan) -> dict[str, SqlType]:
    """Per kept column of an input its type, as declared."""
    return {
        c.name if plan.feed is None else joined_name(i.alias, c.name): c.type
        for i in plan.inputs
        for c in i.columns
    }
