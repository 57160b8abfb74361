"""A join of two streams as data: columns, event times, a condition; and its plan, made and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlglot import exp

from watersmeet.errors import PlanError, SpecError, WatersmeetError, flat_enough, near_names, raise_all
from watersmeet.front.ddl.settings import Settings
from watersmeet.front.types.columns import type_named
from watersmeet.local.conditions import SIDES, ColumnRef, Condition, Length
from watersmeet.local.trees import Trees, length_us
from watersmeet.names import is_node_alias, is_ours
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.relations.columns import named
from watersmeet.relations.inputs import relation_of
from watersmeet.relations.job import description_of
from watersmeet.relations.outputs import memory
from watersmeet.relations.relation import Relation
from watersmeet.spec.model import Column, EventTime, Expr, Job, Join, Query, Source, inputs_of
from watersmeet.types.sql_type import INTEGERS, TIMES, SqlType

JOINED = "joined"
"""The name of the query of a join as data."""

HOW = ("inner", "left", "right", "full", "semi", "anti")

Times = Sequence[str] | Mapping[str, Length | None]


@dataclass(frozen=True, kw_only=True)
class JoinSpec:
    """A join of two streams.

    ``left``, ``right``: their columns, by name the SQL type of each. ``left_times``, ``right_times``: the
    event times among them: names, whose watermarks move by `LocalJob.advance` alone; or by name how far the
    watermark stays behind the greatest time seen (None: explicit advances alone). Lengths are whole numbers
    of integer times, of others a timedelta or a text such as ``"10 seconds"``. ``condition``: what two rows
    have to do with each other, see `watersmeet.local`. ``how``: inner, left, right, full, semi or anti.

    ``postpone``: bounds that the caller counts on, ``{"right.t": {"left.t": c}}``: once the watermark of
    ``right.t`` is v no left row below v − c is needed. They follow from the condition, so there is nothing to
    say; what is said is checked against what follows. One that would let rows go which may still match is
    refused. A longer one is true as well: of several for one pair the smallest counts, and rows stay no
    longer for it.

    ``outputs``: the columns of the result, by name; None: all columns of both sides (of semi and anti joins
    of the left one), those of one name as ``side_column``. ``names``: of the two sides, as sources of the
    job, and before the dot in watermark keys. ``options``: as SET of a job's text, by name.

    Raises, when it is made: SpecError, or SeveralErrors with all that is wrong.

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
        with flat_enough():
            raise_all(self._reading.problems)
        _ = self.relation

    @cached_property
    def relation(self) -> Relation:
        """The join as calls build it; ``postpone`` and ``options`` are no part of it."""
        reading = self._reading
        left, right = (relation_of(source) for source in reading.sources)
        return left.join(right, on=reading.condition, how=self.how).select(*reading.items)

    @cached_property
    def job(self) -> Job:
        """What is asked, as `spec` has it; without ``postpone``, which `plan` checks."""
        job = description_of([self.relation.to_sink(memory(JOINED))], self.options)
        (insert,) = job.inserts
        return replace(job, inserts=(replace(insert, query=_with_quotes(insert.query)),))

    @cached_property
    def plan(self) -> JobPlan:
        """How it is run, for `LocalJob`. Raises: PlanError, or SeveralErrors, when it cannot be."""
        plan = plan_job(self.job)
        raise_all(list(_too_short(self._reading.postponed, _derived(plan))))
        return plan

    @property
    def postponed(self) -> Mapping[str, Mapping[str, int]]:
        """All bounds that follow from the condition, as ``postpone`` has them."""
        return _derived(self.plan)

    @property
    def outputs_by_name(self) -> Mapping[str, ColumnRef]:
        """The columns of the result."""
        return self._reading.outputs

    @cached_property
    def _reading(self) -> _Reading:
        return _Reading(self)


