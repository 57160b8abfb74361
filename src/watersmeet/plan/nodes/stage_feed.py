"""Rule: what an input needs of the rows of a stage: which of its columns hold it, and who computes it.

As with rows that go from join to join (`plan.nodes.feed`): a plain column is there already; an expression
over one input beneath that is never padded is computed of that input's rows, by Spark; anything else in the
task, of the rows that leave the stage: what is on the list of `expressions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.expressions.typed_tree import TypedTree
from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.flags import over_source
from watersmeet.plan.conditions.residual import after_join, in_tasks
from watersmeet.plan.join_inputs import name_of
from watersmeet.plan.model.sides import FeedPlan, joined_name
from watersmeet.plan.nodes.feed import Derived
from watersmeet.plan.nodes.stages import columns_of
from watersmeet.plan.nodes.tree import Tree
from watersmeet.spec.model import Expr, Input, StageBranch
from watersmeet.spec.stages import time_of

_OF_GROUPS = (
    "a column over the result of a group",
    "select keys and aggregates unchanged, and compute it in the last SELECT",
)


@dataclass
class StageFeed:
    """A branch of an input that is a stage, while it is being planned.

    Args:
        stage: its tree; ``after``: what is asked of the rows that leave it.
        derived: columns computed of its inputs' rows; grows.
    """

    i: Input
    branch: StageBranch
    stage: Tree
    after: Sequence[Conjunct]
    derived: Derived
    errors: list[PlanError] = field(default_factory=list)

    def plan(
        self,
        columns: Mapping[str, Expr],
        filters: Sequence[Expr],
        conditions: Sequence[Expr],
        not_null: Sequence[str],
        *,
        matchable: bool,
    ) -> FeedPlan:
        """The plan of the feed.

        Args:
            columns: what the input keeps, as expressions over its columns, unqualified.
            filters, conditions: over its columns; see `FeedPlan`.
            not_null: of ``columns`` those whose NULL lets a row match nothing.
        """
        outputs = {output.name: output.expr for output in self.stage.query.outputs}
        own = columns_of(self.branch, self.i, outputs)
        wanted = {name: cast(Expr, over_source(expr, own).unnest()) for name, expr in columns.items()}
        above = [] if self.branch.above is None else [over_source(self.branch.above, outputs)]
        asked = {
            "beneath": [c.expr for c in self.after],
            "filter": [*above, *(over_source(expr, own) for expr in filters)],
            "condition": [over_source(expr, own) for expr in conditions],
        }
        names = {kind: [ours(f"{kind}{n}") for n, _ in enumerate(exprs, 1)] for kind, exprs in asked.items()}
        truths = {
            name: _truth(expr)
            for kind, exprs in asked.items()
            for name, expr in zip(names[kind], exprs, strict=True)
        }
        copied: dict[str, str] = {}
        computed: dict[str, Expr] = {}
        exact: list[TypedTree] = []
        for name, expr in (wanted | truths).items():
            held = self._column(expr)
            if held is not None:
                copied[name] = held
            elif (compiled := self._computed(expr)) is not None:
                computed[name] = expr
                exact.append(compiled)
        return FeedPlan(
            node=self.stage.root.number,
            copied=tuple(copied.items()),
            computed=tuple((name, after_join(expr)) for name, expr in computed.items()),
            computed_exact=tuple((value.tree, value.type) for value in exact),
            beneath=tuple(names["beneath"]),
            filters=tuple(names["filter"]),
            conditions=tuple(names["condition"]),
            not_null=tuple(not_null),
            matchable=matchable,
            event_times=tuple(
                (column, name_of(time))
                for column in self.i.event_times
                if (time := time_of(self.branch, self.i, column)) is not None
            ),
        )

    def _column(self, expr: Expr) -> str | None:
        """The column of the stage's rows that holds ``expr``; None: it has to be computed of them."""
        plain = expr.unnest()
        if isinstance(plain, exp.Column):
            return joined_name(plain.table, plain.name)
        aliases = self.stage.rows.mentioned(expr)
        if self.stage.query.aggregation is not None or len(aliases) != 1 or aliases[0] in self.stage.padded:
            return None
        return joined_name(aliases[0], self.derived.column(aliases[0], expr))

    def _computed(self, expr: Expr) -> TypedTree | None:
        compiled = in_tasks(
            Conjunct(expr),
            self.stage.rows,
            *(_OF_GROUPS if self.stage.query.aggregation is not None else _of_joins(self.i)),
        )
        if isinstance(compiled, PlanError):
            self.errors.append(compiled)
            return None
        return compiled


def _of_joins(i: Input) -> tuple[str, str]:
    return (
        (f"a column of {i.alias} that uses several inputs of a join, or one that the join pads with NULLs"),
        "compute it from one input before the join, or in the last SELECT after all joins",
    )


def _truth(condition: Expr) -> Expr:
    return exp.Coalesce(this=exp.Paren(this=condition.copy()), expressions=[exp.false()])
