"""Build the job of a pipeline: relations of its sources, steps and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from sqlglot import exp

from watersmeet.errors import SpecError, WatersmeetError, collect_errors, near_names
from watersmeet.parser.ddl.create import Infer, TimeOf, source_from_options
from watersmeet.parser.ddl.settings import Settings, is_same_setting, setting_name
from watersmeet.parser.types.inference import type_named
from watersmeet.pipelines.connection_options import ReferenceResolver
from watersmeet.pipelines.durations import in_units, is_less
from watersmeet.pipelines.model import EVENT_TS, Description, Join, Lookup, Source, Window
from watersmeet.pipelines.problems import OF_TIMES, Key, Place, ProblemCollector
from watersmeet.pipelines.rules import ELSEWHERE, collision
from watersmeet.pipelines.run_options import (
    TARGET,
    check_directory,
    connector_of,
    lateness_of,
    settings_of,
    under,
)
from watersmeet.relations.columns import alias_expression, column_of, tree_of
from watersmeet.relations.expressions import read_fragment
from watersmeet.relations.inputs import apply_select, relation_of
from watersmeet.relations.job import Job, job
from watersmeet.relations.outputs import sink
from watersmeet.relations.relation import Relation
from watersmeet.relations.terms import Length, hop, length_node, session, tumble
from watersmeet.spec.connectors import find_connector
from watersmeet.spec.model import WINDOW_END, WINDOW_START, Column, Sink
from watersmeet.spec.model import Source as Stream
from watersmeet.types.sql_type import INTEGERS, TIMES, TIMESTAMP, SqlType

# The sources of a pipeline as relations: declared by their connections, with the event times that the
# steps ask of them.


class Sources:
    def __init__(
        self,
        description: Description,
        told: ProblemCollector,
        elsewhere: ReferenceResolver,
        infer: Infer | None,
    ) -> None:
        self._asked = description
        self._told = told
        self._elsewhere = elsewhere
        self._infer = infer

    def spelled(self, name: str) -> str:
        """Return the name of a source as the source spells it."""
        return next(source.name for source in self._asked.sources if source.name.lower() == name.lower())

    def time_of(self, source: Source) -> str | None:
        """Return the event time that the transforms use of a source; None if they use none."""
        join = self._asked.join
        name = source.name.lower()
        if join is not None:
            sides = (join.left_source.lower(), join.right_source.lower())
            return next(
                (time for side, time in zip(sides, join.event_times, strict=True) if side == name), None
            )
        windows = [step.window for step in self._asked.transform if step.window is not None]
        return windows[0].event_time_column if windows and source is self._asked.sources[0] else None

    def _key_of_time(self, source: Source) -> Key:
        for number, step in enumerate(self._asked.transform):
            if step.window is not None and step.join is None and self._asked.join is None:
                return (*self._asked.step(number), "window", "event_time_column")
            if step.join is not None:
                side = "left" if step.join.left_source.lower() == source.name.lower() else "right"
                own = getattr(step.join, f"{side}_event_time_column")
                name = "event_time_column" if own is None else f"{side}_event_time_column"
                return (*self._asked.step(number), "join", name)
        return ("sources",)

    def _key_of(self, source: Source, key: Key, error: WatersmeetError) -> Key:
        """Return the key to which an error in a source's declaration belongs."""
        if error.code in OF_TIMES:
            return self._key_of_time(source)
        if error.code == "unknown-connector":
            spelled = next(name for name in source.connection if name.lower() == "connector")
            return (*key, "connection", spelled)
        return key

    def relation(self, number: int, source: Source) -> Relation | None:
        """Build the relation of all rows of a source, or of its query.

        Returns:
            None if the source is wrong; the problem is then reported.
        """
        key: Key = ("sources", number)
        columns: list[Column] = []
        before = len(self._told.errors)
        for name, type_ in source.columns.items():
            with self._told.at((*key, "columns", name)):
                columns.append(Column(name, type_named(type_)))
        options = self._elsewhere.options((*key, "connection"), source.connection)
        time = self.time_of(source)
        if time is not None:
            with self._told.at(self._key_of_time(source)):
                _with_record_time(source, time, options, columns)
        if len(self._told.errors) > before:
            return None
        ordered = (
            None if time is None or source.query is not None else TimeOf(time, partial(_length, source.lag))
        )
        declared: Stream | None = None
        with self._told.by(partial(self._key_of, source, key)):
            declared = source_from_options(source.name, options, columns, ordered, self._infer)
        if declared is None:
            return None
        rows = relation_of(declared)
        return rows if source.query is None else self._apply_query(rows, key, source, time)

    def _apply_query(self, rows: Relation, key: Key, source: Source, time: str | None) -> Relation | None:
        assert source.query is not None
        with self._told.at((*key, "query")):
            rows = apply_select(rows, source.query, "query").alias(source.name)
            if time is None:
                return rows
            column = column_of(rows, time)
            if column is None:
                raise SpecError(
                    f'the source has no column "{time}", the event time',
                    code="unknown-column",
                    hint=near_names(time, [c.name for c in rows.columns]),
                )
            if column.type not in TIMES and column.type not in INTEGERS:
                raise SpecError(
                    f'"{column.name}" is {column.type} and cannot be an event time',
                    code="wrong-type",
                    hint="event times are TIMESTAMP, DATE or an integer type",
                )
            return rows.impose_order(tree_of(column.name), _lag(source.lag, column.type))
        return None


