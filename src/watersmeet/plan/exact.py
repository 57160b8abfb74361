"""Rule: which expressions tasks compute exactly as Spark does, and what of: `kernel.functions` by name.

The list is here and nowhere else. An expression is read again from the very text that Spark would get,
without sqlglot's own names for functions. What is not on the list (a function, a type, a coercion) raises
`NotExact` with the reason, and Spark computes the expression.

A tree is plain data, for tasks: ``("column", name, type)``, ``("constant", value, type)``, ``("call",
function, arguments, options)``, ``("and" | "or", left, right)``, ``("case", branches, otherwise, type)``,
``("first", parts)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from watersmeet.plan.coercion import canonical
from watersmeet.plan.model import joined_name
from watersmeet.plan.scope import Ref, Scope
from watersmeet.spec.intervals import interval_us
from watersmeet.spec.model import Expr

Tree = tuple[Any, ...]

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
PLAIN = (*INTEGERS, "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
INTERVAL = "INTERVAL DAY TO SECOND"
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
_DAY_US = 86_400_000_000
_TRUNC_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": _DAY_US,
    "DD": _DAY_US,
}


class NotExact(Exception):
    """Tasks do not compute it; the text says why."""


@dataclass(frozen=True)
class Exact:
    """What tasks compute. ``type``: Spark's."""

    tree: Tree
    type: str


_KEYWORDS = ("CAST", "TRY_CAST", "EXTRACT")


class _Names(Spark):
    """Spark's syntax, with functions left as they are named."""

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: dict[str, Callable[..., Any]] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse for name, parse in Spark.Parser.FUNCTION_PARSERS.items() if name in _KEYWORDS
        }
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}  # noqa: RUF012


def exact(expr: Expr, scope: Scope) -> Exact:
    """``expr`` for tasks. Raises: NotExact."""
    refs: list[Ref] = []

    def plain(node: Expr) -> Expr:
        if not isinstance(node, exp.Column):
            return node
        refs.append((node.table, node.name))
        return exp.column(f"c{len(refs) - 1}")

    try:
        tree = sqlglot.parse_one(expr.transform(plain).sql(dialect="spark"), dialect=_Names)
    except SqlglotError as error:
        raise NotExact(str(error).split("\n")[0]) from None
    assert isinstance(tree, exp.Expression)
    return _Compiler(scope, refs).of(tree)


def exact_condition(expr: Expr, scope: Scope) -> Exact:
    """The same, of a condition."""
    found = exact(expr, scope)
    if found.type not in ("BOOLEAN", "NULL"):
        raise NotExact(f"it is {found.type}, and no condition")
    return _as(found, "BOOLEAN")


def _call(function: str, type_: str, *arguments: Exact, options: Sequence[Any] = ()) -> Exact:
    return Exact(("call", function, tuple(each.tree for each in arguments), tuple(options)), type_)


def _constant(value: object, type_: str) -> Exact:
    return Exact(("constant", value, type_), type_)


def _value(found: Exact) -> Any:
    """The value of a constant. Raises: NotExact."""
    if found.tree[0] != "constant" or found.tree[1] is None:
        raise NotExact("an argument that has to be constant is not")
    return found.tree[1]


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL")


def _is_number(type_: str) -> bool:
    return type_ in (*INTEGERS, "FLOAT", "DOUBLE") or _is_decimal(type_)


def _decimal(type_: str) -> tuple[int, int]:
    if type_ in _DIGITS:
        return _DIGITS[type_], 0
    found = _DECIMAL.fullmatch(type_)
    if found is None:
        raise NotExact(f"{type_} is not on the list")
    return int(found.group(1)), int(found.group(2))


def _decimal_type(digits: int, scale: int) -> str:
    if digits > 38:
        raise NotExact("a DECIMAL of more than 38 digits is cut by rules of Spark's own")
    return f"DECIMAL({digits},{scale})"


