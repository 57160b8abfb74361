"""Options of records that have a schema beside them: which it is, and that it becomes the declared columns.

A file that an option names is read when the declaration is: the option then holds what is in it, so that a
job that goes on knows whether that is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from watersmeet.errors import SpecError, WatersmeetError
from watersmeet.spec.model import Column, Source
from watersmeet.spec.records.avro import AvroType, BadSchema, parse_avro
from watersmeet.spec.records.avro_fit import Misfit, fit_avro
from watersmeet.spec.records.reading import Reading

AVRO = "avro"
SCHEMA = "avro.schema"
OPTIONS = (SCHEMA,)
FORMATS = (AVRO,)
"""Formats of Kafka's records that are decoded by a schema."""

Problem = Callable[[str, str | None], WatersmeetError]


def inlined(options: Mapping[str, str], error: Problem) -> dict[str, str]:
    """The options with what is in the files that they name.

    Args:
        error: makes a problem of a message and a hint.
    """
    given = dict(options)
    for name, value in options.items():
        if name.lower() != SCHEMA or value.lstrip()[:1] in ("{", "[", '"'):
            continue
        try:
            given[name] = Path(value).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as cause:
            why = getattr(cause, "strerror", None) or "it is no text"
            raise error(
                f"option '{name}': \"{value}\" cannot be read: {why}",
                'name a file with a schema, or write the schema itself: \'{"type": "record", …}\'',
            ) from None
    return given


def has_schema(format_: str) -> bool:
    return format_ in FORMATS


def value_columns(source: Source) -> list[Column]:
    """The columns that records' values fill, and not what is beside them."""
    beside = {name.partition(".")[2] for name in source.options if name.startswith("metadata.")}
    return [column for column in source.columns if column.name not in beside]


def record_problems(what: str, source: Source, format_: str) -> Iterator[SpecError]:
    """What is wrong with the options beside such a format, and with columns that records cannot fill."""
    for name in source.options:
        prefix = name.partition(".")[0]
        if name in OPTIONS and prefix != format_:
            message = f'{what}: option "{name}" is for the format {prefix}, and it is {format_}'
            yield SpecError(message, code="unknown-option", hint=f"'format' = '{prefix}', or leave it out")
    if format_ != AVRO:
        return
    text = source.options.get(SCHEMA)
    if text is None:
        message = f'{what} needs the option "{SCHEMA}": records of Avro do not say what is in them'
        yield SpecError(
            message, code="missing-option", hint=f"'{SCHEMA}' = 'orders.avsc', or the schema itself"
        )
        return
    try:
        avro_reading(source)
    except BadSchema as error:
        yield SpecError(
            f"{what}: option '{SCHEMA}': {error}",
            code="wrong-option",
            hint='a schema is JSON, such as \'{"type": "record", "name": "Order", "fields": […]}\'',
        )
    except Misfit as error:
        yield from misfits(what, error.problems)


def misfits(what: str, problems: Sequence[str]) -> Iterator[SpecError]:
    for problem in problems:
        yield SpecError(
            f"{what}: {problem}",
            code="wrong-types",
            hint="declare the column as the schema has it, and cast in a view",
        )


def avro_schema(source: Source) -> AvroType | None:
    """The schema that is said. Raises: BadSchema."""
    text = source.options.get(SCHEMA)
    return None if text is None else parse_avro(text)


def avro_reading(source: Source) -> Reading:
    """How records of the schema that is said are read. Raises: BadSchema, Misfit."""
    schema = avro_schema(source)
    assert schema is not None
    return fit_avro(schema, value_columns(source), schema)
