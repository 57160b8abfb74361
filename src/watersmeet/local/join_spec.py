"""A join of two streams as data: columns, event times, a condition; and its plan, made and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from sqlglot import exp

from watersmeet.errors import (
    PlanError,
    SpecError,
    WatersmeetError,
    collect_errors,
    flat_enough,
    near_names,
    raise_all,
)
from watersmeet.local.conditions import ColumnRef, Condition, Length, check_condition, left, right
from watersmeet.names import is_node_alias, is_ours
from watersmeet.parser.ddl.settings import Settings
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.relations.columns import alias_expression
from watersmeet.relations.inputs import columns_of, event_times_of, relation_of
from watersmeet.relations.job import description_of
from watersmeet.relations.outputs import memory
from watersmeet.relations.relation import Relation
from watersmeet.relations.terms import length_us
from watersmeet.spec.model import Expr, Job, Join, Query, Source, inputs_of

JOINED = "joined"
"""The name of the query of a join as data."""

Times = Sequence[str] | Mapping[str, Length | None]


@dataclass(frozen=True, kw_only=True)
class JoinSpec:
    """Specification of a join of two streams.

    Attributes:
        left, right: columns, as a dictionary from name to SQL type.
        left_times, right_times: the event times among them: names, whose watermarks only
            `LocalJob.advance` raises; or a dictionary from name to lag, by which the watermark lags the
            greatest time seen (None: only explicit advances). Lengths are integers for integer times,
            otherwise a timedelta or a text such as ``"10 seconds"``.
        condition: the relation between two rows, see `watersmeet.local`.
        how: as in `Relation.join`.
        postpone: bounds on which the caller relies, ``{"right.t": {"left.t": c}}``: once the watermark
            of ``right.t`` is v, no left row below v − c is needed. They follow from the condition, so
            they are optional; given bounds are checked against the derived ones. A bound that would
            release rows that may still match is rejected. A longer one is also true: of several for
            one pair the smallest counts, and rows are not retained longer because of it.
        outputs: the columns of the result, by name; None: all columns of both sides (for semi and anti
            joins, of the left side); columns with the same name become ``side_column``.
        names: names of the two sides, as sources of the job, and before the dot in watermark keys.
        options: options by name, like SET in a job's text.

    Raises:
        SpecError: the specification is wrong; raised on creation.
        SeveralErrors: several parts are wrong.

    >>> from watersmeet import local
    >>> spec = local.JoinSpec(
    ...     left={"t": "BIGINT", "k": "STRING"}, right={"t": "BIGINT", "k": "STRING"},
    ...     left_times=["t"], right_times={"t": 5}, how="left",
    ...     condition=local.AllOf(
    ...         local.Equal(local.left("k"), local.right("k")),
    ...         local.Between(local.right("t"), local.left("t"), local.left("t") + 3)))
    >>> spec.postponed
    {'right.t': {'left.t': 3}, 'left.t': {'right.t': 0}}
    >>> list(spec.outputs_by_name)
    ['left_t', 'left_k', 'right_t', 'right_k']
    """

    left: Mapping[str, str]
    right: Mapping[str, str]
    left_times: Times
    right_times: Times
    condition: Condition
    how: str = "inner"
    postpone: Mapping[str, Mapping[str, Length]] | None = None
    outputs: Mapping[str, ColumnRef] | None = None
    names: tuple[str, str] = ("left", "right")
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        errors = [*_name_problems(self.names), *Settings().set_all(self.options)]
        with collect_errors(errors):
            check_condition(self.condition)
        with collect_errors(errors):
            _ = self._sources
        raise_all(errors)
        with collect_errors(errors), flat_enough():
            _ = self.job
        with collect_errors(errors):
            _ = self._needed
        raise_all(errors)

    @cached_property
    def _sources(self) -> list[Source]:
        errors: list[WatersmeetError] = []
        sources: list[Source] = []
        sides = ((self.left, self.left_times), (self.right, self.right_times))
        for name, (columns, times) in zip(self.names, sides, strict=False):
            with collect_errors(errors):
                sources.append(_source(name, columns, times))
        raise_all(errors)
        return sources

    @cached_property
    def relation(self) -> Relation:
        """The join as calls build it; ``postpone`` and ``options`` are no part of it."""
        one, other = (relation_of(source) for source in self._sources)
        joined = one.join(other, on=self._qualify_columns(self.condition.tree), how=self.how)
        return joined.select(
            *(
                alias_expression(self._qualify_columns(ref.tree), name)
                for name, ref in self.outputs_by_name.items()
            )
        )

    def _qualify_columns(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression with its sides called by their names."""
        tree, names = tree.copy(), dict(zip(("left", "right"), self.names, strict=True))
        for column in tree.find_all(exp.Column):
            column.set("table", exp.to_identifier(names[column.table], quoted=True))
        return tree

    @cached_property
    def job(self) -> Job:
        """Job as a description of `spec`, without ``postpone``, which `plan` checks."""
        job = description_of([self.relation.to_sink(memory(JOINED))], self.options)
        (insert,) = job.inserts
        return replace(job, inserts=(replace(insert, query=_with_quotes(insert.query)),))

    @cached_property
    def plan(self) -> JobPlan:
        """Plan of the join, for `LocalJob`.

        Raises:
            PlanError, SeveralErrors: the join cannot be planned.
        """
        plan = plan_job(self.job)
        raise_all(list(_too_short(self._needed, _derive_bounds(plan))))
        return plan

    @property
    def postponed(self) -> Mapping[str, Mapping[str, int]]:
        """All bounds that follow from the condition, as ``postpone`` has them."""
        return _derive_bounds(self.plan)

    @cached_property
    def outputs_by_name(self) -> Mapping[str, ColumnRef]:
        """The columns of the result."""
        if self.outputs is not None:
            given = self.outputs if isinstance(self.outputs, Mapping) else {"": self.outputs}
            for name, ref in given.items():
                is_column = isinstance(ref, ColumnRef) and isinstance(ref.tree, exp.Column)
                if not is_column or not isinstance(name, str) or not name:
                    message, hint = f"outputs: {name!r} is {ref!r}", '{"order_id": left("order_id"), …}'
                    raise SpecError(message, code="bad-value", hint=f"columns go out as they are: {hint}")
            return given
        sides = list(zip((left, right), self._sources, strict=True))
        sides = sides[:1] if self.how.endswith(("semi", "anti")) else sides
        names = [column.name.lower() for _, source in sides for column in source.columns]
        return {
            name if names.count(name.lower()) == 1 else f"{source.name}_{name}": side(name)
            for side, source in sides
            for name in (column.name for column in source.columns)
        }

    @cached_property
    def _needed(self) -> dict[tuple[str, str], int]:
        """Bounds on which the caller relies, by (by, evicted)."""
        types = {
            f"{source.name}.{time.column}": column.type
            for source in self._sources
            for time in source.event_times
            if (column := source.column(time.column)) is not None
        }
        asked = {
            (by, evicted): length
            for by, bounds in (self.postpone or {}).items()
            for evicted, length in (bounds.items() if isinstance(bounds, Mapping) else [(bounds, None)])
        }
        for key in (key for pair in asked for key in pair if key not in types):
            message, hint = f"postpone: {key!r} is not an event time of the join", near_names(str(key), types)
            raise SpecError(message, code="unknown-column", hint=hint)
        return {
            (by, evicted): _units(length, types[evicted].is_time, f"postpone: {by} to {evicted}")
            for (by, evicted), length in asked.items()
        }


