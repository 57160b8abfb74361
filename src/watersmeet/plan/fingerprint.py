"""Rule: a digest of what stored state depends on, to tell whether a query fits its checkpoint.

In it: inputs and their sources (with the path or topic that they read), the expressions and types of kept
columns, flags, event times, keys, the condition, kind and output mode. Not in it: lags, sinks, the projection
(while it keeps the same columns).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from watersmeet.plan.conjuncts import text_of
from watersmeet.plan.model import FeedPlan, JoinPlan, SidePlan, joined_name
from watersmeet.spec.model import Options, Source

_VERSION = 2


def fingerprint_of(joins: Sequence[JoinPlan], options: Options) -> str:
    """32 hexadecimal digits; the same for the same text whatever the platform or run."""
    content = {
        "version": _VERSION,
        "output_mode": options.output_mode.value,
        "joins": [_join(join) for join in joins],
    }
    text = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _join(join: JoinPlan) -> dict[str, object]:
    return {
        "kind": join.kind.value,
        "sides": [_side(join.left), _side(join.right)],
        "keys": [[text_of(key.left), text_of(key.right), key.null_safe] for key in join.keys],
        "bands": [[b.left_column, b.right_column, b.lower, b.upper] for b in join.bands],
        "values": [repr(band) for band in join.values.every],
        "bounds": [[b.evicted, b.by, b.c] for b in join.bounds],
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
            {
                "source": [branch.source.name, branch.source.connector, *_reads(branch.source)],
                "columns": [[name, text_of(expr)] for name, expr in branch.columns],
                "flag": None if branch.flag is None else text_of(branch.flag),
            }
            for branch in side.branches
        ],
    }


def _feed(feed: FeedPlan) -> dict[str, object]:
    return {
        "join": feed.join,
        "copied": [list(pair) for pair in feed.copied],
        "computed": [[name, text_of(expr)] for name, expr in feed.computed],
        "filters": list(feed.filters),
        "conditions": list(feed.conditions),
        "not_null": list(feed.not_null),
    }


def _reads(source: Source) -> list[str]:
    """What the source reads, as written: offsets of one path or topic mean nothing for another."""
    named = {key.lower(): value for key, value in source.options.items()}
    return [f"{key}={named[key]}" for key in ("path", "topic", "topics", "subscribepattern") if key in named]
