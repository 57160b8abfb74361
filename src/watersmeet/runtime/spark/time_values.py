"""Times in text and numbers as Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.runtime.spark.sql_text import options_map
from watersmeet.spec.records.text_records import DAYS, TimeUnit
from watersmeet.types.sql_type import DATE, TIMESTAMP_NTZ, SqlType

# Times that records count, as Spark SQL: numbers of days and of parts of a second, or texts.
#
# Spark's own JSON reader takes a number in the place of a TIMESTAMP for seconds, and none for a DATE; its
# CSV reader takes none for either. Where a source says the unit of its numbers (``timestamp.unit``), its
# timestamps are read as texts (`written_types`), and made of them here.

_DAY_S, _DAY_US = 86_400, "86400000000L"
WHOLE = "^-?[0-9]+$"
"""A pattern of whole numbers."""


def time_sql(text: str, kind: SqlType, unit: TimeUnit, parser: Mapping[str, str]) -> str:
    """Build the SQL of the time that a text represents; NULL if it represents none.

    Args:
        text: an expression: a number, which may have a fraction or an exponent, or a time as text.
        kind: TIMESTAMP or TIMESTAMP_NTZ.
        unit: the unit of the number, which counts from 1970 (in UTC; NTZ: by the wall clock). The
            result
            is truncated to microseconds.
        parser: options of Spark's JSON parser, which reads other texts.
    """
    number = f"try_cast({text} AS DECIMAL(30, 9)) * 1000000BD / {unit.per_second}BD"
    us = f"try_cast(floor({number}) AS BIGINT)"
    first, end = (day * _DAY_S * 1_000_000 for day in (DAYS.start, DAYS.stop))
    with_fraction = _micros_to_time(us, kind, first, end - 1, us)
    return f"""CASE WHEN {text} RLIKE '{WHOLE}' THEN {convert_number_to_time(text, kind, unit)}
        WHEN {text} RLIKE '^-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?$' THEN {with_fraction}
        ELSE {parsed_text_sql(text, kind, parser)} END"""


def parsed_text_sql(text: str, kind: SqlType, parser: Mapping[str, str]) -> str:
    """Return the date or time that Spark's JSON parser, with these options, reads in a text; NULL: none."""
    options = options_map({**parser, "mode": "PERMISSIVE"})
    return f"from_json(to_json(named_struct('v', {text})), 'v {kind}', {options}).v"


def convert_number_to_time(text: str, kind: SqlType, unit: TimeUnit | None) -> str:
    """Return the date or time that a whole number counts; NULL: none of the years 1 to 9999.

    Args:
        unit: of a time; None: the number says nothing. A DATE is a number of days.
    """
    number = f"try_cast({text} AS BIGINT)"
    if kind == DATE:
        day = f"date_from_unix_date(CAST({number} AS INT))"
        return f"IF({number} BETWEEN {DAYS.start} AND {DAYS.stop - 1}, {day}, NULL)"
    if unit is None:
        return "NULL"
    per_second = unit.per_second
    first, last = DAYS.start * _DAY_S * per_second, DAYS.stop * _DAY_S * per_second - 1
    if per_second > 1_000_000:
        parts = f"{per_second // 1_000_000}L"
        us = f"(({number} - pmod({number}, {parts})) div {parts})"
        first, last = max(first, -(2**63) + per_second), min(last, 2**63 - 1)
    else:
        us = f"({number} * {1_000_000 // per_second}L)"
    return _micros_to_time(us, kind, first, last, number)


def _micros_to_time(us: str, kind: SqlType, first: int, last: int, number: str) -> str:
    """Build the SQL of the time ``us`` microseconds after the start of 1970.

    It is NULL if ``number`` is out of bounds.
    """
    made = _wall_clock(us) if kind == TIMESTAMP_NTZ else f"timestamp_micros({us})"
    return f"IF({number} BETWEEN {first}L AND {last}L, {made}, NULL)"


def _wall_clock(us: str) -> str:
    """Build the SQL of the TIMESTAMP_NTZ ``us`` microseconds after the start of 1970.

    The clock has no daylight saving time.
    """
    of_day = f"pmod({us}, {_DAY_US})"
    days = f"CAST(({us} - {of_day}) div {_DAY_US} AS INT)"
    seconds = f"CAST(CAST({of_day} AS DECIMAL(18, 0)) / 1000000BD AS DECIMAL(18, 6))"
    return f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, {seconds})"
