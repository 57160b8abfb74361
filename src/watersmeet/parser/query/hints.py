"""Hints of a SELECT: ``/*+ BROADCAST(x) */`` and ``/*+ PLAN(delta) */``.

BROADCAST names the input that every task of its join receives as a whole; PLAN says how to run the joins.

A hint applies to its own SELECT: to the inputs that have a name of their own in its FROM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.errors import SqlError, near_names
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import TokenCursor, tokens_of
from watersmeet.spec.model import Input, Join, PlanChoice, Relation, inputs_of, with_inputs

_WORDS = ("BROADCAST", "BROADCASTJOIN", "MAPJOIN")
_PLAN = "PLAN"
_KNOWN = (
    "use BROADCAST(alias), which gives every task all rows of that input, or PLAN(delta), PLAN(cascade)"
    " or PLAN(auto)"
)
_ANOTHER = re.compile(r"(?:\s|--[^\n]*\n|/\*(?!\+).*?\*/)*/\*\+", re.DOTALL)
"""A second hint, behind blanks and comments."""


@dataclass(frozen=True)
class _HintName:
    """A name in a hint, and its position.

    Attributes:
        plan: the plan that the name selects; None for another name.
    """

    name: str
    offset: int
    plan: PlanChoice | None = None


def with_hints(
    relation: Relation, select: exp.Expression, named: Mapping[str, Relation], text: Text
) -> Relation:
    """Return the relation with the inputs marked that the SELECT's hints name.

    Problems are added to ``text``.

    Args:
        relation: The relation that the SELECT's FROM builds.
        named: The items of FROM that have their own names.
    """
    own: dict[str, _HintName] = {}
    for hint in _hints_of(select, text):
        if hint.plan is not None:
            if isinstance(relation, Join):
                relation = replace(relation, plan=hint.plan)
            continue
        alias = next((alias for alias in named if alias.lower() == hint.name.lower()), None)
        if alias is None:
            _unknown(hint, relation, named, text)
        elif isinstance(hinted_relation := named[alias], Join):
            inputs = ", ".join(i.alias for i in inputs_of(hinted_relation))
            text.problem(
                f'BROADCAST({hint.name}): "{alias}" is itself a join ({inputs}), not a stored input',
                "bad-hint",
                hint.offset,
                f'put the hint inside "{alias}", or name one of the other side\'s inputs here',
            )
        elif hinted_relation.as_of:
            text.problem(
                f'BROADCAST({hint.name}): "{alias}" is a table as of the tick, which all tasks share anyway',
                "bad-hint",
                hint.offset,
                "remove the hint",
            )
        else:
            own[alias] = hint
    if own:
        relation = with_inputs(relation, lambda i: replace(i, broadcast=True) if i.alias in own else i)
    for join in _joins(relation):
        _check_join(join, own, text)
    return relation


def without_join(select: exp.Expression, text: Text) -> None:
    """Report the hints of a SELECT that joins nothing."""
    for hint in _hints_of(select, text):
        what = "BROADCAST" if hint.plan is None else _PLAN
        text.problem(
            f"{what}({hint.name}): this SELECT has no join",
            "bad-hint",
            hint.offset,
            "move the hint to the SELECT with the join",
        )


def _unknown(hint: _HintName, relation: Relation, named: Mapping[str, Relation], text: Text) -> None:
    lowered = hint.name.lower()
    inner = next(
        (i.alias for i in inputs_of(relation) if f".{i.alias}".lower().endswith(f".{lowered}")), None
    )
    if inner is None:
        text.problem(
            f'unknown input "{hint.name}" in BROADCAST',
            "unknown-table",
            hint.offset,
            near_names(hint.name, named),
        )
        return
    text.problem(
        f'BROADCAST({hint.name}): "{inner}" is an input of another SELECT inside this one',
        "bad-hint",
        hint.offset,
        "move the hint to that SELECT",
    )


def _joins(relation: Relation) -> Iterator[Join]:
    if isinstance(relation, Join):
        yield relation
        yield from _joins(relation.left)
        yield from _joins(relation.right)


def _check_join(join: Join, own: Mapping[str, _HintName], text: Text) -> None:
    """Report hints that a join cannot follow; hints of other SELECTs are checked there."""
    sides = [side for side in (join.left, join.right) if isinstance(side, Input) and side.broadcast]
    mine = [own[side.alias] for side in sides if side.alias in own]
    if not mine:
        return
    last = max(mine, key=lambda hint: hint.offset)
    if join.kind.is_asof:
        text.problem(
            f"BROADCAST({last.name}): ASOF JOIN does not support it: one task must choose the nearest row",
            "bad-hint",
            last.offset,
            "remove the hint; an ASOF join distributes rows over tasks by key",
        )
    elif join.is_lookup:
        text.problem(
            f"BROADCAST({last.name}): its rows are joined with a table as of the tick and are not stored",
            "bad-hint",
            last.offset,
            "remove the hint: each row goes to one task, which looks up its match",
        )
    elif len(sides) == 2:
        text.problem(
            f"BROADCAST of both sides of a join ({sides[0].alias}, {sides[1].alias}): one side must be"
            " distributed over tasks",
            "bad-hint",
            last.offset,
            "name only the smaller one",
        )


def _hints_of(select: exp.Expression, text: Text) -> list[_HintName]:
    """Return the names in the SELECT's hints; report unknown hints."""
    hint = select.args.get("hint")
    start = None if hint is None else hint.meta.get("start")
    hints: list[_HintName] = []
    if start is None:
        return []
    own, before = text.around(start)
    start -= before
    while start is not None:
        end = own.sql.index("*/", start)
        try:
            hints += _read(own, start + len("/*+"), end)
        except SqlError as error:
            text.problems.append(error)
        following = _ANOTHER.match(own.sql, end + len("*/"))
        start = None if following is None else following.end() - len("/*+")
    return [replace(hint, offset=before + hint.offset) for hint in hints]


