"""What stands around the rows of a pipeline: settings, the state's store, the rule of lateness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.front.ddl.settings import Settings
from watersmeet.pipelines.model import Description, directory_of
from watersmeet.pipelines.problems import Key
from watersmeet.pipelines.rules import url_problems
from watersmeet.pipelines.values import Elsewhere, with_parameter
from watersmeet.types.sql_type import TIMES, SqlType

TARGET: Key = ("target", "connection")

_STORE_SETTINGS = {
    "url": "state_store",
    "cache": "state_cache",
    "endpoint": "state_store_endpoint",
    "region": "state_store_region",
    "allow_http": "state_store_allow_http",
}
"""By the keys of [state_store] what SET calls them."""


def settings_of(description: Description, elsewhere: Elsewhere) -> dict[str, str]:
    """As SET has them, but for lateness, which needs the event times' type."""
    settings = elsewhere.options(("settings",), description.settings)
    store = description.state_store
    if store is None:
        return settings | {"checkpoint": elsewhere.text(("checkpoint",), description.directory)}
    key: Key = ("state_store",)
    said = {
        name: elsewhere.text((*key, name), value)
        for name in ("url", "cache", "endpoint", "region")
        if (value := getattr(store, name)) is not None
    }
    if all(problem.key != (*key, "url") for problem in elsewhere.problems):
        elsewhere.problems += url_problems((*key, "url"), store.kind, said["url"])
    if store.kind == "files":
        return settings | {"checkpoint": directory_of(said["url"])}
    settings["checkpoint"] = elsewhere.text(("checkpoint",), description.directory)
    if store.kind == "postgres":
        said["url"] = with_parameter(said["url"], "pipeline", description.name)
    if store.allow_http:
        said["allow_http"] = "true"
    return settings | {_STORE_SETTINGS[name]: value for name, value in said.items()}


def run_settings_of(description: Description, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of the run (`Job.run`); problems are passed over: who builds the job finds them."""
    settings, elsewhere = Settings(), Elsewhere()
    said = settings_of(description, elsewhere)
    if elsewhere.problems:  # some of it is not known: no store is asked that nobody meant
        said = {}
    for name, value in (said | dict(overrides)).items():
        try:
            settings.set(name, value)
        except WatersmeetError:
            continue
    return settings.run


def lateness_of(description: Description, time: SqlType | None) -> dict[str, str]:
    """The rule of lateness, in the unit of the event times."""
    join = description.join
    window = next((step.window for step in description.transform if step.window is not None), None)
    ms = window.allowed_lateness_ms if window is not None and join is None else 0
    if join is not None and join.late_data == "reopen":
        ms = join.allowed_lateness_ms or 0
    said = {"lateness": "join"} if join is not None else {}
    if ms and time is not None:
        said["allowed_lateness"] = f"{ms} milliseconds" if time in TIMES else str(ms)
    return said


def first_line(description: Description, run: Mapping[str, str]) -> str | None:
    """What is said of the state where nobody has said where it is to be."""
    if description.state_store is not None or "state_store" in run:
        return None
    return (
        f"{description.name} has no state_store: its state is kept beside the checkpoint, in"
        f' "{run.get("checkpoint", description.directory)}", and is as safe as that directory; a run that'
        " does not find it begins anew"
    )


def connector_of(options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The connector of resolved options, and the others."""
    connector = next(value for name, value in options.items() if name.lower() == "connector")
    return connector, {name: value for name, value in options.items() if name.lower() != "connector"}
