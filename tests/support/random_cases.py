"""Random joins of two inputs as case files: ``random_case(seed)`` is the same case for the same seed.

What is drawn is what semantics.md leaves open to a query and its rows: kinds of join, types, keys, every form
of a bound, one-sided and residual conditions, disorder, late rows, NULLs, tick cuts, restarts, watermark
settings. What semantics.md leaves unsaid (a DATE watermark between two midnights, say) is not drawn.

Keywords of ``random_case`` fix a draw: ``kind``, ``time`` (BIGINT, INT, TIMESTAMP, DATE, MIXED, EXTREME),
``shape`` (plain, comma, self, using, filtered, union), ``rule``, ``changes`` (changelog with deletes),
``tables``, ``bands`` (one to three, of any type).
"""

from __future__ import annotations

import random
from typing import Any

from tests.support.random_bands import draw_bands
from tests.support.random_conditions import band, interval_conditions, one_sided, residual, share_by_branches
from tests.support.random_draft import VALUES, Draft, draw_times, whole_unit
from tests.support.random_steps import declare_streams, draw_steps

LEFT_ONLY = ("LEFT SEMI", "LEFT ANTI")


def random_case(seed: int, **profile: Any) -> dict[str, Any]:
    """A case of two inputs in the format of semantics.md, section 6; without ``expect``."""
    rng = random.Random(seed)
    changes = profile.get("changes", False)
    tables = changes and profile.get("tables", rng.random() < 0.3)
    draft = Draft(
        rng,
        draw_times(rng, profile.get("time")),
        2,
        profile.get("kind") or rng.choice(["INNER", "LEFT", "RIGHT", "FULL"]),
        profile.get("shape") or rng.choices(
            ["plain", "comma", "self", "using", "filtered", "union"], [70, 8, 8, 6, 4, 4]
        )[0],
    )  # fmt: skip
    if tables and draft.times.extreme:  # only event times saturate, and a table has none
        draft.times = draw_times(rng, "BIGINT")
    if tables and draft.shape not in ("comma", "self"):
        draft.shape = "plain"
    if draft.shape == "comma":
        draft.kind = "INNER"
    if draft.shape == "union":
        draft.branches["r2"] = 1
    _draw_columns(draft)
    _draw_keys(draft)
    if not tables or draft.chance(0.5):
        _draw_bounds(draft)
    _draw_other_conditions(draft)
    if profile.get("bands"):
        draw_bands(draft)
    rng.shuffle(draft.conditions)
    options: dict[str, Any] = {}
    mixed = draft.times.has_mixed_kinds
    rule = profile.get("rule") or rng.choice(["tight", "limit", None])
    if rule and not (mixed and draft.times.temporal):
        options["watermark_rule"] = rule
    if draft.chance(0.15) and not draft.times.extreme:
        options["allowed_lateness"] = rng.choice([1, 3, 10]) * whole_unit(draft)
    if changes or draft.chance(0.08):
        options["output_mode"] = "changelog"
    case: dict[str, Any] = {"case": f"random-{seed}"}
    declared, lags = declare_streams(draft, changes, tables)
    case["tables" if tables else "streams"] = declared
    case["query"] = _query(draft)
    if options:
        case["options"] = options
    case["steps"] = draw_steps(draft, declared, lags, changes)
    return case


def _draw_columns(draft: Draft) -> None:
    rng = draft.rng
    for side in (0, 1):
        draft.columns[side].update(t=draft.times.kinds[side], k="STRING", v="BIGINT")
    if draft.chance(0.12) and not draft.times.extreme:
        for side in rng.choice([(0,), (1,), (0, 1)]):
            draft.columns[side]["u"] = draft.times.kinds[side]
            draft.event_times[side].append("u")
    if draft.shape == "self":
        draft.times.kinds[1] = draft.times.kinds[0]
        draft.columns[1].clear()
        draft.columns[1].update(draft.columns[0])
        draft.event_times[1][:] = draft.event_times[0]
        draft.aliases, draft.streams = ["a", "b"], ["s", "s"]
    elif draft.chance(0.2):
        draft.aliases = ["x", "y"]


def _draw_keys(draft: Draft) -> None:
    rng, (a, b) = draft.rng, draft.aliases
    if draft.shape == "using":
        draft.using = ["k"] if draft.kind == "INNER" and draft.chance(0.5) else ["t", "k"]
        return
    for n in range(rng.choices([0, 1, 2, 3], [30, 45, 18, 7])[0]):
        kinds = rng.choice([*[(t, t) for t in VALUES], ("INT", "BIGINT"), ("STRING", "STRING")])
        equals = rng.choice(["=", "=", "=", "<=>"])
        if draft.shape == "self" and kinds[0] != kinds[1]:
            kinds = (kinds[0], kinds[0])
        name = f"k{n}"
        for side in (0, 1):
            draft.columns[side][name] = kinds[side]
        left, right = f"{a}.{name}", f"{b}.{name}"
        if kinds[0] == "BIGINT" and draft.chance(0.3):
            left = f"{left} + 1"
        pair = [left, right]
        rng.shuffle(pair)
        draft.conditions.append(f"{pair[0]} {equals} {pair[1]}")


