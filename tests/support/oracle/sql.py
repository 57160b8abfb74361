"""SQL of the oracle: expressions to plain Python functions of rows, with SQL's three-valued logic.

``Scope`` resolves names over the inputs; ``compile_expr`` gives (kind, function). A function takes one row
of each input, in the scope's order; a padded input is a dict of Nones. All integer arithmetic saturates at
int64.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from sqlglot import exp

from tests.support.oracle.values import (
    DAY,
    UNIT_US,
    Refused,
    Unsupported,
    from_json,
    less,
    same,
    saturate,
)

Rows = tuple[dict[str, Any], ...]
"""One row per input of the scope: a row of a join, matched so far or padded."""
Function = Callable[[Rows], Any]
Typed = tuple[str, Function]


@dataclass
class Scope:
    """The inputs of a query: alias -> column -> kind, in order."""

    inputs: dict[str, dict[str, str]]

    def find(self, column: exp.Column) -> tuple[str, str]:
        """(alias, column) of a reference."""
        name, table = column.name, column.table
        if table:
            alias = next((a for a in self.inputs if a.lower() == table.lower()), None)
            if alias is None:
                raise Refused(f'unknown input "{table}" in {column.sql()}')
            owners = [alias]
        else:
            owners = list(self.inputs)
        hits = [(a, c) for a in owners for c in self.inputs[a] if c.lower() == name.lower()]
        if not hits:
            raise Refused(f'unknown column "{column.sql()}"')
        if len(hits) > 1:
            raise Refused(f'column "{name}" is ambiguous')
        return hits[0]


def interval_us(node: exp.Interval) -> tuple[str, int]:
    """(kind, µs) of a day-time interval; kind ``days`` if it is whole days by its unit."""
    unit = node.args.get("unit")
    if unit is None:
        raise Unsupported(node.sql())
    if isinstance(unit, exp.IntervalSpan):
        text, sign = node.this.name.strip(), 1
        if text.startswith("-"):
            text, sign = text[1:], -1
        names = ["DAY", "HOUR", "MINUTE", "SECOND"]
        first, last = unit.this.name.upper(), unit.expression.name.upper()
        parts = text.replace(" ", ":").split(":")
        wanted = names[names.index(first) : names.index(last) + 1]
        total = sum(int(Decimal(p) * UNIT_US[u]) for p, u in zip(parts, wanted, strict=True))
        return "interval", sign * total
    name = unit.name.upper()
    name = name[:-1] if name.endswith("S") else name
    if name not in UNIT_US:
        raise Unsupported(f"interval of {name}")
    value = node.this
    sign = 1
    while isinstance(value, exp.Neg | exp.Paren):
        sign, value = (-sign if isinstance(value, exp.Neg) else sign), value.this
    us = sign * int(Decimal(value.name) * UNIT_US[name])
    return ("days" if name in ("DAY", "WEEK") else "interval"), us


def _not(value: Any) -> Any:
    return None if value is None else not value


def _and(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a: Any, b: Any) -> Any:
    return _not(_and(_not(a), _not(b)))


COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    exp.EQ: same,
    exp.NEQ: lambda a, b: _not(same(a, b)),
    exp.LT: less,
    exp.GT: lambda a, b: less(b, a),
    exp.LTE: lambda a, b: _not(less(b, a)),
    exp.GTE: lambda a, b: _not(less(a, b)),
    exp.NullSafeEQ: lambda a, b: (a is None and b is None) if a is None or b is None else same(a, b),
}
NUMBERS = ("int", "decimal", "double")
TIMES = ("ts", "date")


def coerce(value: Any, kind: str, to: str) -> Any:
    """A value brought to the common type of a comparison."""
    if value is None or kind == to:
        return value
    if to == "double":
        return float(value)
    if to == "decimal" and kind == "int":
        return Decimal(value)
    return value


def common(a: str, b: str, node: exp.Expression) -> str:
    """The kind in which two operands are compared."""
    if a == b or "null" in (a, b):
        return b if a == "null" else a
    if a in NUMBERS and b in NUMBERS:
        return "double" if "double" in (a, b) else "decimal"
    if {a, b} <= {"interval", "days"}:
        return "interval"
    if a in TIMES and b in TIMES:
        return "ts"
    raise Unsupported(f"types {a} and {b} in {node.sql()}")


def compile_expr(node: exp.Expression, scope: Scope) -> Typed:
    """(kind, function) of an expression."""
    if isinstance(node, exp.Paren | exp.Alias):
        return compile_expr(node.this, scope)
    if isinstance(node, exp.Column):
        alias, name = scope.find(node)
        position = list(scope.inputs).index(alias)
        return scope.inputs[alias][name], lambda rows: rows[position][name]
    if isinstance(node, exp.Literal):
        return _literal(node)
    if isinstance(node, exp.Boolean):
        return "bool", lambda rows, value=bool(node.this): value
    if isinstance(node, exp.Null):
        return "null", lambda rows: None
    if isinstance(node, exp.Interval):
        kind, us = interval_us(node)
        return kind, lambda rows: us
    if isinstance(node, exp.Neg):
        kind, f = compile_expr(node.this, scope)
        return kind, lambda rows: None if (v := f(rows)) is None else saturate(-v) if kind == "int" else -v
    if type(node) in COMPARE:
        return _comparison(node, scope)
    if isinstance(node, exp.And | exp.Or):
        (_, f), (_, g) = compile_expr(node.this, scope), compile_expr(node.expression, scope)
        join = _and if isinstance(node, exp.And) else _or
        return "bool", lambda rows: join(f(rows), g(rows))
    if isinstance(node, exp.Not):
        _, f = compile_expr(node.this, scope)
        return "bool", lambda rows: _not(f(rows))
    if isinstance(node, exp.Between):
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
        return compile_expr(exp.And(this=low, expression=high), scope)
    if isinstance(node, exp.Is):
        _, f = compile_expr(node.this, scope)
        if isinstance(node.expression, exp.Null):
            return "bool", lambda rows: f(rows) is None
        truth = bool(node.expression.this)
        return "bool", lambda rows: f(rows) is truth
    if isinstance(node, exp.In):
        tests = [exp.EQ(this=node.this.copy(), expression=e.copy()) for e in node.expressions]
        functions = [compile_expr(t, scope)[1] for t in tests]

        def evaluate_in_list(rows: Rows) -> Any:
            answer: Any = False
            for f in functions:
                answer = _or(answer, f(rows))
            return answer

        return "bool", evaluate_in_list
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod | exp.IntDiv):
        return _arithmetic(node, scope)
    if isinstance(node, exp.Cast | exp.TsOrDsToDate | exp.Date):
        return _cast(node, scope)
    if isinstance(node, exp.Coalesce | exp.Greatest):
        return _one_of_several(node, scope)
    if isinstance(node, exp.Abs):
        kind, f = compile_expr(node.this, scope)
        return (
            kind,
            lambda rows: None if (v := f(rows)) is None else saturate(abs(v)) if kind == "int" else abs(v),
        )
    if type(node) in _OF_TEXTS:
        _, f = compile_expr(node.this, scope)
        of_text = _OF_TEXTS[type(node)]
        return "string", lambda rows: None if (v := f(rows)) is None else of_text(v)
    raise Unsupported(f"expression {node.sql()} ({type(node).__name__})")


def greater(a: Any, b: Any) -> Any:
    """Return the greater of two values that are not NULL, the first of equal ones."""
    return b if less(a, b) else a


def _one_of_several(node: exp.Expression, scope: Scope) -> Typed:
    """Compile COALESCE, the first operand that is not NULL, or GREATEST, the greatest of those."""
    operands = [compile_expr(e, scope) for e in [node.this, *node.expressions]]
    kind = reduce(lambda a, b: common(a, b, node), (other for other, _ in operands))

    def chosen(rows: Rows) -> Any:
        values = [coerce(v, k, kind) for k, f in operands if (v := f(rows)) is not None]
        if not values:
            return None
        return values[0] if isinstance(node, exp.Coalesce) else reduce(greater, values)

    return kind, chosen


_OF_TEXTS: dict[type[exp.Expression], Callable[[str], str]] = {
    exp.Upper: str.upper,
    exp.Lower: str.lower,
    exp.SHA2: lambda text: hashlib.sha256(text.encode()).hexdigest(),
}
"""SHA2 of 256 bits; the case of other letters than ASCII's is not asked."""


