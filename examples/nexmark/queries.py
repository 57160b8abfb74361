"""One query of a form of Nexmark, as a job of its own."""

from __future__ import annotations

import re

from examples.running import text_of

_QUERY = re.compile(r"-- (q\d+):")


def only(form: str, query: str) -> str:
    """The declarations and views of ``interval`` or ``changes``, and of their queries this one."""
    kept = []
    for paragraph in text_of("nexmark", f"{form}.sql").split("\n\n"):
        named = _QUERY.match(paragraph)
        if named is None or named[1] == query:
            kept.append(paragraph)
    return "\n\n".join(kept)
