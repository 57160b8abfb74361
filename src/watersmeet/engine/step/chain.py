"""One query's joins within one tick, one after the other: what each join's tasks are told, what becomes of
their reports, and which watermarks a join hands on to the next.

Joins beneath come first, so a row that arrives leaves the last join in the same tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.engine.step.counts import added, late_total, lower
from watersmeet.engine.step.merge import choose
from watersmeet.engine.step.monotony import check_promises
from watersmeet.engine.step.orders import next_index
from watersmeet.engine.step.tasks import FeedReport, IngestReport, JoinReport, JoinShape, JoinWork, SideWork
from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Side, Watermark, shift
from watersmeet.plan.model import JoinPlan, QueryPlan, SidePlan
from watersmeet.plan.retention import limits
from watersmeet.spec.model import OutputMode, WatermarkRule
from watersmeet.state.manifest import Arrangement, JoinState, LiveRun, QueryState
from watersmeet.state.marks import overlay
from watersmeet.state.run import whole_run_released
from watersmeet.watermark.holding import Holding
from watersmeet.watermark.lateness import LateBy
from watersmeet.watermark.output import output_watermarks, risen
from watersmeet.watermark.tracker import InputState


@dataclass(frozen=True)
class QueryResult:
    """Of one query and tick. ``watermarks``: output watermarks that rose; ``state``: retained rows per alias;
    ``inputs``: all input watermarks per key; ``counts``: of this tick, per alias (see `engine.step.ingest`
    and matched, padded, released_unmatched, retained); ``account``: the same, since the start of the job;
    ``late``: how late the late rows since then were, per alias and column; ``holding``: per alias the silent
    partitions that hold its watermark back; ``idle``: the aliases of which all partitions are idle."""

    watermarks: Mapping[str, Watermark]
    outputs: Mapping[str, Watermark]
    inputs: Mapping[str, Watermark]
    state: Mapping[str, int]
    counts: Mapping[str, Mapping[str, int]]
    account: Mapping[str, Mapping[str, int]]
    rows_out: int
    total_rows_out: int
    matches: int
    state_bytes: int
    missing_deletes: tuple[str, ...] = ()
    late: Mapping[str, Mapping[str, LateBy]] = field(default_factory=dict)
    holding: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()


@dataclass
class QueryTick:
    """The joins of one query in the tick at hand, after the input watermarks have moved.

    Args:
        before: the state as of the last tick.
        inputs: watermarks of the inputs, as of this tick.
        late_below: per key, lesser times are late from now on.
        reports: of the ingest tasks, of all queries.
    """

    tick: int
    query: QueryPlan
    shapes: Sequence[JoinShape]
    before: QueryState
    inputs: dict[str, InputState]
    late_below: dict[str, Watermark]
    reports: Sequence[IngestReport]
    joins: list[JoinState] = field(default_factory=list)
    _work: dict[int, JoinWork] = field(default_factory=dict)
    _fed: dict[int, list[FeedReport]] = field(default_factory=dict)
    _counts: dict[str, dict[str, int]] = field(default_factory=dict)
    _rows_out: int = 0
    _matches: int = 0
    _missing: list[str] = field(default_factory=list)
    _least_out: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts = _ingest_counts(self.query, self.reports)

    def work(self, number: int) -> JoinWork:
        """What the tasks of join ``number`` need; all joins beneath it are settled."""
        join = self.query.joins[number]
        found = self._limits(join)
        work = JoinWork(
            tick=self.tick,
            left=self._side_work(join, join.left, found),
            right=self._side_work(join, join.right, found),
            fed_index=self._fed_index(number),
        )
        self._work[number] = work
        return work

    def _fed_index(self, number: int) -> str | None:
        """By what the runs for the next join are sorted."""
        parent = self.query.parent(number)
        if parent is None:
            return None
        join, side = parent
        known = self._joined_before(join.number).arrangements.get(join.side(side).name, Arrangement())
        return known.index

    def settle(self, number: int, reports: Iterable[str]) -> None:
        """Take the control texts of the join's tasks, one per partition (of one attempt each).

        Raises:
            EngineError: a limit was reached (``max_rows``).
        """
        join, work = self.query.joins[number], self._work[number]
        found = [JoinReport.model_validate_json(text) for text in reports]
        arrangements: dict[str, Arrangement] = {}
        least: dict[str, int] = {}
        for side in Side:
            plan = join.side(side)
            known = self._joined_before(number).arrangements.get(plan.name, Arrangement())
            arrangements[plan.name] = self._next_arrangement(number, side, work.side(side), found)
            arrangements[plan.name].index, arrangements[plan.name].candidates = next_index(
                self.shapes[number].side(side).layout,
                known.index,
                known.candidates,
                (report.side(side) for report in found),
            )
            for report in found:
                for column, time in report.side(side).least.items():
                    lower(least, plan.watermark_key(column), time)
                for what, rows in report.side(side).counts.items():
                    if plan.feed is None:
                        counts = self._counts[plan.name]
                        counts[what] = counts.get(what, 0) + rows
        _check_max_rows(self.query, join, arrangements)
        watermarks = self._watermarks(join, self.query.options.allowed_lateness)
        if join.kind.hides_right:
            own = {join.left.watermark_key(column) for column in join.left.event_times}
            watermarks = {key: watermark for key, watermark in watermarks.items() if key in own}
        emitted = output_watermarks(
            watermarks,
            self._limits(join),
            least,
            self._joined_before(number).emitted,
            tight=self.query.options.watermark_rule is WatermarkRule.TIGHT,
        )
        self.joins.append(JoinState(arrangements=arrangements, emitted=emitted))
        self._fed[number] = [report.fed for report in found if report.fed is not None]
        self._matches += sum(report.matches for report in found)
        self._rows_out = sum(report.rows_out for report in found)
        least_out: dict[str, int] = {}
        for report in found:
            for key, time in report.least_out.items():
                lower(least_out, key, time)
        self._least_out.append(least_out)
        self._missing += [row for r in found for side in Side for row in r.side(side).missing]

    def result(self) -> tuple[QueryState, QueryResult]:
        """The query's next state, and what there is to say of the tick; all joins are settled.

        Raises:
            EngineError: a promise is broken (see `monotony`).
        """
        before = self._joined_before(len(self.query.joins) - 1).emitted
        emitted = self.joins[-1].emitted
        state = {
            side.name: join.arrangements[side.name].retained
            for side in self.query.sides
            for join in self.joins
            if side.name in join.arrangements
        }
        account = added(self.before.account, self._counts)
        after = QueryState(
            inputs=self.inputs,
            joins=self.joins,
            late_below=self.late_below,
            account=account,
            late=late_total(self.before.late, self.reports, self.query),
            rows_out=self.before.rows_out + self._rows_out,
        )
        check_promises(self.query.name, self.before, after, self._least_out)
        return after, QueryResult(
            watermarks=risen(before, emitted),
            outputs=emitted,
            inputs={f"{a}.{c}": w for a, i in self.inputs.items() for c, w in i.watermarks.items()},
            state=state,
            counts=self._counts,
            account={alias: {**rows, "retained": state[alias]} for alias, rows in account.items()},
            rows_out=self._rows_out,
            total_rows_out=after.rows_out,
            matches=self._matches,
            state_bytes=sum(
                live.run.nbytes
                for join in self.joins
                for arrangement in join.arrangements.values()
                for live in arrangement.runs
            ),
            missing_deletes=tuple(self._missing),
            late=after.late,
        )

    def _joined_before(self, number: int) -> JoinState:
        return self.before.joins[number] if self.before.joins else JoinState()

    def _watermarks(self, join: JoinPlan, lateness: int) -> dict[str, Watermark]:
        """Of the keys of both sides: of inputs, less ``lateness``, or as put out by the join beneath."""
        found: dict[str, Watermark] = {}
        for side in (join.left, join.right):
            if side.feed is not None:
                found |= self.joins[side.feed.join].emitted
            else:
                for column, watermark in self.inputs[side.name].watermarks.items():
                    found[side.watermark_key(column)] = shift(watermark, -lateness)
        return found

    def _limits(self, join: JoinPlan) -> dict[str, Watermark]:
        """Per key: rows below are released."""
        return limits(join, self._watermarks(join, 0), self.query.options.allowed_lateness)

    def _side_work(self, join: JoinPlan, side: SidePlan, new_limits: Mapping[str, Watermark]) -> SideWork:
        arrangement = self._joined_before(join.number).arrangements.get(side.name, Arrangement())
        brought: Sequence[IngestReport | FeedReport]
        if side.feed is None:
            name = f"{self.query.name}/{side.name}"
            brought = [report for report in self.reports if report.arrangement == name]
        else:
            brought = self._fed[side.feed.join]
        return SideWork(
            runs=arrangement.runs,
            new_runs=[run for report in brought for run in report.runs],
            pads=[file for report in brought for file in report.pads],
            old_limits=arrangement.limits,
            new_limits={
                column: max(
                    new_limits.get(side.watermark_key(column), NEVER), arrangement.limits.get(column, NEVER)
                )
                for column in side.event_times
            },
            merges=choose(arrangement.runs),
            index=arrangement.index,
        )

    def _next_arrangement(
        self, number: int, side: Side, work: SideWork, reports: Sequence[JoinReport]
    ) -> Arrangement:
        found = [report.side(side) for report in reports]
        merged_away = {name for group in work.merges for name in group}
        old = [live for live in work.runs if live.run.name not in merged_away]
        if self.query.options.output_mode is not OutputMode.CHANGELOG:
            old += [LiveRun(run=run) for run in work.new_runs]
        releasing = self.shapes[number].side(side).layout.releasing
        runs: list[LiveRun] = []
        for live in old:
            released = live.released + sum(report.released.get(live.run.name, 0) for report in found)
            if released >= live.run.rows or whole_run_released(live.run, releasing, work.new_limits):
                continue
            marks = dict(live.marks)
            for report in found:
                for kind, segments in report.marks.get(live.run.name, {}).items():
                    marks[kind] = overlay(marks.get(kind, ()), segments)
            runs.append(LiveRun(run=live.run, released=released, marks=marks))
        for report in found:
            fresh = [*report.merged, *report.inserted]
            runs += [live for live in fresh if live.released < live.run.rows]
        runs.sort(key=lambda live: (live.run.tick, live.run.group, live.run.low))
        return Arrangement(
            runs=runs,
            limits=work.new_limits,
            retained=sum(live.run.rows - live.released for live in runs),
        )


def _ingest_counts(query: QueryPlan, reports: Sequence[IngestReport]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {side.name: {} for side in query.sides}
    for report in reports:
        name, _, alias = report.arrangement.rpartition("/")
        if name == query.name:
            for what, rows in report.counts.items():
                if what != "kept":
                    counts[alias][what] = counts[alias].get(what, 0) + rows
    return counts


def _check_max_rows(query: QueryPlan, join: JoinPlan, arrangements: Mapping[str, Arrangement]) -> None:
    state = {side.title: arrangements[side.name].retained for side in (join.left, join.right)}
    most, held = query.options.max_rows, sum(state.values())
    if most is not None and held > most:
        sizes = ", ".join(f"{title}: {rows}" for title, rows in state.items())
        which = "" if len(query.joins) == 1 else f"{join.left.title} and {join.right.title} in "
        raise EngineError(
            f'the join of {which}"{query.name}" retains {held} rows ({sizes}), more than max_rows = {most}',
            code="max-rows",
            hint="raise max_rows, narrow the time bounds, or find out which input's watermark stands still",
        )