def _as(found: Exact, type_: str) -> Exact:
    """A value in a wider type of its kind."""
    if found.type == type_:
        return found
    if found.type == "NULL":
        return _constant(None, type_)
    if found.tree[0] == "constant" and found.type in INTEGERS and type_ in INTEGERS:
        return _constant(found.tree[1], type_)
    digits = _decimal(found.type)[0] if _is_decimal(found.type) else 0
    wider = {
        "DOUBLE": found.type in (*INTEGERS, "FLOAT") or 0 < digits <= 15,
        **dict.fromkeys(INTEGERS, found.type in INTEGERS),
    }
    to_decimal = _is_decimal(type_) and (found.type in INTEGERS or digits > 0)
    if wider.get(type_, to_decimal):
        return _call("widen", type_, found, options=[("type", type_)])
    raise NotExact(f"{found.type} as {type_}")


def _common(types: Sequence[str]) -> str:
    """The type in which Spark compares or chooses between values. Raises: NotExact."""
    known = [type_ for type_ in dict.fromkeys(types) if type_ != "NULL"]
    if not known:
        return "NULL"
    if len(known) == 1:
        return known[0]
    if all(type_ in INTEGERS for type_ in known):
        return max(known, key=INTEGERS.index)
    if "DOUBLE" in known and all(_is_number(type_) for type_ in known):
        return "DOUBLE"
    if all(type_ in (*INTEGERS, "FLOAT") for type_ in known):  # FLOAT would lose digits of an integer
        return "DOUBLE"
    if all(type_ in INTEGERS or _is_decimal(type_) for type_ in known):
        parts = [_decimal(type_) for type_ in known]
        scale = max(scale for _, scale in parts)
        return _decimal_type(max(digits - own for digits, own in parts) + scale, scale)
    raise NotExact(f"{' and '.join(known)} are turned into one type by Spark alone")


