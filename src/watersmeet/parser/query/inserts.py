"""INSERT INTO and EMIT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import near_names
from watersmeet.parser.catalog import Catalog
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import TokenCursor
from watersmeet.parser.types.inference import null_of, type_of
from watersmeet.spec.model import Column, Insert, OutputColumn, OutputMode, Query, Sink
from watersmeet.types.sql_type import UNKNOWN, SqlType

# EMIT CHANGES and EMIT FINAL at the end of an INSERT or SELECT: which rows a query puts out. The parser
# does not know them: they are taken off before it sees the statement.

MODES = {"CHANGES": OutputMode.CHANGELOG, "FINAL": OutputMode.APPEND}
_HINT = (
    "use EMIT CHANGES (results are updated) or EMIT FINAL (results are final), at the end of an INSERT"
    " or SELECT"
)
_WITHIN = "write EMIT once, at the end of the INSERT or SELECT"

_WINDOW_CLOSE = ["ON", "WINDOW", "CLOSE"]
_BEFORE_NAMES = {"FROM", "JOIN", "TABLE", "AS", "INTO", "SELECT", "DISTINCT", "ALL", ",", ".", "("}
_NO_WORDS = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER)


def split_emit(tokens: Sequence[Token], text: Text) -> tuple[Sequence[Token], OutputMode | None]:
    """Split the EMIT off a statement; return the rest and the output mode, or None without EMIT.

    Raises:
        SqlError: The EMIT has a wrong place or an unknown mode.
    """
    place = _first(tokens)
    if place is None:
        return tokens, None
    asked = [token.text.upper() for token in tokens[place + 1 :]]
    start = tokens[place].start
    if len(asked) == 1 and asked[0] in MODES:
        return tokens[:place], MODES[asked[0]]
    if asked[0] in MODES:
        raise text.error(f"syntax: unexpected text after EMIT {asked[0]}", "syntax", start, _WITHIN)
    if asked[:3] == _WINDOW_CLOSE:
        raise text.not_supported("EMIT ON WINDOW CLOSE is", start, _HINT)
    raise text.error(f"syntax: EMIT {asked[0]}", "syntax", start, _HINT)


def refuse_emitted(tokens: Sequence[Token], text: Text) -> None:
    """Reject EMIT in the query of a view.

    Raises:
        SqlError: The query has EMIT.
    """
    if (place := _first(tokens)) is not None:
        raise text.not_supported("EMIT in a view is", tokens[place].start, _WITHIN)


def _first(tokens: Sequence[Token]) -> int | None:
    """Return the position of EMIT, where it is neither an alias nor a table or column name."""
    for place, token in enumerate(tokens):
        if token.text.upper() != "EMIT" or token.token_type in _NO_WORDS or place == 0:
            continue
        before, behind = tokens[place - 1], [other.text.upper() for other in tokens[place + 1 : place + 4]]
        if before.text.upper() in _BEFORE_NAMES and before.token_type not in _NO_WORDS:
            continue
        is_last = len(behind) == 1 and tokens[-1].token_type is TokenType.VAR
        if is_last or behind == _WINDOW_CLOSE or (behind and behind[0] in MODES):
            return place
    return None


# INSERT INTO: the target, and the query's columns fitted to it by position.

_DEPTHS = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def insert_target(cursor: TokenCursor, catalog: Catalog) -> tuple[Sink, tuple[str, ...] | None]:
    """Read ``INTO [TABLE] name [(columns)]``, which follows INSERT."""
    if cursor.looks_at("OVERWRITE"):
        raise cursor.text.not_supported(
            "INSERT OVERWRITE is", cursor.offset, "use INSERT INTO: a stream only appends rows"
        )
    cursor.expect("INTO")
    cursor.accept("TABLE")
    start = cursor.offset
    sink = catalog.sink(cursor.take_dotted_name("a sink"), start, cursor.text)
    if not sink.traits.sinks:
        what = f"{sink.connector}{' table' if sink.traits.snapshot else ''}"
        raise cursor.text.error(
            f'"{sink.name}" is a {what}, which cannot be written to', "unknown-sink", start
        )
    return sink, _parse_column_list(cursor, sink)


def names_before_insert(cursor: TokenCursor) -> Sequence[Token]:
    """Take ``WITH name AS (…), …`` where INSERT follows it, and nothing else."""
    if not cursor.looks_at("WITH"):
        return ()
    depth = 0
    for place, token in enumerate(cursor.tokens):
        depth += _DEPTHS.get(token.token_type, 0)
        closed = place > 0 and cursor.tokens[place - 1].token_type is TokenType.R_PAREN
        if depth == 0 and closed and token.token_type is TokenType.INSERT:
            names = cursor.tokens[cursor.index : place]
            cursor.index = place
            return names
    return ()


def prepend_ctes(names: Sequence[Token], query: Sequence[Token]) -> Sequence[Token]:
    """Add these names to the WITH of the query."""
    if names and query and query[0].token_type is TokenType.WITH:
        first = query[0]
        comma = Token(TokenType.COMMA, ",", first.line, first.col, first.start, first.end)
        return [*names, comma, *query[1:]]
    return [*names, *query]


def _parse_column_list(cursor: TokenCursor, sink: Sink) -> tuple[str, ...] | None:
    """Read the column list, spelled as the sink declares its columns; None: there is none."""
    ahead = cursor.peek(1)
    if not cursor.looks_at("(") or (ahead is not None and ahead.text.upper() in ("SELECT", "WITH")):
        return None
    cursor.accept("(")
    names: list[str] = []
    while True:
        start = cursor.offset
        name = cursor.name("a column")
        if sink.columns is not None:
            columns = {column.name.lower(): column.name for column in sink.columns}
            if name.lower() not in columns:
                hint = near_names(name, columns.values())
                message = f'sink "{sink.name}" has no column "{name}"'
                raise cursor.text.error(message, "unknown-column", start, hint)
            name = columns[name.lower()]
        if name.lower() in (written.lower() for written in names):
            raise cursor.text.error(f'column "{name}" is listed twice', "duplicate-column", start)
        names.append(name)
        if not cursor.accept(","):
            break
    cursor.expect(")", ", or )")
    return tuple(names)


def free_name(wanted: str, taken: Sequence[str]) -> str:
    """Return the first free name of ``delivered``, ``delivered-2``, …

    Names are stable as long as the INSERTs into one sink keep their order.
    """
    lowered = {name.lower() for name in taken}
    name, number = wanted, 1
    while name.lower() in lowered:
        number += 1
        name = f"{wanted}-{number}"
    return name


def insert_of(
    name: str, sink: Sink, parsed: tuple[Query, tuple[str, ...] | None, int | None], text: Text
) -> Insert:
    """Build the INSERT with its outputs named, ordered and typed as the sink declares them.

    Raises:
        SqlError: The outputs do not fit the sink.
    """
    query, listed, start = parsed
    outputs = query.outputs
    wanted = listed or (tuple(column.name for column in sink.columns) if sink.columns else None)
    if wanted is not None:
        if len(wanted) != len(outputs):
            raise text.error(
                f'"{sink.name}" has {len(wanted)} columns ({", ".join(wanted)}), but the SELECT gives'
                f" {len(outputs)} ({', '.join(output.name for output in outputs)})",
                "column-count",
                start,
                "select as many columns as the sink has; columns match by position",
            )
        outputs = tuple(
            replace(output, name=wanted_name) for output, wanted_name in zip(outputs, wanted, strict=True)
        )
    if sink.columns is not None:
        outputs = tuple(_coerce_output(column, outputs, query) for column in sink.columns)
    if sink.needs_unique_names:
        _check_unique(outputs, sink, text, start)
    return Insert(name, sink, replace(query, outputs=outputs))


def _coerce_output(column: Column, outputs: Sequence[OutputColumn], query: Query) -> OutputColumn:
    """Return the output for a column of a sink.

    Cast it to the column's type if the types differ; return NULL if the query selects no such column.
    """
    output = next((candidate for candidate in outputs if candidate.name == column.name), None)
    if output is None:
        null = null_of(column.type)
        return OutputColumn(column.name, null, "not given")
    if type_of(output.expr, lambda node: _column_type(node, query)) == column.type:
        return output
    return replace(output, expr=exp.cast(output.expr.copy(), str(column.type), dialect="spark"))


def _column_type(node: exp.Column, query: Query) -> SqlType:
    if query.aggregation is not None:
        return next(
            (
                group_column.type
                for group_column in query.aggregation.columns
                if group_column.name == node.name
            ),
            UNKNOWN,
        )
    relation = next((source_input for source_input in query.inputs if source_input.alias == node.table), None)
    column = relation.column(node.name) if relation else None
    return column.type if column else UNKNOWN


def _check_unique(outputs: Sequence[OutputColumn], sink: Sink, text: Text, start: int | None) -> None:
    named: dict[str, list[OutputColumn]] = {}
    for output in outputs:
        named.setdefault(output.name.lower(), []).append(output)
    alike = [
        f'"{own[-1].name}" ({" and ".join(output.origin for output in own)})'
        for own in named.values()
        if len(own) > 1
    ]
    if alike:
        raise text.error(
            f'two columns of the result are named {", two ".join(alike)}, but "{sink.name}" needs'
            " unique names",
            "duplicate-column",
            start,
            "give one of them another name with AS",
        )
