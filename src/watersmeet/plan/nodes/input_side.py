"""A side of a node that is an input: retained columns, primary keys, indexes, several roles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.names import FLAG
from watersmeet.plan.conditions.conjuncts import Conjunct, join_all
from watersmeet.plan.conditions.flags import SideConditions, flag_of, over_source
from watersmeet.plan.conditions.keys import bare
from watersmeet.plan.model.nodes import Arranged, ArrangePlan, LookupKey
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, KeyPlan, SidePlan, joined_name
from watersmeet.plan.nodes.columns import (
    RetainedColumns,
    branch_columns,
    retained_columns,
    source_columns,
)
from watersmeet.plan.nodes.join import Draft
from watersmeet.plan.nodes.tree import IndexNode
from watersmeet.plan.query_inputs import Ref, refs
from watersmeet.spec.model import (
    Branch,
    Column,
    ComputedColumn,
    Expr,
    Input,
    OutputColumn,
    Query,
    Source,
    StageBranch,
    with_bare,
    with_branches,
)
from watersmeet.spec.model import bare as bare_name
from watersmeet.spec.records.changes import computed_of_key
from watersmeet.types.arrow import in_arrow

# Rule: the records of a table with a primary key are changes of rows, and no rows yet; nor is what a
# table holds that is compared with what it held before. What says which row goes and which comes is a
# stage beneath every input that reads the table (`plan.nodes.tree.UpsertNode`, `SnapshotNode`).
#
# Filters and expressions of views stand above it: a record that no longer passes a filter still takes the
# row away that did.


def read_keyed_tables(query: Query) -> Query:
    """Return the query with tables that have a key or are compared read through stages.

    This includes the stages of the query.
    """
    return with_branches(query, _branch)


def _branch(branch: Branch) -> Branch | StageBranch:
    if branch.source.primary_key is None and not branch.source.compared:
        return branch
    above = join_all([condition for condition in (branch.beneath, branch.above) if condition is not None])
    over_stage = partial(_rewrite_over_stage, computed_of_key(branch.source))
    columns = tuple(map(over_stage, branch.columns))
    return StageBranch(_stage(branch.source), columns, None if above is None else over_stage(above))


def _rewrite_over_stage(computed: Sequence[ComputedColumn], expr: Expr) -> Expr:
    """Return an expression over the rows of the stage, which have the key as it is kept."""

    def one(node: exp.Expression) -> exp.Expression:
        own = next((own for own in computed if own.expr == node and node.find(exp.Column)), None)
        return node if own is None else _qualified_column(own.column)

    if not computed:
        return expr
    replaced, stored = expr.transform(one), bare_name(expr)
    return replaced if stored is expr else with_bare(replaced, stored.transform(one))


def _stage(source: Source) -> Query:
    """Build the query that reads the rows of a table."""
    computed = computed_of_key(source)
    columns = (*source.row_columns, *(own.column for own in computed))
    values = (*map(_qualified_column, source.row_columns), *(own.expr for own in computed))
    records = Input(source.name, columns, (), (Branch(source, values),))
    outputs = tuple(
        OutputColumn(column.name, _qualified_column(column, source.name), f"{source.name}.{column.name}")
        for column in columns
    )
    return Query(records, None, outputs, f"SELECT * FROM {source.name}")


def _qualified_column(column: Column, alias: str | None = None) -> Expr:
    table = None if alias is None else exp.to_identifier(alias, quoted=True)
    return exp.Column(this=exp.to_identifier(column.name, quoted=True), table=table)


# The node of an index: the rows of one table, under the keys by which others look them up.


def index_plan(node: IndexNode, side: SidePlan, filters: Sequence[tuple[str, str]]) -> ArrangePlan:
    """Build the plan that stores all rows of ``side`` by the first key.

    The other keys find the rows, too. Rows with NULL in a key are stored as well, because a later query
    may look them up by another key.
    """
    texts = [", ".join(f"{side.title}.{column}" for column in key) for key in node.by]
    (keys, text), *others = zip(node.by, texts, strict=True)
    return ArrangePlan(
        number=node.number,
        sides=(side,),
        filters=tuple(filters),
        arranged=(Arranged(keys, (), text, tuple(LookupKey(*other) for other in others)),),
        retentions=(),
    )


# A side of a node that is an input: what it keeps, what Spark evaluates, what comes from stages.

_NULL_OF_NULL = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Paren,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
)
"""What is NULL if anything in it is."""

OfStage = Callable[[int, Mapping[str, Expr], SideConditions, Sequence[str]], FeedPlan]
"""Plans the feed of a branch that is a stage: its number, the kept columns, conditions, columns not NULL."""


def _without_quotes(text: str) -> str:
    return text.replace("`", "")


@dataclass(frozen=True)
class InputSide:
    """Requirements of a node for one of its inputs.

    Attributes:
        keys: Keys of the node.
        filters: Conditions on the input alone that drop rows.
        derived: Columns computed from its rows, (name, expression over bare columns).
        leaving: Joined names of the columns that leave the node.
    """

    draft: Draft
    side: Side
    keys: tuple[KeyPlan, ...]
    filters: Sequence[Conjunct]
    derived: Mapping[str, Expr]
    leaving: Collection[str]
    timed: str | None = None
    """A time that is not NULL in a row of a window."""

    @property
    def input(self) -> Input:
        side_input = self.draft.node.side(self.side)
        assert isinstance(side_input, Input)
        return side_input

    def plan(self, of_stage: OfStage) -> SidePlan:
        i, node = self.input, self.draft.node
        computed, kept, conditions = self.computed(), self.kept(), self._conditions()
        branches: list[BranchPlan | FeedPlan] = []
        for number, branch in enumerate(i.branches):
            if isinstance(branch, Branch):
                columns = source_columns(i, branch)
                branches.append(
                    BranchPlan(
                        source=branch.source,
                        lags=branch.lags,
                        columns=branch_columns(
                            kept,
                            computed,
                            columns,
                            first=[] if branch.beneath is None else [branch.beneath],
                            then=[
                                *([] if branch.above is None else [branch.above]),
                                *(over_source(expr, columns) for expr in conditions.filters),
                            ],
                            there=self.there(columns),
                            times=i.event_times,
                        ),
                        flag=flag_of(branch, conditions, columns),
                        words=self.words(),
                    )
                )
            else:
                held = {name: computed.get(name, _quoted_column(name)) for name in kept.kept}
                branches.append(of_stage(number, held, conditions, self.never_null()))
        nullable = node.open_times(self.side)
        return SidePlan(
            name=i.alias,
            inputs=(i,),
            branches=tuple(branches),
            feed=None,
            event_times=i.event_times,
            kept=kept.kept,
            carried=kept.carried,
            nullable=tuple(column for column in i.event_times if (i.alias, column) in nullable),
            padded=node.padded(self.side),
            passes=node.passes,
            not_null=self.not_null(),
        )

    def computed(self) -> dict[str, Expr]:
        """Return the columns computed from its rows, as expressions over bare columns."""
        return {key.column(self.side): key.expr(self.side) for key in self.keys} | dict(self.derived)

    def _conditions(self) -> SideConditions:
        return SideConditions(
            filters=tuple(bare(c.expr) for c in self.filters),
            one_sided=tuple(bare(c.expr) for where, c in self.draft.parts.one_sided if where is self.side),
            matchable=self.draft.matchable,
        )

    def words(self) -> tuple[tuple[str, str], ...]:
        """Return the written conditions for which columns are computed from a row.

        A key is computed only for rows that meet the conditions on them alone, so one of these conditions
        may be what fails.
        """
        texts = [key.text for key in self.keys if key.text]
        own = [c.text for c in self.filters]
        own += [c.text for where, c in self.draft.parts.one_sided if where is self.side]
        flag = " AND ".join(dict.fromkeys(map(_without_quotes, [*own, *texts])))
        of_keys = [
            (key.column(self.side), flag if own else _without_quotes(key.text))
            for key in self.keys
            if key.text
        ]
        return (*of_keys, *([(FLAG, flag)] if flag else []))

    def kept(self) -> RetainedColumns:
        i = self.input
        names = [column.name for column in i.columns]
        key_columns = [key.column(self.side) for key in self.keys]
        needed = {
            *i.event_times,
            *(column for _, column in compared_refs(self.draft, self.side)),
            *key_columns,
        }
        needed |= set(self.draft.node.looked_at)
        if i.names_whole_rows:
            needed |= set(names)
        every = [*names, *self.derived, *key_columns]
        kept = retained_columns(every, lambda name: joined_name(i.alias, name), needed, self.leaving)
        return (
            kept if kept.kept else RetainedColumns((names[0],), ())
        )  # rows without a column could not be counted

    def not_null(self) -> tuple[str, ...]:
        """Return the keys and band columns whose NULL lets the row match nothing.

        An event time of a source is never NULL here.
        """
        i = self.input
        keys = [key.column(self.side) for key in self.keys if not key.null_safe]
        bands = [column for alias, column in self.draft.parts.band_columns if alias == i.alias]
        return tuple(column for column in dict.fromkeys([*keys, *bands]) if column not in i.event_times)

    def there(self, columns: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """Return the columns of the source whose NULL drops a row.

        Spark checks them before it computes the keys of the side.
        """
        if self.draft.node.padded(self.side):
            return ()
        keys = [bare(key.expr(self.side)) for key in self.keys if not key.null_safe]
        sums = (e for e in keys if all(isinstance(node, _NULL_OF_NULL) for node in e.walk()))
        own = (column for alias, column in self.draft.parts.band_columns if alias == self.input.alias)
        wanted = [*map(_quoted_column, own), *(column for e in sums for column in e.find_all(exp.Column))]
        exprs = (over_source(e, columns) for e in wanted if e.name not in self.input.event_times)
        return tuple(dict.fromkeys(e for e in exprs if isinstance(e, exp.Column)))

    def never_null(self) -> tuple[str, ...]:
        """Return the retained columns whose NULL lets a row of a stage match nothing.

        These are keys, band columns and bounded times.
        """
        keys = [key.column(self.side) for key in self.keys if not key.null_safe]
        columns = [ref[1] for ref in never_null(self.draft, self.side)]
        columns += [] if self.timed is None else [self.timed]
        return tuple(dict.fromkeys([*keys, *columns]))

    def problems(self, plan: SidePlan) -> list[PlanError]:
        """Return errors for columns of a UNION ALL with stages whose type is unknown in advance.

        The branches of such a UNION ALL meet in files, which Spark does not see.
        """
        i = self.input
        if not plan.stages or len(plan.branches) == 1:
            return []
        return [
            PlanError(
                f"the type of {i.alias}.{column.name} is not known before the job runs ({column.type})",
                code="wrong-types",
                hint="cast it to the same type in every branch of the UNION ALL",
            )
            for column in i.columns
            if column.name in plan.kept and in_arrow(column.type) is None
        ]


def never_null(draft: Draft, side: Side) -> list[Ref]:
    """Return the columns of a side whose NULL lets its rows match nothing: bounds and bands."""
    timed = [ref for part in draft.parts.times for ref in part.refs]
    candidates = dict.fromkeys([*timed, *draft.parts.band_columns])
    return [ref for ref in candidates if draft.join_inputs.side(ref[0]) is side]


def compared_refs(draft: Draft, side: Side) -> list[Ref]:
    """Return the columns of a side that bands and the residual use."""
    candidates = [ref for part in draft.parts.bands for ref in part.refs]
    if draft.residual is not None:
        mentioned = [ref for conjunct in draft.conjuncts for ref in refs(conjunct.expr)]
        candidates += [ref for ref in mentioned if joined_name(*ref) in draft.residual.columns]
    return [ref for ref in dict.fromkeys(candidates) if draft.join_inputs.side(ref[0]) is side]


def _quoted_column(name: str) -> Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


# An input that several nodes look at in different ways, as one side: what any of them needs of it.


@dataclass(frozen=True)
class SeveralRoles(InputSide):
    """Input that several nodes use.

    A row that can match nothing in one of the roles leads to no result at all.

    Attributes:
        roles: Requirements of each node, all with the same conditions on the input alone.
    """

    roles: Sequence[InputSide] = ()

    @classmethod
    def of(cls, roles: Sequence[InputSide]) -> SeveralRoles:
        first = roles[0]
        return cls(**{f.name: getattr(first, f.name) for f in fields(first)}, roles=tuple(roles))

    def computed(self) -> dict[str, Expr]:
        return {name: expr for role in self.roles for name, expr in role.computed().items()}

    def kept(self) -> RetainedColumns:
        wanted = [role.kept() for role in self.roles]
        kept = {name for own in wanted for name in own.kept}
        carried = {name for own in wanted for name in own.carried}
        names = dict.fromkeys([*(column.name for column in self.input.columns), *self.computed()])
        return RetainedColumns(tuple(n for n in names if n in kept), tuple(n for n in names if n in carried))

    def words(self) -> tuple[tuple[str, str], ...]:
        return tuple({name: text for role in self.roles for name, text in role.words()}.items())

    def not_null(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for role in self.roles for name in role.not_null()))

    def there(self, columns: Mapping[str, Expr]) -> tuple[Expr, ...]:
        return tuple(dict.fromkeys(expr for role in self.roles for expr in role.there(columns)))

    def never_null(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for role in self.roles for name in role.never_null()))
