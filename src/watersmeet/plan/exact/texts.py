"""Rule: functions of texts; most of those that count bytes or cut take BINARY, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import Exact, NotExact, call, constant, constant_value, widened
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    VOID,
    SqlType,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

_SMALL = (TINYINT, SMALLINT, INT, VOID)


def as_text(compiler: Compiler, value: Exact) -> Exact:
    """An argument that has to be a STRING, by Spark's implicit casts."""
    if value.type == BINARY:
        raise NotExact("BINARY as STRING may be no UTF-8")
    return compiler.cast_to(value, STRING)


def as_count(value: Exact) -> Exact:
    """An argument that has to be an INT."""
    if value.type not in _SMALL:
        raise NotExact(f"{value.type} as a number of characters")
    return widened(value, INT)


def as_bytes(value: Exact) -> Exact:
    """An argument that has to be BINARY."""
    if value.type == BINARY:
        return value
    if value.type != STRING:
        raise NotExact(f"{value.type} as BINARY")
    return call("as_binary", BINARY, value)


def _either(compiler: Compiler, value: Exact) -> Exact:
    return value if value.type == BINARY else as_text(compiler, value)


def _alike(compiler: Compiler, *values: Exact) -> list[Exact]:
    """All BINARY, or all texts."""
    if any(value.type == BINARY for value in values):
        if any(value.type != BINARY for value in values):
            raise NotExact("a text beside BINARY")
        return list(values)
    return [as_text(compiler, value) for value in values]


def _of(function: str, type_: SqlType) -> Rule:
    """A function of one text."""
    return arguments(1, lambda compiler, value: call(function, type_, as_text(compiler, value)))


def _of_either(function: str, type_: SqlType) -> Rule:
    """A function of one text, or of BINARY."""

    def make(compiler: Compiler, value: Exact) -> Exact:
        text = _either(compiler, value)
        return call(function, type_, text)

    return arguments(1, make)


def _of_texts(function: str, type_: SqlType, count: int) -> Rule:
    """A function of several texts."""
    return arguments(
        count,
        lambda compiler, *values: call(function, type_, *(as_text(compiler, value) for value in values)),
    )


def optional(least: int, most: int, make: Callable[..., Exact]) -> Rule:
    """A function of so many arguments at least and at most."""

    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if not least <= len(nodes) <= most:
            raise NotExact("this number of arguments is not on the list")
        return make(compiler, *compiler.all(nodes))

    return rule


def is_constant(value: Exact) -> bool:
    return value.tree[0] == "constant" and value.tree[1] is not None


def _left(compiler: Compiler, text: Exact, count: Exact) -> Exact:
    if text.type != BINARY and is_constant(count) and count.type in _SMALL:
        return call("left_of", STRING, as_text(compiler, text), options=[constant_value(count)])
    return _piece(compiler, text, constant(1, INT), count)


def _right(compiler: Compiler, text: Exact, count: Exact) -> Exact:
    return call("right_of", STRING, as_text(compiler, text), as_count(count))


def _piece(compiler: Compiler, text: Exact, start: Exact, count: Exact | None = None) -> Exact:
    own = _either(compiler, text)
    first, many = as_count(start), None if count is None else as_count(count)
    if own.type == STRING and is_constant(first) and (many is None or is_constant(many)):
        at, size = constant_value(first), None if many is None else constant_value(many)
        if at >= 1 or (at < 0 and size is None):
            return call("piece", STRING, own, options=[at, size])
    return call("piece_of", own.type, own, first, many or constant(2**31 - 1, INT))


def _trim(where: str, swapped: bool) -> Rule:
    """``swapped``: the characters come first."""

    def make(compiler: Compiler, first: Exact, second: Exact | None = None) -> Exact:
        if second is None:
            return call("trim", STRING, as_text(compiler, first), options=[where])
        text, characters = (second, first) if swapped else (first, second)
        return trimmed(compiler, text, characters, where)

    return optional(1, 2, make)


def trimmed(compiler: Compiler, text: Exact, characters: Exact | None, where: str) -> Exact:
    """TRIM([BOTH | LEADING | TRAILING] … FROM …); ``where``: both, left, right."""
    if characters is None:
        return call("trim", STRING, as_text(compiler, text), options=[where])
    own = as_text(compiler, text), as_text(compiler, characters)
    return call("trim_of", STRING, *own, options=[where])


def _pad(left: bool) -> Rule:
    def make(compiler: Compiler, text: Exact, count: Exact, by: Exact | None = None) -> Exact:
        own = as_text(compiler, text), as_count(count), as_text(compiler, by or constant(" ", STRING))
        return call("pad", STRING, *own, options=[left])

    return optional(2, 3, make)


