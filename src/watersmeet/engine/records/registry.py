"""A schema registry, asked by tasks for the schemas that records name.

The few requests of Confluent's REST API that reading takes. A schema never changes under its number, so it is
asked for once per process; a number that the registry does not have is asked for again with the next batch.
Source: Confluent's documentation, "Schema Registry API Reference", "Wire format".
"""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import tenacity

from watersmeet.errors import EngineError
from watersmeet.spec.records.avro import AvroType, BadSchema, parse_avro
from watersmeet.spec.secrets import Secret

ANSWER_S = 10.0
PATIENCE_S = 30.0
"""How long a registry that does not answer is asked again."""


class NoSchema(Exception):
    """The registry has none of that number, or not one of Avro's."""


class _Away(Exception):
    """It may answer when it is asked again."""


@dataclass(frozen=True)
class Registry:
    """Where it is, and who asks."""

    url: str
    user: str = ""
    password: Secret = field(default=Secret(""), repr=False)
    patience_s: float = PATIENCE_S

    def schema(self, number: int) -> AvroType:
        """
        Raises:
            NoSchema: see there.
            EngineError: the registry does not answer, or not to this user.
        """
        return _schema(self, number)

    def asked(self, path: str) -> Any:
        """The answer as JSON. Raises: NoSchema, EngineError."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self.patience_s),
            wait=tenacity.wait_random_exponential(0.2, 3),
            retry=tenacity.retry_if_exception_type(_Away),
            reraise=True,
        )
        try:
            return retrying(self._once, path)
        except _Away as away:
            raise EngineError(
                f"the schema registry at {self.url} does not answer: {away}",
                code="registry-away",
                hint="nothing of this tick was put out, and the state is whole: run again when it does",
            ) from None

    def _once(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}")
        if self.user:
            told = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {told}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise NoSchema from None
            if error.code in (401, 403):
                raise EngineError(
                    f"the schema registry at {self.url} refuses to answer ({error.code})",
                    code="registry-refused",
                    hint="check 'schema.registry.user' and 'schema.registry.password'",
                ) from None
            raise _Away(f"HTTP {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _Away(str(getattr(error, "reason", error)) or type(error).__name__) from None


@lru_cache(maxsize=4096)
def _schema(registry: Registry, number: int) -> AvroType:
    answer = registry.asked(f"/schemas/ids/{number}")
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise NoSchema
    others: dict[str, AvroType] = {}
    try:
        _referred(registry, answer, others)
        return parse_avro(answer["schema"], others)
    except (BadSchema, KeyError, TypeError):
        raise NoSchema from None


def _referred(registry: Registry, answer: Any, others: dict[str, AvroType]) -> None:
    """The types of schemas that one refers to."""
    for reference in answer.get("references") or ():
        if reference["name"] in others:
            continue
        subject = urllib.parse.quote(reference["subject"], safe="")
        inner = registry.asked(f"/subjects/{subject}/versions/{int(reference['version'])}")
        _referred(registry, inner, others)
        parse_avro(inner["schema"], others)
