"""The joins of a FROM clause, and those that WHERE asks for by EXISTS: a tree, and the names above it.

What stands in FROM is read by whoever calls (`Read`), for it may be a SELECT with a FROM of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count

from sqlglot import exp

from watersmeet.front.query.as_of import is_as_of, table_as_of
from watersmeet.front.query.expressions.checks import check_expression
from watersmeet.front.query.flow import Flow, input_of
from watersmeet.front.query.hints import with_hints, without_join
from watersmeet.front.query.inline import both, operand
from watersmeet.front.query.items import distinct, select_items
from watersmeet.front.query.joined import Joined, filtered
from watersmeet.front.query.padding import padded
from watersmeet.front.query.scope import Named, Scope, resolved
from watersmeet.front.query.using import natural, order_of, using_columns
from watersmeet.front.text.place import Refused, Text
from watersmeet.front.types.earlier import column_of
from watersmeet.spec.aggregates import is_aggregate
from watersmeet.spec.model import (
    Clause,
    Expr,
    Input,
    Join,
    JoinKind,
    Relation,
    inputs_of,
)

Read = Callable[[exp.Expression], tuple[Flow | Joined, str | None]]
"""A FROM item without its joins → what it names, and its alias."""

_BEYOND_EXISTS = ("joins", "group", "having", "limit", "offset", "laterals", "with_")
_LEFT_HINT = "INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI, LEFT ANTI, ASOF and LEFT ASOF are"


@dataclass(frozen=True)
class Part:
    """A piece of the FROM clause. ``items``: what stands there under a name of its own."""

    relation: Relation
    scope: Scope
    items: Mapping[str, Relation] = field(default_factory=dict)

    @property
    def aliases(self) -> list[str]:
        """All names that are taken."""
        named = [named.alias for named in self.scope.relations]
        return list(dict.fromkeys([*named, *(i.alias for i in inputs_of(self.relation))]))


def joined_select(
    select: exp.Select,
    read: Read,
    text: Text,
    first: tuple[Joined, str] | None = None,
    *,
    by_position: bool = False,
) -> Joined:
    """A view's or sub-query's SELECT that joins, or is over one that does. Raises: Refused, SqlError.

    Args:
        first: what FROM names, and its alias, where that has been read already.
        by_position: names of its columns count for nothing.
    """
    before = len(text.problems)
    start = leaf(select.args["from_"].this, read, text) if first is None else part_of(*first)
    part, condition = rows_of(start, select, read, text)
    items = select_items(select, part.scope, text, repeatable=True)
    if len(text.problems) > before:
        raise Refused
    items = list(distinct(items, select, text, by_position=by_position))
    assert isinstance(part.relation, Join)
    relation = part.relation if condition is None else filtered(part.relation, condition)
    columns = (column_of(item.name, item.expr, part.scope.column_of) for item in items)
    return Joined(relation, tuple(columns), tuple(item.expr for item in items))


def rows_of(part: Part, select: exp.Select, read: Read, text: Text) -> tuple[Part, Expr | None]:
    """FROM with its joins, from its first item on, and what WHERE asks of their rows."""
    part = _joined(part, select, read, text)
    where, rest = select.args.get("where"), None
    if where is not None:
        part, rest = _existence(part, where.this, read, text)
    if isinstance(part.relation, Input):
        without_join(select, text)
    else:
        part = replace(part, relation=with_hints(part.relation, select, part.items, text))
    # of a text within an AND Spark makes a condition, of one alone it does not
    clause = "WHERE" if where is not None and rest is where.this else None
    return part, None if rest is None else _condition(rest, part.scope, text, clause)


def _existence(part: Part, where: exp.Expression, read: Read, text: Text) -> tuple[Part, Expr | None]:
    """EXISTS, IN (SELECT …) and NOT EXISTS among the conjuncts of WHERE as SEMI and ANTI joins, and the other
    conjuncts."""
    rest: list[exp.Expression] = []
    for conjunct in _conjuncts(where):
        inner = conjunct.unnest()
        kind = JoinKind.SEMI
        if isinstance(inner, exp.Not):
            inner, kind = inner.this.unnest(), JoinKind.ANTI
        if isinstance(inner, exp.In) and inner.args.get("query"):
            inner = _in_as_exists(part, inner, kind, text)
        if not isinstance(inner, exp.Exists) or not isinstance(inner.this, exp.Query):  # it is of arrays, too
            rest.append(conjunct)
            continue
        part = _exists(part, inner, kind, read, text)
    return part, reduce(_and, rest) if rest else None


def _in_as_exists(part: Part, predicate: exp.In, kind: JoinKind, text: Text) -> exp.Expression:
    """``x IN (SELECT y FROM …)`` as EXISTS (SELECT y FROM … WHERE x = y). Raises: SqlError for NOT IN."""
    if kind is JoinKind.ANTI:
        raise text.not_supported(
            "NOT IN (SELECT …) is",
            predicate,
            "write NOT EXISTS (SELECT 1 FROM … WHERE … = …); a later NULL in the subquery would make"
            " NOT IN false for all rows",
        )
    select = predicate.args["query"].unnest().copy()
    _check_sub_query(select, "IN (SELECT …)", predicate, text)
    items = select.expressions if isinstance(select, exp.Select) else []
    if len(items) != 1 or items[0].is_star:
        raise text.not_supported("IN (SELECT …) with other than one column is", predicate, "write EXISTS (…)")
    value = items[0].this if isinstance(items[0], exp.Alias) else items[0]
    condition = exp.EQ(
        this=operand(resolved(predicate.this, part.scope, text)), expression=operand(value.copy())
    )
    where = select.args.get("where")
    select.set(
        "where", exp.Where(this=condition if where is None else _and(condition, exp.paren(where.this)))
    )
    return exp.Exists(this=select)


def _check_sub_query(select: exp.Expression, what: str, where: exp.Expression, text: Text) -> None:
    """Refuse a sub-query in WHERE that is more than rows of one input."""
    origin = select.args.get("from_") if isinstance(select, exp.Select) else None
    aggregate = next(filter(is_aggregate, select.find_all(exp.Func)), None)
    if isinstance(select, exp.Select) and aggregate is not None:
        written = aggregate.sql("spark", normalize_functions="lower").replace("`", "")
        raise text.not_supported(
            f"{what} over the aggregate {written} is", where, _by_window(written, origin, where)
        )
    extra = [name for name in _BEYOND_EXISTS if isinstance(select, exp.Select) and select.args.get(name)]
    if origin is None or extra or origin.this.args.get("joins"):
        hint = "remove GROUP BY, which has no effect here"
        raise text.not_supported(
            f"{what} over more than SELECT … FROM one input WHERE … is",
            where,
            hint if extra == ["group"] else "write LEFT SEMI JOIN … ON …",
        )


def _by_window(aggregate: str, origin: exp.Expression | None, where: exp.Expression) -> str:
    """Return what to write in place of an aggregate in a sub-query: a view of windows, and a join with it."""
    source = "…" if origin is None or not isinstance(origin.this, exp.Table) else origin.this.name
    compared = where.this.sql("spark").replace("`", "") if isinstance(where, exp.In) else "…"
    return (
        f"CREATE VIEW w AS SELECT window_end, {aggregate} AS v FROM TABLE(TUMBLE(TABLE {source},"
        " DESCRIPTOR(…), INTERVAL '1' HOUR)) GROUP BY window_start, window_end; then write LEFT SEMI JOIN w"
        f" ON w.v = {compared} AND …"
    )


def _conjuncts(where: exp.Expression) -> Iterator[exp.Expression]:
    if isinstance(where, exp.And):
        yield from _conjuncts(where.this)
        yield from _conjuncts(where.expression)
    else:
        yield where


def _exists(part: Part, exists: exp.Exists, kind: JoinKind, read: Read, text: Text) -> Part:
    select = exists.this
    _check_sub_query(select, "EXISTS", exists, text)
    origin = select.args["from_"]
    inner = _right(origin.this, kind, read, text, part)
    _check_names(part, inner, origin.this, text)
    inner = replace(inner, relation=with_hints(inner.relation, select, inner.items, text))
    where = select.args.get("where")
    condition: Expr | None = None
    if where is not None:
        inside = where.this.copy()
        for column in inside.find_all(exp.Column):
            named = [relation for relation in inner.scope.relations if relation.find(column.name) is not None]
            if not column.table and len(named) == 1:  # inside, names mean the sub-query's columns first
                column.set("table", exp.to_identifier(named[0].alias, quoted=True))
        scope = Scope(part.scope.relations + inner.scope.relations, part.scope.merged + inner.scope.merged)
        condition = _condition(inside, scope, text, "WHERE")
    return replace(part, relation=Join(part.relation, inner.relation, kind, condition, clause=Clause.EXISTS))


def _condition(expr: Expr, scope: Scope, text: Text, clause: str | None = None) -> Expr | None:
    if not check_expression(expr, text, repeatable=True):
        return None
    return resolved(expr, scope, text, clause)


def leaf(item: exp.Expression, read: Read, text: Text, taken: Collection[str] = ()) -> Part:
    """A FROM item with the joins that belong to it: ``a``, ``(a JOIN b ON …)``, ``a JOIN b … ON`` nested.

    Args:
        taken: names that a sub-query without one does not get.
    """
    inner = item.this if isinstance(item, (exp.Subquery, exp.Paren)) else None
    if isinstance(inner, (exp.Table, exp.Subquery)) and not item.alias:
        return _joined(leaf(inner, read, text, taken), item, read, text)
    flow, alias = read(item)
    if not alias:
        alias = _free_name("ranked" if isinstance(flow, Flow) and flow.is_ranked else "subquery", taken)
    return _joined(part_of(flow, alias), item, read, text)


def _free_name(wanted: str, taken: Collection[str]) -> str:
    lowered = {name.lower() for name in taken}
    numbered = (f"{wanted}_{number}" for number in count(2))
    return next(name for name in chain([wanted], numbered) if name not in lowered)


def part_of(flow: Flow | Joined, alias: str) -> Part:
    if isinstance(flow, Joined):
        inner = flow.under(alias)
        return Part(inner.relation, Scope((inner.named(alias),)), {alias: inner.relation})
    return _of_input(input_of(flow, alias))


def _of_input(source_input: Input) -> Part:
    return Part(
        source_input,
        Scope((Named(source_input.alias, source_input.columns, sources=source_input.sources),)),
        {source_input.alias: source_input},
    )


def _joined(part: Part, holder: exp.Expression, read: Read, text: Text) -> Part:
    for join in holder.args.get("joins") or ():
        part = _join(part, join, read, text)
    return part


def _join(left: Part, join: exp.Join, read: Read, text: Text) -> Part:
    kind = _kind(join, text)
    right = _right(join.this, kind, read, text, left)
    _check_names(left, right, join.this, text)
    scope = Scope(left.scope.relations + right.scope.relations, left.scope.merged + right.scope.merged)
    # Names above the join: what this join pads with NULLs has to be NULL there, whatever computes it.
    above = (
        padded(left.scope, join.this, text) if kind.pads_right else left.scope,
        padded(right.scope, join.this, text) if kind.pads_left and not kind.hides_right else right.scope,
    )
    using = join.args.get("using")
    if join.method.upper() == "NATURAL":
        using = natural((left.scope, right.scope))
    on = join.args.get("on")
    condition: Expr | None = None
    match = (
        _condition(join.args["match_condition"], scope, text) if join.args.get("match_condition") else None
    )
    merged = above[0].merged + above[1].merged
    if using:
        merged, equalities = using_columns((left.scope, right.scope), above, using, kind, text)
        if kind.is_asof and match is None and equalities:  # as elsewhere: the last column is the time
            last = equalities.pop()
            match = exp.GTE(this=last.this, expression=last.expression)
        condition = reduce(both, equalities) if equalities else None
    elif on is not None:
        condition = _condition(on, scope, text, "ON")
        if isinstance(condition, exp.Boolean) and condition.this:
            condition = None
    clause = Clause.USING if using else Clause.NONE if on is None else Clause.ON
    joined = Join(left.relation, right.relation, kind, condition, match=match, clause=clause)
    items = {**left.items, **right.items}
    order = None
    if using or any(scope.order is not None for scope in above):
        order = order_of(above, merged, using or [])
    if kind.hides_right:
        hidden = set(right.scope.places())
        seen = None if order is None else tuple(place for place in order if place not in hidden)
        return Part(joined, replace(left.scope, order=seen), items)
    return Part(joined, Scope(above[0].relations + above[1].relations, merged, order=order), items)


def _right(item: exp.Expression, kind: JoinKind, read: Read, text: Text, left: Part) -> Part:
    """The right side of a join: a FROM item, or a table that rows of the left side meet as it is."""
    if not is_as_of(item):
        return leaf(item, read, text, left.aliases)
    assert isinstance(item, exp.Table)
    if kind.pads_right:
        raise text.not_supported(
            f"{kind.value} JOIN with a table FOR SYSTEM_TIME AS OF is",
            item,
            "use INNER, LEFT, LEFT SEMI or LEFT ANTI: rows of the table are only looked up",
        )
    return _of_input(table_as_of(item, read, text, left.relation))


MAX_INPUTS = 100
"""Of a join, with those of views."""


def _check_names(left: Part, right: Part, where: exp.Expression, text: Text) -> None:
    """No name twice, not inside of sub-queries or behind SEMI joins either: watermark keys hold them."""
    names = {alias.lower() for alias in left.aliases}
    inputs = [i for part in (left, right) for i in inputs_of(part.relation)]
    if len(inputs) > MAX_INPUTS:
        raise text.not_supported(
            f"a join of {len(inputs)} inputs, including those in views, is",
            where,
            f"use at most {MAX_INPUTS} inputs, and avoid views that join themselves",
        )
    for alias in right.aliases:
        if alias.lower() in names:
            raise text.error(
                f'two inputs are named "{alias}"',
                "duplicate-name",
                where,
                f"give one of them another name: {alias.rsplit('.', 1)[-1]} AS {alias.replace('.', '_')}2",
            )


def _kind(join: exp.Join, text: Text) -> JoinKind:
    method, side, kind = join.method.upper(), join.side.upper(), join.kind.upper()
    if join.args.get("match_condition") and method != "ASOF":
        raise text.not_supported("MATCH_CONDITION without ASOF is", join.this, "write ASOF JOIN")
    if method == "ASOF":
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
            raise text.not_supported(
                f"ASOF {side} {kind} JOIN is".replace("  ", " "),
                join.this,
                "use ASOF JOIN or LEFT ASOF JOIN",
            )
        return JoinKind.ASOF_LEFT if side else JoinKind.ASOF
    if method not in ("", "NATURAL"):
        raise text.not_supported(f"{method} JOIN is", join.this, _LEFT_HINT)
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return JoinKind(f"LEFT {kind}")
    if kind not in ("", "INNER", "OUTER", "CROSS"):
        raise text.not_supported(f"{side} {kind} JOIN is".strip(), join.this, _LEFT_HINT)
    if join.args.get("pivots"):
        raise text.not_supported("this kind of JOIN is", join.this, _LEFT_HINT)
    return JoinKind(side) if side else JoinKind.INNER


def _and(first: Expr, second: Expr) -> Expr:
    return exp.And(this=first, expression=second)
