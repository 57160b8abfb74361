"""Whether a schema registry answers whoever reads, and what it says of a topic, without Spark.

What is asked is the newest schema of the topic's values, by the name that producers of Confluent's libraries
give it unless they are told otherwise (``TOPIC-value``). That there is none by that name is no error: records
name their schemas by numbers.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from watersmeet.engine.records.registry import NoSchema, Registry, UnknownSchema
from watersmeet.errors import EngineError, SpecError, WatersmeetError
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import topics_in
from watersmeet.spec.options.records import SCHEMA, misfits, value_columns
from watersmeet.spec.records.avro import parse_avro
from watersmeet.spec.records.avro_fit import Misfit, fit_avro

PATIENCE_S = 5.0
"""How long it is asked again before a job starts."""


def registry_problems(source: Source, registry: Registry, *, thorough: bool) -> Iterator[WatersmeetError]:
    """What is wrong with it, or, if ``thorough``, with the newest schemas of the source's topics: records of
    such a schema would be broken. Records that are there already may have others."""
    asked = replace(registry, patience_s=PATIENCE_S, unknown_is_broken=True)
    for topic in topics_in(source.options) if thorough else topics_in(source.options)[:1]:
        try:
            answer = _newest(asked, topic)
            if thorough and answer is not None:
                yield from _misfits(source, asked, topic, answer)
        except EngineError as error:
            message = f'Kafka source "{source.name}": {error.message}'
            yield EngineError(
                message,
                code=error.code,
                hint="check 'schema.registry', 'schema.registry.user' and 'schema.registry.password'",
            )
            return


def registry_notes(source: Source, registry: Registry) -> Iterator[str]:
    """Topics of which it says nothing by their names."""
    asked = replace(registry, patience_s=PATIENCE_S, unknown_is_broken=True)
    for topic in topics_in(source.options):
        if _newest(asked, topic) is None:
            yield (
                f'the registry has no schema "{topic}-value", so the job checks records against the'
                " columns only when it runs"
            )


def _newest(registry: Registry, topic: str) -> dict[str, Any] | None:
    try:
        subject = urllib.parse.quote(f"{topic}-value", safe="")
        return registry.asked(f"/subjects/{subject}/versions/latest")
    except UnknownSchema:
        return None


def _misfits(
    source: Source, registry: Registry, topic: str, answer: dict[str, Any]
) -> Iterator[WatersmeetError]:
    what = f'Kafka source "{source.name}": the schema of topic "{topic}" is now {answer.get("id")}'
    try:
        written = registry.schema(int(answer["id"]))
        fit_avro(written, value_columns(source), parse_avro(source.options[SCHEMA]))
    except Misfit as misfit:
        yield from misfits(what, misfit.problems)
    except (NoSchema, KeyError, TypeError, ValueError):
        yield SpecError(
            f"{what}, which is not an Avro schema",
            code="wrong-types",
            hint="check which producer writes to the topic and in which format",
        )
