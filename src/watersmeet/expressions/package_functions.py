"""Functions that installed packages declare: their calls in trees, and over columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.expressions.physical_types import convert_to_physical, native
from watersmeet.expressions.rules import Compiler
from watersmeet.expressions.typed_tree import TypedTree, require, widen_value
from watersmeet.spec.entry_points import FUNCTIONS, load_code
from watersmeet.spec.functions import Function, find_function
from watersmeet.spec.model import Expr
from watersmeet.types.arrow import in_arrow
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import VOID

PREFIX = "package:"
"""Before the function's name in trees; stored digests contain it."""

INSTANTS = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class PackageFunction:
    """The Arrow function of a package, loaded in the process that calls it."""

    name: str

    def __call__(self, *arguments: pa.Array) -> pa.Array:
        """Compute arrays of physical types, as trees have them."""
        types = map(sql_type, self._declared.arguments)
        given = [native(array, type_, True) for array, type_ in zip(arguments, types, strict=True)]
        return convert_to_physical(self.compute(*given))

    def compute(self, *columns: pa.Array) -> pa.Array:
        """Compute columns; arguments of narrower types are widened.

        Raises:
            EngineError: the function fails, or does not return an array of its type and length.
        """
        declared = self._declared
        kinds = [in_arrow(sql_type(text), INSTANTS) for text in (*declared.arguments, declared.result)]
        given = [column.cast(kind) for column, kind in zip(columns, kinds, strict=False)]
        function = load_code(FUNCTIONS, self.name, declared.arrow)
        try:
            result = function(*given)
        except WatersmeetError:
            raise
        except Exception as error:
            raise self._error(f"failed: {type(error).__name__}: {error}") from error
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array) or result.type != kinds[-1] or len(result) != len(columns[0]):
            shown = f"{result.type}[{len(result)}]" if isinstance(result, pa.Array) else type(result).__name__
            raise self._error(f"returned {shown} instead of {kinds[-1]}[{len(columns[0])}]")
        return result

    @property
    def _declared(self) -> Function:
        declared = find_function(self.name)
        if declared is None:
            raise self._error("is not installed here")
        return declared

    def _error(self, what: str) -> EngineError:
        return EngineError(
            f"{self.name}() {what}",
            code="extension-failed",
            hint="correct the package that declares it, and install it on all machines of the cluster",
        )


def compile_package_call(function: Function, compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    """Compile a call, with its arguments cast to the declared types. Raises: UnsupportedExpression."""
    require(len(nodes) == len(function.arguments), "this number of arguments is not on the list")
    trees = []
    for value, text in zip(compiler.all(nodes), function.arguments, strict=True):
        type_ = sql_type(text)
        cast = widen_value(value, type_) if value.type == VOID else compiler.cast_to(value, type_)
        trees.append(cast.tree)
    return TypedTree(("call", PREFIX + function.name, tuple(trees), ()), sql_type(function.result))
