"""Rule: how operators, literals and columns become what tasks compute; functions by their family."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from sqlglot import exp

from watersmeet.plan.exact import casts, nested, patterns, texts
from watersmeet.plan.exact.functions import FUNCTIONS
from watersmeet.plan.exact.numeric import arithmetic, whole
from watersmeet.plan.exact.temporal.intervals import literal_of, negated, scaled, sum_of
from watersmeet.plan.exact.temporal.times import part_of
from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    call,
    compared_type,
    computed,
    constant,
    decimal_parts,
    is_ordered,
    is_value,
    one_type,
    or_null,
    turned,
    widened,
)
from watersmeet.plan.join_inputs import JoinInputs, Ref
from watersmeet.plan.model.sides import joined_name
from watersmeet.spec.functions import signature_of
from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import NumberError, read_number
from watersmeet.spec.time_zones import UTC
from watersmeet.types.arithmetic import Argument
from watersmeet.types.common import common_of
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    STRING,
    TIMES,
    TIMESTAMP_NTZ,
    VOID,
    SqlType,
)


class Compiler:
    """Compiles one expression, whose columns are the ``refs``, in the zone of ``inputs``."""

    def __init__(self, inputs: JoinInputs, refs: Sequence[Ref]) -> None:
        """The columns c0, c1, … of what is compiled stand for ``refs``."""
        self._inputs = inputs
        self._refs = refs
        self._named = 0
        self.by_spark: list[str] = []
        self.zone = inputs.time_zone

    def of(self, node: Expr) -> Exact:
        rule = _RULES.get(type(node))
        if rule is None:
            raise NotExact(f"{node.sql(dialect='spark')[:60]}: {type(node).__name__} is not on the list")
        return rule(self, node)

    def all(self, nodes: Sequence[Expr]) -> list[Exact]:
        return [self.of(node) for node in nodes]

    def column(self, node: exp.Column) -> Exact:
        first, *further = (part.name for part in node.parts)
        if not re.fullmatch(r"c\d+", first):
            raise NotExact(f"{first} is no column")
        ref = self._refs[int(first[1:])]
        name, type_ = joined_name(*ref), self._inputs.column(ref).type.nullable
        if not is_value(type_):
            raise NotExact(f"{name} is {type_}")
        column = Exact(("column", name, type_), type_)
        for step in further:
            column = nested.field_of(column, step)
        return column

    def name_of(self, node: Expr) -> str | None:
        """The name of a column or field as Spark gives it to what is made of it."""
        if isinstance(node, exp.Column):
            own: str = node.parts[-1].name
            return self._refs[int(own[1:])][1] if len(node.parts) == 1 else own
        if isinstance(node, exp.Dot):
            return str(node.expression.name)
        return None

    def literal(self, node: Expr) -> Exact:
        text = node.this
        if node.is_string:
            return constant(text, STRING)
        return self.number(text)

    def number(self, text: str, *, negative: bool = False) -> Exact:
        """``negative``: with a sign, which is part of it."""
        try:
            number = read_number(text, negative=negative)
        except NumberError as error:
            raise NotExact(str(error)) from None
        if number.is_whole:
            return constant(int(number.value), number.type)
        if number.type == DOUBLE:
            return constant(-0.0 if negative and not number.value else float(number.value), DOUBLE)
        if number.type == FLOAT:
            if Fraction(float(np.float32(float(number.value)))) != number.value:
                raise NotExact(f"{text}, which is rounded to a FLOAT,")
            return constant(float(number.value), FLOAT)
        scale = decimal_parts(number.type)[1]
        whole, fraction = divmod(abs(number.value * 10**scale), 10**scale)
        shown = f"{whole}.{int(fraction):0{scale}d}" if scale else str(whole)
        return constant(("-" if number.value < 0 else "") + shown, number.type)

    def interval(self, node: exp.Interval) -> Exact:
        return literal_of(node)

    def both(self, node: Expr) -> Exact:
        left, right = (widened(operand, BOOLEAN) for operand in self.all([node.this, node.expression]))
        return Exact(("and" if isinstance(node, exp.And) else "or", left.tree, right.tree), BOOLEAN)

    def negation(self, node: Expr) -> Exact:
        return call("negate", BOOLEAN, widened(self.of(node.this), BOOLEAN))

    def test(self, node: Expr) -> Exact:
        if isinstance(node.expression, exp.Null):
            return call("is_null", BOOLEAN, self.of(node.this))
        if isinstance(node.expression, exp.Boolean):
            truth = constant(bool(node.expression.this), BOOLEAN)
            return call("null_safe_equal", BOOLEAN, widened(self.of(node.this), BOOLEAN), truth)
        if node.expression.name == "UNKNOWN":
            return call("is_null", BOOLEAN, widened(self.of(node.this), BOOLEAN))
        raise NotExact("this IS is not on the list")

    def comparison(self, node: Expr) -> Exact:
        return self.compared(_OPERATORS[type(node)], self.of(node.this), self.of(node.expression))

    def compared(self, op: str, left: Exact, right: Exact) -> Exact:
        if left.type.is_nested and right.type.is_nested and left.type.unnamed != right.type.unnamed:
            common = compared_type(left.type, right.type)
            left, right = widened(left, common), widened(right, common)
        left, right = self._comparable([left, right])
        if left.type == VOID:
            raise NotExact("NULL is compared with NULL")
        if not is_ordered(left.type):
            raise NotExact(f"{left.type} is compared")
        if op == "<=>":
            return call("null_safe_equal", BOOLEAN, left, right)
        return call("compare", BOOLEAN, left, right, options=[op])

    def _comparable(self, operands: Sequence[Exact]) -> list[Exact]:
        """`alike`; but the names of fields do not matter where all else is the same."""
        typed = [operand for operand in operands if operand.type != VOID]
        if len({operand.type.unnamed for operand in typed}) == 1:
            return [
                Exact(operand.tree, typed[0].type) if operand in typed else widened(operand, typed[0].type)
                for operand in operands
            ]
        return self.alike(operands)

    def alike(self, values: Sequence[Exact]) -> list[Exact]:
        types = {value.type for value in values if value.type != VOID}
        if len(types) > 1 and (types <= set(TIMES) or (STRING in types and len(types) == 2)):
            wanted = common_of(types)
            if wanted is not None:
                return [self.cast_to(value, wanted) for value in values]
        common = one_type([value.type for value in values])
        return [widened(value, common) for value in values]

    def between(self, node: Expr) -> Exact:
        value, low, high = self.all([node.this, node.args["low"], node.args["high"]])
        left, right = self.compared(">=", value, low), self.compared("<=", value, high)
        return Exact(("and", left.tree, right.tree), BOOLEAN)

    def membership(self, node: Expr) -> Exact:
        if not node.expressions:
            raise NotExact("this IN is not on the list")
        operands = self._comparable(self.all([node.this, *node.expressions]))
        if operands[0].type == VOID or not is_ordered(operands[0].type):
            raise NotExact(f"{operands[0].type} is looked for")
        return call("is_in", BOOLEAN, *operands)

    def case(self, node: Expr) -> Exact:
        if node.this is not None:
            raise NotExact("CASE with an operand is not on the list")
        conditions = [widened(self.of(branch.this), BOOLEAN) for branch in node.args["ifs"]]
        values = [self.of(branch.args["true"]) for branch in node.args["ifs"]]
        return self.case_of(
            conditions, values, None if node.args.get("default") is None else self.of(node.args["default"])
        )

    def case_of(self, conditions: Sequence[Exact], values: Sequence[Exact], otherwise: Exact | None) -> Exact:
        alike = self.alike([*values, *([] if otherwise is None else [otherwise])])
        type_ = alike[0].type
        if type_ == VOID:
            raise NotExact("a CASE of NULLs")
        branches = tuple(
            (condition.tree, value.tree) for condition, value in zip(conditions, alike, strict=False)
        )
        rest = None if otherwise is None else alike[-1].tree
        return Exact(("case", branches, rest, type_), type_)

    def arithmetic(self, node: Expr) -> Exact:
        left, right = self.all([node.this, node.expression])
        minus = isinstance(node, exp.Sub)
        if isinstance(node, exp.Add | exp.Sub):
            timed = sum_of(self, left, right, -1 if minus else 1)
            if timed is not None:
                return timed
        if left.type.is_interval or right.type.is_interval:
            return scaled(node, left, right)
        return _ARITHMETIC[type(node)](self, left, right)

    def whole(self, left: Exact, right: Exact, type_: SqlType | None = None) -> list[Exact]:
        if left.type not in INTEGERS or right.type not in INTEGERS:
            raise NotExact(f"{left.type} and {right.type} as whole numbers")
        common = type_ or one_type([left.type, right.type])
        return [widened(left, common), widened(right, common)]

    def sign(self, node: Expr) -> Exact:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self.number(node.this.this, negative=True)
        value = self.of(node.this)
        return negated(value) if value.type.is_interval else turned("minus_one", value)

    def bitwise(self, node: Expr) -> Exact:
        left, right = self.whole(self.of(node.this), self.of(node.expression))
        return call("bits", left.type, left, right, options=[_BITS[type(node)]])

    def shifted(self, node: Expr) -> Exact:
        way = "<<" if isinstance(node, exp.BitwiseLeftShift) else ">>"
        return whole.shift(way, self.of(node.this), self.of(node.expression))

    def inverted_bits(self, node: Expr) -> Exact:
        value = self.of(node.this)
        if value.type not in INTEGERS:
            raise NotExact(f"~{value.type}")
        return call("other_bits", value.type, value)

    def joined_texts(self, node: Expr) -> Exact:
        return texts.joined(self, self.all([node.this, node.expression]))

    def rlike(self, node: Expr) -> Exact:
        return patterns.matched(self, *self.all([node.this, node.expression]))

    def cast(self, node: Expr) -> Exact:
        if node.args.get("format") is not None:
            raise NotExact("a cast with a format is not on the list")
        to = sql_type(node.args["to"].sql(dialect="spark")).nullable
        value = self.of(node.this)
        if node.args.get("safe") and (value.type.is_nested or to.is_nested):
            raise NotExact("a try_cast of ARRAYs, MAPs or STRUCTs is not on the list")
        converted = computed(self.cast_to(value, to))
        return or_null(converted) if node.args.get("safe") and converted is not value else converted

    def cast_to(self, value: Exact, to: SqlType) -> Exact:
        if value.type.fields and to.fields and value.type != to:
            return self._cast_fields(value, to)
        element, wanted = value.type.element, to.element
        if element is None or wanted is None or value.type == to:
            return casts.cast_to(value, to, self.zone)
        self._named += 1
        name = f"v{self._named}"
        inner = self.cast_to(Exact(("variable", name), element), wanted)
        return Exact(("each", value.tree, ((name, "element"),), inner.tree, None, None), to)

    def _cast_fields(self, value: Exact, to: SqlType) -> Exact:
        """Of a STRUCT, by place: the names are those of ``to``."""
        if len(value.type.fields) != len(to.fields):
            raise NotExact(f"a cast from {value.type} to {to}")
        parts = [
            (wanted.name, self.cast_to(call("field", own.type, value, options=[place]), wanted.type))
            for place, (own, wanted) in enumerate(zip(value.type.fields, to.fields, strict=True))
        ]
        is_null = call("is_null", BOOLEAN, value)
        return Exact(("case", ((is_null.tree, constant(None, to).tree),), nested.struct(parts).tree, to), to)

    def as_timestamp(self, value: Exact) -> Exact:
        return casts.as_timestamp(value, self.zone)

    def as_date(self, value: Exact) -> Exact:
        return casts.as_date(value, self.zone)

    def on_clock(self, value: Exact) -> tuple[Exact, str]:
        """A time of which the clock is read, and the zone of that clock."""
        return (value, UTC) if value.type == TIMESTAMP_NTZ else (self.as_timestamp(value), self.zone)

    def as_int(self, value: Exact) -> Exact:
        """What a function takes as an INT without a cast."""
        if value.type not in (*INTEGERS, VOID):
            raise NotExact(f"{value.type} as INT")
        return self.cast_to(value, INT)

    def trimmed(self, node: Expr) -> Exact:
        where = {"LEADING": "left", "TRAILING": "right"}.get(node.args.get("position") or "BOTH", "both")
        characters = None if node.expression is None else self.of(node.expression)
        return texts.trimmed(self, self.of(node.this), characters, where)

    def overlaid(self, node: Expr) -> Exact:
        parts = [node.this, node.expression, node.args["from_"], node.args.get("for_")]
        return texts.overlaid(self, *self.all([part for part in parts if part is not None]))

    def if_(self, node: Expr) -> Exact:
        otherwise = node.args.get("false")
        condition = widened(self.of(node.this), BOOLEAN)
        return self.case_of(
            [condition], [self.of(node.args["true"])], None if otherwise is None else self.of(otherwise)
        )

    def function(self, node: Expr) -> Exact:
        name = node.name.lower()
        rule = FUNCTIONS.get(name)
        return self._typed(name, node.expressions) if rule is None else rule(self, node.expressions)

    def _typed(self, name: str, nodes: Sequence[Expr]) -> Exact:
        """A call of which nothing but the type is known."""
        signature = signature_of(name) if name in TYPED else None
        arguments = [VOID if isinstance(node, exp.Lambda) else self.of(node).type for node in nodes]
        type_ = signature and signature.type_of([Argument(type_) for type_ in arguments])
        if not type_:
            raise NotExact(f"{name}() is not on the list of what tasks compute")
        self.by_spark.append(name)
        return Exact(("by_spark", name), type_)

    def extracted(self, node: Expr) -> Exact:
        return part_of(self, node.name, self.of(node.expression))


TYPED = frozenset((
    "hash", "xxhash64", "exp", "expm1", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh",
    "atanh", "ln", "log", "log1p", "log2", "pow", "power", "hypot", "vector_norm", "vector_inner_product",
    "vector_l2_distance", "vector_cosine_similarity", "vector_normalize", "exists", "filter", "forall", "map",
    "map_concat", "map_filter", "map_from_arrays", "map_from_entries", "str_to_map",
))  # fmt: skip
"""Functions that Spark alone computes; stored keys that are made of them are cast by their types."""

_OPERATORS: dict[type[Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}


_ARITHMETIC: dict[type[Expr], Callable[[Compiler, Exact, Exact], Exact]] = {
    exp.Add: lambda compiler, left, right: arithmetic.compute(compiler, "plus", left, right),
    exp.Sub: lambda compiler, left, right: arithmetic.compute(compiler, "minus", left, right),
    exp.Mul: lambda compiler, left, right: arithmetic.compute(compiler, "times", left, right),
    exp.Div: arithmetic.quotient,
    exp.IntDiv: arithmetic.whole_quotient,
    exp.Mod: arithmetic.remainder,
}


_BITS: dict[type[Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}


_RULES: dict[type[Expr], Callable[[Compiler, Any], Exact]] = {
    exp.Paren: lambda compiler, node: compiler.of(node.this),
    exp.Column: Compiler.column,
    exp.Literal: Compiler.literal,
    exp.Boolean: lambda _, node: constant(bool(node.this), BOOLEAN),
    exp.Null: lambda _, node: constant(None, VOID),
    exp.Interval: Compiler.interval,
    exp.And: Compiler.both,
    exp.Or: Compiler.both,
    exp.Not: Compiler.negation,
    exp.Is: Compiler.test,
    exp.NullSafeNEQ: lambda compiler, node: call(
        "negate", BOOLEAN, compiler.compared("<=>", *compiler.all([node.this, node.expression]))),
    **dict.fromkeys(_OPERATORS, Compiler.comparison),
    exp.Between: Compiler.between,
    exp.In: Compiler.membership,
    exp.Case: Compiler.case,
    exp.If: Compiler.if_,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv), Compiler.arithmetic),
    exp.Neg: Compiler.sign,
    **dict.fromkeys(_BITS, Compiler.bitwise),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), Compiler.shifted),
    exp.BitwiseNot: Compiler.inverted_bits,
    exp.DPipe: Compiler.joined_texts,
    exp.Like: patterns.like,
    exp.ILike: patterns.like,
    exp.Escape: patterns.escaped,
    exp.RegexpLike: Compiler.rlike,
    exp.Cast: Compiler.cast,
    exp.TryCast: Compiler.cast,
    exp.Trim: Compiler.trimmed,
    exp.Overlay: Compiler.overlaid,
    exp.Extract: Compiler.extracted,
    exp.Dot: lambda compiler, node: nested.field_of(compiler.of(node.this), node.expression.name),
    exp.Tuple: lambda compiler, node: nested.struct(
        [(f"col{place}", value) for place, value in enumerate(compiler.all(node.expressions), 1)]),
    exp.Bracket: lambda compiler, node: nested.bracket(compiler, node),
    exp.Anonymous: Compiler.function,
}  # fmt: skip  # fmt: skip