class _Reading:
    """What a relation is made of, and all that is wrong with a spec."""

    def __init__(self, spec: JoinSpec) -> None:
        self.problems: list[WatersmeetError] = []
        self._spec = spec
        names = self._names(spec.names)
        self._columns = [
            self._columns_of(side, columns)
            for side, columns in zip(SIDES, (spec.left, spec.right), strict=True)
        ]
        self.sources = [
            Source(name, tuple(columns.values()), "memory", {}, self._times(side, name, columns, times))
            for side, name, columns, times in zip(
                SIDES, names, self._columns, (spec.left_times, spec.right_times), strict=True
            )
        ]
        if spec.how not in HOW:
            self._problem(
                f"how is {spec.how!r}", "bad-value", near_names(str(spec.how), HOW) or "inner is one"
            )
        trees = Trees(
            {side: (name, columns) for side, name, columns in zip(SIDES, names, self._columns, strict=True)}
        )
        self.condition = trees.condition(spec.condition)
        self.outputs = self._outputs(names)
        self.items = [named(trees.value(ref), name) for name, ref in self.outputs.items()]
        self.problems += trees.problems
        self.postponed = self._postponed()
        self.problems += Settings().set_all(spec.options)

    def _problem(self, message: str, code: str, hint: str | None = None) -> None:
        self.problems.append(SpecError(message, code=code, hint=hint))

    def _names(self, names: Any) -> tuple[str, str]:
        if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != 2:
            self._problem(f"names is {names!r}", "bad-value", 'names of both sides: ("orders", "deliveries")')
            return "left", "right"
        for name in names:
            if not isinstance(name, str) or not name.strip() or set(name) & set("./"):
                self._problem(f"{name!r} is not a name of a side", "bad-value", "letters, digits and _")
            elif is_ours(name) or is_node_alias(name):
                self._problem(f'names like "{name}" are taken', "bad-value", "use another one")
        if str(names[0]).lower() == str(names[1]).lower():
            self._problem(
                f'both sides are named "{names[0]}"', "duplicate-name", "give each a name of its own"
            )
        return str(names[0]), str(names[1])

    def _columns_of(self, side: str, columns: Any) -> dict[str, Column]:
        if not isinstance(columns, Mapping) or not columns:
            self._problem(f"{side} is {columns!r}", "bad-value", 'columns by name: {"t": "TIMESTAMP", …}')
            return {}
        by_name: dict[str, Column] = {}
        for name, kind in columns.items():
            if not isinstance(name, str) or not name:
                self._problem(f"{side}: {name!r} is not a name of a column", "bad-value")
                continue
            if is_ours(name):
                self._problem(f'{side}: columns like "{name}" are taken', "bad-value", "use another name")
            if name.lower() in {other.lower() for other in by_name}:
                self._problem(
                    f'{side}: two columns are named "{name}", in any case', "duplicate-column", "rename one"
                )
            try:
                by_name[name] = Column(name, kind if isinstance(kind, SqlType) else type_named(str(kind)))
            except SpecError as error:
                self._problem(f'{side}: column "{name}": {error.message}', error.code, error.hint)
        return by_name

    def _times(
        self, side: str, source: str, columns: Mapping[str, Column], times: Any
    ) -> tuple[EventTime, ...]:
        what = f"{side}_times"
        if isinstance(times, str) or not isinstance(times, Sequence | Mapping):
            self._problem(f"{what} is {times!r}", "bad-value", '["t"], or {"t": "10 seconds"}')
            return ()
        lags = times if isinstance(times, Mapping) else dict.fromkeys(times)
        if not lags:
            self._problem(f"{what} is empty", "bad-value", "a stream has an event time")
        event_times = []
        for name, lag in lags.items():
            column = columns.get(name)
            if column is None:
                self._problem(
                    f'{what}: "{source}" has no column "{name}"',
                    "unknown-column",
                    near_names(str(name), columns),
                )
            elif column.type not in INTEGERS and column.type not in TIMES:
                self._problem(
                    f'{what}: "{name}" is {column.type} and cannot be an event time',
                    "wrong-type",
                    "event times are TIMESTAMP, DATE or an integer type",
                )
            else:
                units = None if lag is None else self._units(lag, column.type, f"{what}: the lag of {name}")
                if units is not None and units < 0:
                    self._problem(f'{what}: the lag of "{name}" is negative', "bad-lag")
                event_times.append(EventTime(name, units))
        return tuple(event_times)

    def _units(self, length: Any, type_: SqlType, where: str) -> int | None:
        """A length in the column's units."""
        units = length_us(length) if type_.is_time else length
        if isinstance(units, bool) or not isinstance(units, int):
            hint = 'write "10 seconds", or a timedelta' if type_.is_time else "write a whole number"
            self._problem(f"{where} is {length!r}, and the column is {type_}", "bad-value", hint)
            return None
        return units

    def _outputs(self, names: tuple[str, str]) -> dict[str, ColumnRef]:
        asked, hides_right = self._spec.outputs, self._spec.how in ("semi", "anti")
        if asked is None:
            sides = list(zip(SIDES, names, self._columns, strict=True))[: 2 - hides_right]
            all_names = [name.lower() for _, _, columns in sides for name in columns]
            chosen = [
                (name if all_names.count(name.lower()) == 1 else f"{of}_{name}", ColumnRef(side, name))
                for side, of, columns in sides
                for name in columns
            ]
        elif not isinstance(asked, Mapping) or not asked:
            self._problem(f"outputs is {asked!r}", "bad-value", '{"order_id": left("order_id"), …}')
            return {}
        else:
            chosen = list(asked.items())
        outputs: dict[str, ColumnRef] = {}
        for name, ref in chosen:
            if not isinstance(name, str) or not name:
                self._problem(f"outputs: {name!r} is not a name of a column", "bad-value")
            elif name.lower() in {other.lower() for other in outputs}:
                self._problem(
                    f'two columns of the result are named "{name}"',
                    "duplicate-column",
                    "name them yourself: outputs={…}",
                )
            elif not isinstance(ref, ColumnRef) or ref.is_moved:
                self._problem(
                    f'outputs: "{name}" is {ref!r}',
                    "bad-value",
                    'columns go out as they are: left("order_id")',
                )
            elif hides_right and ref.side == "right":
                self._problem(
                    f'outputs: "{name}" is of the right side, and rows of LEFT {self._spec.how.upper()} joins'
                    " are left ones",
                    "bad-value",
                    "choose columns of the left side",
                )
            else:
                outputs[name] = ref
        return outputs

    def _postponed(self) -> dict[tuple[str, str], int]:
        """By (by, evicted) the bounds that the caller counts on."""
        types = {
            f"{source.name}.{time.column}": column.type
            for source in self.sources
            for time in source.event_times
            if (column := source.column(time.column)) is not None
        }
        bounds_by_pair = {}
        for by, bounds in (self._spec.postpone or {}).items():
            for evicted, length in bounds.items() if isinstance(bounds, Mapping) else [(bounds, None)]:
                unknown = next((key for key in (by, evicted) if key not in types), None)
                if unknown is not None:
                    self._problem(
                        f"postpone: {unknown!r} is not an event time of the join",
                        "unknown-column",
                        near_names(str(unknown), types),
                    )
                    continue
                units = self._units(length, types[evicted], f"postpone: {by} to {evicted}")
                if units is not None:
                    bounds_by_pair[by, evicted] = units
        return bounds_by_pair


def _with_quotes(query: Query) -> Query:
    """The query with all names in quotes, as fingerprints of states of earlier versions have them."""
    join = query.relation
    assert isinstance(join, Join)
    left, right = (
        replace(
            side, branches=tuple(replace(b, columns=tuple(map(_quoted, b.columns))) for b in side.branches)
        )
        for side in inputs_of(join)
    )
    on = None if join.on is None else _quoted(join.on)
    outputs = tuple(replace(output, expr=_quoted(output.expr)) for output in query.outputs)
    return replace(query, relation=replace(join, left=left, right=right, on=on), outputs=outputs)


def _quoted(expr: Expr) -> Expr:
    tree = expr.copy()
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", True)
    return tree


def _derived(plan: JobPlan) -> dict[str, dict[str, int]]:
    """The postpone map of the one join: per pair the smallest."""
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
