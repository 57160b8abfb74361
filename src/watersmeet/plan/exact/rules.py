"""What a rule of a function is, and how many arguments it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.values import Exact, NotExact
from watersmeet.spec.model import Expr

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


Rule = Callable[["Compiler", Sequence[Expr]], Exact]
"""Of a call's arguments as they are written. Raises: NotExact."""


def arguments(count: int, make: Callable[..., Exact]) -> Rule:
    """A function of so many arguments."""

    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != count:
            raise NotExact("this number of arguments is not on the list")
        return make(compiler, *compiler.all(nodes))

    return rule
