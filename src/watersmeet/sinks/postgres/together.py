"""Rows of several tables of one database, and what else is to be there with them, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from watersmeet.postgres_server import Cursor
from watersmeet.sinks.part_mark import Identity
from watersmeet.sinks.postgres.sink import DURABLE, PostgresSink

Result = TypeVar("Result")


def publish_together(
    sinks: Sequence[tuple[PostgresSink, str]],
    tick: int,
    attempt: str,
    identity: Identity,
    then: Callable[[Cursor, list[str]], Result],
) -> Result:
    """Publish what is staged for all of ``sinks`` (with their inserts), and do ``then``, or nothing of that.

    Args:
        sinks: of one database and user.
        then: is given those inserts of which the tables have rows of the tick. It may be called more than
            once: the answer to a COMMIT may be lost.

    Raises:
        EngineError: as `Sink.publish`, or what ``then`` raised.
    """
    doing = sinks[0]

    def work(cursor: Cursor) -> tuple[list[bool], Result]:
        nonlocal doing
        cursor.execute(DURABLE)
        there = []
        for doing in sinks:
            sink, insert = doing
            there.append(sink.show(cursor, insert, tick, attempt, identity))
        return there, then(cursor, [insert for (_, insert), has in zip(sinks, there, strict=True) if has])

    while True:
        try:
            shown, result = sinks[0][0].server.run(work)
            break
        except Exception as error:
            # What is looked at when a transaction ends may be any of them.
            again = [sink.sorts_out(error, insert, tick, attempt) for sink, insert in sinks]
            if not any(again):
                sink, insert = next((one for one in sinks if one[0].is_about(error)), doing)
                raise sink.refusal(error, insert, tick, attempt) from None
    for (sink, insert), has in zip(sinks, shown, strict=True):
        sink.shown(insert, tick, attempt, there=has)
    return result
