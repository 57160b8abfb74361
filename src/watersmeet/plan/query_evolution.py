"""How a query that is written differently than when its state was made resumes with that state.

`ChangeKind` is the table of all kinds of changes, with the `Decision` on each. A query whose joins stand in
another order, or whose equalities do, is planned in the order of the state (`plan_in_state_order`). Of any
other change `judge` compares what the state says of the query (`described`) with the query. Rows stay where
only how far times may be apart and conditions over both sides are others. If every pair that the query
accepts was accepted before, too, the state has all rows that it needs; else some may be gone, and the run
says which rows may have lost a partner (`Wider`).

The order of joins. Rows are stored per side, and joined rows by which inputs they are of. So another order
has the same results and the same state where it differs in

* which side of a join is the left one: of INNER and FULL joins, of LEFT joins that were RIGHT joins, and the
  other way round;
* which of the inner joins that stand together are made first.

SEMI, ANTI and ASOF joins keep their sides, joins with a table as of the tick their place, and outer joins
what is beneath them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from sqlglot import exp

from watersmeet.conditions import ExactBand
from watersmeet.measure import Measured
from watersmeet.plan.conditions.conjuncts import join_all, split, split_as_written, text_of
from watersmeet.plan.identity.fingerprint import content_of, stored_text
from watersmeet.plan.identity.origins import digest_of, origins_of
from watersmeet.plan.identity.source_location import readable_place
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan
from watersmeet.plan.order.join_order import is_inner, own_conditions, parts_of, with_stages_changed
from watersmeet.plan.passes import rerun
from watersmeet.spec.model import Expr, Input, Join, JoinKind, Query, Relation, with_inputs


class Decision(Enum):
    """Command to type after a change of a query, and the effect on its stored rows."""

    RESUME = "run it", "all rows stay"
    RESUME_IN_OLD_ORDER = "run it", "all rows stay; the job keeps the old order"
    KEEP = "`--change-queries`", "rows stay"
    KEEP_AND_SAY = (
        "`--change-queries`",
        "rows stay; the run prints from which time on results are complete",
    )
    RESTART = "`--change-queries`", "the query restarts empty at the current offsets"


class ChangeKind(Enum):
    """The kinds of changes of one query, as the upgrade page lists them, and the decision on each."""

    OUTPUT = "you remove, rename or reorder selected columns", Decision.RESUME
    OPTIONS = (
        "lag, `idle_timeout`, trigger, limits, partitions, cores, BROADCAST hint",
        Decision.RESUME,
    )
    ABOVE = (
        "sink options, WHERE conditions on the join's result, lookups `FOR SYSTEM_TIME AS OF`",
        Decision.RESUME,
    )
    ORDER = (
        "you reorder inner joins or equalities, or swap sides (`a LEFT JOIN b` to `b RIGHT JOIN a`)",
        Decision.RESUME_IN_OLD_ORDER,
    )
    NARROWER = (
        "you narrow an interval of times or numbers, or add a condition that is checked on each candidate"
        " pair (`a.x + b.x < 9`, `(a.x = b.x) IS TRUE`)",
        Decision.KEEP,
    )
    WIDER = (
        "you widen an interval, or remove or replace a condition over both sides",
        Decision.KEEP_AND_SAY,
    )
    FURTHER_LOOKUP = (
        "you add an equality, or an interval of other columns (`a.x = b.x`, `a.x < b.x`)",
        Decision.RESTART,
    )
    KEY = "you remove or replace a join key", Decision.RESTART
    OTHER_ORDER = "you move an outer, SEMI, ANTI or ASOF join to another place", Decision.RESTART
    COLUMNS = "a condition needs a column that the state does not have", Decision.RESTART
    NAMES = "a name in a condition stands for another column", Decision.RESTART
    SHARED = "you change a query that shares rows with another query", Decision.RESTART
    UNTIMED = (
        "you widen an interval, and no event time tells which rows are missing",
        Decision.RESTART,
    )
    OTHER = (
        "you change the join kind, a filter on one side, an event time, or `<` to `<=`; or you remove a"
        " condition that EXPLAIN lists under *Bands*",
        Decision.RESTART,
    )

    def __init__(self, what: str, decision: Decision) -> None:
        self.what = what
        self.decision = decision


@dataclass(frozen=True)
class Judgement:
    """The kind of a change of a query, and for people why its rows do not stay; empty if they do."""

    kind: ChangeKind
    reason: str = ""


Described = Mapping[str, Any]
"""What JSON can say."""

_TESTED = re.compile(r"\((.*)\) IS TRUE")
"""A condition as text that finds no rows, and is tested on pairs."""

Ends = Sequence[int | None]


@dataclass(frozen=True)
class End:
    """An end of a band of ``right - left`` that has moved outwards.

    Attributes:
        upper: True: the upper end; False: the lower end.
        old: The end before: the difference could not be beyond it.
        new: The end now.
    """

    left: Measured
    right: Measured
    upper: bool
    old: int
    new: int


@dataclass(frozen=True)
class Wider:
    """Pairs that a join accepts and that its previous condition did not accept.

    Attributes:
        bounds: Its bounds, by (evicted, by), that retain rows longer now.
        ends: Ends of bands that have moved outwards.
        other: Conditions were removed or replaced.
    """

    bounds: frozenset[tuple[str, str]]
    ends: tuple[End, ...]
    other: bool

    @property
    def accepts_more(self) -> bool:
        return self.other or bool(self.ends)

    def __bool__(self) -> bool:
        return self.accepts_more or bool(self.bounds)


def describe_query(query: QueryPlan) -> dict[str, Any]:
    """Describe a query so that later versions can be compared with it.

    Args:
        query: The query before it reuses rows of others.
    """
    content, origins = content_of(query.nodes, query.options), origins_of(query.nodes)
    nodes, joins, kept = list(content["nodes"]), [], {}
    for join in comparable_joins(query):
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
        "says": [_describe_for_people(node) for node in query.every(MatchPlan)],
    }


def keys_of(query: QueryPlan) -> list[str]:
    """Return the equalities that rows are stored by, as written, of the comparable joins."""
    return list(dict.fromkeys(key.text for join in comparable_joins(query) for key in join.keys if key.text))


def judge(old: Described, query: QueryPlan, new: Described) -> Judgement:
    """Return whether the state of ``old`` can be that of ``query``, described as ``new``."""
    order = _order_hindrance(old, new)
    if order:
        return Judgement(ChangeKind.OTHER_ORDER, order)
    if old["rest"] != new["rest"] or len(old["joins"]) != len(new["joins"]):
        return _judge_other(old, query, new)
    if any(not set(columns) <= set(old["kept"].get(side, ())) for side, columns in new["kept"].items()):
        return Judgement(ChangeKind.COLUMNS, "it needs columns that the state does not have")
    if any(
        not before.get("means", {}).items() <= now["means"].items()
        for before, now in zip(old["joins"], new["joins"], strict=True)
    ):
        reason = "names in its conditions have a different meaning, or are no longer used"
        return Judgement(ChangeKind.NAMES, reason)
    return Judgement(ChangeKind.WIDER if wider_joins(old, query) else ChangeKind.NARROWER)


def _judge_other(old: Described, query: QueryPlan, new: Described) -> Judgement:
    """Judge a change that goes beyond distances of times and conditions over both sides.

    The reason names the keys that rows are stored by and the query lacks, or the keys and bands of the
    query that rows are not stored by.
    """
    gone = [text for text in old.get("keys", ()) if _either_way(text) not in map(_either_way, new["keys"])]
    if gone:
        reason = f"rows are stored by {' and '.join(gone)}, and cannot be looked up by other keys"
        return Judgement(ChangeKind.KEY, reason)
    was, is_now = ({_either_way(t): t for one in said["says"] for t in one["on"]} for said in (old, new))
    lookups = {_either_way(text) for text in [*new["keys"], *_bands(query)]}
    added = is_now.keys() - was.keys()
    is_same = old["inputs"] == new["inputs"] and all(
        key in is_now or ((tested := _TESTED.fullmatch(text)) and _either_way(tested[1]) in is_now)
        for key, text in was.items()
    )
    if is_same and added and added <= lookups and _kinds(old) == _kinds(new):
        shown = " AND ".join(text for key, text in is_now.items() if key in added)
        reason = f"rows are not stored by {shown}; written as ({shown}) IS TRUE it is tested on pairs"
        return Judgement(ChangeKind.FURTHER_LOOKUP, reason)
    reason = "more changed than how far apart times may be and conditions over both sides"
    return Judgement(ChangeKind.OTHER, reason)


def _bands(query: QueryPlan) -> Iterator[str]:
    """Yield the intervals that find rows among those of one key, as written."""
    for join in comparable_joins(query):
        for band in (*join.bands, *join.values.exact):
            yield from band.texts
        yield from (band.text for band in join.values.real)


def _kinds(said: Described) -> list[str]:
    return [join["kind"] for join in said["says"]]


def _either_way(text: str) -> frozenset[str]:
    """Return what an equality is known by, from whichever side it is written."""
    return frozenset(re.split(r" (=|IS NOT DISTINCT FROM) ", text.replace("`", "")))


def _order_hindrance(old: Described, new: Described) -> str:
    """Describe the joined rows that only one of two join orders has.

    Returns:
        An empty text if the inputs differ, too.
    """
    before, now = (list(inputs_of_joins(said.get("order", []))) for said in (old, new))
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
    """Return what each changed join accepts that it did not accept before, by node number.

    Args:
        old: Description of a state that the query can resume (`judge`).
    """
    wider = {}
    for before, join in zip(old["joins"], comparable_joins(query), strict=True):
        now = _join(join)
        ends = [end for band in join.bands for end in _moved_ends(band, before["ends"][_name(band)])]
        own = Wider(
            bounds=frozenset(
                (b.evicted, b.by) for b in join.bounds if b.c > before["bounds"][f"{b.evicted} by {b.by}"]
            ),
            ends=tuple(ends),
            other=not set(before["asked"]) <= set(now["asked"])
            or any(list(_moved_ends(band, before["ends"][_name(band)])) for band in join.values.exact),
        )
        if own:
            wider[join.number] = own
    return wider


def _moved_ends(band: ExactBand, old: Ends) -> Iterator[End]:
    """Yield the ends that have moved outwards; open ends are the same in both."""
    if old[0] is not None and band.lower is not None and band.lower < old[0]:
        yield End(band.left, band.right, False, old[0], band.lower)
    if old[1] is not None and band.upper is not None and band.upper > old[1]:
        yield End(band.left, band.right, True, old[1], band.upper)


def comparable_joins(query: QueryPlan) -> list[JoinPlan]:
    """Return the joins whose conditions may differ from those of the state."""
    return [
        join
        for join in query.every(JoinPlan)
        if join.asof is None and join.horizon is None and not join.changes
    ]


def differences(old: Described, new: Described) -> list[str]:
    """Describe for users the conditions and kinds in which two descriptions differ."""
    told = []
    if _order_hindrance(old, new):
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
    """Remove the parts of a join's content that may differ.

    The columns that find and release rows remain; the distances between times are removed.
    """
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


def _describe_for_people(node: MatchPlan) -> dict[str, Any]:
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


Order: TypeAlias = "str | Sequence[Order]"
"""How joins stand, as JSON can say it: an alias, or what is left and what is right. Tables as of the tick are
not in it."""

_MIRRORED: Mapping[JoinKind, JoinKind] = {
    JoinKind.INNER: JoinKind.INNER,
    JoinKind.FULL: JoinKind.FULL,
    JoinKind.LEFT: JoinKind.RIGHT,
    JoinKind.RIGHT: JoinKind.LEFT,
}


class _OtherJoinsError(Exception):
    """The joins cannot stand so."""


def orders_of(query: Query) -> list[Order]:
    """Return the join order of the query and of each of its stages."""
    return [_order(stage.relation) for stage in query.every]


def in_orders(query: Query, orders: Sequence[Order]) -> Query | None:
    """Return the query with its joins, and those of its stages, in these orders.

    Returns:
        None if that changes its results or its inputs.
    """
    by_inputs = {aliases_in(order): order for order in orders}
    try:
        return _in_orders(query, by_inputs)
    except _OtherJoinsError:
        return None


def aliases_in(order: Order) -> frozenset[str]:
    if isinstance(order, str):
        return frozenset([order])
    return frozenset(alias for part in order for alias in aliases_in(part))


def shown_order(order: Order) -> str:
    """Format a join order for users."""
    return order if isinstance(order, str) else f"({', '.join(map(shown_order, order))})"


def inputs_of_joins(orders: Sequence[Order]) -> Iterator[frozenset[str]]:
    """Yield the inputs of each join."""
    for order in orders:
        if not isinstance(order, str):
            yield aliases_in(order)
            yield from inputs_of_joins(order)


def _order(relation: Relation) -> Order:
    if isinstance(relation, Input):
        return relation.alias
    return _order(relation.left) if relation.is_lookup else [_order(relation.left), _order(relation.right)]


def _in_orders(query: Query, orders: Mapping[frozenset[str], Order]) -> Query:
    relation, names = query.relation, aliases_in(_order(query.relation))
    if isinstance(relation, Join) and len(names) > 1:
        if names not in orders:
            raise _OtherJoinsError
        relation = _in_order(relation, orders[names])

    def with_stages(i: Input) -> Input:
        return with_stages_changed(i, lambda stage: _in_orders(stage, orders))

    return replace(query, relation=with_inputs(relation, with_stages))


def _in_order(relation: Relation, order: Order) -> Relation:
    """Return the relation with its joins in this order.

    Raises:
        _OtherJoinsError: The joins of the relation do not allow the order.
    """
    if isinstance(relation, Input):
        if order != relation.alias:
            raise _OtherJoinsError
        return relation
    if relation.is_lookup:
        return replace(relation, left=_in_order(relation.left, order))
    if isinstance(order, str):
        raise _OtherJoinsError
    left, right = order
    beneath = [aliases_in(_order(side)) for side in (relation.left, relation.right)]
    asked = [aliases_in(left), aliases_in(right)]
    if beneath == asked:
        return replace(relation, left=_in_order(relation.left, left), right=_in_order(relation.right, right))
    if beneath == asked[::-1] and relation.kind in _MIRRORED:
        return replace(
            relation,
            kind=_MIRRORED[relation.kind],
            left=_in_order(relation.right, left),
            right=_in_order(relation.left, right),
        )
    if not is_inner(relation):
        raise _OtherJoinsError
    return _of_parts(relation, order)


def _of_parts(top: Join, order: Order) -> Join:
    """Put a group of adjacent inner joins, and the relations that they join, in this order."""
    parts = {aliases_in(_order(part)): part for part in parts_of(top)}

    def build_relation(of: Order) -> Relation:
        part = parts.get(aliases_in(of))
        if part is not None:
            return _in_order(part, of)
        if isinstance(of, str):
            raise _OtherJoinsError
        left, right = of
        return Join(build_relation(left), build_relation(right), JoinKind.INNER, None, plan=top.plan)

    joined = build_relation(order)
    assert isinstance(joined, Join)
    return replace(joined, where=join_all(own_conditions(top)))  # from where each sinks to its join


def plan_in_state_order(plan: QueryPlan, orders: Sequence[Order], said: Described) -> QueryPlan | None:
    """Return the plan with joins in ``orders``, and equalities in the state's order.

    Args:
        plan: as it is before it takes rows of others.
        said: what was described of the query when its state was made; may be empty.

    Returns:
        None where the plan is in that order, has other results in it, or cannot be run in it.
    """
    if plan.asked is None:
        return None
    texts = [text for join in said.get("says", ()) for text in join["on"]]
    query = in_orders(plan.asked.query, orders)
    query = None if query is None else _with_keys_in_order(query, texts, said.get("keys", ()))
    again = None if query in (None, plan.asked.query) else rerun(plan, "tree", query=query)[0].plan
    if again is None or again.asked is None:
        return None
    planned, joined = (
        [tuple(i.alias for i in stage.inputs) for stage in of.every]
        for of in (plan.asked.query, again.asked.query)
    )
    return replace(
        again,
        of_sink=plan.of_sink,
        of_plan=plan.of_plan,
        reordered=tuple(order for order in plan.reordered if order in joined),
        ordered_by_state=tuple(order for order in joined if order not in planned),
    )


def _with_keys_in_order(query: Query, texts: Sequence[str], keys: Collection[str]) -> Query:
    """Return the query, and its stages, with equalities in the order of ``texts``, conditions of the state.

    Rows lie by a hash of the values that are to be equal, in the order of the equalities. Other conditions
    stay where they are, for the first may keep the second from being computed.

    Args:
        keys: those of ``texts`` by which rows are found. Equalities of two columns may change places though
            nobody says that they are: nothing can fail in them.
    """
    places = {text: place for place, text in reversed(list(enumerate(texts)))}
    of_keys = {text.replace("`", "") for text in keys}

    def place_of(part: Expr) -> int | None:
        if not isinstance(part, exp.EQ | exp.NullSafeEQ):
            return None
        sides = part.this, part.expression
        is_plain = isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in sides)
        mirrored = type(part)(this=part.expression.copy(), expression=part.this.copy())
        ways = [text_of(way).replace("`", "") for way in (part, mirrored)]
        return next((places[t] for t in ways if t in places and (is_plain or t in of_keys)), None)

    def in_order(condition: Expr | None) -> Expr | None:
        conjuncts = split_as_written(condition)
        at = {number: place for number, part in enumerate(conjuncts) if (place := place_of(part)) is not None}
        ordered = sorted(at, key=at.__getitem__)
        if ordered == list(at):
            return condition
        moved = dict(zip(at, ordered, strict=True))
        return join_all([conjuncts[moved.get(number, number)] for number in range(len(conjuncts))])

    return _with_conditions(query, in_order)


def _with_conditions(query: Query, change: Callable[[Expr | None], Expr | None]) -> Query:
    """Return the query with ``change`` applied to each condition of its joins and stages."""

    def of_relation(relation: Relation) -> Relation:
        if isinstance(relation, Input):
            return with_stages_changed(relation, lambda stage: _with_conditions(stage, change))
        return replace(
            relation,
            left=of_relation(relation.left),
            right=of_relation(relation.right),
            on=change(relation.on),
            where=change(relation.where),
        )

    return replace(query, relation=of_relation(query.relation), where=change(query.where))
