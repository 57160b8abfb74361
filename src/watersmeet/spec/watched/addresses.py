"""Addresses of this machine at which a run listens: ``9464``, ``0.0.0.0:9464``, ``[::1]:9464``."""

from __future__ import annotations

import errno
import ipaddress
import re
from typing import NamedTuple

from watersmeet.errors import EngineError

LOOPBACK = "127.0.0.1"
MOST_PORT = 65_535

_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):)?(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """``port`` 0: any one that is free."""

    host: str
    port: int

    @property
    def words(self) -> str:
        """As it stands in a URL.

        >>> Address("::1", 9464).words
        '[::1]:9464'
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it.

        >>> [Address(host, 80).is_loopback for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "a.org")]
        [True, True, True, False, False]
        """
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def address_in(text: str) -> Address | None:
    """The address that a text says, on this machine alone where it says only a port; None: it says none.

    >>> address_in("9464"), address_in("[::]:80")
    (Address(host='127.0.0.1', port=9464), Address(host='::', port=80))
    >>> address_in("70000"), address_in("localhost")
    (None, None)
    """
    said = _ADDRESS.fullmatch(text.strip())
    if said is None or int(said["port"]) > MOST_PORT:
        return None
    return Address(said["six"] or said["host"] or LOOPBACK, int(said["port"]))


def cannot_listen(what: str, address: Address, error: Exception, hint: str) -> EngineError:
    """The error of who cannot listen at an address. ``what``: is not possible then; ``error``: of the system;
    ``hint``: where else."""
    taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
    why = "another program uses this port" if taken else str(getattr(error, "strerror", None) or error)
    return EngineError(
        f"{what} at {address.words}: {why}", code="port-taken" if taken else "cannot-listen", hint=hint
    )
