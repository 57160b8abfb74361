"""Name things, durations and sections in EXPLAIN."""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise

from watersmeet.event_time import DAY_US
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    ArrangePlan,
    DeltaPlan,
    GroupPlan,
    LookupPlan,
    MatchPlan,
    NodePlan,
    RankPlan,
    WindowedPlan,
)
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.spec.model import Input, JoinKind, Sink

# Times as people write them, for messages and EXPLAIN. Only text: nothing here is parsed again.

_STEPS = (
    (DAY_US, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "µs"),
)


def duration(us: int) -> str:
    """Format ``us`` microseconds with units.

    >>> duration(5_400_000_000), duration(0), duration(-1_500_000)
    ('1 h 30 min', '0 s', '-1 s 500 ms')
    """
    if us == 0:
        return "0 s"
    rest, words = abs(us), []
    for size, name in _STEPS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {name}")
    return ("-" if us < 0 else "") + " ".join(words)


def rounded_up(us: int) -> str:
    """Format ``us`` microseconds, not negative, rounded up to its two largest units.

    The result is never less than ``us``.

    >>> rounded_up(90_061_000_001), rounded_up(41_900_000), rounded_up(59_999_999)
    ('1 d 2 h', '41 s 900 ms', '1 min')
    """
    for (size, _), (smaller, _) in pairwise(_STEPS):
        if us >= size:
            return duration(-(-us // smaller) * smaller)
    return duration(us)


def distance(value: int, in_time: bool) -> str:
    """Format a distance of event times: a duration, or a plain number for integer times."""
    return duration(value) if in_time else str(value)


def format_shift(name: str, by: int, in_time: bool) -> str:
    """Format ``name + by`` with the sign before the distance.

    >>> format_shift("l.t", -3, in_time=False), format_shift("l.t", 0, in_time=True)
    ('l.t - 3', 'l.t')
    """
    if by == 0:
        return name
    return f"{name} {'-' if by < 0 else '+'} {distance(abs(by), in_time)}"


# How EXPLAIN names things, and how it lays out its sections.

INDENT = "  "

Sections = list[tuple[str, list[str]]]
"""(title, lines); those without lines are left out."""


def lay_out_sections(sections: Sections) -> list[str]:
    lines: list[str] = []
    for title, content in sections:
        if content:
            lines.append(title)
            lines += [INDENT + line for line in content]
    return lines


@singledispatch
def title_of(node: NodePlan) -> str:
    """Return the title of a node: the titles of its sides."""
    return " and ".join(side.title for side in node.sides)


@title_of.register
def _(node: MatchPlan) -> str:
    return f"{node.left.title} {kind_name(node.kind)} {node.right.title}"


@title_of.register
def _(node: LookupPlan) -> str:
    return f"{node.left.title} {kind_name(node.kind)} {node.right.title} as of the tick"


@title_of.register
def _(node: ArrangePlan) -> str:
    *first, last = (side.title for side in node.leaving)
    return f"{', '.join(first)} and {last}" if first else last


@title_of.register
def _(node: DeltaPlan) -> str:
    met = (lookup.join.right.title for lookup in node.lookups)
    paths = zip(node.sides, met, strict=True)
    return "; ".join(f"{side.title} with {table}" for side, table in paths)


@title_of.register
def _(node: WindowedPlan) -> str:
    return f"{node.kind.value} windows of {node.side.title}"


@title_of.register
def _(node: GroupPlan) -> str:
    return f"groups of {node.side.title}"


@title_of.register
def _(node: RankPlan) -> str:
    return f"first rows of {node.side.title}"


def node_name(query: QueryPlan, node: NodePlan) -> str:
    """Return the name of a node in lists: ``join 2``, or ``join`` if it is the only node.

    A node without a noun is the ``output``.
    """
    if not node.noun:
        return "output"
    return node.noun if len(query.nodes) == 1 else f"{node.noun} {node.number + 1}"


def kind_name(kind: JoinKind) -> str:
    outer = kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
    return f"{kind.value} OUTER JOIN" if outer else f"{kind.value} JOIN"


def sink_name(sink: Sink) -> str:
    where = next((sink.options[o] for o in ("path", "topic") if o in sink.options), None)
    name = sink.connector if sink.name == sink.connector else f'{sink.connector} "{sink.name}"'
    return f"{name} ({where})" if where else name


def plain(text: str) -> str:
    """Remove the quotes from joined names: `o.item` becomes o.item."""
    return text.replace("`", "")


def is_timed(i: Input, column: str) -> bool:
    declared = i.column(column)
    return declared is not None and unit_of_type(declared.type).is_time


def qualify_key(text: str, side: SidePlan) -> str:
    """Add the alias to a key over bare columns.

    A single column gets the alias as a prefix, ``a.x``; any other key gets it as a label.
    """
    name = text.replace("`", "")
    if side.feed is not None:
        return name
    return joined_name(side.name, name) if side.input.column(name) else f"{side.name}: {name}"


def number_of(value: float) -> str:
    """Format a number with commas; only small numbers have a fraction.

    >>> number_of(1234.5), number_of(99.25), number_of(0.0125)
    ('1,234', '99.2', '0.013')
    """
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def size_of(value: float) -> str:
    """Format a size in bytes.

    >>> size_of(2_460_000_000), size_of(17)
    ('2.5 GB', '17 bytes')
    """
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if value >= size:
            return f"{value / size:,.1f} {name}"
    return f"{value:,.0f} bytes"
