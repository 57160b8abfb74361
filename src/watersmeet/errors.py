"""Every error that watersmeet raises on purpose, as one tree.

    WatersmeetError
    ├── SpecError     a job's parts do not fit together (options, sinks, sources)
    │   └── SqlError  the text of a job does not parse or names what is not there
    ├── PlanError     the query cannot be run as asked (unbounded state, wrong types, …)
    ├── StateError    what is stored does not fit (damaged run, changed query, lost checkpoint)
    ├── EngineError   a tick failed (limits, sinks, sources, input that must not be)
    └── SeveralErrors all problems of one stage, found together

An error's text says what is wrong in the user's names; ``hint`` says what to do. ``code`` is stable and may
be matched by programs.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Location:
    """Position in the user's text: line and column, both from 1, and a file name or None.

    ``source`` is the file name.

    >>> str(Location(3, 14)), str(Location(3, 14, "job.sql"))
    ('line 3, column 14', 'job.sql, line 3, column 14')
    """

    line: int
    column: int
    source: str | None = None

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}"
        return f"{self.source}, {place}" if self.source else place


_MIN_SECRET = 8
"""Of letters: stars in the place of a short word would show which one it is."""
_BEGIN_OF_WORD = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[abfnrtv]))"
"""Also behind ``%2F`` of a URL, and ``\\n`` of a text as Python writes it."""
_END_OF_WORD = r"(?![^\W_])"
hidden_texts: dict[str, None] = {}
"""What `hide_in_errors` was told of."""


def hide_in_errors(secret: str, within: str = "") -> None:
    """Hide a text in all errors of this process: in paths, library messages and elsewhere.

    Args:
        within: a text that contains the secret; words in it that contain the secret are hidden, too.
    """
    if len(secret) < _MIN_SECRET:
        return
    for text in (secret, *re.findall(rf"[^\W_]*{re.escape(secret)}[^\W_]*", within)):
        in_urls = (quote(text, safe=safe, errors="surrogateescape") for safe in ("/", ""))
        hidden_texts.update(dict.fromkeys([text, *in_urls]))


def without_hidden(text: str) -> str:
    """Replace the texts registered with `hide_in_errors` by stars.

    A secret that has only letters or only digits may be a part of other words; it is replaced only as a
    whole word.
    """
    for secret in sorted(hidden_texts, key=len, reverse=True):
        if secret not in text:
            continue
        if secret.isalpha() or secret.isdigit():
            text = re.sub(f"{_BEGIN_OF_WORD}{re.escape(secret)}{_END_OF_WORD}", "***", text)
        else:
            text = text.replace(secret, "***")
    return text


class WatersmeetError(Exception):
    """Base class of all errors of watersmeet.

    Args:
        message: the problem, in the user's names.
        code: stable short name such as ``unbounded-state``.
        hint: what the user can do.
        location: the place in the job's text.

    >>> from watersmeet import WatersmeetError, parse_job
    >>> try:
    ...     parse_job("SELECT o.id FROM orders o")
    ... except WatersmeetError as error:
    ...     print(error.code, "at", error.location)
    unknown-table at line 1, column 18
    """

    def __init__(
        self, message: str, *, code: str, hint: str | None = None, location: Location | None = None
    ) -> None:
        message, hint = without_hidden(message), None if hint is None else without_hidden(hint)
        super().__init__(message, code, hint, location)
        self.message = message
        self.code = code
        self.hint = hint
        self.location = location

    def __str__(self) -> str:
        where = f" ({self.location})" if self.location else ""
        hint = f"\nHint: {self.hint}" if self.hint else ""
        return printable(f"{type(self).__name__}[{self.code}]: {self.message}{where}{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.code, self.hint, self.location)


def _rebuild(
    kind: type[WatersmeetError], message: str, code: str, hint: str | None, location: Location | None
) -> WatersmeetError:
    return kind(message, code=code, hint=hint, location=location)


class SpecError(WatersmeetError):
    """The parts of a job do not fit together.

    >>> from watersmeet import SpecError, run
    >>> try:
    ...     run('''CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...         SELECT t FROM a''')
    ... except SpecError as error:
    ...     print(error.code, "-", error.message)
    no-checkpoint - the job has no checkpoint: a directory for its state
    """


class SqlError(SpecError):
    """The text of a job does not parse, or names something that is not there.

    >>> from watersmeet import SqlError, stream
    >>> try:
    ...     stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", name="clicks").select("ids")
    ... except SqlError as error:
    ...     print(error.message, "-", error.hint)
    unknown column "ids" - did you mean "id"?
    """


class PlanError(WatersmeetError):
    """The query cannot be run as asked.

    >>> from watersmeet import PlanError, parse_job, plan_job
    >>> job = parse_job('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.k FROM a x JOIN a y ON x.k = y.k AND y.t >= x.t''')
    >>> try:
    ...     plan_job(job)
    ... except PlanError as error:
    ...     print(error.code)
    unbounded-state
    """


class StateError(WatersmeetError):
    """Error: stored state does not fit the request, or is damaged.

    >>> from watersmeet import MemoryStore, StateError, local
    >>> text = '''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.k, y.t FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3'''
    >>> store = MemoryStore()
    >>> _ = local.job(text, store=store).tick()
    >>> try:
    ...     local.job(text.replace("x.k = y.k AND ", ""), store=store)
    ... except StateError as error:
    ...     print(error.code)
    changed-query
    """


class EngineError(WatersmeetError):
    """A tick failed.

    >>> from watersmeet import EngineError
    >>> from watersmeet.testing import query
    >>> try:
    ...     query('''CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...         SELECT t FROM a''', {"a": [{"t": "noon"}]})
    ... except EngineError as error:
    ...     print(error.code)
    bad-value
    """


class SeveralErrors(WatersmeetError):
    """All problems of one stage; its message and its hint have one line per problem.

    Attributes:
        errors: the problems, in the order of the user's text.

    >>> from watersmeet import SeveralErrors, parse_job
    >>> try:
    ...     parse_job("SELECT a FROM here; SELECT b FROM there")
    ... except SeveralErrors as error:
    ...     print([problem.message for problem in error.errors])
    ['unknown table or view "here"', 'unknown table or view "there"']
    """

    def __init__(self, errors: Sequence[WatersmeetError]) -> None:
        said = dict.fromkeys(error.message for error in errors)
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        super().__init__(
            f"{format_count(len(errors), 'problem')}: {'; '.join(said)}",
            code="several",
            hint="; ".join(hints) or None,
        )
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)

    def __reduce__(self) -> tuple[object, ...]:
        return SeveralErrors, (self.errors,)


_KINDS = {
    kind.__name__: kind for kind in (WatersmeetError, SpecError, SqlError, PlanError, StateError, EngineError)
}


def plain_of(error: WatersmeetError) -> dict[str, Any]:
    """Convert an error to plain values that JSON supports, for `error_from`."""
    if isinstance(error, SeveralErrors):
        return {"errors": [plain_of(part) for part in error.errors]}
    kind = next(class_.__name__ for class_ in type(error).__mro__ if class_.__name__ in _KINDS)
    return {
        "kind": kind,
        "message": error.message,
        "code": error.code,
        "hint": error.hint,
        "location": asdict(error.location) if error.location else None,
    }


def error_from(plain: Mapping[str, Any]) -> WatersmeetError:
    """Rebuild the error that `plain_of` converted.

    Raises:
        KeyError: the class is not one of this module's error classes.
    """
    if "errors" in plain:
        return SeveralErrors([error_from(part) for part in plain["errors"]])
    kind = _KINDS[plain["kind"]]
    location = Location(**plain["location"]) if plain["location"] else None
    return kind(plain["message"], code=plain["code"], hint=plain["hint"], location=location)


def printable(text: str) -> str:
    """Escape control characters in ``text`` for a terminal or a log.

    Newlines and tabs stay. Other characters that control a terminal (escapes, carriage returns, text
    direction) appear as Python escapes. Texts can quote values of rows.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(ascii(character)[1:-1] if _steers(character) else character for character in text)


