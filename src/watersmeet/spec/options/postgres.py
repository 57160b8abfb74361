"""What a PostgreSQL sink may be told: the server, the table, how rows are staged, how long it waits,
what becomes of rows that the table refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Sink
from watersmeet.spec.options.lowered import lowered
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.secrets import Secret, without_secrets

OPTIONS = ("url", "table", "user", "password", "staging", "max_wait", "on_rejected")
STAGING = ("unlogged", "logged")
ON_REJECTED = ("stop", "dead_letter")
WAIT_S = 600
"""How long a server that does not answer is waited for, unless it is said otherwise."""

NAME_BYTES = 63
"""Of a name in PostgreSQL; longer ones it would cut in silence."""

_SCHEMES = ("postgresql", "postgres")
_WAIT = re.compile(r"([0-9]{1,9})\s*(s|seconds?|min|minutes?|h|hours?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
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
    """Of a table; ``schema`` None: the first one of the server's search path."""

    schema: str | None
    table: str


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """What is wrong with the options of a PostgreSQL sink. No message shows the password."""
    what = f'postgres sink "{sink.name}"'
    given = lowered(sink.options)
    for name in sink.options:
        if name.lower() not in OPTIONS:
            hint = near_names(name, OPTIONS)
            yield SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=hint)
    for name, example in (("url", "postgresql://me@db:5432/shop"), ("table", "public.delivered")):
        if not given.get(name, "").strip():
            hint = f"'{name}' = '{example}'"
            yield SpecError(f'{what} needs the option "{name}"', code="missing-option", hint=hint)
    if given.get("url", "").strip():
        yield from url_problems(what, given)
    if given.get("table", "").strip():
        try:
            table_of(sink.options)
        except ValueError as error:
            yield wrong_value(what, "table", given["table"], str(error))
    if given.get("staging", STAGING[0]).strip().lower() not in STAGING:
        yield wrong_value(what, "staging", given["staging"], " or ".join(f"'{name}'" for name in STAGING))
    if given.get("on_rejected", ON_REJECTED[0]).strip().lower() not in ON_REJECTED:
        yield wrong_value(
            what, "on_rejected", given["on_rejected"], " or ".join(f"'{name}'" for name in ON_REJECTED)
        )
    elif has_dead_letters(given) and sink.primary_key:
        yield SpecError(
            f"{what}: 'on_rejected' = 'dead_letter' cannot be used with a PRIMARY KEY",
            code="wrong-option",
            hint="remove 'on_rejected', so that the job stops at a rejected row; otherwise the outdated"
            " row would stay in the table",
        )
    if _seconds(given.get("max_wait", "1 s")) is None:
        yield wrong_value(what, "max_wait", given["max_wait"], "a time such as '10 min'")


def url_of(options: Mapping[str, str]) -> Secret:
    """What the client is given: the URL with user, password and what is told it by default."""
    given = {name.lower(): str(value) for name, value in options.items()}
    url = given["url"].strip()
    said = {name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
    more: dict[str, str] = {name: given[name] for name in ("user", "password") if name in given}
    more |= {name: value for name, value in _PATIENT.items() if name not in said}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in more.items())
    return Secret(f"{url}{'&' if '?' in url else '?'}{query}")


class Database(NamedTuple):
    """One that a URL names, as it is written. ``port``, ``user`` None: the environment says it; of several
    servers ``host`` has all that is said, ports too. ``options``: what sessions are told, such as a role."""

    host: str
    port: int | None
    name: str
    user: str | None
    options: str | None


def database_of(url: str) -> Database | None:
    """None: the URL leaves to the environment which one it is, or says it in another way."""
    parts = urlsplit(str.__str__(url).strip())
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    hosts = hosts_of(url)
    if not all(host for host, _ in hosts) or not parts.path.strip("/") or told.keys() & ELSEWHERE:
        return None
    user = told.get("user") if parts.username is None else unquote(parts.username)
    host, port = hosts[0] if len(hosts) == 1 else (",".join(f"{name}:{at or ''}" for name, at in hosts), None)
    return Database(host, port, unquote(parts.path[1:]), user, told.get("options"))


def hosts_of(url: str) -> list[tuple[str, int | None]]:
    """The servers that a URL names, with their ports; None: none is said.

    Raises:
        ValueError: they are not written as hosts are.

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
    """Server, database and table, for messages."""
    given = {name.lower(): str(value) for name, value in options.items()}
    return f"{without_secrets(given['url'].strip())}, table {given['table'].strip()}"


def table_of(options: Mapping[str, str]) -> TableName:
    """The table, in whichever case it is written: ``schema.name``, parts with dots or capitals in double
    quotes or not, as nothing here is folded.

    Raises:
        ValueError: what is wrong with it, in words.

    >>> table_of({"table": 'shop."Order.s"'})
    TableName(schema='shop', table='Order.s')
    """
    written = next(value for name, value in options.items() if name.lower() == "table").strip()
    parts = re.findall(r'\s*("(?:[^"]|"")*"|[^".]+)\s*(\.|$)', written)
    if "".join(f"{part}{end}" for part, end in parts).replace(" ", "") != written.replace(" ", ""):
        raise ValueError("write schema.name, with double quotes around names that contain dots")
    names = [
        part[1:-1].replace('""', '"') if part.startswith('"') else part.strip() for part, _ in parts if part
    ]
    if not 1 <= len(names) <= 2 or not all(names) or (parts and parts[-1][1] == "."):
        raise ValueError("write schema.name")
    for name in names:
        if (hint := name_problem(name)) is not None:
            raise ValueError(hint)
    return TableName(names[0] if len(names) == 2 else None, names[-1])


def name_problem(name: str) -> str | None:
    """Why PostgreSQL has nothing of this name; None: it may."""
    if not name:
        return "a name has at least one character"
    if "\0" in name:
        return "a name has no NUL character"
    size = len(name.encode("utf-8", "surrogatepass"))
    return f"a name has {NAME_BYTES} bytes at most, and this one {size}" if size > NAME_BYTES else None


def wait_of(options: Mapping[str, str]) -> int:
    """For how many seconds a server that does not answer is waited for."""
    given = lowered(options)
    return _seconds(given["max_wait"]) or 0 if "max_wait" in given else WAIT_S


def is_logged(options: Mapping[str, str]) -> bool:
    """Staged rows outlive a crash of the server."""
    given = lowered(options)
    return given.get("staging", STAGING[0]).strip().lower() == "logged"


def has_dead_letters(options: Mapping[str, str]) -> bool:
    """Return whether rows that the table rejects go to the table of dead letters, and the job goes on."""
    given = lowered(options)
    return given.get("on_rejected", ON_REJECTED[0]).strip().lower() == "dead_letter"


def _seconds(written: str) -> int | None:
    match = _WAIT.fullmatch(written.strip().lower())
    return None if match is None else int(match[1]) * _SECONDS[match[2][0]]


def url_problems(what: str, given: Mapping[str, str]) -> Iterator[SpecError]:
    """What is wrong with ``url``, and with ``user`` and ``password`` beside it. No message shows them."""
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
