"""Expressions in DuckDB's SQL that certainly mean the same as on Spark.

The types of what Spark computes with DECIMALs, where they hold every digit: DuckDB computes the same in
them. Types are DuckDB's names, of DECIMALs and of whole numbers.

>>> widest(["DECIMAL(9,2)", "BIGINT"]), widest(["DECIMAL(38,30)", "INTEGER"])
('DECIMAL(22,2)', None)
>>> addition_type("DECIMAL(9,2)", "INTEGER"), product_type("DECIMAL(9,2)", "INTEGER")
('DECIMAL(13,2)', 'DECIMAL(20,2)')
>>> sum_type("DECIMAL(30,2)")
'DECIMAL(38,2)'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.diff.bags import quote_identifier, text
from watersmeet.diff.dialect import Names, UnsupportedInDialect
from watersmeet.event_time import DAY_US
from watersmeet.spec.aggregates import call_of, is_aggregate
from watersmeet.spec.literals import NumberError, read_number
from watersmeet.types.coercion import common_of, holds
from watersmeet.types.intervals import interval_us, is_interval, is_of_days
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import MAX_DECIMAL_DIGITS, SqlType, decimal

_EXTRA_SUM_DIGITS = 10
"""Digits that a sum of many has more than one of them."""


def widest(kinds: Iterable[str]) -> str | None:
    """Return the type in which values of all these types are compared; None if digits are lost."""
    types = [sql_type(kind) for kind in kinds]
    common = common_of(types)
    if common is None or not common.is_decimal or not all(holds(common, type_) for type_ in types):
        return None
    return str(common)


def as_decimal(kind: str) -> str:
    """Return the DECIMAL type that represents all values of a type."""
    return str(_decimal_type(kind))


def fits(kind: str, wide: str) -> bool:
    """Return True if a DECIMAL type represents every value of a type."""
    return holds(sql_type(wide), sql_type(kind))


def addition_type(left: str, right: str) -> str | None:
    """Return the type of a sum or a difference; None if there is none."""
    one, other = _decimal_type(left), _decimal_type(right)
    scale = max(one.scale, other.scale)
    return _decimal_name(max(one.whole_digits, other.whole_digits) + scale + 1, scale)


def product_type(left: str, right: str) -> str | None:
    """Return the type of a product; None if there is none."""
    one, other = _decimal_type(left), _decimal_type(right)
    return _decimal_name(one.digits + other.digits + 1, one.scale + other.scale)


def sum_type(kind: str) -> str:
    """Return the type of the sum of many values; a job stops if a sum has more digits."""
    own = _decimal_type(kind)
    return str(decimal(min(own.digits + _EXTRA_SUM_DIGITS, MAX_DECIMAL_DIGITS), own.scale))


def _decimal_type(kind: str) -> SqlType:
    own = sql_type(kind).as_decimal
    assert own is not None
    return own


def _decimal_name(digits: int, scale: int) -> str | None:
    return None if digits > MAX_DECIMAL_DIGITS else str(decimal(digits, scale))


# Expressions in DuckDB's SQL, those alone of which it is certain that they mean there what they mean on
# Spark: columns, comparisons of values of one kind, AND, OR, NOT, sums and products of whole numbers and
# of DECIMALs that hold every digit, sums of times with lengths of time, CASE and COALESCE of one kind,
# and plain aggregates. All others are Spark's to answer.
#
# A length of time is a number of µs here. Times are without a zone, in UTC. In other zones a day may have
# other than 24 hours, and times are as far apart as clocks there say: times are compared there, and moved
# by less than a day.

_COMPARED = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_SUMS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_WHOLE = {"TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT"}
_PLAIN = {**_WHOLE, "STRING": "VARCHAR", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP"}
_SIZES = [*_WHOLE.values()]
_KINDS = {"STRING": "text", "BOOLEAN": "flag", "DATE": "date", "TIMESTAMP": "time", "DOUBLE": "real"}
_ORDERED = ("whole", "decimal", "text", "flag", "date", "time", "real", "length")
_EXACT = {"whole", "decimal"}
_SHORT = "less than a day"
"""As the type of a length of time that is written down."""
_TEXTS = {
    "DATE": re.compile(r"\d{4}-\d{2}-\d{2}"),
    "TIMESTAMP": re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"),
}


@dataclass(frozen=True)
class _Value:
    """``kind``: what it may be compared with; "null": with anything. ``type``: DuckDB's, where it counts."""

    sql: str
    kind: str
    type: str = ""


