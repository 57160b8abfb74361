"""The joins of a query as a tree, read for the oracle: names, USING, and where each conjunct goes.

A tree of binary joins in written order; a parenthesised right side is a tree of its own. Conjuncts are
qualified (every column with its input's alias, a USING column as its merged value) before anything else looks
at them, then sink as far as they can without changing the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from tests.support.oracle.asof import ASOF
from tests.support.oracle.inputs import ReadStage, Source, read_source
from tests.support.oracle.sql import Scope
from tests.support.oracle.values import Refused, Unsupported

KINDS = ("INNER", "LEFT", "RIGHT", "FULL")
LEFT_ONLY = ("SEMI", "ANTI")
"""Joins whose rows are rows of their left side: nothing above them sees the right one."""


@dataclass
class Input:
    """A leaf: one input, and the conjuncts that filter its rows."""

    source: Source
    filters: list[exp.Expression] = field(default_factory=list)

    @property
    def sources(self) -> list[Source]:
        return [self.source]

    @property
    def inputs(self) -> list[Source]:
        return [self.source]


@dataclass
class Join:
    """An inner node; ``conjuncts`` are its condition, once everything has sunk."""

    left: Relation
    right: Relation
    kind: str
    conjuncts: list[exp.Expression] = field(default_factory=list)
    merged: dict[str, exp.Expression] = field(default_factory=dict)
    """USING column of this join -> its value."""
    after: list[exp.Expression] = field(default_factory=list)
    """Filters of its rows before they come into the next join."""
    match: list[exp.Expression] = field(default_factory=list)
    """Of an ASOF join: conjuncts that say which row is nearest."""

    @property
    def sources(self) -> list[Source]:
        """The inputs that its rows hold, in written order."""
        return self.left.sources + ([] if self.kind in LEFT_ONLY else self.right.sources)

    @property
    def inputs(self) -> list[Source]:
        """The inputs beneath it, in written order."""
        return self.left.inputs + self.right.inputs


Relation = Input | Join


def read_relation(node: exp.Expression, case: dict[str, Any], read_stage: ReadStage) -> Relation:
    """An item of FROM with the joins that hang on it; ON conjuncts are qualified but stay where they are."""
    inside = node.this
    if isinstance(node, exp.Subquery) and not isinstance(inside, exp.Select | exp.Union):
        if node.alias:
            raise Unsupported(f"an alias of a join: {node.sql()}")
        relation = read_relation(inside, case, read_stage)
    else:
        relation = Input(read_source(node, case, read_stage))
    return read_joins(relation, node.args.get("joins") or [], case, read_stage)


def read_joins(
    relation: Relation, joins: list[exp.Join], case: dict[str, Any], read_stage: ReadStage
) -> Relation:
    """A relation joined with what follows it, one by one."""
    for join in joins:
        kind = _kind(join)
        right = read_relation(join.this, case, read_stage)
        aliases = {s.alias for s in relation.inputs}
        for source in right.inputs:
            if source.alias in aliases:
                raise Refused(f'alias "{source.alias}" comes twice')
        relation = Join(relation, right, kind)
        for column in join.args.get("using") or []:
            _use(relation, column.name)
        relation.conjuncts += [
            qualify_columns(c, relation.left, relation.right) for c in conjuncts_of(join.args.get("on"))
        ]
        match = conjuncts_of(join.args.get("match_condition"))
        relation.match = [qualify_columns(c, relation.left, relation.right) for c in match]
        if kind in ASOF and join.args.get("using") and not match:
            last = relation.conjuncts.pop()
            relation.match = [exp.GTE(this=last.this, expression=last.expression)]
    return relation


def _kind(join: exp.Join) -> str:
    if join.args.get("method") == "ASOF":
        if join.side in ("", "LEFT") and join.kind in ("", "INNER", "OUTER"):
            return f"ASOF {join.side}".strip()
        raise Refused(f"ASOF {join.side} {join.kind} JOIN")
    if not join.args.get("method"):
        if join.kind in LEFT_ONLY and join.side in ("", "LEFT"):
            return join.kind
        if join.kind in ("", "INNER", "OUTER", "CROSS") and (join.side or "INNER") in KINDS:
            return join.side or "INNER"
    raise Unsupported(f"join {join.args.get('method')} {join.side} {join.kind}")


def conjuncts_of(node: exp.Expression | None) -> list[exp.Expression]:
    """The top-level ANDs cut; BETWEEN is two, NOT of a comparison is the other comparison. What all branches
    of an OR ask is asked beside it."""
    if node is None:
        return []
    if isinstance(node, exp.Paren):
        return conjuncts_of(node.this)
    if isinstance(node, exp.And):
        return conjuncts_of(node.this) + conjuncts_of(node.expression)
    if isinstance(node, exp.Between):
        return [
            exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
            exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()),
        ]
    if isinstance(node, exp.Or):
        branches = [conjuncts_of(branch) for branch in (node.this, node.expression)]
        shared = [one for one in branches[0] if any(_is_same(one, other) for other in branches[1])]
        return [*shared, node] if shared else [node]
    if isinstance(node, exp.Not):
        inner = node.this.unnest()
        if isinstance(inner, exp.Not):
            return conjuncts_of(inner.this)
        if isinstance(inner, exp.Or):
            halves = (exp.Not(this=half.copy()) for half in (inner.this, inner.expression))
            return [own for half in halves for own in conjuncts_of(half)]
        for one, other in ((exp.LT, exp.GTE), (exp.GT, exp.LTE), (exp.NEQ, exp.EQ)):
            for kind, opposite in ((one, other), (other, one)):
                if type(inner) is kind and kind is not exp.EQ:
                    return [opposite(this=inner.this.copy(), expression=inner.expression.copy())]
    return [node]


def _is_same(one: exp.Expression, other: exp.Expression) -> bool:
    """Whether two conditions are one, written from whichever side."""
    operands = (other.args.get("expression"), other.args.get("this"))
    is_turned = any(
        isinstance(one, kind) and isinstance(other, turned)
        for pair in ((exp.EQ, exp.EQ), (exp.NullSafeEQ, exp.NullSafeEQ), (exp.LT, exp.GT), (exp.LTE, exp.GTE))
        for kind, turned in (pair, pair[::-1])
    )
    return one == other or (is_turned and (one.args.get("this"), one.args.get("expression")) == operands)


# names


def scope_of(*relations: Relation) -> Scope:
    """The inputs that rows of some relations hold, in written order."""
    return Scope({s.alias: s.kinds for relation in relations for s in relation.sources})


def _use(join: Join, name: str) -> None:
    """One USING column: an equality of both sides' values, which may be merged ones of joins beneath.

    The merged value is the left one; the right one of a RIGHT join; COALESCE of both of a FULL one.
    """
    left, right = (_resolve_column(name, side) for side in (join.left, join.right))
    join.conjuncts.append(exp.EQ(this=left.copy(), expression=right.copy()))
    both = exp.Coalesce(this=left.copy(), expressions=[right.copy()])
    join.merged[name] = {"RIGHT": right, "FULL": both}.get(join.kind, left)


def _owners(relation: Relation, name: str) -> list[exp.Expression]:
    """What an unqualified name may mean: a USING column hides the columns that it merges."""
    if isinstance(relation, Input):
        return [
            exp.column(c, table=relation.source.alias)
            for c in relation.source.kinds
            if c.lower() == name.lower()
        ]
    for merged, value in relation.merged.items():
        if merged.lower() == name.lower():
            return [value.copy()]
    if relation.kind in LEFT_ONLY:
        return _owners(relation.left, name)
    return _owners(relation.left, name) + _owners(relation.right, name)


def _resolve_column(name: str, *relations: Relation) -> exp.Expression:
    owners = [owner for relation in relations for owner in _owners(relation, name)]
    if not owners:
        raise Refused(f'unknown column "{name}"')
    if len(owners) > 1:
        raise Refused(f'column "{name}" is ambiguous')
    return owners[0]


def qualify_columns(node: exp.Expression, *relations: Relation) -> exp.Expression:
    """The expression with every column named as alias.column, as seen from above some relations."""
    scope = scope_of(*relations)

    def qualify_node(part: exp.Expression) -> exp.Expression:
        if not isinstance(part, exp.Column):
            return part
        if not part.table:
            return _resolve_column(part.name, *relations)
        alias, column = scope.find(part)
        return exp.column(column, table=alias)

    return node.transform(qualify_node)


def columns_of(relation: Relation) -> list[tuple[str, exp.Expression]]:
    """What ``*`` gives: the columns of all inputs in order, USING columns once and first."""
    if isinstance(relation, Input):
        alias = relation.source.alias
        return [(c, exp.column(c, table=alias)) for c in relation.source.kinds]
    rest = columns_of(relation.left) + ([] if relation.kind in LEFT_ONLY else columns_of(relation.right))
    return [
        *((name, value.copy()) for name, value in relation.merged.items()),
        *((name, value) for name, value in rest if name not in relation.merged),
    ]


# where conjuncts go


def find_mentioned_aliases(node: exp.Expression) -> set[str]:
    """The aliases of the inputs that a qualified expression mentions."""
    return {c.table for c in node.find_all(exp.Column)}


def within(conjunct: exp.Expression, relation: Relation) -> bool:
    """Whether a conjunct mentions inputs of this relation only, and some."""
    aliases = find_mentioned_aliases(conjunct)
    return bool(aliases) and aliases <= {s.alias for s in relation.sources}


def sink_all(root: Relation, where: list[exp.Expression]) -> list[exp.Expression]:
    """Bring every conjunct to its place; the result is what of WHERE stays above the last join."""
    _sink_own(root)
    above = []
    for conjunct in where:
        if not find_mentioned_aliases(conjunct) and isinstance(root, Join) and root.kind == "INNER":
            root.conjuncts.append(conjunct)
        elif not find_mentioned_aliases(conjunct) or not _sink(root, conjunct):
            above.append(conjunct)
    return above


def _sink(relation: Relation, conjunct: exp.Expression) -> bool:
    """Take a filter over a relation's rows into it, if that changes no answer; whether it was taken.

    It passes an INNER join to either side, a LEFT, SEMI, ANTI or ASOF one to the left, a RIGHT one to the
    right, a FULL one never: on the other side of an outer join it would make pads of rows that it ought to
    drop, on the right one of an ASOF join it would change which row is found. What a join beneath another can
    not take is a filter of the rows that it hands on.
    """
    if isinstance(relation, Input):
        relation.filters.append(conjunct)
        return True
    to_left, to_right = ("INNER", "LEFT", *LEFT_ONLY, *ASOF), ("INNER", "RIGHT")
    for side, passes in ((relation.left, to_left), (relation.right, to_right)):
        if within(conjunct, side) and relation.kind in passes:
            if not _sink(side, conjunct):
                assert isinstance(side, Join)
                side.after.append(conjunct)
            return True
    if relation.kind == "INNER":
        relation.conjuncts.append(conjunct)
        return True
    return False


def _sink_own(relation: Relation) -> None:
    """The ON conjuncts of all joins of a tree: those of one side sink into the side that is not padded for.

    A LEFT, ANTI or ASOF LEFT join's conjunct over its left side alone stays: it decides between a match and
    a pad.
    """
    if isinstance(relation, Input):
        return
    _sink_own(relation.left)
    _sink_own(relation.right)
    stay = []
    for conjunct in relation.conjuncts:
        into_left = relation.kind in ("INNER", "RIGHT", "SEMI", "ASOF") and within(conjunct, relation.left)
        into_right = relation.kind in ("INNER", "LEFT", *LEFT_ONLY, *ASOF) and within(
            conjunct, relation.right
        )
        taken = (into_left and _sink(relation.left, conjunct)) or (
            into_right and _sink(relation.right, conjunct)
        )
        if not taken:
            stay.append(conjunct)
    relation.conjuncts = stay
