"""EXPLAIN of windows, groups and rankings."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.names import format_column_name
from watersmeet.plan.explain.wording import Sections, distance, plain
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    GroupedPlan,
    GroupPlan,
    RankPlan,
    TablePlan,
    WindowedPlan,
    WindowGroupPlan,
)
from watersmeet.plan.nodes.aggregate import looks_at_values
from watersmeet.plan.order.forecast import key_in_time
from watersmeet.spec.aggregates import SortKey
from watersmeet.spec.model import Expr, WindowKind

# EXPLAIN of windows: what is grouped, when results go out, for how long rows are kept.


def window_sections(node: AggregatePlan, query: QueryPlan) -> Sections:
    """Return the sections of windows and groups; HAVING of the root is the query's filter."""
    is_root = node is query.root
    return [
        ("Windows", [_window(node)]),
        ("Grouped by", ["window_start, window_end", *map(plain, node.key_texts)]),
        ("Aggregates", list(aggregate_lines(node))),
        ("Groups that go out", [] if node.having is None or is_root else [plain(node.having)]),
        ("Retention", [f"{node.side.title}: {_window_state(node)}"]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        ("Columns in state", [f"{node.side.title}: {', '.join(_columns(node))}"]),
        ("Task partitions", [_spread(node)]),
    ]


def window_group_sections(node: WindowGroupPlan, query: QueryPlan) -> Sections:
    """Return the sections of windows whose rows can be retracted until they close."""
    is_root = node is query.root
    when = "then, final" if node.is_final else "until then"
    calls = [plain(call.text) for call in node.calls if looks_at_values(call)]
    values = f" and different value, because of {', '.join(calls)}," if calls else ""
    most = distance(node.size, key_in_time(node, node.time_key))
    if node.kind is WindowKind.SESSION:
        until = "until its session closes, or no row is left there"
    else:
        until = (
            f"until the last of its windows closes: at most {most} after its start, as the watermark moves"
        )
    kept = f"one row of sums per {pane_name(node)} and group{values} {until}"
    return [
        ("Windows", [f"{_window(node)}, and {'its rows' if node.is_final else 'changes'} go out {when}"]),
        ("Grouped by", ["window_start, window_end", *map(plain, node.key_texts)]),
        ("Aggregates", list(aggregate_lines(node))),
        ("Groups that go out", [] if node.having is None or is_root else [plain(node.having)]),
        ("Retention", [f"{node.side.title}: {kept}"]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        ("Task partitions", [_spread(node)]),
    ]


def window_name(node: WindowedPlan) -> str:
    """Return the name of the window, such as ``TUMBLE of 10 min``."""

    def format_length(value: int) -> str:
        return distance(value, key_in_time(node, node.time_key))

    if node.kind is WindowKind.SESSION:
        return f"SESSION with a gap of {format_length(node.size)}"
    every = "" if node.kind is WindowKind.TUMBLE else f" every {format_length(node.slide)}"
    return f"{node.kind.value} of {format_length(node.size)}{every}"


def as_written(query: QueryPlan, expr: Expr) -> Expr:
    """Rewrite an expression over the query's rows so that keys and aggregates appear as written."""
    root = query.root
    if not isinstance(root, GroupedPlan):
        return expr
    names = [name for name, _ in root.keys]
    texts = dict(zip(names, root.key_texts, strict=True)) | {call.name: call.text for call in root.calls}
    return expr.transform(
        lambda node: (
            exp.Var(this=texts[node.name]) if isinstance(node, exp.Column) and node.name in texts else node
        )
    )


def _window(node: WindowedPlan) -> str:
    key = node.time_key
    if node.kind is WindowKind.SESSION:
        gap = distance(node.size, key_in_time(node, key))
        return (
            f"{window_name(node)} over {key}: it ends {gap} after its last row, and closes when the watermark"
            f" of {key} is above that"
        )
    return f"{window_name(node)} over {key}: one closes when the watermark of {key} has reached its end"


def aggregate_lines(node: GroupedPlan) -> Iterator[str]:
    for call in node.calls:
        by = "" if call.plain else " (by Spark)"
        yield f"{plain(call.text)}{by}"


def _window_state(node: AggregatePlan) -> str:
    if node.kind is WindowKind.SESSION:
        return "every row, until its session closes"
    most = distance(node.size, key_in_time(node, node.time_key))
    its = "its" if node.keeps_rows else "the"
    which = f"{its} window closes" if node.kind is WindowKind.TUMBLE else "the last of its windows closes"
    if node.keeps_rows:
        calls = ", ".join(map(plain, node.from_rows))
        what, since = f"every row, because of {calls}:", f"its {node.time_key}"
    else:
        what, since = f"one row of partial aggregates per {pane_name(node)} and group,", "its start"
    return f"{what} until {which}: at most {most} after {since}, as the watermark moves"


def pane_name(node: WindowedPlan) -> str:
    """Return the name of the time slice that has one row of partial aggregates.

    Examples: ``window``, ``pane of 1 min``; for sessions ``time``.
    """
    if node.kind is WindowKind.SESSION:
        return "time"
    if node.pane == node.size:
        return "window"
    return f"pane of {distance(node.pane, key_in_time(node, node.time_key))}"


def _columns(node: AggregatePlan) -> Iterator[str]:
    if node.keeps_rows:
        yield from map(format_column_name, node.side.kept)
        return
    yield f"start of the {'window' if node.pane == node.size else 'pane'}"
    yield from dict.fromkeys(column for _, column in node.keys)
    yield "COUNT(*)"
    for text in dict.fromkeys(plain(call.text) for call in node.calls):
        if text != "COUNT(*)":
            yield f"partial {text}"


def _spread(node: WindowedPlan) -> str:
    return "by ranges of the hash of what is grouped by" if node.keys else "one task: there is no key"


# EXPLAIN of groups over all rows, and of tables that are joined with nothing: what is kept of them.


def group_sections(node: GroupPlan, query: QueryPlan) -> Sections:
    """Return the sections of groups; HAVING of the root is the query's filter."""
    having = node.having if node is not query.root else None
    return [
        ("Grouped by", [plain(text) for text in node.key_texts] or ["nothing: one group, of all rows"]),
        ("Aggregates", list(aggregate_lines(node))),
        ("Groups that go out", [] if having is None else [plain(having)]),
        ("Retention", [f"{node.side.title}: {line}" for line in _group_state(node)]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        ("Task partitions", ["by ranges of the hash of what is grouped by" if node.keys else _ONE_TASK]),
    ]


def table_sections(node: TablePlan, query: QueryPlan) -> Sections:
    """Return the sections of a table that the query joins with nothing."""
    kept = ", ".join(map(format_column_name, node.side.kept))
    late = ", or a delete of it would be late" if node.side.event_times else ""
    return [
        ("Retention", [f"{node.side.title}: every row, until it is deleted{late}"]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        ("Columns in state", [f"{node.side.title}: {kept}"]),
    ]


_ONE_TASK = "one task: there is no key"


def _group_state(node: GroupPlan) -> Iterator[str]:
    calls = [plain(call.text) for call in node.calls if looks_at_values(call)]
    if not calls:
        yield "one row of sums per group, until the group has no row"
        return
    yield (
        f"one row of sums per group and different value, because of {', '.join(calls)}, until there is no"
        " such value; all values of a group are looked at when one of its rows comes or goes"
    )


# EXPLAIN of ROW_NUMBER: what rows are ordered by, how many of each partition go out, what is kept.


def ranking_sections(node: RankPlan, query: QueryPlan) -> Sections:
    """Return the sections of a ranking: the first rows of partitions."""
    partitions = ranking_partitions(node)
    spread = "by ranges of the hash of the partitions' columns"
    return [
        ("Partitions", partitions or ["nothing: all rows are one"]),
        ("Order (the columns that are not asked for decide between equal rows)", list(ranking_order(node))),
        ("Rows that go out", [f"{ranking_rows(node)} of each partition{_numbers(node)}"]),
        (
            "Retention",
            [
                f"{node.side.title}: every row, each different one once with how often it is there, until it"
                " is deleted; all rows of a partition are looked at when one of them comes or goes"
            ],
        ),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        (
            "Task partitions",
            [spread if partitions else "one task: there is no PARTITION BY"],
        ),
    ]


def ranking_partitions(node: RankPlan) -> list[str]:
    texts = _texts(node)
    return [texts[name] for name in node.ranking.partition]


def ranking_order(node: RankPlan) -> Iterator[str]:
    texts = _texts(node)
    for key in node.ranking.order:
        yield f"{texts[key.name]}{_way(key)}"


def ranking_rows(node: RankPlan) -> str:
    return "the first row" if node.most == 1 else f"the first {node.most} rows"


def _numbers(node: RankPlan) -> str:
    return f", with their numbers ({node.ranking.number})" if node.numbered else ", without their numbers"


def _texts(node: RankPlan) -> dict[str, str]:
    names = [name for name, _ in node.keys]
    return dict(zip(names, map(plain, node.key_texts), strict=True))


def _way(key: SortKey) -> str:
    way = " DESC" if key.descending else ""
    if key.nulls_first is not key.descending:
        return way
    return f"{way} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
