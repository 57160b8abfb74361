"""Which sinks do not tell how many rows they took, as far as their options say.

Files of text are counted by their bytes: by the ends of lines (JSON), and those outside of quotes (CSV).
"""

from __future__ import annotations

from watersmeet.spec.model import Sink
from watersmeet.spec.options.files import format_of

COUNTED = frozenset({"none", "uncompressed", "gzip", "bzip2", "deflate"})
"""Compressions of files of text that are undone to count."""

_COMPRESSION = ("compression", "codec")
_ENCODING = ("encoding", "charset")
_UTF_8 = frozenset({"utf-8", "utf8"})
_LINES = ("linesep",)
_RECORDS = (*_LINES, "quote", "escape", "escapequotes", "chartoescapequoteescaping", "comment")
_WRITTEN = ("sep", "delimiter", "nullvalue", "emptyvalue")
"""Options of which the value is written as it is."""


def untold_by(sink: Sink) -> str | None:
    """Return the option, as written, that makes a file sink's rows uncountable, or None."""
    wanted = format_of(sink.options)
    if wanted not in ("json", "csv"):
        return None
    others = _RECORDS if wanted == "csv" else _LINES
    for name, value in sink.options.items():
        low, said = name.lower(), value.strip().lower()
        hides = (
            low in others
            or (low in _COMPRESSION and said not in COUNTED)
            or (low in _ENCODING and said not in _UTF_8)
            or (low == "pretty" and said != "false" and wanted == "json")
            or (low in _WRITTEN and wanted == "csv" and set(value) & set('"\\\n'))
        )
        if hides:
            return f"'{name}' = '{value}'"
    return None


def untold(sink: Sink) -> tuple[str, ...]:
    """Return warnings that the engine would not detect lost rows of such a sink."""
    option = untold_by(sink)
    if option is None:
        return ()
    return (
        f'with {option} the rows in the files of "{sink.name}" cannot be counted: rows are counted'
        " before they are written",
    )
