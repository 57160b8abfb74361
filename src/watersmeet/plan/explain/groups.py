"""EXPLAIN of groups over all rows, and of tables that are joined with nothing: what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.names import shown
from watersmeet.plan.explain.windows import aggregate_lines
from watersmeet.plan.explain.words import Sections, plain
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import GroupPlan, TablePlan
from watersmeet.plan.nodes.aggregate import looks_at_values


def group_sections(node: GroupPlan, query: QueryPlan) -> Sections:
    """What there is to say of groups; HAVING of the last node is the query's filter."""
    having = node.having if node is not query.root else None
    return [
        ("Grouped by", [plain(text) for text in node.key_texts] or ["nothing: one group, of all rows"]),
        ("Aggregates", list(aggregate_lines(node))),
        ("Groups that go out", [] if having is None else [plain(having)]),
        ("Retention", [f"{node.side.title}: {line}" for line in _kept(node)]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        ("Task partitions", ["by ranges of the hash of what is grouped by" if node.keys else _ONE_TASK]),
    ]


def table_sections(node: TablePlan, query: QueryPlan) -> Sections:
    """What there is to say of a table that is joined with nothing."""
    kept = ", ".join(map(shown, node.side.kept))
    late = ", or a delete of it would be late" if node.side.event_times else ""
    return [
        ("Retention", [f"{node.side.title}: every row, until it is deleted{late}"]),
        ("Conditions on one input", [f"{name}: {text}" for name, text in node.filters]),
        ("Columns in state", [f"{node.side.title}: {kept}"]),
    ]


_ONE_TASK = "one task: there is no key"


def _kept(node: GroupPlan) -> Iterator[str]:
    calls = [plain(call.text) for call in node.calls if looks_at_values(call)]
    if not calls:
        yield "one row of sums per group, until the group has no row"
        return
    yield (
        f"one row of sums per group and different value, because of {', '.join(calls)}, until there is no"
        " such value; all values of a group are looked at when one of its rows comes or goes"
    )
