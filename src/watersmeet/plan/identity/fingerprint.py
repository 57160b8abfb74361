"""Rule: a digest of what stored state depends on, to tell whether a query fits its checkpoint.

In it: inputs and their sources (with the path or topic that they read), flags, event times and of what they
are made, keys, the condition and what its names stand for, kind and output mode. Not in it: lags, sinks, the
projection; of a join with a table as of the tick its condition and the table, for nothing is kept by them:
where the table is, what is read of it and how often may change between runs. Nor which columns are kept and
of what they are made (`plan.identity.origins`): each stored file says that itself, and is compared with what
the query needs of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from watersmeet.event_time import Side
from watersmeet.names import is_computed
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import Origins, digest_of, origins_of, side_origins
from watersmeet.plan.identity.stored_names import stored_text
from watersmeet.plan.model.conditions import KeyPlan
from watersmeet.plan.model.delta import ArrangePlan, DeltaPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    GroupPlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
    RankPlan,
    RestPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, SidePlan, joined_name
from watersmeet.spec.changing import ChangeColumn
from watersmeet.spec.job_options import Options
from watersmeet.spec.model import Branch, Source
from watersmeet.spec.options.changes import DEBEZIUM, INSERTS, UPDATES, UPSERT
from watersmeet.spec.options.debezium import DECIMALS, TEXTS, TIMESTAMPS, reads_decimal_texts, timestamps_unit
from watersmeet.spec.records.changes import computed_expr
from watersmeet.spec.secrets import public, public_option
from watersmeet.spec.time_zones import UTC

_VERSION = 3
_VERSION_OF_CHANGES = 4
"""Where rows come and go: since 4 rows without a key are sorted by value there, too."""


def fingerprint_of(
    nodes: Sequence[NodePlan], options: Options, paths: Mapping[str, str] = MappingProxyType({})
) -> str:
    """32 hexadecimal digits; the same for the same text whatever the platform or run.

    Args:
        paths: per source, by name, another path than it has.
    """
    content = content_of(nodes, options)
    for branch in (b for node in content["nodes"] for side in node["sides"] for b in side["branches"]):
        name, *said = branch.get("source", [None])
        if name in paths:
            at = f"path={paths[name]}"
            branch["source"] = [name, *(at if own.startswith("path=") else own for own in said)]
    return digest_of(content)


def content_of(nodes: Sequence[NodePlan], options: Options) -> dict[str, Any]:
    """That of which the fingerprint is a digest. ``nodes``: one description for each, in their order."""
    origins = origins_of(nodes)
    content: dict[str, Any] = {
        "version": _VERSION_OF_CHANGES if any(node.changes for node in nodes) else _VERSION,
        "output_mode": options.mode.value,
        "nodes": [_node(node, origins) for node in nodes],
    }
    if options.time_zone != UTC:
        content["time_zone"] = options.time_zone
    return content


def table_fingerprint(table: SidePlan, keys: Sequence[KeyPlan]) -> str:
    """A digest of what is read of a table and how it is held, whatever its content. No secret is in it."""
    origins = side_origins(table)
    content = {
        "side": _side(table, origins),
        "kept": [[name, origins[name].digest] for name in table.kept],
        "keys": [[text_of(key.right), key.columns.right] for key in keys],
        "options": [
            sorted((name.lower(), str(public(name, value))) for name, value in branch.source.options.items())
            for _, branch in table.sources
        ],
    }
    return digest_of(content)


def _node(node: NodePlan, origins: Mapping[tuple[int, str], Origins]) -> dict[str, object]:
    description: dict[str, object] = {
        "sides": [_side(side, origins[node.number, side.name]) for side in node.sides],
        "bounds": [[b.evicted, b.by, b.c] for b in node.bounds],
    }
    own = {side.name: origins[node.number, side.name] for side in (*node.sides, *node.tables)}
    return description | _by_kind(node, own)


def _meaning(joins: Iterable[JoinPlan], origins: Mapping[str, Origins]) -> dict[str, object]:
    """What the columns are made of that conditions ask for, where their names do not say it: a view may give
    its names to others."""
    means = {
        joined_name(own.name, name): origins[own.name][name].digest
        for join in joins
        for side in Side
        for own in [join.side(side)]
        for name in _asked(join, side)
        if name in origins[own.name] and not origins[own.name][name].named
        if not _is_said(join, side, name)
    }
    return {"means": means} if means else {}


def _is_said(join: JoinPlan, side: Side, name: str) -> bool:
    """Whether a column is computed for a key, of columns that sources have by the names that the key says."""
    own = join.side(side)
    written = [key.expr(side) for key in join.keys if key.column(side) == name and is_computed(name)]
    columns = [column.name for expr in written for column in expr.find_all(exp.Column)]
    return bool(written) and all(_is_own(own, column) for column in columns)


def _is_own(side: SidePlan, column: str) -> bool:
    """Whether a column of a side is one of each source of its input, by its own name."""
    for i in side.inputs:
        name = column if side.feed is None else column.removeprefix(f"{i.alias}.")
        places = [place for place, own in enumerate(i.columns) if own.name == name]
        if places and (side.feed is None or name != column):
            made = [branch.columns[places[0]] for branch in i.branches if isinstance(branch, Branch)]
            plain = [expr for expr in made if isinstance(expr, exp.Column) and expr.name == name]
            return len(plain) == len(i.branches)
    return False


def _asked(join: JoinPlan, side: Side) -> Iterator[str]:
    """The columns of a side that a join's condition asks for."""
    yield from (key.column(side) for key in join.keys)
    yield from (band.measured(side).column for band in (*join.bands, *join.values.every))
    own = join.side(side)
    yield from (name for name in own.kept if own.joined(name) in join.residual_columns)


