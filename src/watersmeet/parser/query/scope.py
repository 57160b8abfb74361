"""Names in expressions → columns: what a name may refer to, and what it does refer to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.query.expressions.calls import check_calls
from watersmeet.parser.query.inline import operand
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.types.inference import field_type
from watersmeet.spec.model import Column, Expr, Relation, Source, inputs_of
from watersmeet.spec.records.changes import get_change_column_name
from watersmeet.types.sql_type import UNKNOWN, SqlType

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_RESERVED = frozenset(
    {
        "left",
        "right",
        "full",
        "join",
        "on",
        "cross",
        "inner",
        "anti",
        "semi",
        "natural",
        "minus",
        "except",
        "intersect",
        "union",
        "using",
        "lateral",
        "from",
        "where",
        "select",
        "interval",
        "case",
        "not",
    }
)


def identifier(name: str) -> exp.Identifier:
    """Return an identifier that survives formatting as SQL, quoted only where necessary."""
    plain = _PLAIN_NAME.match(name) is not None and name.lower() not in _RESERVED
    return exp.to_identifier(name, quoted=not plain)


def column_node(name: str, alias: str | None = None) -> exp.Column:
    return exp.Column(this=identifier(name), table=identifier(alias) if alias is not None else None)


Member = tuple[str, str]
"""Alias, column."""


@dataclass(frozen=True)
class NamedRelation:
    """One relation of a FROM clause: its alias and columns.

    A view or sub-query that joins has a ``relation`` of its own; ``values``, aligned with ``columns``, are
    expressions over the inputs of that. ``sources``: those of which it is rows, where it joins nothing.
    """

    alias: str
    columns: tuple[Column, ...]
    values: tuple[Expr, ...] = ()
    relation: Relation | None = None
    sources: tuple[Source, ...] = ()

    def find(self, name: str) -> Column | None:
        """Find a column as Spark does: ignore case; the result is spelled as declared."""
        lowered = name.lower()
        return next((column for column in self.columns if column.name.lower() == lowered), None)


@dataclass(frozen=True)
class MergedColumn:
    """A column of USING: one name for what both sides hold."""

    name: str
    expr: Expr
    members: frozenset[Member]
    """(alias, column) of all columns that it stands for."""


@dataclass(frozen=True)
class ResolvedColumn:
    """Column that a star or a name resolves to."""

    name: str
    expr: Expr
    origin: str
    members: frozenset[Member] = frozenset()
    """(alias, column) of the columns that it stands for, where it is a name."""


@dataclass(frozen=True)
class Scope:
    """Relations and columns that names may refer to.

    ``qualify``: names resolve to ``alias.column``, otherwise to the bare column. ``order``: the order
    of a star, if a USING has changed it; see `places`.
    """

    relations: tuple[NamedRelation, ...]
    merged: tuple[MergedColumn, ...] = ()
    qualify: bool = True
    order: tuple[Member, ...] | None = None

    def relation(self, alias: str) -> NamedRelation | None:
        return next((named for named in self.relations if named.alias.lower() == alias.lower()), None)

    def column(self, named: NamedRelation, column: Column) -> Expr:
        """Return the expression of a column: a column of an input, or the value in a subquery."""
        if named.relation is not None:
            return named.values[named.columns.index(column)].copy()
        return column_node(column.name, named.alias if self.qualify else None)

    def type_of(self, node: exp.Column) -> SqlType:
        """Return the declared type of a resolved column."""
        column = self.column_of(node)
        return UNKNOWN if column is None else column.type

    def column_of(self, node: exp.Column) -> Column | None:
        """Find the column that a resolved name refers to, or return None."""
        for named in self.relations:
            if named.relation is not None:
                inner = next((i for i in inputs_of(named.relation) if i.alias == node.table), None)
                column = inner.column(node.name) if inner is not None else None
            elif not self.qualify or named.alias == node.table:
                column = next((c for c in named.columns if c.name == node.name), None)
            else:
                continue
            if column is not None:
                return column
        return None

    def candidates(self, name: str) -> list[ResolvedColumn]:
        """Return all columns that an unqualified name may mean; the columns of one USING count once."""
        merged = next((m for m in self.merged if m.name.lower() == name.lower()), None)
        members = merged.members if merged else frozenset()
        candidates = []
        if merged is not None:
            candidates.append(ResolvedColumn(merged.name, merged.expr.copy(), _members_text(merged), members))
        for named in self.relations:
            column = named.find(name)
            if column is not None and (named.alias, column.name) not in members:
                member = (named.alias, column.name)
                value = self.column(named, column)
                candidates.append(ResolvedColumn(column.name, value, ".".join(member), frozenset({member})))
        return candidates

    def star(self) -> Iterator[ResolvedColumn]:
        """Yield all columns of all relations, in the order of `places`."""
        for alias, name in self.places():
            owner = next((m for m in self.merged if (alias, name) in m.members), None)
            if owner is not None:
                yield ResolvedColumn(owner.name, owner.expr.copy(), _members_text(owner), owner.members)
                continue
            named = next(relation for relation in self.relations if relation.alias == alias)
            column = next(candidate for candidate in named.columns if candidate.name == name)
            yield ResolvedColumn(
                name, self.column(named, column), f"{alias}.{name}", frozenset({(alias, name)})
            )

    def places(self) -> tuple[Member, ...]:
        """Return (alias, column) of all columns in the order of a star; one for each USING column."""
        if self.order is not None:
            return self.order
        return tuple((named.alias, column.name) for named in self.relations for column in named.columns)

    def star_of(self, named: NamedRelation) -> Iterator[ResolvedColumn]:
        """Yield all columns of one relation, those of a USING first."""
        places = self.places()
        first = {
            member: places.index(place)
            for merged in self.merged
            for place in merged.members.intersection(places)
            for member in merged.members
        }

        def place_of(column: Column) -> int:
            return first.get((named.alias, column.name), len(places))

        for column in sorted(named.columns, key=place_of):
            yield ResolvedColumn(column.name, self.column(named, column), f"{named.alias}.{column.name}")

    def names(self) -> list[str]:
        return [column.name for named in self.relations for column in named.columns]


def _members_text(merged: MergedColumn) -> str:
    return ", ".join(f"{alias}.{name}" for alias, name in sorted(merged.members))


Aliases = Mapping[str, Sequence[Expr]]
"""What stands before in a list of SELECT, by the name that it was given, in lower case."""


MAX_EXPANDED_NODES = 5_000
"""Operators, columns and constants that names in one expression may stand for: names of names may double them
again and again."""


def resolve_columns(
    expr: Expr, scope: Scope, text: Text, clause: str | None = None, aliases: Aliases | None = None
) -> Expr:
    """Return a copy with every column resolved.

    Report unknown names, and leave them unchanged; report what Spark would reject, too.

    Args:
        clause: The clause whose condition the expression is.
        aliases: Expressions for names that are not columns.
    """

    named = 0

    def resolve(node: exp.Expression) -> exp.Expression:
        nonlocal named
        if not isinstance(node, exp.Column) or named > MAX_EXPANDED_NODES:
            return node
        replacement = _resolve(node, scope, text, aliases or {})
        if aliases and node.parts[0].name.lower() in aliases:
            named += sum(1 for _ in replacement.walk())
        if replacement is not node:
            _place(replacement, node)
        return replacement if replacement is node or node is tree else operand(replacement, node)

    tree, before = expr.copy(), len(text.problems)
    whole = tree.transform(resolve, copy=False)
    if named > MAX_EXPANDED_NODES:
        text.problem(
            f"an expression has more than {MAX_EXPANDED_NODES:,} parts, including the "
            "definitions of its aliases",
            "not-supported",
            expr,
            "use fewer aliases of expressions in it, or each less often",
        )
    if len(text.problems) == before:
        check_calls(whole, scope.type_of, text, expr, clause)
    return whole


def _place(replacement: exp.Expression, node: exp.Column) -> None:
    """Let an expression stand in the text where the name stands that it replaces."""
    start = node.parts[0].meta.get("start")
    for part in replacement.walk():
        part.meta.pop("start", None)
    if start is not None:
        replacement.meta["start"] = start


def _resolve(node: exp.Column, scope: Scope, text: Text, aliases: Aliases) -> exp.Expression:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    if len(parts) != len(node.parts):
        text.problem('"*" cannot be used here', "syntax", node)
        return node
    named = scope.relation(parts[0].name) if len(parts) > 1 else None
    if named is not None:
        column = named.find(parts[1].name)
        if column is not None:
            return _fields(scope.column(named, column), column.type, parts[2:], text, node)
        if not scope.candidates(parts[0].name):
            return _unknown_column(node, parts[1], named, text)
    return _resolve_unqualified(node, parts, scope, text, aliases)


def _resolve_unqualified(
    node: exp.Column, parts: Sequence[exp.Identifier], scope: Scope, text: Text, aliases: Aliases
) -> exp.Expression:
    name = parts[0].name
    candidates = scope.candidates(name)
    if not candidates:
        candidates = [
            ResolvedColumn(name, aliased.copy(), aliased.sql("spark"))
            for aliased in aliases.get(name.lower(), ())
        ]
    if len(candidates) == 1:
        expr = candidates[0].expr
        kind = scope.type_of(expr) if isinstance(expr, exp.Column) else UNKNOWN
        return _fields(expr, kind, parts[1:], text, node)
    if candidates:
        origins = " or ".join(candidate.origin for candidate in candidates)
        text.problem(
            f'column "{name}" is ambiguous: {origins}',
            "ambiguous-column",
            parts[0],
            f"write {origins}",
        )
    elif len(parts) > 1:
        text.problem(
            f'unknown input "{name}" of column "{name}.{parts[1].name}"',
            "unknown-table",
            parts[0],
            _inside_hint(name, scope) or near_names(name, [named.alias for named in scope.relations]),
        )
    elif name.lower() == "localtimestamp" and not parts[0].args.get("quoted"):  # to Spark a function
        text.problem(
            f"{name} is not supported yet: a repeated tick must see the same clock",
            "not-supported",
            parts[0],
            "use a time column of the stream",
        )
    else:
        sources = [source for named in scope.relations for source in named.sources]
        hint = hidden_hint(name, sources) or near_names(name, scope.names())
        own, first = text.around(start := parts[0].meta.get("start", 0))
        if own.sql[start - first : start - first + 1] == '"':
            said = f"write '{name}' if it is text: double quotes enclose names"
            hint = f"{hint or ''}\n{said}".strip()
        text.problem(f'unknown column "{name}"', "unknown-column", parts[0], hint)
    return node


def _inside_hint(name: str, scope: Scope) -> str | None:
    """Return a hint for an input inside a view or subquery, which only the inner SELECT sees."""
    for named in scope.relations:
        inner = [] if named.relation is None else [i.alias.lower() for i in inputs_of(named.relation)]
        if f"{named.alias}.{name}".lower() in inner:
            columns = ", ".join(column.name for column in named.columns)
            return f'{name} is inside "{named.alias}", which has the columns {columns}'
    return None


def _unknown_column(
    node: exp.Column, part: exp.Identifier, named: NamedRelation, text: Text
) -> exp.Expression:
    text.problem(
        f'input "{named.alias}" has no column "{part.name}"',
        "unknown-column",
        part,
        hidden_hint(part.name, named.sources)
        or near_names(part.name, [column.name for column in named.columns]),
    )
    return node


def hidden_hint(name: str, sources: Iterable[Source]) -> str | None:
    """Return a hint for a column of records that rows do not have, because it says what changes."""
    for source in sources:
        change = get_change_column_name(source)
        if change is not None and change.lower() == name.lower():
            return (
                f'remove {change}: it tells inserts from deletes in "{source.name}" and is not part'
                " of its rows"
            )
        row = source.row_columns
        if any(own.name.lower() == name.lower() and own not in row for own in source.columns):
            return (
                f"declare PRIMARY KEY (…) NOT ENFORCED, or compute {change} from another column:"
                f' {change} tells inserts from deletes in "{source.name}", so without a key rows do not'
                f" have {name}"
            )
    return None


def fields_in(path: Sequence[exp.Expr], scope: Scope) -> list[ResolvedColumn] | None:
    """Return the columns of ``x.*`` where ``x`` is a STRUCT or a STRUCT inside one.

    Return None if ``x`` is neither.
    """
    first, *rest = path
    named = scope.relation(first.name) if rest else None
    column = named.find(rest[0].name) if named is not None else None
    if named is not None and column is not None:
        expr, kind, rest = scope.column(named, column), column.type, rest[1:]
    else:
        candidates = scope.candidates(first.name)
        if len(candidates) != 1:
            return None
        expr = candidates[0].expr
        kind = scope.type_of(expr) if isinstance(expr, exp.Column) else UNKNOWN
    for field in rest:
        kind = (field_type(kind, field.name) if kind.is_struct else None) or UNKNOWN
        expr = exp.Dot(this=operand(expr), expression=identifier(field.name))
    origin = ".".join(part.name for part in path)
    return (
        None
        if not kind.is_struct
        else [
            ResolvedColumn(
                name, exp.Dot(this=operand(expr.copy()), expression=identifier(name)), f"{origin}.{name}"
            )
            for name in (field.name for field in kind.fields)
        ]
    )


def _fields(
    expr: Expr, kind: SqlType, fields: Sequence[exp.Identifier], text: Text, node: exp.Column
) -> exp.Expression:
    """Build ``column.field.field``; report an unknown field.

    On an ARRAY, a field is that of its elements; on a MAP, its value.
    """
    for field in fields:
        within = field_type(kind, field.name)
        if within is None:
            names = [own.name for own in (kind.element or kind).fields]
            text.problem(
                f'"{node.sql("spark")}": a {kind} has no field "{field.name}"',
                "unknown-column",
                field,
                near_names(field.name, names),
            )
            return node
        kind = within
        expr = exp.Dot(this=operand(expr), expression=identifier(field.name))
    return expr
