"""What a case file looks like (semantics.md, section 6): whether JSON has that shape, and where it has not.

Names and values are judged by those who know them; other entries of a case are for people (``about``). What
is expected has no others: a misspelt one would be compared with nothing, and the case could not fail.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from watersmeet.errors import SpecError

_WORDS = {"missing": "is missing", "extra_forbidden": "there is no such entry"}
_MOST = 5
"""Problems that are told of one case."""

Seconds = Annotated[StrictInt | float, Field(allow_inf_nan=False, ge=-1e12, le=1e12)]
Time = StrictInt | StrictStr
Row = dict[str, Any]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Exact(BaseModel):
    """No other entries."""

    model_config = ConfigDict(extra="forbid")


class _Lag(_Shape):
    lag: StrictInt | StrictStr | None = None


class _Source(_Shape):
    columns: dict[str, StrictStr]
    time: dict[str, _Lag] = {}
    partitions: list[StrictStr | StrictInt] = []
    idle_timeout: Seconds | None = None
    max_ahead: Seconds | None = None
    on_idle: Literal["hold", "follow"] = "hold"
    changes: StrictBool = False
    primary_key: list[StrictStr] | None = None
    sequence_by: StrictStr | None = None
    tombstones: Seconds | None = 0


class _Step(_Exact):
    rows: list[tuple[StrictStr, Row] | tuple[StrictStr, Row, StrictInt]] = []
    idle: list[StrictStr] = []
    advance: dict[str, Time] = {}
    clock: Seconds = 0
    end: StrictBool = False
    restart: StrictBool = False
    rescale: Annotated[StrictInt, Field(ge=1, le=10_000)] = 1


class _Late(_Exact):
    stream: StrictStr
    row: Row


class _Expected(_Exact):
    rows: list[Row] = []
    watermarks: dict[str, Any] = {}
    late: list[_Late] = []
    state: dict[str, Any] = {}
    error: StrictStr = ""


class _Refused(_Exact):
    error: StrictStr


class _Case(_Shape):
    case: StrictStr
    query: StrictStr
    streams: dict[str, _Source] = {}
    tables: dict[str, _Source] = {}
    options: dict[str, StrictBool | StrictInt | float | StrictStr | None] = {}
    steps: list[_Step]
    expect: list[_Expected] | _Refused | None = None


def check_shape(parsed: Any, file: str) -> list[dict[str, Any]]:
    """The cases of a file: of one object, or of a list of them.

    Raises:
        SpecError: it is something else; what and where is said.
    """
    cases = parsed if isinstance(parsed, list) else [parsed]
    if not cases:
        raise _refused(f'"{file}" has no cases: its list is empty')
    for number, case in enumerate(cases):
        which = f"case {number + 1}" if isinstance(parsed, list) else "it"
        if not isinstance(case, dict):
            raise _refused(f'"{file}" is not a case file: {which} is {_kind(case)}, not an object')
        try:
            _Case.model_validate(case)
        except ValidationError as wrong:
            if isinstance(name := case.get("case"), str):
                which = f'case "{name}"'
            raise _refused(f'"{file}" is not a case file: {which}: {_said(wrong)}') from None
    return cases


def _said(wrong: ValidationError) -> str:
    """The places and what is wrong there; of the forms that one value may have, the last word."""
    places: dict[str, str] = {}
    for error in wrong.errors(include_url=False, include_input=False):
        place = _place(error["loc"])
        words = error["msg"][:1].lower() + error["msg"][1:]
        places[place] = _WORDS.get(error["type"], words)
    shown = [f"{place}: {said}" for place, said in list(places.items())[:_MOST]]
    return "; ".join([*shown, *(["…"] if len(places) > _MOST else [])])


def _place(parts: tuple[int | str, ...]) -> str:
    """``steps[2].rows[0]``, without the names of the forms that were tried."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.endswith("]") or part.startswith("_") or part in _FORMS:
            continue
        else:
            path += f".{part}" if path else part
    return path


_FORMS = frozenset({"str", "int", "float", "bool", "constrained-int"})


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number or a truth")


def _refused(message: str) -> SpecError:
    return SpecError(
        message,
        code="bad-case",
        hint='a case is {"case": name, "streams": {…}, "query": text, "steps": [{…}], "expect": [{…}]}, and '
        "a file is one of them or a list",
    )
