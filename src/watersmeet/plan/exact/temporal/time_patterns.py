"""Rule: times as texts by constant patterns, and texts as times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule
from watersmeet.plan.exact.temporal.instants import unix_timestamp
from watersmeet.plan.exact.values import Exact, NotExact, call, constant_value, or_null, widened
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BIGINT, DATE, INTEGERS, STRING, TIMESTAMP, TIMESTAMP_NTZ, SqlType

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

APART = "\x01"
"""See `kernel.expressions.functions.temporal.formats`."""
_USUAL = "yyyy-MM-dd HH:mm:ss"
_WRITTEN: dict[str, Sequence[int]] = {
    **dict.fromkeys("dHhkKmsQ", (1, 2)),
    "y": (1, 2, 4),
    "M": (1, 2, 3, 4),
    "D": (1, 2, 3),
    "E": (1, 2, 3, 4),
    "a": (1,),
    "X": (3,),
    "S": range(1, 10),
}
_READ: dict[str, Sequence[int]] = {"y": (4,), **dict.fromkeys("MdHms", (1, 2)), "S": range(1, 10)}
_FAILS = ("CANNOT_PARSE_TIMESTAMP",)


def _pieces(pattern: str) -> Iterator[str]:
    """The pattern's pieces, as the kernel takes them. Raises: NotExact."""
    rest = pattern
    while rest:
        letter = rest[0]
        if letter == "'":
            end = rest.find("'", 1)
            if end < 0 or rest[end + 1 : end + 2] == "'":
                raise NotExact(f"the pattern {pattern!r} is read by Spark")
            yield "=" + (rest[1:end] or "'")
            rest = rest[end + 1 :]
        elif letter.isascii() and letter.isalpha():
            count = len(rest) - len(rest.lstrip(letter))
            yield "#" + rest[:count]
            rest = rest[count:]
        elif letter in "[]{}#" or letter == APART:
            raise NotExact(f"the pattern {pattern!r} is read by Spark")
        else:
            yield "=" + letter
            rest = rest[1:]


def written_pattern(pattern: str) -> str:
    """For texts of times. Raises: NotExact."""
    pieces = list(_pieces(pattern))
    _check(pieces, _WRITTEN, pattern)
    return APART.join(pieces)


def read_pattern(pattern: str) -> str:
    """For times of texts: a year, then what may follow it, each once. Raises: NotExact."""
    pieces = list(_pieces(pattern))
    _check(pieces, _READ, pattern)
    letters = [piece[1] for piece in pieces if piece[0] == "#"]
    date, clock = [x for x in letters if x in "yMd"], [x for x in letters if x in "HmsS"]
    if sorted(date) not in (["y"], ["M", "y"], ["M", "d", "y"]) or "".join(clock) not in (
        "",
        "H",
        "Hm",
        "Hms",
        "HmsS",
    ):
        raise NotExact(f"the pattern {pattern!r} is read by Spark")
    for kind, group in groupby(pieces, key=lambda piece: piece[0]):
        run = list(group)
        if kind == "#" and len(run) > 1 and any(len(piece) == 2 or piece[1] == "S" for piece in run):
            raise NotExact(f"the pattern {pattern!r} is read by Spark")
        # Case is passed over, and which letters are one then is a matter of their alphabets.
        if kind == "=" and any(c.isalpha() and c not in "TZ" for piece in run for c in piece[1:]):
            raise NotExact(f"the pattern {pattern!r} is read by Spark")
    return APART.join(pieces)


def _check(pieces: Sequence[str], lengths: dict[str, Sequence[int]], pattern: str) -> None:
    for piece in pieces:
        if piece[0] == "#" and len(piece) - 1 not in lengths.get(piece[1], ()):
            raise NotExact(f"{piece[1:]} in the pattern {pattern!r} is not on the list")


def _pattern(value: Exact) -> str:
    if value.type != STRING:
        raise NotExact("a pattern that is not text")
    return str(constant_value(value))


def _format(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) != 2:
        raise NotExact("this number of arguments is not on the list")
    return _formatted(compiler, compiler.as_timestamp(values[0]), _pattern(values[1]))


def _formatted(compiler: Compiler, time: Exact, pattern: str) -> Exact:
    return call("format_time", STRING, time, options=[written_pattern(pattern), compiler.zone])


def _from_unixtime(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (1, 2):
        raise NotExact("this number of arguments is not on the list")
    if values[0].type not in INTEGERS:
        raise NotExact(f"from_unixtime of {values[0].type}")
    seconds = call("wrapped_seconds", TIMESTAMP, widened(values[0], BIGINT))
    return _formatted(compiler, seconds, _pattern(values[1]) if len(values) == 2 else _USUAL)


def _parsed(to: SqlType, fails: bool) -> Rule:
    """`to_date`, `to_timestamp`, …: of a text with a pattern; without one, a cast."""

    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        values = compiler.all(nodes)
        if len(values) == 1:
            value = compiler.cast_to(values[0], to)
            return value if fails or value is values[0] else or_null(value)
        if len(values) != 2 or values[0].type != STRING:
            raise NotExact("what is not text is not read by a pattern")
        wall = _wall(values[0], _pattern(values[1]), fails)
        return wall if to == TIMESTAMP_NTZ else compiler.cast_to(compiler.cast_to(wall, TIMESTAMP), to)

    return rule


def _wall(text: Exact, pattern: str, fails: bool) -> Exact:
    wall = call("parse_time", TIMESTAMP_NTZ, text, options=[read_pattern(pattern)])
    return wall if fails else or_null(wall, _FAILS)


def _unix_timestamp(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (1, 2):
        raise NotExact("this number of arguments is not on the list")
    value = values[0]
    if value.type == STRING:
        wall = _wall(value, _pattern(values[1]) if len(values) == 2 else _USUAL, True)
        value = compiler.cast_to(wall, TIMESTAMP)
    return unix_timestamp(compiler, value)


FUNCTIONS: dict[str, Rule] = {
    "date_format": _format,
    "from_unixtime": _from_unixtime,
    "unix_timestamp": _unix_timestamp,
    "to_unix_timestamp": _unix_timestamp,
    "to_date": _parsed(DATE, True),
    "try_to_date": _parsed(DATE, False),
    "to_timestamp": _parsed(TIMESTAMP, True),
    "to_timestamp_ltz": _parsed(TIMESTAMP, True),
    "to_timestamp_ntz": _parsed(TIMESTAMP_NTZ, True),
    "try_to_timestamp": _parsed(TIMESTAMP, False),
}  # fmt: skip

NOTES = dict.fromkeys(
    ("date_format", "from_unixtime"), "constant patterns of `yMdDHhkKmsSEaQX` and quoted texts"
) | dict.fromkeys(
    ("to_date", "try_to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz", "try_to_timestamp",
     "unix_timestamp", "to_unix_timestamp"),
    "of texts with a constant pattern of `yyyy`, `M`, `d`, `H`, `m`, `s`, `S`",
)  # fmt: skip
