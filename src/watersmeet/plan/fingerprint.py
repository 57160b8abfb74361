"""Rule: a digest of what stored state depends on, to tell whether a query fits its checkpoint.

In it: inputs and their sources (with the path or topic that they read), the expressions and types of kept
columns, flags, event times, keys, the condition, kind and output mode. Not in it: lags, sinks, the projection
(while it keeps the same columns); of a join with a table as of the tick its condition and the table, for
nothing is kept by them: where the table is, what is read of it and how often may change between runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from watersmeet.plan.conjuncts import text_of
from watersmeet.plan.model import (
    AggregatePlan,
    BranchPlan,
    FeedPlan,
    JoinPlan,
    Key,
    LookupPlan,
    NodePlan,
    SidePlan,
    joined_name,
)
from watersmeet.spec.model import Options, Source
from watersmeet.spec.secrets import public
from watersmeet.spec.time_zones import UTC

_VERSION = 2


def fingerprint_of(nodes: Sequence[NodePlan], options: Options) -> str:
    """32 hexadecimal digits; the same for the same text whatever the platform or run."""
    content = {
        "version": _VERSION,
        "output_mode": options.output_mode.value,
        "nodes": [_node(node) for node in nodes],
    }
    if options.time_zone != UTC:
        content["time_zone"] = options.time_zone
    return _digest(content)


def table_fingerprint(table: SidePlan, keys: Sequence[Key]) -> str:
    """A digest of what is read of a table and how it is held, whatever its content. No secret is in it."""
    content = {
        "side": _side(table),
        "keys": [[text_of(key.right), key.right_column] for key in keys],
        "options": [
            sorted((name.lower(), str(public(name, value))) for name, value in branch.source.options.items())
            for _, branch in table.sources
        ],
    }
    return _digest(content)


def _digest(content: object) -> str:
    text = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _node(node: NodePlan) -> dict[str, object]:
    found: dict[str, object] = {
        "sides": [_side(side) for side in node.sides],
        "bounds": [[b.evicted, b.by, b.c] for b in node.bounds],
    }
    if isinstance(node, LookupPlan):
        return found | {"kind": "LOOKUP", "table": node.table.name}
    if isinstance(node, AggregatePlan):
        return found | _windows(node)
    return found | (_join(node) if isinstance(node, JoinPlan) else {"kind": "PASS"})


def _windows(node: AggregatePlan) -> dict[str, object]:
    """Of the aggregates, what is kept for them is enough: rows, or partial aggregates."""
    calls = [[c.function, list(c.columns), c.filter] for c in node.calls]
    return {
        "partial": None if node.keeps_rows else calls,
        "kind": node.kind.value,
        "time": node.time,
        "size": node.size,
        "slide": node.slide,
        "keys": [column for _, column in node.keys],
    }


def _join(join: JoinPlan) -> dict[str, object]:
    nearest = {} if join.asof is None else {"latest": join.asof.latest}
    return {
        **nearest,
        "kind": join.kind.value,
        "keys": [[text_of(key.left), text_of(key.right), key.null_safe] for key in join.keys],
        "bands": [[b.left_column, b.right_column, b.lower, b.upper] for b in join.bands],
        "values": [repr(band) for band in join.values.every],
        "rechecks": [repr(comparison) for comparison in (*join.rechecks, *join.values.rechecks)],
        "residual": None if join.residual is None else text_of(join.residual),
        "matchable": join.matchable,
    }


def _side(side: SidePlan) -> dict[str, object]:
    types: dict[str, str] = {}
    for i in side.inputs:
        types |= {c.name if side.feed is None else joined_name(i.alias, c.name): c.type for c in i.columns}
    return {
        "name": side.name,
        "feed": None if side.feed is None else _feed(side.feed),
        "event_times": list(side.event_times),
        "kept": [[name, types.get(name)] for name in side.kept],
        "branches": [
            _feed(branch) if isinstance(branch, FeedPlan) else _branch(branch) for branch in side.branches
        ],
    }


def _branch(branch: BranchPlan) -> dict[str, object]:
    return {
        "source": [branch.source.name, branch.source.connector, *_reads(branch.source)],
        "columns": [[name, text_of(expr)] for name, expr in branch.columns],
        "flag": None if branch.flag is None else text_of(branch.flag),
    }


def _feed(feed: FeedPlan) -> dict[str, object]:
    return {
        "node": feed.node,
        "copied": [list(pair) for pair in feed.copied],
        "computed": [[name, text_of(expr)] for name, expr in feed.computed],
        "beneath": list(feed.beneath),
        "filters": list(feed.filters),
        "conditions": list(feed.conditions),
        "not_null": list(feed.not_null),
        "event_times": [list(pair) for pair in feed.event_times],
    }


def _reads(source: Source) -> list[str]:
    """What the source reads, as written: offsets of one path or topic mean nothing for another."""
    named = {key.lower(): value for key, value in source.options.items()}
    return [f"{key}={named[key]}" for key in ("path", "topic", "topics", "subscribepattern") if key in named]
