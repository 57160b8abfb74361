"""Records of JSON that Spark reads: drawn ones, and what Python's parser says of them."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_SWAPPED = str.maketrans({"'": '"', '"': "'"})
_BLANK = " \t\r\n"


def drawn(rng: random.Random, number: int, fields: Iterable[tuple[str, Sequence[Any]]]) -> dict[str, Any]:
    """An object with this number as ``id``, and of each field one of its values, or the field not at all."""
    row: dict[str, Any] = {"id": number}
    for name, values in fields:
        if rng.random() < 0.5:
            row[name] = rng.choice(values)
    return row


def runs_on(record: bytes) -> bool | None:
    """Whether something stands behind the first value; None: there is no value. Of texts in single quotes the
    quotes are swapped.

    >>> [runs_on(record) for record in (b'{"a": 1} ', b"{'a': 1}{", b"{")]
    [False, True, None]
    """
    encoding = json.detect_encoding(record)
    text = record.decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace").lstrip(_BLANK)
    deepest = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        for form in (text, text.translate(_SWAPPED)):
            try:
                _, end = json.JSONDecoder().raw_decode(form)
            except ValueError:
                continue
            return bool(text[end:].strip(_BLANK))
    finally:
        sys.setrecursionlimit(deepest)
    return None
