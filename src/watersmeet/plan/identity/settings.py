"""Settings that determine the rows of a tick and that a new run may change, by name.

They decide whether an interrupted tick can be repeated exactly. Everything in a plan counts, except what
this module lists with a reason. A new field of a plan counts from the start: a field that was forgotten
causes a rejection too many, not a row too many.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any

from sqlglot import exp

from watersmeet.conditions import ExactBand
from watersmeet.deprecated_names import SETTINGS, first_name, first_value
from watersmeet.plan.identity.fingerprint import stored_names
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import KeyPlan
from watersmeet.plan.query_inputs import limited_sources
from watersmeet.spec.job_options import SHEDDING, SHEDDING_OF_JOB, Lateness
from watersmeet.spec.model import Column, Options, Sink, Source, bare
from watersmeet.spec.secrets import public_option
from watersmeet.types.sql_type import SqlType

_WORDS = "words for people; what they say counts where it is used"
_ELSEWHERE = "has a name of its own among the settings"
_RESULT = "what came of it is in the plan"
_CONNECTION = "says how a server is reached, not which rows come"
_PATIENCE = "when a tick has failed by it, it must be free to be raised"
_CUT = "how much a tick reads: that of the tick to be repeated is decided"
_BY_OTHERS = ("query", "place", "renamed")

OMITTED: Mapping[tuple[str, str], str] = {
    ("Options", "plan"): _RESULT,
    ("Source", "name"): "is in the setting's name",
    ("Source", "options"): _ELSEWHERE,
    ("Source", "rows_per_second"): "for forecasts; " + _RESULT,
    ("Source", "max_rows"): _PATIENCE,
    ("Source", "max_bytes"): _PATIENCE,
    ("Source", "on_broken"): "a tick is refused by it, or made as without it",
    ("Source", "refresh_us"): "the copy of a table that a tick meets is written down with the tick",
    ("Sink", "name"): "is in the setting's name",
    ("Sink", "options"): _ELSEWHERE,
    ("QueryPlan", "name"): "is in the setting's name",
    ("QueryPlan", "sink"): _ELSEWHERE,
    ("QueryPlan", "where"): _ELSEWHERE,
    ("QueryPlan", "outputs"): _ELSEWHERE,
    ("BranchPlan", "lags"): _ELSEWHERE,
    ("Branch", "lags"): _ELSEWHERE,
    ("QueryPlan", "options"): _ELSEWHERE,
    ("QueryPlan", "fingerprint"): "is compared before, whether a tick is pending or not",
    ("QueryPlan", "sql"): _WORDS,
    ("QueryPlan", "asked"): _RESULT,
    ("QueryPlan", "complete"): "the nodes that are run are there",
    ("QueryPlan", "taken"): "the nodes that rest are there",
    ("QueryPlan", "reordered"): _WORDS,
    ("QueryPlan", "ordered_by_state"): _WORDS,
    ("QueryPlan", "of_sink"): _WORDS,
    ("QueryPlan", "of_plan"): _WORDS,
    ("QueryPlan", "joins_run"): _WORDS,
    ("QueryPlan", "counted"): _WORDS,
    ("QueryPlan", "uncounted"): "in which order rows are looked up is no part of them; these are compared",
    ("QueryPlan", "key_rows"): _WORDS,
    ("QueryPlan", "rows_of_key"): "it is what a node counts, which is there",
    ("Query", "sql"): _WORDS,
    ("Join", "clause"): _WORDS,
    ("Join", "plan"): _RESULT,
    ("OutputColumn", "origin"): _WORDS,
    ("Bound", "text"): _WORDS,
    ("KeyPlan", "text"): _WORDS,
    ("BranchPlan", "words"): _WORDS,
    ("ExactBand", "texts"): _WORDS,
    ("RealBand", "text"): _WORDS,
    ("Bands", "inverted"): _WORDS,
    ("Arranged", "key"): _WORDS,
    ("FoundBy", "key"): _WORDS,
    ("CallPlan", "text"): _WORDS,
    ("AggregatePlan", "key_texts"): _WORDS,
    ("GroupPlan", "key_texts"): _WORDS,
    ("RankPlan", "key_texts"): _WORDS,
    ("WindowGroupPlan", "key_texts"): _WORDS,
    ("WindowGroupPlan", "is_final"): "is in the fingerprint, which is compared before",
    ("Aggregation", "ranking"): "is in the node's plan",
    ("JoinPlan", "recheck_texts"): _WORDS,
    ("LookupPlan", "recheck_texts"): _WORDS,
    ("LookupPlan", "table_fingerprint"): _RESULT,
    ("SidePlan", "sharers"): "in which files rows lie is no part of them",
    ("SidePlan", "of_others"): "others keep them",
    ("SidePlan", "kept_by"): "which query keeps rows is no part of them",
    **{("FeedPlan", name): "which query makes rows is no part of them" for name in _BY_OTHERS},
    ("Input", "broadcast"): "which task makes a row is no part of it",
    **{
        (node, name): why
        for name, why in (("warnings", _WORDS), ("changes", "follows from output mode and windows"))
        for node in (
            "NodePlan",
            "PassPlan",
            "RestPlan",
            "UpsertPlan",
            "SnapshotPlan",
            "TablePlan",
            "GroupPlan",
            "RankPlan",
            "WindowGroupPlan",
            "JoinPlan",
            "LookupPlan",
            "AggregatePlan",
            "ArrangePlan",
            "DeltaPlan",
        )
    },
}
"""(class, field), by their stored names -> why the rows of a tick do not depend on it."""

LATER: Mapping[tuple[str, str], object] = {
    ("Options", "lateness"): Lateness.COLUMN,
    ("JoinPlan", "horizon"): None,
    ("LookupPlan", "horizon"): None,
    ("Source", "computed"): (),
}
"""(class, field) that an older version does not have -> the value with which rows are as without it. Where it
has that it is not told: so a newer version, too, can repeat an interrupted tick."""

OMITTED_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "maxfilespertrigger",
            "maxbytespertrigger",
            "maxoffsetspertrigger",
            "minoffsetspertrigger",
            "maxtriggerdelay",
            "minpartitions",
            "maxrecordsperpartition",
            "startingoffsets",
            "startingtimestamp",
        ),
        _CUT,
    ),
    **dict.fromkeys(
        (
            "bootstrap.servers",
            "kafka.bootstrap.servers",
            "user",
            "url",
            "schema.registry",
            "schema.registry.user",
        ),
        _CONNECTION,
    ),
    **dict.fromkeys(
        ("transaction.timeout.ms", "max.request.size", "message.max.bytes", "max_wait"), _PATIENCE
    ),
    "debezium.truncate": "decides whether a tick may go on, and adds no row",
    "on_changed_file": "decides whether a tick may go on; what it reads is in the tick's identity",
    "failondataloss": "decides whether a tick may go on; what it reads is in the tick's identity",
}
"""Options of sources and sinks, in small letters -> why the rows of a tick do not depend on them."""

_NONE = "null"
"""How a setting is told that is not set."""

LIMIT = "max_"
"""How options of a job begin that are limits: they stop a tick, and change none of its rows. When a tick has
failed by one, it must be free to be raised."""

_CLIENT = "kafka."
_OF_ROWS = frozenset({"kafka.isolation.level"})
"""Of the settings of Kafka's client, those that decide which records come."""


