"""Collect what is wrong with a pipeline, by key, and raise it together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from watersmeet.errors import Location, SeveralErrors, SpecError, WatersmeetError, near_names, raise_all
from watersmeet.pipelines.durations import written as written_length

# What is wrong with a pipeline, by key: pydantic's errors too, with the place in a file if there is one.

Key = tuple[str | int, ...]
"""The way to a value: ``("sources", 0, "name")``."""


@dataclass(frozen=True)
class Problem:
    """``message`` goes on from the key: ``transform.join.left_keys`` "is empty"."""

    key: Key
    message: str
    code: str
    hint: str | None = None


def written(key: Key) -> str:
    """Format a key for people.

    >>> written(("sources", 0, "connection", "path"))
    'sources[0].connection.path'
    """
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the pipeline"


def as_written(problems: Iterable[Problem], transforms: int) -> list[Problem]:
    """Deduplicate the problems; remove the number of a single transform."""
    unique = dict.fromkeys(problems)
    if transforms > 1:
        return list(unique)
    return [replace(p, key=("transform", *p.key[2:])) if p.key[:2] == ("transform", 0) else p for p in unique]


def _between(message: str) -> str:
    """Return what stands between a key and a message: a message that begins with a verb makes a sentence."""
    return " " if message.startswith(_VERBS) else ": "


def errors_of(
    problems: Iterable[Problem], place: Callable[[Key], Location | None] = lambda key: None
) -> list[WatersmeetError]:
    """Convert problems to errors, in the order of the file."""
    return in_order(
        SpecError(
            f"{written(p.key)}{_between(p.message)}{p.message}",
            code=p.code,
            hint=p.hint,
            location=place(p.key),
        )
        for p in problems
    )


def in_order(errors: Iterable[WatersmeetError]) -> list[WatersmeetError]:
    """Sort errors in the order of the file, those without a location last.

    Without a file the order stays unchanged.
    """
    return sorted(
        errors, key=lambda e: (e.location.line, e.location.column) if e.location else (sys.maxsize, 0)
    )


_VERBS = (
    "is ", "has ", "needs ", "cannot ", "names ", "does ", "follows ", "must ", "accepts ", "uses ", "can ",
)  # fmt: skip
_WORDS = {
    "string_type": "but a text is expected",
    "int_type": "but a whole number is expected",
    "float_type": "but a number is expected",
    "bool_type": "but true or false is expected",
    "dict_type": "but a table of names and values is expected",
    "model_type": "but a table is expected",
    "tuple_type": "but a list is expected",
    "string_too_short": "is empty",
}
_HINTS = {
    "string_type": 'put the value in quotes: "…"',
    "dict_type": '{ name = "value" }',
    "tuple_type": 'write a list: ["a", "b"]',
}


def shape_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the problems of values that do not have the shape of their part."""
    problems = [_shape(detail, model) for detail in error.errors(include_url=False)]
    suggested = {(p.key[:-1], (p.hint or "").split('"')[1]) for p in problems if _suggests(p)}
    return [p for p in problems if p.code != "missing-key" or (p.key[:-1], p.key[-1]) not in suggested]


def _suggests(problem: Problem) -> bool:
    """Return True if a key is unknown and resembles a known one."""
    return problem.code == "unknown-key" and (problem.hint or "").startswith("did you mean")


