"""An object store in a world: the client that `objects.object_store` asks, and what goes wrong on the way.

Faults of a request: refused (503), reset, refused though it was done, the answer lost, done when the client
has given up long since (``late``), and of a request for many a part alone done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, GenericError

from tests.simulation.steps import Aim, step_of
from tests.simulation.world import Process, World
from watersmeet.objects.object_store import ObjectLocation

UNAVAILABLE = "Generic S3 error: response error: status code: 503 Service Unavailable"
LOST = "Generic S3 error: error sending request: operation timed out"
FAULTS = ("unavailable", "reset", "done but refused", "lost", "late", "conflict")


class Network:
    """What goes wrong with requests, to whatever service. ``rate``: of requests. ``away_until_us``: until
    then nothing is answered. ``aims``: what goes wrong there."""

    def __init__(self, world: World, rate: float) -> None:
        self.world, self.rate = world, rate
        self.away_until_us = 0
        self.aims: list[tuple[Aim, str]] = []

    def asked(self, what: str, request: Callable[[], Any], failed: Callable[[str], Exception]) -> Any:
        """The answer. ``request``: has its effect in one step. ``failed``: an error of the client's."""
        world = self.world
        world.point(f"before {what}")
        fault = self._fault(step_of(what))
        if fault is not None:
            world.counts[f"fault: {fault}"] += 1
            world.struck[step_of(what), fault] += 1
            world.note(f"fault: {fault}")
        if fault == "unavailable":
            raise failed(UNAVAILABLE)
        if fault == "conflict":
            raise failed(UNAVAILABLE.replace("503 Service Unavailable", "409 Conflict"))
        if fault == "reset":
            raise failed("Generic S3 error: connection reset by peer")
        if fault == "late":
            self._later(what, request)
            raise failed(LOST)
        answer = request()
        world.point(f"after {what}")
        if fault == "lost":
            raise failed(LOST)
        if fault == "done but refused":
            raise failed(UNAVAILABLE)
        return answer

    def _fault(self, step: str) -> str | None:
        draw = self.world.random
        for aim, fault in self.aims:
            if aim.hits(step):
                return fault
        if self.world.now_us < self.away_until_us:
            return "unavailable"
        return draw.choice(FAULTS) if self.rate and draw.random() < self.rate else None

    def _later(self, what: str, request: Callable[[], Any]) -> None:
        """The request is on its way, whoever sent it may be dead."""
        seconds = self.world.random.choice([0.01, 0.1, 1, 10, 100])

        def arrive() -> None:
            self.world.sleep(seconds)
            self.world.point(f"late: {what}")
            try:
                request()
            except (FileNotFoundError, AlreadyExistsError):
                return
            except Exception:  # of a table: somebody was faster
                self.world.note("came too late")

        self.world.spawn(Process("network"), arrive)


@dataclass
class Bucket:
    """What is there. ``created``: what was ever created, as it was first."""

    objects: dict[str, bytes] = field(default_factory=dict)
    created: dict[str, bytes] = field(default_factory=dict)


class Client:
    """What `obstore` gives of a bucket, as far as it is asked for."""

    def __init__(self, bucket: Bucket, network: Network) -> None:
        self._bucket, self._objects, self._network = bucket, bucket.objects, network

    def _ask(self, what: str, request: Callable[[], Any]) -> Any:
        return self._network.asked(what, request, GenericError)

    def put(
        self,
        name: str,
        data: Any,
        *,
        mode: str = "overwrite",
        use_multipart: bool = False,
        chunk_size: int = 0,
    ) -> None:
        content = bytes(data)

        def store_object() -> None:
            if mode == "create" and name in self._objects:
                raise AlreadyExistsError(name)
            self._objects[name] = content
            if mode == "create":
                self._bucket.created.setdefault(name, content)

        self._ask(f"{mode} {name}", store_object)

    def get(self, name: str) -> Any:
        def get() -> Any:
            content = self._object(name)
            return SimpleNamespace(bytes=lambda: pa.py_buffer(content))

        return self._ask(f"get {name}", get)

    def get_ranges(
        self, name: str, *, starts: Sequence[int], lengths: Sequence[int], coalesce: int = 0
    ) -> list[pa.Buffer]:
        def get() -> list[pa.Buffer]:
            content = pa.py_buffer(self._object(name))
            return [content[start : start + length] for start, length in zip(starts, lengths, strict=True)]

        self._network.world.counts["sections"] += len(starts)
        ranges: list[pa.Buffer] = self._ask(f"get {name}", get)
        return ranges

    def head(self, name: str) -> Any:
        return self._ask(f"head {name}", lambda: len(self._object(name)))

    def list_with_delimiter(self, folder: str) -> dict[str, Any]:
        def list_folder() -> dict[str, Any]:
            names = sorted(name for name in self._objects if name.rpartition("/")[0] == folder)
            return {"objects": [{"path": f"prefix/{name}"} for name in names]}

        return self._ask(f"list {folder}", list_folder)

    def delete(self, names: list[str]) -> None:
        world = self._network.world
        ordered = sorted(names)
        world.random.shuffle(ordered)
        middle = world.random.randrange(len(ordered) + 1)

        def build_delete_request(some: list[str]) -> Callable[[], None]:
            def delete() -> None:
                for name in some:
                    self._objects.pop(name, None)

            return delete

        if middle not in (0, len(ordered)):
            self._ask(f"delete {middle} of {len(ordered)}", build_delete_request(ordered[:middle]))
        self._ask(f"delete {ordered[-1]} and others", build_delete_request(ordered[middle:]))

    def _object(self, name: str) -> bytes:
        try:
            return self._objects[name]
        except KeyError:
            raise FileNotFoundError(f"Object at location {name} not found") from None


class SimulatedPlace(ObjectLocation):
    """Of the bucket of this world. A `ObjectLocation` holds texts alone, so that it can be sent to tasks."""

    clients: dict[str, Client] = {}  # noqa: RUF012

    def client(self) -> Any:
        return self.clients[self.url]


def place_of(bucket: Bucket, network: Network) -> SimulatedPlace:
    place = SimulatedPlace("s3://simulated/prefix")
    SimulatedPlace.clients = {place.url: Client(bucket, network)}
    return place
