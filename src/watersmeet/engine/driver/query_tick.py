"""One query's nodes within one tick, one after the other: what each node's tasks are told, what becomes of
their reports, and which watermarks a node hands on to the next.

Nodes beneath come first, so a row that arrives leaves the last node in the same tick. An input that stages
feed moves its watermarks when they have settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.engine.driver.amount import Amount, amount_of
from watersmeet.engine.driver.asof_limits import in_order
from watersmeet.engine.driver.counts import added, counted, ingest_counts, late_total, unknown
from watersmeet.engine.driver.heavy import shares_by_side, split_by_side
from watersmeet.engine.driver.kinds.base import ArrangedTick, Decided, Incoming, Outgoing
from watersmeet.engine.driver.kinds.registry import driver_of
from watersmeet.engine.driver.late import late_below, late_columns, lateness_of
from watersmeet.engine.driver.limits import check_limits
from watersmeet.engine.driver.merge_policy import choose
from watersmeet.engine.driver.monotony import check_promises
from watersmeet.engine.driver.results import QueryResult
from watersmeet.engine.driver.settling.accounted import Accounted
from watersmeet.engine.driver.settling.fed import Fed
from watersmeet.engine.driver.settling.kept_after import KeptBefore, kept_after
from watersmeet.engine.driver.settling.paces import paces_after
from watersmeet.engine.driver.settling.shared_inputs import (
    add_shared_inputs,
    producer_state,
    rename_watermarks,
    side_producers,
)
from watersmeet.engine.driver.settling.shed_decided import decided_name
from watersmeet.engine.driver.settling.shed_kept import NodeKept
from watersmeet.engine.driver.settling.shedding import shed_of_node
from watersmeet.engine.driver.sharing import Sharing
from watersmeet.engine.driver.snapshots import Reading
from watersmeet.engine.messages.reports import (
    FeedReport,
    IngestReport,
    NodeReport,
    SideReport,
    lower,
)
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.engine.messages.work import NodeWork, SideWork
from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.kernel.batches import same_rows
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import FeedPlan, Producer, SidePlan
from watersmeet.spec.model import WatermarkRule
from watersmeet.state.manifest import Arrangement, LiveRun, NodeState, QueryState, TableCopy
from watersmeet.state.runs.run import Run
from watersmeet.state.store import Store
from watersmeet.state.traffic import Traffic
from watersmeet.watermark.lateness import LateBy
from watersmeet.watermark.output import risen
from watersmeet.watermark.tracker import BranchRules, InputState, from_stages


@dataclass
class QueryTick:
    """The nodes of one query in the tick at hand, after the watermarks of its sources have moved.

    Args:
        before: the state as of the last tick.
        inputs: watermarks of the inputs, as of this tick; those of stages are still to come.
        rules: what makes them, per alias and branch.
        late_below: per key, lesser times are late in this tick.
        reports: of the ingest tasks, of all queries.
        store: where marks are put that several tasks found.
        clock_us: the tick's clock.
        keep_late: late rows of stages are wanted.
        readings: of tables that are compared what they hold now, per arrangement.
        tells_broken: the arrangements of which records that are no rows are wanted.
        sharing: per ``query/alias`` of a side that keeps the runs of others, too.
        most_gone: per ``query/alias`` how many bytes of rows that are gone may be left in files.
        others: those of queries before, by name, which are settled; some make rows for this one.
        begins: it is the query's first tick, in a job that has state: rows that others keep for it come now.
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
    readings: Callable[[], Mapping[str, Reading]] = dict
    tells_broken: frozenset[str] = frozenset()
    sharing: Mapping[str, Sharing] = field(default_factory=dict)
    most_gone: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, QueryTick] = field(default_factory=dict)
    begins: bool = False
    nodes: list[NodeState] = field(default_factory=list)
    _work: dict[int, NodeWork] = field(default_factory=dict)
    _decided: dict[int, Decided] = field(default_factory=dict)
    _fed: Fed = field(default_factory=Fed)
    _reports: dict[int, list[NodeReport]] = field(default_factory=dict)
    accounted: Accounted = field(init=False)

    def __post_init__(self) -> None:
        self.accounted = Accounted(ingest_counts(self.query, self.reports))

    def work(self, number: int) -> NodeWork:
        """What the tasks of node ``number`` need; all nodes beneath it are settled."""
        node = self.query.nodes[number]
        self._let_rest(number)
        for side in node.sides:
            if side.stages:
                self._hear_stages(side)
        decided = driver_of(node).decide(node, self._incoming(node))
        parent = self.query.parent(number)
        fed = None if parent is None or parent[1].feed is not None else parent[1]
        work = NodeWork(
            tick=self.tick,
            sides=[self._side_work(node, place, decided.limits) for place in range(len(node.sides))],
            fed_late_below={} if fed is None else late_columns(fed, self.late_below),
            keep_late=self.keep_late,
            keep_broken=any(side.arrangement in self.tells_broken for side in self.shapes[number].sides),
            fed_index=self._fed_index(number),
            asof=decided.asof,
            clock_us=self.clock_us,
            seen=driver_of(node).seen(node, self._arranged),
            closed=list(decided.closed),
        )
        if driver_of(node).replaces:
            self._replace(node, work)
        self._work[number], self._decided[number] = work, decided
        return work

    def amount(self, number: int) -> Amount:
        """How much node ``number``, whose work was asked for, has to do."""
        return amount_of(self.query.nodes[number], self.shapes[number], self._work[number])

    def _replace(self, node: NodePlan, work: NodeWork) -> None:
        """Tell the tasks of a table that is compared what it holds, where it was read anew."""
        (side,), (own,) = self.shapes[node.number].sides, work.sides
        reading = self.readings()[side.arrangement]
        own.merges, own.replaced = [], reading.anew
        own.new_runs = reading.copy_.runs if reading.anew else []
        work.table = reading.copy_.model_copy(update={"runs": []})

    def _arranged(self, number: int) -> ArrangedTick:
        """What a settled node keeps, as of the last tick and by its tasks' reports."""
        sides = self.query.nodes[number].sides
        return ArrangedTick(
            before=[self._kept_before(number, side) for side in sides],
            reports=[self._side_reports(number, side) for side in sides],
        )

    def _kept_before(self, number: int, side: SidePlan, *, as_its_own: bool = False) -> Arrangement:
        """What a side went by as of the last tick, whoever keeps it; ``as_its_own``: not what comes now."""
        if side.kept_by is not None:
            return Arrangement() if as_its_own and self.begins else self._kept_elsewhere(side.kept_by)
        return self._arrangement_before(number, side.name)

    def _arrangement_before(self, number: int, side: str) -> Arrangement:
        return self._node_before(number).arrangements.get(side) or Arrangement()

    def _kept_elsewhere(self, by: Producer) -> Arrangement:
        return self.others[by.query]._arrangement_before(by.node, by.side)

    def _side_reports(self, number: int, side: SidePlan) -> list[SideReport]:
        """Of the tasks of a settled node, of the one that keeps the side's rows."""
        tick, name = self, side.name
        if side.kept_by is not None:
            tick, number, name = self.others[side.kept_by.query], side.kept_by.node, side.kept_by.side
        place = next(place for place, own in enumerate(tick.query.nodes[number].sides) if own.name == name)
        return [report.sides[place] for report in tick._reports[number]]

    def table_before(self, number: int) -> TableCopy | None:
        """The copy of a table that rows of node ``number`` met last."""
        return self._node_before(number).table

    def _fed_index(self, number: int) -> str | None:
        """By what the runs for the node above are sorted."""
        parent = self.query.parent(number)
        if parent is None:
            return None
        return self._arrangement_before(parent[0].number, parent[1].name).index

    def _hear_stages(self, side: SidePlan) -> None:
        """Move the watermarks of an input with stages."""
        told: dict[int, tuple[dict[str, Watermark], bool]] = {}
        for number, feed in side.stages:
            emitted = self._maker(feed).nodes[feed.node].emitted
            watermarks = {column: emitted.get(key, NEVER) for column, key in feed.event_times}
            told[number] = (watermarks, self._maker(feed)._is_idle(feed.node))
        from_stages(self.inputs[side.name], self.rules[side.name], told)

    def _is_idle(self, number: int) -> bool:
        """All inputs beneath a node are idle."""
        return all(
            self.inputs[side.name].idle
            if side.feed is None
            else self._maker(side.feed)._is_idle(side.feed.node)
            for side in self.query.nodes[number].sides
            if side.copy_of is None
        )

    def settle(self, number: int, reports: Iterable[NodeReport], rows_out: int | None = None) -> None:
        """Take the reports of the node's tasks, one per partition (of one attempt each). ``rows_out``:
        how many rows went to the sink, where these are not the ones that left the tasks.

        Raises:
            EngineError: a limit was reached (see `limits`).
        """
        node, work = self.query.nodes[number], self._work[number]
        driver = driver_of(node)
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
                before = self._arrangement_before(number, side.name)
                arrangements[side.name] = kept_after(
                    work.sides[place],
                    own,
                    KeptBefore(
                        shape=self.shapes[number],
                        place=place,
                        title=side.title,
                        replaces=driver.replaces,
                        arrangement=before,
                        paces=paces_after(
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
                    lower(least, side.watermark_key(column), time)
        self.accounted.take(node, node_reports, rows_out)
        shape = self.shapes[number]
        kept = NodeKept(node, shape, arrangements, self.store, self.tick, self.keep_late)
        shed = shed_of_node(
            kept,
            self.query.options,
            [
                {bucket for report in node_reports for bucket in report.sides[place].crowded}
                for place in range(len(node.sides))
            ],
            decided_name(self.tick, list(self.others).index(self.query.name), number),
        )
        self.accounted.take_shed(node, shed)
        check_limits(self.query, shape, work, arrangements, self.accounted.rows_out)
        for fed, feed in ((side, feed) for side in node.sides for feed in side.feeds if feed.query):
            self.accounted.take_fed(fed.name, self._fed_to(feed))
        emitted = driver.outputs(
            node,
            Outgoing(
                watermarks=self._watermarks(node, less_lateness=True),
                limits=self._decided[number].limits,
                least=least,
                emitted=self._node_before(number).emitted,
                tight=self.query.options.watermark_rule is WatermarkRule.TIGHT,
            ),
        )
        self.nodes.append(
            NodeState(
                arrangements=arrangements,
                emitted=emitted,
                asof=kept.asof(driver.remembered(node, work, least), shed),
                table=work.table,
                elsewhere=producer_state(self.query, number),
                kept_by=side_producers(node, lambda query: self.others[query].shapes),
                missing=self._node_before(number).missing,
            )
        )
        self._fed.take(number, node_reports)
        parent = self.query.parent(number)
        if parent is not None:
            self.accounted.take_fed(parent[1].name, self._fed.by(number))

    @property
    def is_settled(self) -> bool:
        """All its nodes are."""
        return len(self.nodes) == len(self.query.nodes)

    def _maker(self, feed: FeedPlan) -> QueryTick:
        """Whose node makes the rows of a feed."""
        return self if feed.query is None else self.others[feed.query]

    def _fed_to(self, feed: FeedPlan) -> Sequence[FeedReport]:
        return self._maker(feed)._fed.to(feed)

    def _let_rest(self, number: int) -> None:
        """Pass over nodes before ``number`` in whose place others are run."""
        for resting in range(len(self.nodes), number):
            self.nodes.append(NodeState(elsewhere=producer_state(self.query, resting)))
            self.accounted.take_rest()

    def result(self) -> tuple[QueryState, QueryResult]:
        """The query's next state, and what there is to say of the tick; all nodes are settled.

        Raises:
            EngineError: a promise is broken (see `monotony`).
        """
        before = self._node_before(len(self.query.nodes) - 1).emitted
        emitted, held = self.nodes[-1].emitted, self.held()
        for own, maker, there in self._inputs_elsewhere():
            self.accounted.take_elsewhere(own, maker.accounted, there)
        if self.query.inputs_elsewhere:
            order = {side.name: place for place, side in enumerate(self.query.alone.accounted)}
            self.accounted.missing.sort(
                key=lambda told: order.get(told[0], len(order))
            )  # of joins: behind them
        inputs = [*(side.name for side in self.query.sides), *(own for own, _, _ in self._inputs_elsewhere())]
        state = {alias: held[alias] for alias in inputs if alias in held}
        account, read = added(self.before.account, self.accounted.counts), self.every_input
        after = QueryState(
            inputs=self.inputs,
            nodes=self.nodes,
            late_below=late_below(self.query, self.inputs, self.before.late_below),
            account=account,
            late=late_total(self.before.late, self._late_by(), self.query),
            rows_out=self.before.rows_out + self.accounted.rows_out,
            complete_from=self.before.complete_from,
            unknown=self.before.unknown + unknown(self._reports.values()),
            shed_joined=counted([self.before.shed_joined, self.accounted.shed_joined]),
        )
        check_promises(self.query.name, self.before, after, self.accounted.least_out)
        return after, QueryResult(
            risen_watermarks=risen(before, emitted),
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
            heavy=shares_by_side(self.shapes, self.nodes),
            split=split_by_side(report for reports in self._reports.values() for report in reports),
        )

    def traffic(self) -> Iterator[tuple[str, tuple[Traffic, ...]]]:
        """With the store, of the tasks of each node."""
        for number, reports in self._reports.items():
            told = tuple(report.traffic for report in reports if report.traffic is not None)
            if told:
                yield f"{self.query.name}/{number}", told

    def held(self) -> dict[str, int]:
        """The rows that are kept after the tick, per alias; of inputs of rows that others make, too."""
        held = {
            side.name: node.arrangements[side.name].retained
            for side in self.query.accounted
            for node in self.nodes
            if side.name in node.arrangements
        }
        for own, maker, there in self._inputs_elsewhere():
            of_maker = maker.held()
            if there in of_maker:
                held[own] = of_maker[there]
        return held

    def _inputs_elsewhere(self) -> Iterator[tuple[str, QueryTick, str]]:
        """The inputs that others account for: alias, who does, alias there."""
        for own, query, there in self.query.inputs_elsewhere:
            maker = self.others[query]
            if there in maker.accounted.counts:
                yield own, maker, there

    @property
    def every_input(self) -> dict[str, InputState]:
        """Watermarks of the inputs, those too that others read for the query."""
        told = {name: self.others[name].every_input for _, name, _ in self.query.inputs_elsewhere}
        return add_shared_inputs(self.query, self.inputs, told)

    def _late_by(self) -> list[tuple[str, Mapping[str, LateBy]]]:
        """How late the tick's rows were: per alias, of each report."""
        late_rows: list[tuple[str, Mapping[str, LateBy]]] = []
        for report in self.reports:
            name, _, alias = report.arrangement.rpartition("/")
            if name == self.query.name:
                late_rows.append((alias, report.late))
        for side in self.query.sides:
            for _, feed in side.stages:
                late_rows += [(side.name, report.late) for report in self._fed_to(feed)]
        for own, maker, there in self._inputs_elsewhere():
            late_rows += [(own, late) for alias, late in maker._late_by() if alias == there]
        return late_rows

    def _node_before(self, number: int) -> NodeState:
        return self.before.nodes[number] if self.before.nodes else NodeState()

    def _watermarks(self, node: NodePlan, *, less_lateness: bool) -> dict[str, Watermark]:
        """Of the keys of all sides: of inputs, or as put out by the node beneath."""
        watermarks: dict[str, Watermark] = {}
        for side in node.sides:
            if side.feed is not None:
                emitted = self._maker(side.feed).nodes[side.feed.node].emitted
                watermarks |= rename_watermarks(side.feed, emitted)
            elif side.copy_of is None:
                late = lateness_of(self.query, side) if less_lateness else 0
                for column, watermark in self.inputs[side.name].watermarks.items():
                    watermarks[side.watermark_key(column)] = shift(watermark, -late)
        return watermarks

    def _incoming(self, node: NodePlan) -> Incoming:
        return Incoming(
            watermarks=self._watermarks(node, less_lateness=False),
            lateness={
                side.watermark_key(column): lateness_of(self.query, side)
                for side in node.sides
                for column in side.event_times
            },
            on_time=self._watermarks(node, less_lateness=True),
            before=self._node_before(node.number),
            kept_before=lambda side: self._kept_before(node.number, side, as_its_own=True),
            brought=lambda side: [*self._new_runs(side), *(live.run for live in self._contents(side))],
            clock_us=self.clock_us,
        )

    def _brought(self, side: SidePlan) -> Sequence[IngestReport | FeedReport]:
        """What the tick brought for a side."""
        name = f"{self.query.name}/{side.name}"
        brought: list[IngestReport | FeedReport] = [r for r in self.reports if r.arrangement == name]
        for feed in side.feeds:
            brought += self._fed_to(feed)
        return brought

    def _new_runs(self, side: SidePlan) -> list[Run]:
        shared = self._written_by(side)
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
        """The rows that another query has kept before this one came, and which come to it now."""
        by = side.kept_by if self.begins and side.copy_of is None else None
        return () if by is None else self._kept_elsewhere(by).runs

    def _written_by(self, side: SidePlan) -> str | None:
        """The side of the job whose ingest writes the runs of this one, where several keep them."""
        tasks = (task for shape in self.shapes for task in shape.sides if task.name == side.name)
        return next((task.shared.arrangement for task in tasks if task.shared is not None), None)

    def _side_work(self, node: NodePlan, place: int, new_limits: Mapping[str, Watermark]) -> SideWork:
        side = node.sides[place]
        stored = self.shapes[node.number].stored
        releasing = stored[place].layout.releasing
        arrangement = self._arrangement_before(node.number, side.name)
        brought = self._brought(side)
        shape = self.shapes[node.number]
        work = SideWork(
            runs=arrangement.runs,
            new_runs=in_order(self._new_runs(side)),
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
            work.merges = choose(
                arrangement.runs,
                combining=shape.combines,
                read_once=shape.read_once,
                changing=shape.kept_anew,
                most_gone=self.most_gone.get(shape.sides[place].arrangement),
            )
        else:
            sharing.fill(work, releasing)
        return work
