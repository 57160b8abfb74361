"""Rule: functions of vectors, which are ARRAYs of FLOAT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import Exact, NotExact, call
from watersmeet.types.sql_type import FLOAT, SqlType, array

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

_VECTOR = array(FLOAT)


def _of(function: str, type_: SqlType) -> Callable[..., Exact]:
    def make(_: Compiler, *vectors: Exact) -> Exact:
        for vector in vectors:
            if vector.type != _VECTOR:
                raise NotExact(f"{function} of {vector.type}")
        return call(function, type_, *vectors)

    return make


FUNCTIONS: dict[str, Rule] = {
    "vector_norm": arguments(1, _of("vector_norm", FLOAT)),
    "vector_normalize": arguments(1, _of("vector_normalize", _VECTOR)),
    "vector_inner_product": arguments(2, _of("vector_inner_product", FLOAT)),
    "vector_l2_distance": arguments(2, _of("vector_l2_distance", FLOAT)),
    "vector_cosine_similarity": arguments(2, _of("vector_cosine_similarity", FLOAT)),
}

NOTES = {"vector_norm": "the degree 2", "vector_normalize": "the degree 2"}
