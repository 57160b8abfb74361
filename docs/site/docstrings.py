"""Docstrings as the site shows them: examples get fences, and arguments that share a line get one each."""

from __future__ import annotations

import re

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
"""From a prompt to the next empty line, as doctest has it."""

SHARED = re.compile(r"^( +)((?:\*{0,2}\w+, )+\*{0,2}\w+)(: .*(?:\n\1 +.*)*)", re.MULTILINE)
"""``a, b: what both are``, as a line of arguments, with the lines that go on."""


class House(griffe.Extension):
    """Reads docstrings as they are written here, where the site's tools know others."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(fenced, SHARED.sub(split, obj.docstring.value))


def fenced(example: re.Match[str]) -> str:
    """The example as a block at its own depth."""
    indent = example[1]
    code = example[0].replace("<BLANKLINE>", "")
    return f"{indent}```pycon\n{code}\n{indent}```"


def split(line: re.Match[str]) -> str:
    """A line for each of the arguments."""
    return "\n".join(f"{line[1]}{name}{line[3]}" for name in line[2].split(", "))