def _with_record_time(source: Source, time: str, options: dict[str, str], columns: list[Column]) -> None:
    """Add the record's time to the columns if a transform uses it and no column has its name.

    Raises:
        SpecError: the records have no time.
    """
    if time.lower() != EVENT_TS or any(column.name.lower() == EVENT_TS for column in columns) or not columns:
        return
    connector, _ = connector_of(options)
    traits = find_connector(connector)
    if traits is None:
        return  # told with the source
    if not traits.log:
        if source.query is not None:
            return  # which may make it
        raise SpecError(
            f'"{source.name}" is a {traits.name} source, whose records have no timestamp',
            code="no-record-time",
            hint="set its event_time_column",
        )
    columns.append(Column(EVENT_TS, TIMESTAMP))
    options[f"metadata.{EVENT_TS}"] = "timestamp"


def _lag(lag: timedelta | int, type_: SqlType) -> timedelta | int:
    """Return the lag in the unit of an event time; none is none in each."""
    return in_units(lag or timedelta(0), type_)


def _length(lag: timedelta | int, type_: SqlType) -> exp.Expression:
    return length_node(_lag(lag, type_), "lag")


# The steps of a pipeline: rows of relations, joined, looked up in tables, grouped by windows.


def build_join(
    told: ProblemCollector, key: Key, join: Join, names: tuple[str, str], relations: Mapping[str, Relation]
) -> Relation | None:
    """Build the join of two sources, with matched and padded rows.

    Args:
        names: names of both sources, as they are spelled.

    Returns:
        None if the join is wrong; the problem is then reported.
    """
    both = [relations[name.lower()].alias(name) for name in names]
    columns = [{column.name: column for column in rows.columns} for rows in both]
    sides = ("left", "right")

    def spelled(side: int, name: str, where: str) -> str:
        """Return the column's name as it is spelled; report an unknown column."""
        own = next((column for column in columns[side] if column.lower() == name.lower()), None)
        if own is None:
            told.problem(
                (*key, where),
                f'"{names[side]}" has no column "{name}"',
                "unknown-column",
                near_names(name, columns[side]),
            )
        return own or name

    keys = [
        [spelled(side, name, f"{sides[side]}_keys") for name in given]
        for side, given in enumerate((join.left_keys, join.right_keys))
    ]
    times = [spelled(side, time, _time_key(join, sides[side])) for side, time in enumerate(join.event_times)]
    chosen = [
        list(columns[side])
        if asked is None
        else [spelled(side, n, f"output_{sides[side]}_columns") for n in asked]
        for side, asked in enumerate((join.output_left_columns, join.output_right_columns))
    ]
    outputs = _outputs(told, key, join, names, chosen)
    if told.errors:
        return None
    types = [columns[side][times[side]].type for side in (0, 1)]
    if (types[0] in INTEGERS) != (types[1] in INTEGERS):
        told.problem(
            (*key, _time_key(join, "right")),
            f'"{names[0]}.{times[0]}" is {types[0]} and "{names[1]}.{times[1]}" is {types[1]}: one is'
            " epoch milliseconds, the other is not",
            "mixed-times",
            "a source's query makes them alike: SELECT …,"
            f" timestamp_millis({times[types[1] in INTEGERS]}) AS …",
        )
        return None
    first, second = (tree_of(time, name) for time, name in zip(times, names, strict=True))
    equal = [
        exp.EQ(this=tree_of(one, names[0]), expression=tree_of(other, names[1]))
        for one, other in zip(*keys, strict=True)
    ]
    with told.at(key):
        low, high = (_shift_time(first, delta, types[0]) for delta in join.deltas)
        within = exp.Between(this=second, low=low, high=high)
        return both[0].join(both[1], on=[*equal, within], how=join.how).select(*outputs)
    return None


