"""The digest of all that stored state depends on, written from explicit names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import singledispatch
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from watersmeet.conditions import (
    AsofRule,
    Bound,
    ExactBand,
    Horizon,
    IntegerSum,
    Key,
    RealBand,
    RealColumn,
    RealComparison,
    RealSum,
)
from watersmeet.event_time import Side, TimeColumn, TimeComparison, TimeConstant, TimeFloor, TimeSum
from watersmeet.measure import Measure, Measured
from watersmeet.names import is_computed
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import Origins, digest_of, origins_of, side_origins
from watersmeet.plan.identity.source_location import source_location
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    Arranged,
    ArrangePlan,
    CallPlan,
    DeltaLookup,
    DeltaPlan,
    GroupPlan,
    JoinPlan,
    LookupKey,
    LookupPlan,
    NodePlan,
    PassPlan,
    RankPlan,
    Retention,
    ReusedPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)
from watersmeet.plan.model.sides import (
    Bands,
    BranchPlan,
    FeedPlan,
    KeyPlan,
    OverflowCheck,
    SidePlan,
    joined_name,
)
from watersmeet.spec.aggregates import Ranking, SortKey
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.job_options import Options
from watersmeet.spec.model import (
    Aggregation,
    Branch,
    EventTime,
    Input,
    Join,
    OutputColumn,
    Query,
    Sink,
    Source,
    StageBranch,
    Window,
)
from watersmeet.spec.options.changes import DEBEZIUM, INSERTS, UPDATES, UPSERT
from watersmeet.spec.options.debezium import (
    DECIMALS,
    TEXTS,
    TIMESTAMPS,
    reads_decimal_texts,
    timestamps_unit,
)
from watersmeet.spec.records.changes import computed_expr
from watersmeet.spec.secrets import public
from watersmeet.spec.time_zones import UTC

# Rule: the names by which stored state knows the classes and fields of a plan.
#
# A fingerprint and the digest of settings are compared with those in a checkpoint. They spell a plan by
# the names in this table and not by those of the code, so the code may rename a class or a field: its row
# here keeps the stored name (``stored=attribute``). A class or a field without a row cannot be stored.

_NAMES: Mapping[type, str] = {
    AsofRule: "AsofPlan latest closed_lower closed_upper floors ceilings",
    Bound: "Bound evicted by c text slack low high",
    ExactBand: "ExactBand left right lower upper texts",
    Horizon: "Horizon keys reach",
    IntegerSum: "IntegerSum terms low high least most",
    Key: "Key left right null_safe",
    RealBand: "RealBand left right lower upper size error limit falls comparison text",
    RealColumn: "RealColumn side measured",
    RealComparison: "RealComparison left op right",
    RealSum: "RealSum left right sign",
    TimeColumn: "TimeColumn side column",
    TimeComparison: "TimeComparison left op right",
    TimeConstant: "TimeConstant value",
    TimeFloor: "TimeFloor operand unit",
    TimeSum: "TimeSum left right sign",
    Measure: "Measure kind places",
    Measured: "Measured column measure",
    Bands: "Bands exact real comparisons rechecks recheck_texts slack inverted",
    OverflowCheck: "Careful sums values residual exact columns",
    KeyPlan: "KeyPlan left right columns text",
    ArrangePlan: "ArrangePlan number sides bounds filters warnings changes arranged retentions",
    Arranged: "Arranged keys indexes key others",
    DeltaLookup: "DeltaLookup join place sees_tick by",
    DeltaPlan: (
        "DeltaPlan number sides bounds filters warnings changes arrangements lookups met met_arranged keys "
        "path_names is_last releasing"
    ),
    LookupKey: "FoundBy keys key",
    Retention: "Retention alias others",
    QueryPlan: (
        "QueryPlan name sink nodes where outputs options fingerprint sql reordered ordered_by_state of_sink "
        "of_plan joins_run key_rows rows_of_key asked taken complete uncounted counted"
    ),
    AggregatePlan: (
        "AggregatePlan number sides bounds filters warnings changes keys calls results key_texts having "
        "kind time size slide from_rows"
    ),
    CallPlan: "CallPlan name function columns distinct filter expr text plain",
    GroupPlan: ("GroupPlan number sides bounds filters warnings changes keys calls results key_texts having"),
    JoinPlan: (
        "JoinPlan number sides bounds filters warnings changes kind keys bands comparisons rechecks slack "
        "residual residual_exact residual_columns residual_why matchable one_sided recheck_texts values "
        "careful asof horizon looks_above"
    ),
    LookupPlan: (
        "LookupPlan number sides bounds filters warnings changes kind keys bands comparisons rechecks slack "
        "residual residual_exact residual_columns residual_why matchable one_sided recheck_texts values "
        "careful asof horizon table table_fingerprint"
    ),
    PassPlan: "PassPlan number sides bounds filters warnings changes",
    RankPlan: (
        "RankPlan number sides bounds filters warnings changes keys calls results key_texts having ranking "
        "most numbered"
    ),
    ReusedPlan: "RestPlan number sides bounds filters warnings changes",
    SnapshotPlan: "SnapshotPlan number sides bounds filters warnings changes primary_key",
    TablePlan: "TablePlan number sides bounds filters warnings changes",
    UpsertPlan: "UpsertPlan number sides bounds filters warnings changes primary_key",
    WindowGroupPlan: (
        "WindowGroupPlan number sides bounds filters warnings changes keys calls results key_texts having "
        "kind time size slide is_final"
    ),
    BranchPlan: "BranchPlan source lags columns flag words",
    FeedPlan: (
        "FeedPlan node copied computed computed_exact beneath filters conditions not_null matchable "
        "event_times path query place renamed timed"
    ),
    SidePlan: (
        "SidePlan name inputs branches feed event_times kept carried nullable padded passes not_null "
        "copy_of sharers of_others kept_by"
    ),
    ChangeColumn: "ChangeColumn column inserts deletes",
    PrimaryKey: "PrimaryKey columns sequence tombstones_us",
    Options: (
        "Options watermark_rule lateness allowed_lateness output_mode plan max_rows max_bytes "
        "max_rows_per_key max_output_per_tick=max_output_rows_per_tick max_job_rows max_job_bytes "
        "max_skew=max_drift max_broken at_limit null_time=on_null_time max_task_memory time_zone lenient"
    ),
    Aggregation: "Aggregation window keys aggregates columns having ranking",
    Branch: "Branch source columns beneath above lags",
    EventTime: "EventTime column lag",
    Input: "Input alias columns event_times branches as_of broadcast",
    Join: "Join left right kind on where match clause plan",
    OutputColumn: "OutputColumn name expr origin",
    Query: "Query relation where outputs sql aggregation mode indexed_by",
    Sink: "Sink name connector options columns primary_key",
    Source: (
        "Source name columns connector options event_times partitions idle_timeout_us on_idle max_ahead_us "
        "is_table changes rows_per_second max_rows max_bytes refresh_us change_column primary_key compared "
        "on_broken computed"
    ),
    StageBranch: "StageBranch stage columns above",
    Window: "Window kind time size slide",
    Ranking: "Ranking partition order number most text",
    SortKey: "SortKey name descending nulls_first",
}
"""Class -> its stored name, then those of its fields, in the order of the class."""

_ENUMS: Mapping[type[Enum], str] = {Side: "Side"}
"""Class -> its stored name. That of a member is its value in capitals."""


@dataclasses.dataclass(frozen=True)
class StoredNames:
    """The stored name of a class, and of each of its fields as pairs of stored name and attribute."""

    name: str
    fields: tuple[tuple[str, str], ...]


def read_row(kind: type, row: str) -> StoredNames:
    """Read a class's row of the table.

    Raises:
        TypeError: the row lacks a field that is compared, or names one that the class does not have.
    """
    name, *rest = row.split()
    pairs = (field.partition("=") for field in rest)
    fields = tuple((stored, attribute or stored) for stored, _, attribute in pairs)
    own, listed = dataclasses.fields(kind), {attribute for _, attribute in fields}
    compared, named = {field.name for field in own if field.compare}, {field.name for field in own}
    if not compared <= listed <= named:
        raise TypeError(f"stored names of {kind.__name__}: {sorted((compared - listed) | (listed - named))}")
    return StoredNames(name, fields)


_STORED = {kind: read_row(kind, row) for kind, row in _NAMES.items()}


def stored_names(kind: type) -> StoredNames:
    """Look up the stored names of a class of a plan. Raises: TypeError: the table has no row for it."""
    if kind not in _STORED:
        raise TypeError(f"{kind.__name__} has no stored name")
    return _STORED[kind]


def stored_text(value: Any) -> str:
    """Format a value of a plan as ``repr`` does, with stored names instead of names in the code."""
    if isinstance(value, tuple):
        return f"({', '.join(map(stored_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Enum):
        return f"<{_ENUMS[type(value)]}.{value.value.upper()}: {value.value!r}>"
    if not dataclasses.is_dataclass(value):
        return repr(value)
    names = stored_names(type(value))
    fields = (f"{stored}={stored_text(getattr(value, attribute))}" for stored, attribute in names.fields)
    return f"{names.name}({', '.join(fields)})"


# Rule: a digest of what stored state depends on, to tell whether a query fits its checkpoint.
#
# In it: inputs and their sources (with the path or topic that they read), flags, event times and of what
# they are made, keys, the condition and what its names stand for, kind and output mode. Not in it: lags,
# sinks, the projection; of a join with a table as of the tick its condition and the table, for nothing is
# kept by them: where the table is, what is read of it and how often may change between runs. Nor which
# columns are kept and of what they are made (`plan.identity.origins`): each stored file says that itself,
# and is compared with what the query needs of it.

_VERSION = 3
_VERSION_OF_CHANGES = 4
"""Where rows come and go: since 4 rows without a key are sorted by value there, too."""


def fingerprint_of(
    nodes: Sequence[NodePlan], options: Options, paths: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return 32 hexadecimal digits that are equal for equal content on every platform and run.

    Args:
        paths: Per source name, a path that replaces the path of the source.
    """
    content = content_of(nodes, options)
    for branch in (b for node in content["nodes"] for side in node["sides"] for b in side["branches"]):
        name, *said = branch.get("source", [None])
        if name in paths:
            at = f"path={paths[name]}"
            branch["source"] = [name, *(at if own.startswith("path=") else own for own in said)]
    return digest_of(content)


