"""Load the schemas that records name from a schema registry, within tasks.

The client makes only the requests of Confluent's REST API that reading needs. A schema never changes under
its number, so a process requests it once. A schema that is missing may exist when the tick is repeated, and
records that were broken would then be valid. So a record that names a missing schema waits for it and then
stops the job, unless the source's options say otherwise.
Source: Confluent's documentation, "Schema Registry API Reference", "Wire format".
"""

from __future__ import annotations

import base64
import http.client
import json
import queue
import threading
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
"""How long nothing may come of an answer."""
WHOLE_S = 30.0
"""How long all of it may take."""
PATIENCE_S = 30.0
"""How long a registry that does not answer is asked again."""
_LARGEST = 64 << 20
_NOT_THERE = (40401, 40402, 40403)
"""Of the API: there is no such subject, version, schema."""


class NoSchema(Exception):
    """The registry has one of that number, and it is none of Avro's."""


class UnknownSchema(NoSchema):
    """The registry has none of that number."""


class _RegistryAway(Exception):
    """Error of a registry that does not answer now but may answer a later request."""


@dataclass(frozen=True)
class Registry:
    """Address and credentials of a schema registry.

    Attributes:
        unknown_is_broken: True if a record whose schema is not in the registry counts as broken;
            otherwise the reader waits for the schema.
    """

    url: str
    user: str = ""
    password: Secret = field(default=Secret(""), repr=False)
    patience_s: float = PATIENCE_S
    unknown_is_broken: bool = False

    def schema(self, number: int) -> AvroType:
        """Return the Avro type of a schema, loading it from the registry if necessary.

        Args:
            number: id of the schema.

        Raises:
            UnknownSchema: the registry has no such schema, and such records count as broken.
            NoSchema: the registry's schema is not an Avro schema.
            EngineError: the registry does not answer, rejects this user, or has no such schema.
        """
        try:
            return _load_schema(self, number)
        except UnknownSchema:
            if self.unknown_is_broken:
                raise
            raise EngineError(
                f"the schema registry at {self.url} has no schema {number}, but a record uses it",
                code="schema-unknown",
                hint="register the schema and those it refers to, and run again; or set"
                " 'schema.registry.unknown' = 'broken' to count such records as broken. Nothing of"
                " this tick was written",
            ) from None

    def asked(self, path: str) -> dict[str, Any]:
        """Request a path, with retries, and return the answer.

        Raises:
            UnknownSchema: the registry does not have the schema.
            EngineError: the registry does not answer or denies access, or the server is not a registry.
        """
        again = (_RegistryAway,) if self.unknown_is_broken else (_RegistryAway, UnknownSchema)
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self.patience_s),
            wait=tenacity.wait_random_exponential(0.2, 3),
            retry=tenacity.retry_if_exception_type(again),
            reraise=True,
        )
        try:
            return retrying(self._request_with_timeout, path)
        except _RegistryAway as away:
            raise EngineError(
                f"the schema registry at {self.url} does not answer: {away}",
                code="registry-away",
                hint="run again when it answers; nothing of this tick was written, and the state is intact",
            ) from None

    def with_schema(self, path: str) -> dict[str, Any]:
        """Request a path and return the answer, which has a ``schema``.

        Raises:
            UnknownSchema: the registry does not have the schema.
            EngineError: the registry does not answer, or something other than a registry answers, such as a
                maintenance page. Then no record counts as broken.
        """
        answer = self.asked(path)
        if not isinstance(answer.get("schema"), str):
            raise self._no_registry_error("its answer is not a schema")
        return answer

    def _request_with_timeout(self, path: str) -> dict[str, Any]:
        """Send one request in a separate thread with a limit for the whole answer.

        The timeout of a socket applies to each byte: a server that sends byte by byte could block a task
        forever. On timeout the caller abandons the thread.
        """
        came: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                came.put(self._once(path))
            except Exception as error:
                came.put(error)

        threading.Thread(target=ask, name="schema-registry", daemon=True).start()
        try:
            answer = came.get(timeout=WHOLE_S)
        except queue.Empty:
            raise _RegistryAway(f"its answer is incomplete after {WHOLE_S:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _once(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}")
        if self.user:
            told = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {told}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return self._parse_answer(answer.read(_LARGEST + 1))
        except urllib.error.HTTPError as error:
            if error.code == 404 and _error_code(error) in _NOT_THERE:
                raise UnknownSchema from None
            if error.code in (401, 403):
                raise EngineError(
                    f"the schema registry at {self.url} denies access (HTTP {error.code})",
                    code="registry-refused",
                    hint="check 'schema.registry.user' and 'schema.registry.password'",
                ) from None
            if error.code == 404:
                raise self._no_registry_error("HTTP 404") from None
            raise _RegistryAway(f"HTTP {error.code}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise _RegistryAway(
                getattr(reason, "strerror", None) or str(reason) or type(error).__name__
            ) from None

    def _parse_answer(self, body: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(body) if len(body) <= _LARGEST else None
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise self._no_registry_error("its answer is not a schema")
        return parsed

    def _no_registry_error(self, why: str) -> EngineError:
        return EngineError(
            f"the server at {self.url} is not a schema registry: {why}",
            code="no-registry",
            hint="check the URL in 'schema.registry', including its path",
        )


def _error_code(error: urllib.error.HTTPError) -> int | None:
    """Read the registry's own error code from an HTTP error.

    A server that is not a registry and does not know the path sends no such code.

    Returns:
        The code; None if the answer has none.
    """
    try:
        told = json.loads(error.read(_LARGEST))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    code = told.get("error_code") if isinstance(told, dict) else None
    return code if isinstance(code, int) else None


@lru_cache(maxsize=4096)
def _load_schema(registry: Registry, number: int) -> AvroType:
    answer = registry.with_schema(f"/schemas/ids/{number}")
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise NoSchema
    others: dict[str, AvroType] = {}
    try:
        _load_referenced_schemas(registry, answer, others)
        return parse_avro(answer["schema"], others)
    except (BadSchema, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise NoSchema from None


def _load_referenced_schemas(registry: Registry, answer: Any, others: dict[str, AvroType]) -> None:
    """Load the types of the schemas to which a schema refers."""
    for reference in answer.get("references") or ():
        if reference["name"] in others:
            continue
        subject = urllib.parse.quote(reference["subject"], safe="")
        inner = registry.with_schema(f"/subjects/{subject}/versions/{int(reference['version'])}")
        _load_referenced_schemas(registry, inner, others)
        parse_avro(inner["schema"], others)
