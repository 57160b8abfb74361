"""Columns that a view or sub-query computes, above an outer join that pads it with NULLs.

The columns are expressions over inner inputs. A padded row has to have NULL in each of them, and
``coalesce(b.v, 0)`` would give 0. So it becomes ``CASE WHEN b.t IS NOT NULL THEN coalesce(b.v, 0) END``, by
an event time, which no row lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from watersmeet.front.query.scope import Merged, Named, Scope, column_node
from watersmeet.front.text.place import Text
from watersmeet.spec.model import Expr, Input, Relation, visible_inputs
from watersmeet.spec.nulls import is_null_of_nulls
from watersmeet.spec.stages import may_be_null


def padded(scope: Scope, where: exp.Expr, text: Text) -> Scope:
    """The scope above a join that pads this side with NULLs."""
    relations = tuple(_padded_relation(named, where, text) for named in scope.relations)
    merged = tuple(_padded_merged(merged_column, scope) for merged_column in scope.merged)
    return replace(scope, relations=relations, merged=merged)


def _padded_relation(named: Named, where: exp.Expr, text: Text) -> Named:
    wrong = [n for n, value in enumerate(named.values) if not is_null_of_nulls(value)]
    if not wrong:
        return named
    present = _present(named)
    if present is None:
        column = named.columns[wrong[0]].name
        text.problem(
            f'column "{column}" is computed inside "{named.alias}", whose rows this join pads with'
            f' NULLs, so "{column}" might not become NULL',
            "not-supported",
            where,
            f"select the plain columns in {named.alias}, and compute {column} from them above the join",
        )
        return named
    values = list(named.values)
    for n in wrong:
        values[n] = _unless_padded(values[n], present)
    return replace(named, values=tuple(values))


def _padded_merged(merged: Merged, scope: Scope) -> Merged:
    if is_null_of_nulls(merged.expr):
        return merged
    owners = [named for named in scope.relations if any(named.alias == alias for alias, _ in merged.members)]
    present = [condition for condition in map(_present, owners) if condition is not None]
    if not present:
        return merged  # the column it stands for has been reported
    return replace(merged, expr=_unless_padded(merged.expr, reduce(_or, present)))


def _unless_padded(value: Expr, present: Expr) -> Expr:
    return exp.Case().when(present.copy(), value.copy(), copy=False)


def _present(named: Named) -> Expr | None:
    """A condition that every row of the relation meets, and no padded one; None: there is none."""
    if named.relation is None:
        return None
    always = [i for i in _always(named.relation) if _sure_times(i)]
    inputs = always[:1] or list(visible_inputs(named.relation))
    if not all(_sure_times(i) for i in inputs):
        return None
    return reduce(_or, (_has_time(i) for i in inputs))


def _sure_times(i: Input) -> list[str]:
    """Event times that no row of the input lacks."""
    return [column for column in i.event_times if not may_be_null(i, column)]


def _has_time(i: Input) -> Expr:
    column = column_node(_sure_times(i)[0], i.alias)
    column.args["table"].set("quoted", "." not in i.alias)
    return exp.Not(this=exp.Is(this=column, expression=exp.Null()))


def _or(first: Expr, second: Expr) -> Expr:
    return exp.Or(this=first, expression=second)


def _always(relation: Relation) -> Iterator[Input]:
    """Inputs of which every row of the relation has one: no join beneath pads them."""
    if isinstance(relation, Input):
        yield relation
        return
    if not relation.kind.pads_right:
        yield from _always(relation.left)
    if not relation.kind.pads_left and not relation.kind.hides_right:
        yield from _always(relation.right)
