"""What Python's JSON parser says of records that Spark reads."""

from __future__ import annotations

import json
import sys

_SWAPPED = str.maketrans({"'": '"', '"': "'"})
_BLANK = " \t\r\n"


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