class DuckDb:
    """Translator of Spark expressions to DuckDB's SQL; see the module.

    Args:
        tables: Name of the rows of each source.
        utc: Days and hours are those of UTC.
    """

    def __init__(self, tables: Mapping[str, str], *, utc: bool = True) -> None:
        self._tables = tables
        self._utc = utc

    def table(self, source: str) -> str:
        return self._tables[source]

    def quoted(self, name: str) -> str:
        return quote_identifier(name)

    def row_id(self) -> str:
        return "row_number() OVER ()"

    def micros(self, value: str, kind: SqlType) -> str:
        if kind.name == "DATE":
            return f"(CAST({value} - DATE '1970-01-01' AS HUGEINT) * {DAY_US})"
        return f"CAST(epoch_us({value}) AS HUGEINT)" if kind.is_time else f"CAST({value} AS HUGEINT)"

    def time(self, micros: str, kind: SqlType) -> str:
        if kind.name == "DATE":
            return f"(DATE '1970-01-01' + CAST(({micros}) // {DAY_US} AS INTEGER))"
        if kind.is_time:
            return f"make_timestamp(CAST({micros} AS BIGINT))"
        return f"CAST({micros} AS {_PLAIN[kind.name]})"

    def expression(self, expr: exp.Expr, names: Names) -> str:
        value = _Compiler(names, utc=self._utc).value(expr)
        if value.kind == "length":
            raise UnsupportedInDialect(f"an interval as a value: {expr.sql('spark')}")
        return value.sql


