"""One line of what `doctor` says: what was looked at, and how it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from watersmeet.errors import WatersmeetError


class Status(StrEnum):
    """``NOTE``: some jobs miss it. ``FAIL``: no job can be run, or not the one that was named."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and what to type where that is not well."""

    name: str
    status: Status
    detail: str
    hint: str | None = None

    @classmethod
    def of(cls, name: str, detail: Callable[[], str]) -> Check:
        """Return what ``detail`` says, or the error that it raises as a failed check."""
        try:
            return cls(name, Status.OK, detail())
        except WatersmeetError as error:
            return cls(name, Status.FAIL, error.message, error.hint)

    def as_note(self) -> Check:
        """Return the check for what only some jobs need: a failed one is a note."""
        return Check(self.name, Status.NOTE, self.detail, self.hint) if self.status is Status.FAIL else self
