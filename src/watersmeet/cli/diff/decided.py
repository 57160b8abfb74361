"""Of which queries over changing data the batch answer over all that was read is what they have put out."""

from __future__ import annotations

from watersmeet.cli.diff.whole_tables import WholeTables
from watersmeet.errors import SpecError
from watersmeet.spec.model import Input, Insert

_FINAL = ", which changes, and what became of a stream's row is final once it was dropped"


def reads_changes(insert: Insert) -> bool:
    """Whether rows of its sources are taken back."""
    return any(source.changes or source.compared for given in inputs_of(insert) for source in given.sources)


def by_ticks(insert: Insert, tables: WholeTables) -> str | None:
    """Why what a query has put out goes by what its sources held in each tick, and not only at the end; None:
    it does not.

    Raises:
        SpecError: it goes by what is not kept, which is named.
    """
    for given in inputs_of(insert):
        for source in given.sources:
            refused = tables.refused(insert.name, source.name) if given.as_of or source.compared else None
            if refused is not None:
                raise SpecError(
                    f'"{insert.name}": "{source.name}" is a table that the job reads again in each tick:'
                    f" {refused}",
                    code="not-compared",
                    hint="keep what it held as rows with times, and join them by ASOF, to compare",
                )
    for query in insert.query.every:
        streams = [given for given in query.inputs if given.event_times]
        if not streams:
            continue
        if any(source.changes for given in streams for source in given.sources):
            return f'"{streams[0].alias}" is a stream{_FINAL}'
        changing = [given for given in query.inputs if given.changes]
        if changing:
            return f'"{streams[0].alias}" is a stream beside "{changing[0].alias}"{_FINAL}'
    return None


def inputs_of(insert: Insert) -> list[Input]:
    """Return the inputs of a query, and of the queries beneath it."""
    return [given for query in insert.query.every for given in query.inputs]
