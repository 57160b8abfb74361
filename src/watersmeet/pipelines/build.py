"""A description → the job that it asks for: relations of its sources, joined, looked up and grouped by calls.

The condition of the join is data, and so is what goes out; only texts that the pipeline itself has (a
source's query, aggregates) are read as SQL. What is wrong is told with the key that says it.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.errors import SpecError, WatersmeetError, collect_errors
from watersmeet.front.ddl.create import Infer
from watersmeet.front.ddl.settings import Settings, is_same_setting, setting_name
from watersmeet.pipelines.around import (
    TARGET,
    check_directory,
    connector_of,
    lateness_of,
    settings_of,
    under,
)
from watersmeet.pipelines.model import Description
from watersmeet.pipelines.problems import Key
from watersmeet.pipelines.rules import ELSEWHERE
from watersmeet.pipelines.sources import Sources
from watersmeet.pipelines.steps import joined, looked_up, windowed
from watersmeet.pipelines.told import Place, Told
from watersmeet.pipelines.values import Elsewhere
from watersmeet.relations.columns import column_of
from watersmeet.relations.job import Job, job
from watersmeet.relations.outputs import sink
from watersmeet.relations.relation import Relation
from watersmeet.spec.model import Sink
from watersmeet.types.sql_type import SqlType

_KEYED: Key = ("target", "primary_key")


def build(
    description: Description,
    *,
    place: Place = lambda key: None,
    infer: Infer | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Job:
    """The job, planned.

    Args:
        place: where a key stands, if the description is of a file.
        infer: gives the columns of sources that say none.
        overrides: settings from outside, which win; lateness is the pipeline's own.

    Raises:
        WatersmeetError: what is wrong with it; of one stage all of it.
    """
    told, elsewhere = Told(place), Elsewhere()
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
    rows, time = _transformed(description, relations, sources, told)
    told.raise_now()
    assert target is not None
    settings |= lateness_of(description, time)
    with told.by(lambda error: _key_of(error, description)):
        return job(rows.to_sink(target), settings=under(settings, overrides or {}))
    told.raise_now()
    raise AssertionError("the problems were raised")


def _check_settings(
    description: Description, settings: Mapping[str, str], overrides: Mapping[str, str], told: Told
) -> None:
    """Each by itself: those of the pipeline are told by their keys, those from outside stand in no file."""
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
    """Rows would be late by another rule than the pipeline's own."""
    if setting_name(name) in ("lateness", "allowed_lateness"):
        raise SpecError(
            f'{name} = "{value}" is for SQL jobs; this is a pipeline',
            code="unknown-setting",
            hint=ELSEWHERE[setting_name(name)],
        )


def _target(description: Description, told: Told, elsewhere: Elsewhere) -> Sink | None:
    target = description.target
    connector, rest = connector_of(elsewhere.options(TARGET, target.connection))
    with told.by(lambda error: _KEYED if error.code == "primary-key" else (*TARGET, "connector")):
        return sink(connector, target.name, primary_key=target.primary_key, options=rest)
    return None


def _transformed(
    description: Description, relations: Mapping[str, Relation], sources: Sources, told: Told
) -> tuple[Relation, SqlType | None]:
    """The rows that go out, and the type of the event times by which rows are late."""
    first = description.sources[0]
    rows, alias = relations[first.name.lower()], first.name
    own = sources.time_of(first)
    time = None if own is None else column_of(rows, own)
    for number, step in enumerate(description.transform):
        key = description.step(number)
        if step.join is not None:
            left = relations[step.join.left_source.lower()]
            names = (sources.spelled(step.join.left_source), sources.spelled(step.join.right_source))
            made = joined(told, (*key, "join"), step.join, names, relations)
            if made is None:
                break
            rows, alias, time = made, "joined", column_of(left, step.join.event_times[0])
        for name, lookup in step.lookups.items():
            with told.at((*key, "lookups", name)):
                rows, alias = looked_up(rows, alias, name, lookup, relations), "looked_up"
        if step.window is not None:
            with told.at((*key, "window")):
                rows = windowed(told, (*key, "window"), rows.alias(alias), step.window)
        if told.errors:
            break
    return rows, None if time is None else time.type


_OF_AN_OPTION = {"sink-in-source": "path", "unknown-format": "format"}
"""Codes of what is wrong with the value of one option, which messages do not name."""


def _key_of(error: WatersmeetError, description: Description) -> Key:
    """Of the option, source, setting or sink that a message of the plan names."""
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
    """Of the one whose function the message begins with."""
    function, key = error.message.partition("(")[0].lower(), description.step(0)
    for number, step in enumerate(description.transform):
        if step.window is not None:
            key = (*description.step(number), "window")
            for name, text in step.window.aggregates.items():
                if function in text.lower():
                    return (*key, "aggregates", name)
    return key
