"""State that one query keeps for several, when the plan says that another one does from now on, or each for
itself: the query went in whose place others rest, INSERTs are in another order, or a query that changed makes
other rows. Runs are never changed, so whoever needs them takes them along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TypeVar

from watersmeet.engine.driver.opening.run_rewriter import BroughtSide
from watersmeet.engine.driver.settling.shared_inputs import rename_key
from watersmeet.event_time import Watermark
from watersmeet.names import input_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.state.manifest import ElsewhereState, Manifest, NodeState, QueryState
from watersmeet.watermark.tracker import InputState

T = TypeVar("T")


def transfer_state(manifest: Manifest, stay: Iterable[QueryPlan]) -> tuple[Manifest, list[BroughtSide]]:
    """The state with what each node of the queries that ``stay`` keeps, whoever kept it before; and the sides
    of delta joins whose rows others kept, held by their keys."""
    brought = list[BroughtSide]()
    moved = {
        query.name: _transfer(manifest, query, brought)
        for query in stay
        if manifest.queries[query.name].nodes
    }
    return manifest.model_copy(update={"queries": {**manifest.queries, **moved}}), brought


def _transfer(manifest: Manifest, query: QueryPlan, brought: list[BroughtSide]) -> QueryState:
    state = manifest.queries[query.name]
    read_elsewhere = {alias for alias, _, _ in query.inputs_elsewhere}
    nodes, late_below = list(state.nodes), dict(state.late_below)
    inputs = {alias: of_input for alias, of_input in state.inputs.items() if alias not in read_elsewhere}
    resting = {node.number for taken in query.taken for node in taken.nodes}
    for node in query.nodes:
        kept = state.nodes[node.number]
        if node.number in resting:
            promised = {} if query.nodes[node.number].rests else kept.emitted
            nodes[node.number] = NodeState(elsewhere=kept.elsewhere, emitted=promised)
            continue
        if kept.elsewhere is not None:
            home = home_of(manifest, kept.elsewhere)
            nodes[node.number] = node_of(manifest, home)
            before = manifest.queries[home.query]
            inputs = deepcopy(_rename(home.aliases, before.inputs)) | inputs
            late_below |= _by_own_keys(before.late_below, home)
        for side in node.sides:
            of_node = nodes[node.number]
            if side.kept_by is not None:
                inputs.pop(side.name, None)
                nodes[node.number] = _without(of_node, side.name)
            elif side.name in of_node.kept_by:
                brought.append((query.name, node.number, side.name, of_node.kept_by[side.name].held))
                nodes[node.number], of_inputs = _with_side(manifest, of_node, side.name)
                inputs |= deepcopy(of_inputs)
    return state.model_copy(update={"nodes": nodes, "inputs": inputs, "late_below": late_below})


def _by_own_keys(watermarks: Mapping[str, Watermark], home: ElsewhereState) -> dict[str, Watermark]:
    """Per watermark key of a query whose inputs another one read, what that one has for it."""
    names = {there: alias for alias, there in home.aliases.items()}
    keys = {key: rename_key(key, names) for key in watermarks}
    return {own: watermarks[key] for key, own in keys.items() if own is not None}


def _without(node: NodeState, side: str) -> NodeState:
    """The state of a node without the rows of a side, which another query keeps."""
    arrangements = {name: kept for name, kept in node.arrangements.items() if name != side}
    return node.model_copy(update={"arrangements": arrangements})


def _with_side(manifest: Manifest, node: NodeState, side: str) -> tuple[NodeState, dict[str, InputState]]:
    """The state of a node with the rows of a side that another query kept, and of its input."""
    kept = node.kept_by[side]
    query, number, name = side_home(manifest, kept.query, kept.node, kept.side)
    there = manifest.queries[query].nodes[number].arrangements
    arrangements = {**node.arrangements, **({side: there[name]} if name in there else {})}
    others = {own: by for own, by in node.kept_by.items() if own != side}
    inputs, alias = manifest.queries[query].inputs, input_of(name)
    of_input = {side: inputs[alias]} if input_of(side) == side and alias in inputs else {}
    return node.model_copy(update={"arrangements": arrangements, "kept_by": others}), of_input


def side_home(manifest: Manifest, query: str, number: int, side: str = "") -> tuple[str, int, str]:
    """Return who keeps the rows of a side, or of a node, in the end: query, node and name there."""
    node = manifest.queries[query].nodes[number]
    if node.elsewhere is not None:
        home = node.elsewhere
        return side_home(manifest, home.query, home.node, home.sides.get(side, side))
    kept = node.kept_by.get(side)
    return (query, number, side) if kept is None else side_home(manifest, kept.query, kept.node, kept.side)


def home_of(manifest: Manifest, home: ElsewhereState) -> ElsewhereState:
    """Return where a node is kept in the end: a node may rest, too, beneath one of which others take rows."""
    further = manifest.queries[home.query].nodes[home.node].elsewhere
    if further is None:
        return home
    names = {"sides": _rename(home.sides, further.sides), "aliases": _rename(home.aliases, further.aliases)}
    return home_of(manifest, further.model_copy(update=names))


def node_of(manifest: Manifest, home: ElsewhereState) -> NodeState:
    """Return what another query's node keeps, by the names of the node that rested."""
    there = manifest.queries[home.query].nodes[home.node]
    return there.model_copy(
        update={
            "arrangements": _rename(home.sides, there.arrangements),
            "kept_by": _rename(home.sides, there.kept_by),
            "emitted": _by_own_keys(there.emitted, home),
            "missing": [_by_own_keys(way, home) for way in there.missing],
        }
    )


def _rename(names: Mapping[str, str], there: Mapping[str, T]) -> dict[str, T]:
    """Return what is there by other names; ``names``: own name -> name there."""
    return {own: there[name] for own, name in names.items() if name in there}
