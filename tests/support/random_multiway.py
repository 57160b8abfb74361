"""Random joins of many inputs as case files: ``random_multiway_case(seed)`` is one case for one seed.

What is drawn beyond `random_cases`: the tree (left-deep, or with a parenthesised right side) and the kinds of
its joins, bounds of a new input to one or several earlier ones or only through a later join, conditions over
several inputs of one side, keys of two inputs, WHERE above inner and outer joins, USING over several joins.

Keywords fix a draw: ``inputs``, ``kinds`` (those that joins are drawn from), ``semi`` (whether some of those
become SEMI or ANTI, if no ``kinds`` are given), ``asof`` (one of them, or more, is an ASOF join), ``time``
(as for `random_case`), ``shape`` (plain, comma, self, using, union, triangle), ``rule``, ``plan``,
``changes`` (changelog with deletes), ``tables`` (of changes: tables instead of streams).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.support.random_conditions import (
    band,
    interval_conditions,
    nearest_conditions,
    one_sided,
    residual,
)
from tests.support.random_draft import Draft, draw_times, whole_unit
from tests.support.random_steps import declare_streams, draw_steps

KINDS = ["INNER", "LEFT", "RIGHT", "FULL"]
LEFT_ONLY = ("SEMI", "ANTI")
ASOF = ("ASOF", "ASOF LEFT")
NAMES = (["a", "b", "c", "d", "e"], ["o", "d", "r", "s", "q"], ["x1", "x2", "x3", "x4", "x5"])


@dataclass
class Node:
    """A join while it is being drawn; a side is an input's number or another join."""

    left: Node | int
    right: Node | int
    kind: str = "INNER"
    conditions: list[str] = field(default_factory=list)
    using: list[str] = field(default_factory=list)
    match: list[str] = field(default_factory=list)


def random_multiway_case(seed: int, **profile: Any) -> dict[str, Any]:
    """A case of 2 to 4 inputs (5 if ``inputs`` says so) as in semantics.md, section 6; without ``expect``."""
    rng = random.Random(seed)
    asof = profile.get("asof", False)
    changes = profile.get("changes", False)
    tables = changes and profile.get("tables", rng.random() < 0.5)
    inputs = profile.get("inputs") or rng.choices([2, 3, 4], [60, 30, 10] if asof else [5, 60, 35])[0]
    time = profile.get("time") or rng.choices(
        ["BIGINT", "INT", "TIMESTAMP", "DATE", "MIXED", "EXTREME"],
        [38, 8, 28, 12, 14, 12],
    )[0]  # fmt: skip
    if tables and time == "EXTREME":  # only event times saturate, and a table has none
        time = "BIGINT"
    draft = Draft(rng, draw_times(rng, time, inputs), inputs)
    draft.shape = (
        profile.get("shape")
        or rng.choices(
            ["plain", "comma", "self", "using", "union", "triangle"],
            [62, 0, 8, 8, 12, 0] if asof else [62, 5, 8, 8, 8, 9],
        )[0]
    )
    if tables and draft.shape == "union":
        draft.shape = "plain"
    kinds = profile.get("kinds") or rng.choice(
        [["INNER"], KINDS, KINDS, ["INNER", "LEFT"], ["INNER", *KINDS]]
    )
    if draft.shape in ("comma", "triangle"):
        kinds = ["INNER"]
    _draw_inputs(draft)
    root = _draw_tree(draft, kinds)
    may_be_other = draft.shape not in ("comma", "triangle")
    may_be_semi = "kinds" not in profile and not changes
    if may_be_other and profile.get("semi", may_be_semi and draft.chance(0.25)):
        _draw_left_only(draft, root)
    if asof:
        _draw_asof(draft, root)
    _draw_conditions(draft, root)
    where = _draw_where(draft, root)
    case: dict[str, Any] = {"case": f"random-multiway-{seed}"}
    declared, lags = declare_streams(draft, changes, tables)
    case["tables" if tables else "streams"] = declared
    case["query"] = _query(draft, root, where)
    options = _draw_options(draft, profile)
    if changes:
        options["output_mode"] = "changelog"
    if options:
        case["options"] = options
    case["steps"] = draw_steps(draft, declared, lags, changes)
    return case