class _Compiler:
    def __init__(self, names: Names, *, utc: bool) -> None:
        self._names = names
        self._utc = utc

    def value(self, expr: exp.Expr) -> _Value:
        """Translate an expression.

        Raises:
            UnsupportedInDialect: The translation would not certainly mean the same.
        """
        if isinstance(expr, exp.Expression) and is_interval(expr):
            us = interval_us(expr)
            if us is None:
                raise _uncommon(expr)
            return _Value(f"CAST({us} AS BIGINT)", "length", _SHORT if abs(us) < DAY_US else "")
        if is_aggregate(expr):
            return self._aggregate(expr)
        for kinds, method in self._METHODS:
            if isinstance(expr, kinds):
                return method(self, expr)
        raise _uncommon(expr)

    def _column(self, expr: exp.Column) -> _Value:
        named = self._names[expr.table, expr.name]
        kind = named.type
        if kind.is_decimal:
            return _Value(named.name, "decimal", str(kind))
        facts = _KINDS.get(kind.name) or ("whole" if kind.is_integer else f"other {kind}")
        return _Value(named.name, facts, _PLAIN.get(kind.name, ""))

    def _literal(self, expr: exp.Literal) -> _Value:
        if expr.is_string:
            return _Value(text(expr.name), "text", "VARCHAR")
        try:
            number = read_number(expr.name, negative=False)
        except NumberError:
            raise _uncommon(expr) from None
        if number.type.is_decimal and "e" not in expr.name.lower():
            kind = str(number.type)
            return _Value(f"CAST({text(expr.name.rstrip('BbDd'))} AS {kind})", "decimal", kind)
        if not number.type.is_integer:
            raise _uncommon(expr)
        kind = _WHOLE[number.type.name]
        return _Value(f"CAST({int(expr.name.rstrip('lLsSyY'))} AS {kind})", "whole", kind)

    def _boolean(self, expr: exp.Boolean) -> _Value:
        return _Value("TRUE" if expr.this else "FALSE", "flag", "BOOLEAN")

    def _null(self, _: exp.Null) -> _Value:
        return _Value("NULL", "null")

    def _paren(self, expr: exp.Paren) -> _Value:
        inner = self.value(expr.this)
        return _Value(f"({inner.sql})", inner.kind, inner.type)

    def _negative(self, expr: exp.Neg) -> _Value:
        inner = self.value(expr.this)
        if inner.kind not in _EXACT or not isinstance(expr.this, exp.Literal):
            raise _uncommon(expr)
        return _Value(f"(-{inner.sql})", inner.kind, inner.type)

    def _comparison(self, expr: exp.Binary) -> _Value:
        left, right = _align_values(expr, [self.value(part) for part in (expr.this, expr.expression)])
        return _Value(f"({left.sql} {_COMPARED[type(expr)]} {right.sql})", "flag", "BOOLEAN")

    def _between(self, expr: exp.Between) -> _Value:
        values = [self.value(part) for part in (expr.this, expr.args["low"], expr.args["high"])]
        value, low, high = (v.sql for v in _align_values(expr, values))
        return _Value(f"({value} BETWEEN {low} AND {high})", "flag", "BOOLEAN")

    def _connector(self, expr: exp.Connector) -> _Value:
        parts = [self.value(part) for part in (expr.this, expr.expression)]
        _flags(expr, parts)
        word = "AND" if isinstance(expr, exp.And) else "OR"
        return _Value(f"({parts[0].sql} {word} {parts[1].sql})", "flag", "BOOLEAN")

    def _not(self, expr: exp.Not) -> _Value:
        inner = self.value(expr.this)
        _flags(expr, [inner])
        return _Value(f"(NOT {inner.sql})", "flag", "BOOLEAN")

    def _is(self, expr: exp.Is) -> _Value:
        if not isinstance(expr.expression, (exp.Null, exp.Boolean)):
            raise _uncommon(expr)
        inner = self.value(expr.this)
        if isinstance(expr.expression, exp.Boolean):
            _flags(expr, [inner])
        return _Value(f"({inner.sql} IS {expr.expression.sql()})", "flag", "BOOLEAN")

    def _in(self, expr: exp.In) -> _Value:
        if not expr.expressions or expr.args.get("query"):
            raise _uncommon(expr)
        values = [self.value(part) for part in (expr.this, *expr.expressions)]
        first, *others = (v.sql for v in _align_values(expr, values))
        return _Value(f"({first} IN ({', '.join(others)}))", "flag", "BOOLEAN")

    def _sum(self, expr: exp.Binary) -> _Value:
        left, right = self.value(expr.this), self.value(expr.expression)
        sign = _SUMS[type(expr)]
        kinds = left.kind, right.kind
        if kinds == ("whole", "whole"):
            wider = _wider(left.type, right.type)
            sides = f"CAST({left.sql} AS {wider}) {sign} CAST({right.sql} AS {wider})"
            return _Value(f"({sides})", "whole", wider)
        if set(kinds) <= _EXACT:
            return self._of_decimals(expr, left, right, sign)
        if isinstance(expr, exp.Mul) or not (self._utc or _is_of_any_zone(left, right)):
            raise _uncommon(expr)
        if kinds == ("time", "length") or (kinds == ("length", "time") and sign == "+"):
            time, length = (left, right) if left.kind == "time" else (right, left)
            return _Value(f"make_timestamp(epoch_us({time.sql}) {sign} {length.sql})", "time", "TIMESTAMP")
        if kinds == ("date", "length") and is_of_days(expr.expression):
            return _Value(f"({left.sql} {sign} CAST({right.sql} // {DAY_US} AS INTEGER))", "date", "DATE")
        if kinds == ("time", "time") and sign == "-":
            return _Value(f"(epoch_us({left.sql}) - epoch_us({right.sql}))", "length")
        if kinds == ("date", "date") and sign == "-":
            return _Value(f"(CAST({left.sql} - {right.sql} AS BIGINT) * {DAY_US})", "length")
        if kinds == ("length", "length"):
            return _Value(f"({left.sql} {sign} {right.sql})", "length")
        raise _uncommon(expr)

    def _of_decimals(self, expr: exp.Binary, left: _Value, right: _Value, sign: str) -> _Value:
        is_product = isinstance(expr, exp.Mul)
        kind = (product_type if is_product else addition_type)(left.type, right.type)
        if kind is None:
            raise _uncommon(expr)
        sides = [f"CAST({v.sql} AS {as_decimal(v.type) if is_product else kind})" for v in (left, right)]
        return _Value(f"CAST({f' {sign} '.join(sides)} AS {kind})", "decimal", kind)

    def _case(self, expr: exp.Case) -> _Value:
        if expr.this is not None:
            raise _uncommon(expr)
        arms = [(self.value(arm.this), self.value(arm.args["true"])) for arm in expr.args["ifs"]]
        last = expr.args.get("default")
        default = self._null(exp.Null()) if last is None else self.value(last)
        _flags(expr, [condition for condition, _ in arms])
        kind, type_, values = _one_type(expr, [*(value for _, value in arms), default])
        whens = " ".join(f"WHEN {arm[0].sql} THEN {v.sql}" for arm, v in zip(arms, values, strict=False))
        return _Value(f"(CASE {whens} ELSE {values[-1].sql} END)", kind, type_)

    def _if(self, expr: exp.If) -> _Value:
        arm = exp.If(this=expr.this.copy(), true=expr.args["true"].copy())
        false = expr.args.get("false")
        return self._case(exp.Case(ifs=[arm], default=None if false is None else false.copy()))

    def _coalesce(self, expr: exp.Coalesce) -> _Value:
        kind, type_, values = _one_type(expr, [self.value(p) for p in (expr.this, *expr.expressions)])
        return _Value(f"coalesce({', '.join(v.sql for v in values)})", kind, type_)

    def _cast(self, expr: exp.Cast) -> _Value:
        if isinstance(expr, exp.TryCast):
            raise _uncommon(expr)
        to = sql_type(expr.to.sql("spark"))
        if isinstance(expr.this, exp.Literal) and expr.this.is_string and to.name in _TEXTS:
            if not _TEXTS[to.name].fullmatch(expr.this.name) or not (self._utc or to.name == "DATE"):
                raise _uncommon(expr)
            return _Value(f"{to.name} {text(expr.this.name)}", _KINDS[to.name], to.name)
        inner, target = self.value(expr.this), _PLAIN.get(to.name, "")
        if to.is_decimal and inner.kind in _EXACT and fits(inner.type, str(to)):
            return _Value(f"CAST({inner.sql} AS {to})", "decimal", str(to))
        widens = inner.type in _SIZES and target in _SIZES and _wider(inner.type, target) == target
        if target and (widens or inner.kind == "null" or inner.type == target):
            return _Value(f"CAST({inner.sql} AS {target})", _KINDS.get(to.name, "whole"), target)
        raise _uncommon(expr)

    def _aggregate(self, expr: exp.Expr) -> _Value:
        call = call_of(expr)
        if not call.plain or call.filter is not None or len(call.arguments) > 1:
            raise _uncommon(expr)
        values = [self.value(argument) for argument in call.arguments]
        distinct = "DISTINCT " if call.distinct else ""
        if call.function == "count":
            return _Value(f"count({distinct}{values[0].sql if values else '*'})", "whole", "BIGINT")
        (value,) = values or (_Value("", ""),)
        if call.function == "sum" and value.kind == "whole":
            return _Value(f"CAST(sum({distinct}{value.sql}) AS BIGINT)", "whole", "BIGINT")
        if call.function == "sum" and value.kind == "decimal":
            kind = sum_type(value.type)
            return _Value(f"CAST(sum({distinct}{value.sql}) AS {kind})", "decimal", kind)
        if call.function in ("min", "max") and value.kind in ("whole", "decimal", "text", "date", "time"):
            return _Value(f"{call.function}({value.sql})", value.kind, value.type)
        raise _uncommon(expr)

    _METHODS: Sequence[tuple[type | tuple[type, ...], Callable[..., _Value]]] = (
        (exp.Column, _column),
        (exp.Literal, _literal),
        (exp.Boolean, _boolean),
        (exp.Null, _null),
        (exp.Paren, _paren),
        (exp.Neg, _negative),
        (tuple(_COMPARED), _comparison),
        (exp.Between, _between),
        ((exp.And, exp.Or), _connector),
        (exp.Not, _not),
        (exp.Is, _is),
        (exp.In, _in),
        (tuple(_SUMS), _sum),
        (exp.Case, _case),
        (exp.If, _if),
        (exp.Coalesce, _coalesce),
        (exp.Cast, _cast),
    )


