"""Columns that later joins and inputs need of a join or a stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.expressions.typed_tree import TypedTree
from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import Conjunct, join_all, text_of
from watersmeet.plan.conditions.flags import over_source
from watersmeet.plan.conditions.keys import Equality, bare
from watersmeet.plan.conditions.residual import compile_for_tasks, to_joined_names
from watersmeet.plan.model.job import FoldedQuery
from watersmeet.plan.model.sides import FeedPlan, joined_name
from watersmeet.plan.nodes.tree import QueryNode, Tree
from watersmeet.plan.query_inputs import JoinInputs, Ref, name_of, refs
from watersmeet.spec.model import Expr, Input, OutputColumn, Query, Relation, StageBranch, inputs_of
from watersmeet.spec.stages import time_of

# Rule: what later joins need of rows that come from a join: which columns hold it, and who computes it.
#
# A plain column is there already. An expression over one input that is never padded beneath is computed
# of that input's rows, by Spark, and travels along. What mentions several inputs, or one whose columns
# may be NULL because it was padded, can only be computed of the joined rows, in the task: what is on the
# list of `expressions`.


@dataclass
class Derived:
    """Columns computed of inputs' rows for joins above: per alias, name -> expression over bare columns."""

    columns: dict[str, dict[str, Expr]] = field(default_factory=dict)

    def column(self, alias: str, expr: Expr) -> str:
        """Return the name of the column that stores ``expr``, and add the column if it is new."""
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
    """Return the column of a relation's rows that stores an expression over one input."""
    (alias,) = {alias for alias, _ in refs(expr)}
    if expr.key == "column":
        return joined_name(alias, expr.name)
    return joined_name(alias, derived.column(alias, expr))


@dataclass
class PlannedFeed:
    """Draft of a join side that takes the rows of a join below."""

    node: QueryNode
    side: Side
    derived: Derived
    computed: dict[str, Expr] = field(default_factory=dict)
    exact: dict[str, TypedTree] = field(default_factory=dict)
    errors: list[PlanError] = field(default_factory=list)

    @property
    def join_inputs(self) -> JoinInputs:
        return self.node.join_inputs

    def key(self, number: int, equality: Equality) -> str:
        """Return the column that stores the values of a key on this side."""
        expr = equality.expr(self.side)
        if isinstance(expr, exp.Column) and not self.join_inputs.is_event_time((expr.table, expr.name)):
            return joined_name(expr.table, expr.name)
        if equality.is_open:
            self.errors.append(open_key(expr))
        return self.held(expr, ours(f"key{number + 1}"))

    def condition_column(self, number: int, conjunct: Conjunct) -> str:
        """Return the column that is TRUE where a condition on this side alone holds."""
        expr = exp.Coalesce(this=exp.Paren(this=conjunct.expr.copy()), expressions=[exp.false()])
        return self.held(expr, ours(f"condition{number + 1}"), conjunct)

    def held(self, expr: Expr, name: str, conjunct: Conjunct | None = None) -> str:
        """Return the column that stores ``expr``; it is ``name`` if the rows have to compute it."""
        aliases = self.join_inputs.mentioned(expr)
        if len(aliases) == 1 and aliases[0] not in self.node.nullable(self.side):
            return joined_name(aliases[0], self.derived.column(aliases[0], expr))
        if not isinstance(expr, exp.Column):
            compiled = compile_for_tasks(conjunct or Conjunct(expr), self.join_inputs)
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
        """Return a function that plans the feed once the retained columns are known.

        Args:
            keys: (column, null-safe).
            filters: Filters on this side alone; see `FeedPlan`.
            conditions: Conditions on this side alone; see `FeedPlan`.
            never_null: Columns whose NULL lets a row match nothing.
        """
        child = self.node.side(self.side)
        assert isinstance(child, QueryNode)
        whole = [
            self.condition_column(number, conjunct) for number, conjunct in enumerate([*filters, *conditions])
        ]
        not_null = [column for column, null_safe in keys if not null_safe]
        not_null += [joined_name(*ref) for ref in never_null]
        plain = {
            name: joined_name(e.table, e.name)
            for name, e in self.computed.items()
            if isinstance(e, exp.Column)
        }
        others = {name: e for name, e in self.computed.items() if name not in plain}

        def build_feed(kept: Sequence[str]) -> FeedPlan:
            names = dict.fromkeys([*kept, *whole, *not_null])
            return FeedPlan(
                node=child.number,
                copied=tuple((name, plain.get(name, name)) for name in names if name not in others),
                computed=tuple((name, to_joined_names(expr)) for name, expr in others.items()),
                computed_exact=tuple((self.exact[name].tree, self.exact[name].type) for name in others),
                beneath=(),
                filters=tuple(whole[: len(filters)]),
                conditions=tuple(whole[len(filters) :]),
                not_null=tuple(dict.fromkeys(not_null)),
                matchable=matchable,
            )

        return build_feed


