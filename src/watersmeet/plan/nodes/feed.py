"""Rule: what later joins need of rows that come from a join: which columns hold it, and who computes it.

A plain column is there already. An expression over one input that is never padded beneath is computed of
that input's rows, by Spark, and travels along. What mentions several inputs, or one whose columns may be
NULL because it was padded, can only be computed of the joined rows, in the task: what is on the list of
`expressions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.expressions.typed_tree import TypedTree
from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import Conjunct, text_of
from watersmeet.plan.conditions.keys import Equality, bare
from watersmeet.plan.conditions.residual import after_join, in_tasks
from watersmeet.plan.join_inputs import JoinInputs, Ref, refs
from watersmeet.plan.model.sides import FeedPlan, joined_name
from watersmeet.plan.nodes.tree import Node
from watersmeet.spec.model import Expr


@dataclass
class Derived:
    """Columns computed of inputs' rows for joins above: per alias, name -> expression over bare columns."""

    columns: dict[str, dict[str, Expr]] = field(default_factory=dict)

    def column(self, alias: str, expr: Expr) -> str:
        """The name of the column that holds ``expr``."""
        exprs = self.columns.setdefault(alias, {})
        own = bare(expr)
        for name, held in exprs.items():
            if held == own:
                return name
        name = ours(f"expr{len(exprs) + 1}")
        exprs[name] = own
        return name


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


@dataclass
class Feed:
    """The side of a join that takes the rows of a join beneath, while it is being planned."""

    node: Node
    side: Side
    derived: Derived
    computed: dict[str, Expr] = field(default_factory=dict)
    exact: dict[str, TypedTree] = field(default_factory=dict)
    errors: list[PlanError] = field(default_factory=list)

    @property
    def join_inputs(self) -> JoinInputs:
        return self.node.join_inputs

    def key(self, number: int, equality: Equality) -> str:
        """The column that holds a key's values on this side."""
        expr = equality.expr(self.side)
        if isinstance(expr, exp.Column) and not self.join_inputs.is_event_time((expr.table, expr.name)):
            return joined_name(expr.table, expr.name)
        if equality.is_open:
            self.errors.append(open_key(expr))
        return self.held(expr, ours(f"key{number + 1}"))

    def truth(self, number: int, conjunct: Conjunct) -> str:
        """The column that says whether a condition on this side alone is TRUE."""
        expr = exp.Coalesce(this=exp.Paren(this=conjunct.expr.copy()), expressions=[exp.false()])
        return self.held(expr, ours(f"condition{number + 1}"), conjunct)

    def held(self, expr: Expr, name: str, conjunct: Conjunct | None = None) -> str:
        """The column that holds ``expr``: ``name``, if it has to be computed of the rows."""
        aliases = self.join_inputs.mentioned(expr)
        if len(aliases) == 1 and aliases[0] not in self.node.nullable(self.side):
            return joined_name(aliases[0], self.derived.column(aliases[0], expr))
        if not isinstance(expr, exp.Column):
            compiled = in_tasks(conjunct or Conjunct(expr), self.join_inputs)
            if isinstance(compiled, PlanError):
                self.errors.append(compiled)
                return name
            self.exact[name] = compiled
        self.computed[name] = expr
        return name

    def plan(
        self,
        keys: Sequence[tuple[str, bool]],
        filters: Sequence[Conjunct],
        conditions: Sequence[Conjunct],
        never_null: Sequence[Ref],
        *,
        matchable: bool,
    ) -> Callable[[Sequence[str]], FeedPlan]:
        """The plan of the feed, once it is known which columns are kept.

        Args:
            keys: (column, null-safe).
            filters, conditions: on this side alone; see `FeedPlan`.
            never_null: columns whose NULL lets a row match nothing.
        """
        child = self.node.side(self.side)
        assert isinstance(child, Node)
        whole = [self.truth(number, conjunct) for number, conjunct in enumerate([*filters, *conditions])]
        not_null = [column for column, null_safe in keys if not null_safe]
        not_null += [joined_name(*ref) for ref in never_null]
        plain = {
            name: joined_name(e.table, e.name)
            for name, e in self.computed.items()
            if isinstance(e, exp.Column)
        }
        others = {name: e for name, e in self.computed.items() if name not in plain}

        def made(kept: Sequence[str]) -> FeedPlan:
            names = dict.fromkeys([*kept, *whole, *not_null])
            return FeedPlan(
                node=child.number,
                copied=tuple((name, plain.get(name, name)) for name in names if name not in others),
                computed=tuple((name, after_join(expr)) for name, expr in others.items()),
                computed_exact=tuple((self.exact[name].tree, self.exact[name].type) for name in others),
                beneath=(),
                filters=tuple(whole[: len(filters)]),
                conditions=tuple(whole[len(filters) :]),
                not_null=tuple(dict.fromkeys(not_null)),
                matchable=matchable,
            )

        return made


def needed(plan: FeedPlan) -> set[str]:
    """Columns that have to leave the node beneath."""
    wanted = {column for _, column in plan.copied}
    for _, expr in plan.computed:
        wanted |= {name for _, name in refs(expr)}
    return wanted


def open_key(expr: Expr) -> PlanError:
    """A key whose type only Spark can tell, of rows that Spark does not see."""
    return PlanError(
        f"the type of {text_of(expr)} is not known before the job runs",
        code="wrong-types",
        hint="cast both sides of the equality to the same type",
    )
