"""Texts that Spark reads as a time of its clock ('now', 'today UTC'): refused where they may become a time.

Spark reads them so wherever it makes a DATE or TIMESTAMP of a text without columns: by a cast, or because of
what stands beside it. Where the other one's type is not known, it may be a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from watersmeet.spec.model import Expr
from watersmeet.types.intervals import is_interval
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import STRING, UNKNOWN, SqlType

_NOW = re.compile(
    r"now|(today|tomorrow|yesterday)\s*(z|[+-][\d:]+|(utc|gmt|ut)([+-][\d:]+)?|[a-z]{3}|[a-z_]+/\S+)?",
    re.IGNORECASE,
)
_OF_TIMES = frozenset(
    {
        "add_months", "convert_timezone", "date", "date_add", "date_diff", "date_format", "date_part",
        "date_sub", "date_trunc", "dateadd", "datediff", "datepart", "day", "dayname", "dayofmonth",
        "dayofweek", "dayofyear", "extract", "from_utc_timestamp", "hour", "last_day", "minute", "month",
        "monthname", "months_between", "next_day", "quarter", "second", "time_bucket", "timestamp",
        "timestampadd", "timestampdiff", "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz",
        "to_unix_timestamp", "to_utc_timestamp", "trunc", "try_to_date", "try_to_timestamp", "unix_date",
        "unix_micros", "unix_millis", "unix_seconds", "unix_timestamp", "weekday", "weekofyear", "year",
    }
)  # fmt: skip
"""Functions that make a time of their arguments."""

_OF_TIMES_HERE = (
    exp.Extract, exp.TimestampAdd, exp.TimestampDiff, exp.DateAdd, exp.DateSub, exp.DateDiff, exp.TsOrDsAdd,
    exp.TsOrDsDiff, exp.TsOrDsToDate, exp.DateTrunc, exp.TimestampTrunc, exp.TimeStrToTime,
    exp.TsOrDsToTimestamp,
)  # fmt: skip
"""The same with a grammar of their own."""

_NO_TIME = {
    **dict.fromkeys(("date_part", "datepart", "date_trunc"), 0),
    **dict.fromkeys(
        (
            "date_format", "from_utc_timestamp", "next_day", "to_date", "to_timestamp", "to_timestamp_ltz",
            "to_timestamp_ntz", "to_unix_timestamp", "to_utc_timestamp", "trunc", "try_to_date",
            "try_to_timestamp", "unix_timestamp",
        ),
        1,
    ),
}  # fmt: skip
"""The place of the argument that is a pattern, a unit, a day of the week or a zone: a text, and no time."""

_NO_TIME_HERE = ("format", "unit", "zone", "source_tz", "target_tz")
"""The same of functions that sqlglot knows."""

_ALIKE = frozenset(
    {
        "array", "array_append", "array_contains", "array_insert", "array_position", "array_prepend",
        "array_remove", "array_repeat", "arrays_overlap", "array_union", "array_except", "array_intersect",
        "between", "coalesce", "decode", "element_at", "equal_null", "greatest", "if", "ifnull", "least",
        "map", "map_contains_key", "nullif", "nvl", "nvl2", "sequence", "try_add",
        "try_element_at", "try_subtract",
    }
)  # fmt: skip
"""Functions that make one type of their arguments."""

_ALIKE_HERE = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub,
    exp.Between, exp.In, exp.Array, exp.Bracket, exp.Map, exp.VarMap,
)  # fmt: skip

_OF_TEXTS = (exp.DPipe, exp.Concat, exp.Coalesce, exp.Case, exp.If)

Problem = tuple[str, str, str | None]


def clock_text(node: Expr, kind: Callable[[Expr], SqlType], name: str | None) -> Problem | None:
    """What is wrong with an operand that is such a text, or may be one when it is computed.

    Args:
        kind: the type of an operand; unknown for texts and NULL.
        name: the function's, as Spark has it.
    """
    if isinstance(node, exp.Cast):
        return _found([node.this], kind) if _holds_time(sql_type(node.to.sql("spark"))) else None
    if name in _OF_TIMES or isinstance(node, _OF_TIMES_HERE):
        return _found(_times(node, name), kind)
    for beside in _alike(node, name):
        steps = isinstance(node, (exp.Add, exp.Sub)) and any(is_interval(operand) for operand in beside)
        if steps or any(_holds_time(kind(operand)) for operand in beside):
            return _found(beside, kind)
        unknown = next((operand for operand in beside if _may_be_time(operand, kind)), None)
        if unknown is not None and (now := next((e for e in beside if _is_now(e)), None)) is not None:
            return (
                f"'{_text(now)}' with {unknown.sql('spark')} may be read as the current time, which is"
                " not supported: a repeated tick must see the same clock",
                "not-supported",
                f"if it is text, write CAST({unknown.sql('spark')} AS STRING), or AS ARRAY<STRING>",
            )
    return None


def _times(node: Expr, name: str | None) -> list[Expr]:
    """The arguments of a function of times that it makes times of."""
    if isinstance(node, exp.Anonymous):
        return [
            operand for place, operand in enumerate(node.expressions) if place != _NO_TIME.get(name or "")
        ]
    given = [operand for operand in node.iter_expressions() if operand.arg_key not in _NO_TIME_HERE]
    return given[:1] if isinstance(node, exp.NextDay) else given


def _found(operands: Sequence[Expr], kind: Callable[[Expr], SqlType]) -> Problem | None:
    """What becomes a time."""
    for operand in operands:
        text = _text(operand)
        if text is None and not _is_computed_text(operand, kind):
            continue
        if text is None or _is_now(operand):
            said = f"'{text}'" if text is not None else f"{operand.sql('spark')}, a computed text,"
            return (
                f"{said} as a time is not supported: a repeated tick must see the same clock",
                "not-supported",
                "use a time column of the stream"
                if text is not None
                else "write it as one text, such as TIMESTAMP '2024-01-01 00:00:00'",
            )
    return None


def _alike(node: Expr, name: str | None) -> Iterator[list[Expr]]:
    """The operands of which Spark makes one type."""
    if isinstance(node, exp.Case):
        whens = node.args.get("ifs") or []
        otherwise = [node.args["default"]] if node.args.get("default") is not None else []
        yield [*(when.args["true"] for when in whens), *otherwise]
        if node.this is not None:
            yield [node.this, *(when.this for when in whens)]
    elif isinstance(node, exp.If):
        if not isinstance(node.parent, exp.Case):
            yield [branch for branch in (node.args.get("true"), node.args.get("false")) if branch is not None]
    elif name in _ALIKE or isinstance(node, _ALIKE_HERE):
        yield list(node.iter_expressions())


def _is_now(node: Expr) -> bool:
    text = _text(node)
    return text is not None and _NOW.fullmatch(text.strip()) is not None


def _text(node: Any) -> str | None:
    """Of a literal, and of one that is said to be a text."""
    plain: Any = node.unnest()
    while isinstance(plain, exp.Cast) and sql_type(plain.to.sql("spark")) == STRING:
        plain = plain.this.unnest()
    return str(plain.name) if isinstance(plain, exp.Literal) and plain.is_string else None


def _is_computed_text(node: Expr, kind: Callable[[Expr], SqlType]) -> bool:
    """Whether its operands are texts that are written, and no columns: Spark computes it before it runs."""
    plain: Any = node.unnest()
    if plain.find(exp.Column) is not None or not any(
        literal.is_string for literal in plain.find_all(exp.Literal)
    ):
        return False
    type_ = kind(plain)
    return type_ == STRING or (type_ == UNKNOWN and isinstance(plain, _OF_TEXTS))


def _may_be_time(node: Expr, kind: Callable[[Expr], SqlType]) -> bool:
    plain: Any = node.unnest()
    of_texts = (exp.Literal, exp.Null, exp.Interval, exp.Split, exp.RegexpSplit)
    if isinstance(plain, of_texts) or _text(plain) is not None:
        return False
    if isinstance(plain, (exp.Array, exp.Case, exp.Coalesce)):
        return any(_may_be_time(operand, kind) for beside in _alike(plain, "array") for operand in beside)
    type_ = kind(plain)
    return type_ == UNKNOWN or _holds_time(type_)


def _holds_time(kind: SqlType) -> bool:
    return any(inner.is_time for inner in kind.every)
