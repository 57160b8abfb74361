"""Rule: a query whose conditions are others than when its state was made finds rows by those of old.

Rows lie by a hash of the values that are to be equal, in the order of the equalities. So these stand in the
order of old, from whichever side they are written. Other conditions stay where they are, for the first may
keep the second from being computed.

A condition that came since then, and by which rows would be found or released that are stored otherwise, is
tested on the pairs that the others find, as any condition over both sides is: it is written as
``(…) IS TRUE``, by which the planner finds nothing. An equality that is gone is missed: rows that are equal
by the others alone lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all, text_of, written
from watersmeet.plan.order.reorder import with_stages_changed
from watersmeet.spec.model import Expr, Input, Query, Relation

_EQUALITIES = (exp.EQ, exp.NullSafeEQ)


def with_keys_in_order(query: Query, texts: Sequence[str], keys: Collection[str]) -> Query:
    """The query, and its stages, with equalities where other ones stand in the same condition, so that they
    come in the order of ``texts``, conditions of old as text.

    Args:
        keys: those of ``texts`` by which rows are found. Equalities of two columns may change places though
            nobody says that they are: nothing can fail in them.
    """
    places: dict[str, int] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, place)
    of_keys = {text.replace("`", "") for text in keys}

    def place_of(part: Expr) -> int | None:
        for text in _either_way(part):
            if text in places and (text in of_keys or _is_of_columns(part)):
                return places[text]
        return None

    return _with_conditions(query, lambda condition: _in_order(condition, place_of))


def added_conditions(query: Query, texts: Collection[str], keys: Collection[str]) -> tuple[str, ...]:
    """Return the conjuncts of the query, and of its stages, that its state does not know, as text; none where
    an equality by which its rows are found is gone.

    Args:
        texts, keys: as of `with_keys_in_order`.
    """
    of_state = {*texts, *(text.replace("`", "") for text in keys)}
    held, there, came = {text.replace("`", "") for text in keys}, set[str](), dict[str, None]()

    def note(condition: Expr | None) -> Expr | None:
        for part in written(condition):
            there.update(_either_way(part))
            if of_state.isdisjoint({_plain(part), *_either_way(part)}):
                came[text_of(part)] = None
        return condition

    _with_conditions(query, note)
    return tuple(came) if held <= there else ()


def with_tested(query: Query, texts: Sequence[str], tested: Collection[str]) -> Query:
    """Return the query with the conjuncts ``tested`` last, written as ``(…) IS TRUE``; in its stages, too.

    Args:
        texts: as of `with_keys_in_order`: these conjuncts stand as they did when the state was made.
    """
    places = {text: place for place, text in enumerate(texts)}

    def place_of(part: Expr) -> int:
        return places.get(_plain(part), len(places))

    def as_tested(condition: Expr | None) -> Expr | None:
        parts = written(condition)
        own = [part for part in parts if text_of(part) in tested]
        if not own:
            return condition
        ways = [min(map(_tested, _both_ways(part)), key=place_of) for part in own]
        return join_all([*(part for part in parts if part not in own), *sorted(ways, key=place_of)])

    return _with_conditions(query, as_tested)


def _plain(part: Expr) -> str:
    return text_of(part).replace("`", "")


def _either_way(part: Expr) -> tuple[str, ...]:
    """An equality as text, written from either side, without backticks; nothing for what is none."""
    return tuple(map(_plain, _both_ways(part))) if isinstance(part, _EQUALITIES) else ()


def _both_ways(part: Expr) -> tuple[Expr, ...]:
    if not isinstance(part, _EQUALITIES):
        return (part,)
    return part, type(part)(this=part.expression.copy(), expression=part.this.copy())


def _tested(part: Expr) -> Expr:
    return exp.Is(this=exp.Paren(this=part.copy()), expression=exp.true())


def _is_of_columns(part: Expr) -> bool:
    return isinstance(part, exp.EQ) and all(
        isinstance(side, exp.Column) for side in (part.this, part.expression)
    )


def _in_order(condition: Expr | None, place_of: Callable[[Expr], int | None]) -> Expr | None:
    """As it is where they are in order."""
    conjuncts = written(condition)
    at: Mapping[int, int] = {
        number: place for number, part in enumerate(conjuncts) if (place := place_of(part)) is not None
    }
    in_order = sorted(at, key=at.__getitem__)
    if in_order == list(at):
        return condition
    moved = list(conjuncts)
    for number, other in zip(at, in_order, strict=True):
        moved[number] = conjuncts[other]
    return join_all(moved)


def _with_conditions(query: Query, change: Callable[[Expr | None], Expr | None]) -> Query:
    """The query with each condition of its joins, and of those of its stages, changed."""

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
