"""Of which queries over changing data the batch answer over all that was read is what they have put out."""

from __future__ import annotations

from watersmeet.cli.diff.whole_tables import WholeTables
from watersmeet.errors import SpecError
from watersmeet.spec.model import Input, Insert


def reads_changes(insert: Insert) -> bool:
    """Whether rows of its sources are taken back."""
    return any(source.changes or source.compared for given in _inputs(insert) for source in given.sources)


def check_decided(insert: Insert, tables: WholeTables) -> None:
    """Raises: SpecError, if what a query has put out follows from more than what its sources hold at the end,
    which is named."""
    for given in _inputs(insert):
        for source in given.sources:
            refused = tables.refused(insert.name, source.name) if given.as_of or source.compared else None
            if refused is not None:
                raise SpecError(
                    f'"{insert.name}": "{source.name}" is a table that is read again and again: {refused}',
                    code="not-compared",
                    hint="keep what it held as rows with times, and join them by ASOF, to compare",
                )
    for query in insert.query.every:
        streams = [given for given in query.inputs if given.event_times]
        if not streams:
            continue
        if any(source.changes for given in streams for source in given.sources):
            raise _undecided(insert, f'"{streams[0].alias}" is a stream')
        changing = [given for given in query.inputs if given.changes]
        if changing:
            raise _undecided(insert, f'"{streams[0].alias}" is a stream beside "{changing[0].alias}"')


def _inputs(insert: Insert) -> list[Input]:
    return [given for query in insert.query.every for given in query.inputs]


def _undecided(insert: Insert, why: str) -> SpecError:
    return SpecError(
        f'"{insert.name}": {why}, which changes; what became of rows of a stream that were let go is final',
        code="not-compared",
        hint="queries over streams alone, or over changing tables alone, are compared",
    )