def _shape(detail: Any, model: type[BaseModel]) -> Problem:
    kind, key, given = detail["type"], tuple(detail["loc"]), detail["input"]
    if key and key[-1] == "[key]":  # of a dict's own names
        key = key[:-1]
    if kind == "missing":
        return Problem(key, "is missing", "missing-key")
    if kind == "extra_forbidden":
        return Problem(
            key,
            "is not a known key",
            "unknown-key",
            near_names(str(key[-1]), known_keys(model, key[:-1])),
        )
    if kind == "literal_error":
        expected = detail["ctx"]["expected"].replace("'", '"')
        names = [name.strip(' "') for part in expected.split(",") for name in part.split(" or ")]
        hint = near_names(given, names) if isinstance(given, str) else None
        return Problem(key, f"is {_format_given_value(given)}; it can be {expected}", "bad-value", hint)
    if kind == "string_pattern_mismatch":
        hint = "letters, digits, _ . and -, the first no dot, at most 100 of them"
        return Problem(key, f"is {_format_given_value(given)}", "bad-value", hint)
    if kind in ("greater_than_equal", "less_than_equal", "greater_than"):
        limit = next(iter(detail["ctx"].values()))
        than = {"greater_than_equal": "at least", "less_than_equal": "at most", "greater_than": "above"}[kind]
        return Problem(key, f"is {given}, but has to be {than} {limit}", "bad-value")
    if kind == "length":
        return Problem(
            key,
            f"is {_format_given_value(given)}, {detail['ctx']['reason']}",
            "bad-value",
            detail["ctx"]["hint"],
        )
    words = _WORDS.get(kind)
    reason = f": {detail['msg']}" if words is None else f", {words}"
    if kind == "tuple_type" and key == ("sources",) and isinstance(given, Mapping):
        return Problem(key, "is one table, but a list is expected", "bad-value", "write [[sources]]")
    if words == "is empty":
        return Problem(key, words, "bad-value")
    return Problem(key, f"is {_format_given_value(given)}{reason}", "bad-value", _HINTS.get(kind))


def _format_given_value(given: Any) -> str:
    shown = written_length(given) if isinstance(given, timedelta) else given
    text = f'"{shown}"' if isinstance(shown, str) else repr(shown)
    return text if len(text) <= 80 else f"{text[:80]}…"


def known_keys(model: type[BaseModel], key: Sequence[str | int]) -> list[str]:
    """Return the keys that the part at the end of a path from ``model`` accepts."""
    here: list[type[BaseModel]] = [model]
    for part in key:
        if isinstance(part, int):
            continue
        fields = [m.model_fields[part] for m in here if part in m.model_fields]
        if fields:
            here = [m for field in fields for m in _models(field.annotation)]
    return [name for m in here for name in m.model_fields]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the parts that a type refers to."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


# What was found to be wrong while a job is made: gathered, told by key, raised together.

Place = Callable[[Key], Location | None]

OF_TIMES = ("unknown-column", "wrong-type")
"""What is wrong with a column that is to be an event time."""


class ProblemCollector:
    """``place``: where a key stands, if there is a file."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.errors: list[WatersmeetError] = []

    def problem(self, key: Key, message: str, code: str, hint: str | None) -> None:
        self.problems([Problem(key, message, code, hint)])

    def problems(self, problems: Sequence[Problem]) -> None:
        self.errors += errors_of(problems, self._place)

    def at(self, key: Key) -> _Telling:
        """Return a block whose errors are reported under a key."""
        return self.by(lambda error: key)

    def by(self, key_of: Callable[[WatersmeetError], Key]) -> _Telling:
        """Return a block whose errors are each reported under the key that `key_of` returns."""
        return _Telling(self, key_of)

    def error(self, error: WatersmeetError, key_of: Callable[[WatersmeetError], Key]) -> None:
        """Report an error, or each of several errors, under its key."""
        for one in error.errors if isinstance(error, SeveralErrors) else [error]:
            key = key_of(one)
            is_text = key[-1:] == ("query",) or key[-2:-1] == ("aggregates",)
            where = f" ({one.location})" if is_text and one.location is not None else ""
            message = f"{written(key)}: {one.message}{where}"
            self.errors.append(type(one)(message, code=one.code, hint=one.hint, location=self._place(key)))

    def raise_now(self) -> None:
        """Raise the collected problems, if any, in the order of the file.

        Raises:
            WatersmeetError: There is one problem.
            SeveralErrors: There are several problems.
        """
        raise_all(in_order(self.errors))


class _Telling:
    """Block that ends at an error and reports it."""

    def __init__(self, told: ProblemCollector, key_of: Callable[[WatersmeetError], Key]) -> None:
        self._told, self._key_of = told, key_of

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, WatersmeetError):
            return False
        self._told.error(error, self._key_of)
        return True
