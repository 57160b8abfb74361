"""Rule: functions of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import Exact, NotExact, call, constant_value

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _of_text(function: str, type_: str) -> Callable[[Compiler, Exact], Exact]:
    def make(_: Compiler, value: Exact) -> Exact:
        if value.type != "STRING":
            raise NotExact(f"{function} of {value.type}")
        return call(function, type_, value)

    return make


def _left(_: Compiler, text: Exact, count: Exact) -> Exact:
    if text.type != "STRING" or not isinstance(constant_value(count), int):
        raise NotExact("left of what is no text")
    return call("left_of", "STRING", text, options=[constant_value(count)])


FUNCTIONS: dict[str, Rule] = {
    "length": arguments(1, _of_text("length", "INT")),
    "len": arguments(1, _of_text("length", "INT")),
    "char_length": arguments(1, _of_text("length", "INT")),
    "character_length": arguments(1, _of_text("length", "INT")),
    "octet_length": arguments(1, _of_text("byte_length", "INT")),
    "reverse": arguments(1, _of_text("reverse", "STRING")),
    "left": arguments(2, _left),
    "substring": lambda compiler, nodes: compiler.piece(nodes),
    "substr": lambda compiler, nodes: compiler.piece(nodes),
    "concat": lambda compiler, nodes: compiler.joined("concat", compiler.all(nodes)),
    "string": arguments(1, lambda compiler, value: compiler.cast_to(value, "STRING")),
}  # fmt: skip
