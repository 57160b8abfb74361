"""Identify each column of a side by a digest of its origin.

When a query is planned again, its stored columns are recognized by their digests, whatever their names and
neighbouring columns are.

The digest of a column covers its own type, the expression over the source, and the declared types of the
source's columns in that expression. For rows of another node it covers the digests of the node's columns, and
the alias if that node combines several inputs. It excludes the alias of an input for the input's own rows,
and the alias of a table that is alone, so queries with different aliases can share rows. It also excludes the
location of the source, filters and conditions: `plan.identity.fingerprint` covers those on which the rows
depend.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

from sqlglot import exp

from watersmeet.names import is_computed
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.nodes import GroupedPlan, NodePlan, RankPlan, WindowedPlan
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, SidePlan, joined_name
from watersmeet.spec.model import WINDOW_END, WINDOW_START, Expr


@dataclass(frozen=True)
class Origin:
    """Origin of a column.

    Attributes:
        digest: 32 hexadecimal digits.
        text: Description of the column for users.
        named: The column has the name of a source's column, which identifies it.
    """

    digest: str
    text: str
    named: bool = False


Origins = Mapping[str, Origin]
"""Per column."""


def origins_of(nodes: Sequence[NodePlan]) -> dict[tuple[int, str], Origins]:
    """Return the origins of all columns of each side or table, by (node number, name)."""
    leaving: list[Origins] = []
    all_origins: dict[tuple[int, str], Origins] = {}
    of_inputs: dict[str, Origins] = {}
    for node in nodes:
        own: dict[str, Origins] = {}
        for side in (*node.sides, *node.tables):
            origins = None if side.feed is not None else of_inputs.get(side.copy_of or side.name)
            own[side.name] = side_origins(side, leaving) if origins is None else origins
            if side.feed is None:
                of_inputs[side.name] = own[side.name]
        all_origins |= {(node.number, name): origins for name, origins in own.items()}
        leaving.append(_output_origins(node, own))
    return all_origins


def side_origins(side: SidePlan, rows_of_nodes: Sequence[Origins] = ()) -> Origins:
    """Return the origins of the columns of one side.

    Args:
        rows_of_nodes: Per node, the origins of the columns that leave it.
    """
    if side.feed is not None:
        return _feed_origins(side.feed, rows_of_nodes)
    types = {column.name: str(column.identity_type) for column in side.input.columns}
    branches = [
        _feed_origins(branch, rows_of_nodes) if isinstance(branch, FeedPlan) else _read(branch)
        for branch in side.branches
    ]
    origins = {}
    for name in dict.fromkeys(name for branch in branches for name in branch):
        ways = [branch.get(name) for branch in branches]
        parts = [None if way is None else way.digest for way in ways]
        text = joined_name(side.name, name)
        if is_computed(name):
            text = next(way.text for way in ways if way is not None)
        named = all(way is not None and way.named for way in ways)
        origins[name] = Origin(digest_of(["input", types.get(name), parts]), text, named)
    return origins


def digest_of(content: object) -> str:
    """Return the digest of a JSON value, equal for equal content on every platform and run."""
    text = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read(branch: BranchPlan) -> Origins:
    """Return the origins of the columns that come from a source."""
    types = {column.name: str(column.type) for column in branch.source.columns}
    return {
        name: Origin(
            digest_of(
                [
                    text_of(expr),
                    sorted({(c.name, types.get(c.name, "")) for c in expr.find_all(exp.Column)}),
                ]
            ),
            text_of(expr),
            named=isinstance(expr, exp.Column) and expr.name == name,
        )
        for name, expr in branch.columns
    }


def _feed_origins(feed: FeedPlan, rows_of_nodes: Sequence[Origins]) -> Origins:
    """Return the origins of the columns that come from a node below."""
    rows = rows_of_nodes[feed.node]
    origins = {name: rows[column] for name, column in feed.copied}
    return origins | {name: _computed_origin(expr, rows) for name, expr in feed.computed}


def _computed_origin(expr: Expr, rows: Origins) -> Origin:
    """Return the origin of an expression over the rows of a node."""

    def replace_by_digest(node: Expr) -> Expr:
        origin = rows.get(node.name) if isinstance(node, exp.Column) else None
        return node if origin is None else exp.column(exp.to_identifier(origin.digest, quoted=True))

    return Origin(
        digest_of(["made", text_of(expr.transform(replace_by_digest))]), text_of(expr).replace("`", "")
    )


@singledispatch
def _output_origins(node: NodePlan, by_side: Mapping[str, Origins]) -> Origins:
    """Return the origins of the columns that leave a node.

    Args:
        by_side: Origins of its sides and tables, by name.
    """
    alone = len(node.leaving) == 1
    return {
        side.joined(name): origin if alone else _tag_with_alias(side, origin)
        for side in node.leaving
        for name, origin in by_side[side.name].items()
    }


def _tag_with_alias(side: SidePlan, origin: Origin) -> Origin:
    """Add the name of the side to the digest of an origin.

    This distinguishes the column from columns of other inputs with the same origin. The origin of a
    joined row is unchanged.
    """
    if side.feed is not None:
        return origin
    digest = digest_of(["of", side.copy_of or side.name, origin.digest])
    return replace(origin, digest=digest)


@_output_origins.register
def _(node: WindowedPlan, by_side: Mapping[str, Origins]) -> Origins:
    ends = {
        name: Origin(digest_of(["window", node.number, name]), name) for name in (WINDOW_START, WINDOW_END)
    }
    return ends | dict(_of_groups(node, by_side))


@_output_origins.register
def _(node: RankPlan, by_side: Mapping[str, Origins]) -> Origins:
    number = Origin(digest_of(["number", node.number]), node.ranking.text)
    return {**_of_groups(node, by_side), node.ranking.number: number}


@_output_origins.register
def _of_groups(node: GroupedPlan, by_side: Mapping[str, Origins]) -> Origins:
    rows, leaving = by_side[node.side.name], {}
    for name, column in node.keys:
        leaving[name] = Origin(digest_of(["key", node.number, rows[column].digest]), rows[column].text)
    for call in node.calls:
        columns = [rows[column].digest for column in call.columns]
        chosen = None if call.filter is None else rows[call.filter].digest
        how = [
            call.function,
            columns,
            call.distinct,
            chosen,
            None if call.plain else _computed_origin(call.expr, rows).digest,
        ]
        leaving[call.name] = Origin(digest_of(["call", node.number, *how]), call.text)
    return leaving
