"""What a file system refuses, told of its place and as what it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.errors import EngineError


@contextmanager
def refusals_told(place: str | os.PathLike[str], hint: str) -> Iterator[None]:
    """Of what is done within at ``place``. Raises: EngineError for each OSError but those of connections,
    which are Spark's."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise EngineError(
            f"{os.fspath(place)} cannot be written: {why}",
            code="disk-full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk-not-writable",
            hint=hint,
        ) from None
