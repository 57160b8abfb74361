"""Compile expressions to trees: operators, literals and columns here, functions by their families.

An expression is read again from the very text that Spark would get, without sqlglot's own names for
functions. What is not on the list (a function, a type, a coercion) raises `UnsupportedExpression` with the
reason; then Spark computes the expression, where it can be asked.

A tree is plain data, for tasks: ``("column", name, type)``, ``("constant", value, type)``, ``("call",
function, arguments, options)``, ``("or_null", call, conditions)``, ``("and" | "or", left, right)``,
``("case", branches, otherwise, type)``, ``("first", parts)``, ``("each", lists, ((name, "element"),), body,
None, None)`` with ``("variable", name)`` in the body: see `trees`. Digests of stored plans contain trees, so
their form and the names of Arrow functions stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from watersmeet.expressions import arrays, casts, numbers, patterns, texts
from watersmeet.expressions.arrays import field
from watersmeet.expressions.conditionals import comparable, compared, is_in, is_null, negate, null_safe_equal
from watersmeet.expressions.numbers import (
    bits,
    compile_sign_change,
    minus,
    minus_one,
    other_bits,
    plus,
    times,
)
from watersmeet.expressions.registry import find_rule
from watersmeet.expressions.rules import Compiler
from watersmeet.expressions.times import (
    compile_part,
    interval_literal,
    negate_interval,
    scale_interval,
    sum_times,
)
from watersmeet.expressions.typed_tree import (
    TypedTree,
    UnsupportedExpression,
    call,
    constant,
    decimal_parts,
    is_ordered,
    is_value,
    or_null,
    require,
    widen_value,
    wrap_constant_in_call,
)
from watersmeet.spec.functions import signature_of
from watersmeet.spec.grammar import GrammarParser, SparkGrammar
from watersmeet.spec.literals import NumberError, read_number
from watersmeet.spec.model import Column, Expr
from watersmeet.types.coercion import Argument
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INTEGERS,
    STRING,
    VOID,
    SqlType,
)

Ref = tuple[str, str]
"""(alias, column)."""


class Inputs(Protocol):
    """Columns and time zone that an expression can refer to."""

    @property
    def time_zone(self) -> str: ...

    def joined_column(self, ref: Ref) -> Column:
        """Return a column, under the name that it has in rows of a join."""


class ExpressionCompiler(Compiler):
    """Compiles one expression, whose columns are the ``refs``, in the zone of ``inputs``."""

    def __init__(self, inputs: Inputs, refs: Sequence[Ref]) -> None:
        """Create a compiler for expressions whose columns c0, c1, … stand for ``refs``."""
        self._inputs = inputs
        self._refs = refs
        self._named = 0
        self.by_spark: list[str] = []
        self.zone = inputs.time_zone

    def of(self, node: Expr) -> TypedTree:
        rule = _RULES.get(type(node))
        if rule is None:
            raise UnsupportedExpression(
                f"{node.sql(dialect='spark')[:60]}: {type(node).__name__} is not on the list"
            )
        return rule(self, node)

    def column(self, node: exp.Column) -> TypedTree:
        first, *further = (part.name for part in node.parts)
        require(re.fullmatch(r"c\d+", first), f"{first} is no column")
        ref = self._refs[int(first[1:])]
        joined = self._inputs.joined_column(ref)
        name, type_ = joined.name, joined.type.nullable
        require(is_value(type_), f"{name} is {type_}")
        column = TypedTree(("column", name, type_), type_)
        for step in further:
            column = arrays.field_of(column, step)
        return column

    def name_of(self, node: Expr) -> str | None:
        """Return the name that Spark derives from a column or field; None for other expressions."""
        if isinstance(node, exp.Column):
            own: str = node.parts[-1].name
            return self._refs[int(own[1:])][1] if len(node.parts) == 1 else own
        if isinstance(node, exp.Dot):
            return str(node.expression.name)
        return None

    def literal(self, node: Expr) -> TypedTree:
        text = node.this
        if node.is_string:
            return constant(text, STRING)
        return self.number(text)

    def number(self, text: str, *, negative: bool = False) -> TypedTree:
        """Compile a number literal.

        Args:
            negative: the literal has a minus sign, which is part of the number.
        """
        try:
            number = read_number(text, negative=negative)
        except NumberError as error:
            raise UnsupportedExpression(str(error)) from None
        if number.is_whole:
            return constant(int(number.value), number.type)
        if number.type == DOUBLE:
            return constant(-0.0 if negative and not number.value else float(number.value), DOUBLE)
        if number.type == FLOAT:
            require(
                Fraction(float(np.float32(float(number.value)))) == number.value,
                f"{text}, which is rounded to a FLOAT,",
            )
            return constant(float(number.value), FLOAT)
        scale = decimal_parts(number.type)[1]
        whole, fraction = divmod(abs(number.value * 10**scale), 10**scale)
        shown = f"{whole}.{int(fraction):0{scale}d}" if scale else str(whole)
        return constant(("-" if number.value < 0 else "") + shown, number.type)

    def interval(self, node: exp.Interval) -> TypedTree:
        return interval_literal(node)

    def both(self, node: Expr) -> TypedTree:
        left, right = (widen_value(operand, BOOLEAN) for operand in self.all([node.this, node.expression]))
        return TypedTree(("and" if isinstance(node, exp.And) else "or", left.tree, right.tree), BOOLEAN)

    def negation(self, node: Expr) -> TypedTree:
        return call(negate, BOOLEAN, widen_value(self.of(node.this), BOOLEAN))

    def test(self, node: Expr) -> TypedTree:
        if isinstance(node.expression, exp.Null):
            return call(is_null, BOOLEAN, self.of(node.this))
        if isinstance(node.expression, exp.Boolean):
            truth = constant(bool(node.expression.this), BOOLEAN)
            return call(null_safe_equal, BOOLEAN, widen_value(self.of(node.this), BOOLEAN), truth)
        if node.expression.name == "UNKNOWN":
            return call(is_null, BOOLEAN, widen_value(self.of(node.this), BOOLEAN))
        raise UnsupportedExpression("this IS is not on the list")

    def comparison(self, node: Expr) -> TypedTree:
        return compared(self, _OPERATORS[type(node)], self.of(node.this), self.of(node.expression))

    def between(self, node: Expr) -> TypedTree:
        value, low, high = self.all([node.this, node.args["low"], node.args["high"]])
        left, right = compared(self, ">=", value, low), compared(self, "<=", value, high)
        return TypedTree(("and", left.tree, right.tree), BOOLEAN)

    def membership(self, node: Expr) -> TypedTree:
        require(node.expressions, "this IN is not on the list")
        operands = comparable(self, self.all([node.this, *node.expressions]))
        require(
            operands[0].type != VOID and is_ordered(operands[0].type), f"{operands[0].type} is looked for"
        )
        return call(is_in, BOOLEAN, *operands)

    def case(self, node: Expr) -> TypedTree:
        require(node.this is None, "CASE with an operand is not on the list")
        conditions = [widen_value(self.of(branch.this), BOOLEAN) for branch in node.args["ifs"]]
        values = [self.of(branch.args["true"]) for branch in node.args["ifs"]]
        return self.case_of(
            conditions, values, None if node.args.get("default") is None else self.of(node.args["default"])
        )

    def arithmetic(self, node: Expr) -> TypedTree:
        left, right = self.all([node.this, node.expression])
        minus = isinstance(node, exp.Sub)
        if isinstance(node, exp.Add | exp.Sub):
            timed = sum_times(self, left, right, -1 if minus else 1)
            if timed is not None:
                return timed
        if left.type.is_interval or right.type.is_interval:
            return scale_interval(node, left, right)
        return _ARITHMETIC[type(node)](self, left, right)

    def sign(self, node: Expr) -> TypedTree:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self.number(node.this.this, negative=True)
        value = self.of(node.this)
        return negate_interval(value) if value.type.is_interval else compile_sign_change(minus_one, value)

    def bitwise(self, node: Expr) -> TypedTree:
        left, right = numbers.alike_integers(self.of(node.this), self.of(node.expression))
        return call(bits, left.type, left, right, options=[_BITS[type(node)]])

    def shifted(self, node: Expr) -> TypedTree:
        way = "<<" if isinstance(node, exp.BitwiseLeftShift) else ">>"
        return numbers.compile_shift(self, way, self.of(node.this), self.of(node.expression))

    def inverted_bits(self, node: Expr) -> TypedTree:
        value = self.of(node.this)
        require(value.type in INTEGERS, f"~{value.type}")
        return call(other_bits, value.type, value)

    def joined_texts(self, node: Expr) -> TypedTree:
        return texts.compile_concat(self, self.all([node.this, node.expression]))

    def rlike(self, node: Expr) -> TypedTree:
        return patterns.compile_rlike(self, *self.all([node.this, node.expression]))

    def cast(self, node: Expr) -> TypedTree:
        require(node.args.get("format") is None, "a cast with a format is not on the list")
        to = sql_type(node.args["to"].sql(dialect="spark")).nullable
        value = self.of(node.this)
        require(
            not node.args.get("safe") or (not value.type.is_nested and not to.is_nested),
            "a try_cast of ARRAYs, MAPs or STRUCTs is not on the list",
        )
        converted = wrap_constant_in_call(self.cast_to(value, to))
        return or_null(converted) if node.args.get("safe") and converted is not value else converted

    def cast_to(self, value: TypedTree, to: SqlType) -> TypedTree:
        if value.type.fields and to.fields and value.type != to:
            return self._cast_fields(value, to)
        element, wanted = value.type.element, to.element
        if element is None or wanted is None or value.type == to:
            return casts.cast_to(value, to, self.zone)
        self._named += 1
        name = f"v{self._named}"
        inner = self.cast_to(TypedTree(("variable", name), element), wanted)
        return TypedTree(("each", value.tree, ((name, "element"),), inner.tree, None, None), to)

    def _cast_fields(self, value: TypedTree, to: SqlType) -> TypedTree:
        """Cast the fields of a STRUCT by position; the result has the names of ``to``."""
        require(len(value.type.fields) == len(to.fields), f"a cast from {value.type} to {to}")
        parts = [
            (wanted.name, self.cast_to(call(field, own.type, value, options=[place]), wanted.type))
            for place, (own, wanted) in enumerate(zip(value.type.fields, to.fields, strict=True))
        ]
        missing = call(is_null, BOOLEAN, value)
        return TypedTree(
            ("case", ((missing.tree, constant(None, to).tree),), arrays.struct(parts).tree, to), to
        )

    def compile_trim(self, node: Expr) -> TypedTree:
        where = {"LEADING": "left", "TRAILING": "right"}.get(node.args.get("position") or "BOTH", "both")
        characters = None if node.expression is None else self.of(node.expression)
        return texts.compile_trim(self, self.of(node.this), characters, where)

    def overlaid(self, node: Expr) -> TypedTree:
        parts = [node.this, node.expression, node.args["from_"], node.args.get("for_")]
        return texts.compile_overlay(self, *self.all([part for part in parts if part is not None]))

    def if_(self, node: Expr) -> TypedTree:
        otherwise = node.args.get("false")
        condition = widen_value(self.of(node.this), BOOLEAN)
        return self.case_of(
            [condition], [self.of(node.args["true"])], None if otherwise is None else self.of(otherwise)
        )

    def function(self, node: Expr) -> TypedTree:
        name = node.name.lower()
        rule = find_rule(name)
        return (
            self.compile_spark_only_call(name, node.expressions)
            if rule is None
            else rule(self, node.expressions)
        )

    def compile_spark_only_call(self, name: str, nodes: Sequence[Expr]) -> TypedTree:
        """Return a call of which only the type is known. Raises: UnsupportedExpression, if it is not."""
        unsupported = UnsupportedExpression(f"{name}() is not on the list of what tasks compute")
        signature = signature_of(name) if name in TYPED else None
        if signature is None:
            raise unsupported
        types = [VOID if isinstance(node, exp.Lambda) else self.of(node).type for node in nodes]
        type_ = signature.type_of([Argument(type_) for type_ in types])
        if type_ is None:
            raise unsupported
        self.by_spark.append(name)
        return TypedTree(("by_spark", name), type_)

    def compile_extract(self, node: Expr) -> TypedTree:
        return compile_part(self, node.name, self.of(node.expression))


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


_ARITHMETIC: dict[type[Expr], Callable[[Compiler, TypedTree, TypedTree], TypedTree]] = {
    exp.Add: lambda compiler, left, right: numbers.compile_arithmetic(compiler, plus, left, right),
    exp.Sub: lambda compiler, left, right: numbers.compile_arithmetic(compiler, minus, left, right),
    exp.Mul: lambda compiler, left, right: numbers.compile_arithmetic(compiler, times, left, right),
    exp.Div: numbers.compile_quotient,
    exp.IntDiv: numbers.compile_whole_quotient,
    exp.Mod: numbers.compile_remainder,
}


_BITS: dict[type[Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}


_RULES: dict[type[Expr], Callable[[ExpressionCompiler, Any], TypedTree]] = {
    exp.Paren: lambda compiler, node: compiler.of(node.this),
    exp.Column: ExpressionCompiler.column,
    exp.Literal: ExpressionCompiler.literal,
    exp.Boolean: lambda _, node: constant(bool(node.this), BOOLEAN),
    exp.Null: lambda _, node: constant(None, VOID),
    exp.Interval: ExpressionCompiler.interval,
    exp.And: ExpressionCompiler.both,
    exp.Or: ExpressionCompiler.both,
    exp.Not: ExpressionCompiler.negation,
    exp.Is: ExpressionCompiler.test,
    exp.NullSafeNEQ: lambda compiler, node: call(
        negate, BOOLEAN, compared(compiler, "<=>", *compiler.all([node.this, node.expression]))),
    **dict.fromkeys(_OPERATORS, ExpressionCompiler.comparison),
    exp.Between: ExpressionCompiler.between,
    exp.In: ExpressionCompiler.membership,
    exp.Case: ExpressionCompiler.case,
    exp.If: ExpressionCompiler.if_,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv), ExpressionCompiler.arithmetic),
    exp.Neg: ExpressionCompiler.sign,
    **dict.fromkeys(_BITS, ExpressionCompiler.bitwise),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), ExpressionCompiler.shifted),
    exp.BitwiseNot: ExpressionCompiler.inverted_bits,
    exp.DPipe: ExpressionCompiler.joined_texts,
    exp.Like: patterns.compile_like,
    exp.ILike: patterns.compile_like,
    exp.Escape: patterns.compile_escape,
    exp.RegexpLike: ExpressionCompiler.rlike,
    exp.Cast: ExpressionCompiler.cast,
    exp.TryCast: ExpressionCompiler.cast,
    exp.Trim: ExpressionCompiler.compile_trim,
    exp.Overlay: ExpressionCompiler.overlaid,
    exp.Extract: ExpressionCompiler.compile_extract,
    exp.Dot: lambda compiler, node: arrays.field_of(compiler.of(node.this), node.expression.name),
    exp.Tuple: lambda compiler, node: arrays.struct(
        [(f"col{place}", value) for place, value in enumerate(compiler.all(node.expressions), 1)]),
    exp.Bracket: lambda compiler, node: arrays.bracket(compiler, node),
    exp.Transform: lambda compiler, node: compiler.compile_spark_only_call(
        "transform", [node.this, node.expression]),
    exp.Anonymous: ExpressionCompiler.function,
}  # fmt: skip


_KEYWORDS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "OVERLAY")


class _Names(SparkGrammar):
    """Spark's syntax, with functions left as they are named."""

    class Parser(GrammarParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
            name: parse for name, parse in GrammarParser.FUNCTION_PARSERS.items() if name in _KEYWORDS
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


def compile_column(expr: Expr, inputs: Inputs) -> TypedTree:
    """Compile ``expr`` for tasks, as a column.

    Raises:
        UnsupportedExpression: tasks do not support the expression, or it is an interval.
    """
    expression = compile_expression(expr, inputs)
    if any(part.is_interval for part in expression.type.every):  # also within an ARRAY
        raise UnsupportedExpression(f"it is {expression.type}, which no column of rows between joins is")
    return expression


def compile_in_run(expr: Expr, inputs: Inputs) -> TypedTree:
    """Compile ``expr`` of a plan for tasks, at run time.

    The caller may be deeper in the call stack than the planner was.

    Raises:
        UnsupportedExpression: also when the recursion limit is exceeded.
    """
    try:
        return compile_column(expr, inputs)
    except RecursionError:
        raise UnsupportedExpression("it is nested too deeply") from None


def compile_expression(expr: Expr, inputs: Inputs) -> TypedTree:
    """Compile ``expr`` of any type for tasks.

    Raises:
        UnsupportedExpression: tasks do not support the expression.
    """
    expression, by_spark = _compile(expr, inputs)
    if by_spark:
        raise UnsupportedExpression(f"{by_spark[0]}() is not on the list of what tasks compute")
    return expression


def expression_type(expr: Expr, inputs: Inputs) -> SqlType:
    """Return the type of ``expr``, which may contain calls of `TYPED`. Raises: UnsupportedExpression."""
    return _compile(expr, inputs)[0].type


def _compile(expr: Expr, inputs: Inputs) -> tuple[TypedTree, list[str]]:
    """Compile an expression.

    Returns:
        The expression, and the functions in it that only Spark computes.
    """
    refs: list[Ref] = []

    def plain(node: Expr) -> Expr:
        if not isinstance(node, exp.Column):
            return node
        refs.append((node.table, node.name))
        return exp.column(f"c{len(refs) - 1}")

    if isinstance(expr, exp.Column):  # most are, and need not be written and read again
        return ExpressionCompiler(inputs, [(expr.table, expr.name)]).of(exp.column("c0")), []
    try:
        tree = sqlglot.parse_one(expr.transform(plain).sql(dialect="spark"), dialect=_Names)
    except SqlglotError as error:
        raise UnsupportedExpression(str(error).split("\n")[0]) from None
    assert isinstance(tree, exp.Expression)
    compiler = ExpressionCompiler(inputs, refs)
    return compiler.of(tree), compiler.by_spark


def compile_condition(expr: Expr, inputs: Inputs) -> TypedTree:
    """Compile a condition for tasks, as a BOOLEAN column.

    Raises:
        UnsupportedExpression: tasks do not support the expression, or it is not a condition.
    """
    condition = compile_column(expr, inputs)
    require(condition.type in (BOOLEAN, VOID), f"it is {condition.type}, and no condition")
    return widen_value(condition, BOOLEAN)