def _literal(node: exp.Literal) -> Typed:
    if node.is_string:
        return "string", lambda rows: node.this
    text = node.this
    if "e" in text.lower():
        number = float(text)
        return "double", lambda rows: number
    if "." in text:
        decimal = Decimal(text)
        return "decimal", lambda rows: decimal
    integer = int(text)
    return "int", lambda rows: integer


def _comparison(node: exp.Expression, scope: Scope) -> Typed:
    (a, f), (b, g) = compile_expr(node.this, scope), compile_expr(node.expression, scope)
    to, test = common(a, b, node), COMPARE[type(node)]
    if a == b == to:
        return "bool", lambda rows: test(f(rows), g(rows))
    return "bool", lambda rows: test(coerce(f(rows), a, to), coerce(g(rows), b, to))


def arithmetic_kind(node: exp.Expression, a: str, b: str) -> tuple[str, int, int]:
    """(kind of the result, factor of the left operand, factor of the right): ``date + 1`` counts days."""
    sign = -1 if isinstance(node, exp.Sub) else 1
    if isinstance(node, exp.Mul | exp.Mod | exp.IntDiv):
        if a in NUMBERS and b in NUMBERS and (a == b == "int" or not isinstance(node, exp.IntDiv)):
            return common(a, b, node), 1, 1
        raise Unsupported(node.sql())
    if a in NUMBERS and b in NUMBERS:
        return common(a, b, node), 1, 1
    if a == "date" and b == "int":
        return "date", 1, DAY
    if a == "int" and b == "date" and sign == 1:
        return "date", DAY, 1
    if a == "date" and b == "days":
        return "date", 1, 1
    if a == "days" and b == "date" and sign == 1:
        return "date", 1, 1
    if a in TIMES and b in ("interval", "days"):
        return "ts", 1, 1
    if b in TIMES and a in ("interval", "days") and sign == 1:
        return "ts", 1, 1
    if a in TIMES and b in TIMES and sign == -1:
        return ("days" if a == b == "date" else "interval"), 1, 1
    if {a, b} <= {"interval", "days"}:
        return ("days" if a == b == "days" else "interval"), 1, 1
    raise Unsupported(f"{a} and {b} in {node.sql()}")


