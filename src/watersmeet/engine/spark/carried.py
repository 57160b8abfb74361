"""WatersmeetErrors on their way from a task to the driver, which Spark hands on as text alone.

An error travels as JSON (its class by name, message, code, hint, place), never as code, and with a seal: a
keyed digest of that JSON. Exceptions quote values of rows, and a value may be any text, a complete error of
ours included. So the driver takes an error only with a seal of its own key, which is drawn at random per
process, goes to tasks in their functions, and is never written down. Text with a wrong seal is text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.errors import WatersmeetError, error_from, plain_of

_MARK = "watersmeet-error:"
_SEALED = re.compile(_MARK + r"([A-Za-z0-9+/=]+):([0-9a-f]{64}):")

_KEY = secrets.token_bytes(32)
"""Of this process. A worker has one of its own, of no use: it is told the driver's."""

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class TaskFailed(Exception):
    """A WatersmeetError on its way out of a Python worker."""


@dataclass(frozen=True)
class Carrying:
    """A function for `mapInArrow`: that of a task, with its WatersmeetErrors sealed. Made on the driver."""

    task: Batches
    key: bytes = field(default=_KEY, repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.task(batches)
        except WatersmeetError as error:
            raise sealed(error, self.key) from None


def sealed(error: WatersmeetError, key: bytes = _KEY) -> TaskFailed:
    """An exception whose text holds ``error``."""
    packed = base64.b64encode(json.dumps(plain_of(error)).encode()).decode()
    return TaskFailed(f"{_MARK}{packed}:{_seal(packed, key)}: {error}")


def carried(text: str) -> WatersmeetError | None:
    """The first error in ``text`` that a task of this process sealed."""
    for packed, seal in _SEALED.findall(text):
        if hmac.compare_digest(_seal(packed, _KEY), seal):
            fields: Any = json.loads(base64.b64decode(packed))
            return error_from(fields)
    return None


def _seal(packed: str, key: bytes) -> str:
    return hmac.new(key, packed.encode(), hashlib.sha256).hexdigest()