def needed_columns(plan: FeedPlan) -> set[str]:
    """Return the columns that have to leave the node below."""
    wanted = {column for _, column in plan.copied}
    for _, expr in plan.computed:
        wanted |= {name for _, name in refs(expr)}
    return wanted


def open_key(expr: Expr) -> PlanError:
    """Build the error for a key of unknown type over rows that Spark does not see."""
    return PlanError(
        f"the type of {text_of(expr)} is not known before the job runs",
        code="wrong-types",
        hint="cast both sides of the equality to the same type",
    )


# Rule: the inputs of stages have names of their own, for watermark keys and state go by them.
#
# An input ``a`` of the second branch of ``u`` is ``u.2.a``; of a stage that is all of ``u``, ``u.a``.
# Also here: a query over a stage alone is that stage, with its filter and outputs put on top.


def fold_stages(query: Query) -> FoldedQuery:
    """Fold inputs that consist of a single stage into the query.

    An index is not folded, because it retains the rows of that stage.
    """
    i = query.relation
    if query.aggregation is not None or query.indexed_by or not isinstance(i, Input) or len(i.branches) != 1:
        return FoldedQuery(query, None, query.outputs)
    (branch,) = i.branches
    if not isinstance(branch, StageBranch):
        return FoldedQuery(query, None, query.outputs)
    inner = fold_stages(branch.stage)
    columns = columns_of(branch, i, {output.name: output.expr for output in inner.outputs})
    after = [] if inner.after is None else [inner.after]
    if branch.above is not None:
        after.append(over_source(branch.above, {o.name: o.expr for o in inner.outputs}))
    if query.where is not None:
        after.append(over_source(query.where, columns))
    outputs = tuple(replace(o, expr=over_source(o.expr, columns)) for o in query.outputs)
    return FoldedQuery(inner.query, join_all(after), outputs)


def columns_of(branch: StageBranch, i: Input, outputs: Mapping[str, Expr]) -> dict[str, Expr]:
    """Return the input's columns on this branch, over what the stage's ``outputs`` mention."""
    return {
        column.name: over_source(expr, outputs)
        for column, expr in zip(i.columns, branch.columns, strict=True)
    }


def name_stage_inputs(query: Query) -> Query:
    """Give the inputs of all stages unique names; inputs of the query retain theirs.

    Raises:
        PlanError: Two inputs still have the same name.
    """
    renamed = _prefix_aliases(query, "")
    times = Counter(_aliases(renamed))
    twice = [alias for alias, number in times.items() if number > 1]
    if twice:
        raise PlanError(
            f'two inputs are named "{twice[0]}"', code="duplicate-name", hint="rename one of them with AS"
        )
    return renamed


def _aliases(query: Query) -> list[str]:
    aliases = []
    for i in query.inputs:
        aliases.append(i.alias)
        for stage in i.stages:
            aliases += _aliases(stage)
    return aliases


