"""A view or sub-query that joins: a tree of joins, and its columns as expressions over the inputs of that.

It stands in a query as that tree. So that its inputs cannot be mistaken for others, they take the alias under
which it is used before their own: ``od.o`` and ``od.d`` are the inputs of ``od``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.front.query.inline import both
from watersmeet.front.query.scope import Named, identifier
from watersmeet.spec.model import Column, Expr, Input, Join, Relation, inputs_of


@dataclass(frozen=True)
class Joined:
    """``values`` is aligned with ``columns`` and mentions ``alias.column`` of the relation's inputs."""

    relation: Join
    columns: tuple[Column, ...]
    values: tuple[Expr, ...]

    def under(self, alias: str) -> Joined:
        """With that alias before those of the inputs; without a name of its own as it is."""
        if not alias:
            return self
        names = {visible.alias: f"{alias}.{visible.alias}" for visible in inputs_of(self.relation)}
        relation = _renamed(self.relation, alias, names)
        assert isinstance(relation, Join)
        return Joined(relation, self.columns, tuple(_moved(value, alias, names) for value in self.values))

    def named(self, alias: str) -> Named:
        """What a query can mention of it."""
        return Named(alias, self.columns, self.values, self.relation)


def filtered(relation: Join, condition: Expr) -> Join:
    """WHERE of a view or sub-query: it takes rows off before anything above sees them."""
    return replace(relation, where=both(relation.where, condition))


def _renamed(relation: Relation, alias: str, names: Mapping[str, str]) -> Relation:
    if isinstance(relation, Input):
        return replace(relation, alias=names[relation.alias])
    return replace(
        relation,
        left=_renamed(relation.left, alias, names),
        right=_renamed(relation.right, alias, names),
        on=None if relation.on is None else _moved(relation.on, alias, names),
        where=None if relation.where is None else _moved(relation.where, alias, names),
        match=None if relation.match is None else _moved(relation.match, alias, names),
    )


def _moved(expr: Expr, alias: str, names: Mapping[str, str]) -> Expr:
    tree = expr.copy()
    for column in list(tree.find_all(exp.Column)):
        own = column.args["table"]
        quoted = bool(own.args.get("quoted") or identifier(alias).args.get("quoted"))
        column.set("table", exp.to_identifier(names[own.name], quoted=quoted))
    return tree
