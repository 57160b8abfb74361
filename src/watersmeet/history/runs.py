"""What is written down of each run of a job: when it began, how it was set, its plan, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from pydantic import Field, ValidationError

from watersmeet.errors import StateError
from watersmeet.history.planned import Drawing, Limit, SideFiles
from watersmeet.history.segments import FOLDER
from watersmeet.state.record import FrozenRecord
from watersmeet.state.sealed import sealed, unsealed
from watersmeet.state.store import Store

MOST_RUNS = 50
_NAME = re.compile(rf"{FOLDER}/run-(\d{{20}}-[0-9a-f]{{8}})-(begun|ended)\.json")


class Begun(FrozenRecord):
    """A run that began. ``started_us``: its clock; ``settings``: of the run and of Spark, by name, without
    secrets; ``plan``: EXPLAIN of it; ``integer_times``: the subjects whose watermarks are plain integers;
    ``drawing``, ``limits``: of the plan; ``late_files``, ``broken_files``: where late rows are, and records
    that do not parse."""

    started_us: int
    version: str
    machine: str
    settings: Mapping[str, str] = Field(default_factory=dict)
    plan: str = ""
    integer_times: tuple[str, ...] = ()
    drawing: Drawing = Field(default_factory=Drawing)
    limits: tuple[Limit, ...] = ()
    late_files: SideFiles | None = None
    broken_files: SideFiles | None = None


class Ended(FrozenRecord):
    """How a run ended, at ``ended_us``. ``how``: stopped (by a person), caught up, finished (its input had an
    end), or failed; ``error``: with what, as people see it."""

    ended_us: int
    how: str
    error: str | None = None
    notices: tuple[str, ...] = ()


Written = TypeVar("Written", Begun, Ended)


class Run(FrozenRecord):
    """A run. ``ended``: None where it goes on, or was killed."""

    id: str
    begun: Begun
    ended: Ended | None = None


def begin(store: Store, run: str, begun: Begun) -> str:
    """Write that a run begins, and forget of the oldest others what is too much; the run's id."""
    key = f"{begun.started_us:020}-{run}"
    _write(store, f"{FOLDER}/run-{key}-begun.json", begun)
    there = sorted({match[1] for name in store.names(FOLDER) if (match := _NAME.fullmatch(name))})
    gone = set(there[:-MOST_RUNS]) - {key}  # its clock may be behind that of the others
    store.delete_all([_name(key, what) for key in gone for what in ("begun", "ended")])
    return key


def end(store: Store, run: str, ended: Ended) -> None:
    """Write how the run of that id ended."""
    _write(store, _name(run, "ended"), ended)


Records = dict[str, FrozenRecord]
"""What has been read, by name: it is written once."""


def read(store: Store, names: list[str], problems: list[str], records: Records) -> list[Run]:
    """The runs among stored names, oldest first. ``problems``: gets a line for each that cannot be read;
    ``records``: what is in it is not read again, and what is read goes into it."""
    for gone in records.keys() - set(names):
        del records[gone]
    keys = sorted({match[1] for name in names if (match := _NAME.fullmatch(name))})
    runs = []
    for key in keys:
        begun = _read(store, _name(key, "begun"), Begun, problems, records)
        name = _name(key, "ended")
        ended = _read(store, name, Ended, problems, records) if name in names else None
        if begun is not None:
            runs.append(Run(id=key, begun=begun, ended=ended))
    return runs


def _read(
    store: Store, name: str, kind: type[Written], problems: list[str], records: Records
) -> Written | None:
    """The record of that name; None, and a line more of ``problems``, where it cannot be read."""
    there = records.get(name)
    if isinstance(there, kind):
        return there
    try:
        record = kind.model_validate_json(unsealed(name, bytes(store.read(name))))
        records[name] = record
        return record
    except StateError as error:
        problems.append(error.message)
    except ValidationError:
        problems.append(f'the record "{name}" is not one that this version can read')
    return None


def _name(run: str, what: str) -> str:
    return f"{FOLDER}/run-{run}-{what}.json"


def _write(store: Store, name: str, record: FrozenRecord) -> None:
    store.write(name, sealed(name, record.model_dump_json()), lasting=False)