class _Compiler:
    def __init__(self, scope: Scope, refs: Sequence[Ref]) -> None:
        self._scope = scope
        self._refs = refs
        self._zone = scope.time_zone

    def of(self, node: Expr) -> Exact:
        rule = _RULES.get(type(node))
        if rule is None:
            raise NotExact(f"{node.sql(dialect='spark')[:60]}: {type(node).__name__} is not on the list")
        return rule(self, node)

    def all(self, nodes: Sequence[Expr]) -> list[Exact]:
        return [self.of(node) for node in nodes]

    # leaves

    def column(self, node: exp.Column) -> Exact:
        if len(node.parts) > 1:
            raise NotExact("fields of structs are not on the list")
        ref = self._refs[int(node.name[1:])]
        type_ = canonical(self._scope.column(ref).type).replace(" ", "")
        if type_ == "DECIMAL":
            type_ = "DECIMAL(10,0)"
        if type_.startswith("DECIMAL(") and "," not in type_:
            type_ = type_.replace(")", ",0)")
        if type_ not in PLAIN and not _is_decimal(type_):
            raise NotExact(f"{joined_name(*ref)} is {type_}")
        name = joined_name(*ref)
        return Exact(("column", name, type_), type_)

    def literal(self, node: Expr) -> Exact:
        text = node.this
        if node.is_string:
            return _constant(text, "STRING")
        if text.isdigit():
            value = int(text)
            if value < 2**31:
                return _constant(value, "INT")
            if value < 2**63:
                return _constant(value, "BIGINT")
        if re.fullmatch(r"\d*\.\d+|\d+\.\d*", text):
            whole, _, fraction = text.partition(".")
            digits = len(whole.lstrip("0")) + len(fraction)
            return _constant(text, _decimal_type(max(digits, len(fraction), 1), len(fraction)))
        if re.fullmatch(r"[\d.]+[eE][+-]?\d+", text):
            return _constant(float(text), "DOUBLE")
        raise NotExact(f"the number {text}")

    def interval(self, node: Expr) -> Exact:
        us = interval_us(node)
        if us is None:
            raise NotExact("intervals of months and years are not on the list")
        return _constant(us, INTERVAL)

    # logic

    def both(self, node: Expr) -> Exact:
        left, right = (_as(each, "BOOLEAN") for each in self.all([node.this, node.expression]))
        return Exact(("and" if isinstance(node, exp.And) else "or", left.tree, right.tree), "BOOLEAN")

    def negation(self, node: Expr) -> Exact:
        return _call("negate", "BOOLEAN", _as(self.of(node.this), "BOOLEAN"))

    def test(self, node: Expr) -> Exact:
        if isinstance(node.expression, exp.Null):
            return _call("is_null", "BOOLEAN", self.of(node.this))
        if isinstance(node.expression, exp.Boolean):
            truth = _constant(bool(node.expression.this), "BOOLEAN")
            return _call("null_safe_equal", "BOOLEAN", _as(self.of(node.this), "BOOLEAN"), truth)
        raise NotExact("this IS is not on the list")

    def comparison(self, node: Expr) -> Exact:
        return self._compared(_OPERATORS[type(node)], self.of(node.this), self.of(node.expression))

    def _compared(self, op: str, left: Exact, right: Exact) -> Exact:
        left, right = self._alike([left, right])
        if left.type == "NULL":
            raise NotExact("NULL is compared with NULL")
        if op == "<=>":
            return _call("null_safe_equal", "BOOLEAN", left, right)
        return _call("compare", "BOOLEAN", left, right, options=[op])

    def _alike(self, found: Sequence[Exact]) -> list[Exact]:
        types = {each.type for each in found if each.type != "NULL"}
        if types <= {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"} and len(types) > 1:
            if "TIMESTAMP" not in types:
                raise NotExact("DATE and TIMESTAMP_NTZ are not compared here")
            return [self._as_timestamp(each) for each in found]
        common = _common([each.type for each in found])
        return [_as(each, common) for each in found]

    def between(self, node: Expr) -> Exact:
        value, low, high = self.all([node.this, node.args["low"], node.args["high"]])
        left, right = self._compared(">=", value, low), self._compared("<=", value, high)
        return Exact(("and", left.tree, right.tree), "BOOLEAN")

    def membership(self, node: Expr) -> Exact:
        if not node.expressions:
            raise NotExact("this IN is not on the list")
        found = self._alike(self.all([node.this, *node.expressions]))
        if found[0].type == "NULL":
            raise NotExact("NULL is looked for")
        return _call("is_in", "BOOLEAN", *found)

    def case(self, node: Expr) -> Exact:
        if node.this is not None:
            raise NotExact("CASE with an operand is not on the list")
        conditions = [_as(self.of(each.this), "BOOLEAN") for each in node.args["ifs"]]
        values = [self.of(each.args["true"]) for each in node.args["ifs"]]
        return self._case(
            conditions, values, None if node.args.get("default") is None else self.of(node.args["default"])
        )

    def _case(self, conditions: Sequence[Exact], values: Sequence[Exact], otherwise: Exact | None) -> Exact:
        alike = self._alike([*values, *([] if otherwise is None else [otherwise])])
        type_ = alike[0].type
        if type_ == "NULL":
            raise NotExact("a CASE of NULLs")
        branches = tuple(
            (condition.tree, value.tree) for condition, value in zip(conditions, alike, strict=False)
        )
        rest = None if otherwise is None else alike[-1].tree
        return Exact(("case", branches, rest, type_), type_)

    # arithmetic

    def arithmetic(self, node: Expr) -> Exact:
        left, right = self.all([node.this, node.expression])
        minus = isinstance(node, exp.Sub)
        if isinstance(node, exp.Add | exp.Sub):
            timed = self._timed(left, right, -1 if minus else 1)
            if timed is not None:
                return timed
        if isinstance(node, exp.Div):
            return _call("divide", "DOUBLE", *self._doubles(left, right))
        if isinstance(node, exp.IntDiv):
            return _call("whole_quotient", "BIGINT", *self._whole(left, right, "BIGINT"))
        if "DOUBLE" not in (left.type, right.type) and (_is_decimal(left.type) or _is_decimal(right.type)):
            return self._of_decimals(node, left, right)
        alike = self._alike([left, right])
        if alike[0].type not in (*INTEGERS, "DOUBLE"):
            raise NotExact(f"arithmetic with {alike[0].type}")
        return _call(_ARITHMETIC[type(node)], alike[0].type, *alike)

    def _doubles(self, left: Exact, right: Exact) -> list[Exact]:
        if not {left.type, right.type} <= {*INTEGERS, "DOUBLE", "NULL"}:
            raise NotExact(f"{left.type} / {right.type}")
        return [_as(left, "DOUBLE"), _as(right, "DOUBLE")]

    def _whole(self, left: Exact, right: Exact, type_: str | None = None) -> list[Exact]:
        if left.type not in INTEGERS or right.type not in INTEGERS:
            raise NotExact(f"{left.type} and {right.type} as whole numbers")
        common = type_ or _common([left.type, right.type])
        return [_as(left, common), _as(right, common)]

    def _of_decimals(self, node: Expr, left: Exact, right: Exact) -> Exact:
        (p1, s1), (p2, s2) = _decimal(left.type), _decimal(right.type)
        if isinstance(node, exp.Mul):
            type_ = _decimal_type(p1 + p2 + 1, s1 + s2)
        elif isinstance(node, exp.Add | exp.Sub):
            scale = max(s1, s2)
            type_ = _decimal_type(max(p1 - s1, p2 - s2) + scale + 1, scale)
        else:
            raise NotExact("remainders of DECIMALs are not on the list")
        own = (_as(left, f"DECIMAL({p1},{s1})"), _as(right, f"DECIMAL({p2},{s2})"))
        return _call(_ARITHMETIC[type(node)], type_, *own)

    def _timed(self, left: Exact, right: Exact, sign: int) -> Exact | None:
        """Sums with a time in them; None: there is none."""
        if left.type == INTERVAL and right.type in ("DATE", "TIMESTAMP") and sign == 1:
            left, right = right, left
        if left.type == "TIMESTAMP" and right.type == INTERVAL:
            return _call("add_interval", "TIMESTAMP", left, right, options=[sign, self._zone])
        if left.type == "DATE" and right.type in ("TINYINT", "SMALLINT", "INT"):
            return _call("add_days", "DATE", left, _as(right, "INT"), options=[sign])
        if left.type == "TIMESTAMP" and right.type == "TIMESTAMP" and sign == -1:
            return _call("time_between", INTERVAL, left, right, options=[self._zone])
        times = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", INTERVAL)
        if left.type in times or right.type in times:
            raise NotExact(f"{left.type} {'+' if sign == 1 else '-'} {right.type}")
        return None

    def sign(self, node: Expr) -> Exact:
        value = self.of(node.this)
        if value.tree[0] == "constant" and value.type in (*INTEGERS, "DOUBLE", INTERVAL):
            return _constant(-value.tree[1], value.type)
        if value.type not in (*INTEGERS, "DOUBLE") and not _is_decimal(value.type):
            raise NotExact(f"-{value.type}")
        return _call("minus_one", value.type, value)

    def bitwise(self, node: Expr) -> Exact:
        left, right = self._whole(self.of(node.this), self.of(node.expression))
        return _call("bits", left.type, left, right, options=[_BITS[type(node)]])

    def inverted_bits(self, node: Expr) -> Exact:
        value = self.of(node.this)
        if value.type not in INTEGERS:
            raise NotExact(f"~{value.type}")
        return _call("other_bits", value.type, value)

    # texts, casts, functions

    def joined_texts(self, node: Expr) -> Exact:
        return self._texts("concat", self.all([node.this, node.expression]))

    def _texts(self, function: str, found: Sequence[Exact]) -> Exact:
        if not found or any(each.type != "STRING" for each in found):
            raise NotExact("texts are put together with what is no text")
        return _call(function, "STRING", *found)

    def like(self, node: Expr) -> Exact:
        text, pattern = self.all([node.this, node.expression])
        if text.type != "STRING" or "\\" in str(_value(pattern)):
            raise NotExact("a LIKE with an escape, or of what is no text")
        return _call("is_like", "BOOLEAN", text, options=[_value(pattern)])

    def cast(self, node: Expr) -> Exact:
        if node.args.get("safe") or node.args.get("format") is not None:
            raise NotExact("try_cast is not on the list")
        return self._cast(
            self.of(node.this), canonical(node.args["to"].sql(dialect="spark")).replace(" ", "")
        )

    def _cast(self, value: Exact, to: str) -> Exact:
        own = value.type
        if own == to:
            return value
        if own == "NULL":
            return _as(value, to)
        if own in INTEGERS and to in INTEGERS:
            wider = INTEGERS.index(to) > INTEGERS.index(own)
            return _as(value, to) if wider else _call("to_integer", to, value, options=[("type", to)])
        if own in INTEGERS and to == "DOUBLE":
            return _as(value, to)
        if to == "DOUBLE" and (own == "FLOAT" or _is_decimal(own)):
            return _as(value, to)
        if (own in ("DOUBLE", "BOOLEAN")) and to in INTEGERS:
            return _call("to_integer", to, value, options=[("type", to)])
        if own in INTEGERS and to == "BOOLEAN":
            return _call("to_boolean", to, value)
        if to == "STRING" and own in (*INTEGERS, "BOOLEAN"):
            return _call("boolean_to_text" if own == "BOOLEAN" else "whole_to_text", to, value)
        if to == "DATE" and own == "TIMESTAMP":
            return _call("to_date", to, value, options=[self._zone])
        if to == "TIMESTAMP" and own in ("DATE", "TIMESTAMP_NTZ"):
            return self._as_timestamp(value)
        if to == "TIMESTAMP_NTZ" and own == "TIMESTAMP":
            return _call("timestamp_to_wall", to, value, options=[self._zone])
        if (own, to) == ("TIMESTAMP", "BIGINT"):
            return _call("unix_count", to, value, options=[1_000_000])
        if own == "STRING" and to == "TIMESTAMP" and value.tree[0] == "constant":
            return self._timestamp_literal(_value(value))
        if own == "STRING" and to == "DATE" and value.tree[0] == "constant":
            return self._date_literal(_value(value))
        raise NotExact(f"a cast from {own} to {to}")

    def _as_timestamp(self, value: Exact) -> Exact:
        if value.type in ("TIMESTAMP", "NULL"):
            return _as(value, "TIMESTAMP")
        function = {"DATE": "to_timestamp", "TIMESTAMP_NTZ": "wall_to_timestamp"}.get(value.type)
        if function is None:
            raise NotExact(f"{value.type} as TIMESTAMP")
        return _call(function, "TIMESTAMP", value, options=[self._zone])

    def _as_date(self, value: Exact) -> Exact:
        if value.type in ("DATE", "NULL"):
            return _as(value, "DATE")
        if value.type != "TIMESTAMP":
            raise NotExact(f"{value.type} as DATE")
        return _call("to_date", "DATE", value, options=[self._zone])

    def _timestamp_literal(self, text: str) -> Exact:
        found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", text)
        if found is None:
            raise NotExact("this TIMESTAMP literal is read by Spark")
        days = self._days(*(int(part) for part in found.groups()[:3]))
        hours, minutes, seconds = (int(part) for part in found.groups()[3:6])
        if hours > 23 or minutes > 59 or seconds > 59:
            raise NotExact("this TIMESTAMP literal is read by Spark")
        fraction = int((found.group(7) or "").ljust(6, "0"))
        wall = days * _DAY_US + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
        return _call("wall_to_timestamp", "TIMESTAMP", _constant(wall, "TIMESTAMP_NTZ"), options=[self._zone])

    def _date_literal(self, text: str) -> Exact:
        found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text)
        if found is None:
            raise NotExact("this DATE literal is read by Spark")
        return _constant(self._days(*(int(part) for part in found.groups())), "DATE")

    @staticmethod
    def _days(year: int, month: int, day: int) -> int:
        from datetime import date

        try:
            return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
        except ValueError:
            raise NotExact("this literal is read by Spark") from None

    def substring(self, node: Expr) -> Exact:
        return self._piece([node.this, node.args.get("start"), node.args.get("length")])

    def _piece(self, nodes: Sequence[Expr | None]) -> Exact:
        found = self.all([node for node in nodes if node is not None])
        if found[0].type != "STRING" or len(found) < 2:
            raise NotExact("a substring of what is no text")
        start, count = _value(found[1]), _value(found[2]) if len(found) > 2 else None
        if not isinstance(start, int) or start < 1 or not isinstance(count, int | None):
            raise NotExact("a start that is not a number from 1 on")
        return _call("piece", "STRING", found[0], options=[start, count])

    def if_(self, node: Expr) -> Exact:
        otherwise = node.args.get("false")
        condition = _as(self.of(node.this), "BOOLEAN")
        return self._case(
            [condition], [self.of(node.args["true"])], None if otherwise is None else self.of(otherwise)
        )

    def function(self, node: Expr) -> Exact:
        name = node.name.lower()
        rule = FUNCTIONS.get(name)
        if rule is None:
            raise NotExact(f"{name}() is not on the list of what tasks compute")
        return rule(self, node.expressions)

    def extracted(self, node: Expr) -> Exact:
        return self._part(node.name.lower(), self.of(node.expression))

    def _part(self, part: str, value: Exact) -> Exact:
        if part in _CLOCK:
            return _call("time_part", "INT", self._as_timestamp(value), options=[*_CLOCK[part], self._zone])
        return _call("date_part", "INT", self._as_date(value), options=[part])