def _outputs(
    told: ProblemCollector, key: Key, join: Join, names: Sequence[str], chosen: Sequence[Sequence[str]]
) -> list[exp.Expression]:
    seen: set[str] = set()
    outputs: list[exp.Expression] = []
    prefixes = (join.left_column_prefix, join.right_column_prefix)
    for side, prefix, columns in zip((0, 1), prefixes, chosen, strict=True):
        for column in columns:
            name = f"{prefix}{column}"
            if name.lower() in seen:
                where = "output_right_columns" if side else "output_left_columns"
                told.problems([collision((*key, where), name)])
            seen.add(name.lower())
            outputs.append(alias_expression(tree_of(column, names[side]), name))
    return outputs


def looked_up(
    rows: Relation, alias: str, name: str, lookup: Lookup, relations: Mapping[str, Relation]
) -> Relation:
    """Add columns of the table to the rows.

    Args:
        alias, name: names of the rows and of the table in the condition; if they are equal, the rows
            get another one.

    Raises:
        SpecError: a column does not exist, or would appear twice.
    """
    table = relations[lookup.source.lower()]
    alias = f"{alias}_" if alias.lower() == name.lower() else alias
    own, its = (
        {column.name.lower(): column.name for column in columns} for columns in (rows.columns, table.columns)
    )
    for wanted, there, of in (
        *((column, own, "the rows have") for column in lookup.keys),
        *(
            (column, its, f'"{lookup.source}" has')
            for column in (*lookup.keys.values(), *(lookup.columns or ()))
        ),
    ):
        if wanted.lower() not in there:
            raise SpecError(
                f'{of} no column "{wanted}"',
                code="unknown-column",
                hint=near_names(wanted, there.values()),
            )
    on: list[exp.Expression] = [
        exp.EQ(this=tree_of(own[key.lower()], alias), expression=tree_of(its[column.lower()], name))
        for key, column in lookup.keys.items()
    ]
    added = (
        [its[column.lower()] for column in lookup.columns]
        if lookup.columns is not None
        else list(its.values())
    )
    outputs = [
        *(alias_expression(tree_of(column, alias), column) for column in own.values()),
        *(alias_expression(tree_of(column, name), f"{lookup.column_prefix}{column}") for column in added),
    ]
    names = [output.alias.lower() for output in outputs]
    twice = next((output.alias for output in outputs if names.count(output.alias.lower()) > 1), None)
    if twice is not None:
        raise SpecError(
            f'two columns of the result would be named "{twice}"',
            code="duplicate-column",
            hint="use column_prefix to rename the table's columns, or columns to select some",
        )
    return rows.alias(alias).join(table.alias(name).as_of(), on=on, how=lookup.how).select(*outputs)


