"""Random conditions: an interval between two event times in the many ways to write it, and what else stands
in an ON: one-sided conditions, residuals, bands; and what an ASOF join says about times.
"""

from __future__ import annotations

from tests.support.random_draft import US, Draft, whole_unit

Operand = tuple[str, str]
"""An expression and its type."""


def _distance(draft: Draft, c: int, kind: str) -> tuple[str, str]:
    """(sign, text) of adding ``c`` to a time of a type."""
    sign, size = ("+", c) if c >= 0 else ("-", -c)
    if not draft.times.temporal:
        return sign, str(size)
    if kind == "DATE" and size % US["DAY"] == 0 and draft.chance(0.6):
        return sign, str(size // US["DAY"])
    return sign, _interval(draft, size)


def _interval(draft: Draft, size: int) -> str:
    """µs as an interval literal, in one of its spellings."""
    seconds, rest = divmod(size, US["SECOND"])
    if draft.chance(0.15) and rest % 1000 == 0:
        days, second = divmod(seconds, 86_400)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        return f"INTERVAL '{days} {clock}{f'.{rest:06d}' if rest else ''}' DAY TO SECOND"
    fits = [u for u in US if size % US[u] == 0 and size]
    if fits and "DATE" not in draft.times.kinds:
        unit = draft.rng.choice(fits)
        return f"INTERVAL '{size // US[unit]}' {unit}{draft.rng.choice(['', 'S'])}"
    if fits or not size:  # a DATE and whole days stay a DATE
        unit = "DAY" if size % US["DAY"] == 0 else fits[-1]
        return f"INTERVAL '{size // US[unit]}' {unit}"
    return f"INTERVAL '{size}' MICROSECONDS"


def _shift_operand(draft: Draft, operand: str, c: int, kind: str) -> str:
    if c == 0 and draft.chance(0.7):
        return operand
    sign, text = _distance(draft, c, kind)
    return f"{operand} {sign} {text}"


def bound(draft: Draft, upper: Operand, lower: Operand, c: int, strict: bool) -> str:
    """``upper >= lower - c`` in one of the ways to write it."""
    (a, a_kind), (b, b_kind) = upper, lower
    more, less = (">", "<") if strict else (">=", "<=")
    forms = ["right", "mirrored"]
    if not draft.times.extreme:
        forms += ["left", "both", "difference", "difference2"]
    elif c >= 0:
        forms += ["left"]
    form = draft.rng.choice(forms)
    if form == "right":
        other = _shift_operand(draft, b, -c, b_kind)
        return f"NOT {a} {'<=' if strict else '<'} {other}" if draft.chance(0.15) else f"{a} {more} {other}"
    if form == "mirrored":
        return f"{_shift_operand(draft, b, -c, b_kind)} {less} {a}"
    if form == "left":
        return f"{_shift_operand(draft, a, c, a_kind)} {more} {b}"
    if form == "both":
        extra = draft.rng.choice([1, 5, -2]) * (
            whole_unit(draft) if draft.times.temporal else draft.times.step
        )
        return (
            f"{_shift_operand(draft, a, extra, a_kind)} {more} {_shift_operand(draft, b, extra - c, b_kind)}"
        )
    if not draft.times.temporal:
        return f"{a} - {b} {more} {-c}" if form == "difference" else f"{b} - {a} {less} {c}"
    if form == "difference" and c <= 0:
        return f"{a} - {b} {more} {_interval(draft, -c)}"
    if c >= 0:
        return f"{b} - {a} {less} {_interval(draft, c)}"
    return f"{a} {more} {_shift_operand(draft, b, -c, b_kind)}"


def interval_conditions(draft: Draft, x: Operand, y: Operand) -> list[str]:
    """``y - c1 <= x <= y + c2``."""
    rng = draft.rng
    whole = x[1] == y[1] == "DATE" or (draft.times.temporal and x[1] != y[1])
    unit = US["DAY"] if whole and draft.times.temporal else draft.times.step
    c1 = rng.choice([0, 1, 2, 5, 10, -1, -3]) * unit
    c2 = max(rng.choice([0, 1, 2, 4, 9, 20, -1]) * unit, -c1)
    if draft.inputs > 2 and draft.chance(0.6):  # or hardly anything meets in the last of many joins
        c1, c2 = c1 + rng.choice([2, 5]) * unit, c2 + rng.choice([2, 8]) * unit
    if draft.chance(0.03) and not draft.times.extreme:
        c2 = -c1 - unit  # inverted
    if draft.times.extreme:  # the oracle takes bounds as they are where both ends are cut alike
        c2 = abs(c2)
    if x[1] == y[1] == "TIMESTAMP" and not whole and draft.chance(0.2):
        c2 += rng.choice([1, -1]) if c1 + c2 > 0 else 1
    form = rng.choices(["between", "two", "equal", "difference", "more", "absolute"], [33, 33, 12, 8, 9, 5])[
        0
    ]
    if form == "absolute" and not draft.times.extreme and x[1] == y[1] and x[1] != "DATE":
        size = _interval(draft, abs(c1)) if draft.times.temporal else str(abs(c1))
        distance = f"abs({x[0]} - {y[0]})"
        return [rng.choice([f"{distance} <= {size}", f"{size} > {distance}", f"NOT {distance} > {size}"])]
    if form == "equal":
        if draft.times.temporal or draft.times.extreme or draft.chance(0.6):
            c1 = 0 if draft.times.extreme else c1
            return [f"{x[0]} = {_shift_operand(draft, y[0], -c1, y[1])}"]
        return [f"{x[0]} - {y[0]} = {-c1}"]
    if form == "difference" and not draft.times.temporal and not draft.times.extreme:
        return [f"{x[0]} - {y[0]} BETWEEN {-c1} AND {c2}"]
    if form == "between":
        return [
            f"{x[0]} BETWEEN {_shift_operand(draft, y[0], -c1, y[1])}"
            f" AND {_shift_operand(draft, y[0], c2, y[1])}"
        ]
    found = [bound(draft, x, y, c1, draft.chance(0.25)), bound(draft, y, x, c2, draft.chance(0.25))]
    if form == "more":
        found.append(bound(draft, x, y, c1 + rng.choice([0, 2, 7]) * unit, draft.chance(0.5)))
    return found


def share_by_branches(draft: Draft, conditions: list[str], residuals: tuple[str, str]) -> None:
    """Let both branches of an OR ask one of the conditions, with a residual each."""
    number = draft.rng.randrange(len(conditions))
    shared, (one, other) = conditions[number], residuals
    conditions[number] = f"((({shared}) AND {one}) OR ({other} AND ({shared})))"


def nearest_conditions(draft: Draft, left: Operand, right: Operand) -> tuple[str, str | None]:
    """(which right time is nearest, the tolerance if there is one): two bounds over the two times."""
    rng = draft.rng
    whole = left[1] == right[1] == "DATE" or (draft.times.temporal and left[1] != right[1])
    unit = US["DAY"] if whole and draft.times.temporal else draft.times.step
    latest = draft.chance(0.6)
    off = 0 if draft.chance(0.6) else rng.choice([1, 2, -1, -3]) * unit
    far = rng.choice([0, 1, 2, 4, 9, 25]) * unit
    if draft.times.extreme:
        off = abs(off)
    near, other = (left, right) if latest else (right, left)
    match = bound(draft, near, other, off, draft.chance(0.3))
    if latest and draft.chance(0.5):
        return match, None
    if not latest and draft.chance(0.02):
        return match, None  # waits for ever
    far = max(far, -off) if not draft.times.extreme else far
    return match, bound(draft, other, near, far, draft.chance(0.25))


def one_sided(draft: Draft, alias: str) -> str:
    """A condition over one input, or a constant one."""
    return draft.rng.choice(
        [f"{alias}.v > 1", f"{alias}.v <> 2", f"{alias}.k = 'a'", f"{alias}.v IS NOT NULL",
         f"{alias}.k IS NULL", f"({alias}.v = 0 OR {alias}.k = 'b')", f"{alias}.v % 2 = 0",
         "1 = 1", f"{alias}.v IN (0, 1, 3)", f"NOT {alias}.v = 1", f"{alias}.v + 1 < 4"]
    )  # fmt: skip


def residual(draft: Draft, a: str, b: str) -> str:
    """A condition over two inputs that neither a lookup nor a bound is made of."""
    residuals = [
        f"({a}.v = {b}.v OR {a}.k = {b}.k)", f"{a}.v <> {b}.v", f"{a}.v + {b}.v < 3",
        f"({a}.v > {b}.v OR {b}.v IS NULL)", f"coalesce({a}.v, 0) <> coalesce({b}.v, 1)",
        f"NOT ({a}.v < {b}.v)", f"{a}.v * 2 < {b}.v + 3", f"({a}.k = 'a' OR {b}.v > 0)",
    ]  # fmt: skip
    if not draft.times.extreme:
        residuals.append(f"({a}.t <= {b}.t OR {a}.v = 1)")
    return draft.rng.choice(residuals)


def band(draft: Draft, sides: tuple[int, int]) -> str:
    """A bound over columns that are no event times; gives both inputs some."""
    a, b = (draft.aliases[side] for side in sides)
    bands = [
        f"{a}.v BETWEEN {b}.v - 1 AND {b}.v + 2", f"{a}.v <= {b}.v", f"{b}.v - {a}.v < 2",
        f"{b}.v + 1 > {a}.v",
    ]  # fmt: skip
    for side in sides:
        draft.columns[side].update(p="DECIMAL(10,2)", d="DATE", f="DOUBLE")
    bands += [f"{a}.p >= {b}.p - 1", f"{a}.d <= {b}.d + 1", f"{a}.f < {b}.f"]
    return draft.rng.choice(bands)