def content_of(nodes: Sequence[NodePlan], options: Options) -> dict[str, Any]:
    """Build the content whose digest is the fingerprint.

    Its ``nodes`` has one description per node, in order.
    """
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
    """Return a digest of what a table reads and how its rows are stored, without their contents.

    The digest contains no secret.
    """
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
    """Return the origins of the columns that conditions need, where names do not identify them.

    A view may give its names to other columns.
    """
    means = {
        joined_name(own.name, name): origins[own.name][name].digest
        for join in joins
        for side in Side
        for own in [join.side(side)]
        for name in _condition_columns(join, side)
        if name in origins[own.name] and not origins[own.name][name].named
        if not _is_given_by_key(join, side, name)
    }
    return {"means": means} if means else {}


def _is_given_by_key(join: JoinPlan, side: Side, name: str) -> bool:
    """Return True if a column is computed for a key from columns that the key names.

    Each source has to have these columns by the same names.
    """
    own = join.side(side)
    written = [key.expr(side) for key in join.keys if key.column(side) == name and is_computed(name)]
    columns = [column.name for expr in written for column in expr.find_all(exp.Column)]
    return bool(written) and all(_is_own(own, column) for column in columns)


def _is_own(side: SidePlan, column: str) -> bool:
    """Return True if each source of the input has the column of a side by its own name."""
    for i in side.inputs:
        name = column if side.feed is None else column.removeprefix(f"{i.alias}.")
        places = [place for place, own in enumerate(i.columns) if own.name == name]
        if places and (side.feed is None or name != column):
            made = [branch.columns[places[0]] for branch in i.branches if isinstance(branch, Branch)]
            plain = [expr for expr in made if isinstance(expr, exp.Column) and expr.name == name]
            return len(plain) == len(i.branches)
    return False


