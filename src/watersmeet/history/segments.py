"""The files of a history in the store: their names, what is in them, and which of them count.

A segment holds points, an Arrow file. Segments are numbered as they begin; one of a higher level holds what
several of the level beneath held, rolled up. Nothing in a store is overwritten: a segment that grows gets a
new version, and the one before is removed behind it, as those that were rolled up are. Where a run was killed
between the two, both are there; the name says which of them is contained in the other.

Behind the Arrow file stands a checksum of it and of its name: Arrow looks at no more than the outlines of
what it opens, and of a file with a changed bit may end the process, that of the job too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.history.points import SCHEMA
from watersmeet.history.renamed import NAMES, renamed
from watersmeet.state.damage import damaged
from watersmeet.state.manifest import HISTORY
from watersmeet.state.store import Store

FOLDER = HISTORY

_CHECKSUM_BYTES = 16
_HINT = "it is not part of the state, which is as it was; removing the file ends this"
_NAME = re.compile(rf"{FOLDER}/(\d+)-(\d{{10}})-(\d{{10}})-(\d{{6}})-([0-9a-f]{{8}})\.arrow")


@dataclass(frozen=True)
class Segment:
    """``first`` to ``last``: the numbers of the segments of level 0 that it holds; ``version``: it has been
    written so often; ``run``: who wrote it."""

    level: int
    first: int
    last: int
    version: int
    run: str

    @property
    def name(self) -> str:
        return f"{FOLDER}/{self.level}-{self.first:010}-{self.last:010}-{self.version:06}-{self.run}.arrow"

    @property
    def rank(self) -> tuple[int, int]:
        return self.level, self.version

    def holds(self, other: Segment) -> bool:
        """Whether all that is in the other one is in this one, too. Of one number there may be several, of
        runs that did not know of each other: of these none holds the other."""
        if not self.first <= other.first <= other.last <= self.last or self.rank <= other.rank:
            return False
        return self.level > other.level or (self.first, self.run) == (other.first, other.run)


def counting(names: Iterable[str]) -> tuple[list[Segment], list[str]]:
    """Of stored names the segments that count, in order of their numbers; and the names of those that are
    contained in others. What is not named like a segment is passed over."""
    every = sorted(
        (segment for name in names if (segment := _segment(name)) is not None),
        key=lambda segment: (segment.first, segment.last, -segment.level, segment.version, segment.run),
    )
    held = {one.name for one in every if any(other.holds(one) for other in every)}
    return [one for one in every if one.name not in held], sorted(held)


def _segment(name: str) -> Segment | None:
    if (match := _NAME.fullmatch(name)) is None:
        return None
    level, first, last, version, run = match.groups()
    return Segment(int(level), int(first), int(last), int(version), run)


def write(store: Store, segment: Segment, table: pa.Table) -> None:
    """Store a segment's points. Not waited for is the disk: a history may lack its end."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, SCHEMA.with_metadata(NAMES), options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table.combine_chunks().unify_dictionaries())
    content = sink.getvalue().to_pybytes()
    store.write(segment.name, content + _checksum(segment.name, content), lasting=False)


def read(store: Store, segment: Segment) -> pa.Table:
    """A segment's points. Raises: StateError, it is gone, damaged, or of a version that has others."""
    data, what = bytes(store.read(segment.name)), f'history "{segment.name}"'
    content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if checksum != _checksum(segment.name, content):
        raise damaged(what, "its checksum is that of another content", _HINT)
    try:
        return renamed(pa.ipc.open_file(content).read_all()).cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(what, str(error).splitlines()[0], _HINT) from None


def _checksum(name: str, content: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b"\0" + content, digest_size=_CHECKSUM_BYTES).digest()
