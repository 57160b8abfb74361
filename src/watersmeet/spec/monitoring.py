"""Addresses, access and log formats of a run that is monitored."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import re
import secrets
import stat
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import platformdirs

from watersmeet.durable_files import make_folders
from watersmeet.errors import EngineError
from watersmeet.spec.secrets import Secret

# Addresses of this machine at which a run listens: ``9464``, ``0.0.0.0:9464``, ``[::1]:9464``.

LOOPBACK = "127.0.0.1"
MOST_PORT = 65_535

_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):)?(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """``port`` 0: any one that is free."""

    host: str
    port: int

    @property
    def words(self) -> str:
        """The address as written in a URL.

        >>> Address("::1", 9464).words
        '[::1]:9464'
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect to the address.

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
    """Parse an address; a port alone listens only on this machine. Return None for other text.

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
    """Build the error for an address at which the engine cannot listen.

    Args:
        what: The consequence that begins the message, such as "the page cannot be shown".
        error: The operating system's error.
        hint: Another address to use.
    """
    taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
    why = "another program uses this port" if taken else str(getattr(error, "strerror", None) or error)
    return EngineError(
        f"{what} at {address.words}: {why}", code="port-taken" if taken else "cannot-listen", hint=hint
    )


# Who may see the page of a job and its metrics: whoever knows a token, which is in a file of its user's.
#
# Every user of a machine reaches what listens on loopback. The token stays the same from run to run, as
# Prometheus and an open browser need it, and stands in no log.

TOKEN_FILE = "token_file"
"""The setting that names the file."""
NO_TOKEN = "none"
"""Its value if no token is asked for."""

_MIN_LENGTH = 16
_MAX_BYTES = 4096
_TOKEN = re.compile(rf"[!-~]{{{_MIN_LENGTH},}}")
_HINT = (
    "use another file with --token-file FILE; --no-token lets every user of this machine see the job's rows"
)


@dataclass(frozen=True)
class AccessToken:
    """A token, and the file that has it."""

    file: Path
    text: Secret

    def is_known(self, text: str | None) -> bool:
        """Return True if a text is the token."""
        return text is not None and is_equal(text, self.text)

    def is_in_header(self, authorization: str | None) -> bool:
        """Return True if an ``Authorization`` header has the token: ``Bearer <token>``."""
        scheme, _, text = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and self.is_known(text.strip())

    def derive(self, purpose: str) -> str:
        """Make a text that proves knowledge of the token for one purpose, and does not reveal it."""
        return hmac.digest(self.text.encode(), purpose.encode(), "sha256").hex()


def is_equal(one: str, other: str) -> bool:
    """Compare two texts in a time that does not reveal how much of them is the same."""
    return hmac.compare_digest(one.encode(), other.encode())


def describe_access(token: AccessToken | None, address: Address) -> str:
    """Say in a few words who may see what listens at an address."""
    if token is not None:
        return f"token in {token.file}"
    return "no token: open to " + (
        "every user of this machine" if address.is_loopback else "everyone who can reach this address"
    )


def load_token(setting: str | None) -> AccessToken | None:
    """Read the access token; create the file if it does not exist.

    Args:
        setting: The path of the file, or `NO_TOKEN`; None: ``watersmeet/token`` in the user's
            configuration folder.

    Returns:
        The token, or None if the setting is `NO_TOKEN`.

    Raises:
        EngineError: The file cannot be read or created, other users may read it, or it has no token.
    """
    if setting is not None and setting.strip().lower() == NO_TOKEN:
        return None
    if setting:
        file = Path(os.path.abspath(os.path.expanduser(setting)))
    else:
        file = platformdirs.user_config_path("watersmeet", appauthor=False) / "token"
    try:
        if not file.exists():
            _make(file)
        return AccessToken(file, _read(file))
    except OSError as error:
        raise _build_token_error(file, error.strerror or str(error)) from None


def _make(file: Path) -> None:
    make_folders(file.parent, 0o700)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".token-")  # its mode is 0600
    try:
        with os.fdopen(handle, "w") as written:
            written.write(f"{secrets.token_urlsafe(24)}\n")
        os.link(temporary, file)  # the file is there whole, or not at all
    except FileExistsError:  # another process was faster
        pass
    finally:
        os.unlink(temporary)


def _read(file: Path) -> Secret:
    """Read the token from its file.

    Raises:
        OSError: The file cannot be read.
        EngineError: Others may know the token, or the file has none.
    """
    with open(file, "rb", opener=_open_unblocked) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _build_token_error(file, "it is not a regular file")
        if status.st_uid not in (0, os.geteuid()):
            raise _build_token_error(file, "it belongs to another user")
        if status.st_uid != 0 and status.st_mode & 0o077:  # secrets that are mounted belong to root
            raise _build_token_error(file, "other users may read it", f"chmod 600 '{file}'")
        text = opened.read(_MAX_BYTES).strip().decode("ascii", "replace")
    if not _TOKEN.fullmatch(text):
        rule = f"it does not have one line of at least {_MIN_LENGTH} letters, digits or signs"
        raise _build_token_error(file, rule, "remove the file; the next run creates a new token")
    return Secret(text)


def _open_unblocked(path: str, flags: int) -> int:
    """Open a file; a pipe is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _build_token_error(file: Path, reason: str, hint: str = _HINT) -> EngineError:
    message = f'the token for page and metrics cannot be read from "{file}": {reason}'
    return EngineError(message, code="token-file", hint=hint)


# The forms in which a run is logged.


class LogFormat(Enum):
    """Lines for people, or an object of JSON each."""

    TEXT = "text"
    JSON = "json"
