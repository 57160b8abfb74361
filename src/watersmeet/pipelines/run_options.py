"""What stands around the rows of a pipeline: settings, the state's store, the rule of lateness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.parser.ddl.settings import Settings, is_same_setting
from watersmeet.pipelines.connection_options import ReferenceResolver, with_parameter
from watersmeet.pipelines.durations import in_units, written
from watersmeet.pipelines.model import Description, directory_of
from watersmeet.pipelines.problems import Key, Place, ProblemCollector
from watersmeet.pipelines.rules import url_problems
from watersmeet.types.sql_type import SqlType

TARGET: Key = ("target", "connection")
_URL: Key = ("state_store", "url")

_STORE_SETTINGS = {
    "url": "state_store",
    "cache": "state_cache",
    "endpoint": "state_store_endpoint",
    "region": "state_store_region",
    "allow_http": "state_store_allow_http",
}
"""By the keys of [state_store] what SET calls them."""


def settings_of(description: Description, elsewhere: ReferenceResolver) -> dict[str, str]:
    """Return the settings as SET has them, without lateness, which needs the event times' type."""
    settings = elsewhere.options(("settings",), description.settings)
    settings["checkpoint"] = checkpoint_of(description, elsewhere)
    store = description.state_store
    if store is None:
        return settings
    of_files = store.kind == "files"
    url = settings["checkpoint"] if of_files else elsewhere.text(_URL, store.url)
    if all(problem.key != _URL for problem in elsewhere.problems):
        elsewhere.problems += url_problems(_URL, store.kind, url)
    if of_files:
        return settings
    if store.kind == "postgres":
        url = with_parameter(url, "pipeline", description.name)
    said = {"url": url}
    for name in ("cache", "endpoint", "region"):
        value = getattr(store, name)
        if value is not None:
            said[name] = elsewhere.text(("state_store", name), value)
    if store.allow_http:
        said["allow_http"] = "true"
    return settings | {_STORE_SETTINGS[name]: value for name, value in said.items()}


def checkpoint_of(description: Description, elsewhere: ReferenceResolver) -> str:
    """Return the directory of the checkpoint."""
    key, store = key_of_checkpoint(description), description.state_store
    if key == _URL and store is not None:
        return directory_of(elsewhere.text(key, store.url))
    if description.checkpoint is not None:
        return elsewhere.text(key, description.checkpoint)
    return f".watersmeet/{description.name}"


def key_of_checkpoint(description: Description) -> Key:
    """Return the key that defines the checkpoint's directory."""
    store = description.state_store
    return _URL if store is not None and store.kind == "files" else ("checkpoint",)


def under(settings: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Merge the settings with external ones, which take precedence however names are spelled."""
    own = {
        name: value
        for name, value in settings.items()
        if not any(is_same_setting(name, other) for other in overrides)
    }
    return own | dict(overrides)


def check_directory(
    description: Description,
    settings: Mapping[str, str],
    overrides: Mapping[str, str],
    told: ProblemCollector,
) -> None:
    """Check that the checkpoint's directory is valid.

    A directory from an external setting is reported with the other external settings.
    """
    key = key_of_checkpoint(description)
    if key == _URL and any(url_problems(key, "files", settings["checkpoint"])):
        return  # told with the store
    if not any(is_same_setting("checkpoint", other) for other in overrides):
        with told.at(key):
            Settings().set("checkpoint", settings["checkpoint"])


def run_settings_of(
    description: Description, overrides: Mapping[str, str], place: Place = lambda key: None
) -> Mapping[str, str]:
    """Return the settings of the run (`Job.run`).

    Problems of other settings are ignored, because building the job reports them. The place of the
    state is checked, because a wrong one could be another job's.

    Raises:
        SpecError, SeveralErrors: the place refers to an unset variable or a missing file.
    """
    settings, elsewhere, told = Settings(), ReferenceResolver(), ProblemCollector(place)
    given = under(settings_of(description, elsewhere), overrides)
    told.problems([problem for problem in elsewhere.problems if problem.key[0] != "settings"])
    check_directory(description, given, overrides, told)
    told.raise_now()
    for name, value in given.items():
        try:
            settings.set(name, value)
        except WatersmeetError:
            if is_same_setting(name, "checkpoint"):
                raise
    return settings.run


def lateness_of(description: Description, time: SqlType | None) -> dict[str, str]:
    """Return the settings of lateness, in the unit of the event times."""
    join = description.join
    window = next((step.window for step in description.transform if step.window is not None), None)
    settings: dict[str, str] = {} if join is None or join.lateness is None else {"lateness": join.lateness}
    allowed = (
        (window.allowed_lateness if window is not None else None) if join is None else join.allowed_lateness
    )
    if allowed and time is not None:
        settings["allowed_lateness"] = str(written(in_units(allowed, time)))
    return settings


def first_line(description: Description, run: Mapping[str, str]) -> str | None:
    """Return the message on the state's place if the pipeline defines no store for it."""
    if description.state_store is not None or "state_store" in run:
        return None
    return (
        f"{description.name} has no state_store: its state is kept beside the checkpoint, in"
        f' "{run["checkpoint"]}", and is as safe as that directory; a run that'
        " does not find it starts over"
    )


def connector_of(options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the connector of resolved options, and the other options."""
    connector = next(value for name, value in options.items() if name.lower() == "connector")
    return connector, {name: value for name, value in options.items() if name.lower() != "connector"}