def _draw_options(draft: Draft, profile: dict[str, Any]) -> dict[str, Any]:
    rng = draft.rng
    options: dict[str, Any] = {}
    rule = profile.get("rule") or rng.choice(["tight", "limit", None])
    if rule and not (draft.times.has_mixed_kinds and draft.times.temporal):
        options["watermark_rule"] = rule
    if draft.chance(0.15) and not draft.times.extreme:
        options["allowed_lateness"] = rng.choice([1, 3, 10]) * whole_unit(draft)
    plan = profile.get("plan") or rng.choice([None, "auto", "cascade", "delta"])
    if plan:
        options["plan"] = plan
    if plan == "cascade" and draft.chance(0.05):
        options["max_rows"] = rng.choice([3, 10, 30])
    return options


# inputs and joins


def _draw_inputs(draft: Draft) -> None:
    rng, times = draft.rng, draft.times
    names = rng.choice(NAMES)[: draft.inputs]
    draft.aliases, draft.streams = list(names), list(names)
    if draft.chance(0.2):
        draft.aliases = [f"q{i}" for i in range(draft.inputs)]
    if draft.shape == "using":
        times.kinds[:] = [times.kinds[0]] * draft.inputs
    for i in range(draft.inputs):
        draft.columns[i].update(t=times.kinds[i], k="STRING", v="BIGINT", n="BIGINT")
        if draft.chance(0.15) and not times.extreme:
            draft.columns[i]["u"] = times.kinds[i]
            draft.event_times[i].append("u")
    if draft.shape == "self":
        one, other = rng.sample(range(draft.inputs), 2)
        times.kinds[other] = times.kinds[one]
        draft.streams[other] = draft.streams[one]
        draft.columns[other] = draft.columns[one]  # the same dict: what one alias gets, the other has
        draft.event_times[other] = draft.event_times[one]
        draft.aliases = [f"q{i}" for i in range(draft.inputs)]
    if draft.shape == "union":
        of = rng.randrange(draft.inputs)
        draft.branches["more"] = of


def _draw_tree(draft: Draft, kinds: list[str]) -> Node:
    """The joins in written order; now and then a right side in parentheses."""
    rng, count = draft.rng, draft.inputs
    items: list[Node | int] = list(range(count))
    if count > 2 and draft.shape not in ("comma", "triangle") and draft.chance(0.2):
        first = rng.randint(1, count - 2)
        last = rng.randint(first + 1, count - 1)
        items = [*items[:first], _chain(draft, items[first : last + 1], kinds), *items[last + 1 :]]
    return _chain(draft, items, kinds)


def _chain(draft: Draft, items: list[Node | int], kinds: list[str]) -> Node:
    node = Node(items[0], items[1], draft.rng.choice(kinds))
    for item in items[2:]:
        node = Node(node, item, draft.rng.choice(kinds))
    return node


def _draw_left_only(draft: Draft, root: Node) -> None:
    """Some of the joins become SEMI or ANTI."""
    for node in _nodes(root):
        if draft.chance(0.24):
            node.kind = draft.rng.choice(LEFT_ONLY)


def _draw_asof(draft: Draft, root: Node) -> None:
    """At least one join that has an input on its right side becomes an ASOF join."""
    may = [node for node in _nodes(root) if isinstance(node.right, int)]
    for node in dict.fromkeys(map(id, may)):
        chosen = next(each for each in may if id(each) == node)
        if draft.chance(0.4):
            chosen.kind = draft.rng.choice(ASOF)
    if may and not any(node.kind in ASOF for node in may):
        draft.rng.choice(may).kind = draft.rng.choice(ASOF)


