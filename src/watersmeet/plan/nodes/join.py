"""Classify the condition of one node, before its columns are known.

The parts are keys, bands, bounds and the residual predicate. Only a join has a condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.conditions import Bound, ExactBand
from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.conditions.bands import (
    Links,
    bounds_of,
    inverted_pairs,
    links_of,
    merge_links,
    time_bands,
    value_bands,
)
from watersmeet.plan.conditions.classification import ConditionParts, classify
from watersmeet.plan.conditions.conjuncts import Conjunct, constant_is_true
from watersmeet.plan.conditions.keys import Equality, keys_of
from watersmeet.plan.conditions.residual import Residual, residual_of, text_warnings
from watersmeet.plan.model.sides import Bands, OverflowCheck
from watersmeet.plan.nodes.tree import JoinNode, QueryNode
from watersmeet.plan.query_inputs import JoinInputs, Ref, name_of
from watersmeet.spec.model import JoinKind

_MAX_CHARACTERS = 200
"""Of a condition in a warning."""


@dataclass(frozen=True)
class Draft:
    """Node with its classified condition; a node that does not join has no condition.

    Attributes:
        never: Warnings about constants that are never TRUE.
        careful: Overflow check; None if no sum can leave its type.
    """

    node: QueryNode
    join_inputs: JoinInputs
    conjuncts: tuple[Conjunct, ...]
    parts: ConditionParts
    keys: tuple[Equality, ...]
    residual: Residual | None
    bands: tuple[ExactBand, ...]
    values: Bands
    links: Links
    never: tuple[str, ...]
    careful: OverflowCheck | None = None

    @property
    def matchable(self) -> bool:
        """Some pair may match: no interval is inverted, no constant condition is false."""
        return not self.never and not inverted_pairs(self.links) and not self.values.inverted

    @property
    def timed(self) -> frozenset[str]:
        """Aliases with a time in a bound of this join: in a match, that time is not NULL."""
        return frozenset(alias for alias, _ in self.timed_columns)

    @property
    def timed_columns(self) -> frozenset[Ref]:
        """The times themselves."""
        return frozenset(ref for part in self.parts.times for ref in part.refs)

    def may_be_null(self, side: Side) -> frozenset[Ref]:
        """Return the event times of a side that may be NULL in rows that can match.

        Either a join padded their input, or the times may be NULL by themselves.
        """
        nullable = self.node.nullable(side) - self.timed
        padded = {(i.alias, c) for i in self.node.inputs(side) if i.alias in nullable for c in i.event_times}
        return frozenset(padded | (self.node.open_times(side) - self.timed_columns))

    @property
    def warnings(self) -> tuple[str, ...]:
        texts = [
            " and ".join(band.texts)
            for band in self.values.exact
            if band.lower is not None and band.upper is not None and band.lower > band.upper
        ]
        empty = [
            f"no pair can satisfy {text}: nothing can match"
            for text in dict.fromkeys((*texts, *self.values.inverted))
        ]
        return (
            *_empty_intervals(inverted_pairs(self.links), self.bands, self.join_inputs),
            *empty,
            *self.never,
            *self._all_pairs,
            *text_warnings(self.conjuncts, self.join_inputs),
        )

    @property
    def _all_pairs(self) -> tuple[str, ...]:
        """Warning for a join that compares all pairs of rows, because only its residual restricts them."""
        finds = self.keys or self.bands or self.values.every
        if finds or not self.matchable or self.residual is None:
            return ()
        aliases = sorted([i.alias for i in self.node.inputs(side)] for side in Side)
        one, other = (" with ".join(names) for names in aliases)
        text = " AND ".join(dict.fromkeys(conjunct.text for conjunct in self.parts.residuals))
        text = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
        return (
            f"the join compares all rows of {one} with all rows of {other}, because its condition"
            f" {text} has no equality and no interval. Add AND {aliases[0][0]}.key ="
            f" {aliases[1][0]}.key, or time bounds",
        )


def draft_of(node: QueryNode, conjuncts: Sequence[Conjunct]) -> tuple[Draft, list[PlanError]]:
    """Classify the condition of a node, and return errors."""
    inputs = node.join_inputs
    parts, errors = classify(conjuncts, inputs)
    keys, wrong_keys = keys_of(parts.keys, inputs)
    never, undecided = _constants(parts.constants)
    residual, wrong_residuals = residual_of([*parts.residuals, *undecided], inputs)
    careful = None
    if any(part.sums for part in parts.bands):
        whole, _ = residual_of([*parts.careful, *undecided], inputs)
        if whole is not None:
            careful = OverflowCheck(
                sums=tuple(dict.fromkeys(added for part in parts.bands for added in part.sums)),
                values=value_bands([part for part in parts.bands if not part.sums], inputs),
                residual=whole.expr,
                exact=whole.exact,
                columns=whole.columns,
            )
            if whole.exact is None:  # Spark is asked one condition of all pairs
                residual = whole
    draft = Draft(
        node=node,
        join_inputs=inputs,
        conjuncts=tuple(conjuncts),
        parts=parts,
        keys=keys,
        residual=residual,
        bands=time_bands(parts.times, inputs),
        values=value_bands(parts.bands, inputs),
        links=links_of(parts.times),
        never=tuple(never),
        careful=careful,
    )
    return draft, [*errors, *wrong_keys, *wrong_residuals]


def looks_above(draft: Draft, drafts: Sequence[Draft], bounds: Sequence[Bound]) -> bool:
    """Return True if some of a join's ``bounds`` follow from joins above it.

    A released row may then still match this join's own condition, but such a match leads to no result.
    """
    numbers = {node.number for node in draft.node.beneath}
    own = bounds_in(draft, [other for other in drafts if other.node.number in numbers])
    smallest = {(bound.evicted, bound.by): bound.c for bound in own}
    return any(smallest.get((bound.evicted, bound.by)) != bound.c for bound in bounds)


def bounds_in(draft: Draft, drafts: Sequence[Draft]) -> tuple[Bound, ...]:
    """Return the eviction bounds of a join: its own, and those that follow from other joins.

    Conditions of other joins hold for the matches of this one if those joins are below it, or if all
    joins are inner ones, but only over times that are not NULL in a match (semantics.md, section 3).
    Rows of an ASOF join are evicted by its own condition alone.
    """
    node = draft.node
    if node.is_asof:
        return bounds_of(draft.links, draft.join_inputs)
    joins = [other.node for other in drafts if isinstance(other.node, JoinNode)]
    inner = all(join.kind is JoinKind.INNER for join in joins)  # others have no times: they only drop rows
    numbers = {below.number for below in node.beneath}
    pool = [
        other.links
        for other in drafts
        if inner
        or other is draft
        or (other.node.number in numbers and not other.node.hides_right)  # there is no partner any more
    ]
    links = merge_links(pool)
    nullable = frozenset(ref for side in node.sides for ref in draft.may_be_null(side))
    return bounds_of(links, draft.join_inputs, None if inner else nullable)


def _constants(constants: Sequence[Conjunct]) -> tuple[list[str], list[Conjunct]]:
    """Split constants into warnings about never-TRUE ones and ones that only a run can decide."""
    never: list[str] = []
    undecided: list[Conjunct] = []
    for conjunct in constants:
        truth = constant_is_true(conjunct.expr)
        if truth is None:
            undecided.append(conjunct)
        elif not truth:
            never.append(f"nothing can match: {conjunct.text} is never true")
    return never, undecided


def _empty_intervals(
    inverted: Sequence[tuple[Ref, Ref]], bands: Sequence[ExactBand], inputs: JoinInputs
) -> list[str]:
    by_columns = {(band.left.column, band.right.column): band for band in bands}
    empty = {
        columns
        for columns, band in by_columns.items()
        if band.lower is not None and band.upper is not None and band.lower > band.upper
    }
    for pair in inverted:
        left, right = sorted(pair, key=lambda ref: inputs.position(ref[0]))
        empty.add((inputs.column_name(left), inputs.column_name(right)))
    warnings = []
    for columns in sorted(empty):
        names = [
            column if side in inputs.joined else name_of((inputs.inputs_of_side(side)[0].alias, column))
            for side, column in zip(Side, columns, strict=True)
        ]
        texts = " and ".join(by_columns[columns].texts)
        warnings.append(f"no pair of {names[0]} and {names[1]} can satisfy {texts}: nothing can match")
    return warnings