def _prefix_aliases(query: Query, prefix: str) -> Query:
    names = {i.alias: prefix + i.alias for i in inputs_of(query.relation)}

    def prefix_expr_aliases(expr: Expr) -> Expr:
        tree = expr.copy()
        for column in list(tree.find_all(exp.Column)) if prefix else ():
            own = column.args.get("table")
            if own is not None:
                quoted = bool(own.args.get("quoted"))
                column.set("table", exp.to_identifier(names[own.name], quoted=quoted))
        return tree

    def outputs(columns: tuple[OutputColumn, ...]) -> tuple[OutputColumn, ...]:
        return tuple(replace(column, expr=prefix_expr_aliases(column.expr)) for column in columns)

    def relation(part: Relation) -> Relation:
        if isinstance(part, Input):
            return _name_stages(replace(part, alias=names[part.alias]))
        return replace(
            part,
            left=relation(part.left),
            right=relation(part.right),
            on=None if part.on is None else prefix_expr_aliases(part.on),
            where=None if part.where is None else prefix_expr_aliases(part.where),
        )

    aggregation = query.aggregation
    if aggregation is not None:
        window = aggregation.window
        window = None if window is None else replace(window, time=prefix_expr_aliases(window.time))
        keys, aggregates = outputs(aggregation.keys), outputs(aggregation.aggregates)
        aggregation = replace(aggregation, window=window, keys=keys, aggregates=aggregates)
    return replace(
        query,
        relation=relation(query.relation),
        where=None if query.where is None else prefix_expr_aliases(query.where),
        outputs=outputs(query.outputs),
        aggregation=aggregation,
    )


def _name_stages(i: Input) -> Input:
    several = len(i.branches) > 1
    branches = [
        replace(branch, stage=_prefix_aliases(branch.stage, f"{i.alias}.{n}." if several else f"{i.alias}."))
        if isinstance(branch, StageBranch)
        else branch
        for n, branch in enumerate(i.branches, 1)
    ]
    return replace(i, branches=tuple(branches))


# Rule: what an input needs of the rows of a stage: which of its columns hold it, and who computes it.
#
# As with rows that go from join to join (`plan.nodes.feeds`): a plain column is there already; an
# expression over one input beneath that is never padded is computed of that input's rows, by Spark;
# anything else in the task, of the rows that leave the stage: what is on the list of `expressions`.

_OF_GROUPS = (
    "a column over the result of a group",
    "select keys and aggregates unchanged, and compute it in the last SELECT",
)


@dataclass
class StageFeed:
    """Draft of a branch of an input that is a stage.

    Args:
        stage: Tree of the stage.
        after: Conditions on the rows that leave the stage.
        derived: Columns computed from rows of its inputs; planning adds to them.
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
        """Build the plan of the feed.

        Args:
            columns: Columns that the input retains, as expressions over its unqualified columns.
            filters: Filters over its columns; see `FeedPlan`.
            conditions: Conditions over its columns; see `FeedPlan`.
            not_null: Entries of ``columns`` whose NULL lets a row match nothing.
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
            elif (compiled := self._compile_expression(expr)) is not None:
                computed[name] = expr
                exact.append(compiled)
        return FeedPlan(
            node=self.stage.root.number,
            copied=tuple(copied.items()),
            computed=tuple((name, to_joined_names(expr)) for name, expr in computed.items()),
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
        """Return the column of the stage's rows that stores ``expr``.

        Returns:
            None if the rows have to compute it.
        """
        plain = expr.unnest()
        if isinstance(plain, exp.Column):
            return joined_name(plain.table, plain.name)
        aliases = self.stage.rows.mentioned(expr)
        if self.stage.query.aggregation is not None or len(aliases) != 1 or aliases[0] in self.stage.padded:
            return None
        return joined_name(aliases[0], self.derived.column(aliases[0], expr))

    def _compile_expression(self, expr: Expr) -> TypedTree | None:
        compiled = compile_for_tasks(
            Conjunct(expr),
            self.stage.rows,
            *(_OF_GROUPS if self.stage.query.aggregation is not None else _join_column_texts(self.i)),
        )
        if isinstance(compiled, PlanError):
            self.errors.append(compiled)
            return None
        return compiled


def _join_column_texts(i: Input) -> tuple[str, str]:
    return (
        (f"a column of {i.alias} that uses several inputs of a join, or one that the join pads with NULLs"),
        "compute it from one input before the join, or in the last SELECT after all joins",
    )


def _truth(condition: Expr) -> Expr:
    return exp.Coalesce(this=exp.Paren(this=condition.copy()), expressions=[exp.false()])
