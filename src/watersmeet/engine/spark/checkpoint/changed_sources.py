"""What a manifest remembers of a batch, for a job that reads other sources now, or in another order.

Spark knows sources by their numbers, and refuses another count of them. So its checkpoint is made anew from
this (`rebuild`): sources that stay go on from their offsets, those that come have none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from watersmeet.engine.spark.checkpoint.host import OFFSETS, SOURCES, TOPICS
from watersmeet.engine.spark.checkpoint.restart import sources_of
from watersmeet.engine.spark.sources.files.inferred import COLUMNS, as_kept
from watersmeet.engine.spark.sources.files.read import CHANGED
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Column
from watersmeet.state import file_lists
from watersmeet.state.store import Store

_NOTHING_READ = "-"
_HEADER = 2
"""Lines of Spark's offsets before those of the sources."""


def with_sources(
    host: Mapping[str, Any],
    before: Sequence[str],
    plan: JobPlan,
    stay: Collection[str],
    store: Store,
    inferred: Mapping[str, Sequence[Column]],
) -> dict[str, Any]:
    """The host with the sources of ``plan``.

    Args:
        before: the sources that it is of, by name.
        stay: those of them that go on from where they were.
        inferred: of sources of the plan the columns that were inferred.

    Raises:
        StateError: a list of files read is damaged.
    """
    places = {name: number for number, name in enumerate(before)}
    numbers = {places[s.name]: number for number, s in enumerate(plan.sources) if s.name in stay}
    changed = dict(host)
    for of_sources in (TOPICS, CHANGED):
        if of_sources in host:
            changed[of_sources] = {name: of for name, of in host[of_sources].items() if name in stay}
    changed[COLUMNS] = {name: as_kept(columns) for name, columns in inferred.items()}
    if OFFSETS in host:
        lines = str(host[OFFSETS]).split("\n")
        texts = dict.fromkeys(range(len(plan.sources)), _NOTHING_READ)
        texts |= {number: lines[_HEADER + old] for old, number in numbers.items()}
        changed |= {SOURCES: sources_of(plan), OFFSETS: "\n".join([*lines[:_HEADER], *texts.values()])}
    if any(old != numbers.get(old) for old in places.values()):
        files = file_lists.read(store, file_lists.lists_of(host))
        moved = (file._replace(source=numbers[file.source]) for file in files if file.source in numbers)
        changed[file_lists.KEY] = [entry.model_dump() for entry in file_lists.add(store, [], moved)]
    return changed