def _repeat(compiler: Compiler, text: Exact, count: Exact) -> Exact:
    return call("repeat", STRING, as_text(compiler, text), as_count(count))


def _replace(compiler: Compiler, text: Exact, old: Exact, new: Exact | None = None) -> Exact:
    new = new or constant("", STRING)
    if is_constant(old) and is_constant(new) and (old.type, new.type) == (STRING, STRING):
        options = [constant_value(old), constant_value(new)]
        return call("replace_fixed", STRING, as_text(compiler, text), options=options)
    return call("replace", STRING, *(as_text(compiler, part) for part in (text, old, new)))


def overlaid(compiler: Compiler, text: Exact, by: Exact, start: Exact, count: Exact | None = None) -> Exact:
    own = _alike(compiler, text, by)
    size = constant(-1, INT) if count is None else as_count(count)
    return call("overlay", own[0].type, *own, as_count(start), size)


def _contains(where: str) -> Rule:
    def make(compiler: Compiler, text: Exact, other: Exact) -> Exact:
        own, sought = _alike(compiler, text, other)
        if own.type == STRING and is_constant(sought):
            return call("contains_fixed", BOOLEAN, own, options=[constant_value(sought), where])
        return call("contains", BOOLEAN, own, sought, options=[where])

    return arguments(2, make)


def _locate(compiler: Compiler, sought: Exact, text: Exact, start: Exact | None = None) -> Exact:
    own = as_text(compiler, sought), as_text(compiler, text)
    if start is None:
        return call("place_of", INT, own[1], own[0])
    return call("place_from", INT, *own, as_count(start))


def _counted(function: str) -> Callable[..., Exact]:
    def make(compiler: Compiler, text: Exact, delimiter: Exact, number: Exact) -> Exact:
        own = as_text(compiler, text), as_text(compiler, delimiter)
        return call(function, STRING, *own, as_count(number))

    return make


def joined(compiler: Compiler, values: Sequence[Exact]) -> Exact:
    """``||``, `concat`."""
    if not values:
        raise NotExact("a concat of nothing")
    if all(value.type.element is not None for value in values):
        alike = compiler.alike(values)
        return call("put_together", alike[0].type, *alike)
    texts = _alike(compiler, *values)
    return call("concat", texts[0].type, *texts)


def _reverse(compiler: Compiler, value: Exact) -> Exact:
    if value.type.element is not None:
        return call("reverse_list", value.type, value)
    text = _either(compiler, value)
    return call("reverse", text.type, text)


