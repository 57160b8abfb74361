"""Random UNION ALLs of joins as case files: ``random_union_case(seed)`` is one case for one seed.

What is drawn: branches that join two or three streams, branches that read one, and branches that join what is
a UNION ALL of joins itself; which time of a join is the union's (one that its join pads, too); what stands
above: nothing, a filter, joins with streams or with another UNION ALL. Streams and partitions of streams go
idle and come back, so that rows of a branch may be late for the union.

Keywords fix a draw: ``time`` (BIGINT, INT, TIMESTAMP, DATE), ``shape`` (top, filter, join, two, three),
``rule``, ``changes`` (changelog with deletes; no SEMI and ANTI joins), ``tables`` (of changes: tables, not
streams).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.support.random_conditions import interval_conditions, one_sided, residual
from tests.support.random_draft import Draft, draw_times, whole_unit
from tests.support.random_steps import declare_streams, draw_steps

STREAMS = ("a", "b", "c", "d", "e")
KINDS = ("INNER", "INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")


@dataclass
class _Union:
    """The unions of a case while they are drawn: their ``columns``, the streams ``used``, names so far."""

    draft: Draft
    columns: tuple[str, ...]
    used: list[str] = field(default_factory=list)
    names: int = 0
    kinds: tuple[str, ...] = KINDS

    def name(self) -> str:
        """A new alias."""
        self.names += 1
        return f"q{self.names}"


def random_union_case(seed: int, **profile: Any) -> dict[str, Any]:
    """A case in the format of semantics.md, section 6; without ``expect``."""
    rng = random.Random(seed)
    changes = profile.get("changes", False)
    tables = changes and profile.get("tables", rng.random() < 0.5)
    time = profile.get("time") or rng.choices(["BIGINT", "INT", "TIMESTAMP", "DATE"], [45, 10, 30, 15])[0]
    draft = Draft(rng, draw_times(rng, time, len(STREAMS)), len(STREAMS))
    draft.aliases, draft.streams = list(STREAMS), list(STREAMS)
    for declared_columns in draft.columns:
        declared_columns.update(t=draft.times.kinds[0], k="STRING", v="BIGINT")
    columns = ("t", "k", "v", *(["s"] if draft.chance(0.4) else []), *(["tag"] if draft.chance(0.2) else []))
    made = _Union(draft, columns, kinds=KINDS[:5] if changes else KINDS)
    shape = (
        profile.get("shape")
        or rng.choices(
            ["top", "filter", "join", "two", "three"],
            [0 if changes else 20, 0 if changes else 15, 40, 15, 10],
        )[0]
    )
    case: dict[str, Any] = {"case": f"random-union-{seed}", "query": _query(made, shape)}
    declared, lags = declare_streams(draft, changes, tables)
    used = {name: stream for name, stream in declared.items() if name in made.used}
    case["tables" if tables else "streams"] = used
    for stream in used.values():
        if not tables and stream["time"]["t"]["lag"] is not None and draft.chance(0.3):
            stream.setdefault("idle_timeout", rng.choice([2, 5]))
    case["options"] = _options(draft, profile)
    if changes:
        case["options"]["output_mode"] = "changelog"
    steps = draw_steps(draft, used, {n: g for n, g in lags.items() if n in made.used}, changes)
    case["steps"] = steps if tables else [_with_idle(draft, step, made.used) for step in steps]
    return case


def _options(draft: Draft, profile: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"watermark_rule": profile.get("rule") or draft.rng.choice(["tight", "limit"])}
    if draft.chance(0.2):
        options["allowed_lateness"] = draft.rng.choice([1, 3, 10]) * whole_unit(draft)
    if draft.chance(0.7):
        options["plan"] = "cascade"  # then state is compared
    return options


def _with_idle(draft: Draft, step: dict[str, Any], streams: list[str]) -> dict[str, Any]:
    """More idle streams than others have: two at a time, so that a join of both is idle."""
    if "restart" in step or "rescale" in step or step.get("end") or not draft.chance(0.25):
        return step
    idle = draft.rng.sample(streams, min(2, len(streams)))
    return {**step, "idle": list(dict.fromkeys([*step.get("idle", []), *idle]))}


def _query(made: _Union, shape: str) -> str:
    draft, rng = made.draft, made.draft.rng
    if shape == "top":
        return _branches(made, 0)
    u = made.name()
    outputs = [f"{u}.{c} AS {u}_{c}" for c in made.columns]
    text = f"({_branches(made, 0)}) {u}"
    if shape == "filter":
        where = rng.choice([one_sided(draft, u), f"{u}.v IS NULL", f"coalesce({u}.v, 7) > 2"])
        return f"SELECT {', '.join(outputs)} FROM {text}" + (f" WHERE {where}" if draft.chance(0.8) else "")
    joined = [u]
    for _ in range(2 if shape == "three" else 1):
        other = made.name()
        right = f"({_branches(made, 0)}) {other}" if shape == "two" else f"{_stream(made)} {other}"
        kind = rng.choice(made.kinds)
        text += f" {kind} JOIN {right} ON {_condition(draft, rng.choice(joined), other)}"
        if "SEMI" not in kind and "ANTI" not in kind:
            joined.append(other)
            columns = made.columns if shape == "two" else ("t", "k", "v")
            outputs += [f"{other}.{c} AS {other}_{c}" for c in columns]
    where = f" WHERE {one_sided(draft, rng.choice(joined))}" if draft.chance(0.25) else ""
    return f"SELECT {', '.join(outputs)} FROM {text}{where}"


def _stream(made: _Union) -> str:
    name = made.draft.rng.choice(STREAMS)
    if name not in made.used:
        made.used.append(name)
    return name


def _condition(draft: Draft, left: str, right: str) -> str:
    kind = draft.times.kinds[0]
    x, y = (f"{left}.t", kind), (f"{right}.t", kind)
    found = interval_conditions(draft, *((x, y) if draft.chance(0.5) else (y, x)))
    if draft.chance(0.75):
        found.append(f"{left}.k = {right}.k" if draft.chance(0.8) else f"{right}.k <=> {left}.k")
    if draft.chance(0.15):
        found.append(residual(draft, left, right))
    if draft.chance(0.1):
        found.append(one_sided(draft, draft.rng.choice([left, right])))
    draft.rng.shuffle(found)
    return " AND ".join(found)


def _branches(made: _Union, depth: int) -> str:
    """A UNION ALL of two or three branches, at least one of which joins."""
    draft = made.draft
    count = draft.rng.choice([2, 2, 3])
    joins = {draft.rng.randrange(count)}
    found = [
        _draw_join_branch(made, depth) if n in joins or draft.chance(0.45) else _plain(made, first=n == 0)
        for n in range(count)
    ]
    return " UNION ALL ".join(found)


def _plain(made: _Union, *, first: bool) -> str:
    draft, stream = made.draft, _stream(made)
    value = {"t": "t", "k": "k", "v": draft.rng.choice(["v", "v", "v + 1"]), "s": "t", "tag": "'plain'"}
    where = draft.rng.choice([" WHERE v > 1", " WHERE k = 'a'", " WHERE v IS NOT NULL"])
    return f"SELECT {_format_select_list(made, value)} FROM {stream}" + (where if draft.chance(0.25) else "")


def _draw_join_branch(made: _Union, depth: int) -> str:
    draft, rng = made.draft, made.draft.rng
    first, second = made.name(), made.name()
    left = (
        f"({_branches(made, depth + 1)}) {first}"
        if depth == 0 and draft.chance(0.15)
        else f"{_stream(made)} {first}"
    )
    kind = rng.choice(made.kinds)
    text = f"{left} {kind} JOIN {_stream(made)} {second} ON {_condition(draft, first, second)}"
    seen = [first] if "SEMI" in kind or "ANTI" in kind else [first, second]
    if len(seen) == 2 and draft.chance(0.15):
        third, kind = made.name(), rng.choice(KINDS[:5])
        text += f" {kind} JOIN {_stream(made)} {third} ON {_condition(draft, first, third)}"
        seen.append(third)
    a, b = rng.choice(seen), rng.choice(seen)
    value = {
        "t": f"{a}.t",
        "k": rng.choice([f"{a}.k", f"{b}.k", f"coalesce({a}.k, {b}.k)"]),
        "v": rng.choice([f"{a}.v", f"{b}.v", f"{a}.v + {b}.v", f"coalesce({b}.v, {a}.v, 0)"]),
        "s": f"{b}.t",
        "tag": "'joined'",
    }
    where = rng.choice([one_sided(draft, a), f"{b}.v IS NULL", f"coalesce({a}.v, {b}.v, 0) < 3"])
    return f"SELECT {_format_select_list(made, value)} FROM {text}" + (
        f" WHERE {where}" if draft.chance(0.25) else ""
    )


def _format_select_list(made: _Union, value: dict[str, str]) -> str:
    return ", ".join(f"{value[c]} AS {c}" for c in made.columns)
