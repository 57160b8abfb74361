"""Rule: what the joins of a query ask, so that it can be told how a changed query differs from the one whose
state is there, and whether it can go on with that.

It can where only how far times may be apart and conditions over both sides are others. If every pair that it
accepts was accepted before, too, all rows that it needs were kept; else some may be gone, and it is said of
which rows nobody knows any more whether they had a partner (`Wider`). ``rest`` is a digest of all that may
not differ, ``joins`` is compared, and ``says`` is for people alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.conditions import ExactBand
from watersmeet.measure import Measured
from watersmeet.plan.conditions.conjuncts import split, text_of
from watersmeet.plan.identity.fingerprint import content_of, readable_place
from watersmeet.plan.identity.origins import digest_of, origins_of
from watersmeet.plan.identity.stored_names import stored_text
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan
from watersmeet.plan.order.kept import joined_in, orders_of, shown_order

Described = Mapping[str, Any]
"""What JSON can say."""

Ends = Sequence[int | None]


@dataclass(frozen=True)
class End:
    """An end of a band that has moved outwards: ``right - left`` could not be beyond ``old``, and now it may
    be as far as ``new``. ``upper``: which one."""

    left: Measured
    right: Measured
    upper: bool
    old: int
    new: int


@dataclass(frozen=True)
class Wider:
    """What a join accepts that it did not accept before. ``bounds``: those of its bounds, by (evicted, by),
    that keep rows longer now; ``ends`` of bands; ``other``: conditions were left out, or are others."""

    bounds: frozenset[tuple[str, str]]
    ends: tuple[End, ...]
    other: bool

    @property
    def accepts_more(self) -> bool:
        return self.other or bool(self.ends)

    def __bool__(self) -> bool:
        return self.accepts_more or bool(self.bounds)


def described(query: QueryPlan) -> dict[str, Any]:
    """``query``: as it is before it takes rows of others."""
    content, origins = content_of(query.nodes, query.options), origins_of(query.nodes)
    nodes, joins, kept = list(content["nodes"]), [], {}
    for join in compared(query):
        joins.append({**_join(join), "means": nodes[join.number].get("means", {})})
        nodes[join.number] = _without_what_may_differ(join, nodes[join.number])
    for node in query.nodes:
        for side in node.sides:
            own = origins[node.number, side.name]
            kept[f"{node.number}/{side.name}"] = sorted({own[name].digest for name in side.kept})
    return {
        "rest": digest_of({**content, "nodes": nodes}),
        "joins": joins,
        "order": [] if query.asked is None else orders_of(query.asked.query),
        "kept": kept,
        "keys": keys_of(query),
        "inputs": [
            f"{side.title} of {', '.join(branch.source.name for _, branch in side.sources)}"
            for side in query.sides
            if side.sources
        ],
        "reads": {
            branch.source.name: readable_place(branch.source)
            for side in query.sides
            for _, branch in side.sources
        },
        "says": [_said(node) for node in query.every(MatchPlan)],
    }


def keys_of(query: QueryPlan) -> list[str]:
    """The equalities by which rows lie, as written, of the joins that may differ in what they ask."""
    return list(dict.fromkeys(key.text for join in compared(query) for key in join.keys if key.text))


def has_other_lookups(old: Described, query: QueryPlan) -> bool:
    """Return True if the joins find or evict rows by more than those of the state ``old`` do."""
    joins, texts = old["joins"], {text for join in old["says"] for text in join["on"]}
    held = set(map(_either_way, old.get("keys", ())))
    for before, join in zip(joins, compared(query), strict=False):
        now = _join(join)
        if (
            not now["ends"].keys() <= before["ends"].keys()
            or not now["bounds"].keys() <= before["bounds"].keys()
        ):
            return True
        if any(band.text.replace("`", "") not in texts for band in join.values.real):
            return True
    return any(_either_way(text) not in held for text in keys_of(query))


def hindrance(old: Described, new: Described) -> str:
    """Why the state of ``old`` cannot be that of ``new``, for people; empty where it can."""
    if old["rest"] != new["rest"] or len(old["joins"]) != len(new["joins"]):
        gone = _keys_gone(old, new)
        if gone:
            return f"rows are stored by {' and '.join(gone)}, and cannot be looked up by other keys"
        return "more changed than how far apart times may be and conditions over both sides"
    if any(not set(columns) <= set(old["kept"].get(side, ())) for side, columns in new["kept"].items()):
        return "it needs columns that the state does not have"
    if any(
        not before.get("means", {}).items() <= now["means"].items()
        for before, now in zip(old["joins"], new["joins"], strict=True)
    ):
        return "names in its conditions have a different meaning, or are no longer used"
    return ""


def _keys_gone(old: Described, new: Described) -> list[str]:
    """The equalities by which rows lie that are asked for no more, from neither side."""
    asked = {_either_way(text) for text in new["keys"]}
    return [text for text in old.get("keys", ()) if _either_way(text) not in asked]


def _either_way(text: str) -> frozenset[str]:
    """Return what an equality is known by, from whichever side it is written."""
    return frozenset(re.split(r" (=|IS NOT DISTINCT FROM) ", text.replace("`", "")))


def order_hindrance(old: Described, new: Described) -> str:
    """The same, where what is joined first is other inputs: neither order has the other one's results for
    certain, or `plan.order.kept` would have put the query into the old one."""
    before, now = (list(joined_in(said.get("order", []))) for said in (old, new))
    if frozenset[str]().union(*before) != frozenset[str]().union(*now):
        return ""
    gone, come = (
        [joined for joined in one if joined not in other] for one, other in ((before, now), (now, before))
    )
    if not gone or not come:
        return ""
    kept, needed = (" with ".join(sorted(joined)) for joined in (min(gone, key=len), min(come, key=len)))
    return (
        f"its joins are in another order: the state has joined rows of {kept}, but the query needs"
        f" those of {needed}"
    )


def wider_joins(old: Described, query: QueryPlan) -> dict[int, Wider]:
    """Per node, by number, what it accepts that it did not accept before; of those that do. ``old``: of a
    state that can be that of ``query`` (`hindrance`)."""
    wider = {}
    for before, join in zip(old["joins"], compared(query), strict=True):
        now = _join(join)
        ends = [end for band in join.bands for end in _moved(band, before["ends"][_name(band)])]
        own = Wider(
            bounds=frozenset(
                (b.evicted, b.by) for b in join.bounds if b.c > before["bounds"][f"{b.evicted} by {b.by}"]
            ),
            ends=tuple(ends),
            other=not set(before["asked"]) <= set(now["asked"])
            or any(list(_moved(band, before["ends"][_name(band)])) for band in join.values.exact),
        )
        if own:
            wider[join.number] = own
    return wider


def _moved(band: ExactBand, old: Ends) -> Iterator[End]:
    """The ends that have moved outwards: those that are open are the same ones."""
    if old[0] is not None and band.lower is not None and band.lower < old[0]:
        yield End(band.left, band.right, False, old[0], band.lower)
    if old[1] is not None and band.upper is not None and band.upper > old[1]:
        yield End(band.left, band.right, True, old[1], band.upper)


def compared(query: QueryPlan) -> list[JoinPlan]:
    """The joins of which it may differ what they ask."""
    return [
        join
        for join in query.every(JoinPlan)
        if join.asof is None and join.horizon is None and not join.changes
    ]


def differences(old: Described, new: Described) -> list[str]:
    """In which conditions and kinds two descriptions differ, for people."""
    told = []
    if order_hindrance(old, new):
        orders = (", ".join(map(shown_order, said["order"])) for said in (old, new))
        told.append("its joins were {} and are now {}".format(*orders))
        asked = [list(dict.fromkeys(t for one in said["says"] for t in one["on"])) for said in (old, new)]
        return told + _of_conditions("it", *asked)
    if old["inputs"] != new["inputs"]:
        told.append(f"its inputs were {', '.join(old['inputs'])}, now they are {', '.join(new['inputs'])}")
    told += _of_sources(old.get("reads", {}), new["reads"])
    for place in range(max(len(old["says"]), len(new["says"]))):
        before, now = (said["says"][place : place + 1] for said in (old, new))
        if not before or not now:
            (one,) = before or now
            told.append(f"the join of {one['of']} {'is new' if now else 'was removed'}")
            continue
        if before == now:
            continue
        (was,), (is_now,) = before, now
        of = f"the join of {was['of']}"
        if was["of"] != is_now["of"]:
            told.append(f"{of} is now that of {is_now['of']}")
        if was["kind"] != is_now["kind"]:
            told.append(f"{of} was {was['kind']}, now it is {is_now['kind']}")
        told += _of_conditions(of, was["on"], is_now["on"])
    return told or [
        "a source's options or columns, a filter, what its names stand for, event times, windows, groups or"
        " settings changed"
    ]


def _of_sources(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Say from where the same sources read other rows."""
    for name in old.keys() & new.keys():
        was, is_now = old[name], new[name]
        for option in sorted(was.keys() | is_now.keys()):
            if was.get(option) != is_now.get(option):
                before, after = (f'"{own[option]}"' if option in own else "not set" for own in (was, is_now))
                yield f'the {option} of "{name}" was {before}, now it is {after}'


