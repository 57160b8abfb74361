"""Which tick a published part is of, and what must fit before a job goes on putting parts beside it.

Insert and tick name a part, but do not say which rows are in it: a checkpoint that was restored from a copy
counts the same ticks over other input. The identity of a tick does: what its rows were made from, by name,
each as a digest (the engine makes it; here it is only compared).

The file ``_tick`` in a part holds it. Readers do not see it, and it is published by the rename that publishes
the rows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from watersmeet.errors import EngineError

MARK = "_tick"
SET_ASIDE_FOLDER = "_set_aside"

Identity = Mapping[str, str]
"""What a tick's rows were made from: name -> digest."""

REPLACE_NEWER_FILES = "--replace-newer-files"

_MAX_LISTED_PARTS = 5


@dataclass(frozen=True)
class Resumed:
    """State from which a job resumes.

    Args:
        committed: The last committed tick; 0 before the first.
        pending: True if the next tick was begun and is to be repeated, so there may be parts of it.
        last_parts: For each INSERT, the last part with rows that the state has a record of, as
            (tick, identity).
        set_aside: True to move parts of later ticks out of sight, instead of rejecting them.
    """

    committed: int
    pending: bool = False
    last_parts: Mapping[str, tuple[int, Identity]] | None = None
    set_aside: bool = False


def newer_parts(
    sink: str,
    place: str,
    parts: Iterable[tuple[str, int]],
    inserts: Iterable[str],
    identity_of: Callable[[str, int], Identity | None],
    resumed: Resumed,
) -> list[tuple[str, int]]:
    """Return the parts to move out of the way: those of ticks that the state has not reached.

    Args:
        place: Location of the parts, for messages.
        inserts: INSERTs of the job that write there.

    Raises:
        EngineError: There are such parts and the user did not ask to move them, or the older parts are
            not those that the state has a record of.
    """
    in_order = sorted(parts)
    last = resumed.committed + (resumed.pending and not resumed.set_aside)
    newer = [part for part in in_order if part[1] > last]
    if newer and not resumed.set_aside:
        raise EngineError(
            f"{place} has {format_parts(newer)}, but the checkpoint is at tick {resumed.committed} (sink"
            f' "{sink}"): the checkpoint is older than the sink. Nothing was written',
            code="sink-ahead",
            hint="restore a copy of the sink from the same moment; or run once with "
            f"{REPLACE_NEWER_FILES}, which"
            f" moves these rows to {SET_ASIDE_FOLDER} and repeats their ticks",
        )
    for insert in inserts:
        older = [tick for name, tick in in_order if name == insert and tick <= resumed.committed]
        if older:
            _check_last(sink, place, insert, older[-1], identity_of, (resumed.last_parts or {}).get(insert))
    return newer


def _check_last(
    sink: str,
    place: str,
    insert: str,
    tick: int,
    identity_of: Callable[[str, int], Identity | None],
    committed: tuple[int, Identity] | None,
) -> None:
    if committed is not None and tick < committed[0]:
        return  # later ones may have been moved away by whoever reads them
    if committed is not None and tick == committed[0] and identity_of(insert, tick) == committed[1]:
        return
    raise EngineError(
        f'{place} has other rows of "{insert}", tick {tick}, than the checkpoint (sink "{sink}"): sink'
        " and checkpoint are from different runs",
        code="sink-of-another-history",
        hint="restore the checkpoint and the sink from copies of the same moment, or start over with an"
        " empty checkpoint and an empty sink",
    )


def check_same(
    sink: str,
    place: str,
    insert: str,
    tick: int,
    stored: Identity | None,
    own: Identity,
    hint: str = f"if the checkpoint was restored from a copy, run once with {REPLACE_NEWER_FILES}, which"
    f" moves those rows to {SET_ASIDE_FOLDER} and writes this tick's rows instead",
) -> None:
    """Check that an existing part of the tick is this tick's; it then stays.

    Args:
        hint: What to do otherwise.

    Raises:
        EngineError: The part has another identity: its rows were made from something else.
    """
    if stored == own:
        return
    if stored is None:
        why = "what it was made from cannot be read"
    else:
        names = [name for name in {**stored, **own} if stored.get(name) != own.get(name)]
        why = f"it was made from other {' and '.join(names)}"
    raise EngineError(
        f'{place} has rows of "{insert}", tick {tick}, but of another attempt at this tick (sink'
        f' "{sink}"): {why}. Nothing of this tick was published',
        code="sink-of-another-tick",
        hint=hint,
    )


def write_mark(folder: Path, identity: Identity) -> None:
    """Put it into a staged part."""
    content = json.dumps(dict(identity))
    handle = os.open(folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with open(handle, "w") as file:
        file.write(f"{content}\n{_checksum(content)}\n")


def read_mark(folder: Path) -> Identity | None:
    """Read the mark of a part; None if it is missing or damaged."""
    try:
        content, checksum = (folder / MARK).read_text().splitlines()
        return dict(json.loads(content)) if checksum == _checksum(content) else None
    except (OSError, ValueError, TypeError):
        return None


def _checksum(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def format_parts(parts: list[tuple[str, int]]) -> str:
    """Format parts as text for a message."""
    shown = ", ".join(f'"{insert}" tick {tick}' for insert, tick in parts[:_MAX_LISTED_PARTS])
    more = f" and {len(parts) - _MAX_LISTED_PARTS} more" if len(parts) > _MAX_LISTED_PARTS else ""
    return f"parts of {shown}{more}" if len(parts) > 1 else f"a part of {shown}"
