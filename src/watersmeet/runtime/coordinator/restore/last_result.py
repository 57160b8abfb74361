"""What the last tick of a state has come to, for a run that goes on from there: it has had no tick yet."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.runtime.coordinator.results import QueryResult, TickResult
from watersmeet.runtime.coordinator.shared_inputs import values_by_query
from watersmeet.state.manifest import Manifest, QueryState
from watersmeet.watermark.tracker import InputState


def resumed(plan: JobPlan, manifest: Manifest | None) -> TickResult | None:
    """Rebuild the result of the last committed tick, without the facts of that tick alone.

    Queries that are new to the state are not included.

    Returns:
        The result; None if no tick is committed.
    """
    if manifest is None:
        return None
    states = {query.name: manifest.queries.get(query.name, QueryState()) for query in plan.queries}
    inputs = values_by_query(plan.queries, lambda query: states[query.name].inputs)
    held: dict[str, dict[str, int]] = {}
    for query in plan.queries:
        held[query.name] = _held(query, states[query.name], held)
    return TickResult(
        tick=manifest.tick,
        clock_us=manifest.clock_us,
        queries={
            query.name: _result(query, states[query.name], held[query.name], inputs[query.name])
            for query in plan.queries
            if query.name in manifest.queries
        },
        finished=manifest.finished,
        rows_in={},
        state=manifest,
    )


def _held(query: QueryPlan, state: QueryState, others: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Count the retained rows per alias, including inputs that another query reads."""
    held = {
        side.name: node.arrangements[side.name].retained
        for side in query.accounted
        for node in state.nodes
        if side.name in node.arrangements
    }
    for own, maker, there in query.shared_inputs:
        if there in others[maker]:
            held[own] = others[maker][there]
    return held


def _result(
    query: QueryPlan, state: QueryState, held: Mapping[str, int], inputs: Mapping[str, InputState]
) -> QueryResult:
    emitted = state.nodes[-1].emitted if state.nodes else {}
    aliases = [*(side.name for side in query.sides), *(own for own, _, _ in query.shared_inputs)]
    return QueryResult(
        risen_watermarks={},
        output_watermarks=emitted,
        input_watermarks={f"{a}.{c}": w for a, i in inputs.items() for c, w in i.watermarks.items()},
        state={alias: held[alias] for alias in aliases if alias in held},
        counts={},
        account={alias: {**rows, "retained": held.get(alias, 0)} for alias, rows in state.account.items()},
        rows_out=0,
        total_rows_out=state.rows_out,
        matches=0,
        state_bytes=state.nbytes,
        shed_joined=state.shed_joined,
        late=state.late,
        idle=tuple(alias for alias, read in inputs.items() if read.idle),
    )