def _concat_ws(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if not nodes:
        raise NotExact("a concat_ws of nothing")
    return call("concat_ws", STRING, *(as_text(compiler, value) for value in compiler.all(nodes)))


def _elt(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if len(nodes) < 2:
        raise NotExact("an elt of nothing")
    number, *given = compiler.all(nodes)
    number, texts = as_count(number), [as_text(compiler, value) for value in given]
    conditions = [compiler.compared("=", number, constant(n, INT)) for n in range(1, len(texts) + 1)]
    return compiler.case_of(conditions, texts, call("no_such_choice", STRING, number, options=[len(texts)]))


def _chr(_: Compiler, number: Exact) -> Exact:
    if number.type not in INTEGERS:
        raise NotExact(f"chr of {number.type}")
    return call("chr", STRING, widened(number, BIGINT))


def _mask(compiler: Compiler, text: Exact, *by: Exact) -> Exact:
    chosen: list[Any] = ["X", "x", "n", None]
    for n, replacement in enumerate(by):
        if replacement.tree[0] != "constant" or replacement.type not in (STRING, VOID):
            raise NotExact("what stands for letters is not constant")
        chosen[n] = replacement.tree[1]
        if chosen[n] is not None and (len(chosen[n]) != 1 or chosen[n] > "\uffff"):
            raise NotExact("what stands for letters is not one character")
    return call("mask", STRING, as_text(compiler, text), options=chosen)


def _levenshtein(compiler: Compiler, left: Exact, right: Exact, most: Exact | None = None) -> Exact:
    own = as_text(compiler, left), as_text(compiler, right)
    if most is None:
        return call("levenshtein", INT, *own)
    if most.type != INT:  # of NULL Spark says now this and now that
        raise NotExact("a threshold that is not an INT")
    return call("levenshtein_within", INT, *own, options=[constant_value(most)])


def _format_string(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if not nodes:
        raise NotExact("a format_string of nothing")
    format_, *values = compiler.all(nodes)
    if format_.type != STRING:
        raise NotExact("a format that is not text")
    parts = re.split(r"(%%|%s|%d)", constant_value(format_))
    if any("%" in part for part in parts[::2]):
        raise NotExact("a format with other directives than %s, %d and %%")
    given = [part for part in parts[1::2] if part != "%%"]
    if len(given) != len(values):
        raise NotExact("a format with another number of directives than of arguments")
    own: list[Exact] = []
    for directive, value in zip(given, values, strict=True):
        fits = value.type in INTEGERS or (directive == "%s" and value.type in (STRING, BOOLEAN))
        if not fits:
            raise NotExact(f"{directive} of {value.type}")
        own.append(call("text_or_null_word", STRING, as_text(compiler, value)))
    wanted = "".join("%s" if part == "%d" else part for part in parts)
    if not own:
        return constant(wanted.replace("%%", "%"), STRING)
    return call("formatted", STRING, *own, options=[wanted])


def _typeof(_: Compiler, value: Exact) -> Exact:
    if value.type not in (*INTEGERS, *_NAMED) and not value.type.is_decimal:
        raise NotExact(f"the name of {value.type}")
    return constant(str(value.type).lower(), STRING)


def _collation(compiler: Compiler, value: Exact) -> Exact:
    if value.type != STRING:
        raise NotExact(f"the collation of {value.type}")
    return constant("SYSTEM.BUILTIN.UTF8_BINARY", STRING)


_NAMED = (
    FLOAT, DOUBLE, BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, VOID,
)  # fmt: skip

_UPPER, _LOWER = _of("upper", STRING), _of("lower", STRING)
_LENGTH = _of_either("length", INT)
_LOCATE = optional(2, 3, _locate)

FUNCTIONS: dict[str, Rule] = {
    "length": _LENGTH, "len": _LENGTH, "char_length": _LENGTH, "character_length": _LENGTH,
    "octet_length": _of_either("byte_length", INT),
    "bit_length": _of_either("bit_length", INT),
    "reverse": arguments(1, _reverse),
    "upper": _UPPER, "ucase": _UPPER, "lower": _LOWER, "lcase": _LOWER,
    "initcap": _of("initcap", STRING),
    "trim": _trim("both", True), "ltrim": _trim("left", True), "rtrim": _trim("right", True),
    "btrim": _trim("both", False),
    "lpad": _pad(True), "rpad": _pad(False),
    "repeat": arguments(2, _repeat),
    "space": arguments(1, lambda compiler, count: _repeat(compiler, constant(" ", STRING), count)),
    "replace": optional(2, 3, _replace),
    "translate": _of_texts("translate", STRING, 3),
    "overlay": optional(3, 4, overlaid),
    "left": arguments(2, _left),
    "right": arguments(2, _right),
    "substring": optional(2, 3, _piece), "substr": optional(2, 3, _piece),
    "substring_index": arguments(3, _counted("substring_index")),
    "split_part": arguments(3, _counted("split_part")),
    "instr": _of_texts("place_of", INT, 2),
    "locate": _LOCATE, "position": _LOCATE,
    "find_in_set": _of_texts("find_in_set", INT, 2),
    "contains": _contains("anywhere"), "startswith": _contains("start"), "endswith": _contains("end"),
    "concat": lambda compiler, nodes: joined(compiler, compiler.all(nodes)),
    "concat_ws": _concat_ws,
    "elt": _elt,
    "ascii": _of("ascii", INT),
    "chr": arguments(1, _chr), "char": arguments(1, _chr),
    "soundex": _of("soundex", STRING),
    "levenshtein": optional(2, 3, _levenshtein),
    "luhn_check": _of("luhn_check", BOOLEAN),
    "mask": optional(1, 5, _mask),
    "quote": _of("quote", STRING),
    "format_string": _format_string, "printf": _format_string,
    "typeof": arguments(1, _typeof),
    "collation": arguments(1, _collation),
    "string": arguments(1, lambda compiler, value: compiler.cast_to(value, STRING)),
}  # fmt: skip

NOTES = {
    "levenshtein": "a constant threshold", "mask": "constant replacements",
    "chr": "integers", "char": "integers",
    "format_string": "a constant format of %s, %d and %%; texts, integers and BOOLEANs",
    "printf": "a constant format of %s, %d and %%; texts, integers and BOOLEANs",
    "right": "texts", "lpad": "texts", "rpad": "texts",
}  # fmt: skip
