"""Whether the server of a table that is read by JDBC takes connections, without Spark and its driver."""

from __future__ import annotations

import re
import socket

from watersmeet.engine.spark.preflight.patience import DATABASE_S, Patience
from watersmeet.errors import EngineError
from watersmeet.spec.model import Source

CONNECT_S = 10.0
"""Seconds for one connection, as PostgreSQL's driver has it."""
UNREACHABLE = "database-unreachable"

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_URL = re.compile(r"jdbc:(?P<kind>postgresql|mysql|mariadb)://(?P<hosts>[^/?;@()=]*)(/.*)?", re.IGNORECASE)
_HOST = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>\d{1,5}))?")
_OTHER_WAYS = ("socketfactory", "socks", "localsocket", "pipe")
"""In options of drivers that connect in another way than to host and port."""


def check_database(source: Source, patience: Patience) -> None:
    """Connect to the servers that a table's URL names, one after the other, until one takes the connection.

    URLs of other databases, and drivers that connect in another way, are left to Spark.

    Raises:
        EngineError: none does.
    """
    servers = servers_of(source)
    if servers:
        where = f'a database at {_places(servers)} (table "{source.name}")'
        patience.ask(lambda: _connect(source.name, servers), UNREACHABLE, DATABASE_S, where)


def servers_of(source: Source) -> list[tuple[str, int]]:
    """Return hosts and ports of the table's URL; none if it cannot be known to what its driver connects."""
    said = " ".join(f"{name}={value}" for name, value in source.options.items()).lower()
    url = next((value for name, value in source.options.items() if name.lower() == "url"), "").strip()
    match = _URL.fullmatch(url)
    if match is None or any(way in said for way in _OTHER_WAYS):
        return []
    hosts = [_HOST.fullmatch(host.strip()) for host in match["hosts"].split(",")]
    default = _PORTS[match["kind"].lower()]
    servers = [
        (host["address"] or host["name"] or "localhost", int(host["port"] or default))
        for host in hosts
        if host is not None
    ]
    return servers if len(servers) == len(hosts) else []


def _places(servers: list[tuple[str, int]]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in servers)


def _connect(table: str, servers: list[tuple[str, int]]) -> None:
    reason = ""
    for server in servers:
        try:
            socket.create_connection(server, CONNECT_S).close()
        except (OSError, OverflowError, ValueError) as error:  # ValueError: a name that cannot be one
            reason = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise EngineError(
        f'table "{table}": no database answers at {_places(servers)}: {reason}',
        code=UNREACHABLE,
        hint="check the host and port in 'url', and that the server is running and reachable",
    )
