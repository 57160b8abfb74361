"""Which class serves which connector: the seam for more sinks.

A new sink is one module with a class that follows `watersmeet.sinks.base.Sink` and is built from
``(spec, console)``, and one line in `CONNECTORS`. Modules are imported when first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from watersmeet.errors import SpecError, near_names
from watersmeet.sinks.base import ArrowPart, RowPrinter, Sink
from watersmeet.spec.model import Sink as SinkSpec

CONNECTORS: dict[str, tuple[str, str]] = {
    "file": ("watersmeet.sinks.files", "FileSink"),
    "kafka": ("watersmeet.sinks.kafka", "KafkaSink"),
    "console": ("watersmeet.sinks.console", "ConsoleSink"),
    "memory": ("watersmeet.sinks.memory", "MemorySink"),
}
"""Connector, in lower case -> (module, class)."""

PARTS: dict[str, tuple[str, str]] = {"parquet": ("watersmeet.sinks.parquet_part", "ParquetPart")}
"""What tasks stage rows with: name -> (module, class)."""


def make_sink(spec: SinkSpec, *, console: RowPrinter | None = None) -> Sink:
    """The sink that ``spec`` asks for, not yet prepared.

    ``console`` shows the rows of a console sink; without it they are plain text on standard output.
    """
    try:
        module, name = CONNECTORS[spec.connector.lower()]
    except KeyError:
        raise SpecError(
            f'"{spec.name}": there is no sink of type "{spec.connector}"',
            code="unknown-connector",
            hint=near_names(spec.connector, CONNECTORS),
        ) from None
    return cast(Sink, getattr(import_module(module), name)(spec, console))


def plain_part(part: ArrowPart) -> dict[str, Any]:
    """``part`` as plain values that JSON knows, for `part_from`."""
    wanted = (type(part).__module__, type(part).__name__)
    kind = next(kind for kind, part_class in PARTS.items() if part_class == wanted)
    return {**vars(part), "kind": kind}


def part_from(plain: Mapping[str, Any]) -> ArrowPart:
    """The part that `plain_part` made ``plain`` of. Raises: KeyError for a kind that is not listed."""
    values = dict(plain)
    module, name = PARTS[values.pop("kind")]
    return cast(ArrowPart, getattr(import_module(module), name)(**values))
