"""Infer the types of expressions, calls and lambdas as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from watersmeet.errors import SqlError
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import TokenCursor, statements_of
from watersmeet.spec.aggregates import aggregate_name
from watersmeet.spec.functions import signature_of
from watersmeet.spec.literals import NumberError, read_number
from watersmeet.spec.model import Expr
from watersmeet.types.coercion import (
    Argument,
    combine_nested,
    common_of,
    common_type,
    computed_type,
    holds,
)
from watersmeet.types.intervals import interval_type
from watersmeet.types.parser import parse_type
from watersmeet.types.results import RULES
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UNKNOWN,
    VOID,
    Field,
    SqlType,
    array,
    map_of,
    struct,
)

# Types of columns in a job's text and in case files, read by the grammar of `types.parser`.


def type_named(written: str) -> SqlType:
    """Parse a type from a text.

    Raises:
        SqlError: A column cannot be declared with this type.

    >>> type_named("varchar(10)"), type_named("map<string, array<long>>")
    (SqlType('STRING'), SqlType('MAP<STRING, ARRAY<BIGINT>>'))
    """
    text = Text(written)
    statements = statements_of(text)
    if len(statements) != 1:
        raise SqlError(f'"{written}" is not a column type', code="unknown-type")
    cursor = TokenCursor(text, statements[0])
    type_ = parse_type(cursor)
    cursor.end()
    return type_


# Calls of functions as Spark gets them: their names and their arguments.

Call = tuple[str, int | None, Sequence[Expr] | None]


def call_as_written(node: exp.Func) -> Call | None:
    """Return a function's name in Spark, the number of its arguments, and the arguments.

    The number or the arguments are None if they are not certain. Return None if the node is not a
    plain call.
    """
    if isinstance(node.parent, exp.Dot) and node.arg_key == "expression":
        return None
    if isinstance(node, exp.Anonymous):
        return node.name, len(node.expressions), node.expressions
    if isinstance(node, exp.Overlay):  # it is written with words between
        parts = [node.args.get(key) for key in ("this", "expression", "from_", "for_")]
        given = [part for part in parts if part is not None]
        return "overlay", len(given), given
    text = node.sql(dialect="spark", unsupported_level=ErrorLevel.IGNORE)
    try:
        tokens = list(Watersmeet().tokenize(text))
    except SqlglotError:
        return None
    if len(tokens) < 3 or tokens[1].token_type is not TokenType.L_PAREN or not tokens[0].text.isidentifier():
        return None
    if tokens[0].token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return None
    commas = _commas(tokens[1:])
    if commas is None:
        return tokens[0].text.lower(), None, None
    if len(tokens) == 3:
        return tokens[0].text.lower(), 0, ()
    ends = [*(comma.start for comma in commas), tokens[-1].start]
    starts = [tokens[1].end + 1, *(comma.end + 1 for comma in commas)]
    below: list[Any] = list(node.iter_expressions())
    below += [child.this for child in below if isinstance(child, exp.TsOrDsToDate)]  # which nobody wrote
    children = {child.sql("spark"): child for child in below}
    arguments = [children.get(text[start:end].strip()) for start, end in zip(starts, ends, strict=True)]
    plain = [argument for argument in arguments if argument is not None]
    return tokens[0].text.lower(), len(arguments), plain if len(plain) == len(arguments) else None


def _commas(tokens: list[Token]) -> list[Token] | None:
    """Return the commas between the arguments, given the tokens from the parenthesis on.

    Return None if text follows the call, or if its arguments have a grammar of keywords.
    """
    depth, commas = 0, []
    for number, token in enumerate(tokens):
        kind = token.token_type
        depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if depth == 1 and kind is TokenType.COMMA:
            commas.append(token)
        if depth == 1 and kind in (TokenType.FROM, TokenType.IN, TokenType.ALIAS, TokenType.ORDER_BY):
            return None
        if depth == 0 and number < len(tokens) - 1:
            return None
    return commas


# Types of the parameters of lambdas, by the ARRAYs and MAPs that they are given to.

Kind = Callable[[exp.Expr], SqlType]

_NAMES: dict[type[exp.Expr], str] = {
    exp.Transform: "transform",
    exp.ArrayFilter: "filter",
    exp.Exists: "exists",
    exp.ArraySort: "array_sort",
    exp.Reduce: "aggregate",
}
_NO_VARIABLES = (exp.Column, exp.ColumnDef, exp.Alias, exp.PropertyEQ)


def variable_type(node: exp.Identifier, kind: Kind) -> SqlType:
    """Return the type of a lambda parameter, of the nearest lambda with that name.

    Return UNKNOWN if the identifier is not a lambda parameter.
    """
    parent = node.parent
    if isinstance(parent, _NO_VARIABLES) or (isinstance(parent, exp.Dot) and node.arg_key == "expression"):
        return UNKNOWN
    below: exp.Expr = node
    above = node.parent
    while above is not None:
        if isinstance(above, exp.Lambda) and below.arg_key == "this":
            names = [parameter.name.lower() for parameter in above.expressions]
            if node.name.lower() in names:
                types = _types(above, kind)
                place = names.index(node.name.lower())
                return types[place] if place < len(types) else UNKNOWN
        below, above = above, above.parent
    return UNKNOWN


def _types(node: exp.Lambda, kind: Kind) -> Sequence[SqlType]:
    call = node.parent
    if isinstance(call, exp.Reduce):
        start = kind(call.args["initial"])
        return [start, kind(call.this).element or UNKNOWN] if node.arg_key == "merge" else [start]
    name = _name(call)
    if name == "zip_with" and call is not None:
        return [kind(argument).element or UNKNOWN for argument in call.expressions[:2]]
    if name == "map_zip_with" and call is not None:
        entries = [kind(argument).entry for argument in call.expressions[:2]]
        if None in entries:
            return []
        (key, one), (other_key, other) = (entry or (UNKNOWN, UNKNOWN) for entry in entries)
        return [common_type(key, other_key) or UNKNOWN, one, other]
    first = None if call is None else call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
    if first is None:
        return []
    base = kind(first)
    if name in ("transform", "filter", "exists", "forall"):
        return [base.element or UNKNOWN, INT]
    if name == "array_sort":
        return [base.element or UNKNOWN] * 2
    return base.entry or [] if name in ("map_filter", "transform_keys", "transform_values") else []


def _name(call: exp.Expr | None) -> str | None:
    return call.name.lower() if isinstance(call, exp.Anonymous) else _NAMES.get(type(call)) if call else None


# Types of expressions, as Spark gives them: operators by the rules of `watersmeet.types`, functions by
# the table of Spark's (`spec.functions`).

_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV",
}  # fmt: skip
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)
_BY_RULE: dict[type[exp.Expr], str] = {
    exp.DPipe: "concatenated", exp.BitwiseLeftShift: "shifted", exp.BitwiseRightShift: "shifted",
    exp.BitwiseNot: "integer", exp.Neg: "number",
}  # fmt: skip
_CHAINED = (*_ARITHMETIC, *_BITS, exp.DPipe)
"""Operators of which people write long rows."""
_WRAPPERS = (
    exp.Paren, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Window, exp.Order, exp.Ordered, exp.Lambda,
)  # fmt: skip
"""What has the type of that which it is around."""
_SIZES = "bBdDfFlLsSyY"
"""Letters behind numbers that say their types."""
_CONDITIONS = (exp.Connector, exp.Predicate, exp.Not, exp.Boolean)


def type_of(expr: exp.Expr, column_type: Callable[[exp.Column], SqlType]) -> SqlType:
    """Return the Spark type of a resolved expression; `UNKNOWN` if only Spark knows it."""
    return Types(column_type).of(expr)


class Types:
    """The types of the parts of resolved expressions, each found once."""

    def __init__(self, column_type: Callable[[exp.Column], SqlType]) -> None:
        self._column_type = column_type
        self._types: dict[int, tuple[exp.Expr, SqlType]] = {}  # with the part, so that its id stays its own

    def of(self, node: exp.Expr) -> SqlType:
        chain: list[exp.Expr] = []
        inner: exp.Expr = node
        while id(inner) not in self._types and isinstance(inner, (*_CHAINED, exp.Paren)):
            chain.append(inner)
            inner = inner.this
        for part in (*reversed(chain), node):
            if id(part) not in self._types:
                self._types[id(part)] = part, self._type(part)
        return self._types[id(node)][1]

    def argument(self, node: exp.Expr) -> Argument:
        plain = node.unnest()
        number = plain.this if isinstance(plain, exp.Neg) else plain
        value = None
        if isinstance(number, exp.Literal) and (number is plain or not number.is_string):
            written = number.name if number.is_string else number.name.rstrip(_SIZES)
            value = written if number is plain else f"-{written}"
        name = plain.parts[-1].name if isinstance(plain, exp.Column) else None
        if isinstance(plain, exp.Dot):
            name = plain.expression.name
        return Argument(self.of(node), value, name)

    def _type(self, node: exp.Expr) -> SqlType:
        if isinstance(node, exp.Column):
            return self._column_type(node)
        if isinstance(node, exp.Literal):
            return STRING if node.is_string else number_type(node)
        if isinstance(node, exp.Null):
            return VOID
        if isinstance(node, exp.Cast | exp.TryCast):
            return type_of_data_type(node.to)
        if isinstance(node, _WRAPPERS):
            return self.of(node.this)
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number_type(node.this)
        operator = _ARITHMETIC.get(type(node))
        if operator is not None:
            return self._infer_operator_type(operator, node)
        rule = _BY_RULE.get(type(node))
        if rule is not None:
            return self._apply_rule(rule, list(node.iter_expressions()))
        if isinstance(node, _BITS):
            common = common_of([self.of(node.this), self.of(node.expression)]) or UNKNOWN
            return INT if common == VOID else common
        if isinstance(node, exp.Case | exp.If):
            return self._chosen(node)
        if isinstance(node, exp.Dot | exp.Bracket):
            return _type_within(node, self.of(node.this))
        return self._special_type(node)

    def _special_type(self, node: exp.Expr) -> SqlType:
        if isinstance(node, exp.Identifier):
            return variable_type(node, self.of)
        if isinstance(node, exp.Interval):
            return _interval(node)
        if isinstance(node, exp.Distinct) and node.expressions:
            return self.of(node.expressions[0])
        if isinstance(node, exp.Struct | exp.Tuple):
            return self._struct(node.expressions)
        if isinstance(node, exp.Extract):
            unit = Argument(STRING, node.name)
            return RULES["part of a time"]([unit, self.argument(node.expression)]) or UNKNOWN
        if isinstance(node, exp.AtTimeZone | exp.FromTimeZone):
            return TIMESTAMP
        if isinstance(node, exp.VarMap):
            return self._map(node)
        if isinstance(node, exp.WithinGroup):
            return self._infer_within_group_type(node)
        if isinstance(node, exp.Collate):
            name = node.expression.name.upper()
            return STRING if name == "UTF8_BINARY" else SqlType(f"STRING COLLATE {name}")
        if isinstance(node, _CONDITIONS) and not isinstance(node, exp.Query):
            return BOOLEAN
        return self._call_type(node) if isinstance(node, exp.Func) else UNKNOWN

    def _infer_operator_type(self, operator: str, node: exp.Expr) -> SqlType:
        sides = self.argument(node.this), self.argument(node.expression)
        return computed_type(operator, *sides) or UNKNOWN

    def _apply_rule(self, rule: str, nodes: Sequence[exp.Expr]) -> SqlType:
        arguments = [self.argument(node) for node in nodes]
        if any(argument.type.is_unknown for argument in arguments):
            return UNKNOWN
        return RULES[rule](arguments) or UNKNOWN

    def _chosen(self, node: exp.Expr) -> SqlType:
        branches = [branch.args["true"] for branch in node.args.get("ifs") or ()]
        branches += [node.args[key] for key in ("true", "false", "default") if node.args.get(key) is not None]
        return common_of(map(self.of, branches)) or UNKNOWN

    def _struct(self, nodes: Sequence[exp.Expr]) -> SqlType:
        fields = []
        for place, node in enumerate(nodes, 1):
            value = node.expression if isinstance(node, exp.PropertyEQ) else node
            name = node.name if isinstance(node, exp.PropertyEQ) else self.argument(value).name
            fields.append(Field(name or f"col{place}", self.of(value)))
        return UNKNOWN if any(field.type.is_unknown for field in fields) else struct(fields)

    def _map(self, node: exp.VarMap) -> SqlType:
        key, value = (common_of(map(self.of, node.args[part].expressions)) for part in ("keys", "values"))
        return UNKNOWN if key is None or value is None else map_of(key, value)

    def _infer_within_group_type(self, node: exp.WithinGroup) -> SqlType:
        """Return the type of ``function(…) WITHIN GROUP (ORDER BY value)``.

        It is the function's result type for ``value``.
        """
        order = node.expression
        own = [self.argument(part) for part in node.this.iter_expressions()]
        value = self.argument(order.expressions[0].this if isinstance(order, exp.Order) else order)
        signature = signature_of(aggregate_name(node))
        return UNKNOWN if signature is None else signature.type_of([value, *own]) or UNKNOWN

    def _call_type(self, node: exp.Func) -> SqlType:
        if isinstance(node, exp.GroupConcat):
            return STRING if self.of(node.this) != BINARY else BINARY
        called = call_as_written(node)
        if called is None:
            return UNKNOWN
        name, count, given = called
        if count == 3 and name in ("date_add", "dateadd", "timestampadd"):
            moved = self.of(node.this)
            return moved if moved == TIMESTAMP_NTZ else TIMESTAMP
        if count == 3 and name in ("datediff", "date_diff", "timestampdiff"):
            return BIGINT
        signature = signature_of(name)
        if signature is None:
            return UNKNOWN
        arguments = None if given is None else [self.argument(argument) for argument in given]
        return signature.type_of(arguments) or UNKNOWN


def _type_within(node: exp.Expr, base: SqlType) -> SqlType:
    """Return the type of ``x[…]`` or ``x.field``, where ``x`` has the type ``base``."""
    if isinstance(node, exp.Dot):
        name = node.expression
        return (field_type(base, name.name) if isinstance(name, exp.Identifier) else None) or UNKNOWN
    place = node.expressions[0] if len(node.expressions) == 1 else None
    if base.entry is not None:
        return base.entry[1]
    if base.is_struct:
        text = isinstance(place, exp.Literal) and place.is_string
        return (field_type(base, place.name) if place is not None and text else None) or UNKNOWN
    return base.element or UNKNOWN


def _interval(node: exp.Interval) -> SqlType:
    try:
        return interval_type(node)
    except ValueError:  # of a unit that Spark reads
        return UNKNOWN


def null_of(kind: SqlType) -> exp.Cast:
    """Return a NULL of that type."""
    return _null_of(kind).copy()


@cache
def _null_of(kind: SqlType) -> exp.Cast:
    return exp.cast(exp.Null(), str(kind), dialect="spark")


def number_type(literal: exp.Expr) -> SqlType:
    """Return the type of a number literal, with its sign if it has one; `UNKNOWN` otherwise."""
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return UNKNOWN
    try:
        return read_number(literal.name, negative=isinstance(literal.parent, exp.Neg)).type
    except NumberError:
        return UNKNOWN


def type_of_data_type(kind: exp.Expr) -> SqlType:
    if isinstance(kind, exp.DataType) and [name for name, value in kind.args.items() if value] == ["this"]:
        return _plain_type(kind.this)
    return _written_type(kind.sql("spark"))


@cache
def _plain_type(name: exp.DType) -> SqlType:
    """Return the type that consists only of its name."""
    return _written_type(exp.DataType(this=name).sql("spark"))


def _written_type(text: str) -> SqlType:
    try:
        return type_named(text)
    except (SqlError, SqlglotError):
        return UNKNOWN


def union_type(a: SqlType, b: SqlType) -> SqlType | None:
    """Return the common type of two types in a UNION ALL, as in Spark.

    Return None if the user has to cast them: a text has no common type with another type, no DECIMAL
    loses digits, and of the time types only DATE is converted, to TIMESTAMP.

    >>> from watersmeet.types.sql_type import DOUBLE, FLOAT, INT, decimal
    >>> union_type(INT, BIGINT), union_type(INT, FLOAT), union_type(DOUBLE, decimal(8, 2))
    (SqlType('BIGINT'), SqlType('DOUBLE'), SqlType('DOUBLE'))
    """
    if a == b or b in (UNKNOWN, VOID):
        return a
    if a in (UNKNOWN, VOID):
        return b
    if a.is_nested:
        return combine_nested(a, b, union_type)
    common = common_type(a, b)
    if common is None or common.is_decimal:
        return common if common is not None and holds(common, a) and holds(common, b) else None
    numbers = a.is_number and b.is_number
    spans = a.is_interval and b.is_interval
    return common if numbers or spans or {a, b} == {DATE, TIMESTAMP} else None


def field_type(kind: SqlType, name: str) -> SqlType | None:
    """Return the type of a field of a value, or None if it has no such field.

    On an ARRAY, the field is that of its elements; on a MAP, its value.

    >>> field_type(type_named("ARRAY<STRUCT<a: INT>>"), "A"), field_type(type_named("STRUCT<a: INT>"), "b")
    (SqlType('ARRAY<INT>'), None)
    """
    if kind == UNKNOWN:
        return UNKNOWN
    if kind.element is not None:
        inner = field_type(kind.element, name) if kind.element.is_struct or kind.element.is_unknown else None
        return None if inner is None else array(inner)
    if kind.entry is not None:
        key, value = kind.entry
        return value if key == STRING else UNKNOWN
    types = [field.type for field in kind.fields if field.name.lower() == name.lower()]
    return UNKNOWN if len(types) > 1 else next(iter(types), None)
