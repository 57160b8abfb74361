"""A query of SQL as the calls that say the same: of its parse tree, clause by clause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from watersmeet.parser.text.dialect import ImposeOrder, Watersmeet, WindowTable
from watersmeet.relations.relation import Relation
from watersmeet.relations.terms import Window, hop, session, tumble

Named = Callable[[str], Relation]
"""A stream, table or view by its name."""

_HOW = {
    ("", "", ""): "inner", ("", "", "INNER"): "inner", ("", "", "CROSS"): "inner",
    ("", "LEFT", ""): "left", ("", "LEFT", "OUTER"): "left",
    ("", "RIGHT", ""): "right", ("", "RIGHT", "OUTER"): "right",
    ("", "FULL", ""): "full", ("", "FULL", "OUTER"): "full",
    ("", "LEFT", "SEMI"): "semi", ("", "", "SEMI"): "semi",
    ("", "LEFT", "ANTI"): "anti", ("", "", "ANTI"): "anti",
    ("ASOF", "", ""): "asof", ("ASOF", "", "INNER"): "asof", ("ASOF", "LEFT", ""): "left_asof",
    ("ASOF", "LEFT", "OUTER"): "left_asof",
}  # fmt: skip


class NoCall(Exception):
    """There is no call for a part of the query."""


def relation_of(tree: exp.Expression, named: Named) -> Relation:
    """The relation of a parsed query."""
    if isinstance(tree, exp.Subquery) and not tree.alias:
        return relation_of(tree.this, named)
    clause = tree.args.get("with_")
    if clause is not None:
        named = _with(clause, named)
    if isinstance(tree, exp.Union):
        if tree.args.get("distinct"):
            raise NoCall("UNION")
        return relation_of(tree.this, named).union_all(relation_of(tree.expression, named))
    if not isinstance(tree, exp.Select):
        raise NoCall(tree.key)
    return _select(tree, named)


def _with(clause: exp.Expression, named: Named) -> Named:
    made: dict[str, Relation] = {}
    for cte in clause.expressions:
        if cte.args["alias"].args.get("columns"):
            raise NoCall("pass names of columns")
        made[cte.alias.lower()] = relation_of(cte.this, _with_made(made, named))
    return _with_made(dict(made), named)


def _with_made(made: Mapping[str, Relation], named: Named) -> Named:
    return lambda name: made[name.lower()] if name.lower() in made else named(name)


def _select(select: exp.Select, named: Named) -> Relation:
    item = select.args["from_"].this
    table = item.this if isinstance(item, exp.Table) else item
    if isinstance(table, exp.Anonymous) and table.name.upper() == "TABLE":
        table = table.expressions[0]
    window = None
    if isinstance(table, WindowTable):
        relation = _window_rows(table, item.alias, named)
        sizes = [_length(size) for size in table.args["sizes"]]
        time = text(exp.column(table.args["column"].copy()))
        if table.args["function"] == "HOP":
            window = hop(time, sizes[0], sizes[1])
        else:
            window = (tumble if table.args["function"] == "TUMBLE" else session)(time, sizes[0])
    else:
        relation = _item(item, named)
        for holder in (item, select):
            for join in holder.args.get("joins") or ():
                relation = _apply_join(relation, join, named)
    hint = select.args.get("hint")
    if hint is not None:
        relation = relation.hint(hint.expressions[0].name)
    where = select.args.get("where")
    if where is not None:
        if any(isinstance(node, exp.Exists | exp.Query) for node in where.this.walk()):
            raise NoCall("EXISTS")
        for conjunct in conjuncts(where.this):
            relation = relation.where(text(conjunct))
    group, having = select.args.get("group"), select.args.get("having")
    items = [text(item) for item in select.expressions]
    if group is not None or having is not None or window is not None:
        return _apply_group_by(select, relation, window)
    if select.args.get("distinct"):
        return relation.select(*items).distinct()
    return relation.select(*items)


def _apply_group_by(select: exp.Select, relation: Relation, window: Window | None) -> Relation:
    """By `Grouped.agg` where the list is the window's edges, the keys and then aggregates."""
    group, having = select.args.get("group"), select.args.get("having")
    keys = [text(key) for key in group.expressions] if group is not None else []
    own = [key for key in keys if key.lower() not in ("window_start", "window_end")]
    items = [text(item) for item in select.expressions]
    wanted = [*([] if window is None else ["window_start", "window_end"]), *own]
    groups = relation.group_by(*([] if window is None else [window]), *own)
    kept = None if having is None else text(having.this)
    if items[: len(wanted)] == wanted:
        return groups.agg(*items[len(wanted) :], having=kept)
    return groups.select(*items, having=kept)


def _window_rows(table: WindowTable, alias: str, named: Named) -> Relation:
    if table.args.get("partition"):
        raise NoCall("PARTITION BY")
    relation = _item(table.this, named)
    return relation.alias(alias) if alias else relation


def _item(item: exp.Expression, named: Named) -> Relation:
    """What stands in FROM."""
    alias = item.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise NoCall("pass names of columns")
    if isinstance(item, exp.Subquery):
        if isinstance(item.this, exp.Table | exp.Subquery):
            relation = _item(item.this, named)
            for join in item.this.args.get("joins") or ():
                relation = _apply_join(relation, join, named)
            return relation.alias(item.alias) if item.alias else relation
        relation = relation_of(item.this, named)
        return relation.alias(item.alias) if item.alias else relation
    if isinstance(item, ImposeOrder):
        return _item(item.this, named).impose_order(
            text(exp.column(item.args["column"].copy())), _length(item.args["lag"])
        )
    if isinstance(item, exp.Query):
        return relation_of(item, named)
    assert isinstance(item, exp.Table)
    inner = item.this
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "TABLE":
        argument = inner.expressions[0]
        relation = named(argument.name) if isinstance(argument, exp.Column) else _item(argument, named)
    elif isinstance(inner, ImposeOrder):
        relation = _item(inner, named)
    else:
        relation = named(".".join(part.name for part in item.parts))
        if item.args.get("version") is not None:
            relation = relation.alias(item.alias or item.name)
            return relation.as_of()
        return relation.alias(item.alias or item.name)
    return relation.alias(item.alias) if item.alias else relation


def _apply_join(relation: Relation, join: exp.Join, named: Named) -> Relation:
    if join.method.upper() == "NATURAL":
        raise NoCall("NATURAL")
    how = _HOW[(join.method.upper(), join.side.upper(), join.kind.upper())]
    on, match, using = join.args.get("on"), join.args.get("match_condition"), join.args.get("using")
    return relation.join(
        _item(join.this, named),
        None if on is None else [text(conjunct) for conjunct in conjuncts(on)],
        how=how,
        using=[column.name for column in using] if using else None,
        match=None if match is None else text(match),
    )


def _length(node: exp.Expression) -> str | int:
    plain = node.unnest()
    if isinstance(plain, exp.Literal) and not plain.is_string:
        return int(plain.name)
    if isinstance(plain, exp.Neg) and isinstance(plain.this, exp.Literal):
        return -int(plain.this.name)
    if isinstance(plain, exp.Interval):
        return text(plain)
    raise NoCall("a length that is computed")


def conjuncts(tree: exp.Expression) -> list[exp.Expression]:
    """What the condition's ANDs put together, which calls may say one by one."""
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.this), *conjuncts(tree.expression)]
    return [tree]


def text(tree: exp.Expression) -> str:
    """The expression as SQL."""
    return tree.sql(dialect=Watersmeet)
