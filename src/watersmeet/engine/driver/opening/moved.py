"""State that one query keeps for several, when the plan says that another one does from now on, or each for
itself: the query went in whose place others rest, INSERTs are in another order, or a query that changed makes
other rows. Runs are never changed, so whoever needs them takes them along.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from watersmeet.plan.model.job import QueryPlan
from watersmeet.state.manifest import ElsewhereState, Manifest, NodeState, QueryState


def with_moved(manifest: Manifest, stay: Iterable[QueryPlan]) -> Manifest:
    """The state with what each node of the queries that ``stay`` keeps, whoever kept it before."""
    moved = {query.name: _moved(manifest, query) for query in stay if manifest.queries[query.name].nodes}
    return manifest.model_copy(update={"queries": {**manifest.queries, **moved}})


def _moved(manifest: Manifest, query: QueryPlan) -> QueryState:
    state = manifest.queries[query.name]
    nodes, inputs = list(state.nodes), dict(state.inputs)
    resting = {node.number for taken in query.taken for node in taken.nodes}
    for node in query.nodes:
        kept = state.nodes[node.number]
        if node.number in resting:
            nodes[node.number] = NodeState(elsewhere=kept.elsewhere)
            continue
        if kept.elsewhere is None:
            continue
        home = home_of(manifest, kept.elsewhere)
        nodes[node.number] = brought(manifest, home)
        for alias, there in home.aliases.items():
            of_input = manifest.queries[home.query].inputs.get(there)
            if alias not in inputs and of_input is not None:
                inputs[alias] = deepcopy(of_input)
    return state.model_copy(update={"nodes": nodes, "inputs": inputs})


def home_of(manifest: Manifest, elsewhere: ElsewhereState) -> ElsewhereState:
    """Where it is kept in the end: a node may rest, too, beneath one of which others take rows."""
    further = manifest.queries[elsewhere.query].nodes[elsewhere.node].elsewhere
    if further is None:
        return elsewhere
    sides = {own: further.sides[there] for own, there in elsewhere.sides.items() if there in further.sides}
    aliases = {
        own: further.aliases[there] for own, there in elsewhere.aliases.items() if there in further.aliases
    }
    return home_of(manifest, further.model_copy(update={"sides": sides, "aliases": aliases}))


def brought(manifest: Manifest, elsewhere: ElsewhereState) -> NodeState:
    """What another query's node keeps, by the names of the node that rested."""
    there = manifest.queries[elsewhere.query].nodes[elsewhere.node]
    return there.model_copy(
        update={
            "arrangements": {
                own: there.arrangements[name]
                for own, name in elsewhere.sides.items()
                if name in there.arrangements
            }
        }
    )
