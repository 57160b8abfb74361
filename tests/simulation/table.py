"""A table of some lake in a world: a `LakeTable` whose commits are made on the condition that nobody was
faster, as those of Delta and Iceberg are. What is around it, `sinks.lake`, is the package's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from tests.simulation.bucket import Network
from tests.simulation.world import World
from tests.support.parquet_rows import table_in
from watersmeet.sinks.lake.commits import Commit, CommittedTick, OvertakenError, TableWriter, Writer
from watersmeet.sinks.lake.table_sink import LakeSink
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec


class AwayError(OSError):
    """A client of files has given up: then the run ends."""


@dataclass
class TableServer:
    """What is stored: files, and which of them the table has."""

    network: Network
    place: str = "lake/table"
    files: dict[str, bytes] = field(default_factory=dict)
    version: int = 0
    named: list[str] = field(default_factory=list)
    marks: dict[Writer, CommittedTick] = field(default_factory=dict)
    fences: dict[Writer, int] = field(default_factory=dict)
    identities: dict[tuple[Writer, int], Mapping[str, str]] = field(default_factory=dict)

    def rows(self) -> list[tuple[Any, ...]]:
        """All that readers see."""
        tables = [table_in(self.files[path]) for path in self.named]
        return [row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


class SimulatedStorage:
    """Where the files of the one table of this world are; as `sinks.lake.storage.Storage`."""

    s3 = True
    endpoint = region = ""
    server: TableServer

    def __init__(self, *_: Any) -> None:
        """Tasks make one of the fields of another."""

    def connect(self) -> SimulatedStorage:
        return self

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[pa.BufferOutputStream]:
        stream = pa.BufferOutputStream()
        yield stream
        content = stream.getvalue().to_pybytes()
        self._ask("put a data file", lambda: self.server.files.__setitem__(path, content))

    def make_folder(self, folder: str) -> None:
        """There are none."""

    def files_in(self, folder: str) -> list[str]:
        files = self.server.files
        return self._ask("list data files", lambda: sorted(p for p in files if p.startswith(f"{folder}/")))

    def gone(self, files: Sequence[tuple[str, int]]) -> list[str]:
        there = self.server.files
        return self._ask(
            "look at data files", lambda: [path for path, size in files if len(there.get(path, b"")) != size]
        )

    def remove(self, paths: list[str]) -> None:
        for path in paths:
            self._ask("remove a data file", lambda path=path: self.server.files.pop(path, None))

    def _ask(self, what: str, request: Any) -> Any:
        """Clients of file systems try again by themselves."""
        for _ in range(60):
            try:
                return self.server.network.asked(what, request, OSError)
            except OSError:
                world = World.current
                assert world is not None
                world.sleep(1)
        raise AwayError("the service of the files does not answer")


class SimulatedTable:
    """A run's view of the table."""

    widened = False
    ids: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, server: TableServer) -> None:
        self._server = server
        self.place = self.data = server.place
        self._seen = -1
        SimulatedStorage.server = server
        self.storage = SimulatedStorage()

    def _ask(self, what: str, request: Any) -> Any:
        return self._server.network.asked(what, request, ConnectionError)

    def open(self, columns: Sequence[Column]) -> None:
        """It is there."""

    def peek(self, writer: Writer) -> CommittedTick | None:
        return self._server.marks.get(writer)

    def shown(self, error: object) -> str:
        return str(error)

    def named(self) -> set[str]:
        return {path.rsplit("/", 1)[-1] for path in self._ask("names", lambda: list(self._server.named))}

    def look(self, writer: Writer) -> TableWriter:
        def look() -> TableWriter:
            server, self._seen = self._server, self._server.version
            return TableWriter(server.marks.get(writer), server.fences.get(writer))

        return self._ask("look at the table", look)

    def tick_identity(self, writer: Writer, tick: int) -> Mapping[str, str] | None:
        return self._server.identities.get((writer, tick))

    def append(self, files: Sequence[Mapping[str, Any]], commit: Commit) -> None:
        self._commit(f"append tick {commit.tick}", lambda: self._add(files, commit))

    def removals(self, owner: str) -> list[str]:
        return []

    def merge(self, rows: pa.Table, key: Sequence[str], commit: Commit) -> None:
        raise NotImplementedError

    def fence(self, writer: Writer, number: int) -> None:
        self._commit("fence", lambda: self._server.fences.__setitem__(writer, number))

    def _add(self, files: Sequence[Mapping[str, Any]], commit: Commit) -> None:
        self._server.named += [str(file["path"]) for file in files]
        self._mark(commit)

    def _mark(self, commit: Commit) -> None:
        self._server.marks[commit.writer] = commit.as_committed
        self._server.identities[commit.writer, commit.tick] = dict(commit.tick_identity)

    def _commit(self, what: str, change: Any) -> None:
        server, seen = self._server, self._seen

        def commit_if_unchanged() -> None:
            if server.version != seen:
                raise OvertakenError
            server.version += 1
            change()

        self._ask(what, commit_if_unchanged)


class SimulatedLakeSink(LakeSink):
    """The package's own, with this table."""

    def __init__(self, spec: SinkSpec, server: TableServer) -> None:
        super().__init__(spec, SimulatedTable(server))
