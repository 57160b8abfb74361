"""Which inputs a job has that can be asked about, and by which names their rows are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import SpecError, near_names
from watersmeet.plan.conditions.conjuncts import split
from watersmeet.plan.evaluated import shown
from watersmeet.plan.model.conditions import KeyPlan
from watersmeet.plan.model.delta import DeltaPlan
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Expr, Insert, Job
from watersmeet.why.over_records import asked_queries
from watersmeet.why.replayed import joins_of


@dataclass(frozen=True)
class AskedInput:
    """``keys``: the equality keys of its join, as texts; ``columns``, ``times``: names; ``is_told``: whether
    its rows are those of sources, and none of what queries beneath it have made."""

    query: str
    input: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    times: tuple[str, ...]
    is_told: bool


def inputs_of_job(job: Job, plan: JobPlan) -> list[AskedInput]:
    """Of all queries, in their order."""
    inserts = {insert.name: insert for insert in job.inserts}
    return [
        AskedInput(
            query.name,
            side.name,
            tuple(map(shown, keys_of(query, side, inserts[query.name]))),
            tuple(column.name for column in side.input.columns),
            tuple(side.event_times),
            bool(side.sources),
        )
        for query in asked_queries(job, plan)
        for side in query.sides
    ]


def same_name(one: str, other: str) -> bool:
    """Whether SQL takes two names for the same."""
    return one.lower() == other.lower()


def key_plans_of(query: QueryPlan, side: SidePlan) -> list[tuple[KeyPlan, bool]]:
    """The equality keys of the join that takes the input's rows, and whether these are its left ones; of a
    delta join those by which any input finds them."""
    for node in query.every(MatchPlan):
        for number, own in enumerate((node.left, node.right)):
            if own.name == side.name:
                return [(key, number == 0) for key in node.keys]
    by_text: dict[str, KeyPlan] = {}
    for join in (lookup.join for delta in query.every(DeltaPlan) for lookup in delta.lookups):
        if side.name in (join.right.name, join.right.copy_of):
            for key in join.keys:
                by_text.setdefault(shown(key.right), key)
    return [(key, False) for key in by_text.values()]


def keys_of(query: QueryPlan, side: SidePlan, insert: Insert) -> list[Expr]:
    """The same as expressions over the input's columns, in the order in which the query has them."""
    asked = insert.query
    conditions = [*(join.on for join in joins_of(asked.relation)), asked.where]
    texts = [own.text for condition in conditions for own in split(condition)]
    plans = key_plans_of(query, side)
    if query.every(DeltaPlan):
        plans.sort(key=lambda own: texts.index(own[0].text) if own[0].text in texts else len(texts))
    return [key.left if is_left else key.right for key, is_left in plans]


def check_name(side: SidePlan, key: Expr, text: str) -> None:
    """Raise: SpecError for COLUMN=VALUE of an unknown column; a value of a text key may look like that."""
    name, equals, _ = text.partition("=")
    column = side.input.column(key.name) if isinstance(key, exp.Column) else None
    is_text = column is not None and column.type.name.startswith(("STRING", "BINARY"))
    if equals and name.isidentifier() and column is not None and not is_text:
        raise SpecError(
            f'input "{side.name}" has no column "{name}" (--key {text})',
            code="unknown-column",
            hint=near_names(name, [own.name for own in side.input.columns]),
        )