@singledispatch
def _by_kind(node: NodePlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """What a kind of node keeps, by sides' names. Raises: TypeError for one of which nobody has said it."""
    raise TypeError(f"what state of {type(node).__name__} depends on")


@_by_kind.register
def _(node: PassPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    return {"kind": "PASS"}


@_by_kind.register
def _(node: RestPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Nobody asks: a fingerprint is that of the query with all its nodes."""
    return {"kind": "REST"}


@_by_kind.register
def _(node: LookupPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    return {"kind": "LOOKUP", "table": node.table.name}


@_by_kind.register
def _(node: UpsertPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """How long deletes are remembered may change: it only says when they are forgotten."""
    key, rows = node.primary_key, origins[node.side.name]
    return {
        "kind": "UPSERT",
        "key": _digests(rows, key.columns),
        "sequence": None if key.sequence is None else rows[key.sequence].digest,
    }


@_by_kind.register
def _(node: SnapshotPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    key = None if node.primary_key is None else _digests(origins[node.side.name], node.primary_key.columns)
    return {"kind": "SNAPSHOT", "key": key, "table": _named(node.source)}


@_by_kind.register
def _(node: TablePlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    return {"kind": "TABLE"}


@_by_kind.register
def _(node: GroupPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    rows = origins[node.side.name]
    return {"kind": "GROUPS", "keys": _digests(rows, (column for _, column in node.keys))}


@_by_kind.register
def _(node: RankPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """What is kept does not depend on order and number, but what is taken back has to be what was put out."""
    rows, columns = origins[node.side.name], dict(node.keys)
    ranking = node.ranking
    return {
        "kind": "RANKING",
        "partition": _digests(rows, (columns[name] for name in ranking.partition)),
        "order": [[rows[columns[key.name]].digest, key.descending, key.nulls_first] for key in ranking.order],
        "most": node.most,
    }


@_by_kind.register
def _(node: AggregatePlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Of the aggregates: whether they are had from rows or from partial ones."""
    rows = origins[node.side.name]
    return {
        "partial": not node.keeps_rows,
        "kind": node.kind.value,
        "time": node.time,
        "size": node.size,
        "slide": node.slide,
        "keys": _digests(rows, (column for _, column in node.keys)),
    }


@_by_kind.register
def _(node: WindowGroupPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    rows = origins[node.side.name]
    final = {"final": True} if node.is_final else {}
    return {
        **final,
        "kind": "WINDOW GROUPS",
        "windows": node.kind.value,
        "time": node.time,
        "size": node.size,
        "slide": node.slide,
        "keys": _digests(rows, (column for _, column in node.keys)),
    }


@_by_kind.register
def _(node: ArrangePlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    further = [
        [_digests(origins[side.name], other.keys) for other in own.others]
        for side, own in zip(node.sides, node.arranged, strict=True)
    ]
    return {
        **({"found by": further} if any(further) else {}),
        "kind": "ARRANGE",
        "copies": [side.copy_of for side in node.sides],
        "held": [
            [_digests(origins[side.name], own.keys), [stored_text(index) for index in own.indexes]]
            for side, own in zip(node.sides, node.arranged, strict=True)
        ],
    }


@_by_kind.register
def _(node: DeltaPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Nothing is kept by it; that the condition is another one shows by it."""
    lookups = []
    for lookup in node.lookups:
        join = lookup.join
        lookups.append(
            [
                lookup.place if lookup.by is None else [lookup.place, lookup.by],
                [[text_of(key.left), text_of(key.right), key.null_safe] for key in join.keys],
                [[b.left.column, b.right.column, b.lower, b.upper] for b in join.bands],
                [stored_text(band) for band in join.values.every],
                [stored_text(comparison) for comparison in (*join.rechecks, *join.values.rechecks)],
                None if join.residual is None else text_of(join.residual),
            ]
        )
    of_copies = {side.copy_of: origins[side.name] for side in node.met if side.copy_of is not None}
    joins = (lookup.join for lookup in node.lookups)
    return {"kind": "DELTA", "lookups": lookups, **_meaning(joins, {**of_copies, **origins})}


@_by_kind.register
def _(join: JoinPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    nearest = {} if join.asof is None else {"latest": join.asof.latest}
    lateness = {} if join.horizon is None else {"lateness": "join"}
    return {
        **nearest,
        **lateness,
        **_meaning([join], origins),
        "kind": join.kind.value,
        "keys": [[text_of(key.left), text_of(key.right), key.null_safe] for key in join.keys],
        "bands": [[b.left.column, b.right.column, b.lower, b.upper] for b in join.bands],
        "values": [stored_text(band) for band in join.values.every],
        "rechecks": [stored_text(comparison) for comparison in (*join.rechecks, *join.values.rechecks)],
        "residual": None if join.residual is None else text_of(join.residual),
        "matchable": join.matchable,
    }


def _side(side: SidePlan, origins: Origins) -> dict[str, object]:
    return {
        "name": side.name,
        "feed": None if side.feed is None else _feed(side.feed, origins),
        "event_times": [[name, origins[name].digest] for name in side.event_times],
        "not_null": sorted(_digests(origins, side.not_null)),
        "branches": [
            _feed(branch, origins) if isinstance(branch, FeedPlan) else _branch(branch)
            for branch in side.branches
        ],
    }


def _branch(branch: BranchPlan) -> dict[str, object]:
    return {
        "source": [branch.source.name, branch.source.connector, *_reads(branch.source)],
        "flag": None if branch.flag is None else text_of(branch.flag),
    }


def _feed(feed: FeedPlan, origins: Origins) -> dict[str, object]:
    return {
        "node": feed.node,
        "beneath": _digests(origins, feed.beneath),
        "filters": _digests(origins, feed.filters),
        "conditions": _digests(origins, feed.conditions),
        "not_null": sorted(set(_digests(origins, feed.not_null))),
        "event_times": [list(pair) for pair in feed.event_times],
    }


def _named(source: Source) -> list[str]:
    """Which table of a database it is, as written; where that is may change."""
    return [
        f"{key.lower()}={value}"
        for key, value in sorted(source.options.items())
        if key.lower() in ("dbtable", "query")
    ]


def _digests(origins: Origins, columns: Iterable[str]) -> list[str]:
    return [origins[column].digest for column in columns]


def place_of(source: Source) -> str:
    """A digest of where a source's rows come from: offsets of one path or topic mean nothing for another."""
    return digest_of([source.connector, *_place(source)])


def _place(source: Source) -> list[str]:
    """As written."""
    named = {key.lower(): value for key, value in source.options.items()}
    return [f"{key}={named[key]}" for key in ("path", "topic", "topics", "subscribepattern") if key in named]


def readable_place(source: Source) -> dict[str, str]:
    """Return where a source's rows come from, for messages: its connector, and its path or topic."""
    options = dict(option.split("=", 1) for option in _place(source))
    return {"connector": source.connector} | {key: public_option(key, own) for key, own in options.items()}


def _reads(source: Source) -> list[str]:
    """What the source reads, and how its records tell rows."""
    named = {key.lower(): value for key, value in source.options.items()}
    change = source.change_column
    said = [] if change is None else [_said_by(source, change), *_inserts(change), "-", *change.deletes]
    means = named.get("format", "").lower()
    said += [f"format={means}"] if means in (DEBEZIUM, UPSERT) else []  # another reads records as other rows
    if timestamps_unit(source.options) is not None:
        said.append(f"{TIMESTAMPS}={named[TIMESTAMPS].strip().lower()}")
    said += [f"{DECIMALS}={TEXTS}"] if reads_decimal_texts(source.options) else []
    return _place(source) + said


def _said_by(source: Source, change: ChangeColumn) -> str:
    computed = computed_expr(source.computed, change.column)
    return f"changes={change.column}" if computed is None else f"changes AS {text_of(computed)}"


def _inserts(change: ChangeColumn) -> tuple[str, ...]:
    """The words for inserts; the usual ones as states have them from before updates were among them."""
    usual, more = change.inserts[: len(INSERTS)], change.inserts[len(INSERTS) :]
    return INSERTS if usual == INSERTS and set(more) <= set(UPDATES) else change.inserts
