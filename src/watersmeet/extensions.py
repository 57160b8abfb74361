"""What a package needs to declare its own sinks, sources and functions: stable names, and nothing else.

A package declares them as entry points of ``watersmeet.sinks``, ``watersmeet.sources`` and
``watersmeet.functions``; `watersmeet.testing.sink_contract` proves that a sink is exactly once.
"""

from __future__ import annotations

from watersmeet.sinks.base import (
    ChecksTarget,
    FrameSink,
    RemembersTarget,
    Sink,
    StagesInState,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.part_mark import Identity, Resumed, check_same, format_parts, newer_parts
from watersmeet.spec.connectors import Connector
from watersmeet.spec.functions import Function
from watersmeet.spec.model import Sink as SinkDeclaration
from watersmeet.spec.model import Source as SourceDeclaration
from watersmeet.spec.options.model import STATED
from watersmeet.spec.options.model import SystemOptions as Options

__all__ = [
    "STATED",
    "ChecksTarget",
    "Connector",
    "FrameSink",
    "Function",
    "Identity",
    "Options",
    "RemembersTarget",
    "Resumed",
    "Sink",
    "SinkDeclaration",
    "SourceDeclaration",
    "StagesInState",
    "check_same",
    "check_unique_names",
    "columns_of",
    "format_parts",
    "newer_parts",
]
