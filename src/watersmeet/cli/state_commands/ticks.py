"""`state ls`: the ticks that a state can be taken as of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from watersmeet.cli.state_commands.place import Place
from watersmeet.errors import StateError
from watersmeet.event_time import shown_time
from watersmeet.plan.explain.words import size_of
from watersmeet.state.manifest import Manifest, load, manifest_names
from watersmeet.state.sections import object_of


@dataclass(frozen=True)
class KeptTick:
    """One that is kept. ``clock_us``: its clock; ``rows``: retained, ``files``, ``bytes``: of its runs, each
    once; ``problem``: why it cannot be read, and nothing else is known of it then."""

    tick: int
    clock_us: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    finished: bool = False
    problem: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> KeptTick:
        runs = {live.run.name: live.run.nbytes for live in manifest.runs()}
        nodes = (node for query in manifest.queries.values() for node in query.nodes)
        rows = sum(kept.stored for node in nodes for kept in node.arrangements.values())
        files = len(set(map(object_of, runs)))
        return cls(manifest.tick, manifest.clock_us, rows, files, sum(runs.values()), manifest.finished)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def kept_ticks(place: Place) -> Iterator[KeptTick]:
    """Oldest first. The job may be running: a tick that is gone meanwhile is left out.

    Raises:
        StateError: there is no state.
    """
    store = place.checkpoint.store
    for name in place.ticks():
        try:
            yield KeptTick.of(load(store, name))
        except StateError as error:
            if name in manifest_names(store):
                yield KeptTick(tick_of(name), problem=error.message)


def tick_of(name: str) -> int:
    """Of a manifest's name."""
    return int(name.rpartition("/")[2].removesuffix(".json"))


def table_of(ticks: list[KeptTick]) -> Table:
    table = Table(title="Restorable ticks", title_justify="left", header_style="bold")
    for name in ("tick", "rows", "files", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("clock (UTC)", overflow="fold")
    for tick in ticks:
        if tick.problem is None:
            ended = ", its input has ended" if tick.finished else ""
            clock = f"{shown_time(tick.clock_us, False)}{ended}"
            table.add_row(f"{tick.tick:,}", f"{tick.rows:,}", f"{tick.files:,}", size_of(tick.bytes), clock)
        else:
            table.add_row(f"{tick.tick:,}", "", "", "", tick.problem)
    return table
