"""Times in Debezium's events, as Spark SQL: numbers of days and of parts of a second, or texts.

Spark's own JSON reader takes a number in the place of a TIMESTAMP for seconds, and none for a DATE.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.engine.spark.text import options_map
from watersmeet.spec.options.debezium import TimeUnit
from watersmeet.types.sql_type import DATE, TIMESTAMP_NTZ, SqlType

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Of the years 1 and 9999, since 1970. Infinity, which Postgres has, is beyond."""

_DAY_S, _DAY_US = 86_400, "86400000000L"


def time_of(text: str, kind: SqlType, unit: TimeUnit | None, parser: Mapping[str, str]) -> str:
    """What a text of JSON (a number as it is written) says; NULL: nothing.

    Args:
        kind: a DATE, TIMESTAMP or TIMESTAMP_NTZ.
        unit: what a number in a timestamp's place counts, since 1970 (in UTC; NTZ: by the wall clock); None:
            it says nothing. What is less than a microsecond is cut off.
        parser: options of Spark's JSON parser, by which other texts are read.
    """
    counted, read = _counted(text, kind, unit), _read(text, kind, parser)
    return f"CASE WHEN {text} RLIKE '^-?[0-9]+$' THEN {counted} ELSE {read} END"


def _read(text: str, kind: SqlType, parser: Mapping[str, str]) -> str:
    options = options_map({**parser, "mode": "PERMISSIVE"})
    return f"from_json(to_json(named_struct('v', {text})), 'v {kind}', {options}).v"


def _counted(text: str, kind: SqlType, unit: TimeUnit | None) -> str:
    number = f"try_cast({text} AS BIGINT)"
    if kind == DATE:
        day = f"date_from_unix_date(CAST({number} AS INT))"
        return f"IF({number} BETWEEN {_FIRST_DAY} AND {_LAST_DAY}, {day}, NULL)"
    if unit is None:
        return "NULL"
    per_second = unit.per_second
    first, last = _FIRST_DAY * _DAY_S * per_second, (_LAST_DAY + 1) * _DAY_S * per_second - 1
    if per_second > 1_000_000:
        parts = f"{per_second // 1_000_000}L"
        us = f"(({number} - pmod({number}, {parts})) div {parts})"
        first, last = max(first, -(2**63) + per_second), min(last, 2**63 - 1)
    else:
        us = f"({number} * {1_000_000 // per_second}L)"
    made = _wall_clock(us) if kind == TIMESTAMP_NTZ else f"timestamp_micros({us})"
    return f"IF({number} BETWEEN {first}L AND {last}L, {made}, NULL)"


def _wall_clock(us: str) -> str:
    """The TIMESTAMP_NTZ so many microseconds after 1970 began, on no clock that is ever put back."""
    of_day = f"pmod({us}, {_DAY_US})"
    days = f"CAST(({us} - {of_day}) div {_DAY_US} AS INT)"
    seconds = f"CAST(CAST({of_day} AS DECIMAL(18, 0)) / 1000000BD AS DECIMAL(18, 6))"
    return f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, {seconds})"
