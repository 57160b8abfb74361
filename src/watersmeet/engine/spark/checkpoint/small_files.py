"""The small files of a checkpoint directory: one value each, sealed (`state.sealed`), put in place whole."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from watersmeet.durable import sync
from watersmeet.state.damage import damaged, written
from watersmeet.state.sealed import sealed, unsealed
from watersmeet.state.store import FILE_MODE, STAGED


def write_value(path: Path, value: Any) -> None:
    """Put ``value`` in place of what is there; durable when it returns. Raises: StateError."""
    with written(path):
        _put(path, sealed(path.name, json.dumps(value)))


def _put(path: Path, data: bytes) -> None:
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{STAGED}")
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with open(handle, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_value(path: Path, hint: str) -> dict[str, Any] | None:
    """The value of a file; None when there is none.

    Raises:
        StateError: it is damaged. ``hint``: what to do then.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    what = f'file "{path}"'
    value = json.loads(unsealed(path.name, data, what=what, hint=hint))
    if not isinstance(value, dict):
        raise damaged(what, "its content is not valid", hint)
    return value


def sweep(folder: Path) -> None:
    """Remove what writers that were killed, or found the disk full, left half written."""
    for file in folder.glob(f".*{STAGED}"):
        try:
            file.unlink()
        except OSError:  # held open elsewhere: the next run tries again
            continue