def _name_problems(names: Any) -> Iterator[WatersmeetError]:
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != 2:
        hint = 'names of both sides: ("orders", "deliveries")'
        yield SpecError(f"names is {names!r}", code="bad-value", hint=hint)
        return
    for name in names:
        if not isinstance(name, str) or not name.strip() or set(name) & set("./"):
            message = f"{name!r} is not a name of a side"
            yield SpecError(message, code="bad-value", hint="letters, digits and _")
        elif is_ours(name) or is_node_alias(name):
            yield SpecError(f'names like "{name}" are taken', code="bad-value", hint="use another one")
    if str(names[0]).lower() == str(names[1]).lower():
        message = f'both sides are named "{names[0]}"'
        yield SpecError(message, code="duplicate-name", hint="give each a name of its own")


def _source(name: str, columns: Any, times: Any) -> Source:
    declared, _ = columns_of(columns, name)
    if isinstance(times, str) or not isinstance(times, Sequence | Mapping):
        message, hint = f'times of "{name}" are {times!r}', '["t"], or {"t": "10 seconds"}'
        raise SpecError(message, code="bad-value", hint=hint)
    lags: Mapping[str, Any] = times if isinstance(times, Mapping) else dict.fromkeys(times)
    event_times = tuple(
        time if lag is not None else replace(time, lag=None)  # else a lag of none is one of 0
        for time, lag in zip(event_times_of(name, declared, lags, None), lags.values(), strict=True)
    )
    return Source(name, declared, "memory", {}, event_times)


def _units(length: Any, is_time: bool, where: str) -> int:
    """Return a length in units of an event time, which are µs unless the time is an integer."""
    if is_time and isinstance(length, str):
        return length_us(length, where)
    if is_time and isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if is_time or isinstance(length, bool) or not isinstance(length, int):
        hint = 'write "10 seconds", or a timedelta' if is_time else "write a whole number"
        raise SpecError(f"{where} is {length!r}", code="bad-value", hint=hint)
    return length


def _with_quotes(query: Query) -> Query:
    """Quote all names of the query, as the state fingerprints of earlier versions have them."""
    join = query.relation
    assert isinstance(join, Join)
    left, right = (
        replace(
            side,
            branches=tuple(
                replace(b, columns=tuple(map(_quote_identifiers, b.columns))) for b in side.branches
            ),
        )
        for side in inputs_of(join)
    )
    on = None if join.on is None else _quote_identifiers(join.on)
    outputs = tuple(replace(output, expr=_quote_identifiers(output.expr)) for output in query.outputs)
    return replace(query, relation=replace(join, left=left, right=right, on=on), outputs=outputs)


def _quote_identifiers(expr: Expr) -> Expr:
    tree = expr.copy()
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", True)
    return tree


def _derive_bounds(plan: JobPlan) -> dict[str, dict[str, int]]:
    """Return the derived postpone map of the only join: the smallest bound per pair."""
    bounds = [bound for node in plan.queries[0].nodes for bound in node.bounds]
    derived: dict[str, dict[str, int]] = {}
    for bound in bounds:
        own = derived.setdefault(bound.by, {})
        own[bound.evicted] = min(own.get(bound.evicted, bound.c), bound.c)
    return derived


def _too_short(
    asked: Mapping[tuple[str, str], int], derived: Mapping[str, Mapping[str, int]]
) -> Iterator[PlanError]:
    for (by, evicted), c in asked.items():
        least = derived.get(by, {}).get(evicted)
        if least is None:
            yield PlanError(
                f"postpone: no condition bounds rows of {evicted} by {by}",
                code="postpone-too-short",
                hint="add a bound between the two to the condition; otherwise rows that may still match"
                " would be lost",
            )
        elif c < least:
            yield PlanError(
                f"postpone: rows of {evicted} are needed until {by} is {least} past them, but the"
                f" postpone value is {c}",
                code="postpone-too-short",
                hint="remove it: it follows from the condition",
            )
