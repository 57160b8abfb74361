"""The names that statements have declared so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.parser.query.flow import Flow, JoinedView, flow_of
from watersmeet.parser.text.source_position import StatementRejected, Text
from watersmeet.spec.model import Sink, Source


@dataclass
class Catalog:
    """Streams, tables, views and sinks, by lower-case name, each with its spelling.

    ``broken``: names whose declaration has a problem; what uses them is passed over in silence, so that one
    mistake is reported once. ``inferred``: streams whose columns are inferred when they are first read, and
    which can be written to without that; ``keyed``: those with a primary key; by lower-case name.
    """

    flows: dict[str, tuple[str, Flow | JoinedView]] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    inferred: dict[str, Callable[[], Source]] = field(default_factory=dict)
    keyed: set[str] = field(default_factory=set)

    @staticmethod
    def of(sources: Mapping[str, Source]) -> Catalog:
        return Catalog({name.lower(): (name, flow_of(source)) for name, source in sources.items()})

    def inner(self) -> Catalog:
        """Return a copy to which the names of one statement (WITH) can be added."""
        return Catalog(dict(self.flows), self.sinks, set(self.broken), self.inferred, self.keyed)

    def add(self, name: str, flow: Flow | JoinedView) -> None:
        self.flows[name.lower()] = (name, flow)
        self.broken.discard(name.lower())

    def drop(self, name: str) -> None:
        self.flows.pop(name.lower(), None)
        self.sinks.pop(name.lower(), None)
        self.inferred.pop(name.lower(), None)
        self.keyed.discard(name.lower())

    def flow(self, name: str, where: exp.Expr, text: Text) -> tuple[str, Flow | JoinedView]:
        """Return the relation with that name, and the name as spelled in its declaration."""
        flow = self.flows.get(name.lower())
        self._check_can_be_read(name, flow, where, text)
        if flow is not None:
            return flow
        if name.lower() in self.broken:
            raise StatementRejected
        if name.lower() in self.inferred:
            source = self.inferred[name.lower()]()
            self.add(source.name, flow_of(source))
            return self.flows[name.lower()]
        if name.lower() in self.sinks:
            raise text.error(
                f'"{name}" is declared without columns, so it can only be written to',
                "unknown-table",
                where,
                "add a column list to its declaration",
            )
        hint = near_names(name, [spelled for spelled, _ in self.flows.values()])
        raise text.error(f'unknown table or view "{name}"', "unknown-table", where, hint)

    def _check_can_be_read(
        self, name: str, flow: tuple[str, Flow | JoinedView] | None, where: exp.Expr, text: Text
    ) -> None:
        """Refuse a name whose connector only writes: as it is declared in SQL, or given by Python."""
        ways = flow[1].ways if flow is not None and isinstance(flow[1], Flow) else ()
        for end in (self.sinks.get(name.lower()), *(way.origin for way in ways)):
            if isinstance(end, Source | Sink) and not end.traits.can_read:
                raise text.error(
                    f'"{name}" can only be written to: there is no {end.connector} source',
                    "unknown-table",
                    where,
                    end.traits.read_instead,
                )

    def sink(self, name: str, offset: int, text: Text) -> Sink:
        declared_sink = self.sinks.get(name.lower())
        if declared_sink is not None and name.lower() in self.keyed:
            raise text.error(
                f'"{name}" is a source with a PRIMARY KEY: rows written to it would not be kept unique',
                "unknown-sink",
                offset,
                "declare a sink to write to it: CREATE SINK … (…, PRIMARY KEY (…) NOT ENFORCED)",
            )
        if declared_sink is not None:
            return declared_sink
        if name.lower() in self.broken:
            raise StatementRejected
        if name.lower() in self.flows:
            raise text.error(f'"{name}" is a view and cannot be written to', "unknown-sink", offset)
        hint = near_names(name, [sink.name for sink in self.sinks.values()])
        raise text.error(f'unknown sink "{name}"', "unknown-sink", offset, hint)
