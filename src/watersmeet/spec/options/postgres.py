"""Options of a PostgreSQL sink.

They set the server, the table, how rows are staged, timeouts, and the handling of rows that the table
rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import BeforeValidator, Field

from watersmeet.errors import SpecError
from watersmeet.spec.model import Sink
from watersmeet.spec.options.model import ANY_CASE, STATED, Seconds, SystemOptions
from watersmeet.spec.options.values import lower_names
from watersmeet.spec.secrets import Secret, without_secrets

NAME_BYTES = 63
"""Of a name in PostgreSQL; longer ones it would cut in silence."""

_SCHEMES = ("postgresql", "postgres")
_PATIENT = {
    "application_name": "watersmeet",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""What the client is told unless the URL says otherwise: a machine that is gone is noticed, and texts are
what they are sent as, whatever the database or the environment is set to."""


_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
WRITABLE = ("primary", "read-write")
"""Of ``target_session_attrs``: the client goes to a server that takes writes, of those that are named."""
_READ_ONLY = ("standby", "read-only", "prefer-standby")

ELSEWHERE = {"host", "hostaddr", "port", "dbname", "service"}
"""What a URL may say of a database apart from its place in it."""


@dataclass(frozen=True)
class TableName:
    """Name of a table; ``schema`` None: the first schema of the server's search path."""

    schema: str | None
    table: str


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield problems of the options of a PostgreSQL sink; no message shows the password."""
    what, given = f'postgres sink "{sink.name}"', lower_names(sink.options)
    yield from PostgresOptions.problems(what, sink.options)
    if given.get("url", "").strip():
        yield from url_problems(what, given)
    if sink.primary_key and given.get("on_rejected", "").strip().lower() == "dead_letter":
        yield SpecError(
            f"{what}: 'on_rejected' = 'dead_letter' cannot be used with a PRIMARY KEY",
            code="wrong-option",
            hint="remove 'on_rejected', so that the job stops at a rejected row; otherwise the outdated"
            " row would stay in the table",
        )


def url_of(options: Mapping[str, str]) -> Secret:
    """Return the client's URL with user, password and default parameters."""
    given = {name.lower(): str(value) for name, value in options.items()}
    url = given["url"].strip()
    said = {name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
    more: dict[str, str] = {name: given[name] for name in ("user", "password") if name in given}
    more |= {name: value for name, value in _PATIENT.items() if name not in said}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in more.items())
    return Secret(f"{url}{'&' if '?' in url else '?'}{query}")


class Database(NamedTuple):
    """Database that a URL names, as written.

    ``port``, ``user`` None: the environment defines it. If the URL has several servers, ``host``
    contains all of them with their ports. ``options``: session options, such as a role.
    """

    host: str
    port: int | None
    name: str
    user: str | None
    options: str | None


def database_of(url: str) -> Database | None:
    """Return the database that a URL names.

    Return None if the environment defines it, or if the URL names it in another way.
    """
    parts = urlsplit(str.__str__(url).strip())
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    hosts = hosts_of(url)
    if not all(host for host, _ in hosts) or not parts.path.strip("/") or told.keys() & ELSEWHERE:
        return None
    user = told.get("user") if parts.username is None else unquote(parts.username)
    host, port = hosts[0] if len(hosts) == 1 else (",".join(f"{name}:{at or ''}" for name, at in hosts), None)
    return Database(host, port, unquote(parts.path[1:]), user, told.get("options"))


def hosts_of(url: str) -> list[tuple[str, int | None]]:
    """Return the servers of a URL with their ports; a port is None if the URL has none.

    Raises:
        ValueError: The servers are not written as hosts.

    >>> hosts_of("postgresql://me@one:5433,two/shop")
    [('one', 5433), ('two', None)]
    """
    named = urlsplit(str.__str__(url).strip()).netloc.rpartition("@")[2]
    hosts: list[tuple[str, int | None]] = []
    for one in named.split(","):
        parts = urlsplit(f"//{one}")
        if parts.port is not None and parts.port < 1:
            raise ValueError
        hosts.append((parts.hostname or "", parts.port))
    return hosts


def place_of(options: Mapping[str, str]) -> str:
    """Return server, database and table, for messages, without secrets."""
    given = {name.lower(): str(value) for name, value in options.items()}
    return f"{without_secrets(given['url'].strip())}, table {given['table'].strip()}"


