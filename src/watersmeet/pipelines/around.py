"""What stands around the rows of a pipeline: settings, the state's store, the rule of lateness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.front.ddl.settings import Settings
from watersmeet.pipelines.model import Description
from watersmeet.pipelines.problems import Key
from watersmeet.pipelines.values import Elsewhere, with_parameter
from watersmeet.types.sql_type import TIMES, SqlType

TARGET: Key = ("target", "connection")


def settings_of(description: Description, elsewhere: Elsewhere) -> dict[str, str]:
    """As SET has them, but for lateness, which needs the event times' type."""
    settings = elsewhere.options(("settings",), description.settings)
    settings["checkpoint"] = description.directory
    store = description.state_store
    if store is None or store.kind == "files":
        return settings
    url = elsewhere.text(("state_store", "url"), store.url)
    if store.kind == "postgres":
        url = with_parameter(url, "pipeline", description.name)
    said = {
        "state_store": url,
        "state_cache": store.cache,
        "state_store_endpoint": store.endpoint,
        "state_store_region": store.region,
        "state_store_allow_http": "true" if store.allow_http else None,
    }
    return settings | {name: value for name, value in said.items() if value is not None}


def run_settings_of(description: Description, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of the run (`Job.run`); problems are passed over: who builds the job finds them."""
    settings = Settings()
    for name, value in (settings_of(description, Elsewhere()) | dict(overrides)).items():
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