def _arguments(count: int, make: Callable[..., Exact]) -> Callable[[_Compiler, Sequence[Expr]], Exact]:
    """A function of so many arguments."""

    def rule(compiler: _Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != count:
            raise NotExact("this number of arguments is not on the list")
        return make(compiler, *compiler.all(nodes))

    return rule


def _of_text(function: str, type_: str) -> Callable[[_Compiler, Exact], Exact]:
    def make(_: _Compiler, value: Exact) -> Exact:
        if value.type != "STRING":
            raise NotExact(f"{function} of {value.type}")
        return _call(function, type_, value)

    return make


def _of_time(part: str) -> Callable[[_Compiler, Exact], Exact]:
    return lambda compiler, value: compiler._part(part, value)


def _days_moved(sign: int) -> Callable[[_Compiler, Exact, Exact], Exact]:
    def make(compiler: _Compiler, date: Exact, days: Exact) -> Exact:
        if days.type not in ("TINYINT", "SMALLINT", "INT"):
            raise NotExact(f"{days.type} as days")
        return _call("add_days", "DATE", compiler._as_date(date), _as(days, "INT"), options=[sign])

    return make


def _datediff(compiler: _Compiler, end: Exact, start: Exact) -> Exact:
    return _call("days_between", "INT", compiler._as_date(end), compiler._as_date(start))


def _date_trunc(compiler: _Compiler, unit: Exact, value: Exact) -> Exact:
    size = _TRUNC_US.get(str(_value(unit)).upper())
    if size is None or size < 1_000_000:
        raise NotExact("date_trunc to this unit is not on the list")
    return _call("floor_time", "TIMESTAMP", compiler._as_timestamp(value), options=[size, compiler._zone])


def _unix(size: int) -> Callable[[_Compiler, Exact], Exact]:
    def make(compiler: _Compiler, value: Exact) -> Exact:
        if value.type != "TIMESTAMP":
            raise NotExact(f"{value.type} as a count")
        return _call("unix_count", "BIGINT", value, options=[size])

    return make


def _coalesce(compiler: _Compiler, nodes: Sequence[Expr]) -> Exact:
    alike = compiler._alike(compiler.all(nodes))
    if alike[0].type == "NULL":
        raise NotExact("a choice of NULLs")
    return Exact(("first", tuple(each.tree for each in alike)), alike[0].type)


def _nullif(compiler: _Compiler, left: Exact, right: Exact) -> Exact:
    equal = compiler._compared("=", left, right)
    return Exact(("case", ((equal.tree, _constant(None, left.type).tree),), left.tree, left.type), left.type)


def _nvl2(compiler: _Compiler, tested: Exact, one: Exact, other: Exact) -> Exact:
    return compiler._case([_call("is_not_null", "BOOLEAN", tested)], [one], other)


def _extreme(function: str) -> Callable[[_Compiler, Sequence[Expr]], Exact]:
    def rule(compiler: _Compiler, nodes: Sequence[Expr]) -> Exact:
        alike = compiler._alike(compiler.all(nodes))
        if len(alike) < 2 or alike[0].type == "NULL":
            raise NotExact(f"{function} of one")
        return _call(function, alike[0].type, *alike)

    return rule


def _absolute(_: _Compiler, value: Exact) -> Exact:
    if value.type not in (*INTEGERS, "DOUBLE") and not _is_decimal(value.type):
        raise NotExact(f"abs of {value.type}")
    return _call("absolute", value.type, value)


def _isnan(_: _Compiler, value: Exact) -> Exact:
    if value.type != "DOUBLE":
        raise NotExact(f"isnan of {value.type}")
    return _call("is_nan", "BOOLEAN", value)


def _pmod(compiler: _Compiler, left: Exact, right: Exact) -> Exact:
    found = compiler._whole(left, right)
    return _call("positive_remainder", found[0].type, *found)


def _left(_: _Compiler, text: Exact, count: Exact) -> Exact:
    if text.type != "STRING" or not isinstance(_value(count), int):
        raise NotExact("left of what is no text")
    return _call("left_of", "STRING", text, options=[_value(count)])


def _add_operator(name: type[Expr]) -> Callable[[_Compiler, Sequence[Expr]], Exact]:
    def rule(compiler: _Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != 2:
            raise NotExact("this number of arguments is not on the list")
        return compiler.of(name(this=nodes[0], expression=nodes[1]))

    return rule


_CLOCK = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60)}
_PARTS = ("year", "month", "day", "quarter", "dayofyear", "weekofyear", "dayofweek", "weekday")

