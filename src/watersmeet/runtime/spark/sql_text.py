"""Write names, literals and expressions as Spark SQL, and name the expression that Spark cannot resolve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.runtime.spark.errors import innermost_message
from watersmeet.spec.model import Expr


def quote_name(name: str) -> str:
    """Quote ``name`` in backticks.

    >>> quote_name("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def find_mentioned_names(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the names of columns that are in one of these expressions, as `to_spark_sql` writes them.

    >>> find_mentioned_names(["a", "b"], ["`b` + 1"])
    ['b']
    """
    return [name for name in names if any(quote_name(name) in text for text in texts)]


def literal(text: str) -> str:
    """Quote ``text`` as a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def only_utf8(text: str) -> str:
    """Build the SQL of a text that is NULL if its bytes are not UTF-8.

    Spark's parsers would replace such bytes by U+FFFD without an error.

    Args:
        text: an expression.
    """
    return f"IF(is_valid_utf8({text}), {text}, NULL)"


def bind_value(name: str, value: str, body: str) -> str:
    """Return ``body``, in which ``name`` stands for ``value``; both are expressions.

    The value stands in the plan once and is evaluated once, however often the body names it: an expression
    that repeats a long one can take Spark's analyser seconds.

    >>> bind_value("t", "trim(line)", "concat(t, t)")
    'get(transform(array(trim(line)), t -> concat(t, t)), 0)'
    """
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def options_map(options: Mapping[str, str]) -> str:
    """Format parser options as the argument of ``from_json`` and similar functions.

    >>> options_map({"mode": "PERMISSIVE"})
    "map('mode', 'PERMISSIVE')"
    """
    return f"map({', '.join(f'{literal(k)}, {literal(v)}' for k, v in sorted(options.items()))})"


def to_spark_sql(expr: Expr) -> str:
    """Format the expression for Spark's parser, with columns in backticks."""
    return expr.transform(_quote).sql(dialect="spark")


def _quote(node: Expr) -> Expr:
    if isinstance(node, exp.Column):
        for part in node.parts:
            if isinstance(part, exp.Identifier):
                part.set("quoted", True)
    return node


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
