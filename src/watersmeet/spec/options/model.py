"""Options of one system as a model: its fields are the options, with their types, defaults and examples.

A model knows the names (`SystemOptions.names`), the values (`SystemOptions.of`) and all that is wrong with
options as they are written (`SystemOptions.problems`). What options have to do with each other, with columns
and with the target is judged beside the model. Values stay as they are: some are a `Secret`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from watersmeet.errors import SpecError, near_names, raise_all
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.secrets import public

BEGINS_AFTER = "begins_after_tick"
_WAIT = re.compile(r"([0-9]{1,9})\s*(s|seconds?|min|minutes?|h|hours?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class SystemOptions(BaseModel):
    """The options of one system, by names in any case."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    prefix: ClassVar[str] = ""
    """Options that begin so are the system's own, by its names; none if empty."""
    credentials: ClassVar[str | None] = None
    """Where secrets are set, which are no options."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the values of options. Raises: SpecError, SeveralErrors, with all that is wrong."""
        try:
            return cls._read(options)
        except ValidationError:
            raise_all([*cls.problems("the sink", options)])
            raise

    @classmethod
    def _read(cls, options: Mapping[str, str]) -> Self:
        return cls.model_validate({name.lower(): value for name, value in cls._own(options).items()})

    @classmethod
    def _own(cls, options: Mapping[str, str]) -> Mapping[str, str]:
        prefix = cls.prefix
        return {n: v for n, v in options.items() if not (prefix and n.startswith(prefix) and n != prefix)}

    @classmethod
    def problems(
        cls, what: str, options: Mapping[str, str], *, where: str = "", others: Iterable[str] = ()
    ) -> Iterator[SpecError]:
        """Yield problems of options.

        Args:
            what: The owner of the options, as messages name it.
            where: Text that follows the name of an unknown option.
            others: Names to suggest, in addition to those of the model.
        """
        given = {name.lower(): (name, value) for name, value in cls._own(options).items()}
        try:
            cls._read(options)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                name = str(detail["loc"][0])
                yield cls._problem(what, *given.get(name, (name, "")), detail, where, others)

    @classmethod
    def _problem(
        cls, what: str, name: str, value: str, detail: Any, where: str, others: Iterable[str]
    ) -> SpecError:
        if detail["type"] == "extra_forbidden":
            is_secret = public(name, "x") != "x" or "key" in name.lower()
            hint = cls.credentials if is_secret else None
            hint = hint or near_names(name, [*cls.names(), *others])
            return SpecError(f'{what} has no option "{name}"{where}', code="unknown-option", hint=hint)
        if detail["type"] == "missing":
            field = next(f for n, f in cls.model_fields.items() if name.lower() in (n, f.alias))
            hint = f"'{name.lower()}' = '{(field.examples or [''])[0]}'"
            message = f'{what} needs the option "{name.lower()}"'
            return SpecError(message, code="missing-option", hint=hint)
        context = detail.get("ctx", {})
        wanted = context.get("expected") or context.get("error") or detail["msg"]
        return wrong_value(what, name, value, str(wanted))


def _require_nonempty(value: Any) -> Any:
    if not str(value).strip():
        raise PydanticCustomError("missing", "it is empty")
    return value


def _any_case(value: str) -> str:
    return value.strip().lower()


def _seconds(value: str) -> int:
    match = _WAIT.fullmatch(value.strip().lower())
    if match is None:
        raise ValueError("a time such as '10 min'")
    return int(match[1]) * _SECONDS[match[2][0]]


def _tick(value: str) -> int:
    if not re.fullmatch("[0-9]{1,12}", value):
        raise ValueError(f"use the number of the last tick whose rows are elsewhere: '{BEGINS_AFTER}' = '5'")
    return int(value)


def _endpoint(value: str) -> str:
    parts = urlsplit(value.strip())
    if value.strip() and (parts.scheme not in ("http", "https") or "@" in parts.netloc):
        raise ValueError("use the URL of an S3 server, such as 'http://localhost:9000'")
    return value.strip()


STATED = BeforeValidator(_require_nonempty)
"""An option that must be there, and not be blank."""
ANY_CASE = BeforeValidator(_any_case)
"""Of a `Literal`: in any case, with blanks around it."""
Text = Annotated[str, BeforeValidator(str.strip)]
Seconds = Annotated[int, BeforeValidator(_seconds)]
TickNumber = Annotated[int, BeforeValidator(_tick)]
Endpoint = Annotated[str, BeforeValidator(_endpoint)]
