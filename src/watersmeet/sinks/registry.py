"""Make the sinks of a job, and the parts with which tasks stage their rows.

A new sink is one module with a class that follows `watersmeet.sinks.base.Sink` and is built from
``(spec, console)``, or a function that makes one; `spec.connectors` names it. Modules are imported when
first asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, cast

from watersmeet.errors import SpecError, near_names
from watersmeet.sinks.base import ArrowPart, RemembersTarget, RowPrinter, Sink
from watersmeet.sinks.function import ForeachBatchSink
from watersmeet.spec.connectors import FOREACH_BATCH, find_connector, list_names
from watersmeet.spec.entry_points import SINKS, load_code, load_reference
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.files import in_store, path_of
from watersmeet.spec.options.function import OfBatches

PARTS = {
    "parquet": "watersmeet.sinks.parquet:ParquetPart",
    "stored": "watersmeet.sinks.object_store:StoredPart",
    "lake": "watersmeet.sinks.lake.data_files:LakePart",
    "postgres": "watersmeet.sinks.postgres.copy:PostgresPart",
}
"""Classes with which tasks stage rows, by the names that messages to tasks have."""


def make_sink(
    spec: SinkSpec,
    *,
    console: RowPrinter | None = None,
    functions: Mapping[str, OfBatches] = MappingProxyType({}),
) -> Sink:
    """Create the sink that ``spec`` describes, not yet prepared.

    Args:
        console: Printer of a console sink's rows; without it they are plain text on standard output.
        functions: Functions of this process, by the names of the sinks that use them.
    """
    if spec.connector == FOREACH_BATCH:
        return ForeachBatchSink(spec, functions.get(spec.name))
    connector = find_connector(spec.connector)
    if connector is None or connector.sink is None:
        raise SpecError(
            f'"{spec.name}": there is no sink of TYPE "{spec.connector}"',
            code="unknown-connector",
            hint=near_names(spec.connector, list_names(sinks=True)),
        )
    return cast(Sink, load_code(SINKS, connector.name, connector.sink)(spec, console))


def file_sink(spec: SinkSpec, console: RowPrinter | None = None) -> Sink:
    """Create the sink of a directory, or of Parquet files in an object store."""
    if in_store(path_of(spec.options)):
        from watersmeet.sinks.object_store import StoredFileSink

        return StoredFileSink(spec, console)
    from watersmeet.sinks.file_sink import FileSink

    return FileSink(spec, console)


def target_sinks(sinks: Mapping[str, Sink], names: Collection[str]) -> list[RemembersTarget]:
    """Return the sinks of these names, which remember their target. Raises: SpecError."""
    targets = {name: sink for name, sink in sinks.items() if isinstance(sink, RemembersTarget)}
    for name in names:
        if name not in targets:
            raise SpecError(
                f'--accept-target {name}: the job has no postgres sink "{name}"',
                code="wrong-option",
                hint=near_names(name, targets) or "sinks of the connector postgres do",
            )
    return [targets[name] for name in names]


def is_known_part(part: ArrowPart) -> bool:
    """Return True if tasks can receive the part: its class is listed in `PARTS`."""
    return _reference_of(part) in PARTS.values()


def plain_part(part: ArrowPart) -> dict[str, Any]:
    """Convert ``part``, without its secrets, to plain JSON values for `part_from`.

    Only tasks of this run read them; they are not stored.
    """
    kind = next(kind for kind, reference in PARTS.items() if reference == _reference_of(part))
    values = dict(vars(part))
    for name in getattr(type(part), "SECRETS", ()):
        del values[name]
    return {**values, "kind": kind}


def part_from(plain: Mapping[str, Any], secrets: Mapping[str, str] = MappingProxyType({})) -> ArrowPart:
    """Create the part from the values that `plain_part` returned.

    Args:
        secrets: `Sink.secrets`; may contain more than the part needs.

    Raises:
        KeyError: The kind is not listed.
    """
    values = dict(plain)
    part_class = load_reference(PARTS[values.pop("kind")])
    secret = {field: secrets[field] for field in getattr(part_class, "SECRETS", ())}
    return cast(ArrowPart, part_class(**values, **secret))


def _reference_of(part: ArrowPart) -> str:
    return f"{type(part).__module__}:{type(part).__name__}"