def aggregate_windows(told: ProblemCollector, key: Key, rows: Relation, window: Window) -> Relation:
    """Aggregate the rows to one row per window and key.

    If the window is wrong, report the problem and return the rows unchanged.
    """
    time = column_of(rows, window.event_time_column)
    if time is None:
        raise SpecError(
            f'the rows have no column "{window.event_time_column}", by which the window groups them',
            code="unknown-column",
            hint=near_names(window.event_time_column, [column.name for column in rows.columns]),
        )

    def length(given: timedelta | int | None) -> Length:
        assert given is not None  # `rules`
        return in_units(given, time.type)

    by = tree_of(time.name)
    if window.kind == "hop":
        made = hop(by, length(window.size), length(window.slide))
    elif window.kind == "session":
        made = session(by, length(window.gap))
    else:
        made = tumble(by, length(window.size))
    keys: list[exp.Expression] = []
    for name in window.group_by:
        column = column_of(rows, name)
        if column is None:
            hint = near_names(name, [other.name for other in rows.columns])
            message = f'the rows have no column "{name}"'
            told.problem((*key, "group_by"), message, "unknown-column", hint)
        elif name.lower() in (WINDOW_START, WINDOW_END):  # by that name the group has the window's
            hint = "a source's query gives it another name"
            told.problem((*key, "group_by"), f'"{name}" is that of the window', "duplicate-column", hint)
        else:
            keys.append(tree_of(column.name))
    grouped = rows.group_by(made, *keys)
    grouped.agg(
        alias_expression(exp.Count(this=exp.Star()), "n")
    )  # the window, without any aggregate of the pipeline's
    aggregates: list[exp.Expression] = []
    taken = {WINDOW_START, WINDOW_END, *(name.lower() for name in window.group_by)}
    for name, text in window.aggregates.items():
        if name.lower() in taken:
            told.problems([collision((*key, "aggregates", name), name)])
        taken.add(name.lower())
        with told.at((*key, "aggregates", name)):
            aggregate = alias_expression(_read(text), name)
            if len(keys) == len(window.group_by):  # else a key that is missing would be told again
                grouped.agg(aggregate.copy())  # by itself: what is wrong is told with its key
            aggregates.append(aggregate)
    if told.errors:
        return rows
    return grouped.agg(*aggregates)


def _time_key(join: Join, side: str) -> str:
    own = getattr(join, f"{side}_event_time_column")
    return "event_time_column" if own is None else f"{side}_event_time_column"


def _shift_time(time: exp.Expression, delta: timedelta | int, type_: SqlType) -> exp.Expression:
    if not delta:
        return time.copy()
    is_back = is_less(delta, 0)
    length: Length = in_units(-delta if is_back else delta, type_)
    if isinstance(length, timedelta):  # fingerprints in checkpoints have this unit
        length = f"{length // timedelta(microseconds=1)} microseconds"
    return (exp.Sub if is_back else exp.Add)(this=time.copy(), expression=length_node(length, "delta"))


def _read(text: str) -> exp.Expression:
    """Parse a text of the pipeline and remove its offsets, which no later message can refer to."""
    tree, _ = read_fragment(text, "")
    for node in tree.walk():
        node.meta.pop("start", None)
    return tree


# A description → the job that it asks for: relations of its sources, joined, looked up and grouped by
# calls.
#
# The condition of the join is data, and so is what goes out; only texts that the pipeline itself has (a
# source's query, aggregates) are read as SQL. What is wrong is told with the key that says it.

_KEYED: Key = ("target", "primary_key")


