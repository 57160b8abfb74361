"""What the driver does by kind of node: which rows its watermarks release, and which watermarks leave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
)
from watersmeet.plan.nodes.retention import limits
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind
from watersmeet.watermark.output import output_watermarks
from watersmeet.watermark.windows import passed_below, release_limit, start_watermark

Watermarks = Mapping[str, Watermark]


@dataclass(frozen=True)
class Outgoing:
    """What a node's output watermarks are made from, per watermark key ``alias.column``.

    ``watermarks``: that come in; ``limits``: rows below are released; both with allowed_lateness taken off.
    ``least``: the least times of retained rows. ``emitted``: what was put out before.
    """

    watermarks: Watermarks
    limits: Watermarks
    least: Mapping[str, int]
    emitted: Watermarks
    tight: bool


@dataclass(frozen=True)
class Kind:
    """``limits``: of (node, watermarks, allowed_lateness per key). ``outputs``: of (node, `Outgoing`), never
    below what was put out before."""

    limits: Callable[[Any, Watermarks, Mapping[str, int]], dict[str, Watermark]]
    outputs: Callable[[Any, Outgoing], dict[str, Watermark]]


def _of_join(join: JoinPlan, given: Outgoing) -> dict[str, Watermark]:
    leaving = set(join.watermark_keys)
    return output_watermarks(
        {key: watermark for key, watermark in given.watermarks.items() if key in leaving},
        given.limits,
        given.least,
        given.emitted,
        tight=given.tight,
    )


def _of_pass(node: PassPlan | LookupPlan, given: Outgoing) -> dict[str, Watermark]:
    found = {
        key: max(given.watermarks.get(key, NEVER), given.emitted.get(key, NEVER))
        for key in node.watermark_keys
    }
    return {key: watermark for key, watermark in found.items() if watermark > NEVER}


def _closed(node: AggregatePlan, watermarks: Watermarks, lateness: Mapping[str, int]) -> dict[str, Watermark]:
    key = node.time_key
    watermark = shift(watermarks.get(key, NEVER), -lateness.get(key, 0))
    if node.kind is WindowKind.SESSION:
        return {key: passed_below(node.size, watermark)}
    return {key: release_limit(node.size, node.slide, watermark)}


def _of_windows(node: AggregatePlan, given: Outgoing) -> dict[str, Watermark]:
    watermark = given.watermarks.get(node.time_key, NEVER)
    is_session = node.kind is WindowKind.SESSION
    open_from = given.least.get(node.time_key) if is_session else None
    start = start_watermark(0 if is_session else node.size, watermark, open_from)
    found = {WINDOW_START: start, WINDOW_END: watermark}
    found = {key: max(value, given.emitted.get(key, NEVER)) for key, value in found.items()}
    return {key: value for key, value in found.items() if value > NEVER}


KINDS: Mapping[type[NodePlan], Kind] = {
    JoinPlan: Kind(limits=limits, outputs=_of_join),
    AggregatePlan: Kind(limits=_closed, outputs=_of_windows),
    PassPlan: Kind(limits=lambda node, watermarks, lateness: {}, outputs=_of_pass),
    LookupPlan: Kind(limits=lambda node, watermarks, lateness: {}, outputs=_of_pass),
}


def kind_of(node: NodePlan) -> Kind:
    return KINDS[type(node)]