def _steers(character: str) -> bool:
    if character in "\n\t":
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


_MAX_FAILURE_TEXT = 1_000
"""Characters of what an exception of a user's function says."""
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
_OURS = os.path.dirname(__file__) + os.sep


def failure_text(error: BaseException) -> str:
    """Return an exception of a user's function in one line: its type, its message, and its place."""
    try:
        said = without_hidden(" ".join(str(error).split()))
    except Exception:  # its class is the user's, too
        said = "(it does not say what)"
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if len(text) > _MAX_FAILURE_TEXT:
        text = text[:_MAX_FAILURE_TEXT] + "…"
    raised = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in raised if not frame.filename.startswith((_OURS, "<frozen"))]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    if not own:
        return text
    return f"{text} ({own[-1].filename}, line {own[-1].lineno}, in {own[-1].name})"


SYSTEM_ERRNOS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO})


def place_error(error: BaseException, during: str | None = None) -> EngineError | None:
    """Return an error for a file or directory that the system does not let this process use.

    Args:
        error: the exception to examine.
        during: a description of the failed action.

    Returns:
        The error; None if the exception has another cause.
    """
    if not isinstance(error, OSError) or error.errno not in SYSTEM_ERRNOS:
        return None
    if not isinstance(error.filename, str | bytes):
        return None
    named = os.fsdecode(error.filename)
    if "://" in named:  # of a store
        return None
    path = os.path.abspath(named)
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)  # in which it is, or cannot be made
    path = printable(path)
    hint = "what is committed is safe: run again when the file system takes it"
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = f"run it as the user who owns it, or give this one the right: ls -ld {shlex.quote(path)}"
    where = f"{during}: " if during else ""
    return EngineError(f"{where}{path} cannot be used: {error.strerror}", code="place-unusable", hint=hint)


