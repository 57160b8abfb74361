"""Rankings: how many rows per partition, and counts of rows per key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.names import KEY_ROWS
from watersmeet.plan.conditions.conjuncts import Conjunct, join_all, split
from watersmeet.plan.conditions.rewrites import conjuncts_of
from watersmeet.spec.aggregates import Ranking
from watersmeet.spec.model import (
    Aggregation,
    Branch,
    Column,
    Expr,
    Input,
    OutputColumn,
    Query,
    Relation,
    StageBranch,
)
from watersmeet.types.sql_type import BIGINT, PLAIN, UNKNOWN, SqlType

# Rule: how many rows of each partition ROW_NUMBER() is asked for, by the filters above it.
#
# A row with a greater number passes none of them, so it need not come there: in whatever joins stand
# between, for a row that a join pads in its place has no number, and does not pass either. A condition of
# a join says the same of a side that it does not pad. A filter of rows whose numbers say so already falls
# away.

_MAX_INT = 2**31 - 1
"""The greatest INT, which a number is."""
_FLIPPED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.LTE: exp.GTE,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.GT: exp.LT,
    exp.EQ: exp.EQ,
}


def limit_rankings(query: Query) -> Query:
    """Return the query with a row limit on every ranking.

    Raises:
        PlanError: No condition limits a ranking.
    """
    ranking = _unlimited_ranking(query)
    if ranking is not None:
        raise _without_limit(ranking)
    return _limit_stages(query)


def _limit_stages(query: Query) -> Query:
    kept = list(split(query.where))

    def of_input(i: Input, above: Sequence[Conjunct]) -> Input:
        branches: list[Branch | StageBranch] = []
        for branch in i.branches:
            if not isinstance(branch, StageBranch):
                branches.append(branch)
                continue
            limit = _limit(i, branch, above)
            branches.append(limit.branch)
            if i is query.relation and len(i.branches) == 1:
                kept[:] = [c for c in kept if not limit.is_implied(c)]
        return replace(i, branches=tuple(branches))

    def of_part(part: Relation, above: Sequence[Conjunct]) -> Relation:
        if isinstance(part, Input):
            return of_input(part, above)
        above, on = [*above, *split(part.where)], split(part.on)
        left = of_part(part.left, above if part.kind.pads_left else [*above, *on])
        right = of_part(part.right, above if part.kind.pads_right else [*above, *on])
        return replace(part, left=left, right=right)

    relation = of_part(query.relation, list(kept))
    return replace(query, relation=relation, where=join_all([c.expr for c in kept]))


_Bound = tuple[Expr, int, bool]
"""A conjunct, the greatest number that passes it, and whether all up to that do."""


@dataclass(frozen=True)
class _Limit:
    """A branch, and the filters above its input that say how many rows of it are wanted."""

    branch: StageBranch
    bounds: Sequence[_Bound] = ()
    most: int = 0

    def is_implied(self, conjunct: Conjunct) -> bool:
        """Return True if the condition holds for all numbers from 1 to ``most``."""
        return any(
            expr is conjunct.expr and whole and self.most <= value for expr, value, whole in self.bounds
        )


def _limit(i: Input, branch: StageBranch, above: Sequence[Conjunct]) -> _Limit:
    """Limit the stage of a branch by its own filters and those above the input.

    All stages below are limited, too.
    """
    stage = _limit_stages(branch.stage)
    ranking = _unlimited_ranking(stage)
    if ranking is None:
        return _Limit(replace(branch, stage=stage))
    names = {o.name for o in stage.outputs if _is_one_of(o.expr, "", {ranking.number})}
    columns = {
        column.name
        for column, expr in zip(i.columns, branch.columns, strict=True)
        if _is_one_of(expr, "", names)
    }
    own = split(branch.above)
    within, outside = _bounds(own, "", names), _bounds(above, i.alias, columns)
    if not within and not outside:  # states know the limits of conditions as they are written
        within, outside = _rewritten_bounds(own, "", names), _rewritten_bounds(above, i.alias, columns)
    if not within and not outside:
        raise _without_limit(ranking)
    most = max(0, min(_MAX_INT, *(value for _, value, _ in (*within, *outside))))
    limited_branch = replace(branch, stage=_with_limit(stage, most))
    inner = _Limit(limited_branch, within, most)
    filters = join_all([c.expr for c in own if not inner.is_implied(c)])
    return _Limit(replace(limited_branch, above=filters), outside, most)


def _unlimited_ranking(query: Query) -> Ranking | None:
    ranking = None if query.aggregation is None else query.aggregation.ranking
    return ranking if ranking is not None and ranking.most is None else None


def _with_limit(stage: Query, most: int) -> Query:
    aggregation = stage.aggregation
    assert aggregation is not None
    assert aggregation.ranking is not None
    ranking = replace(aggregation.ranking, most=most)
    return replace(stage, aggregation=replace(aggregation, ranking=ranking))


def _bounds(conjuncts: Iterable[Conjunct], alias: str, names: Collection[str]) -> list[_Bound]:
    """Return the conjuncts that limit the row number.

    Args:
        names: Columns that contain the row number.
    """
    bounds: list[_Bound] = []
    for conjunct in conjuncts:
        expr = conjunct.expr.unnest()
        kind = type(expr)
        if kind not in _FLIPPED:
            continue
        left, right = expr.this.unnest(), expr.expression.unnest()
        if _is_one_of(right, alias, names):
            left, right, kind = right, left, _FLIPPED[kind]
        value = _integer(right)
        if value is None or not _is_one_of(left, alias, names):
            continue
        if kind is exp.LTE:
            bounds.append((conjunct.expr, value, True))
        elif kind is exp.LT:
            bounds.append((conjunct.expr, value - 1, True))
        elif kind is exp.EQ:
            bounds.append((conjunct.expr, value, value == 1))
    return bounds


def _rewritten_bounds(conjuncts: Iterable[Conjunct], alias: str, names: Collection[str]) -> list[_Bound]:
    """Return the bounds of conjuncts as `plan.conditions.rewrites` has them: ``NOT n > 3``."""
    bounds: list[_Bound] = []
    for conjunct in conjuncts:
        parts = conjuncts_of(conjunct.expr)
        bounds += [
            (conjunct.expr, value, whole and len(parts) == 1)
            for _, value, whole in _bounds(parts, alias, names)
        ]
    return bounds


def _integer(expr: Expr) -> int | None:
    if isinstance(expr, exp.Neg):
        value = _integer(expr.this.unnest())
        return None if value is None else -value
    is_whole = isinstance(expr, exp.Literal) and not expr.is_string and expr.name.isdigit()
    return int(expr.name) if is_whole else None


def _is_one_of(expr: Expr, alias: str, names: Collection[str]) -> bool:
    plain = expr.unnest()
    return isinstance(plain, exp.Column) and plain.table == alias and plain.name in names


def _without_limit(ranking: Ranking) -> PlanError:
    return PlanError(
        f"{ranking.text} numbers all rows of a partition, because no filter limits the number: each new"
        " row would renumber the following rows",
        code="ranking-without-limit",
        hint="add a filter that compares the number with a constant (<=, <, = or BETWEEN): SELECT …"
        f" FROM (SELECT …, ROW_NUMBER() OVER (…) AS {ranking.number} FROM …) WHERE"
        f" {ranking.number} <= 3",
    )


# Rule: where nothing says that a result has one row per key of its sink, the rows of each key are
# counted.
#
# The result is grouped by the key: of each other column it has a value, and beside them is how many rows
# there are (`KEY_ROWS`). One row goes out as it is, for each value is its own; where there are more, the
# tick fails.

_ALIAS = "result"


def uncountable(query: Query, key: Collection[str]) -> str | None:
    """Return the reason why result rows cannot be counted by these columns.

    Returns:
        None if they can be counted.
    """
    if query.aggregation is not None:
        query = _wrap_as_stage(query)
    types = {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}
    for output in query.outputs:
        for column in output.expr.find_all(exp.Column):
            held = types.get((column.table, column.name), UNKNOWN)
            alone = output.name not in key or column is output.expr
            if alone and held not in PLAIN and not held.is_decimal:
                what = "an expression" if held == UNKNOWN else str(held)
                return f'the column "{output.name}" is made of {what}, of which groups keep no value'
    return None


def count_per_key(query: Query, key: Collection[str]) -> Query:
    """Return the query with one row per key and its number of rows.

    The count is `KEY_ROWS`, the last output.

    Args:
        query: A query that emits changes.
        key: Names of outputs.
    """
    if query.aggregation is not None:
        query = _wrap_as_stage(query)
    types = {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}

    def type_of(expr: Expr) -> SqlType:
        return types.get((expr.table, expr.name), UNKNOWN) if isinstance(expr, exp.Column) else UNKNOWN

    keys = [
        OutputColumn(f"key{n}", output.expr, output.origin)
        for n, output in enumerate((output for output in query.outputs if output.name in key), 1)
    ]
    names: dict[Expr, str] = {named.expr: named.name for named in keys}
    values: list[tuple[str, exp.Column]] = []
    for output in query.outputs:
        for column in output.expr.find_all(exp.Column):
            if output.name not in key and column not in names:
                names[column] = f"value{len(values) + 1}"
                values.append((names[column], column))
    aggregates = [
        OutputColumn(name, exp.AnyValue(this=column.copy()), column.sql("spark")) for name, column in values
    ]
    aggregates.append(OutputColumn(KEY_ROWS, exp.Count(this=exp.Star()), "rows of a key"))
    columns = [Column(named.name, type_of(named.expr)) for named in keys]
    columns += [Column(name, type_of(column)) for name, column in values]

    def above(expr: Expr) -> Expr:
        return expr.transform(lambda node: _column_ref(names[node]) if node in names else node)

    return replace(
        query,
        outputs=(
            *(replace(output, expr=above(output.expr)) for output in query.outputs),
            OutputColumn(KEY_ROWS, _column_ref(KEY_ROWS), "rows of a key"),
        ),
        aggregation=Aggregation(None, tuple(keys), tuple(aggregates), (*columns, Column(KEY_ROWS, BIGINT))),
    )


def _wrap_as_stage(query: Query) -> Query:
    """Wrap the query as the only stage that another query reads."""
    assert query.aggregation is not None
    types = {column.name: column.type for column in query.aggregation.columns}
    columns = tuple(Column(o.name, types.get(o.expr.name, UNKNOWN)) for o in query.outputs)
    outputs = tuple(
        OutputColumn(o.name, exp.column(exp.to_identifier(o.name, quoted=True), _ALIAS), o.origin)
        for o in query.outputs
    )
    branch = StageBranch(query, tuple(_column_ref(column.name) for column in columns))
    return Query(Input(_ALIAS, columns, (), (branch,)), None, outputs, query.sql, mode=query.mode)


def _column_ref(name: str) -> Expr:
    return exp.column(exp.to_identifier(name, quoted=True))
