"""The list of a SELECT: stars, aliases, and names for what has none, as Spark gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.query.expressions.checks import check_expression, is_repeatable
from watersmeet.parser.query.scope import ResolvedColumn, Scope, fields_in, resolve_columns
from watersmeet.parser.text.source_position import Text
from watersmeet.spec.model import Expr


def select_items(select: exp.Select, scope: Scope, text: Text, *, repeatable: bool) -> list[ResolvedColumn]:
    """Resolve the items of the SELECT list, in order; report problems and leave their items out."""
    items: list[ResolvedColumn] = []
    aliases: dict[str, list[Expr]] = {}
    for number, item in enumerate(select.expressions, 1):
        star = _star(item)
        if star is not None:
            items.extend(_expand_star(item, star, scope, text))
        elif isinstance(item, exp.Aliases):
            text.problems.append(text.not_supported("several aliases for one expression are", item))
        elif check_expression(item, text, repeatable=repeatable):
            plain = item.this if isinstance(item, exp.Alias) else item
            name = item.alias if isinstance(item, exp.Alias) else spark_name(plain)
            expr = resolve_columns(plain, scope, text, aliases=aliases)
            if isinstance(item, exp.Alias) and is_repeatable(expr):  # else it would be computed twice
                aliases.setdefault(name.lower(), []).append(expr)
            is_column = isinstance(expr, exp.Column)
            origin = expr.sql("spark").replace("`", "") if is_column else f"expression {number}"
            items.append(ResolvedColumn(name, expr, origin))
    return items


def _free_name(name: str, number: int, taken: Mapping[str, int]) -> str:
    """Return ``name`` with a suffix that makes it unique: ``k#2``."""
    candidate = f"{name}#{number}"
    return _free_name(candidate, number, taken) if candidate.lower() in taken else candidate


def distinct(
    items: Sequence[ResolvedColumn], select: exp.Select, text: Text, *, by_position: bool = False
) -> Sequence[ResolvedColumn]:
    """Check that the columns of a view or subquery have distinct names and return them.

    Args:
        by_position: The caller ignores the names; rename duplicates instead of raising an error.

    Raises:
        SqlError: Two columns have the same name.
    """
    if by_position:
        times = Counter(item.name.lower() for item in items)
        return [
            item
            if times[item.name.lower()] == 1
            else replace(item, name=_free_name(item.name, number, times))
            for number, item in enumerate(items, 1)
        ]
    seen: dict[str, str] = {}
    for item in items:
        lowered = item.name.lower()
        if lowered in seen:
            raise text.error(
                f'two columns are named "{item.name}": {seen[lowered]} and {item.origin}',
                "duplicate-column",
                select,
                "give one of them another name with AS",
            )
        seen[lowered] = item.origin
    return items


def _star(item: exp.Expression) -> exp.Star | None:
    if isinstance(item, exp.Star):
        return item
    return item.this if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else None


def _expand_star(item: exp.Expression, star: exp.Star, scope: Scope, text: Text) -> Sequence[ResolvedColumn]:
    if star.args.get("replace") or star.args.get("rename"):
        text.problems.append(text.not_supported("REPLACE and RENAME in a star are", item))
        return []
    path = item.parts[:-1] if isinstance(item, exp.Column) else []
    if not path:
        columns = list(scope.star())
    else:
        named = scope.relation(path[0].name) if len(path) == 1 else None
        fields = fields_in(path, scope) if named is None else None
        if named is None and fields is None:
            alias = ".".join(part.name for part in path)
            hint = near_names(alias, [relation.alias for relation in scope.relations])
            text.problem(f'unknown input "{alias}" in "{alias}.*"', "unknown-table", item, hint)
            return []
        columns = list(fields or ()) if named is None else list(scope.star_of(named))
    left_out = [column.name.lower() for column in star.args.get("except_") or ()]
    for name in left_out:
        if all(column.name.lower() != name for column in columns):
            text.problem(
                f'EXCEPT: there is no column "{name}"',
                "unknown-column",
                item,
                near_names(name, [column.name for column in columns]),
            )
    return [column for column in columns if column.name.lower() not in left_out]


def spark_name(expr: Expr) -> str:
    """Return the name of an expression without alias.

    It is ``t`` for ``l.t``, ``(t + 1)`` for ``l.t + 1``.

    >>> import sqlglot
    >>> spark_name(sqlglot.parse_one("UPPER(o.name) || 'x'", read="spark"))
    "(upper(name) || 'x')"
    """
    plain = expr.unnest()
    if isinstance(plain, exp.Column):
        return plain.name
    if isinstance(plain, exp.Dot):
        return str(plain.expression.name)
    if isinstance(plain, (exp.Cast, exp.TryCast)) and isinstance(plain.this, exp.Column):
        return plain.this.name

    def bare(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
            return exp.Column(this=exp.to_identifier(node.name, quoted=False))
        return node

    tree = plain.copy().transform(bare)
    for node in list(tree.find_all(exp.Binary)):
        # As Spark writes it: each operation in parentheses.
        if node.key != "dot" and node.parent is not None and not isinstance(node.parent, exp.Paren):
            node.replace(exp.paren(node.copy(), copy=False))
    text = tree.sql("spark", normalize_functions="lower", comments=False)
    return f"({text})" if isinstance(tree, exp.Binary) and tree.key != "dot" else text