def read_table_name(written: str) -> TableName:
    """Parse a table name ``schema.name``.

    Parts with dots need double quotes; parts with capitals may have them, because the function does
    not fold case.

    Raises:
        ValueError: The name is invalid; the text is the reason.

    >>> read_table_name('shop."Order.s"')
    TableName(schema='shop', table='Order.s')
    """
    written = written.strip()
    parts = re.findall(r'\s*("(?:[^"]|"")*"|[^".]+)\s*(\.|$)', written)
    if "".join(f"{part}{end}" for part, end in parts).replace(" ", "") != written.replace(" ", ""):
        raise ValueError("write schema.name, with double quotes around names that contain dots")
    names = [
        part[1:-1].replace('""', '"') if part.startswith('"') else part.strip() for part, _ in parts if part
    ]
    if not 1 <= len(names) <= 2 or not all(names) or (parts and parts[-1][1] == "."):
        raise ValueError("write schema.name")
    for hint in filter(None, map(name_problem, names)):
        raise ValueError(hint)
    return TableName(names[0] if len(names) == 2 else None, names[-1])


def name_problem(name: str) -> str | None:
    """Return the reason why PostgreSQL does not allow this name, or None."""
    if not name:
        return "a name has at least one character"
    if "\0" in name:
        return "a name has no NUL character"
    size = len(name.encode("utf-8", "surrogatepass"))
    return f"a name has {NAME_BYTES} bytes at most, and this one {size}" if size > NAME_BYTES else None


class PostgresOptions(SystemOptions):
    """The options of a sink."""

    url: Annotated[Any, STATED] = Field(examples=["postgresql://me@db:5432/shop"])
    table: Annotated[TableName, BeforeValidator(read_table_name), STATED] = Field(
        examples=["public.delivered"]
    )
    user: Any = None
    password: Any = None
    staging: Annotated[Literal["unlogged", "logged"], ANY_CASE] = "unlogged"
    """``logged``: staged rows outlive a crash of the server."""
    max_wait: Seconds = 600
    """For how long a server that does not answer is waited for."""
    on_rejected: Annotated[Literal["stop", "dead_letter"], ANY_CASE] = "stop"
    """``dead_letter``: rows that the table rejects go to the table of dead letters, and the job goes on."""

    @property
    def has_dead_letters(self) -> bool:
        """True if rejected rows go to the table of dead letters."""
        return self.on_rejected == "dead_letter"


def url_problems(what: str, given: Mapping[str, str]) -> Iterator[SpecError]:
    """Yield problems of ``url``, ``user`` and ``password``; no message shows their values."""
    hint = (
        "use 'url' = 'postgresql://user@host:5432/database'; in a password write / @ : ? # % as %2F %40"
        " %3A %3F %23 %25"
    )
    try:
        parts = urlsplit(given["url"].strip())
        hosts = hosts_of(given["url"])
        wrong = parts.scheme.lower() not in _SCHEMES
    except ValueError:
        wrong = True
    # The client looks for the "@" behind a password up to the first "/", not up to the first "?"
    is_split = wrong or (not parts.path and "@" in parts.query)
    if wrong or is_split or parts.netloc.count("@") > 1 or "@" in parts.path or "#" in given["url"]:
        yield SpecError(f"{what}: its 'url' is not a PostgreSQL URL", code="wrong-option", hint=hint)
        return
    if _NO_ESCAPE.search(given["url"]):
        yield SpecError(
            f"{what}: its 'url' has a % that is not followed by two hexadecimal digits other than 00",
            code="wrong-option",
            hint=hint,
        )
    if any("=" not in piece for piece in parts.query.split("&") if piece):
        yield SpecError(
            f"{what}: its 'url' has a parameter without '=' after the '?'",
            code="wrong-option",
            hint="write parameters as name=value, separated by &, and a & inside a value as %26",
        )
    told = parse_qsl(parts.query, keep_blank_values=True)
    wanted = dict(told).get("target_session_attrs", "any")
    if wanted in _READ_ONLY:
        yield SpecError(
            f"{what} needs a server that accepts writes, but its 'url' has target_session_attrs={wanted}",
            code="wrong-option",
            hint="use target_session_attrs=read-write, or the host of the primary server",
        )
    elif len(hosts) > 1 and wanted not in WRITABLE:
        yield SpecError(
            f"{what}: its 'url' has several servers, one of which may be a standby",
            code="wrong-option",
            hint="use one server, or add target_session_attrs=read-write (or primary)",
        )
    for name, value in told:
        if name == "client_encoding" and value.lower().replace("-", "") != "utf8":
            yield SpecError(
                f"{what} sends text as UTF-8, but its 'url' has client_encoding={value}",
                code="wrong-option",
                hint="remove client_encoding: the server converts text to the encoding of the database",
            )
    inside = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    inside |= {name for name in ("password", "username") if getattr(parts, name) is not None}
    for name, in_url in (("user", "username"), ("password", "password")):
        if name in given and inside & {name, in_url}:
            twice = f"remove '{name}' from the options or from the url"
            yield SpecError(
                f"{what}: '{name}' is set both as an option and in the url", code="wrong-option", hint=twice
            )