def _inputs(side: Node | int) -> list[int]:
    """The inputs that rows of a side hold: what names above it may mean."""
    if isinstance(side, int):
        return [side]
    return _inputs(side.left) if side.kind in LEFT_ONLY else _within(side)


def _within(node: Node) -> list[int]:
    """The inputs that names in a join's own condition may mean."""
    return _inputs(node.left) + _inputs(node.right)


def _nodes(side: Node | int) -> list[Node]:
    """The joins of a side, children first."""
    return [] if isinstance(side, int) else [*_nodes(side.left), *_nodes(side.right), side]


def _find_padded_inputs(side: Node | int) -> set[int]:
    """The inputs that a side may have padded."""
    if isinstance(side, int):
        return set()
    found = _find_padded_inputs(side.left) | _find_padded_inputs(side.right)
    if side.kind in ("RIGHT", "FULL"):
        found |= set(_inputs(side.left))
    if side.kind in ("LEFT", "FULL", "ASOF LEFT"):
        found |= set(_inputs(side.right))
    return found


# conditions


def _draw_conditions(draft: Draft, root: Node) -> None:
    rng = draft.rng
    keys = rng.choices(["none", "shared", "own", "null-safe", "computed", "both"], [25, 25, 15, 10, 13, 12])[
        0
    ]
    nodes = _nodes(root)
    for node in nodes:
        if node.kind in ASOF:
            _draw_nearest(draft, node, keys)
            continue
        if draft.shape == "using" and draft.chance(0.75) and _owners(node, "t") == (1, 1):
            node.using = ["t", "k"] if _owners(node, "k") == (1, 1) and draft.chance(0.8) else ["t"]
            continue
        waits = draft.shape == "triangle" and node is not root and draft.inputs > 2
        if not waits:
            _draw_bounds(draft, node)
        if waits or draft.chance(0.7 if draft.inputs < 4 else 0.85):
            _draw_key(draft, node, "shared" if waits and keys == "none" else keys)
        _draw_others(draft, node)
        rng.shuffle(node.conditions)


def _draw_nearest(draft: Draft, node: Node, keys: str) -> None:
    """The condition of an ASOF join: which row is nearest, keys, conditions on one side."""
    rng = draft.rng
    if draft.shape == "using" and draft.chance(0.4) and _owners(node, "t") == _owners(node, "k") == (1, 1):
        node.using = ["k", "t"]  # the last one is the time
        return
    left, right = _time(draft, _pick(draft, node.left)), _time(draft, _pick(draft, node.right))
    match, tolerance = nearest_conditions(draft, left, right)
    if tolerance is None and draft.chance(0.3):
        node.conditions.append(match)  # one comparison of times in ON: as elsewhere
    else:
        node.match.append(match)
        if tolerance is not None:
            rng.choice([node.match, node.conditions]).append(tolerance)
    no_on = node.match and not node.conditions
    if draft.shape == "using" and no_on and draft.chance(0.5) and _owners(node, "k") == (1, 1):
        node.using = ["k"]
        return
    if draft.chance(0.75):
        _draw_key(draft, node, keys)
    for side in (node.left, node.right):
        if draft.chance(0.15):
            node.conditions.append(one_sided(draft, draft.aliases[rng.choice(_inputs(side))]))
    if draft.chance(0.02):
        a, b = rng.choice(_inputs(node.left)), rng.choice(_inputs(node.right))
        node.conditions.append(residual(draft, draft.aliases[a], draft.aliases[b]))
    rng.shuffle(node.conditions)


def _owners(node: Node, name: str) -> tuple[int, int]:
    """How many columns an unqualified name may mean on either side of a join: a USING column is one."""

    def count(side: Node | int) -> int:
        if isinstance(side, int) or name in side.using:
            return 1
        return count(side.left) + (0 if side.kind in LEFT_ONLY else count(side.right))

    return count(node.left), count(node.right)


