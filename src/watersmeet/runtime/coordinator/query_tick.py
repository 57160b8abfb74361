"""Run one query's nodes within one tick, one after the other.

The module determines the data that each node's tasks receive, processes their reports, and computes the
watermarks that a node passes to the next one.

A node runs after the nodes whose rows it takes, so a row that arrives leaves the last node in the same tick.
An input of stages advances its watermarks when the stages have settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.kernel.batches import same_rows
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import FeedPlan, Producer, SidePlan
from watersmeet.runtime.coordinator.input_watermarks import (
    find_lateness,
    raise_late_thresholds,
    select_late_thresholds,
)
from watersmeet.runtime.coordinator.limits import check_invariants, check_limits
from watersmeet.runtime.coordinator.load_shedding import RetainedNode, node_decision_name, shed_node
from watersmeet.runtime.coordinator.merge_policy import choose_merges
from watersmeet.runtime.coordinator.node_cost import (
    CostEstimate,
    estimate_cost,
    heavy_keys_by_side,
    split_keys_by_side,
)
from watersmeet.runtime.coordinator.operators.base import ArrangedTick, NodeInputs, NodeLimits, Outgoing
from watersmeet.runtime.coordinator.operators.joins import order_new_runs
from watersmeet.runtime.coordinator.operators.registry import find_driver
from watersmeet.runtime.coordinator.results import (
    QueryResult,
    RowAccounting,
    add_counts,
    count_unknown_padded,
    ingest_counts,
    sum_counts,
    sum_lateness,
)
from watersmeet.runtime.coordinator.retained_runs import (
    FeedReports,
    PreviousSide,
    Sharing,
    build_next_arrangement,
    update_arrival_rates,
)
from watersmeet.runtime.coordinator.shared_inputs import (
    add_shared_inputs,
    producer_state,
    rename_watermarks,
    side_producers,
)
from watersmeet.runtime.coordinator.table_reads import SnapshotRead
from watersmeet.runtime.messages.reports import (
    FeedReport,
    IngestReport,
    NodeReport,
    SideReport,
    lower_min,
)
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.messages.work import NodeWork, SideWork
from watersmeet.spec.model import WatermarkRule
from watersmeet.state.manifest import Arrangement, LiveRun, NodeState, QueryState, TableCopy
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Store, Traffic
from watersmeet.watermark.lateness import LateBy
from watersmeet.watermark.tracker import BranchRules, InputState, advance_stages, risen_watermarks


@dataclass
class QueryTick:
    """Nodes of one query in the current tick, after the watermarks of its sources have advanced.

    Args:
        before: the state as of the last tick.
        inputs: watermarks of the inputs in this tick; those of stages are added later.
        rules: how watermarks are computed, per alias and branch.
        late_below: the late threshold per key; lesser times are late in this tick.
        reports: the reports of the ingest tasks of all queries.
        store: where the tick writes marks that several tasks found.
        clock_us: the tick's clock.
        keep_late: True if late rows of stages are wanted.
        readings: returns, per arrangement, the current contents of the tables that are compared.
        tells_broken: the arrangements that report records that do not parse as rows.
        sharing: the `Sharing` of each side that retains the same runs as other sides, per
            ``query/alias``.
        most_gone: maximum bytes of released rows in files, per ``query/alias``.
        others: the settled queries before this one, by name; some produce rows for it.
        begins: True in the query's first tick if the job already has state: the rows that others retain
            for the query arrive in this tick.
    """

    tick: int
    query: QueryPlan
    shapes: Sequence[NodeShape]
    before: QueryState
    inputs: dict[str, InputState]
    rules: Mapping[str, Sequence[BranchRules]]
    late_below: Mapping[str, Watermark]
    reports: Sequence[IngestReport]
    store: Store
    clock_us: int = 0
    keep_late: bool = False
    readings: Callable[[], Mapping[str, SnapshotRead]] = dict
    tells_broken: frozenset[str] = frozenset()
    sharing: Mapping[str, Sharing] = field(default_factory=dict)
    most_gone: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, QueryTick] = field(default_factory=dict)
    begins: bool = False
    nodes: list[NodeState] = field(default_factory=list)
    _work: dict[int, NodeWork] = field(default_factory=dict)
    _decided: dict[int, NodeLimits] = field(default_factory=dict)
    _fed: FeedReports = field(default_factory=FeedReports)
    _reports: dict[int, list[NodeReport]] = field(default_factory=dict)
    accounted: RowAccounting = field(init=False)

    def __post_init__(self) -> None:
        self.accounted = RowAccounting(ingest_counts(self.query, self.reports))

    def work(self, number: int) -> NodeWork:
        """Build the work of node ``number``. All its input nodes must be settled."""
        node = self.query.nodes[number]
        self._skip_reused_nodes(number)
        for side in node.sides:
            if side.stages:
                self._advance_stage_inputs(side)
        decided = find_driver(node).decide(node, self._build_node_inputs(node))
        parent = self.query.parent(number)
        fed = None if parent is None or parent[1].feed is not None else parent[1]
        work = NodeWork(
            tick=self.tick,
            sides=[self._side_work(node, place, decided.limits) for place in range(len(node.sides))],
            fed_late_below={} if fed is None else select_late_thresholds(fed, self.late_below),
            keep_late=self.keep_late,
            keep_broken=any(side.arrangement in self.tells_broken for side in self.shapes[number].sides),
            fed_index=self._consumer_index(number),
            asof=decided.asof,
            clock_us=self.clock_us,
            seen=find_driver(node).seen(node, self._build_arranged_tick),
            closed=list(decided.closed),
        )
        if find_driver(node).replaces:
            self._replace(node, work)
        self._work[number], self._decided[number] = work, decided
        return work

    def amount(self, number: int) -> CostEstimate:
        """Estimate the cost of node ``number``. Call `work` for it first."""
        return estimate_cost(self.query.nodes[number], self.shapes[number], self._work[number])

    def _replace(self, node: NodePlan, work: NodeWork) -> None:
        """Tell the tasks of a table that is compared what it holds, where it was read anew."""
        (side,), (own,) = self.shapes[node.number].sides, work.sides
        reading = self.readings()[side.arrangement]
        own.merges, own.replaced = [], reading.anew
        own.new_runs = reading.copy_.runs if reading.anew else []
        work.table = reading.copy_.model_copy(update={"runs": []})

    def _build_arranged_tick(self, number: int) -> ArrangedTick:
        """Build the tick of a settled node from its last arrangements and its tasks' reports."""
        sides = self.query.nodes[number].sides
        return ArrangedTick(
            before=[self._find_previous_arrangement(number, side) for side in sides],
            reports=[self._side_reports(number, side) for side in sides],
        )

    def _find_previous_arrangement(
        self, number: int, side: SidePlan, *, as_its_own: bool = False
    ) -> Arrangement:
        """Return the arrangement that a side used in the last tick, whichever query retains it.

        Args:
            as_its_own: True: return an empty one if a producer's rows only arrive in this tick.
        """
        if side.kept_by is not None:
            return (
                Arrangement() if as_its_own and self.begins else self._find_producer_arrangement(side.kept_by)
            )
        return self._load_own_arrangement(number, side.name)

    def _load_own_arrangement(self, number: int, side: str) -> Arrangement:
        return self._previous_node_state(number).arrangements.get(side) or Arrangement()

    def _find_producer_arrangement(self, by: Producer) -> Arrangement:
        return self.others[by.query]._load_own_arrangement(by.node, by.side)

    def _side_reports(self, number: int, side: SidePlan) -> list[SideReport]:
        """Return the task reports for a side of a settled node, from the node that retains its rows."""
        tick, name = self, side.name
        if side.kept_by is not None:
            tick, number, name = self.others[side.kept_by.query], side.kept_by.node, side.kept_by.side
        place = next(place for place, own in enumerate(tick.query.nodes[number].sides) if own.name == name)
        return [report.sides[place] for report in tick._reports[number]]

    def table_before(self, number: int) -> TableCopy | None:
        """Return the table copy with which rows of node ``number`` last joined; None if none."""
        return self._previous_node_state(number).table

    def _consumer_index(self, number: int) -> str | None:
        """Return the index by which the runs for the parent node are sorted; None if there is none."""
        parent = self.query.parent(number)
        if parent is None:
            return None
        return self._load_own_arrangement(parent[0].number, parent[1].name).index

    def _advance_stage_inputs(self, side: SidePlan) -> None:
        """Move the watermarks of an input with stages."""
        told: dict[int, tuple[dict[str, Watermark], bool]] = {}
        for number, feed in side.stages:
            emitted = self._find_producer(feed).nodes[feed.node].emitted
            watermarks = {column: emitted.get(key, NEVER) for column, key in feed.event_times}
            told[number] = (watermarks, self._find_producer(feed)._is_idle(feed.node))
        advance_stages(self.inputs[side.name], self.rules[side.name], told)

    def _is_idle(self, number: int) -> bool:
        """Return True if all inputs below a node are idle."""
        return all(
            self.inputs[side.name].idle
            if side.feed is None
            else self._find_producer(side.feed)._is_idle(side.feed.node)
            for side in self.query.nodes[number].sides
            if side.copy_of is None
        )

    def settle(self, number: int, reports: Iterable[NodeReport], rows_out: int | None = None) -> None:
        """Process the reports of the node's tasks, one per partition, each of one attempt.

        Args:
            rows_out: the number of rows that the sink received, if it differs from the rows that the tasks
                emitted.

        Raises:
            EngineError: a limit was reached (see `limits`).
        """
        node, work = self.query.nodes[number], self._work[number]
        driver = find_driver(node)
        node_reports = sorted(reports, key=lambda own: own.partition)
        self._reports[number] = node_reports
        arrangements: dict[str, Arrangement] = {}
        least: dict[str, int] = {}
        watermarks = self._watermarks(node, less_lateness=False)  # another run may allow more lateness
        for place, side in enumerate(node.sides):
            own = [report.sides[place] for report in node_reports]
            if driver.drops_new:  # all its rows have left
                arrangements[side.name] = Arrangement(limits=work.sides[place].new_limits)
            else:
                before = self._load_own_arrangement(number, side.name)
                arrangements[side.name] = build_next_arrangement(
                    work.sides[place],
                    own,
                    PreviousSide(
                        shape=self.shapes[number],
                        place=place,
                        title=side.title,
                        replaces=driver.replaces,
                        arrangement=before,
                        paces=update_arrival_rates(
                            side,
                            self.shapes[number].sides[place],
                            before.paces,
                            work.sides[place].new_runs,
                            watermarks,
                        ),
                    ),
                    self.store,
                    self.tick,
                )
            for report in own:
                for column, time in report.least.items():
                    lower_min(least, side.watermark_key(column), time)
        self.accounted.take(node, node_reports, rows_out)
        shape = self.shapes[number]
        kept = RetainedNode(node, shape, arrangements, self.store, self.tick, self.keep_late)
        shed = shed_node(
            kept,
            self.query.options,
            [
                {bucket for report in node_reports for bucket in report.sides[place].crowded}
                for place in range(len(node.sides))
            ],
            node_decision_name(self.tick, list(self.others).index(self.query.name), number),
        )
        self.accounted.add_shed_rows(node, shed)
        check_limits(self.query, shape, work, arrangements, self.accounted.rows_out)
        for fed, feed in ((side, feed) for side in node.sides for feed in side.feeds if feed.query):
            self.accounted.add_feed_reports(fed.name, self._reports_for_feed(feed))
        emitted = driver.outputs(
            node,
            Outgoing(
                watermarks=self._watermarks(node, less_lateness=True),
                limits=self._decided[number].limits,
                least=least,
                emitted=self._previous_node_state(number).emitted,
                tight=self.query.options.watermark_rule is WatermarkRule.TIGHT,
            ),
        )
        self.nodes.append(
            NodeState(
                arrangements=arrangements,
                emitted=emitted,
                asof=kept.asof(driver.build_asof_state(node, work, least), shed),
                table=work.table,
                elsewhere=producer_state(self.query, number),
                kept_by=side_producers(node, lambda query: self.others[query].shapes),
                missing=self._previous_node_state(number).missing,
            )
        )
        self._fed.take(number, node_reports)
        parent = self.query.parent(number)
        if parent is not None:
            self.accounted.add_feed_reports(parent[1].name, self._fed.by(number))

    @property
    def is_settled(self) -> bool:
        """All its nodes are."""
        return len(self.nodes) == len(self.query.nodes)

    def _find_producer(self, feed: FeedPlan) -> QueryTick:
        """Return the tick of the query whose node produces the rows of a feed."""
        return self if feed.query is None else self.others[feed.query]

    def _reports_for_feed(self, feed: FeedPlan) -> Sequence[FeedReport]:
        return self._find_producer(feed)._fed.to(feed)

    def _skip_reused_nodes(self, number: int) -> None:
        """Pass over nodes before ``number`` in whose place others are run."""
        for resting in range(len(self.nodes), number):
            self.nodes.append(NodeState(elsewhere=producer_state(self.query, resting)))
            self.accounted.add_reused_node()

    def result(self) -> tuple[QueryState, QueryResult]:
        """Return the query's next state and its result of the tick. All nodes must be settled.

        Raises:
            EngineError: an invariant is violated; see `invariants`.
        """
        before = self._previous_node_state(len(self.query.nodes) - 1).emitted
        emitted, held = self.nodes[-1].emitted, self.held()
        for own, maker, there in self._list_shared_inputs():
            self.accounted.copy_producer_counts(own, maker.accounted, there)
        if self.query.shared_inputs:
            order = {side.name: place for place, side in enumerate(self.query.alone.accounted)}
            self.accounted.missing.sort(
                key=lambda told: order.get(told[0], len(order))
            )  # of joins: behind them
        inputs = [
            *(side.name for side in self.query.sides),
            *(own for own, _, _ in self._list_shared_inputs()),
        ]
        state = {alias: held[alias] for alias in inputs if alias in held}
        account, read = add_counts(self.before.account, self.accounted.counts), self.every_input
        after = QueryState(
            inputs=self.inputs,
            nodes=self.nodes,
            late_below=raise_late_thresholds(self.query, self.inputs, self.before.late_below),
            account=account,
            late=sum_lateness(self.before.late, self._collect_lateness(), self.query),
            rows_out=self.before.rows_out + self.accounted.rows_out,
            complete_from=self.before.complete_from,
            unknown=self.before.unknown + count_unknown_padded(self._reports.values()),
            shed_joined=sum_counts([self.before.shed_joined, self.accounted.shed_joined]),
        )
        check_invariants(self.query.name, self.before, after, self.accounted.least_out)
        return after, QueryResult(
            risen_watermarks=risen_watermarks(before, emitted),
            output_watermarks=emitted,
            input_watermarks={f"{a}.{c}": w for a, i in read.items() for c, w in i.watermarks.items()},
            state=state,
            counts=self.accounted.counts,
            account={alias: {**rows, "retained": held[alias]} for alias, rows in account.items()},
            rows_out=self.accounted.rows_out,
            total_rows_out=after.rows_out,
            matches=self.accounted.matches,
            state_bytes=after.nbytes,
            missing_deletes=tuple(self.accounted.missing),
            shed_joined=after.shed_joined,
            newly_shed_joined=self.accounted.shed_joined,
            late=after.late,
            heavy=heavy_keys_by_side(self.shapes, self.nodes),
            split=split_keys_by_side(report for reports in self._reports.values() for report in reports),
        )

    def traffic(self) -> Iterator[tuple[str, tuple[Traffic, ...]]]:
        """Yield the store traffic of the tasks of each node."""
        for number, reports in self._reports.items():
            told = tuple(report.traffic for report in reports if report.traffic is not None)
            if told:
                yield f"{self.query.name}/{number}", told

    def held(self) -> dict[str, int]:
        """Return the number of retained rows per alias, including inputs that another query reads."""
        held = {
            side.name: node.arrangements[side.name].retained
            for side in self.query.accounted
            for node in self.nodes
            if side.name in node.arrangements
        }
        for own, maker, there in self._list_shared_inputs():
            of_maker = maker.held()
            if there in of_maker:
                held[own] = of_maker[there]
        return held

    def _list_shared_inputs(self) -> Iterator[tuple[str, QueryTick, str]]:
        """Yield the inputs that other queries account for: alias, that query's tick, alias there."""
        for own, query, there in self.query.shared_inputs:
            maker = self.others[query]
            if there in maker.accounted.counts:
                yield own, maker, there

    @property
    def every_input(self) -> dict[str, InputState]:
        """Watermarks of the inputs, those too that others read for the query."""
        told = {name: self.others[name].every_input for _, name, _ in self.query.shared_inputs}
        return add_shared_inputs(self.query, self.inputs, told)

    def _collect_lateness(self) -> list[tuple[str, Mapping[str, LateBy]]]:
        """Collect how late the tick's rows were: pairs of alias and lateness, one per report."""
        late_rows: list[tuple[str, Mapping[str, LateBy]]] = []
        for report in self.reports:
            name, _, alias = report.arrangement.rpartition("/")
            if name == self.query.name:
                late_rows.append((alias, report.late))
        for side in self.query.sides:
            for _, feed in side.stages:
                late_rows += [(side.name, report.late) for report in self._reports_for_feed(feed)]
        for own, maker, there in self._list_shared_inputs():
            late_rows += [(own, late) for alias, late in maker._collect_lateness() if alias == there]
        return late_rows

    def _previous_node_state(self, number: int) -> NodeState:
        return self.before.nodes[number] if self.before.nodes else NodeState()

    def _watermarks(self, node: NodePlan, *, less_lateness: bool) -> dict[str, Watermark]:
        """Return the watermarks of all sides: those of inputs, or those that the input node emitted."""
        watermarks: dict[str, Watermark] = {}
        for side in node.sides:
            if side.feed is not None:
                emitted = self._find_producer(side.feed).nodes[side.feed.node].emitted
                watermarks |= rename_watermarks(side.feed, emitted)
            elif side.copy_of is None:
                late = find_lateness(self.query, side) if less_lateness else 0
                for column, watermark in self.inputs[side.name].watermarks.items():
                    watermarks[side.watermark_key(column)] = shift(watermark, -late)
        return watermarks

    def _build_node_inputs(self, node: NodePlan) -> NodeInputs:
        return NodeInputs(
            watermarks=self._watermarks(node, less_lateness=False),
            lateness={
                side.watermark_key(column): find_lateness(self.query, side)
                for side in node.sides
                for column in side.event_times
            },
            on_time=self._watermarks(node, less_lateness=True),
            before=self._previous_node_state(node.number),
            kept_before=lambda side: self._find_previous_arrangement(node.number, side, as_its_own=True),
            brought=lambda side: [*self._new_runs(side), *(live.run for live in self._contents(side))],
            clock_us=self.clock_us,
        )

    def _brought(self, side: SidePlan) -> Sequence[IngestReport | FeedReport]:
        """Return the reports of the rows that the tick brought for a side."""
        name = f"{self.query.name}/{side.name}"
        brought: list[IngestReport | FeedReport] = [r for r in self.reports if r.arrangement == name]
        for feed in side.feeds:
            brought += self._reports_for_feed(feed)
        return brought

    def _new_runs(self, side: SidePlan) -> list[Run]:
        shared = self._shared_run_writer(side)
        if shared is not None:
            kept = sum(report.counts.get("kept", 0) for report in self._brought(side))
            runs = [run for report in self.reports if report.arrangement == shared for run in report.runs]
            same_rows(f'what "{side.title}" keeps with others', kept, sum(run.rows for run in runs))
            return runs
        if side.copy_of is None:
            return [run for report in self._brought(side) for run in report.runs]
        (own,) = (s for node in self.query.nodes for s in node.sides if s.name == side.copy_of)
        return [run for report in self._brought(own) for run in report.copies.get(side.name, ())]

    def _contents(self, side: SidePlan) -> Sequence[LiveRun]:
        """Return rows that a producer retained before this query existed and that arrive now."""
        by = side.kept_by if self.begins and side.copy_of is None else None
        return () if by is None else self._find_producer_arrangement(by).runs

    def _shared_run_writer(self, side: SidePlan) -> str | None:
        """Return the side whose ingest writes the runs that this side shares; None if none."""
        tasks = (task for shape in self.shapes for task in shape.sides if task.name == side.name)
        return next((task.shared.arrangement for task in tasks if task.shared is not None), None)

    def _side_work(self, node: NodePlan, place: int, new_limits: Mapping[str, Watermark]) -> SideWork:
        side = node.sides[place]
        stored = self.shapes[node.number].stored
        releasing = stored[place].layout.releasing
        arrangement = self._load_own_arrangement(node.number, side.name)
        brought = self._brought(side)
        shape = self.shapes[node.number]
        work = SideWork(
            runs=arrangement.runs,
            new_runs=order_new_runs(self._new_runs(side)),
            pads=[file for report in brought for file in report.pads],
            old_limits=arrangement.limits,
            new_limits={
                column: max(
                    new_limits.get(side.watermark_key(column), NEVER), arrangement.limits.get(column, NEVER)
                )
                for column in dict.fromkeys([*side.event_times, *releasing])
            },
            index=arrangement.index,
            contents=list(self._contents(side)),
            unknown_below=arrangement.unknown_below,
        )
        sharing = self.sharing.get(shape.sides[place].arrangement)
        if sharing is None:
            work.merges = choose_merges(
                arrangement.runs,
                combining=shape.combines,
                read_once=shape.read_once,
                changing=shape.tasks_write_state,
                most_gone=self.most_gone.get(shape.sides[place].arrangement),
            )
        else:
            sharing.fill(work, releasing)
        return work
