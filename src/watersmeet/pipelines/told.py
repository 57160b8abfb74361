"""What was found to be wrong while a job is made: gathered, told by key, raised together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watersmeet.errors import Location, SeveralErrors, WatersmeetError, raise_all
from watersmeet.pipelines.problems import Key, Problem, errors_of, in_order, written

Place = Callable[[Key], Location | None]

OF_TIMES = ("unknown-column", "wrong-type")
"""What is wrong with a column that is to be an event time."""


class Told:
    """``place``: where a key stands, if there is a file."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.errors: list[WatersmeetError] = []

    def problem(self, key: Key, message: str, code: str, hint: str | None) -> None:
        self.problems([Problem(key, message, code, hint)])

    def problems(self, problems: Sequence[Problem]) -> None:
        self.errors += errors_of(problems, self._place)

    def at(self, key: Key) -> _Telling:
        """What is wrong within is told of a key."""
        return self.by(lambda error: key)

    def by(self, key_of: Callable[[WatersmeetError], Key]) -> _Telling:
        """What is wrong within is told of the key that each error is of."""
        return _Telling(self, key_of)

    def error(self, error: WatersmeetError, key_of: Callable[[WatersmeetError], Key]) -> None:
        """One, or several, each of its key."""
        for one in error.errors if isinstance(error, SeveralErrors) else [error]:
            key = key_of(one)
            is_text = key[-1:] == ("query",) or key[-2:-1] == ("aggregates",)
            where = f" ({one.location})" if is_text and one.location is not None else ""
            message = f"{written(key)}: {one.message}{where}"
            self.errors.append(type(one)(message, code=one.code, hint=one.hint, location=self._place(key)))

    def raise_now(self) -> None:
        """Raises: WatersmeetError, SeveralErrors, if anything is wrong, in the order of the file."""
        raise_all(in_order(self.errors))


class _Telling:
    """A block in which what is wrong ends the block, and is told."""

    def __init__(self, told: Told, key_of: Callable[[WatersmeetError], Key]) -> None:
        self._told, self._key_of = told, key_of

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, WatersmeetError):
            return False
        self._told.error(error, self._key_of)
        return True
