"""Calls and operators that Spark rejects for their names or number of arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.query.expressions.constants import clock_text, constant_problem
from watersmeet.parser.query.expressions.operators import (
    Kind,
    Problem,
    comparisons,
    format_expression,
    not_a_condition,
    operator_problem,
    unlike_arguments,
    unlike_key,
    unlike_operands,
)
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.types.inference import Call, Types, call_as_written
from watersmeet.spec.functions import Signature, family_of, function_names, signature_of, spark_version
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import UNKNOWN, SqlType

# Lambdas of functions of ARRAYs and MAPs: calls that Spark refuses.

_COUNTS: dict[str, tuple[int, ...]] = {
    "transform": (1, 2), "filter": (1, 2), "exists": (1,), "forall": (1,), "array_sort": (2,),
    "zip_with": (2,), "map_filter": (2,), "transform_keys": (2,), "transform_values": (2,),
    "map_zip_with": (3,),
}  # fmt: skip
_CONDITIONS = ("filter", "exists", "forall", "map_filter")


def lambda_problem(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    """Return the problem of a call with a lambda argument, or None.

    Check the type of its collection, the number of lambda parameters, and the type of the result.
    """
    if name in ("aggregate", "reduce") and given and family_of(kind(given[0])) not in (None, "ARRAY"):
        said = f"{name}(): {format_expression(given[0])} is {kind(given[0])}, not an ARRAY"
        return said, "wrong-arguments", None
    counts = _COUNTS.get(name)
    lambdas = [operand for operand in given if isinstance(operand, exp.Lambda)]
    if counts is None or len(lambdas) != 1 or given[-1] is not lambdas[0]:
        return None
    wanted = "MAP" if "map" in name or name in ("transform_keys", "transform_values") else "ARRAY"
    for argument in given[:-1]:
        family = family_of(kind(argument))
        if family not in (None, wanted):
            return (
                f"{name}(): {format_expression(argument)} is {kind(argument)}, not {wanted}",
                "wrong-arguments",
                None,
            )
    count = len(lambdas[0].expressions)
    if count not in counts:
        said = " or ".join(map(str, counts))
        return f"{name}() takes a lambda of {said} parameters, not of {count}", "wrong-arguments", None
    if name in _CONDITIONS:
        return not_a_condition(lambdas[0].this, kind, f"{name}()")
    return None


# Calls and operators that Spark would refuse once it has started: refused where they stand in the text.
#
# What is known of Spark's functions is in `spec.functions`. Only what is certain is refused: an argument
# whose type is not known, a literal that Spark may read as something else, or a function with a grammar
# of its own is left to Spark.

TypeOf = Callable[[exp.Column], SqlType]

OWN_FUNCTIONS = ("spark.sql.extensions", "spark.sql.catalogimplementation", "spark.sql.catalog.")
"""Settings of Spark by which it may have functions that are in no table."""

_GRAMMAR = frozenset(
    {
        "cast", "try_cast", "extract", "trim", "position", "struct", "timestampadd",
        "timestampdiff", "dateadd", "datediff", "date_add", "date_diff", "exists", "interval", "map", "array",
        "row", "values", "in", "not", "and", "or", "if", "case", "count", "grouping", "grouping_id",
    }
)  # fmt: skip
"""Names before parentheses that are more than names, or whose arguments are."""

_DAYS = ("date_add", "date_diff", "datediff", "dateadd")
"""With a unit they take three arguments."""

_NO_CALLS = (exp.Connector, exp.Case, exp.Cast)
"""What sqlglot counts among functions."""


def check_calls(
    tree: Expr, type_of_column: TypeOf, text: Text, written: Expr | None = None, clause: str | None = None
) -> None:
    """Report the calls and operators of a resolved expression that Spark certainly rejects.

    Of nested ones, only the innermost is reported.

    Args:
        written: The expression before it was resolved; it locates the parts of ``tree`` that have no place.
        clause: The clause whose condition this is (WHERE, ON); None: it is no condition.
    """

    types = Types(type_of_column)

    def kind(node: Expr) -> SqlType:
        """Return the type of a node; UNKNOWN for text literals and NULL.

        Spark converts those to the type that the other operands need.
        """
        plain = node.unnest()
        is_text = isinstance(plain, exp.Literal) and plain.is_string
        return UNKNOWN if is_text or isinstance(plain, exp.Null) else types.of(plain)

    wrong: set[int] = set()
    for node in reversed(list(tree.find_all(exp.Expression))):
        if wrong and any(id(below) in wrong for below in node.walk()):
            continue
        problem = _problem(node, kind, text)
        if problem is not None:
            message, code, hint = problem
            text.problem(message, code, node if text.place(node) else written, hint)
            wrong.add(id(node))
    if clause is not None and not wrong and (problem := not_a_condition(tree, kind, clause)) is not None:
        text.problem(problem[0], problem[1], tree if text.place(tree) else written, problem[2])


def _problem(node: Expr, kind: Callable[[Expr], SqlType], text: Text) -> Problem | None:
    called = None if isinstance(node, _NO_CALLS) or not isinstance(node, exp.Func) else call_as_written(node)
    name = called[0].lower() if called is not None else None
    now = clock_text(node, kind, name)
    if now is not None:
        return now
    wrong = operator_problem(node, kind) or _unlike(node, kind)
    if wrong is None:
        wrong = constant_problem(node, kind, name)
    if wrong is not None:
        return wrong
    return None if called is None else _wrong_call(called, kind, text)


def _unlike(node: Expr, kind: Callable[[Expr], SqlType]) -> Problem | None:
    if isinstance(node, exp.Bracket):
        return unlike_key(node, kind)
    for operator, left, right in comparisons(node):
        problem = unlike_operands(node, operator, (left, kind(left)), (right, kind(right)))
        if problem is not None:
            return problem
    return None


def _wrong_call(called: Call, kind: Callable[[Expr], SqlType], text: Text) -> Problem | None:
    name, arguments, given = called
    wrong = None
    if given is not None:
        wrong = lambda_problem(name.lower(), given, kind) or unlike_arguments(name.lower(), given, kind)
    if wrong is not None or (name.lower() in _GRAMMAR and not (name.lower() in _DAYS and arguments == 2)):
        return wrong
    signature = signature_of(name)
    if signature is None:
        if text.own_functions:
            return None
        if name.lower() == "identifier":
            said = "IDENTIFIER() is not supported: names must be known when the job is parsed"
            return said, "not-supported", "write the name itself, in backticks if it is not a plain word"
        hint = near_names(name.lower(), function_names())
        return (
            f"there is no function {name}() in Spark {spark_version()}",
            "unknown-function",
            hint
            if hint and hint.startswith("did")
            else "use a function of Spark SQL; in Python, apply a UDF to the DataFrame before stream(df, …)",
        )
    if arguments is None:
        return None
    if not signature.takes(arguments):
        said = f"{arguments} {'is' if arguments == 1 else 'are'} given"
        return f"{name}() takes {signature.words()}, and {said}", "wrong-arguments", None
    return _wrong_types(name, given, signature, kind)


def _wrong_types(
    name: str, given: Sequence[Expr] | None, signature: Signature, kind: Callable[[Expr], SqlType]
) -> Problem | None:
    """Return the problem of an argument whose type the function does not accept, or None.

    Check only calls whose arguments are identified and whose types are all known, because next to an
    INTERVAL, for example, a function accepts other types than the table lists. Spark converts text
    literals and NULL to the type that it needs.
    """
    lists = signature.refused.get(len(given or ()))
    if given is None or lists is None:
        return None
    kinds = [kind(operand) for operand in given]
    if any(family_of(its) is None and not _fits(operand) for operand, its in zip(given, kinds, strict=True)):
        return None
    for number, (argument, type_, refused) in enumerate(zip(given, kinds, lists, strict=True), 1):
        if family_of(type_) in refused:
            which = "its argument" if len(given) == 1 else f"argument {number}"
            return (
                f"{name}(): {which}, {format_expression(argument)}, is {type_}, which it does not accept",
                "wrong-arguments",
                "cast it",
            )
    return None


def _fits(argument: Expr) -> bool:
    plain = argument.unnest()
    return isinstance(plain, exp.Null) or (isinstance(plain, exp.Literal) and plain.is_string)
