"""What the driver does by kind of node: which rows its watermarks release, and which watermarks leave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.event_time import NEVER, Watermark
from watersmeet.plan.model import JoinPlan, NodePlan, PassPlan
from watersmeet.plan.retention import limits
from watersmeet.watermark.output import output_watermarks

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


def _of_pass(node: PassPlan, given: Outgoing) -> dict[str, Watermark]:
    found = {
        key: max(given.watermarks.get(key, NEVER), given.emitted.get(key, NEVER))
        for key in node.watermark_keys
    }
    return {key: watermark for key, watermark in found.items() if watermark > NEVER}


KINDS: Mapping[type[NodePlan], Kind] = {
    JoinPlan: Kind(limits=limits, outputs=_of_join),
    PassPlan: Kind(limits=lambda node, watermarks, lateness: {}, outputs=_of_pass),
}


def kind_of(node: NodePlan) -> Kind:
    return KINDS[type(node)]
