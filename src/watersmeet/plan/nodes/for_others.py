"""What other queries of the job need of the rows that a query, or a stage of it, makes for them, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.plan.join_inputs import refs
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.nodes.feed import Derived
from watersmeet.spec.model import Expr

StageKey = tuple[str, int] | None
"""A stage: the alias of its input and the branch. None: the query itself."""


@dataclass
class ForOthers:
    """``asked``: per stage, expressions over one input each of its relation. ``derived``: per stage, what is
    computed of its inputs' rows; written while they are planned."""

    asked: Mapping[StageKey, Sequence[Expr]] = field(default_factory=dict)
    derived: dict[StageKey, Derived] = field(default_factory=dict)

    def columns(self, stage: StageKey, derived: Derived) -> set[str]:
        """The joined names of what has to leave the relation of a stage; what is computed is added to
        ``derived``."""
        self.derived[stage] = derived
        return {column_of(expr, derived) for expr in self.asked.get(stage, ())}


def column_of(expr: Expr, derived: Derived) -> str:
    """The column of a relation's rows that holds an expression over one input."""
    (alias,) = {alias for alias, _ in refs(expr)}
    if expr.key == "column":
        return joined_name(alias, expr.name)
    return joined_name(alias, derived.column(alias, expr))
