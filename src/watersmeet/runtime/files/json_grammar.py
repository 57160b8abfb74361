"""JSON as Spark reads it unless it is told otherwise: as Python does, and with texts in single quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_TEXTS = re.compile(r"""("(?:[^"\\]|\\.)*")|'((?:[^'\\]|\\.)*)'""")
_OTHER_FORMS = ("encoding", "charset", "linesep")


def parse_json(text: str, options: Mapping[str, str]) -> Any:
    """Parse a JSON text; return None, which is no record, if it is not JSON.

    >>> parse_json('{\\'k "\\': "it\\'s"}', {}), parse_json("{'k': 1}", {"allowsinglequotes": "false"})
    ({'k "': "it's"}, None)
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if "'" not in text or options.get("allowsinglequotes", "").strip().lower() == "false":
            return None
    try:
        return json.loads(_TEXTS.sub(_in_double_quotes, text))
    except (ValueError, RecursionError):
        return None


def _in_double_quotes(match: re.Match[str]) -> str:
    if match[1] is not None:
        return match[1]
    return '"' + re.sub(r'(\\.)|"', lambda part: part[1] or '\\"', match[2]) + '"'


def has_other_forms(options: Mapping[str, str]) -> bool:
    """Return True if Spark reads lines or JSON that this module does not support.

    Args:
        options: options with names in lower case.
    """
    return any(name in _OTHER_FORMS or name.startswith("allow") for name in options)


def could_be_record(line: str) -> bool:
    """Return True if a line starts and ends like a JSON object, or like an array of objects."""
    line = line.strip("\ufeff \t\r")
    return (line[:1] == "{" and "}" in line) or (line[:1] == "[" and "]" in line)