def _pick(draft: Draft, side: Node | int) -> int:
    """An input of a side; mostly one whose time is known in all its rows, and bounded in the join beneath."""
    members = _inputs(side)
    sure = [i for i in members if i not in _find_padded_inputs(side)]
    if isinstance(side, Node) and not side.using:
        text = " ".join(side.conditions)
        near = [i for i in sure if f"{draft.aliases[i]}.t" in text]
        if near and draft.chance(0.7):
            return draft.rng.choice(near)
    return draft.rng.choice(sure if sure and draft.chance(0.8) else members)


def _draw_bounds(draft: Draft, node: Node) -> None:
    """An interval between a time of the one side and one of the other; sometimes several."""
    rng = draft.rng
    pairs = [(_pick(draft, node.left), _pick(draft, node.right))]
    several = 0.9 if draft.shape == "triangle" else 0.2
    if len(_within(node)) > 2 and draft.chance(several):
        taken = pairs[0]
        more = [(a, b) for a in _inputs(node.left) for b in _inputs(node.right) if (a, b) != taken]
        pairs += more if draft.shape == "triangle" else [rng.choice(more)]
    for left, right in pairs:
        x, y = (_time(draft, left), _time(draft, right))
        if rng.random() < 0.5:
            x, y = y, x
        if draft.times.temporal and x[1] != y[1] and draft.chance(0.5):
            x, y = ((f"CAST({c} AS DATE)" if k == "TIMESTAMP" else c, "DATE") for c, k in (x, y))
        node.conditions += interval_conditions(draft, x, y)


def _time(draft: Draft, i: int) -> tuple[str, str]:
    """An event-time column and its type."""
    column = "t" if draft.chance(0.85) else draft.rng.choice(draft.event_times[i])
    return f"{draft.aliases[i]}.{column}", draft.times.kinds[i]


def _draw_key(draft: Draft, node: Node, keys: str) -> None:
    rng = draft.rng
    mine, theirs = rng.choice(_inputs(node.left)), rng.choice(_inputs(node.right))
    a, b = draft.aliases[mine], draft.aliases[theirs]
    if keys == "shared":
        node.conditions.append(f"{a}.k = {b}.k")
    elif keys == "own":
        name = f"k{len(_within(node))}"
        for i in (mine, theirs):
            draft.columns[i][name] = "BIGINT"
        node.conditions.append(f"{a}.{name} = {b}.{name}")
    elif keys == "null-safe":
        node.conditions.append(f"{b}.k <=> {a}.k")
    elif keys == "computed":
        node.conditions.append(
            rng.choice(
                [f"{a}.n + 1 = {b}.n", f"{b}.n = {a}.n - 1", f"{a}.n % 2 = {b}.n", f"{a}.n = abs({b}.n)"]
            )
        )
    elif keys == "both":
        others = [i for i in _inputs(node.left) if i != mine]
        if others:
            node.conditions.append(f"coalesce({a}.k, {draft.aliases[rng.choice(others)]}.k) = {b}.k")
        else:
            node.conditions.append(f"{a}.k = {b}.k")


def _draw_others(draft: Draft, node: Node) -> None:
    """Conditions over one input, over several of one side, and over both sides."""
    rng = draft.rng
    left, right = _inputs(node.left), _inputs(node.right)
    if draft.chance(0.13):
        node.conditions.append(one_sided(draft, draft.aliases[rng.choice(left + right)]))
    wide = [side for side in (left, right) if len(side) > 1]
    if wide and draft.chance(0.2):
        a, b = (draft.aliases[i] for i in rng.sample(rng.choice(wide), 2))
        node.conditions.append(
            rng.choice([residual(draft, a, b), f"{a}.v <= {b}.v", f"{a}.k <=> {b}.k", f"{a}.t >= {b}.t"])
        )
    if draft.chance(0.2):
        node.conditions.append(
            residual(draft, draft.aliases[rng.choice(left)], draft.aliases[rng.choice(right)])
        )
    if draft.chance(0.08):
        node.conditions.append(band(draft, (rng.choice(left), rng.choice(right))))


