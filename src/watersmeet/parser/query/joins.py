"""The joins of a FROM clause, with USING, EXISTS and FOR SYSTEM_TIME AS OF."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count

from sqlglot import exp

from watersmeet.errors import SqlError, near_names
from watersmeet.parser.query.expressions.checks import check_expression
from watersmeet.parser.query.flow import Flow, JoinedView, filter_join, input_of, pad_scope, table_of
from watersmeet.parser.query.hints import with_hints, without_join
from watersmeet.parser.query.inline import join_conditions, operand
from watersmeet.parser.query.scope import (
    Member,
    MergedColumn,
    NamedRelation,
    ResolvedColumn,
    Scope,
    resolve_columns,
)
from watersmeet.parser.query.select_list import distinct, select_items
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.parser.types.stored_types import column_of
from watersmeet.spec.aggregates import is_aggregate
from watersmeet.spec.change_kinds import STREAM_WITH_CHANGES
from watersmeet.spec.model import (
    Clause,
    Expr,
    Input,
    Join,
    JoinKind,
    Query,
    Relation,
    Source,
    inputs_of,
)

# USING: equalities of columns of both sides, and one name for each pair above the join.


def using_columns(
    sides: tuple[Scope, Scope],
    above: tuple[Scope, Scope],
    names: list[exp.Expression],
    kind: JoinKind,
    text: Text,
) -> tuple[tuple[MergedColumn, ...], list[Expr]]:
    """Build the equalities of a USING and its merged columns.

    A merged column is a COALESCE for FULL, otherwise the column of the side that is never padded.

    Args:
        above: The scopes of both sides above the join, where sides may be padded.
    """
    conjuncts: list[Expr] = []
    merged = above[0].merged + above[1].merged
    for name in names:
        first, second = (_using_side(name, scope, text) for scope in sides)
        if first is None or second is None:
            continue
        conjuncts.append(exp.EQ(this=operand(first.expr), expression=operand(second.expr)))
        left, right = (scope.candidates(name.name)[0].expr for scope in above)
        expr: Expr = right if kind is JoinKind.RIGHT else left
        if kind is JoinKind.FULL:
            expr = exp.Coalesce(this=left, expressions=[right])
        members = first.members | second.members
        merged = tuple(joined_column for joined_column in merged if not joined_column.members & members)
        merged += (MergedColumn(second.name if kind is JoinKind.RIGHT else first.name, expr, members),)
    return merged, conjuncts


def order_of(
    above: tuple[Scope, Scope], merged: tuple[MergedColumn, ...], names: list[exp.Expression]
) -> tuple[Member, ...]:
    """Return the columns of a star above a join, in Spark's order.

    The columns of USING come first, in its order and once each, then those of the left side, then
    those of the right side.
    """
    left, right = (scope.places() for scope in above)
    firsts: list[Member] = []
    gone: set[Member] = set()
    for name in names:
        owner = next((m for m in merged if m.name.lower() == name.name.lower()), None)
        if owner is not None:
            firsts += [place for place in left if place in owner.members][:1]
            gone |= owner.members
    return (*firsts, *(place for place in (*left, *right) if place not in gone))


def natural_columns(sides: tuple[Scope, Scope]) -> list[exp.Expression]:
    """Return the columns of a NATURAL JOIN: those of both sides with the same name and spelling."""
    left, right = ([column.name for column in scope.star()] for scope in sides)
    return [exp.to_identifier(name, quoted=True) for name in dict.fromkeys(left) if name in right]


def _using_side(name: exp.Expression, scope: Scope, text: Text) -> ResolvedColumn | None:
    candidates = scope.candidates(name.name)
    if len(candidates) == 1:
        return candidates[0]
    inputs = ", ".join(named.alias for named in scope.relations)
    if candidates:
        origins = " or ".join(candidate.origin for candidate in candidates)
        text.problem(f'USING: column "{name.name}" is ambiguous: {origins}', "ambiguous-column", name)
    else:
        text.problem(
            f'USING: there is no column "{name.name}" in {inputs}',
            "unknown-column",
            name,
            near_names(name.name, scope.names()),
        )
    return None


# ``JOIN t FOR SYSTEM_TIME AS OF …``: a table that every row of a stream meets as it is in the row's tick.
#
# Behind AS OF stands PROCTIME(), now() or CURRENT_TIMESTAMP. Anything else is refused: an event time, as
# in Flink, would ask for the row that was valid then, and no history of such a table is kept.

Reader = Callable[[exp.Expression], tuple[Flow | JoinedView, str | None]]
"""A FROM item as columns and ways or joins, and its name."""

_CLOCK = ("proctime", "now")
_AS_IT_IS = "each row is joined with the table as of its tick"


def is_as_of(item: exp.Expression) -> bool:
    """Return True if the FROM item is a table with FOR SYSTEM_TIME AS OF.

    TIMESTAMP AS OF and VERSION AS OF count, too.
    """
    return isinstance(item, exp.Table) and item.args.get("version") is not None


def written_version(item: exp.Table) -> str:
    kind = item.args["version"].name.upper()
    return "FOR SYSTEM_TIME AS OF" if kind == "TIMESTAMP" else f"{kind} AS OF"


def table_as_of(item: exp.Table, read: Reader, text: Text, left: Relation) -> Input:
    """Return the table as an input.

    Args:
        read: reads the item without its version.
        left: the relation whose rows meet it.

    Raises:
        SqlError: it is no table, or none that is read as a whole.
    """
    _check_version(item, text)
    plain = item.copy()
    plain.set("version", None)
    flow, alias = read(plain)
    name = alias or item.name
    if isinstance(flow, JoinedView) or len(flow.ways) != 1 or isinstance(flow.ways[0].origin, Query):
        raise text.not_supported(
            f'"{item.name}" FOR SYSTEM_TIME AS OF, which is more than one table, is',
            item,
            "join its tables one after the other, each with FOR SYSTEM_TIME AS OF PROCTIME()",
        )
    source = flow.ways[0].origin
    _check_source(source, flow, item, text, left)
    return table_of(flow, name)


def _check_source(source: Source, flow: Flow, item: exp.Table, text: Text, left: Relation) -> None:
    times = [time.column for time in source.event_times] or [flow.columns[n].name for n in flow.event_times]
    if times:
        raise text.error(
            f'"{item.name}" is a stream: it has the event time {", ".join(times)}',
            "not-a-table",
            item,
            f'use ASOF JOIN to join the newest row of another stream; or declare "{item.name}" as a'
            " table, without WATERMARK FOR",
        )
    by_format = source.changes and source.traits.files
    if source.compared:
        raise text.error(
            f"\"{item.name}\" has 'changes' = 'snapshot', so it cannot be joined FOR SYSTEM_TIME AS OF",
            "not-a-table",
            item,
            "remove FOR SYSTEM_TIME AS OF, or declare the table without 'changes'",
        )
    if source.change_column is not None or source.primary_key is not None or by_format:
        raise _changing_table_error(item, text, left)
    if not source.traits.tables:
        raise text.error(
            f'"{item.name}" cannot be read as a table: a {source.connector} source is never read completely',
            "not-a-table",
            item,
            "use files (TYPE File) or a database table (TYPE Jdbc)",
        )


def _changing_table_error(item: exp.Table, text: Text, left: Relation) -> SqlError:
    """Return the refusal of a table whose records are changes."""
    hint = "remove FOR SYSTEM_TIME AS OF: results then follow the table's changes"
    if any(i.event_times for i in inputs_of(left)):
        hint = (
            f"declare the changes of {item.name} as a stream, with WATERMARK FOR, and use ASOF JOIN,"
            f" which joins the row valid at that time: {STREAM_WITH_CHANGES}"
        )
    return text.not_supported(
        f'"{item.name}" FOR SYSTEM_TIME AS OF with a table whose records are changes is', item, hint
    )


def _check_version(item: exp.Table, text: Text) -> None:
    version = item.args["version"]
    if version.name.upper() != "TIMESTAMP" or str(version.args.get("kind")).upper() != "AS OF":
        raise text.not_supported(
            f"{written_version(item)} is", item, f"write FOR SYSTEM_TIME AS OF PROCTIME(): {_AS_IT_IS}"
        )
    asked = version.expression
    if isinstance(asked, exp.CurrentTimestamp):
        return
    if isinstance(asked, exp.Anonymous) and asked.name.lower() in _CLOCK and not asked.expressions:
        return
    raise text.not_supported(
        f"FOR SYSTEM_TIME AS OF {asked.sql('spark')}, the table as it was then, is",
        item,
        f"write PROCTIME(): {_AS_IT_IS}; or declare the table's changes as a stream, with WATERMARK"
        " FOR, and use ASOF JOIN for the row valid at an event time",
    )


# The joins of a FROM clause, and those that WHERE asks for by EXISTS: a tree, and the names above it.
#
# What stands in FROM is read by whoever calls (`Read`), for it may be a SELECT with a FROM of its own.

Read = Callable[[exp.Expression], tuple[Flow | JoinedView, str | None]]
"""A FROM item without its joins → what it names, and its alias."""

_BEYOND_EXISTS = ("joins", "group", "having", "limit", "offset", "laterals", "with_")
_LEFT_HINT = "INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI, LEFT ANTI, ASOF and LEFT ASOF are"


@dataclass(frozen=True)
class FromItem:
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
    first: tuple[JoinedView, str] | None = None,
    *,
    by_position: bool = False,
) -> JoinedView:
    """Parse the SELECT of a view or subquery that joins, or that reads one that joins.

    Args:
        first: The relation that FROM names and its alias, if it is already parsed.
        by_position: The caller ignores the names of the columns.

    Raises:
        StatementRejected, SqlError: The SELECT has errors.
    """
    before = len(text.problems)
    start = parse_from_item(select.args["from_"].this, read, text) if first is None else part_of(*first)
    part, condition = rows_of(start, select, read, text)
    items = select_items(select, part.scope, text, repeatable=True)
    if len(text.problems) > before:
        raise StatementRejected
    items = list(distinct(items, select, text, by_position=by_position))
    assert isinstance(part.relation, Join)
    relation = part.relation if condition is None else filter_join(part.relation, condition)
    columns = (column_of(item.name, item.expr, part.scope.column_of) for item in items)
    return JoinedView(relation, tuple(columns), tuple(item.expr for item in items))


def rows_of(part: FromItem, select: exp.Select, read: Read, text: Text) -> tuple[FromItem, Expr | None]:
    """Parse FROM with its joins, starting at its first item, and the remaining WHERE condition."""
    part = _apply_joins(part, select, read, text)
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


def _existence(part: FromItem, where: exp.Expression, read: Read, text: Text) -> tuple[FromItem, Expr | None]:
    """Convert EXISTS, IN (SELECT …) and NOT EXISTS in WHERE to SEMI and ANTI joins.

    Return the joined item and the other conjuncts.
    """
    rest: list[exp.Expression] = []
    for conjunct in _conjuncts(where):
        inner = conjunct.unnest()
        kind = JoinKind.SEMI
        if isinstance(inner, exp.Not):
            inner, kind = inner.this.unnest(), JoinKind.ANTI
        if isinstance(inner, exp.In) and inner.args.get("query"):
            inner = _rewrite_in(part, inner, kind, text)
        if not isinstance(inner, exp.Exists) or not isinstance(inner.this, exp.Query):  # it is of arrays, too
            rest.append(conjunct)
            continue
        part = _apply_exists(part, inner, kind, read, text)
    return part, reduce(_make_and, rest) if rest else None


def _rewrite_in(part: FromItem, predicate: exp.In, kind: JoinKind, text: Text) -> exp.Expression:
    """Rewrite ``x IN (SELECT y FROM …)`` as EXISTS (SELECT y FROM … WHERE x = y).

    Raises:
        SqlError: The predicate is NOT IN.
    """
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
        this=operand(resolve_columns(predicate.this, part.scope, text)), expression=operand(value.copy())
    )
    where = select.args.get("where")
    select.set(
        "where", exp.Where(this=condition if where is None else _make_and(condition, exp.paren(where.this)))
    )
    return exp.Exists(this=select)


def _check_sub_query(select: exp.Expression, what: str, where: exp.Expression, text: Text) -> None:
    """Refuse a sub-query in WHERE that is more than rows of one input."""
    origin = select.args.get("from_") if isinstance(select, exp.Select) else None
    aggregate = next(filter(is_aggregate, select.find_all(exp.Func)), None)
    if isinstance(select, exp.Select) and aggregate is not None:
        written = aggregate.sql("spark", normalize_functions="lower").replace("`", "")
        raise text.not_supported(
            f"{what} over the aggregate {written} is", where, _window_rewrite(written, origin, where)
        )
    extra = [name for name in _BEYOND_EXISTS if isinstance(select, exp.Select) and select.args.get(name)]
    if origin is None or extra or origin.this.args.get("joins"):
        hint = "remove GROUP BY, which has no effect here"
        raise text.not_supported(
            f"{what} over more than SELECT … FROM one input WHERE … is",
            where,
            hint if extra == ["group"] else "write LEFT SEMI JOIN … ON …",
        )


def _window_rewrite(aggregate: str, origin: exp.Expression | None, where: exp.Expression) -> str:
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


def _apply_exists(part: FromItem, exists: exp.Exists, kind: JoinKind, read: Read, text: Text) -> FromItem:
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
    return resolve_columns(expr, scope, text, clause)


def parse_from_item(item: exp.Expression, read: Read, text: Text, taken: Collection[str] = ()) -> FromItem:
    """Parse a FROM item with its joins: ``a``, ``(a JOIN b ON …)``, nested ``a JOIN b … ON``.

    Args:
        taken: Names that a subquery without a name must not get.
    """
    inner = item.this if isinstance(item, (exp.Subquery, exp.Paren)) else None
    if isinstance(inner, (exp.Table, exp.Subquery)) and not item.alias:
        return _apply_joins(parse_from_item(inner, read, text, taken), item, read, text)
    flow, alias = read(item)
    if not alias:
        alias = _free_name("ranked" if isinstance(flow, Flow) and flow.is_ranked else "subquery", taken)
    return _apply_joins(part_of(flow, alias), item, read, text)


def _free_name(wanted: str, taken: Collection[str]) -> str:
    lowered = {name.lower() for name in taken}
    numbered = (f"{wanted}_{number}" for number in count(2))
    return next(name for name in chain([wanted], numbered) if name not in lowered)


def part_of(flow: Flow | JoinedView, alias: str) -> FromItem:
    if isinstance(flow, JoinedView):
        inner = flow.with_alias(alias)
        return FromItem(inner.relation, Scope((inner.named(alias),)), {alias: inner.relation})
    return _input_item(input_of(flow, alias))


def _input_item(source_input: Input) -> FromItem:
    return FromItem(
        source_input,
        Scope((NamedRelation(source_input.alias, source_input.columns, sources=source_input.sources),)),
        {source_input.alias: source_input},
    )


def _apply_joins(part: FromItem, holder: exp.Expression, read: Read, text: Text) -> FromItem:
    for join in holder.args.get("joins") or ():
        part = _join(part, join, read, text)
    return part


def _join(left: FromItem, join: exp.Join, read: Read, text: Text) -> FromItem:
    kind = _kind(join, text)
    right = _right(join.this, kind, read, text, left)
    _check_names(left, right, join.this, text)
    scope = Scope(left.scope.relations + right.scope.relations, left.scope.merged + right.scope.merged)
    # Names above the join: what this join pads with NULLs has to be NULL there, whatever computes it.
    above = (
        pad_scope(left.scope, join.this, text) if kind.pads_right else left.scope,
        pad_scope(right.scope, join.this, text) if kind.pads_left and not kind.hides_right else right.scope,
    )
    using = join.args.get("using")
    if join.method.upper() == "NATURAL":
        using = natural_columns((left.scope, right.scope))
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
        condition = reduce(join_conditions, equalities) if equalities else None
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
        return FromItem(joined, replace(left.scope, order=seen), items)
    return FromItem(joined, Scope(above[0].relations + above[1].relations, merged, order=order), items)


def _right(item: exp.Expression, kind: JoinKind, read: Read, text: Text, left: FromItem) -> FromItem:
    """Parse the right side of a join: a FROM item, or a table FOR SYSTEM_TIME AS OF.

    Rows of the left side match such a table's content as of their tick.
    """
    if not is_as_of(item):
        return parse_from_item(item, read, text, left.aliases)
    assert isinstance(item, exp.Table)
    if kind.pads_right:
        raise text.not_supported(
            f"{kind.value} JOIN with a table FOR SYSTEM_TIME AS OF is",
            item,
            "use INNER, LEFT, LEFT SEMI or LEFT ANTI: rows of the table are only looked up",
        )
    return _input_item(table_as_of(item, read, text, left.relation))


MAX_INPUTS = 100
"""Of a join, with those of views."""


def _check_names(left: FromItem, right: FromItem, where: exp.Expression, text: Text) -> None:
    """Raise an error if two inputs have the same name, or if a join has too many inputs.

    Names inside subqueries and on the right of SEMI joins count, because watermark keys contain them.
    """
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


def _make_and(first: Expr, second: Expr) -> Expr:
    return exp.And(this=first, expression=second)
