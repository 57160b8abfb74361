"""What calls are given besides texts: bounds of time between two columns, and windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from watersmeet.parser.query.inline import operand
from watersmeet.relations.expressions import Fragment, Written, read_fragment, whole_error
from watersmeet.spec.model import WindowKind
from watersmeet.types.intervals import IntervalError, interval_us, read_interval

Length = str | int | timedelta
"""A length of time: a text such as ``10 seconds``, a timedelta, or of integer times a number."""

_HINT = "use '10 seconds', '1 hour 30 minutes' or timedelta(seconds=10); for integer times a whole number"


def length_node(length: Length, label: str) -> exp.Expression:
    """Build the SQL of a length: an INTERVAL, or a number.

    Raises:
        SqlError: it is not a length.
    """
    if isinstance(length, bool) or not isinstance(length, str | int | timedelta):
        raise whole_error(label, f"is {length!r}, not a length of time", _HINT)
    if isinstance(length, int):
        return (
            exp.Literal.number(str(length)) if length >= 0 else exp.Neg(this=exp.Literal.number(str(-length)))
        )
    if isinstance(length, timedelta):
        us = (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds
        return _read([(str(us), "microsecond")], length, label)
    stripped = length.strip()
    if stripped.lower().startswith("interval"):
        tree, _ = read_fragment(stripped, label)
        if interval_us(tree) is None:
            raise whole_error(label, f"is {length!r}, which has no fixed length", _HINT)
        for node in tree.walk():
            node.meta.pop("start", None)  # it stands in no text that anybody sees
        return tree
    return _read([(stripped, None)], length, label)


def length_us(length: str, label: str) -> int:
    """Return a text's length in microseconds. Raises: SqlError."""
    us = interval_us(length_node(length, label))
    assert us is not None  # months and years are refused
    return us


def _read(values: Sequence[tuple[str, str | None]], length: Length, label: str) -> exp.Expression:
    try:
        interval = read_interval(values)
    except IntervalError as error:
        raise whole_error(label, f"is {error.about(length)}", error.hint) from None
    if interval_us(interval) is None:
        raise whole_error(
            label, f"is {length!r}, which has no fixed length: months and years differ", "use days"
        )
    return interval


@dataclass(frozen=True)
class Between:
    """``lower <= column - reference <= upper``, ends included; None: no bound there. Made by `between`.

    >>> Between("d.at", "o.at", None, "1 hour").upper
    '1 hour'
    """

    column: str
    reference: str
    lower: Length | None
    upper: Length | None

    def tree(self) -> tuple[exp.Expression, list[Fragment]]:
        """Build the condition, and return it with its source texts."""
        column, first = read_fragment(self.column, "within, the time")
        reference, second = read_fragment(self.reference, "within, the other time")

        def shifted(length: Length, label: str) -> exp.Expression:
            return exp.Add(this=operand(reference), expression=length_node(length, label))

        low = None if self.lower is None else shifted(self.lower, "within, the lower bound")
        high = None if self.upper is None else shifted(self.upper, "within, the upper bound")
        if low is not None and high is not None:
            tree: exp.Expression = exp.Between(this=operand(column), low=low, high=high)
        elif low is not None:
            tree = exp.GTE(this=operand(column), expression=low)
        elif high is not None:
            tree = exp.LTE(this=operand(column), expression=high)
        else:
            raise whole_error(
                "within",
                "needs at least one bound",
                "pass lower or upper: between(time, other, lower, upper)",
            )
        return tree, [first, second]


def between(column: str, reference: str, lower: Length | None, upper: Length | None) -> Between:
    """Bound the time between two rows, for `Relation.join`.

    ``column`` lies between ``reference + lower`` and ``reference + upper``, both inclusive.

    Args:
        column: a column, such as ``d.delivery_time``.
        reference: a column of the other side, such as ``o.order_time``.
        lower: a text (``0s``, ``-5 minutes``), a timedelta, or a number for integer times; None: no lower
            bound.
        upper: a text, a timedelta, or a number for integer times; None: no upper bound.

    >>> from watersmeet import between, stream
    >>> a = stream({"t": "BIGINT"}, time="t", lag=10, name="a")
    >>> b = stream({"t": "BIGINT"}, time="t", lag=60, name="b")
    >>> a.join(b, within=between("b.t", "a.t", 0, 3600)).select("a.t AS at", "b.t AS bt")
    Relation(SELECT a.t AS at, b.t AS bt FROM `a` JOIN `b` ON b.t BETWEEN a.t + 0 AND a.t + 3600)
    """
    return Between(column, reference, lower, upper)


@dataclass(frozen=True)
class Window:
    """Windows over an event time. Made by `tumble`, `hop` and `session`.

    >>> tumble("at", "10 minutes").sizes
    ('10 minutes',)
    """

    kind: WindowKind
    time: Written
    sizes: tuple[Length, ...]

    def size_nodes(self) -> list[exp.Expression]:
        names = {WindowKind.HOP: ("size", "slide"), WindowKind.SESSION: ("gap",)}.get(self.kind, ("size",))
        return [
            length_node(size, f"{self.kind.value.lower()}, the {name}")
            for size, name in zip(self.sizes, names, strict=True)
        ]


def tumble(time: Written, size: Length) -> Window:
    """Define consecutive windows of ``size``; each row is in one. For `Relation.group_by`.

    >>> from watersmeet import stream, tumble
    >>> clicks = stream({"at": "TIMESTAMP"}, time="at", name="clicks")
    >>> [column.name for column in clicks.group_by(tumble("at", "10 minutes")).agg("count(*) AS n").columns]
    ['window_start', 'window_end', 'n']
    """
    return Window(WindowKind.TUMBLE, time, (size,))


def hop(time: Written, size: Length, slide: Length) -> Window:
    """Define windows of ``size``, one every ``slide``; a row is in each that contains it.

    >>> from watersmeet import hop, stream
    >>> clicks = stream({"at": "TIMESTAMP"}, time="at", name="clicks")
    >>> last_hour = clicks.group_by(hop("at", "1 hour", "1 minute")).agg("count(*) AS n")
    >>> [column.name for column in last_hour.columns]
    ['window_start', 'window_end', 'n']
    """
    return Window(WindowKind.HOP, time, (size, slide))


def session(time: Written, gap: Length) -> Window:
    """Define windows of a group's rows in which neighbours are less than ``gap`` apart.

    >>> from watersmeet import session, stream
    >>> clicks = stream({"user": "STRING", "at": "TIMESTAMP"}, time="at", name="clicks")
    >>> visits = clicks.group_by(session("at", "30 minutes"), "user").agg("count(*) AS n")
    >>> [column.name for column in visits.columns]
    ['window_start', 'window_end', 'user', 'n']
    """
    return Window(WindowKind.SESSION, time, (gap,))