def _draw_where(draft: Draft, root: Node) -> list[str]:
    """WHERE: conditions of its own above any join; of inner joins also what might stand in an ON."""
    rng = draft.rng
    where: list[str] = []
    for node in _nodes(root):
        all_inner = all(n.kind == "INNER" for n in _nodes(root))
        if draft.shape == "comma":
            where += node.conditions
            node.conditions = []
        elif all_inner and len(node.conditions) > 1 and draft.chance(0.2):
            where.append(node.conditions.pop())
    seen = [draft.aliases[i] for i in _inputs(root)]
    if len(seen) == 1:
        if draft.chance(0.3):
            where.append(rng.choice([one_sided(draft, seen[0]), f"{seen[0]}.v IS NULL"]))
    elif draft.chance(0.3):
        a, b = rng.sample(seen, 2)
        where.append(
            rng.choice(
                [one_sided(draft, a), one_sided(draft, b), f"{a}.v IS NULL", f"coalesce({a}.v, {b}.v, 0) < 3",
                 f"({a}.k = {b}.k OR {a}.v > 1)", f"{a}.v <> {b}.v", "1 = 1"]
            )
        )  # fmt: skip
    rng.shuffle(where)
    return where


# the query as text


def _query(draft: Draft, root: Node, where: list[str]) -> str:
    seen = _inputs(root)
    outputs = [
        f"{draft.aliases[i]}.{c} AS {draft.aliases[i]}_{c}" for i in sorted(seen) for c in draft.columns[i]
    ]
    outputs += [f"{c} AS {c}" for c in root.using]
    if len(seen) > 1 and draft.chance(0.2):
        a, b = (draft.aliases[i] for i in draft.rng.sample(seen, 2))
        outputs.append(f"coalesce({a}.v, {b}.v) AS v1")
    text = f"SELECT {', '.join(outputs)} FROM {_from(draft, root)}"
    if draft.shape == "comma" and not where:
        where = ["1 = 1"]
    return text + (f" WHERE {' AND '.join(where)}" if where else "")


def _from(draft: Draft, side: Node | int, parentheses: bool = False) -> str:
    if isinstance(side, int):
        return _input(draft, side)
    left, right = _from(draft, side.left), _from(draft, side.right, parentheses=True)
    if draft.shape == "comma":
        return f"{left}, {right}"
    if side.kind in ASOF:
        word = draft.rng.choice(
            ["ASOF ", "INNER ASOF "] if side.kind == "ASOF" else ["ASOF LEFT ", "LEFT ASOF "]
        )
    elif side.kind in LEFT_ONLY:
        word = draft.rng.choice(["", "LEFT "]) + side.kind + " "
    else:
        word = side.kind if side.kind == "INNER" else side.kind + draft.rng.choice(["", " OUTER"])
        word = "" if side.kind == "INNER" and draft.chance(0.7) else word + " "
    text = f"{left} {word}JOIN {right}"
    if side.match:
        text += f" MATCH_CONDITION ({' AND '.join(side.match)})"
    if side.using:
        text += f" USING ({', '.join(side.using)})"
    elif side.conditions or not side.match or draft.chance(0.5):
        text += f" ON {' AND '.join(side.conditions) or '1 = 1'}"
    return f"({text})" if parentheses else text


def _input(draft: Draft, i: int) -> str:
    stream, alias = draft.streams[i], draft.aliases[i]
    branches = [branch for branch, of in draft.branches.items() if of == i]
    if branches:
        columns = ", ".join(draft.columns[i])
        selects = [f"SELECT {columns} FROM {name}" for name in (stream, *branches)]
        return f"({' UNION ALL '.join(selects)}) {alias}"
    return stream if stream == alias else f"{stream} {alias}"