def settings_of(plan: JobPlan) -> dict[str, str]:
    """Return the settings of a plan as name and text for users.

    Secrets are hidden and do not count as differences.
    """
    settings: dict[str, str] = {}
    for query in plan.queries:
        settings |= {name: _text(value) for name, value in _fields(query.options)}
        settings |= _of_connector("sink", query.sink)
        settings |= {f'lag of {key} in "{query.name}" (µs, or plain units)': lag for key, lag in _lags(query)}
        settings[f'columns of "{query.name}"'] = _columns(query)
        settings[f'filter of "{query.name}"'] = _text(query.where)
        settings[f'joins and inputs of "{query.name}"'] = _plan(query)
    for source in (*plan.sources, *plan.tables):
        settings |= _of_connector("source", source)
    for source in limited_sources(node for query in plan.queries for node in query.nodes):
        if plan.queries[0].options.at_limit.sheds:  # rows go by them, and the job does not stop
            limits = [source.max_rows, source.max_bytes]
            settings[f'limits of source "{source.name}" (rows, bytes)'] = _text(limits)
    return settings


def digest_of(settings: Mapping[str, str]) -> str:
    text = json.dumps(settings, ensure_ascii=True, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the settings that differ, each with its value before and its value now."""
    there, here = ({**dict.fromkeys({*before, *now}, _NONE), **one} for one in (before, now))
    return [
        f"{SETTINGS.get(name, name)}: {_format_setting(there[name])} before, "
        f"{_format_setting(here[name])} now"
        for name in sorted(there)
        if there[name] != here[name]
    ]


def _format_setting(value: str) -> str:
    return "not set" if value == _NONE else value


def _of_connector(what: str, described: Source | Sink) -> dict[str, str]:
    start = f'{what} "{described.name}": '
    settings = {start + name: _text(value) for name, value in _fields(described)}
    for name, value in described.options.items():
        plain = name.lower()
        if plain not in OMITTED_OPTIONS and (not plain.startswith(_CLIENT) or plain in _OF_ROWS):
            settings[f"{start}'{first_name(plain)}'"] = first_value(plain, str(public_option(name, value)))
    return settings


def _lags(query: QueryPlan) -> Iterator[tuple[str, str]]:
    for side in query.sides:
        for number, branch in side.sources:
            of_branch = f" (branch {number + 1})" if len(side.branches) > 1 else ""
            for column, lag in zip(side.event_times, branch.lags, strict=True):
                yield f"{side.name}.{column}{of_branch}", _text(lag)


def _columns(query: QueryPlan) -> str:
    return ", ".join(f"{_text(output.expr)} AS {output.name}" for output in query.outputs)


def _plan(query: QueryPlan) -> str:
    """Return a digest of the planned query, equal for texts with the same meaning."""
    described = json.dumps(_to_json(query.as_planned), ensure_ascii=True, sort_keys=True)
    return f"plan {hashlib.blake2b(described.encode(), digest_size=8).hexdigest()}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    names = stored_names(type(value))
    for name, attribute in names.fields:
        limit = isinstance(value, Options) and name.startswith(LIMIT) and not _sheds(value, name)
        field, own = (names.name, name), getattr(value, attribute)
        as_before = field in LATER and LATER[field] == own
        if field not in OMITTED and not limit and not as_before:
            yield name, own


def _sheds(options: Options, name: str) -> bool:
    """Return True if the option decides which rows a tick sheds."""
    return options.at_limit.sheds and name in (*SHEDDING, *SHEDDING_OF_JOB)


def _text(value: Any) -> str:
    described = _to_json(value)
    return described if isinstance(described, str) else json.dumps(described, ensure_ascii=False)


def _to_json(value: Any) -> Any:
    """Convert a value to JSON.

    Raises:
        TypeError: No conversion is defined for the type of the value.
    """
    if isinstance(value, Source | Sink | Options):
        return [stored_names(type(value)).name, getattr(value, "name", None)]
    if isinstance(value, SqlType):
        return str(value)
    if isinstance(value, Column):
        return {"": "Column", "name": value.name, "type": str(value.identity_type)}
    if isinstance(value, exp.Expression):
        return bare(value).sql(dialect="spark", comments=False)
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _to_json(inner) for name, inner in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((_to_json(inner) for inner in value), key=repr)
    if isinstance(value, Sequence):
        return [_to_json(inner) for inner in value]
    if dataclasses.is_dataclass(value):
        return _as_fields(value)
    raise TypeError(f"{type(value).__name__} in a plan")


def _as_fields(value: Any) -> dict[str, Any]:
    kind = stored_names(type(value)).name
    return {
        "": kind,
        **{name: _FIRST_WORDS.get((kind, name), _to_json)(inner) for name, inner in _fields(value)},
    }


def _time_bands(bands: Sequence[ExactBand]) -> list[dict[str, Any]]:
    described = []
    for band in bands:
        fields = {name: value for name, value in _as_fields(band).items() if name not in ("left", "right")}
        columns = {"left_column": band.left.column, "right_column": band.right.column}
        described.append({**fields, **columns, "": "TimeBand"})
    return described


def _keys(keys: Sequence[KeyPlan]) -> list[dict[str, Any]]:
    described = []
    for key in keys:
        fields = _as_fields(key)
        columns = {_KEY_COLUMNS.get(name, name): value for name, value in fields.pop("columns").items()}
        described.append({**columns, **fields, "": "Key"})
    return described


def _exact(tree: Any) -> Any:
    """Convert a tree to JSON.

    Types of ARRAYs, MAPs and STRUCTs have no blanks, and the type of NULL is called NULL.
    """
    if isinstance(tree, tuple):
        return [_exact(branch) for branch in tree]
    if isinstance(tree, SqlType):
        text = str(_of_null(tree))
        return _BLANKS.sub(lambda match: match["kept"] or match["sign"], text) if tree.is_nested else text
    return _to_json(tree)


def _of_null(type_: SqlType) -> SqlType:
    if type_.is_void:
        return SqlType("NULL")
    fields = tuple(dataclasses.replace(field, type=_of_null(field.type)) for field in type_.fields)
    return dataclasses.replace(type_, parts=tuple(map(_of_null, type_.parts)), fields=fields)


_BLANKS = re.compile(r"(?P<kept>`(?:[^`]|``)*`)|(?P<sign>[,:]) ")
_KEY_COLUMNS = {"left": "left_column", "right": "right_column"}
_FIRST_WORDS: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    **dict.fromkeys((("JoinPlan", "bands"), ("LookupPlan", "bands")), _time_bands),
    **dict.fromkeys((("JoinPlan", "keys"), ("LookupPlan", "keys")), _keys),
    **dict.fromkeys((("JoinPlan", "residual_exact"), ("LookupPlan", "residual_exact")), _exact),
    ("Careful", "exact"): _exact,
    ("FeedPlan", "computed_exact"): _exact,
}
"""Fields that the digest spells otherwise than the plan, by stored (class, field): a newer version, too, can
repeat an interrupted tick."""
