"""Constants that Spark refuses once it meets a row: patterns of texts and times, fields of times."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.front.query.expressions.operators import Kind, Problem, shown
from watersmeet.spec.functions import family_of, signature_of
from watersmeet.spec.java_patterns import PatternError, groups_of
from watersmeet.spec.model import Expr
from watersmeet.spec.time_patterns import pattern_problem
from watersmeet.types.sql_type import STRING, TIMES

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
    """What is wrong with a constant of ``node``. ``name``: the function's, as Spark has it."""
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
    """An argument: by its place where a function is kept as it is called, else by name."""
    if isinstance(node, exp.Anonymous):
        argument = node.expressions[place] if place < len(node.expressions) else None
    else:
        argument = next((node.args[key] for key in keys if node.args.get(key) is not None), None)
    return argument.unnest() if isinstance(argument, exp.Expression) else None


def _text(node: Any) -> str | None:
    return str(node.name) if isinstance(node, exp.Literal) and node.is_string else None


def _like(node: Expr) -> Problem | None:
    pattern = _text(node.expression.unnest())
    if pattern is None:
        return None
    sign = node.parent.expression.name if isinstance(node.parent, exp.Escape) else "\\"
    place = 0
    while (place := pattern.find(sign, place)) >= 0:
        following = pattern[place + 1 : place + 2]
        if following not in ("_", "%", sign):
            what = f"before {following}" if following else "at its end"
            return (
                f"{shown(node)}: the pattern has {sign} {what}, which is not allowed",
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
        text = _text(given)
        if isinstance(given, exp.Column):
            return (
                f"{shown(node)}: the field must be a constant",
                "bad-pattern",
                "write the name of the field: 'YEAR'",
            )
        if text is None or of is None:
            return None
        field = text
    if field.upper() not in _FIELDS:
        return (
            f"{shown(node)}: unknown field {field}",
            "bad-pattern",
            "use YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE or SECOND; for seconds"
            " since 1970 use unix_seconds()",
        )
    type_ = kind(of)
    year = signature_of("year")
    if year is not None and 1 in year.refused and family_of(type_) in year.refused[1][0]:
        return (
            f"{shown(node)}: {shown(of)} is {type_}, not a date or time",
            "wrong-types",
            "cast it: CAST(… AS TIMESTAMP)",
        )
    return None


def _unit(node: Expr, kind: Kind) -> Problem | None:
    """Of ``timestampadd(unit, n, time)`` and the like: the unit, and what is counted."""
    unit = str(node.args["unit"].name).upper()
    if unit not in _UNITS:
        return (
            f"{shown(node)}: there is no unit {unit}",
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
                f"{shown(node)}: {shown(of)} is {kind(of)}, not a date or time",
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
        f"{name}(): argument {place + 1}, {shown(given)}, must be a constant",
        "wrong-arguments",
        "write a constant",
    )


def _regular(node: Expr, name: str | None) -> Problem | None:
    pattern = _text(_argument(node, 1, "expression"))
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
    pattern = _text(_argument(node, 1, "format"))
    if pattern is None or of is None or isinstance(of, exp.Null):
        return None
    if name in _WRITES_TIMES and kind(of) not in TIMES:
        return None
    reading = name in _READS
    if reading and kind(of) != STRING and _text(of) is None:  # of a time the pattern counts for nothing
        return None
    problem = pattern_problem(pattern, reading=reading)
    return (
        None
        if problem is None
        else (f"{name}(): the pattern '{pattern}': {problem}", "bad-pattern", _TIME_HINT)
    )
