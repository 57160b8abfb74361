"""Define the SQL dialect: Spark's, with IMPOSE_ORDER, windows, ASOF joins and double-quoted names.

Parsed trees are plain Spark trees except for `ImposeOrder` and `WindowTable`, which never leave ``front``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokens import TokenType

from watersmeet.spec.grammar import GrammarParser, MisreadError, SparkGrammar
from watersmeet.types.intervals import IntervalError, read_interval, unit_name

_CODE = "bad-duration"
_OFFSET = (
    "use a shifted time: CREATE VIEW shifted AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE(SELECT *, ts -"
    " INTERVAL '5' MINUTES AS shifted_ts FROM name), DESCRIPTOR(shifted_ts), INTERVAL '10' SECONDS));"
    " then TUMBLE(TABLE shifted, DESCRIPTOR(shifted_ts), …), and window_start + INTERVAL '5' MINUTES AS"
    " start"
)


class ImposeOrder(exp.Expression, exp.Func):
    """``IMPOSE_ORDER(TABLE relation, DESCRIPTOR(column), lag)``.

    Args:
        this: a table, a SELECT, or another IMPOSE_ORDER.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "column": True, "lag": True}


class WindowTable(exp.Expression, exp.Func):
    """Window function over a table: ``TUMBLE(TABLE relation, DESCRIPTOR(column), size)``, HOP, SESSION.

    Args:
        function: name of the function.
        sizes: one interval or integer; two for HOP.
        partition: columns of PARTITION BY (SESSION only).
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "column": True,
        "function": True,
        "sizes": True,
        "partition": False,
    }


def event_time_hint(path: str) -> str:
    """Return a hint for declaring a field of a STRUCT as an event time."""
    name = path.rsplit(".", 1)[-1]
    return (
        f"make it a column in a view: CREATE VIEW ordered AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE(SELECT *,"
        f" {path} AS {name} FROM name), DESCRIPTOR({name}), INTERVAL '10' SECONDS))"
    )


def _parse_impose_order(parser: Any) -> ImposeOrder:
    order: ImposeOrder = parser.parse_impose_order()
    return order


def _parse_listagg(parser: Any) -> exp.Expression:
    """Parse LISTAGG with an empty default delimiter, as in Spark; sqlglot would write a comma."""
    tree: exp.Expression = parser._parse_string_agg()
    call = tree if isinstance(tree, exp.GroupConcat) else tree.find(exp.GroupConcat)
    if call is not None and call.args.get("separator") is None:
        call.set("separator", exp.Literal.string(""))
    return tree


def _window_parser(name: str) -> Callable[[Any], WindowTable]:
    return lambda parser: parser.parse_window_table(name)


def _is_number(text: str) -> bool:
    return text.strip(" +-").replace(".", "", 1).isdigit()


def _keep_call(name: str) -> Callable[[list[Any]], exp.Expression]:
    """Return a builder that keeps a call with a pattern as written.

    sqlglot would leave some patterns out.
    """

    def build(arguments: list[Any]) -> exp.Expression:
        if len(arguments) == 1 and name == "TO_DATE":
            return exp.TsOrDsToDate(this=arguments[0])
        return exp.Anonymous(this=name, expressions=arguments)

    return build


def _parse_if(name: str, if_: Callable[[list[Any]], bool]) -> Callable[[list[Any]], exp.Expression]:
    """Return a builder that uses sqlglot's function if ``if_`` accepts the arguments.

    Otherwise it builds a call by name.
    """

    plain = GrammarParser.FUNCTIONS[name]

    def build(arguments: list[Any]) -> exp.Expression:
        if if_(arguments):
            try:
                node: exp.Expression = plain(arguments)
            except TypeError:  # it asks for the dialect, as sqlglot's parser finds out, too
                node = plain(arguments, dialect=Watersmeet())
            return node
        return exp.Anonymous(this=name, expressions=arguments)

    return build


def _has_no_percent(arguments: list[Any]) -> bool:
    return not any(_is_text(argument) and "%" in argument.this for argument in arguments)


def _is_small(argument: Any) -> bool:
    number = argument.this if isinstance(argument, exp.Neg) else argument
    return isinstance(number, exp.Literal) and str(number.this).isdigit() and int(number.this) < 2**31


def _is_text(argument: Any) -> bool:
    return isinstance(argument, exp.Literal) and bool(argument.is_string)


def _concat(arguments: list[Any]) -> exp.Expression:
    """Build a CONCAT; without arguments it is an empty text."""
    if not arguments:
        return exp.Literal.string("")
    node: exp.Expression = GrammarParser.FUNCTIONS["CONCAT"](arguments, dialect=Watersmeet())
    return node


class WatersmeetParser(GrammarParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **GrammarParser.FUNCTIONS,
        "CONCAT": _concat,
        **{name: _keep_call(name) for name in ("TO_DATE", "TO_CHAR", "TO_VARCHAR")},
        # sqlglot would leave these out, or write another function whose type or last digit is another
        **{name: _keep_call(name) for name in ("PARSE_JSON", "LOG10", "LOG2", "TRUNCATE", "UNIX_DATE")},
        # signs of other systems' patterns would become those of Spark's
        **{
            name: _parse_if(name, _has_no_percent)
            for name in (
                "DATE_FORMAT",
                "FROM_UNIXTIME",
                "TO_TIMESTAMP",
                "UNIX_TIMESTAMP",
                "TO_UNIX_TIMESTAMP",
            )
        },
        # sqlglot would take an approximation for what is exact
        **{name: _keep_call(name) for name in ("PERCENTILE_CONT", "PERCENTILE_DISC")},
        # a third argument would be left out
        **{
            name: _parse_if(name, lambda arguments: len(arguments) == 2)
            for name in ("LEVENSHTEIN", "MAX_BY", "MIN_BY")
        },
        # written as a DATE_ADD of the days times -1, which not all numbers of days have
        "DATE_SUB": _parse_if("DATE_SUB", lambda arguments: all(map(_is_small, arguments[1:]))),
        # a unit in a column would become the unit of that name
        "DATE_TRUNC": _parse_if("DATE_TRUNC", lambda arguments: _is_text(arguments[0])),
        "TRUNC": _parse_if("TRUNC", lambda arguments: len(arguments) == 2 and _is_text(arguments[1])),
    }
    # Spark's TIME would become a TIMESTAMP, and what it has not would become another type.
    TYPE_TOKENS: ClassVar[set[TokenType]] = {
        *GrammarParser.TYPE_TOKENS
        - {TokenType.TIME, TokenType.TIMETZ, TokenType.JSON, TokenType.JSONB, TokenType.UUID}
    }
    FUNC_TOKENS: ClassVar[set[TokenType]] = {*GrammarParser.FUNC_TOKENS, TokenType.SESSION}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        # these would leave out a third argument: how often each value counts, how many are wanted
        **{
            name: parse
            for name, parse in GrammarParser.FUNCTION_PARSERS.items()
            if name not in ("PERCENTILE", "MAX_BY", "MIN_BY")
        },
        "IMPOSE_ORDER": _parse_impose_order,
        **dict.fromkeys(("LISTAGG", "STRING_AGG"), _parse_listagg),
        **{name: _window_parser(name) for name in ("TUMBLE", "HOP", "SESSION")},
    }
    # A name like any other, but not an alias without AS.
    ID_VAR_TOKENS: ClassVar[set[TokenType]] = {*GrammarParser.ID_VAR_TOKENS, TokenType.MATCH_CONDITION}
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = GrammarParser.TABLE_ALIAS_TOKENS - {
        TokenType.MATCH_CONDITION
    }

    def _parse_hint(self) -> exp.Hint | None:
        """Parse ``/*+ … */`` into its text and its start offset.

        `parser.query.hints` reads the text.
        """
        if not self._match(TokenType.HINT):
            return None
        token = self._prev
        hint = exp.Hint(expressions=[exp.Var(this=token.text[3:-2].strip())])
        hint.meta["start"] = token.start
        return hint

    def _parse_descriptor(self) -> Any:
        start = self._curr.start if self._curr else 0
        column = self._parse_id_var()
        names = [] if column is None else [column.name]
        while names and self._match(TokenType.DOT):
            field = self._parse_id_var(any_token=True)
            names.append("" if field is None else field.name)
        if len(names) > 1:
            path = ".".join(names)
            message = f"DESCRIPTOR({path}): it is a field of a STRUCT, but an event time must be a column"
            raise MisreadError(message, event_time_hint(path), start, "not-supported")
        return column

    def parse_impose_order(self) -> ImposeOrder:
        """Parse the arguments of IMPOSE_ORDER between its parentheses."""
        self._match_text_seq("INPUT", "=>")
        relation = self._parse_ordered_relation()
        if not self._match(TokenType.COMMA) or not self._match_text_seq("DESCRIPTOR"):
            self.raise_error("Expecting a comma and DESCRIPTOR(column)")
        column = self._parse_wrapped(self._parse_descriptor)
        lag = self._parse_disjunction() if self._match(TokenType.COMMA) else None
        if lag is None:
            self.raise_error("Expecting a comma and the lag, an INTERVAL or an integer")
        return ImposeOrder(this=relation, column=column, lag=lag)

    def parse_window_table(self, name: str) -> WindowTable:
        """Parse the arguments of TUMBLE, HOP or SESSION between its parentheses.

        Arguments may have Flink's names.
        """
        self._match_text_seq("DATA", "=>")
        relation = self._parse_ordered_relation()
        partition: list[Any] = []
        if self._match(TokenType.PARTITION_BY):
            wrapped = self._match(TokenType.L_PAREN)
            partition.append(self._parse_column())
            while not self._is_descriptor_next() and self._match(TokenType.COMMA):
                partition.append(self._parse_column())
            if wrapped:
                self._match_r_paren()
        if not self._match(TokenType.COMMA):
            self.raise_error(f"Expecting {name}(TABLE name, DESCRIPTOR(column), size)")
        self._match_text_seq("TIMECOL", "=>")
        if not self._match_text_seq("DESCRIPTOR"):
            self.raise_error(f"Expecting {name}(TABLE name, DESCRIPTOR(column), size)")
        column = self._parse_wrapped(self._parse_descriptor)
        sizes: list[Any] = []
        while self._match(TokenType.COMMA):
            for word in ("SIZE", "SLIDE", "GAP"):
                self._match_text_seq(word, "=>")
            sizes.append(self._parse_disjunction())
        count = 2 if name == "HOP" else 1
        if len(sizes) == count + 1 and None not in sizes and name != "SESSION":
            place = self._prev.start
            raise MisreadError(f"the offset of {name} is not supported here", _OFFSET, place, "not-supported")
        if len(sizes) != count or None in sizes:
            wanted = "size and slide" if name == "HOP" else "gap" if name == "SESSION" else "size"
            self.raise_error(f"Expecting only the {wanted} of {name}, as INTERVAL or integer")
        return WindowTable(this=relation, column=column, function=name, sizes=sizes, partition=partition)

    def _is_descriptor_next(self) -> bool:
        """Return True if ``, DESCRIPTOR`` follows, or its named form."""
        following = self._next
        return following is not None and following.text.upper() in ("DESCRIPTOR", "TIMECOL")

    def _parse_ordered_relation(self) -> exp.Expression:
        """Parse the relation argument of a table function.

        Forms: ``TABLE s``, ``TABLE(s)``, ``TABLE(IMPOSE_ORDER(…))``, ``TABLE(SELECT …)``, ``(SELECT …)``.
        """
        self._match(TokenType.TABLE)
        wrapped = self._match(TokenType.L_PAREN)
        relation: Any = self._parse_select() if wrapped else None
        relation = relation or self._parse_table()
        if wrapped:
            self._match_r_paren()
        if relation is None:
            self.raise_error("Expecting TABLE name")
        tree: exp.Expression = relation
        return tree

    def _parse_join_parts(self) -> Any:
        """Parse ``LEFT ASOF JOIN`` as ``ASOF LEFT JOIN``."""
        method, side, kind = super()._parse_join_parts()
        if method is None and (side or kind) and self._match(TokenType.ASOF):
            method = self._prev
        return method, side, kind

    def _parse_wrapped(self, parse_method: Callable[[], Any], optional: bool = False) -> Any:
        """Parse an expression in parentheses; allow several comparisons in MATCH_CONDITION.

        The additional comparisons state the tolerance.
        """
        if self._prev and self._prev.token_type is TokenType.MATCH_CONDITION:
            parse_method = self._parse_disjunction
        return super()._parse_wrapped(parse_method, optional)

    def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
        """Parse ``INTERVAL`` and a value as a literal, which `types.intervals` reads.

        Without a value, INTERVAL may be a name.
        """
        token = self._curr
        if token is None or token.token_type is not TokenType.INTERVAL or self._value_at(1) is None:
            index, following = self._index, self._token_at(1)
            span = super()._parse_interval(*args, **kwargs)
            if following is not None and following.token_type in (TokenType.PLUS, TokenType.DASH):
                self._retreat(index)  # a name, and a sum of it
                return None
            if span is not None and token is not None:
                raise MisreadError(
                    "an INTERVAL must be a constant",
                    "multiply instead: x * INTERVAL '1' SECOND",
                    token.start,
                    _CODE,
                )
            return None
        self._advance()
        values: list[tuple[str, str | None]] = []
        last: str | None = None
        while last is None and (value := self._value_at(0)) is not None:
            text, length, is_text = value
            unit = self._word_at(length)
            if unit is None or (unit_name(unit) is None and (values or not _is_number(text))):
                if values:
                    break
                unit = None
            if unit is None and not is_text:
                raise MisreadError(
                    "an INTERVAL needs a unit", "for example INTERVAL 10 SECONDS", token.start, _CODE
                )
            values.append((text, unit))
            self._advance(length + (unit is not None))
            if unit is None:
                break
            if len(values) == 1 and self._match_text_seq("TO"):
                last = self._word_at(0) or ""
                self._advance()
        try:
            interval = read_interval(values, last)
        except IntervalError as error:
            raise MisreadError(f"INTERVAL: {error}", error.hint, token.start, _CODE) from None
        interval.meta["start"] = token.start
        return interval

    def _value_at(self, ahead: int) -> tuple[str, int, bool] | None:
        """Read the number or text, with its sign, that starts ``ahead`` tokens ahead.

        Return its text, its number of tokens, and True if it is a text; None if there is no such value. A
        number after a sign needs a unit, because ``interval - 5`` may be a difference.
        """
        sign = ""
        length = 1
        token = self._token_at(ahead)
        if token is not None and token.token_type in (TokenType.PLUS, TokenType.DASH):
            sign = "-" if token.token_type is TokenType.DASH else ""
            token, length = self._token_at(ahead + 1), 2
        if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
            return None
        is_text = token.token_type is TokenType.STRING
        if length == 2 and unit_name(self._word_at(ahead + 2) or "") is None:
            return None
        if not sign:
            return token.text, length, is_text
        text = token.text.strip()
        return (text[1:] if text.startswith("-") else sign + text), length, is_text

    def _word_at(self, ahead: int) -> str | None:
        token = self._token_at(ahead)
        quoted = token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return None if token is None or quoted or not token.text.isalpha() else token.text

    def _token_at(self, ahead: int) -> Any:
        place = self._index + ahead
        return self._tokens[place] if place < len(self._tokens) else None


class Watersmeet(SparkGrammar):
    # Patterns of times stay as they are written: in sqlglot's own `y` would be `yyyy`, and one that is usual
    # would be left out, though it reads other texts than none.
    TIME_MAPPING: dict[str, str] = {}  # noqa: RUF012

    class Tokenizer(SparkGrammar.Tokenizer):
        QUOTES: ClassVar[list[Any]] = ["'"]
        IDENTIFIERS: ClassVar[list[Any]] = ["`", '"']
        # As in Spark 4: a doubled quote is one quote.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'"]
        RAW_STRINGS: ClassVar[list[Any]] = [("r'", "'"), ("R'", "'")]
        # No statement swallows the rest of its text: EXPLAIN and the like are read here, token by token.
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **SparkGrammar.Tokenizer.KEYWORDS,
            "MATCH_CONDITION": TokenType.MATCH_CONDITION,
        }

    Parser = WatersmeetParser
