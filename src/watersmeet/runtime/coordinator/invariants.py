"""Check that no watermark, limit or output watermark goes back before a tick is committed.

No input watermark, limit or output watermark is below that of the last manifest, and no row of the tick has a
time below the output watermark that was put out before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Watermark
from watersmeet.state.manifest import NodeState, QueryState


def check_invariants(
    query: str, before: QueryState, after: QueryState, least_out: Sequence[Mapping[str, int]]
) -> None:
    """Compare a query's state after a tick with the state before it and with the tick's rows.

    Args:
        least_out: per node and watermark key, the least time among the rows that the node emitted.

    Raises:
        EngineError: ``internal-watermark``, with the key and both values. Then nothing may be
            committed.
    """
    for what, old, new in _pair_watermarks(before, after):
        for key, value in old.items():
            if new.get(key, NEVER) < value:
                raise _invariant_error(
                    query, f"the {what} of {key} went back from {value} to {new.get(key, NEVER)}"
                )
    for node, least in zip(before.nodes, least_out, strict=False):
        for key, time in least.items():
            promised = node.emitted.get(key, NEVER)
            if time < promised:
                raise _invariant_error(
                    query, f"a row has {key} = {time}, below the output watermark {promised}"
                )


def _pair_watermarks(
    before: QueryState, after: QueryState
) -> Iterator[tuple[str, Mapping[str, Watermark], Mapping[str, Watermark]]]:
    """Yield (name of the kind, before, after) for all watermarks, each per key ``alias.column``."""
    yield "watermark", _watermarks(before), _watermarks(after)
    yield "limit of lateness", before.late_below, after.late_below
    for old, new in zip(before.nodes, after.nodes, strict=False):
        yield "limit", _limits(old), _limits(new)
        yield "output watermark", old.emitted, new.emitted


def _watermarks(state: QueryState) -> dict[str, Watermark]:
    return {
        f"{alias}.{column}": value
        for alias, input_state in state.inputs.items()
        for column, value in input_state.watermarks.items()
    }


def _limits(node: NodeState) -> dict[str, Watermark]:
    return {
        f"{side}.{column}": value
        for side, arrangement in node.arrangements.items()
        for column, value in arrangement.limits.items()
    }


def _invariant_error(query: str, detail: str) -> EngineError:
    return EngineError(
        f'"{query}": {detail}; the tick was not committed',
        code="internal-watermark",
        hint="this is a bug in watersmeet: please report it with the job and this message",
    )
