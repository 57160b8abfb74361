"""Parse text into values of SQL types as Spark's readers do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.runtime.files.file_split import UnsupportedFile
from watersmeet.runtime.files.supported_types import MAX_DIGITS, wider_decimal
from watersmeet.spec.time_zones import UTC
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlType,
    decimal,
)
from watersmeet.zones import FIRST_COMMON_S, LAST_COMMON_S, SECOND_US, zone

Bytes = npt.NDArray[np.uint8]

_FIRST_US = -62_135_596_800_000_000
"""0001-01-01 00:00:00 UTC."""
_FIRST_DAY = -719_162

_CERTAIN_RANGE_US = (FIRST_COMMON_S * SECOND_US, LAST_COMMON_S * SECOND_US)

_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")

_TIME = 19
"""Characters of a time without a fraction and a zone."""
_ZONE = 6
"""Those of an offset from UTC."""
_MAX_OFFSET_HOURS = 17
"""Of an offset; 18:00 is the largest that Java knows."""


def parse_texts(texts: pa.StringArray, type_: SqlType, time_zone: str, *, shown: bool = True) -> pa.Array:
    """Parse texts, each NULL or a value, as values of a type (`supported_types.is_text_type`).

    TIMESTAMPs are in UTC.

    Args:
        time_zone: time zone of clock times without a zone.
        shown: report decimals that are rounded, where Spark sees them.

    Raises:
        UnsupportedFile, pa.ArrowInvalid: Spark must parse some of the texts.
    """
    if type_.is_integer:
        return _parse_numbers(texts, type_, _INTEGER)
    if type_.is_decimal:
        return _parse_decimals(texts, type_, is_told=shown and wider_decimal(type_) is not None)
    return _READERS[type_](texts, type_, time_zone)


def build_alphabet(characters: bytes) -> npt.NDArray[np.bool_]:
    """Return the mask of bytes that are among these characters, bool[256]."""
    allowed = np.zeros(256, dtype=np.bool_)
    allowed[list(characters)] = True
    return allowed


_INTEGER, _DECIMAL, _FLOAT = map(build_alphabet, (b"0123456789-", b"0123456789-.", b"0123456789-.eE"))
"""Arrow knows other spellings of numbers, too, and so does Java, and not the same ones."""


def _parse_numbers(texts: pa.StringArray, type_: SqlType, allowed: npt.NDArray[np.bool_]) -> pa.Array:
    if not allowed[_text_characters(texts)].all():
        raise UnsupportedFile(f"some texts are not {type_} in its usual form")
    return texts.cast(in_arrow(type_))


def _parse_decimals(texts: pa.StringArray, type_: SqlType, *, is_told: bool) -> pa.Array:
    """Parse decimals and check their digits.

    Arrow silently changes a number with more digits than the type has, before or after the point.

    Raises:
        UnsupportedFile: a number may have too many digits.
    """
    signs = pc.cast(pc.starts_with(texts, "-"), pa.int32())
    lengths, points = pc.binary_length(texts), pc.find_substring(texts, ".")
    has_none = pc.less(points, 0)
    whole = pc.subtract(pc.if_else(has_none, lengths, points), signs)
    behind = pc.if_else(has_none, 0, pc.subtract(pc.subtract(lengths, points), 1))
    most = pc.max(pc.add(whole, pc.max_element_wise(behind, type_.scale))).as_py()
    if most is not None and (most > MAX_DIGITS or pc.max(whole).as_py() > type_.digits - type_.scale):
        raise UnsupportedFile(f"some numbers may have more digits than a {type_}")
    most_behind = pc.max(behind).as_py()
    if most is not None and most_behind > type_.scale:
        lost = rf"\.[0-9]{{{type_.scale}}}[0-9]*[1-9]"
        if is_told and pc.any(pc.match_substring_regex(texts, lost)).as_py():
            raise UnsupportedFile(f"some numbers have more digits behind the point than a {type_}")
        longer = _parse_numbers(texts, decimal(MAX_DIGITS, most_behind), _DECIMAL)
        numbers = pc.round(longer, type_.scale, "half_towards_infinity").cast(in_arrow(type_))
    else:
        numbers = _parse_numbers(texts, type_, _DECIMAL)
    numbers.validate(full=True)
    return numbers


def _parse_fractions(texts: pa.StringArray, type_: SqlType, _: str) -> pa.Array:
    numbers = _parse_numbers(texts, type_, _FLOAT)
    if pc.all(pc.is_finite(numbers)).as_py() is False:
        raise UnsupportedFile(f"some numbers are too large for a {type_}")
    return numbers


def _parse_booleans(texts: pa.StringArray, type_: SqlType, _: str) -> pa.Array:
    true, false = (pc.is_in(texts, pa.array(spelled)) for spelled in (_TRUE, _FALSE))
    if not pc.all(pc.or_(pc.or_(true, false), texts.is_null())).as_py():
        raise UnsupportedFile(f"some texts are not {type_} in its usual form")
    return pc.if_else(texts.is_valid(), true, pa.scalar(None, pa.bool_()))


def _parse_dates(texts: pa.StringArray, type_: SqlType, _: str) -> pa.Array:
    for of_length in _group_by_length(texts):
        if of_length.shape[1] != 10:
            raise UnsupportedFile(f"some texts are not {type_} in its usual form")
        _check_day(of_length, type_)
    return _check_first_time(_FIRST_DAY, texts.cast(pa.date32()), pa.int32())


def _parse_times(texts: pa.StringArray, type_: SqlType, time_zone: str) -> pa.Array:
    kinds = {_check_times(of_length, type_) for of_length in _group_by_length(texts)}
    if len(kinds) > 1:
        raise UnsupportedFile("some times have a zone, and some have none")
    if True in kinds:
        if type_ == TIMESTAMP_NTZ:
            raise UnsupportedFile(f"some texts of a {type_} have a zone")
        return _check_first_time(_FIRST_US, texts.cast(pa.timestamp("us", "UTC")), pa.int64())
    local = _check_first_time(_FIRST_US, texts.cast(pa.timestamp("us")), pa.int64())
    if type_ == TIMESTAMP_NTZ:
        return local
    times = to_instants(local, time_zone)
    if "/" in time_zone:  # of a place: of other years Java's rules may be others than these
        ends = pc.min_max(times.view(pa.int64())).as_py()
        if ends["min"] is not None and (
            ends["min"] < _CERTAIN_RANGE_US[0] or ends["max"] >= _CERTAIN_RANGE_US[1]
        ):
            raise UnsupportedFile(
                f"some times without a zone are of years in which rules of {time_zone} may differ"
            )
    return _check_first_time(_FIRST_US, times, pa.int64())


def to_instants(walls: pa.Array, time_zone: str) -> pa.Array:
    """Return the instants, in UTC, at which a clock in the zone shows these times; NULL stays NULL."""
    if time_zone == UTC:
        return walls.view(pa.timestamp("us", "UTC"))
    instants = zone(time_zone).to_instant(walls.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    missing = walls.is_null().to_numpy(zero_copy_only=False) if walls.null_count else None
    return pa.array(instants, mask=missing).view(pa.timestamp("us", "UTC"))


def _check_first_time(least: int, times: pa.Array, numbers: pa.DataType) -> pa.Array:
    first = pc.min(times.view(numbers)).as_py()
    if first is not None and first < least:
        raise UnsupportedFile("some dates are of years before the first")
    return times


_READERS: Mapping[SqlType, Callable[[pa.StringArray, SqlType, str], pa.Array]] = {
    STRING: lambda texts, _, __: texts,
    BOOLEAN: _parse_booleans,
    FLOAT: _parse_fractions,
    DOUBLE: _parse_fractions,
    DATE: _parse_dates,
    TIMESTAMP: _parse_times,
    TIMESTAMP_NTZ: _parse_times,
}


def _text_characters(texts: pa.StringArray) -> Bytes:
    """Return the characters of all texts, concatenated."""
    offsets = _text_offsets(texts)
    if not len(texts) or offsets[-1] == offsets[0]:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(texts.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]


def _text_offsets(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    if not len(texts):
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _group_by_length(texts: pa.StringArray) -> Iterator[Bytes]:
    """Yield the texts that are not empty, grouped by length: uint8[n, length] each."""
    offsets, characters = _text_offsets(texts), _text_characters(texts)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    counts = np.bincount(lengths, minlength=1)
    counts[0] = 0
    of_all = np.flatnonzero(counts)
    for length in of_all.tolist():
        if len(of_all) == 1:
            yield characters.reshape(-1, length)
        else:
            own = starts[lengths == length]
            yield characters[own[:, None] + np.arange(length, dtype=np.int32)]


def _check_day(days: Bytes, type_: SqlType) -> None:
    """Check that texts start with a date in the usual form.

    Reading the value later shows if the day exists.
    """
    _check(_are_digits(days, (0, 1, 2, 3, 5, 6, 8, 9)) and _are_all(days, (4, 7), b"-"), type_)


def _check_times(times: Bytes, type_: SqlType) -> bool:
    """Check that texts of one length are times in the usual form.

    Texts of which only some have a zone are rejected.

    Returns:
        True if all texts have a zone.
    """
    length = times.shape[1]
    _check(length >= _TIME, type_)
    body = length
    in_utc = _are_all(times, (length - 1,), b"Z")
    has_offset = length >= _TIME + _ZONE and _are_all(times, (length - _ZONE,), b"+-")
    if in_utc:
        body -= 1
    elif has_offset:
        body -= _ZONE
        offset = times[:, length - _ZONE + 1 :]  # 02:00
        _check(_are_all(offset, (2,), b":") and _are_digits(offset, (0, 1, 3, 4)), type_)
        hours, tens_of_minutes = (offset[:, 0] - 48) * 10 + (offset[:, 1] - 48), offset[:, 3] - 48
        _check(bool((hours <= _MAX_OFFSET_HOURS).all() and (tens_of_minutes <= 5).all()), type_)
    _check_day(times, type_)
    _check(_are_all(times, (10,), b"T ") and _are_all(times, (13, 16), b":"), type_)
    _check(_are_digits(times, (11, 12, 14, 15, 17, 18)), type_)
    if body > _TIME:
        _check(_TIME + 1 < body <= _TIME + 7 and _are_all(times, (_TIME,), b"."), type_)
        _check(_are_digits(times, tuple(range(_TIME + 1, body))), type_)
    return in_utc or has_offset


def _check(holds: bool, type_: SqlType) -> None:
    if not holds:
        raise UnsupportedFile(f"some texts are not {type_} in its usual form")


def _are_all(texts: Bytes, places: tuple[int, ...], characters: bytes) -> bool:
    return bool(np.isin(texts[:, places], np.frombuffer(characters, dtype=np.uint8)).all())


def _are_digits(texts: Bytes, places: tuple[int, ...]) -> bool:
    return bool((texts[:, places] - np.uint8(48) <= 9).all())
