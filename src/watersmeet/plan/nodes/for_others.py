"""What other queries of the job need of the rows that a query, or a stage of it, makes for them, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.plan.join_inputs import refs
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.nodes.feed import Derived
from watersmeet.spec.model import Expr

StageKey = tuple[str, int] | None
"""A stage: the alias of its input and the branch. None: the query itself."""

ForOthers = Mapping[StageKey, Sequence[Expr]]
"""Per stage, expressions over one input each of its relation, which have to leave it."""

DerivedColumns = Mapping[StageKey, Derived]
"""Per stage, what is computed of its inputs' rows."""


def column_of(expr: Expr, derived: Derived) -> str:
    """The column of a relation's rows that holds an expression over one input."""
    (alias,) = {alias for alias, _ in refs(expr)}
    if expr.key == "column":
        return joined_name(alias, expr.name)
    return joined_name(alias, derived.column(alias, expr))
