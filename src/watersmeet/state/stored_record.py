"""The base of everything that is stored or sent as JSON: infinite watermarks are written as strings.

Stored JSON has the names of fields. To rename a field, keep its stored name:
``new: int = Field(validation_alias="old", serialization_alias="old")``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict

from watersmeet.errors import StateError


class StoredRecord(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings", populate_by_name=True)

    def model_dump_json(self, **options: Any) -> str:
        """Write it as JSON, by stored names."""
        return super().model_dump_json(**{"by_alias": True, **options})

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Write it as plain values, by stored names."""
        return super().model_dump(**{"by_alias": True, **options})


class FrozenRecord(StoredRecord):
    model_config = ConfigDict(frozen=True)


_RESTORE = "restore the state directory from a copy, or start over with an empty checkpoint directory"


def damage_error(what: str, problem: str, hint: str | None = None) -> StateError:
    """Build the error for a damaged stored object.

    Args:
        what: the stored object with its name.
        hint: what to do, if not to restore a copy.
    """
    return StateError(f"the {what} is damaged: {problem}", code="state-damaged", hint=hint or _RESTORE)


def missing_error(name: str, place: str = "") -> StateError:
    return StateError(f'"{name}" is missing from the state{place}', code="state-missing", hint=_RESTORE)


def write_error(path: str, problem: str) -> StateError:
    return StateError(
        f'"{path}" cannot be written: {problem}',
        code="state-not-written",
        hint="free some space, or check the permissions, and run again: the job resumes after its last tick",
    )


@contextmanager
def translate_os_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise OS errors of the file system as errors that ``path`` cannot be written.

    Raises:
        StateError: an OSError occurs in the block.
    """
    try:
        yield
    except OSError as error:
        raise write_error(os.fspath(path), error.strerror or str(error)) from None