FUNCTIONS: dict[str, Callable[[_Compiler, Sequence[Expr]], Exact]] = {
    **{part: _arguments(1, _of_time(part)) for part in (*_CLOCK, *_PARTS)},
    "dayofmonth": _arguments(1, _of_time("day")),
    "second": _arguments(1, lambda compiler, value: _call(
        "time_part", "INT", compiler._as_timestamp(value), options=[1_000_000, 60, compiler._zone])),
    "to_date": _arguments(1, lambda compiler, value: compiler._as_date(value)),
    "date": _arguments(1, lambda compiler, value: compiler._as_date(value)),
    "date_add": _arguments(2, _days_moved(1)),
    "dateadd": _arguments(2, _days_moved(1)),
    "date_sub": _arguments(2, _days_moved(-1)),
    "datediff": _arguments(2, _datediff),
    "date_diff": _arguments(2, _datediff),
    "date_trunc": _arguments(2, _date_trunc),
    "unix_seconds": _arguments(1, _unix(1_000_000)),
    "unix_millis": _arguments(1, _unix(1_000)),
    "unix_micros": _arguments(1, _unix(1)),
    "coalesce": _coalesce,
    "nvl": _coalesce,
    "ifnull": _coalesce,
    "nullif": _arguments(2, _nullif),
    "nvl2": _arguments(3, _nvl2),
    "isnull": _arguments(1, lambda _, value: _call("is_null", "BOOLEAN", value)),
    "isnotnull": _arguments(1, lambda _, value: _call("is_not_null", "BOOLEAN", value)),
    "isnan": _arguments(1, _isnan),
    "equal_null": _arguments(2, lambda compiler, left, right: compiler._compared("<=>", left, right)),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "abs": _arguments(1, _absolute),
    "pmod": _arguments(2, _pmod),
    "mod": _add_operator(exp.Mod),
    "negative": _arguments(1, lambda _, value: _call("minus_one", value.type, _numeric(value))),
    "positive": _arguments(1, lambda _, value: _numeric(value)),
    "try_divide": _arguments(2, lambda compiler, left, right: _call(
        "divide_or_null", "DOUBLE", *compiler._doubles(left, right))),
    "length": _arguments(1, _of_text("length", "INT")),
    "len": _arguments(1, _of_text("length", "INT")),
    "char_length": _arguments(1, _of_text("length", "INT")),
    "character_length": _arguments(1, _of_text("length", "INT")),
    "octet_length": _arguments(1, _of_text("byte_length", "INT")),
    "reverse": _arguments(1, _of_text("reverse", "STRING")),
    "left": _arguments(2, _left),
    "substring": lambda compiler, nodes: compiler._piece(nodes),
    "substr": lambda compiler, nodes: compiler._piece(nodes),
    "concat": lambda compiler, nodes: compiler._texts("concat", compiler.all(nodes)),
    "bigint": _arguments(1, lambda compiler, value: compiler._cast(value, "BIGINT")),
    "int": _arguments(1, lambda compiler, value: compiler._cast(value, "INT")),
    "smallint": _arguments(1, lambda compiler, value: compiler._cast(value, "SMALLINT")),
    "tinyint": _arguments(1, lambda compiler, value: compiler._cast(value, "TINYINT")),
    "double": _arguments(1, lambda compiler, value: compiler._cast(value, "DOUBLE")),
    "string": _arguments(1, lambda compiler, value: compiler._cast(value, "STRING")),
    "boolean": _arguments(1, lambda compiler, value: compiler._cast(value, "BOOLEAN")),
    "timestamp": _arguments(1, lambda compiler, value: compiler._cast(value, "TIMESTAMP")),
}  # fmt: skip
"""By Spark's name. Operators are in `_RULES`."""


