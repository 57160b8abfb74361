"""Constants that Spark rejects, and text that Spark reads as the current time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from watersmeet.parser.query.expressions.operators import Kind, Problem, format_expression
from watersmeet.spec.functions import family_of, signature_of
from watersmeet.spec.java_patterns import PatternError, groups_of
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import pattern_problem
from watersmeet.types.intervals import is_interval
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import STRING, TIMES, UNKNOWN, SqlType

# Texts that Spark reads as a time of its clock ('now', 'today UTC'): refused where they may become a
# time.
#
# Spark reads them so wherever it makes a DATE or TIMESTAMP of a text without columns: by a cast, or
# because of what stands beside it. Where the other one's type is not known, it may be a time.

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

ClockProblem = tuple[str, str, str | None]


def clock_text(node: Expr, kind: Callable[[Expr], SqlType], name: str | None) -> ClockProblem | None:
    """Return the problem of an operand that is a clock text, or may compute to one, or None.

    Spark reads a clock text, such as 'now', as the current time.

    Args:
        kind: Returns the type of an operand; unknown for texts and NULL.
        name: The name of the function in Spark.
    """
    if isinstance(node, exp.Cast):
        return _find_clock_problem([node.this], kind) if _holds_time(sql_type(node.to.sql("spark"))) else None
    if name in _OF_TIMES or isinstance(node, _OF_TIMES_HERE):
        return _find_clock_problem(_times(node, name), kind)
    for beside in _alike(node, name):
        steps = isinstance(node, (exp.Add, exp.Sub)) and any(is_interval(operand) for operand in beside)
        if steps or any(_holds_time(kind(operand)) for operand in beside):
            return _find_clock_problem(beside, kind)
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
    """Return the arguments that a function of times converts to times."""
    if isinstance(node, exp.Anonymous):
        return [
            operand for place, operand in enumerate(node.expressions) if place != _NO_TIME.get(name or "")
        ]
    given = [operand for operand in node.iter_expressions() if operand.arg_key not in _NO_TIME_HERE]
    return given[:1] if isinstance(node, exp.NextDay) else given


def _find_clock_problem(operands: Sequence[Expr], kind: Callable[[Expr], SqlType]) -> ClockProblem | None:
    """Find the problem of an operand that Spark converts to a time, or return None."""
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
    """Yield lists of operands that Spark converts to one common type."""
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
    """Return the text of a string literal, also inside casts to STRING; None for any other node."""
    plain: Any = node.unnest()
    while isinstance(plain, exp.Cast) and sql_type(plain.to.sql("spark")) == STRING:
        plain = plain.this.unnest()
    return str(plain.name) if isinstance(plain, exp.Literal) and plain.is_string else None


def _is_computed_text(node: Expr, kind: Callable[[Expr], SqlType]) -> bool:
    """Return True if the node computes a text from text literals and has no columns.

    Spark computes such an expression before it runs the query.
    """
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


# Constants that Spark refuses once it meets a row: patterns of texts and times, fields of times.

_FIELDS = frozenset(
    {
        "YEAR", "Y", "YEARS", "YR", "YRS", "YEAROFWEEK", "QUARTER", "QTR", "MONTH", "MON", "MONS", "MONTHS",
        "WEEK", "W", "WEEKS", "DAY", "D", "DAYS", "DAYOFWEEK", "DOW", "DAYOFWEEK_ISO", "DOW_ISO", "DOY",
        "HOUR", "H", "HOURS", "HR", "HRS", "MINUTE", "M", "MIN", "MINS", "MINUTES",
        "SECOND", "S", "SEC", "SECONDS", "SECS",
    }
)  # fmt: skip
_PARTS = ("date_part", "datepart")
_REGULAR = frozenset(
    {
        "regexp", "regexp_like", "rlike", "regexp_count", "regexp_extract", "regexp_extract_all",
        "regexp_instr", "regexp_replace", "regexp_substr", "split",
    }
)  # fmt: skip
_WITH_GROUP = ("regexp_extract", "regexp_extract_all")
_WRITES = ("date_format", "from_unixtime")
_WRITES_TIMES = ("to_char", "to_varchar")
_READS = frozenset(
    {
        "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz", "try_to_date",
        "try_to_timestamp", "to_unix_timestamp", "unix_timestamp",
    }
)  # fmt: skip
_WITH_UNIT = (exp.TimestampAdd, exp.TimestampDiff, exp.DateDiff)
_UNITS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND"),
    *("MILLISECOND", "MICROSECOND"),
)
_CONSTANT = {
    **dict.fromkeys(
        ("round", "bround", "from_json", "from_csv", "from_xml", "to_number", "try_to_number"), 1
    ),
    **dict.fromkeys(("schema_of_json", "schema_of_csv", "schema_of_xml", "named_struct"), 0),
}
"""The argument that Spark has to know before there are rows."""

_NAMED = {1: ("decimals", "expression", "schema", "format"), 0: ("this",)}
_TIME_HINT = "use a pattern such as 'yyyy-MM-dd HH:mm:ss.SSS', with literal text in doubled quotes: ''T''"


def constant_problem(node: Expr, kind: Kind, name: str | None) -> Problem | None:
    """Return the problem of a constant of ``node``, or None.

    Args:
        name: The name of the function in Spark.
    """
    if isinstance(node, (exp.Like, exp.ILike)):
        return _like(node)
    if isinstance(node, exp.Extract) or name in _PARTS:
        return _field(node, kind)
    if isinstance(node, _WITH_UNIT) and isinstance(node.args.get("unit"), exp.Var):
        return _unit(node, kind)
    if name in _CONSTANT:
        return _not_constant(node, name)
    if isinstance(node, exp.RegexpLike) or name in _REGULAR:
        return _regular(node, name)
    if name in _WRITES or name in _WRITES_TIMES or name in _READS:
        return _time_pattern(node, kind, name)
    return None


def _argument(node: Expr, place: int, *keys: str) -> Any:
    """Return an argument of a function, without parentheses, or None.

    Find it by position if the call is unparsed (anonymous), otherwise by one of ``keys``.
    """
    if isinstance(node, exp.Anonymous):
        argument = node.expressions[place] if place < len(node.expressions) else None
    else:
        argument = next((node.args[key] for key in keys if node.args.get(key) is not None), None)
    return argument.unnest() if isinstance(argument, exp.Expression) else None


def _literal_text(node: Any) -> str | None:
    return str(node.name) if isinstance(node, exp.Literal) and node.is_string else None


def _like(node: Expr) -> Problem | None:
    pattern = _literal_text(node.expression.unnest())
    if pattern is None:
        return None
    sign = node.parent.expression.name if isinstance(node.parent, exp.Escape) else "\\"
    place = 0
    while (place := pattern.find(sign, place)) >= 0:
        following = pattern[place + 1 : place + 2]
        if following not in ("_", "%", sign):
            what = f"before {following}" if following else "at its end"
            return (
                f"{format_expression(node)}: the pattern has {sign} {what}, which is not allowed",
                "bad-pattern",
                f"{sign} is allowed before %, _ and itself only; in SQL text write each \\ twice",
            )
        place += 2
    return None


def _field(node: Expr, kind: Kind) -> Problem | None:
    if isinstance(node, exp.Extract):
        field, of = str(node.this.name), node.expression
    else:
        given, of = _argument(node, 0, "this"), _argument(node, 1, "expression")
        text = _literal_text(given)
        if isinstance(given, exp.Column):
            return (
                f"{format_expression(node)}: the field must be a constant",
                "bad-pattern",
                "write the name of the field: 'YEAR'",
            )
        if text is None or of is None:
            return None
        field = text
    if field.upper() not in _FIELDS:
        return (
            f"{format_expression(node)}: unknown field {field}",
            "bad-pattern",
            "use YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE or SECOND; for seconds"
            " since 1970 use unix_seconds()",
        )
    type_ = kind(of)
    year = signature_of("year")
    if year is not None and 1 in year.refused and family_of(type_) in year.refused[1][0]:
        return (
            f"{format_expression(node)}: {format_expression(of)} is {type_}, not a date or time",
            "wrong-types",
            "cast it: CAST(… AS TIMESTAMP)",
        )
    return None


def _unit(node: Expr, kind: Kind) -> Problem | None:
    """Return the problem of the unit or the times of a call with a unit, or None.

    Such a call is ``timestampadd(unit, n, time)``, for example.
    """
    unit = str(node.args["unit"].name).upper()
    if unit not in _UNITS:
        return (
            f"{format_expression(node)}: there is no unit {unit}",
            "bad-pattern",
            "units are " + ", ".join(_UNITS) + ", without quotes",
        )
    year = signature_of("year")
    refused = year.refused[1][0] if year is not None and 1 in year.refused else frozenset()
    times = [node.this] if isinstance(node, exp.TimestampAdd) else [node.this, node.expression]
    for time in times:
        of = time.this if isinstance(time, exp.TsOrDsToDate) else time
        if family_of(kind(of)) in refused:
            return (
                f"{format_expression(node)}: {format_expression(of)} is {kind(of)}, not a date or time",
                "wrong-types",
                "cast it: CAST(… AS TIMESTAMP)",
            )
    return None


def _not_constant(node: Expr, name: str) -> Problem | None:
    place = _CONSTANT[name]
    given = _argument(node, place, *_NAMED[place])
    if given is None or given.find(exp.Column) is None:
        return None
    return (
        f"{name}(): argument {place + 1}, {format_expression(given)}, must be a constant",
        "wrong-arguments",
        "write a constant",
    )


def _regular(node: Expr, name: str | None) -> Problem | None:
    pattern = _literal_text(_argument(node, 1, "expression"))
    if pattern is None:
        return None
    try:
        groups = groups_of(pattern)
    except PatternError as error:
        return (
            f"'{pattern}' is not a regular expression: {error}",
            "bad-pattern",
            "use Java's syntax: put \\ before a special character, and write each \\ twice in SQL text:"
            " '\\\\('",
        )
    if name not in _WITH_GROUP or groups is None:
        return None
    written = _argument(node, 2, "group")
    if written is not None and not (isinstance(written, exp.Literal) and written.name.isdigit()):
        return None
    wanted = 1 if written is None else int(written.name)
    if wanted <= groups:
        return None
    return (
        f"{name}() uses group {wanted}, but '{pattern}' has {groups or 'none'}",
        "bad-pattern",
        "use the number of a group in ( ), or 0 for the whole match",
    )


def _time_pattern(node: Expr, kind: Kind, name: str) -> Problem | None:
    of = _argument(node, 0, "this")
    pattern = _literal_text(_argument(node, 1, "format"))
    if pattern is None or of is None or isinstance(of, exp.Null):
        return None
    if name in _WRITES_TIMES and kind(of) not in TIMES:
        return None
    reading = name in _READS
    if (
        reading and kind(of) != STRING and _literal_text(of) is None
    ):  # of a time the pattern counts for nothing
        return None
    problem = pattern_problem(pattern, reading=reading)
    return (
        None
        if problem is None
        else (f"{name}(): the pattern '{pattern}': {problem}", "bad-pattern", _TIME_HINT)
    )