@contextmanager
def flat_enough() -> Iterator[None]:
    """Convert a RecursionError in code that descends level by level into a job's text.

    Raises:
        SqlError: the text has hundreds of levels.
    """
    try:
        yield
    except RecursionError:
        raise SqlError(
            "parentheses, types, views, or a chain of AND, OR or + are nested too deeply",
            code="not-supported",
            hint="use at most about 30 nested calls or parentheses; coalesce(a, b, c), CASE WHEN … WHEN"
            " … and x IN (…) take many values at one level",
        ) from None


@contextmanager
def collect_errors(errors: list[WatersmeetError]) -> Iterator[None]:
    """Append errors raised in the context to a list; append those of `SeveralErrors` one by one.

    The context does not raise them.
    """
    try:
        yield
    except WatersmeetError as error:
        errors += error.errors if isinstance(error, SeveralErrors) else [error]


def raise_all(errors: Sequence[WatersmeetError]) -> None:
    """Raise the one error, or all of them together; do nothing when there is none."""
    errors = _without_repeats(errors)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise SeveralErrors(errors)


def _without_repeats(errors: Sequence[WatersmeetError]) -> list[WatersmeetError]:
    """Drop the error for a missing option that another error suggests as the spelling of an unknown one."""
    suggested = [error for error in errors if error.code == "unknown-option" and error.hint]
    return [
        error
        for error in errors
        if error.code != "missing-option"
        or not any(
            error.message == other.message.split(" has no option ")[0] + f' needs the option "{name}"'
            for other in suggested
            for name in re.findall(r'^did you mean "([^"]*)"', other.hint or "")
        )
    ]


_WORD = 3
"""Letters that are enough to know a name by its beginning."""


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun, for messages.

    >>> format_count(1, "record"), format_count(2_000, "record")
    ('1 record', '2,000 records')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def near_names(wanted: str, candidates: Iterable[str]) -> str | None:
    """Suggest names nearest to ``wanted``, else list up to 12 known ones; None without any.

    >>> near_names("pric", ["price", ""]), near_names("x", [""])
    ('did you mean "price"?', None)
    """
    names = [name for name in dict.fromkeys(candidates) if name.strip()]
    if not names:
        return None
    lowered = {name.lower(): name for name in names}
    own = wanted.lower()
    near = [lowered[hit] for hit in difflib.get_close_matches(own, lowered, n=3)]
    if not near:  # separator for sep
        near = [
            lowered[name] for name in lowered if min(len(name), len(own)) >= _WORD and _begins(name, own)
        ][:3]
    if near:
        return "did you mean " + " or ".join(f'"{name}"' for name in near) + "?"
    return "known: " + ", ".join(f'"{name}"' for name in names[:12]) + (", …" if len(names) > 12 else "")
