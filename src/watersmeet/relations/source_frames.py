"""What a relation reads: a declared source, and the DataFrame of Spark's that its rows come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import SpecError
from watersmeet.spec.model import Source


@dataclass(frozen=True)
class Given:
    """``frame`` None: rows come from elsewhere, as in a process without Spark; of a table what makes one."""

    source: Source
    frame: Any = None


def by_spark(given: Mapping[str, Given]) -> bool:
    """Return True if the session may have user-defined functions."""
    return any(one.frame is not None for one in given.values())


def together(left: Mapping[str, Given], right: Mapping[str, Given]) -> dict[str, Given]:
    """Merge the sources of both relations, by lower-case name.

    Raises:
        SpecError: one name stands for different sources.
    """
    both = dict(left)
    for name, given in right.items():
        other = both.setdefault(name, given)
        if other is not given and (other.frame is not given.frame or other.source != given.source):
            raise SpecError(
                f'two streams or tables are named "{given.source.name}"',
                code="duplicate-name",
                hint="give one of them another name: stream(…, name='…')",
            )
    return both