def _of_conditions(of: str, was: Sequence[str], is_now: Sequence[str]) -> list[str]:
    gone = [text for text in was if text not in is_now]
    come = [text for text in is_now if text not in was]
    if gone and come:
        return [f"{of} was ON {' AND '.join(gone)}, now it is ON {' AND '.join(come)}"]
    if gone:
        return [f"{of} is no longer ON {' AND '.join(gone)}"]
    return [f"{of} is now also ON {' AND '.join(come)}"] if come else []


def _join(node: JoinPlan) -> dict[str, Any]:
    bands = (*node.bands, *node.values.exact)
    return {
        "asked": sorted({text_of(conjunct.expr) for conjunct in split(node.residual)}),
        "ends": {_name(band): [band.lower, band.upper] for band in bands},
        "bounds": {f"{b.evicted} by {b.by}": b.c for b in node.bounds},
    }


def _without_what_may_differ(node: JoinPlan, content: Mapping[str, Any]) -> dict[str, Any]:
    """By what rows are found and released stays: only how far from each other they may be does not."""
    return {
        **content,
        "means": None,
        "bounds": [[b.evicted, b.by] for b in node.bounds],
        "bands": [_name(band) for band in node.bands],
        "values": [_name(b) if isinstance(b, ExactBand) else stored_text(b) for b in node.values.every],
        "residual": None,
    }


def _name(band: ExactBand) -> str:
    return f"{band.left.name} to {band.right.name}, ends {band.lower is None:d}{band.upper is None:d}"


def _said(node: MatchPlan) -> dict[str, Any]:
    bands = (*node.bands, *node.values.exact)
    texts = [key.text or f"{text_of(key.left)} = {text_of(key.right)}" for key in node.keys]
    texts += [text for band in bands for text in band.texts]
    texts += [band.text for band in node.values.real]
    texts += [text for _, text in (*node.one_sided, *node.filters)]
    texts += [conjunct.text for conjunct in split(node.residual)]
    return {
        "of": f"{node.left.title} and {node.right.title}",
        "kind": node.kind.value,
        "on": list(dict.fromkeys(text.replace("`", "") for text in texts if text)),
    }
