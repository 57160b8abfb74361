"""CREATE INDEX: rows of a table that are kept under keys, for the queries that look them up.

What follows ``CREATE [OR REPLACE] INDEX [IF NOT EXISTS] name``::

    ON table (column, …) [, (column, …) …] [INCLUDE (column, …)] [WHERE condition]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import near_names
from watersmeet.names import index_query
from watersmeet.parser.catalog import Catalog
from watersmeet.parser.query.select import build_query
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import TokenCursor, parse_tokens
from watersmeet.spec.connectors import NOWHERE
from watersmeet.spec.model import Input, Insert, OutputMode, Query, Sink


def read_index(cursor: TokenCursor, name: str, catalog: Catalog, sql: str) -> Insert:
    """Read the rest of ``CREATE INDEX name`` as a query of the job that has no sink.

    Raises:
        SqlError: The index has an error.
    """
    text = cursor.text
    cursor.expect("ON", "ON table (column, …)")
    place = cursor.offset
    table = _dotted_tokens(cursor)
    if cursor.accept("USING"):
        raise text.not_supported(
            "USING of an index is", cursor.offset, "remove it: an index looks rows up by hash"
        )
    keys = [_columns(cursor, "a column of the index")]
    while cursor.accept(","):
        keys.append(_columns(cursor, "a column of the index"))
    included = _columns(cursor, "a column") if cursor.accept("INCLUDE") else None
    where = cursor.rest() if cursor.looks_at("WHERE") else []
    cursor.end()
    tree = parse_tokens(text, [*_select_all(table), *where])
    if not isinstance(tree, exp.Select) or any(
        tree.args[part] for part in tree.args if part not in ("expressions", "from", "from_", "where", "kind")
    ):
        raise text.error("syntax: expected one condition after WHERE, and nothing after it", "syntax", place)
    query = build_query(tree, catalog, text, sql)
    of_table = _check(query, text, place)
    wanted = [_resolve_column(of_table, column, text) for key in keys for column in key]
    for key in keys:
        _check_distinct(key, text)
        _check_types(key, of_table, text)
    if included is not None and of_table.names_whole_rows:
        raise text.not_supported(
            f'INCLUDE for "{of_table.alias}", which has no PRIMARY KEY, is',
            place,
            "remove it: deletes of this table need all columns, so the index stores all of them",
        )
    if included is not None:
        wanted += [_resolve_column(of_table, column, text) for column in included]
        query = replace(query, outputs=tuple(o for o in query.outputs if o.name in wanted))
    by = tuple(
        dict.fromkeys(
            tuple(sorted(_resolve_column(of_table, column, text) for column in key)) for key in keys
        )
    )
    if len(by) < len(keys):
        raise text.error("two keys of the index have the same columns", "duplicate-column", place)
    query = replace(query, mode=OutputMode.CHANGELOG, indexed_by=by)
    return Insert(index_query(name), Sink(index_query(name), NOWHERE), query)


def _dotted_tokens(cursor: TokenCursor) -> list[Token]:
    first = cursor.index
    cursor.take_dotted_name("a table")
    return list(cursor.tokens[first : cursor.index])


def _select_all(table: Sequence[Token]) -> list[Token]:
    """Return the tokens of SELECT * FROM the table, with the table's location in the text."""
    place = table[0]

    def token(kind: TokenType, text: str) -> Token:
        return Token(kind, text, place.line, place.col, place.start, place.end)

    return [
        token(TokenType.SELECT, "SELECT"),
        token(TokenType.STAR, "*"),
        token(TokenType.FROM, "FROM"),
        *table,
    ]


def _columns(cursor: TokenCursor, what: str) -> list[tuple[str, int]]:
    """Read ``(column, …)`` and return each name with its offset in the text."""
    cursor.expect("(", "( and columns")
    names = []
    while True:
        start = cursor.offset
        names.append((cursor.name(what), start))
        if cursor.looks_at("("):
            hint = "compute it in a view and index the view, or index the columns in the expression"
            raise cursor.text.not_supported("an index of an expression is", start, hint)
        if cursor.accept("DESC") or cursor.accept("ASC"):
            raise cursor.text.not_supported(
                "ASC or DESC in an index is", start, "remove it: an index looks rows up by hash"
            )
        if not cursor.accept(","):
            break
    cursor.expect(")", ", or )")
    return names


def _check(query: Query, text: Text, place: int) -> Input:
    """Return the single input of an index, a table that retains each row until its deletion.

    Raises:
        SqlError: The query joins, groups or numbers rows, or its input is a stream.
    """
    relation = query.relation
    if query.aggregation is not None or not isinstance(relation, Input) or relation.stages:
        raise text.not_supported(
            "an index of a view that joins, groups or numbers rows is",
            place,
            "index the tables that the view reads",
        )
    if not relation.is_table or relation.event_times or relation.as_of:
        raise text.not_supported(
            f'"{relation.alias}" is a stream, and an index of it is',
            place,
            "index a table instead: declare it without WATERMARK and with a PRIMARY KEY, 'op.column',"
            " 'diff.column' or 'changes' = 'snapshot'",
        )
    return relation


def _resolve_column(table: Input, column: tuple[str, int], text: Text) -> str:
    name, start = column
    names = {declared.name.lower(): declared.name for declared in table.columns}
    if name.lower() not in names:
        hint = near_names(name, names.values())
        raise text.error(f'"{table.alias}" has no column "{name}"', "unknown-column", start, hint)
    return names[name.lower()]


def _check_types(key: Sequence[tuple[str, int]], table: Input, text: Text) -> None:
    """Raise an error if a key column has a type that ``=`` cannot compare."""
    for column in key:
        declared = table.column(_resolve_column(table, column, text))
        for part in () if declared is None else declared.type.every:
            if part.entry is not None or part.is_interval or str(part).upper() == "VARIANT":
                what = f'an index by "{declared.name}", which is {declared.type}, is' if declared else ""
                raise text.not_supported(what, column[1], "use a column of a type that = compares")


def _check_distinct(key: Sequence[tuple[str, int]], text: Text) -> None:
    seen = set()
    for name, start in key:
        if name.lower() in seen:
            raise text.error(f'column "{name}" is in the key twice', "duplicate-column", start)
        seen.add(name.lower())
