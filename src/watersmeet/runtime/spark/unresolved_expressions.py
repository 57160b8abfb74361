"""Expressions that only Spark can judge and does not take: said by the query and the expression, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from watersmeet.errors import EngineError
from watersmeet.runtime.spark.errors import innermost_message

CODE = "not-resolved"

_HINTS = {
    "UNRESOLVED_ROUTINE": "use a function of Spark SQL",
    "DATATYPE_MISMATCH": "cast its arguments to the types it accepts: CAST(x AS type)",
    "WRONG_NUM_ARGS": "pass the number of arguments that it accepts",
    "UNRESOLVED_COLUMN": "write strings in single quotes and names in backticks",
}


@contextmanager
def name_unresolved(
    where: str, texts: Callable[[], Iterable[tuple[str, Callable[[], object]]]]
) -> Iterator[None]:
    """Raise errors of the block that Spark cannot resolve as one that names the expression.

    Args:
        where: the place, such as ``INSERT "delivered"``.
        texts: returns the expressions, each with a function that analyses it alone; called after a
            failure.

    Raises:
        EngineError: ``not-resolved``; it names ``where`` and the expression.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        for text, analyse in texts():
            try:
                analyse()
            except (AnalysisException, ParseException) as alone:
                raise _unresolved_error(f"{where}, {text}", alone) from None
        raise _unresolved_error(where, error) from None


def _unresolved_error(where: str, error: Exception) -> EngineError:
    condition = str(getattr(error, "getCondition", lambda: "")() or "")
    hint = next((hint for name, hint in _HINTS.items() if condition.startswith(name)), None)
    return EngineError(
        f"{where}: {innermost_message(error)}", code=CODE, hint=hint or "correct the expression"
    )
