"""A source none of whose records parses: a tick that would say so in a number alone is refused.

When a column is declared as another type, or in another format, than the records have, each of them is
broken. The job would go on, put out nothing, and its watermark would never move.
"""

from __future__ import annotations

from watersmeet.engine.driver.counts import RowsRead, branches_of
from watersmeet.errors import EngineError, raise_all
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import OnBroken
from watersmeet.state.manifest import Manifest

LEAST = 100
"""So many records have to be broken; of fewer, others may come that are not."""


def check_not_all_broken(plan: JobPlan, before: Manifest | None, read: RowsRead) -> None:
    """Refuse the first tick that reads a source if all of its records, and enough of them, are broken.

    Args:
        before: the state that the tick goes on from.
        read: in the tick.

    Raises:
        EngineError: ``all-records-broken``, of each source with the text of one record; nothing of the tick
            goes out.
    """
    wholly = {name: own for name, own in read.broken.items() if own.is_all and own.rows >= LEAST}
    if not wholly:
        return
    stops = {source.name for source in plan.sources if source.on_broken is OnBroken.STOP}
    places = branches_of(plan)
    raise_all(
        [
            EngineError(
                f'source "{name}": all {own.rows:,} records that were read first do not parse into the'
                f" declared columns, such as {own.text}. Nothing was committed",
                code="all-records-broken",
                hint="declare the columns as the records have them, with the options of the format, such as"
                " 'timestampFormat' or 'sep' (watersmeet infer shows what they have); or say 'on_broken' ="
                " 'count' for the source, and they are counted and left out",
            )
            for name, own in wholly.items()
            if name in stops and not _was_read(before, *places[name][0].rsplit("/", 1))
        ]
    )


def _was_read(before: Manifest | None, query: str, alias: str) -> bool:
    """Return whether rows of an input have come before."""
    state = None if before is None else before.queries.get(query)
    return state is not None and state.account.get(alias, {}).get("in", 0) > 0
