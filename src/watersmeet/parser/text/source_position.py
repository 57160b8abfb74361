"""Where things stand in the user's text, and the errors that say so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from watersmeet.errors import Location, SeveralErrors, SqlError, WatersmeetError, near_names
from watersmeet.names import OURS

_REQUIRED = re.compile(r"Required keyword: .*? missing for <class '.*?(\w+)'>\.?")
_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY", "MAP", "STRUCT"),
)
_STATEMENT = re.compile(r"(CREATE|INSERT|SELECT|SET|WITH|EXPLAIN)\b", re.IGNORECASE)
_TOKEN = re.compile(r"<Token .*>")
_UNEXPECTED = re.compile(r"^Invalid expression / Unexpected token")
_QUOTED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'", re.DOTALL)
"""Comments, and texts in single quotes."""
_CHECK_BEFORE = "check the text before this place: often a comma, a parenthesis or an operator is missing"
_MAX_CHARACTERS = 100
"""Characters of the token at which a parser stumbled."""


def reserved_name_error(name: str, location: Location | None = None) -> SqlError:
    """Build the error for a user's name that has the engine's reserved prefix."""
    return SqlError(
        f'"{name}": names that begin with {OURS} are reserved for the engine',
        code="reserved-name",
        hint="use another name; do not declare such columns of files or topics",
        location=location,
    )


@dataclass
class Text:
    """A text with its name, and the problems found in it so far.

    Problems are collected, so that one run shows all of them; `problem` adds one and goes on, `error` builds
    one to be raised where going on makes no sense. ``own_functions``: Spark may have functions of the user's.
    """

    sql: str
    source_name: str | None = None
    problems: list[WatersmeetError] = field(default_factory=list)
    own_functions: bool = False

    def at(self, offset: int) -> Location:
        line = self.sql.count("\n", 0, offset) + 1
        column = offset - (self.sql.rfind("\n", 0, offset) + 1) + 1
        return Location(line, column, self.source_name)

    def around(self, offset: int) -> tuple[Text, int]:
        """Return the text that contains an offset, and the offset at which that text begins."""
        return self, 0

    def place(self, where: exp.Expr | int | None) -> Location | None:
        """Return the location of an offset or of a node.

        A node has the location of the first node below it with a known location, or otherwise above it.
        """
        if where is None or isinstance(where, int):
            return None if where is None else self.at(where)
        start = _start(where)
        return None if start is None else self.at(start)

    def error(
        self, message: str, code: str, where: exp.Expr | int | None = None, hint: str | None = None
    ) -> SqlError:
        return SqlError(message, code=code, hint=hint, location=self.place(where))

    def problem(
        self, message: str, code: str, where: exp.Expr | int | None = None, hint: str | None = None
    ) -> None:
        self.problems.append(self.error(message, code, where, hint))

    def all_problems(self) -> WatersmeetError:
        """Return the error to raise: the only problem, or all problems in the order of the text."""
        in_order = sorted(self.problems, key=_order)
        return in_order[0] if len(in_order) == 1 else SeveralErrors(in_order)

    def not_supported(self, what: str, where: exp.Expr | int | None, hint: str | None = None) -> SqlError:
        return self.error(f"{what} not supported here", "not-supported", where, hint)

    def missing_semicolon(self, offset: int) -> str | None:
        """Return a hint about a missing semicolon if a statement seems to start at ``offset``.

        A statement seems to start where a keyword begins a line, after another line without an end.
        """
        line = self.sql.rfind("\n", 0, offset) + 1
        word = _STATEMENT.match(self.sql, offset)
        if word is None or line == 0 or self.sql[line:offset].strip():
            return None
        return f"is a semicolon missing before {word[1].upper()}?"

    def _missing_before(self, offset: int) -> str:
        """Return a hint about what is probably missing before the token at which a parser stumbled."""
        statement = _QUOTED.sub("", self.sql[:offset]).rpartition(";")[2]
        if statement.count("(") > statement.count(")"):
            return "add a closing parenthesis ) before this place, or remove an opening one"
        return self.missing_semicolon(offset) or _CHECK_BEFORE

    def _name_around(self, offset: int) -> str:
        """Return the qualified name whose point is at an offset."""
        before, after = re.search(r"\w*$", self.sql[:offset]), re.match(r"\.\w*", self.sql[offset:])
        return f"{before[0]}{after[0]}" if before and after and before[0] else ""

    def _offset(self, where: Location) -> int:
        """Return the offset of a location."""
        lines = self.sql.split("\n")[: where.line - 1]
        return sum(len(line) + 1 for line in lines) + where.column - 1

    def syntax(self, error: ParseError | TokenError) -> SqlError:
        """Convert a parser's error to a SqlError: its first problem, located at the failing token."""
        if isinstance(error, ParseError) and error.errors:
            first = error.errors[0]
            line, column = first.get("line"), first.get("col")
            token = first.get("highlight") or ""
            message = _REQUIRED.sub(r"\1 is incomplete", str(first.get("description") or "cannot be parsed"))
            message = _TOKEN.sub("more", message).rstrip(".")
            message = _UNEXPECTED.sub("unexpected text", message)
            shown = token if len(token) <= _MAX_CHARACTERS else f"{token[:_MAX_CHARACTERS]}…"
            near = f' near "{shown}"' if token else ""
            where = None
            if line and column:
                where = Location(line, max(1, column - len(token) + 1), self.source_name)
            hint: str | None = _CHECK_BEFORE
            if where is not None:
                offset = self._offset(where)
                hint = self._missing_before(offset)
                if token == "." and (name := self._name_around(offset)):
                    near = f' near "{name}"'
                    hint = f"is a comma missing before {name}?" if hint == _CHECK_BEFORE else hint
            if message.startswith("Expected END after CASE"):
                message, near, hint = "CASE has no END", "", "write `case` for a column of that name"
            if token and message.startswith(("Expected TYPE", "Expected type")):
                message, hint = "there is no such type", near_names(token, _TYPES)
            return SqlError(f"syntax: {message}{near}", code="syntax", hint=hint, location=where)
        # sqlglot says "Missing ' from line:offset", the offset from the start of the text.
        match = re.search(r"Missing (.*?) from \d+:(\d+)", str(error.__cause__ or error))
        if match is not None:
            opened = _find_multiline_text(self.sql) if match[1] == "'" else None
            return self.error(
                f"syntax: the text that starts here has no closing {match[1]}",
                "syntax",
                int(match[2]) if opened is None else opened,
                f"add {match[1]} where the text ends",
            )
        digits = re.search(r"Numeric string .* from \d+:(\d+)", str(error.__cause__ or error))
        if digits is not None:
            return self.error(
                "syntax: the binary literal that starts here has characters other than 0 to 9 and A to F",
                "syntax",
                int(digits[1]),
                "write bytes as X'1CE5', and numbers in base 10",
            )
        opened = self.sql.rfind("/*")
        if opened > self.sql.rfind("*/"):
            return self.error("syntax: the comment that starts here has no end", "syntax", opened, "add */")
        return self.error("syntax: the text cannot be read", "syntax")


def _find_multiline_text(sql: str) -> int | None:
    """Return where the first text in single quotes starts that goes on in the next line; None: none does."""
    for part in _QUOTED.finditer(sql):
        if part[0].startswith("'") and "\n" in part[0]:
            return part.start()
    return None


def _order(error: WatersmeetError) -> tuple[int, int]:
    place = error.location
    return (place.line, place.column) if place else (2**31, 0)


def _start(node: exp.Expr) -> int | None:
    """Return the offset at which the node's text starts.

    A node without an offset has that of its nearest ancestor with one; None if there is none.
    """
    above: exp.Expr | None = node
    while above is not None:
        starts = [child.meta["start"] for child in above.walk() if "start" in child.meta]
        if starts:
            return int(min(starts))
        above = above.parent
    return None


class StatementRejected(Exception):
    """A statement cannot be built; what is wrong with it is among the text's problems already."""