def build(
    description: Description,
    *,
    place: Place = lambda key: None,
    infer: Infer | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Job:
    """Build and plan the job.

    Args:
        place: returns the location of a key, if the description comes from a file.
        infer: returns the columns of sources that declare none.
        overrides: external settings, which take precedence; lateness is always the pipeline's own.

    Raises:
        WatersmeetError: the description is wrong; the error lists all problems of one stage.
    """
    told, elsewhere = ProblemCollector(place), ReferenceResolver()
    settings = settings_of(description, elsewhere)
    _check_settings(description, settings, overrides or {}, told)
    target = _target(description, told, elsewhere)
    sources = Sources(description, told, elsewhere, infer)
    relations = {
        source.name.lower(): relation
        for number, source in enumerate(description.sources)
        if (relation := sources.relation(number, source)) is not None
    }
    told.problems(elsewhere.problems)
    told.raise_now()
    rows, time = _apply_transforms(description, relations, sources, told)
    told.raise_now()
    assert target is not None
    settings |= lateness_of(description, time)
    with told.by(lambda error: _key_of(error, description)):
        return job(rows.to_sink(target), settings=under(settings, overrides or {}))
    told.raise_now()
    raise AssertionError("the problems were raised")


def _check_settings(
    description: Description,
    settings: Mapping[str, str],
    overrides: Mapping[str, str],
    told: ProblemCollector,
) -> None:
    """Check each setting by itself.

    Problems of the pipeline's settings have their keys; those of external settings have no location.
    """
    for name in description.settings:
        if not any(is_same_setting(name, other) for other in overrides):
            with told.at(("settings", name)):
                Settings().set(name, settings[name])
    check_directory(description, settings, overrides, told)
    for name, value in overrides.items():
        with collect_errors(told.errors):
            _check_override(name, value)
            Settings().set(name, value)


def _check_override(name: str, value: str) -> None:
    """Reject an external lateness setting.

    Rows would otherwise be late by another rule than the pipeline's.
    """
    if setting_name(name) in ("lateness", "allowed_lateness"):
        raise SpecError(
            f'{name} = "{value}" is for SQL jobs; this is a pipeline',
            code="unknown-setting",
            hint=ELSEWHERE[setting_name(name)],
        )


def _target(description: Description, told: ProblemCollector, elsewhere: ReferenceResolver) -> Sink | None:
    target = description.target
    connector, rest = connector_of(elsewhere.options(TARGET, target.connection))
    with told.by(lambda error: _KEYED if error.code == "primary-key" else (*TARGET, "connector")):
        return sink(connector, target.name, primary_key=target.primary_key, options=rest)
    return None


def _apply_transforms(
    description: Description, relations: Mapping[str, Relation], sources: Sources, told: ProblemCollector
) -> tuple[Relation, SqlType | None]:
    """Apply the transforms.

    Returns:
        The output rows, and the type of the event times that determine which rows are late.
    """
    first = description.sources[0]
    rows, alias = relations[first.name.lower()], first.name
    own = sources.time_of(first)
    time = None if own is None else column_of(rows, own)
    for number, step in enumerate(description.transform):
        key = description.step(number)
        if step.join is not None:
            left = relations[step.join.left_source.lower()]
            names = (sources.spelled(step.join.left_source), sources.spelled(step.join.right_source))
            made = build_join(told, (*key, "join"), step.join, names, relations)
            if made is None:
                break
            rows, alias, time = made, "joined", column_of(left, step.join.event_times[0])
        for name, lookup in step.lookups.items():
            with told.at((*key, "lookups", name)):
                rows, alias = looked_up(rows, alias, name, lookup, relations), "looked_up"
        if step.window is not None:
            with told.at((*key, "window")):
                rows = aggregate_windows(told, (*key, "window"), rows.alias(alias), step.window)
        if told.errors:
            break
    return rows, None if time is None else time.type


_OF_AN_OPTION = {"sink-in-source": "path", "unknown-format": "format"}
"""Codes of what is wrong with the value of one option, which messages do not name."""


def _key_of(error: WatersmeetError, description: Description) -> Key:
    """Return the key of the option, source, setting or sink that a message of the plan names."""
    if error.code == "aggregate-function":
        return _key_of_aggregate(error, description)
    of_sources: list[tuple[Key, Mapping[str, object]]] = [
        (("sources", number, "connection"), source.connection)
        for number, source in enumerate(description.sources)
        if f'"{source.name}"' in error.message
    ]
    of_sink = (TARGET, description.target.connection)
    is_of_sink = 'sink "' in error.message
    for key, options in [of_sink, *of_sources] if is_of_sink else [*of_sources, of_sink]:
        for option in options:
            said = f"'{option}'" in error.message or f'"{option}"' in error.message
            if said or option.lower() == _OF_AN_OPTION.get(str(error.code)):
                return (*key, option)
    if is_of_sink:
        return TARGET
    if of_sources and error.code != "join-lateness":
        return of_sources[0][0][:2]
    for setting in description.settings:
        if setting in error.message:
            return ("settings", setting)
    if error.code in ("bad-option", "unknown-option", "missing-option", "primary-key", "duplicate-option"):
        return TARGET
    return description.step(0)


def _key_of_aggregate(error: WatersmeetError, description: Description) -> Key:
    """Return the key of the aggregate with whose function the message begins."""
    function, key = error.message.partition("(")[0].lower(), description.step(0)
    for number, step in enumerate(description.transform):
        if step.window is not None:
            key = (*description.step(number), "window")
            for name, text in step.window.aggregates.items():
                if function in text.lower():
                    return (*key, "aggregates", name)
    return key
