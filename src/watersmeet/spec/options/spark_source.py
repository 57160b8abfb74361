"""What a source that Spark reads by one of its own data sources is told: which, and that one's options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watersmeet.errors import SpecError
from watersmeet.spec.model import Source
from watersmeet.spec.options.lowered import lowered

FORMAT = "format"
_OURS = {"kafka": "Kafka", "json": "File", "csv": "File", "parquet": "File"}
"""Formats that have a connector of their own, which counts what is broken, and knows what was read."""


def problems(source: Source) -> Iterator[SpecError]:
    """What is wrong with the options, as far as a text tells."""
    what = f'"{source.name}"'
    written = format_of(source.options)
    if not written:
        yield SpecError(
            f"{what}: it is not said by which of Spark's data sources it is read",
            code="missing-option",
            hint=f"'{FORMAT}' = 'rate', or the name of a data source that the session has",
        )
    elif written.lower() in _OURS:
        own = _OURS[written.lower()]
        yield SpecError(
            f"{what}: {written} is read by TYPE {own}, which counts records that are broken",
            code="wrong-option",
            hint=f"write TYPE {own}; or read it by Spark in Python: stream(spark.readStream.format(…), …)",
        )


def format_of(options: Mapping[str, str]) -> str:
    """The data source's name; empty where it is not said."""
    return lowered(options).get(FORMAT, "").strip()


def reader_options(options: Mapping[str, str]) -> dict[str, str]:
    """What the data source is told."""
    return {name: value for name, value in options.items() if name.lower() != FORMAT}
