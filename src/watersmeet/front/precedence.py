"""Operators without parentheses that Spark puts together in another way than the text is read here: refused.

Spark has ``&`` before ``^`` before ``|``, shifts before all three, ``||`` beside ``+`` and ``-``, and reads
comparisons from left to right, whichever they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.front.place import Text
from watersmeet.spec.model import Expr

_BITS = (exp.BitwiseAnd, exp.BitwiseXor, exp.BitwiseOr)
_SHIFTS = (exp.BitwiseLeftShift, exp.BitwiseRightShift)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_PREDICATES = (*_COMPARISONS, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike)


def check_precedence(tree: Expr, text: Text) -> None:
    """Report each such pair of operators of an expression as it was parsed."""
    for node in tree.find_all(exp.Expression):
        for part in _unclear(node):
            text.problem(
                f"{node.sql('spark')}: Spark may put these operators together in another way",
                "unclear-order",
                node if text.place(node) else tree,
                f"put parentheses around {part.sql('spark')}, or around what else belongs together",
            )


def _unclear(node: Expr) -> Iterator[Expr]:
    operands = [each for each in (node.this, node.args.get("expression")) if isinstance(each, exp.Expression)]
    if isinstance(node, _BITS):
        yield from (each for each in operands if isinstance(each, _BITS) and type(each) is not type(node))
    elif isinstance(node, _SHIFTS):
        yield from (each for each in operands if isinstance(each, _BITS))
    elif isinstance(node, exp.DPipe):
        yield from (each for each in operands if isinstance(each, (*_BITS, *_SHIFTS)))
        yield from (each for each in operands[1:] if isinstance(each, exp.Add | exp.Sub))
    elif isinstance(node, _COMPARISONS):
        for each in operands[1:]:
            plain = each.this if isinstance(each, exp.Not) else each
            if isinstance(plain, _PREDICATES):
                yield each
