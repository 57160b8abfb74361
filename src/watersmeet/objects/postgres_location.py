"""Where state in PostgreSQL is: a database, and the name of a job's pipeline in it.

    postgresql://user@host:5432/database?pipeline=orders

All of a database's pipelines are in one schema, and know nothing of each other. The password is taken as the
sink takes it: from the URL, or by the client from PGPASSWORD or ~/.pgpass, in each process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from watersmeet.errors import SpecError
from watersmeet.spec.options.postgres import (
    ELSEWHERE,
    Database,
    database_of,
    hosts_of,
    url_of,
    url_problems,
)
from watersmeet.spec.secrets import Secret

SCHEMES = ("postgresql", "postgres")
PIPELINE = "pipeline"

PATIENCE_S = 150.0
"""So long a server that is away is waited for."""

_EXAMPLE = "state_store = 'postgresql://user@host:5432/database?pipeline=name'"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def names_tables(url: str) -> bool:
    """Return True if the URL is that of a PostgreSQL database."""
    return url.strip().partition(":")[0].lower() in SCHEMES


@dataclass(frozen=True)
class TablesPlace:
    """See the module.

    Args:
        given: the URL as somebody wrote it; it may have a password in it, and is not shown.
        patience_s: for how long a server that is away is waited for.

    Attributes:
        url: server, database and pipeline, for people; and to know whether it is the same place.
        client_url: for the client; not to be shown.
        pipeline: the name of the job's pipeline.
        database: which it is, with its user.

    Raises:
        SpecError: it is no such URL, or lacks a part.
    """

    given: Secret
    patience_s: float = PATIENCE_S
    url: str = field(init=False, compare=False)
    client_url: Secret = field(init=False, compare=False, repr=False)
    pipeline: str = field(init=False, compare=False)
    database: Database | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for problem in url_problems("the store of the state", {"url": self.given}):
            is_of_servers = "target_session_attrs" in f"{problem.message}{problem.hint}"
            hint = problem.hint if is_of_servers else _EXAMPLE  # whose example has no pipeline
            raise SpecError(problem.message, code="bad-store", hint=hint)
        parts = urlsplit(self.given.strip())
        told = parse_qsl(parts.query, keep_blank_values=True)
        pipelines = [value for name, value in told if name == PIPELINE]
        database = unquote(parts.path.lstrip("/"))
        hosts = hosts_of(self.given)
        if not all(host for host, _ in hosts) or not database or "/" in database:
            raise SpecError(
                "state_store has no server or no database",
                code="bad-store",
                hint=_EXAMPLE,
            )
        if elsewhere := sorted({name for name, _ in told} & ELSEWHERE):
            raise SpecError(
                f"state_store has {' and '.join(elsewhere)} after the '?', which would change the"
                " server that identifies the state",
                code="bad-store",
                hint=_EXAMPLE,
            )
        if len(pipelines) != 1 or not _NAME.fullmatch(pipelines[0]):
            said = "two pipelines" if len(pipelines) > 1 else f'the pipeline "{"".join(pipelines)}"'
            raise SpecError(
                f"state_store has {said if pipelines else 'no pipeline'}, the name that identifies the"
                " job's state in the database",
                code="bad-store",
                hint=f"use a name of letters, digits, _ . and -: {_EXAMPLE}",
            )
        pieces = parts.query.split("&")  # the others stay as they are written: "+" is no space to the client
        rest = "&".join(piece for piece in pieces if unquote(piece.partition("=")[0]) != PIPELINE)
        given = Secret(urlunsplit(parts._replace(query=rest)))
        servers = ",".join(f"{f'[{host}]' if ':' in host else host}:{port or 5432}" for host, port in hosts)
        url = f"postgresql://{servers}/{quote(database)}?{PIPELINE}={pipelines[0]}"
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "client_url", url_of({"url": given}))
        object.__setattr__(self, PIPELINE, pipelines[0])
        object.__setattr__(self, "database", database_of(self.client_url))
