"""Which codes errors of the package can have, and what they say with them, as its source tells.

A code is what is given to a parameter, or a field, that is called ``code``. Where codes go by tables and
tuples before, every text of such a form is one, unless it is known to be something else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.support.package_paths import PACKAGE, find_paths

COMPOSED = {
    "f'file-{what}'": ("file-changed", "file-torn", "file-gone", "file-unread", "file-vanished"),
    "f'unknown-{what}'": ("unknown-source", "unknown-query", "unknown-table"),
}
"""Codes that the source puts together -> what comes of it."""

_BY_TABLES = {
    path.relative_to(PACKAGE).as_posix()
    for part in (
        "runtime",
        "parser",
        "plan",
        "local",
        "pipelines",
        "sinks",
        "state",
        "types",
        "objects",
        "relations",
    )
    for path in find_paths(PACKAGE, f"{part}/**/*.py")
}
"""Modules in which codes go by tables and tuples."""
NO_CODES = {
    "bounded-state", "broken-records", "early-planner", "early-workers", "event-times", "find-spark-home",
    "idle-ticks", "java-opts", "key-rows", "late-rows", "pyspark-shell", "rate-micro-batch",
    "schema-registry", "shed-rows", "spark-class", "spark-submit", "tick-progress", "upsert-kafka",
    "utf-8", "utf-8-sig", "watersmeet-control",
}  # fmt: skip
"""Texts in them that are no codes."""
_CODE, _KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*"), re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_LEAST, _FEWEST, _MOST = 0.2, 6, 400
"""So much of a message has to be written in the source; and so many letters at least, and at most."""


@dataclass(frozen=True)
class Said:
    """A text of the source that may be a message: its pieces between what is put in."""

    pieces: tuple[str, ...]

    def fits(self, message: str) -> bool:
        """Whether ``message`` is such a text; one that ends with `…` may be cut short."""
        return self._count_matched_letters(message) >= _LEAST * len(message.strip("… ."))

    def _count_matched_letters(self, message: str) -> int:
        """How many letters of the pieces stand in it, one behind the other; 0 where not all do."""
        place, letters, is_cut = 0, 0, message.endswith("…")
        for piece in self.pieces:
            found = message.find(piece, place)
            if found < 0:
                return letters + _count_prefix_letters(piece, message[place:].rstrip("…")) if is_cut else 0
            place = found + len(piece)
            letters += len(piece.strip())
        return letters


def _count_prefix_letters(piece: str, text: str) -> int:
    """With how many letters of the piece the text ends."""
    if text[-_FEWEST:] not in piece:
        return 0
    return next((n for n in range(len(text), 0, -1) if text.endswith(piece[:n])), 0)


@cache
def _nodes() -> dict[str, list[ast.AST]]:
    """What is looked at of each module, by its path."""
    kinds = (ast.Call, ast.Constant, ast.JoinedStr, ast.FunctionDef, ast.ClassDef)
    return {
        file.relative_to(PACKAGE).as_posix(): [
            node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)
        ]
        for file in find_paths(PACKAGE, "**/*.py")
    }


@cache
def _takers() -> dict[str, set[int]]:
    """Functions, methods and dataclasses that take a code -> at which places, without ``self``."""
    found: dict[str, set[int]] = {}
    for nodes in _nodes().values():
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                names = names[1:] if names[:1] == ["self"] else names
            elif isinstance(node, ast.ClassDef):
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                names = [field.id for field in fields if isinstance(field, ast.Name)]
            else:
                continue
            if "code" in names:
                found.setdefault(node.name, set()).add(names.index("code"))
    return found


def _find_code_arguments(call: ast.Call) -> Iterator[ast.expr]:
    """What a call gives as a code, or at a place where calls of that name may have one."""
    for keyword in call.keywords:
        if keyword.arg == "code":
            yield from _either(keyword.value)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    for place in _takers().get(name, ()):
        if place < len(call.args):
            yield from _either(call.args[place])


def _either(value: ast.expr) -> list[ast.expr]:
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]


def _code_of(value: ast.expr) -> str | None:
    text = value.value if isinstance(value, ast.Constant) else None
    return text if isinstance(text, str) and _CODE.fullmatch(text) else None


def _calls() -> Iterator[ast.Call]:
    for nodes in _nodes().values():
        yield from (node for node in nodes if isinstance(node, ast.Call))


@cache
def all_codes() -> frozenset[str]:
    """Every code that an error can have."""
    spelled = {
        code
        for call in _calls()
        for value in _find_code_arguments(call)
        if (code := _code_of(value)) is not None
    }
    made = {code for codes in COMPOSED.values() for code in codes}
    return frozenset(spelled | (kebab_texts() - NO_CODES) | made)


def kebab_texts() -> set[str]:
    """Return the hyphenated texts of the modules in which codes go by tables and tuples."""
    return {
        node.value
        for name, nodes in _nodes().items()
        if name in _BY_TABLES
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _KEBAB.fullmatch(node.value)
    }


def list_code_templates() -> set[str]:
    """How the source puts codes together."""
    given = (keyword.value for call in _calls() for keyword in call.keywords if keyword.arg == "code")
    return {ast.unparse(value) for value in given if isinstance(value, ast.JoinedStr)}


def is_known_message(code: str, message: str) -> bool:
    """Whether the source says such a message with the code, or somewhere without one."""
    by_code = _messages()
    return any(said.fits(message) for beside in (code, None) for said in by_code.get(beside, ()))


@cache
def _messages() -> dict[str | None, frozenset[Said]]:
    """Texts that may be messages, by the code that they stand beside."""
    found: dict[str | None, set[Said]] = {}
    beside = set()
    for call in _calls():
        codes = [code for value in _find_code_arguments(call) if (code := _code_of(value)) is not None]
        for part in (part for argument in call.args if codes for part in ast.walk(argument)):
            beside.add(id(part))
            for code in codes:
                found.setdefault(code, set()).update(_extract_message_pattern(part))
    for nodes in _nodes().values():
        for node in nodes:
            if id(node) not in beside:
                found.setdefault(None, set()).update(_extract_message_pattern(node))
    return {code: frozenset(texts) for code, texts in found.items()}


def _extract_message_pattern(node: ast.AST) -> list[Said]:
    if not isinstance(node, ast.Constant | ast.JoinedStr):
        return []
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    written = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    pieces = tuple(text.strip("\n") for text in written)
    return [Said(pieces)] if _FEWEST <= sum(map(len, pieces)) <= _MOST and " " in "".join(pieces) else []
