"""Regular expressions as Java reads them: which it certainly refuses, and how many groups one has.

Only the frame is read: groups, classes, quantifiers and escapes. Patterns with ``\\Q…\\E``, with comments, or
with classes that are cut with others are left to Java.
"""

from __future__ import annotations

import re

_FLAGS = re.compile(r"\(\?([A-Za-z]*(?:-[A-Za-z]*)?)([:)])")
_NAMED = re.compile(r"\(\?<[A-Za-z][A-Za-z0-9]*>")
_OPENED = re.compile(r"\(\?(?::|=|!|>|<=|<!)")
_REFERRED = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_COUNTED = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_COMMENTS = re.compile(r"\(\?[A-Za-z-]*x")
_KNOWN_FLAGS = set("imsdcuU")
_NO_ESCAPES = set("CFIJKLMOTUYgijlmoqy")
"""Letters that say nothing behind a backslash."""

_NO_CHARACTERS = set("dDsSwWhHvVRXpPbB")
"""Letters behind a backslash that stand for no one character, so that no range begins with them."""

_PROPERTIES = frozenset(
    {
        "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl", "Zp", "Cc", "Cf",
        "Co", "Cs", "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So", "Pi", "Pf", "L", "M", "N", "Z", "C",
        "P", "S", "LC", "LD", "L1", "all", "ASCII", "Lower", "Upper", "Alpha", "Digit", "Alnum", "Punct",
        "Graph", "Print", "Blank", "Cntrl", "XDigit", "Space",
    }
)  # fmt: skip
"""What ``\\p{…}`` knows without ``Is``, ``In``, ``java`` or ``=``."""

_IN_BRACES = set("pPxN")
"""Letters behind a backslash that may have something in braces behind them."""


class PatternError(ValueError):
    """A pattern that Java refuses; the text says why."""


class _NotReadError(Exception):
    pass