def _flags(expr: exp.Expr, parts: Sequence[_Value]) -> None:
    """Check that all values are BOOLEAN or NULL.

    Raises:
        UnsupportedInDialect: A value has another type.
    """
    if any(part.kind not in ("flag", "null") for part in parts):
        raise _uncommon(expr)


def _align_values(expr: exp.Expr, values: Sequence[_Value]) -> Sequence[_Value]:
    """Convert the values to the form in which they are compared.

    Raises:
        UnsupportedInDialect: The values are not of one kind with an order.
    """
    kinds = {value.kind for value in values} - {"null"}
    if "decimal" in kinds and kinds <= _EXACT:
        return _as_decimals(expr, values)
    if len(kinds) > 1 or any(kind not in _ORDERED for kind in kinds):
        raise _uncommon(expr)
    return values


def _as_decimals(expr: exp.Expr, values: Sequence[_Value]) -> list[_Value]:
    """Cast integers and DECIMALs to the one type that represents all of them.

    Raises:
        UnsupportedInDialect: There is no such type.
    """
    kind = widest(value.type for value in values if value.kind != "null")
    if kind is None:
        raise _uncommon(expr)
    return [_Value(f"CAST({value.sql} AS {kind})", "decimal", kind) for value in values]


def _is_of_any_zone(left: _Value, right: _Value) -> bool:
    """Return True if a sum does not depend on where days begin.

    That holds for a time and less than a day, and for dates only.
    """
    return "time" not in (left.kind, right.kind) or _SHORT in (left.type, right.type)


def _one_type(expr: exp.Expr, values: Sequence[_Value]) -> tuple[str, str, Sequence[_Value]]:
    """Return the kind and type of an expression that is one of several values, and these values.

    The values are converted to that type.

    Raises:
        UnsupportedInDialect: The values have no common type.
    """
    several = {(value.kind, value.type) for value in values if value.kind != "null"}
    kinds = {kind for kind, _ in several}
    if kinds == {"whole"}:
        return "whole", max((type_ for _, type_ in several), key=_SIZES.index), values
    if "decimal" in kinds and kinds <= _EXACT:
        values = _as_decimals(expr, values)
        return "decimal", values[0].type, values
    if len(several) != 1:
        raise _uncommon(expr)
    ((kind, type_),) = several
    return kind, type_, values


def _wider(a: str, b: str) -> str:
    return max(a, b, key=_SIZES.index)


def _uncommon(expr: exp.Expr) -> UnsupportedInDialect:
    return UnsupportedInDialect(expr.sql("spark"))