def _read(text: Text, start: int, end: int) -> Iterable[_HintName]:
    tokens = tokens_of(text, start, end)
    if not tokens:
        raise text.error("the hint is empty", "bad-hint", start, _KNOWN)
    cursor = TokenCursor(text, tokens)
    hints: list[_HintName] = []
    while not cursor.at_end:
        offset = cursor.offset
        word = cursor.name("the name of a hint")
        is_plan = word.upper() == _PLAN
        names: Sequence[_HintName] = _names(cursor) if is_plan or word.upper() in _WORDS else ()
        if is_plan:
            names = _plans(names, offset, text)
        elif word.upper() not in _WORDS:
            text.problems.append(text.not_supported(f"the hint {word.upper()} is", offset, _KNOWN))
            _skip_arguments(cursor)
        elif not names:
            text.problem(f"{word.upper()} needs the alias of an input", "bad-hint", offset, _KNOWN)
        hints += names
        cursor.accept(",")
    return hints


def _plans(names: Sequence[_HintName], offset: int, text: Text) -> list[_HintName]:
    """Return the single plan that the hint names; report any other content."""
    choices = {choice.value: choice for choice in PlanChoice}
    if len(names) != 1 or names[0].name.lower() not in choices:
        text.problem(f"{_PLAN} needs one of {', '.join(choices)}", "bad-hint", offset, _KNOWN)
        return []
    return [replace(names[0], plan=choices[names[0].name.lower()])]


def _names(cursor: TokenCursor) -> list[_HintName]:
    if not cursor.accept("("):
        return []
    hints = []
    while not cursor.accept(")"):
        offset = cursor.offset
        hints.append(_HintName(cursor.take_dotted_name("the name of an input"), offset))
        if not cursor.looks_at(")"):
            cursor.expect(",", "a comma or a closing parenthesis")
    return hints


def _skip_arguments(cursor: TokenCursor) -> None:
    if not cursor.accept("("):
        return
    depth = 1
    while depth:
        token = cursor.take()
        depth += (token.text == "(") - (token.text == ")")