def groups_of(pattern: str) -> int | None:
    """Return the number of capturing groups of a pattern; None: only Java knows.

    Raises:
        PatternError: Java rejects the pattern.

    >>> groups_of(r"(\\d+)-(?:x|(y))"), groups_of(r"[a-z&&[^b]]")
    (2, None)
    """
    if "\\Q" in pattern or "\\E" in pattern or _COMMENTS.search(pattern) or "\0" in pattern:
        return None
    try:
        return _Reader(pattern).read()
    except _NotReadError:
        return None


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._names: set[str] = set()

    def read(self) -> int:
        pattern, depth, groups = self._pattern, 0, 0
        repeatable = False  # is there something before that a quantifier can be of?
        while self._place < len(pattern):
            sign = pattern[self._place]
            if sign == "\\":
                self._escape(in_class=False)
                repeatable = True
            elif sign == "[":
                self._place += 1
                self._class()
                repeatable = True
            elif sign == "(":
                opens, keeps = self._group()
                depth, groups, repeatable = depth + opens, groups + keeps, False
            elif sign == ")":
                depth -= 1
                if depth < 0:
                    raise PatternError("a ) has no matching (")
                self._place, repeatable = self._place + 1, True
            elif sign == "|":
                self._place, repeatable = self._place + 1, False
            elif sign in "*+?":
                if not repeatable:
                    raise PatternError(f"{sign} has nothing before it to repeat")
                self._place, repeatable = self._place + 1, False
                self._suffix()
            elif sign == "{":
                self._parse_count()
                repeatable = False
            else:
                self._place, repeatable = self._place + 1, True
        if depth:
            raise PatternError("a group has no end: ) is missing")
        return groups

    def _suffix(self) -> None:
        """Read an optional ``?`` or ``+`` after a quantifier."""
        if self._pattern[self._place : self._place + 1] in ("?", "+"):
            self._place += 1

    def _parse_count(self) -> None:
        match = _COUNTED.match(self._pattern, self._place)
        if match is None:
            raise PatternError(
                "{ does not start a count such as {2} or {2,5}: write \\{ for the character itself"
            )
        if match[3] and int(match[3]) < int(match[1]):
            raise PatternError(f"the count {match[0]} has its larger number first")
        self._place = match.end()
        self._suffix()

    def _group(self) -> tuple[int, int]:
        """Read the start of a group; return the number of opened and of capturing groups."""
        pattern, start = self._pattern, self._place
        if not pattern.startswith("(?", start):
            self._place += 1
            return 1, 1
        for form, keeps in ((_OPENED, 0), (_NAMED, 1)):
            if match := form.match(pattern, start):
                self._place = match.end()
                if keeps and match[0] in self._names:
                    raise PatternError(f"two groups are named {match[0][3:-1]}")
                self._names.add(match[0])
                return 1, keeps
        match = _FLAGS.match(pattern, start)
        if match is None or not set(match[1]) <= {*_KNOWN_FLAGS, "-"}:
            raise PatternError(f"Java has no group syntax {pattern[start : start + 4]}")
        self._place = match.end()
        return int(match[2] == ":"), 0

    def _class(self) -> None:
        """Read up to the ``]`` of the class whose ``[`` is already read."""
        if self._pattern.startswith("^", self._place):
            self._place += 1
        empty = True
        while self._place < len(self._pattern):
            sign = self._pattern[self._place]
            if self._pattern.startswith("&&", self._place):
                raise _NotReadError
            if sign == "]" and not empty:
                self._place += 1
                return
            if sign == "\\":
                one = self._pattern[self._place + 1 : self._place + 2] not in _NO_CHARACTERS
                self._escape(in_class=True)
                if one:
                    self._range(None)
            elif sign == "[":
                self._place += 1
                self._class()
            else:
                self._place += 1
                self._range(sign)
            empty = False
        raise PatternError("a character class has no end: ] is missing")

    def _property(self) -> None:
        """Read the name after ``\\p``: ``{name}``, or a letter."""
        name = self._pattern[self._place : self._place + 1]
        self._place += 1
        if name == "{":
            end = self._pattern.find("}", self._place)
            if end < 0:
                raise PatternError("\\p{ has no end: } is missing")
            name, self._place = self._pattern[self._place : end], end + 1
        if "=" not in name and not name.startswith(("Is", "In", "java")) and name not in _PROPERTIES:
            raise PatternError(f"there is no character class \\p{{{name}}}")

    def _range(self, first: str | None) -> None:
        """Read an optional ``-z`` after a character of a class.

        Args:
            first: The character; None: it is unknown.
        """
        if not self._pattern.startswith("-", self._place):
            return
        last = self._pattern[self._place + 1 : self._place + 2]
        if last in ("", "[", "]"):
            return
        self._place += 1
        if last == "\\":
            if self._pattern[self._place + 1 : self._place + 2] in _NO_CHARACTERS:
                raise _NotReadError
            self._escape(in_class=True)
            return
        if first is not None and ord(last) < ord(first):
            raise PatternError(f"the range {first}-{last} has its larger character first")
        self._place += 1

    def _escape(self, *, in_class: bool) -> None:
        sign = self._pattern[self._place + 1 : self._place + 2]
        if not sign:
            raise PatternError("it ends with a backslash")
        if sign in _NO_ESCAPES and not in_class:
            raise PatternError(f"\\{sign} has no meaning")
        self._place += 2
        if sign in "pP":
            self._property()
        elif sign == "k" and not in_class:
            named = _REFERRED.match(self._pattern, self._place)
            if named is None:
                raise PatternError("\\k needs a group name in < >")
            if f"(?{named[0]}" not in self._names:
                raise PatternError(f"there is no group {named[1]} before \\k{named[0]}")
            self._place = named.end()
        elif sign == "u" and not re.match("[0-9A-Fa-f]{4}", self._pattern[self._place :]):
            raise PatternError("\\u takes four hexadecimal digits")
        elif sign == "x" and not re.match(r"[0-9A-Fa-f]{2}|\{", self._pattern[self._place :]):
            raise PatternError("\\x takes two hexadecimal digits")
        elif sign in _IN_BRACES and self._pattern.startswith("{", self._place):
            end = self._pattern.find("}", self._place)
            if end < 0:
                raise PatternError(f"\\{sign}{{ has no end: }} is missing")
            self._place = end + 1
        elif sign == "c":
            self._place += 1  # any character
