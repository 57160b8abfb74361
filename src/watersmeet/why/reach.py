"""Which rows of a query's inputs bear on what is put out with some rows of one of them: those that can be in
one joined row with them, by the equality keys of the joins, and no others.

It may be more than these, and is never fewer. Rows that count by their key, or take equal ones away, come
with all of their kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, one_array, one_table
from watersmeet.plan.join_inputs import JoinInputs, refs
from watersmeet.plan.model.delta import DeltaPlan
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.spec.model import Branch, Expr, JoinKind
from watersmeet.why.columns import columns_of, mentioned, value_of
from watersmeet.why.replayed import joins_of
from watersmeet.why.reread import Numbers
from watersmeet.why.rows import QueryRows


@dataclass(frozen=True)
class _Link:
    """Rows of two inputs that are joined have equal values of these expressions over their columns."""

    aliases: tuple[str, str]
    exprs: tuple[Expr, Expr]
    null_safe: bool

    def turned(self) -> _Link:
        return _Link(self.aliases[::-1], self.exprs[::-1], self.null_safe)


def reached(rows: QueryRows, alias: str, asked: Numbers, groups: Mapping[str, Numbers]) -> dict[str, Mask]:
    """Per input which of its rows, numbered branch after branch.

    Args:
        asked: the numbers of the rows that it is about.
        groups: per input that changes, of each record which others it bears on.
    """
    counts = {name: sum(len(own.came_to) for own in branches) for name, branches in rows.inputs.items()}
    if not _is_local(rows):
        return {name: np.ones(count, dtype=np.bool_) for name, count in counts.items()}
    masks = {alias: np.isin(np.arange(counts[alias]), asked)}
    links = [own for link in _links(rows.query) for own in (link, link.turned())]
    while len(masks) < len(counts):
        for link in links:
            own, other = link.aliases
            if own in masks and other not in masks:
                mask = _linked(rows, link, masks[own])
                if mask is not None:
                    masks[other] = mask
                    break
        else:  # nothing is known of another one
            name = next(name for name in counts if name not in masks)
            masks[name] = np.ones(counts[name], dtype=np.bool_)
    return {name: _whole(mask, groups.get(name)) for name, mask in masks.items()}


def _is_local(rows: QueryRows) -> bool:
    """Whether what is put out with a row goes by rows alone that can be joined with it: not where rows leave
    by watermarks, which go by what else is retained, nor where a third row decides whether two are padded."""
    joins = joins_of(rows.insert.query.relation)
    is_plain = len(joins) < 2 or all(join.kind is JoinKind.INNER for join in joins)
    return is_plain and not any(side.event_times for side in rows.query.sides)


def _whole(mask: Mask, group: Numbers | None) -> Mask:
    return mask if group is None else np.isin(group, group[mask])


def _linked(rows: QueryRows, link: _Link, mask: Mask) -> Mask | None:
    """The rows of the other input; None: it cannot be computed which."""
    try:
        own, other = (
            _values(rows, alias, expr) for alias, expr in zip(link.aliases, link.exprs, strict=True)
        )
    except EngineError:
        return None
    if own.type != other.type:
        return None
    count = len(mask)  # behind them is the value of NULLs, in whose place the input's row may be
    both = one_array(pa.chunked_array([own, other.slice(0, len(other) - 1)]))
    numbers = group_numbers(batch_of(pa.table({"key": both})), ["key"])
    chosen = np.append(numbers[:count][mask], numbers[count])
    linked: Mask = np.isin(numbers[count + 1 :], chosen)
    if not link.null_safe:
        linked &= both.slice(count + 1).is_valid().to_numpy(zero_copy_only=False)
    return linked


def _values(rows: QueryRows, alias: str, expr: Expr) -> pa.Array:
    """Of all rows of an input, and behind them of NULLs. Raises: EngineError, as `value_of`."""
    given = next(side.input for side in rows.query.sides if side.name == alias)
    bare, names = replace(given, alias=""), mentioned([expr], "")
    tables: list[pa.Table] = []
    for own in rows.inputs[alias]:
        branch = given.branches[own.number]
        assert isinstance(branch, Branch)
        tables.append(columns_of(bare, branch, names, own.of.rows, rows.zone))
    schema = tables[0].schema
    nulls = pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)
    return value_of(expr, JoinInputs((bare,), time_zone=rows.zone), one_table([*tables, nulls]))


def _links(query: QueryPlan) -> Iterator[_Link]:
    sides = {side.name: side for side in query.sides}
    joins: list[MatchPlan] = list(query.every(MatchPlan))
    joins += [lookup.join for delta in query.every(DeltaPlan) for lookup in delta.lookups]
    for join in joins:
        for key in join.keys:
            left, right = _of_one(sides, join.left, key.left), _of_one(sides, join.right, key.right)
            if left is not None and right is not None:
                yield _Link((left[0], right[0]), (left[1], right[1]), key.null_safe)


def _of_one(sides: Mapping[str, SidePlan], side: SidePlan, expr: Expr) -> tuple[str, Expr] | None:
    """The one input of which an expression of a side mentions columns, and the same over that alone; None:
    of none, or of several."""
    own = sides.get(side.copy_of or side.name) if side.feed is None else None
    names: dict[str, tuple[str, str]] = {}
    if own is not None:
        names |= {column.name: (own.name, column.name) for column in own.input.columns}
    else:
        for other in sides.values():
            names |= {
                joined_name(other.name, column.name): (other.name, column.name)
                for column in other.input.columns
            }
    owners = {names.get(joined_name(*ref) if ref[0] else ref[1]) for ref in refs(expr)}
    if None in owners or len({alias for alias, _ in filter(None, owners)}) != 1:
        return None
    (alias,) = {alias for alias, _ in filter(None, owners)}

    def bare(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        name = names[joined_name(node.table, node.name) if node.table else node.name][1]
        return exp.column(name)

    return alias, expr.copy().transform(bare)