def _draw_bounds(draft: Draft) -> None:
    """The bounds of the main pair of times; more of them for more event-time columns."""
    rng, (a, b) = draft.rng, draft.aliases
    if "t" in draft.using:
        return
    pairs = [("t", "t")]
    if len(draft.event_times[0]) > 1 and draft.chance(0.7):
        pairs.append(("u", rng.choice(draft.event_times[1])))
    elif len(draft.event_times[1]) > 1 and draft.chance(0.7):
        pairs.append(("t", "u"))
    for left, right in pairs:
        x = (f"{a}.{left}", draft.times.kinds[0])
        y = (f"{b}.{right}", draft.times.kinds[1])
        if rng.random() < 0.5:
            x, y = y, x
        if draft.times.temporal and draft.times.has_mixed_kinds and draft.chance(0.5):
            x, y = ((f"CAST({c} AS DATE)" if k == "TIMESTAMP" else c, "DATE") for c, k in (x, y))
        elif set(draft.times.kinds) == {"TIMESTAMP"} and draft.chance(0.06):
            x, y = ((f"CAST({c} AS DATE)", "DATE") for c, k in (x, y))
        draft.conditions += interval_conditions(draft, x, y)
    if draft.chance(0.02) and draft.conditions:
        draft.conditions.pop()


def _draw_other_conditions(draft: Draft) -> None:
    rng, (a, b) = draft.rng, draft.aliases
    one = rng.choice([a, b])
    if draft.chance(0.25):
        draft.conditions.append(one_sided(draft, one))
    if draft.chance(0.3):
        draft.conditions.append(residual(draft, a, b))
    if draft.chance(0.15):
        draft.conditions.append(band(draft, (0, 1)))
    if draft.conditions and draft.chance(0.1):
        share_by_branches(draft, draft.conditions, (residual(draft, a, b), residual(draft, b, a)))


def _query(draft: Draft) -> str:
    a, b = draft.aliases
    outputs = []
    for side, alias in enumerate(draft.aliases):
        names = [c for c in draft.columns[side] if not (draft.shape == "self" and c in ("d", "f"))]
        if side == 0 or draft.kind not in LEFT_ONLY:
            outputs += [f"{alias}.{c} AS {alias}_{c}" for c in names]
    outputs += [f"{c} AS {c}" for c in draft.using]
    if draft.chance(0.2) and draft.kind not in LEFT_ONLY:
        outputs.append(f"coalesce({a}.v, {b}.v) AS v1")
    tables = []
    for side, (stream, alias) in enumerate(zip(draft.streams, draft.aliases, strict=True)):
        columns = ", ".join(draft.columns[side])
        if side == 1 and draft.shape == "filtered":
            tables.append(f"(SELECT {columns} FROM {stream} WHERE v > 0) {alias}")
        elif side == 1 and draft.shape == "union":
            tables.append(f"(SELECT {columns} FROM r UNION ALL SELECT {columns} FROM r2) {alias}")
        else:
            tables.append(stream if stream == alias else f"{stream} {alias}")
    head = f"SELECT {', '.join(outputs)} FROM "
    where: list[str] = []
    on = list(draft.conditions)
    if draft.shape == "comma":
        return head + f"{tables[0]}, {tables[1]} WHERE {' AND '.join(on) or '1 = 1'}"
    word = (
        draft.kind if draft.kind in ("INNER", *LEFT_ONLY) else draft.kind + draft.rng.choice(["", " OUTER"])
    )
    word = "" if draft.kind == "INNER" and draft.chance(0.7) else word + " "
    text = head + f"{tables[0]} {word}JOIN {tables[1]}"
    if draft.using:
        text += f" USING ({', '.join(draft.using)})"
        where = on if draft.kind == "INNER" else []
    else:
        if draft.kind == "INNER" and len(on) > 1 and draft.chance(0.2):
            where, on = on[-1:], on[:-1]
        elif draft.kind not in LEFT_ONLY and draft.chance(0.04):
            where = [f"coalesce({a}.v, {b}.v, 0) < 3"]
        text += f" ON {' AND '.join(on) or '1 = 1'}"
    return text + (f" WHERE {' AND '.join(where)}" if where else "")
