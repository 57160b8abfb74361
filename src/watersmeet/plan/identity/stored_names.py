"""Rule: the names by which stored state knows the classes and fields of a plan.

A fingerprint and the digest of settings are compared with those in a checkpoint. They spell a plan by the
names in this table and not by those of the code, so the code may rename a class or a field: its row here
keeps the stored name (``stored=attribute``). A class or a field without a row cannot be stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

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
from watersmeet.plan.model.conditions import Bands, Careful, KeyPlan
from watersmeet.plan.model.delta import Arranged, ArrangePlan, DeltaLookup, DeltaPlan, FoundBy, Retention
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    CallPlan,
    GroupPlan,
    JoinPlan,
    LookupPlan,
    PassPlan,
    RankPlan,
    RestPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, SidePlan
from watersmeet.spec.changing import ChangeColumn, PrimaryKey
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
from watersmeet.spec.ranking import Ranking, SortKey

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
    Careful: "Careful sums values residual exact columns",
    KeyPlan: "KeyPlan left right columns text",
    ArrangePlan: "ArrangePlan number sides bounds filters warnings changes arranged retentions",
    Arranged: "Arranged keys indexes key others",
    DeltaLookup: "DeltaLookup join place sees_tick by",
    DeltaPlan: (
        "DeltaPlan number sides bounds filters warnings changes arrangements lookups met met_arranged keys "
        "path_names is_last releasing"
    ),
    FoundBy: "FoundBy keys key",
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
    RestPlan: "RestPlan number sides bounds filters warnings changes",
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
    """Spell a value of a plan as ``repr`` does, with stored names in place of the code's."""
    if isinstance(value, tuple):
        return f"({', '.join(map(stored_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Enum):
        return f"<{_ENUMS[type(value)]}.{value.value.upper()}: {value.value!r}>"
    if not dataclasses.is_dataclass(value):
        return repr(value)
    names = stored_names(type(value))
    fields = (f"{stored}={stored_text(getattr(value, attribute))}" for stored, attribute in names.fields)
    return f"{names.name}({', '.join(fields)})"
