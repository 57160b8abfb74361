"""Case files: shape, loading, and judging an engine's output."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from watersmeet.errors import SpecError
from watersmeet.regular_files import read_text

# What a case file looks like (semantics.md, section 6): whether JSON has that shape, and where it has
# not.
#
# Names and values are judged by those who know them; other entries of a case are for people (``about``).
# What is expected has no others: a misspelt one would be compared with nothing, and the case could not
# fail.

_WORDS = {"missing": "is missing", "extra_forbidden": "there is no such entry"}
_MAX_PROBLEMS = 5
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
    """Check the contents of a case file, one object or a list of them, and return the cases.

    Raises:
        SpecError: the file has another shape; the message says what is wrong, and where.
    """
    cases = parsed if isinstance(parsed, list) else [parsed]
    if not cases:
        raise _case_error(f'"{file}" has no cases: its list is empty')
    for number, case in enumerate(cases):
        which = f"case {number + 1}" if isinstance(parsed, list) else "it"
        if not isinstance(case, dict):
            raise _case_error(f'"{file}" is not a case file: {which} is {_kind(case)}, not an object')
        try:
            _Case.model_validate(case)
        except ValidationError as wrong:
            if isinstance(name := case.get("case"), str):
                which = f'case "{name}"'
            raise _case_error(f'"{file}" is not a case file: {which}: {_format_problems(wrong)}') from None
    return cases


def _format_problems(wrong: ValidationError) -> str:
    """Format the places, and the problem at each.

    Of the problems of alternative forms of a value, only the last one appears.
    """
    places: dict[str, str] = {}
    for error in wrong.errors(include_url=False, include_input=False):
        place = _place(error["loc"])
        words = error["msg"][:1].lower() + error["msg"][1:]
        places[place] = _WORDS.get(error["type"], words)
    shown = [f"{place}: {said}" for place, said in list(places.items())[:_MAX_PROBLEMS]]
    return "; ".join([*shown, *(["…"] if len(places) > _MAX_PROBLEMS else [])])


def _place(parts: tuple[int | str, ...]) -> str:
    """Format a place, such as ``steps[2].rows[0]``, without the names of alternative forms."""
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


def _case_error(message: str) -> SpecError:
    return SpecError(
        message,
        code="bad-case",
        hint='a case is {"case": name, "streams": {…}, "query": text, "steps": [{…}], "expect": [{…}]}, and '
        "a file is one of them or a list",
    )


# Case files (semantics.md, section 6): loading them, and judging an engine's output by their ``expect``.
#
# Rows are bags; in changelog mode ``_diff`` is summed per row first. Keys absent from ``expect`` are not
# compared. Problems are texts for people; no problems, no difference. Nothing here runs a case.

Case = dict[str, Any]

_WHAT = "replay takes a case, or a list of them, as JSON; a job in SQL is run, or previewed"

_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")
_NOT_YET = re.compile(r"\w+\[not-yet\]: ")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load_cases(path: str | Path) -> list[Case]:
    """Load the cases of a file: one object, or a list of them.

    Raises:
        SpecError: the file cannot be read, or is not a case file.

    >>> import tempfile
    >>> case = {
    ...     "case": "a pair",
    ...     "streams": {"a": {"columns": {"t": "BIGINT"}, "time": {"t": {"lag": 5}}}},
    ...     "query": "SELECT x.t, y.t AS u FROM a x JOIN a y ON y.t = x.t + 1",
    ...     "steps": [{"rows": [["a", {"t": 1}], ["a", {"t": 2}]]}],
    ...     "expect": [{"rows": [{"t": 1, "u": 2}]}]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pair.json")
    ...     _ = file.write_text(json.dumps(case))
    ...     [loaded] = load_cases(file)
    >>> loaded == case
    True
    """
    try:
        read = json.loads(read_text(path, "utf-8-sig"))
    except OSError as error:
        raise SpecError(f'cannot read "{path}": {error.strerror}', code="file-not-readable") from None
    except UnicodeDecodeError:
        raise SpecError(
            f'cannot read "{path}": it is not UTF-8 text', code="file-not-readable", hint=_WHAT
        ) from None
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SpecError(f'"{path}" is not JSON: {said}', code="case-file-broken", hint=_WHAT) from None
    return check_shape(read, str(path))


def canonical(value: Any) -> Any:
    """Normalize a JSON value for comparison: one NaN, one zero, one spelling of a timestamp."""
    kind = type(value)
    if kind is int:
        return ("number", value)
    if kind is str:
        return _canonical_text(value)
    if value is None or kind is bool:
        return ("bool", value)
    if isinstance(value, int | float):
        if value != value:
            return ("number", "NaN")
        return ("number", int(value) if isinstance(value, float) and value.is_integer() else value)
    return ("text", json.dumps(value, sort_keys=True))


@lru_cache(maxsize=100_000)
def _canonical_text(value: str) -> tuple[str, Any]:
    if not _ISO.fullmatch(value):
        return ("text", value)
    when = datetime.fromisoformat(value)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return ("timestamp", (when - _EPOCH) // timedelta(microseconds=1))


@lru_cache(maxsize=10_000)
def _sorted_names(names: tuple[str, ...]) -> list[str]:
    return sorted(name for name in names if name != "_diff")


def row_multiset(rows: list[dict[str, Any]], changelog: bool) -> Counter[tuple[Any, ...]]:
    """Count rows as a multiset; with ``changelog``, sum ``_diff`` per row and omit zeros."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        key = tuple([(name, canonical(row[name])) for name in _sorted_names(tuple(row))])
        sums[key] += row.get("_diff", 1) if changelog else 1
    return Counter({key: count for key, count in sums.items() if count})


def _late_bag(case: Case, late: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Count late rows as a multiset, with values in their declared types.

    Thus 1 and "1" are the same STRING.
    """
    declared = {**case.get("streams", {}), **case.get("tables", {})}
    sums: Counter[tuple[Any, ...]] = Counter()
    for item in late:
        types = declared.get(item["stream"], {}).get("columns", {})
        row = {
            name: str(value)
            if value is not None and types.get(name, "").upper() in ("STRING", "VARCHAR")
            else value
            for name, value in item["row"].items()
        }
        sums[("stream", item["stream"]), *sorted((n, canonical(v)) for n, v in row.items())] += 1
    return sums


def _format_key(key: tuple[Any, ...]) -> str:
    """Format a multiset's key as text."""
    parts = []
    for name, value in key:
        if isinstance(value, tuple):
            kind, value = value
            if kind == "timestamp":
                value = (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat()
        parts.append(f'"{name}": {json.dumps(value)}')
    return "{" + ", ".join(parts) + "}"


def _bag_problems(what: str, got: Counter[Any], want: Counter[Any], changelog: bool = False) -> list[str]:
    problems = []
    for key in {**want, **got}:
        have, need = got[key], want[key]
        if have == need:
            continue
        if changelog:
            problems.append(f"{what}: {_format_key(key)}: diff {have:+d}, expected {need:+d}")
        else:
            word, count = ("missing", need - have) if have < need else ("too many", have - need)
            problems.append(f"{what}: {word}{'' if count == 1 else f' {count} times'}: {_format_key(key)}")
    return problems


def _map_problems(what: str, got: dict[str, Any], want: dict[str, Any]) -> list[str]:
    problems = []
    for key in {**want, **got}:
        if key not in got:
            problems.append(f"{what}: {key} missing, expected {json.dumps(want[key])}")
        elif key not in want:
            problems.append(f"{what}: {key} is {json.dumps(got[key])}, expected none")
        elif canonical(got[key]) != canonical(want[key]):
            problems.append(f"{what}: {key} is {json.dumps(got[key])}, expected {json.dumps(want[key])}")
    return problems


def _compares_state(case: Case, inputs: int) -> bool:
    """Return True if ``state`` is compared: with two inputs, or with plan "cascade".

    With more inputs it is also compared for joins written with commas, unless the case requests plan
    "delta".
    """
    plan = case.get("options", {}).get("plan")
    if plan == "cascade" or inputs <= 2:
        return True
    query: str = case["query"].upper()
    return plan != "delta" and query.count(" JOIN ") <= 1


def compare_step(case: Case, index: int, got: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """Compare one step's output line with what is expected of it, and return the differences."""
    where = f"{case['case']}, step {index}"
    if "error" in want:
        if "error" not in got:
            return [f"{where}: expected to fail with {want['error']!r}, but it did not"]
        if want["error"] not in str(got["error"]):
            return [f"{where}: failed with {got['error']!r}, expected {want['error']!r} in it"]
        return []
    if "error" in got:
        return [f"{where}: failed: {got['error']}"]
    changelog = case.get("options", {}).get("output_mode") == "changelog"
    problems = []
    if "rows" in want:
        problems += _bag_problems(
            "rows",
            row_multiset(got.get("rows", []), changelog),
            row_multiset(want["rows"], changelog),
            changelog,
        )
    if "watermarks" in want:
        problems += _map_problems("watermarks", got.get("watermarks", {}), want["watermarks"])
    if "late" in want:
        problems += _bag_problems("late", _late_bag(case, got.get("late", [])), _late_bag(case, want["late"]))
    if "state" in want and _compares_state(case, len(want["state"])):
        problems += _map_problems("state", got.get("state", {}), want["state"])
    return [f"{where}: {problem}" for problem in problems]


def waits_for(case: Case, outputs: list[dict[str, Any]]) -> str | None:
    """Return the unimplemented features for which a plan is rejected; None: check the case.

    A case waits only if it has steps and its plan is rejected for no other reason. A case that expects
    a rejection never waits.
    """
    if not isinstance(case.get("expect"), list) or len(outputs) != 1 or "step" in outputs[0]:
        return None
    problems = [
        line for line in str(outputs[0].get("error", "")).splitlines() if not line.startswith("Hint: ")
    ]
    if not problems or not all(_NOT_YET.match(problem) for problem in problems):
        return None
    return "; ".join(_NOT_YET.sub("", problem) for problem in problems)


def is_compared(case: Case) -> bool:
    """Return True if the case expects something of every step.

    The steps are those until the end, or until the expected failure. At least one step must be
    compared; otherwise a case may differ unnoticed.
    """
    expect = case.get("expect")
    if not isinstance(expect, list):
        return expect is not None
    failing = any("error" in want for want in expect)
    return (failing or len(expect) >= len(case["steps"])) and (any(expect) or not case["steps"])


def check_case(case: Case, outputs: list[dict[str, Any]]) -> list[str]:
    """Compare a case's output lines with its ``expect``, and return the differences."""
    expect = case.get("expect")
    name = case["case"]
    if isinstance(expect, dict):
        if len(outputs) != 1 or "error" not in outputs[0] or "step" in outputs[0]:
            return [f"{name}: the plan should be refused with {expect['error']!r}, but it was not"]
        if expect["error"] not in str(outputs[0]["error"]):
            return [f"{name}: refused with {outputs[0]['error']!r}, expected {expect['error']!r} in it"]
        return []
    if len(outputs) == 1 and "error" in outputs[0] and "step" not in outputs[0]:
        return [f"{name}: the plan was refused: {outputs[0]['error']}"]
    problems = []
    expect = expect or []
    for index, want in enumerate(expect):
        if index >= len(outputs):
            problems.append(f"{name}: no output for step {index}")
            break
        problems += compare_step(case, index, outputs[index], want)
        if "error" in want:
            return problems
    for line in outputs[len(expect) :]:
        if "error" in line:
            problems.append(f"{name}, step {line['step']}: failed: {line['error']}")
    return problems