def _condition_columns(join: JoinPlan, side: Side) -> Iterator[str]:
    """Yield the columns of a side that the condition of a join needs."""
    yield from (key.column(side) for key in join.keys)
    yield from (band.measured(side).column for band in (*join.bands, *join.values.every))
    own = join.side(side)
    yield from (name for name in own.kept if own.joined(name) in join.residual_columns)


@singledispatch
def _by_kind(node: NodePlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Return what the state of a kind of node depends on, by names of its sides.

    Raises:
        TypeError: No description is registered for this kind of node.
    """
    raise TypeError(f"what state of {type(node).__name__} depends on")


@_by_kind.register
def _(node: PassPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    return {"kind": "PASS"}


@_by_kind.register
def _(node: ReusedPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Return a placeholder; a fingerprint covers the query with all its nodes, so no caller uses it."""
    return {"kind": "REST"}


@_by_kind.register
def _(node: LookupPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    return {"kind": "LOOKUP", "table": node.table.name}


@_by_kind.register
def _(node: UpsertPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Return the content of an upsert, without the time for which deletes are remembered.

    That time may change, because it only decides when deletes are forgotten.
    """
    key, rows = node.primary_key, origins[node.side.name]
    return {
        "kind": "UPSERT",
        "key": _digests(rows, key.columns),
        "sequence": None if key.sequence is None else rows[key.sequence].digest,
    }


@_by_kind.register
def _(node: SnapshotPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    key = None if node.primary_key is None else _digests(origins[node.side.name], node.primary_key.columns)
    return {"kind": "SNAPSHOT", "key": key, "table": _database_table(node.source)}


@_by_kind.register
def _(node: TablePlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    return {"kind": "TABLE"}


@_by_kind.register
def _(node: GroupPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    rows = origins[node.side.name]
    return {"kind": "GROUPS", "keys": _digests(rows, (column for _, column in node.keys))}


@_by_kind.register
def _(node: RankPlan, origins: Mapping[str, Origins]) -> dict[str, object]:
    """Return the content of a ranking, which includes its order and limit.

    The stored rows do not depend on them, but retractions have to equal the rows emitted before.
    """
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
    """Return the content of windows, which states whether aggregates come from rows or partial aggregates."""
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
    """Return the content of a delta join step.

    The step retains nothing; the content shows that its condition has changed.
    """
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


def _database_table(source: Source) -> list[str]:
    """Return the table or query of a database source as written, without its location.

    The location of the database may change.
    """
    return [
        f"{key.lower()}={value}"
        for key, value in sorted(source.options.items())
        if key.lower() in ("dbtable", "query")
    ]


def _digests(origins: Origins, columns: Iterable[str]) -> list[str]:
    return [origins[column].digest for column in columns]


def _reads(source: Source) -> list[str]:
    """Return what the source reads and how its records identify rows."""
    named = {key.lower(): value for key, value in source.options.items()}
    change = source.change_column
    said = (
        [] if change is None else [_describe_change(source, change), *_inserts(change), "-", *change.deletes]
    )
    means = named.get("format", "").lower()
    said += [f"format={means}"] if means in (DEBEZIUM, UPSERT) else []  # another reads records as other rows
    if timestamps_unit(source.options) is not None:
        said.append(f"{TIMESTAMPS}={named[TIMESTAMPS].strip().lower()}")
    said += [f"{DECIMALS}={TEXTS}"] if reads_decimal_texts(source.options) else []
    return source_location(source) + said


def _describe_change(source: Source, change: ChangeColumn) -> str:
    computed = computed_expr(source.computed, change.column)
    return f"changes={change.column}" if computed is None else f"changes AS {text_of(computed)}"


def _inserts(change: ChangeColumn) -> tuple[str, ...]:
    """Return the words for inserts.

    The usual words are spelled as in states from versions in which they did not include updates.
    """
    usual, more = change.inserts[: len(INSERTS)], change.inserts[len(INSERTS) :]
    return INSERTS if usual == INSERTS and set(more) <= set(UPDATES) else change.inserts
