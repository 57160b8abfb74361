"""A description → the job that it asks for: relations of its sources, joined, looked up and grouped by calls.

The condition of the join is data, and so is what goes out; only texts that the pipeline itself has (a
source's query, aggregates) are read as SQL. What is wrong is told with the key that says it.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.errors import SpecError, WatersmeetError, raise_all
from watersmeet.front.ddl.create import Infer
from watersmeet.pipelines.around import TARGET, connector_of, lateness_of, settings_of
from watersmeet.pipelines.columns import column_of
from watersmeet.pipelines.model import Description
from watersmeet.pipelines.problems import Key
from watersmeet.pipelines.rules import ELSEWHERE
from watersmeet.pipelines.sources import Sources
from watersmeet.pipelines.steps import joined, looked_up, windowed
from watersmeet.pipelines.told import Place, Told
from watersmeet.pipelines.values import Elsewhere
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
    _check_overrides(overrides or {})
    settings = settings_of(description, elsewhere)
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
        return job(rows.to_sink(target), settings=settings | dict(overrides or {}))
    told.raise_now()
    raise AssertionError("what was wrong was raised")


def _check_overrides(overrides: Mapping[str, str]) -> None:
    raise_all(
        [
            SpecError(
                f'{name} = "{overrides[name]}" is for jobs of SQL; this is a pipeline',
                code="unknown-setting",
                hint=ELSEWHERE[name],
            )
            for name in ("lateness", "allowed_lateness")
            if name in overrides
        ]
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


def _key_of(error: WatersmeetError, description: Description) -> Key:
    """Of the option, source, setting or sink that a message of the plan names."""
    options: list[tuple[Key, str]] = [
        (("sources", number, "connection", option), option)
        for number, source in enumerate(description.sources)
        for option in source.connection
        if f'"{source.name}"' in error.message
    ]
    options += [((*TARGET, option), option) for option in description.target.connection]
    for key, option in options:
        if f"'{option}'" in error.message or f'"{option}"' in error.message:
            return key
    for number, source in enumerate(description.sources):
        if f'"{source.name}"' in error.message and error.code != "join-lateness":
            return ("sources", number)
    for setting in description.settings:
        if setting in error.message:
            return ("settings", setting)
    if error.code in ("bad-option", "unknown-option", "missing-option", "primary-key", "duplicate-option"):
        return TARGET
    return description.step(0)
