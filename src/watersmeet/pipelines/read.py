"""TOML → a description: its shape, its rules; all that is wrong is told at once, with file, line and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from watersmeet.errors import flat_enough, raise_all
from watersmeet.pipelines.model import Description, Part, Source, StateStore, Target, Transform
from watersmeet.pipelines.places import Places, loads
from watersmeet.pipelines.problems import Key, Problem, as_written, errors_of, shape_problems
from watersmeet.pipelines.rules import Parts, problems
from watersmeet.pipelines.values import flat

Whole = TypeVar("Whole", bound=Description)
One = TypeVar("One", bound=Part)


def read(text: str, source_name: str | None, kind: type[Whole]) -> tuple[Whole, Places]:
    """The description, and where its keys stand.

    Raises:
        SpecError, SeveralErrors: what is wrong with it.
    """
    given = dict(loads(text, source_name))
    with flat_enough():
        places = Places(text, source_name)
    try:
        whole = kind.model_validate(given)
        wrong = problems(Parts.of(whole))
    except ValidationError as error:
        shapes = shape_problems(error, kind)
        parts = _parts(given, shapes)
        wrong = [*as_written(shapes, len(parts.transform)), *problems(parts)]
        raise_all(errors_of(dict.fromkeys(wrong), places.of))
        raise
    raise_all(errors_of(wrong, places.of))
    return whole, places


def _parts(given: Mapping[str, Any], shapes: Sequence[Problem]) -> Parts:
    """As far as parts have the right shape; keys that are not known are left out."""
    unknown = {problem.key for problem in shapes if problem.code == "unknown-key"}
    meant = _without(given, (), unknown)
    transform = meant.get("transform", ())
    steps = transform if isinstance(transform, list) else [transform] if transform else []
    store, settings = meant.get("state_store"), meant.get("settings", {})
    checkpoint = meant.get("checkpoint")
    sources = meant.get("sources", ())
    missing = [None]  # of which enough was said
    return Parts(
        [_part(Source, source) for source in sources] if isinstance(sources, list) else missing,
        [_part(Transform, step) for step in steps] or missing,
        _part(Target, meant.get("target")),
        None if store is None else _part(StateStore, store),
        checkpoint if isinstance(checkpoint, str) else None,
        flat(settings) if isinstance(settings, Mapping) else {},
    )


def _part(kind: type[One], given: Any) -> One | None:
    try:
        return kind.model_validate(given)
    except ValidationError:
        return None


def _without(given: Any, key: Key, unknown: set[Key]) -> Any:
    """The same without these keys; the one transform is numbered as it is in a list."""
    if key == ("transform",) and isinstance(given, Mapping):
        return _without(given, ("transform", 0), unknown)
    if isinstance(given, Mapping):
        return {
            name: _without(value, (*key, name), unknown)
            for name, value in given.items()
            if (*key, name) not in unknown
        }
    if isinstance(given, list):
        return [_without(value, (*key, number), unknown) for number, value in enumerate(given)]
    return given
