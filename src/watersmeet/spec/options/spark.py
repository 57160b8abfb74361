"""What is read and written by one of Spark's own data sources is told: which, and that one's options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watersmeet.errors import SpecError
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.lowered import lowered

FORMAT, TABLE = "format", "table"
_OURS = {"kafka": "Kafka", "json": "File", "csv": "File", "parquet": "File"}
"""Formats that have a connector of their own, which counts what is broken, knows what was read, and puts rows
out exactly once."""
_NOT_WRITTEN = {**_OURS, "console": "Console", "memory": "Memory"}
_MODES = ("mode", "savemode")


def source_problems(source: Source) -> Iterator[SpecError]:
    """What is wrong with the options of a source, as far as a text tells."""
    what = f'"{source.name}"'
    written = format_of(source.options)
    if not written:
        yield SpecError(
            f"{what}: the option '{FORMAT}' is missing, which names Spark's data source",
            code="missing-option",
            hint=f"for example '{FORMAT}' = 'rate'",
        )
    elif written.lower() in _OURS:
        own = _OURS[written.lower()]
        yield SpecError(
            f"{what}: use TYPE {own} to read {written}; it also counts broken records",
            code="wrong-option",
            hint=f"write TYPE {own}, or read it in Python: stream(spark.readStream.format(…), …)",
        )


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """What is wrong with the options of a sink, as far as a text tells."""
    what = f'sink "{sink.name}"'
    written = format_of(sink.options)
    if not written and not table_of(sink.options):
        yield SpecError(
            f"{what}: the option '{FORMAT}' or '{TABLE}' is missing, which names Spark's data source",
            code="missing-option",
            hint=f"for example '{FORMAT}' = 'jdbc', or '{TABLE}' = 'catalog.db.t'",
        )
    elif written.lower() in _NOT_WRITTEN:
        own = _NOT_WRITTEN[written.lower()]
        why = (
            "which writes exactly once, unlike Spark's own writer"
            if written.lower() in _OURS
            else "which writes it directly"
        )
        yield SpecError(
            f"{what}: {written} needs TYPE {own}, {why}",
            code="wrong-option",
            hint=f"write TYPE {own}, or in Python sink('{own.lower()}', …)",
        )
    for name in sink.options:
        if name.lower() in _MODES:
            yield SpecError(
                f"{what}: option '{name}' cannot be set: each tick appends its rows",
                code="wrong-option",
                hint="remove it",
            )


def format_of(options: Mapping[str, str]) -> str:
    """The data source's name; empty where it is not said."""
    return lowered(options).get(FORMAT, "").strip()


def table_of(options: Mapping[str, str]) -> str:
    """The table of one of Spark's catalogs; empty where a format says what ``table`` means."""
    return "" if format_of(options) else lowered(options).get(TABLE, "").strip()


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """What the data source is told."""
    ours = (FORMAT,) if format_of(options) else (TABLE,)
    return {name: str(value) for name, value in options.items() if name.lower() not in ours}
