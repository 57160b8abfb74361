"""What became of every row of a case of many inputs, by the nested-loop oracle, which shares no code with the
engine: what the query put out of each (`tests.support.fates.numbered`), and from when on nothing of it was
kept in any join.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support.fates import ROW, Who
from tests.support.oracle.case import Oracle, Unsupported
from tests.support.oracle.join import JoinState
from tests.support.oracle.sql import Rows

Combined = frozenset[tuple[str, int | None]]
"""Per input the number of the joined row's row, None where it is padded."""


@dataclass
class KnownOfChain:
    """``came``: the tick it came in; ``what``: late, null_time, filtered, or new; ``out``: the rows of the
    output that it is in, per tick; ``gone``: the tick after which no join keeps anything of it."""

    came: int
    what: str
    out: Counter[tuple[int, Combined]] = field(default_factory=Counter)
    gone: int | None = None


def chain_fates(case: dict[str, Any]) -> dict[Who, KnownOfChain]:
    """Of a case of joins in append mode, whose rows are numbered; up to the end of its steps.

    Raises: Refused, Unsupported, as the oracle; Unsupported, where there is more than plain joins.
    """
    oracle: Any = Oracle(case)
    if len(oracle.blocks) > 1 or any(type(join) is not JoinState for join in oracle.joins):
        raise Unsupported("more than joins of streams")
    (block,) = oracle.blocks
    heard: dict[Who, KnownOfChain] = {}
    judge, join_all = block.judge, block.join_rows
    tick = 0

    def record_verdict(source: Any, branch: Any, rows: Rows, values: Any, diff: int) -> str:
        verdict: str = judge(source, branch, rows, values, diff)
        heard[source.alias, values[ROW]] = KnownOfChain(tick, verdict)
        return verdict

    def join_and_record_output(ended: bool) -> Any:
        rows, rose = join_all(ended)
        for row, _ in rows:
            if all(f(row) is True for f in block.query.where):
                shown = [(s.alias, own[ROW]) for s, own in zip(block.query.inputs, row, strict=True) if own]
                for who in shown:
                    if who[1] is not None:
                        heard[who].out[tick, frozenset(shown)] += 1
        return rows, rose

    block.judge, block.join_rows = record_verdict, join_and_record_output
    for step in case["steps"]:
        if "restart" not in step and "rescale" not in step:
            tick += 1
        oracle.step(step)
        kept = {
            (alias, entry.rows[place][ROW])
            for join in oracle.joins
            for side in join.kept
            for entry in side
            for alias, place in join.positions.items()
            if entry.rows[place]
        }
        for who, known in heard.items():
            if known.gone is None and who not in kept:
                known.gone = tick
    return heard
