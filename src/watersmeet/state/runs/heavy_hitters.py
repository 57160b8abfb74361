"""The heaviest keys of a run: a bounded sketch that is made when the run is written, and goes with it.

A run tells those keys that have at least `SHARE` of its rows, each with how many it has: the `MAX_KEYS` with
most, and as many as `TEXTS` has room for; of rows whose keys are spread none at all. So a key is missed where
it has a lesser share of a run, or some others have more. Keys are told apart by 32 bits of their hashes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.slots import TIME_BITS, Slots
from watersmeet.state.stored_record import FrozenRecord

SHARE = 1 / 32
MIN_ROWS = 8
"""Of fewer rows no key is heavy."""
TEXT = 200
"""Characters of a value that are told, at most; of several values together, if it is not too few for each."""
MIN_TEXT = 8
MAX_KEYS = 8
TEXTS = 1000
"""Characters of all keys of a run, about: manifests list every run."""


class HeavyKey(FrozenRecord):
    """Heavy hitter of a run.

    Attributes:
        bucket: the upper 32 bits of the key's hash.
        rows: the number of rows in the bucket.
        key: a JSON object of the key's columns as stored, of the bucket's first row, cut after `TEXT`
            characters.
    """

    bucket: int
    rows: int
    key: str


def heavy_keys_in(slots: Slots, batch: pa.RecordBatch, key: Sequence[str]) -> tuple[HeavyKey, ...]:
    """Find the heaviest keys of sorted rows, heaviest first.

    Cost: a few binary searches, regardless of the number of rows.

    Args:
        slots: the rows' slots, ascending.
        key: the columns of ``batch`` whose hashes the slots contain.
    """
    least = max(MIN_ROWS, -(-len(slots) // round(1 / SHARE)))
    if not key or len(slots) < least:
        return ()
    # whoever has so many rows in a row is met twice in succession
    met = slots[:: max(1, least // 2)] >> np.int64(TIME_BITS)
    buckets = np.unique(met[1:][met[1:] == met[:-1]])
    if not len(buckets):
        return ()
    first = np.searchsorted(slots, buckets << np.int64(TIME_BITS), side="left")
    end = np.searchsorted(
        slots, (buckets << np.int64(TIME_BITS)) | np.int64((1 << TIME_BITS) - 1), side="right"
    )
    rows = end - first
    order = [place for place in np.argsort(-rows, kind="stable").tolist() if rows[place] >= least]
    heavy: list[HeavyKey] = []
    room = TEXTS
    for place in order[:MAX_KEYS]:
        text = format_key(batch, key, int(first[place]))
        room -= len(text)
        if heavy and room < 0:
            break
        heavy.append(HeavyKey(bucket=int(buckets[place]), rows=int(rows[place]), key=text))
    return tuple(heavy)


def format_key(batch: pa.RecordBatch, key: Sequence[str], row: int) -> str:
    """Format a row's key as a JSON object of its stored columns. No value makes it fail."""
    most = max(MIN_TEXT, TEXT // max(1, len(key)))
    told = {name: _plain(batch.column(name).slice(row, 1), most) for name in key}
    return json.dumps(told, ensure_ascii=False)


def _plain(value: pa.Array, most: int) -> bool | int | str | None:
    """Convert one value to a readable form, cut to ``most`` characters.

    A value without text becomes the name of its type.
    """
    if value.null_count:
        return None
    try:
        plain = _read(value, most)
    except (pa.ArrowException, ValueError, OverflowError):
        plain = str(value.type)
    if plain is None or isinstance(plain, (bool, int)):
        return plain
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def _read(value: pa.Array, most: int) -> bool | int | str | None:
    """Read a value, or the beginning of its text; copy no more than the result needs."""
    kind = value.type
    if pa.types.is_nested(kind):
        return str(kind)
    if pa.types.is_temporal(kind):
        return shown_time(value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # not always UTF-8: files may hold anything. A character has up to four bytes
        as_bytes = value.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        first: bytes = pc.binary_slice(as_bytes, 0, 4 * (most + 1))[0].as_py()
        return first.decode(errors="replace")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        value = pc.binary_slice(value, 0, most + 1)
    plain = value[0].as_py()
    return plain if plain is None or isinstance(plain, (bool, int)) else str(plain)


def shown_time(value: pa.Array) -> str | None:
    """Format one time, date or duration in UTC, or as a number if Arrow has no text for it."""
    kind = value.type
    plain = value.view(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else value
    try:
        text: str | None = plain.cast(pa.string())[0].as_py()
    except pa.ArrowException:
        whole = value.view(pa.int32() if kind.bit_width == 32 else pa.int64())[0].as_py()
        text = None if whole is None else str(whole)
    return text
