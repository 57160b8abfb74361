"""Which rows of the two inputs of a join meet: the join itself, run in this process over the rows at hand as
a batch, so that its condition means what it means in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.local import LocalJob
from watersmeet.engine.local.given import zoned
from watersmeet.event_time import Mask
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.model import Insert, Job, Join, JoinKind
from watersmeet.state.store import MemoryStore
from watersmeet.whatif.pairs import ROW, Pairs, apart_name, batch_plan
from watersmeet.why.judged import InputRows


def pairs_of(
    insert: Insert, job: Job, inputs: Mapping[str, Sequence[InputRows]], asked: Mapping[str, Sequence[Mask]]
) -> Pairs:
    """The pairs that the ON condition joins, of an inner join WHERE as well. Rows are numbered by input,
    branch after branch.

    Args:
        asked: per input and branch, which rows to look at.

    Raises:
        EngineError: a condition fails for a pair, as it does in a run.
    """
    relation = insert.query.relation
    assert isinstance(relation, Join)
    if relation.kind is not JoinKind.INNER:  # there it is for rows that have met, or not
        query = replace(insert.query, where=None, relation=replace(relation, where=None))
        insert = replace(insert, query=query)
    plan = batch_plan(insert, job, apart=True)
    engine = LocalJob(plan, MemoryStore(), given=True)
    sources = {source.name: source for source in plan.sources}
    try:
        for alias, branches in inputs.items():
            first = 0
            for branch, mask in zip(branches, asked[alias], strict=True):
                chosen = np.flatnonzero(mask)
                name = apart_name(alias, branch.number)
                if len(chosen):
                    rows = branch.of.rows.drop_columns([DIFF, PARTITION]).take(pa.array(chosen))
                    rows = rows.append_column(ROW, pa.array(chosen + first))
                    engine.push(name, zoned(rows, sources[name].columns))
                first += len(mask)
        return Pairs.of(engine.tick(clock_us=0).tables[insert.name])
    finally:
        engine.close()