def _numeric(value: Exact) -> Exact:
    if value.type not in (*INTEGERS, "DOUBLE") and not _is_decimal(value.type):
        raise NotExact(f"arithmetic with {value.type}")
    return value


_OPERATORS: dict[type[Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type[Expr], str] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "times",
    exp.Mod: "remainder",
}
_BITS: dict[type[Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}

_RULES: dict[type[Expr], Callable[[_Compiler, Any], Exact]] = {
    exp.Paren: lambda compiler, node: compiler.of(node.this),
    exp.Column: _Compiler.column,
    exp.Literal: _Compiler.literal,
    exp.Boolean: lambda _, node: _constant(bool(node.this), "BOOLEAN"),
    exp.Null: lambda _, node: _constant(None, "NULL"),
    exp.Interval: _Compiler.interval,
    exp.And: _Compiler.both,
    exp.Or: _Compiler.both,
    exp.Not: _Compiler.negation,
    exp.Is: _Compiler.test,
    exp.NullSafeNEQ: lambda compiler, node: _call(
        "negate", "BOOLEAN", compiler._compared("<=>", *compiler.all([node.this, node.expression]))),
    **dict.fromkeys(_OPERATORS, _Compiler.comparison),
    exp.Between: _Compiler.between,
    exp.In: _Compiler.membership,
    exp.Case: _Compiler.case,
    exp.If: _Compiler.if_,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv), _Compiler.arithmetic),
    exp.Neg: _Compiler.sign,
    **dict.fromkeys(_BITS, _Compiler.bitwise),
    exp.BitwiseNot: _Compiler.inverted_bits,
    exp.DPipe: _Compiler.joined_texts,
    exp.Like: _Compiler.like,
    exp.Cast: _Compiler.cast,
    exp.TryCast: _Compiler.cast,
    exp.Substring: _Compiler.substring,
    exp.Extract: _Compiler.extracted,
    exp.Anonymous: _Compiler.function,
}  # fmt: skip


@cache
def listed() -> tuple[str, ...]:
    """Spark's names of all functions and operators on the list, for pages and tests."""
    operators = (
        "and or not ! = == <> != < <= > >= <=> between in case when if is + - * / % div & | ^ ~ || like cast"
    )
    return tuple(sorted({*FUNCTIONS, *operators.split()} - {"is"}))
