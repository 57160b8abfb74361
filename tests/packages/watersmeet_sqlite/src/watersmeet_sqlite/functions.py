"""The functions, over Arrow arrays."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def slug(names: pa.Array) -> pa.Array:
    """Return names in lower case, with a hyphen for anything but letters and digits."""
    return pc.replace_substring_regex(pc.utf8_lower(names), "[^a-z0-9]+", "-")


def initials(names: pa.Array, counts: pa.Array) -> pa.Array:
    """Return the first characters of names; NULL where the name or the number is NULL."""
    pairs = zip(names.to_pylist(), counts.to_pylist(), strict=True)
    return pa.array([None if n is None or count is None else n[:count] for n, count in pairs], pa.string())
