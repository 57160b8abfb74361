"""Sections: runs that lie one behind the other in one object of the store, which one put has brought there.

A section is a run as all others are. Its name says where it is: ``runs/q.a-7-0f3a.arrow@4096+1024`` are 1,024
bytes of ``runs/q.a-7-0f3a.arrow`` from 4,096 on. Who reads goes by the name of the section (`Store.read`),
and so does a cache; what is there, is copied, or goes is the object (`object_of`), as a whole: it stays for
as long as one of its sections is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

ALIGNED = 64
"""Bytes, at multiples of which sections begin: Arrow's columns are in place for whoever maps the object."""

_NAME = re.compile(r"(runs/[^@]+)@(\d+)\+(\d+)")


class Section(NamedTuple):
    """``length`` bytes of an object from ``offset`` on."""

    object: str
    offset: int
    length: int

    @property
    def name(self) -> str:
        return f"{self.object}@{self.offset}+{self.length}"

    @property
    def end(self) -> int:
        return self.offset + self.length

    def of(self, content: pa.Buffer) -> pa.Buffer:
        """The section, of all that the object has; of one that is too short what there is of it."""
        first = min(self.offset, content.size)
        return content.slice(first, min(self.length, content.size - first))


def section_of(name: str) -> Section | None:
    """What a name says; None: it is that of an object.

    >>> section_of("runs/q.a-7-0f3a.arrow@4096+1024")
    Section(object='runs/q.a-7-0f3a.arrow', offset=4096, length=1024)
    >>> section_of("runs/q.a-7-0f3a.arrow") is None
    True
    """
    match = _NAME.fullmatch(name) if "@" in name else None
    return None if match is None else Section(match[1], int(match[2]), int(match[3]))


def object_of(name: str) -> str:
    """The object in which that is what goes by the name: the name itself, where it is not a section's."""
    section = section_of(name)
    return name if section is None else section.object


def read_as(name: str, content: pa.Buffer, sections: Iterable[str]) -> Iterator[tuple[str, pa.Buffer]]:
    """The names by which an object is going to be read, and what each of them gives: those of its sections,
    or (there are none) its own."""
    parts = [section for section in map(section_of, sections) if section is not None]
    yield from ((part.name, part.of(content)) for part in parts)
    if not parts:
        yield name, content


def by_object(names: Iterable[str]) -> dict[str, list[Section | None]]:
    """What is asked for of each object, the sections in order; None: all of it."""
    asked: dict[str, list[Section | None]] = {}
    for name in dict.fromkeys(names):
        section = section_of(name)
        asked.setdefault(name if section is None else section.object, []).append(section)
    return asked


def side_by_side(sections: Iterable[Section]) -> list[list[Section]]:
    """Sections of one object in order, those together between which there is nothing else."""
    parts: list[list[Section]] = []
    for section in sorted(sections, key=lambda section: section.offset):
        if parts and section.offset - parts[-1][-1].end < ALIGNED:
            parts[-1].append(section)
        else:
            parts.append([section])
    return parts