def _arithmetic(node: exp.Expression, scope: Scope) -> Typed:
    (a, f), (b, g) = compile_expr(node.this, scope), compile_expr(node.expression, scope)
    kind, by_a, by_b = arithmetic_kind(node, a, b)
    coerced = kind in NUMBERS and not a == b == kind
    if isinstance(node, exp.Sub):
        by_b = -by_b

    if isinstance(node, exp.Add | exp.Sub) and kind not in ("double", "decimal"):  # most of all

        def sum_of(rows: Rows) -> Any:
            x, y = f(rows), g(rows)
            return None if x is None or y is None else saturate(x * by_a + y * by_b)

        return kind, sum_of

    def value(rows: Rows) -> Any:
        x, y = f(rows), g(rows)
        if x is None or y is None:
            return None
        if coerced:
            x, y = coerce(x, a, kind), coerce(y, b, kind)
        if isinstance(node, exp.Mod | exp.IntDiv) and y == 0:
            raise Unsupported("division by zero")
        if isinstance(node, exp.IntDiv):
            return saturate(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))
        if isinstance(node, exp.Mod):
            return math.fmod(x, y) if kind == "double" else (abs(x) % abs(y)) * (1 if x >= 0 else -1)
        total = x * y if isinstance(node, exp.Mul) else x * by_a + y * by_b
        return total if kind in ("double", "decimal") else saturate(total)

    return kind, value


def cast_kind(node: exp.Expression) -> str:
    """The kind that a cast gives."""
    if isinstance(node, exp.TsOrDsToDate | exp.Date):
        return "date"
    name = node.args["to"].this.name
    kinds = {
        "DATE": "date",
        "TIMESTAMP": "ts",
        "TIMESTAMPTZ": "ts",
        "TIMESTAMPNTZ": "ts",
        "BIGINT": "int",
        "INT": "int",
        "SMALLINT": "int",
        "DOUBLE": "double",
        "TEXT": "string",
        "VARCHAR": "string",
    }
    if name not in kinds:
        raise Unsupported(f"cast to {name}")
    return kinds[name]


def _cast(node: exp.Expression, scope: Scope) -> Typed:
    kind, f = compile_expr(node.this, scope)
    to = cast_kind(node)
    if kind == to:
        return to, f
    if kind == "ts" and to == "date":
        return to, lambda rows: None if (v := f(rows)) is None else v // DAY * DAY
    if kind == "date" and to == "ts":
        return to, f
    if kind == "int" and to == "double":
        return to, lambda rows: None if (v := f(rows)) is None else float(v)
    if kind == "int" and to == "string":
        return to, lambda rows: None if (v := f(rows)) is None else str(v)
    if kind == "string" and to in ("date", "ts"):
        declared = "DATE" if to == "date" else "TIMESTAMP"
        return to, lambda rows: from_json(f(rows), declared)
    raise Unsupported(node.sql())
