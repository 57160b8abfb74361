"""Options that nobody may see: passwords and the like are not printed, and no digest is made of them."""

from __future__ import annotations

import re
from urllib.parse import unquote

_KEYS = r"(?:private|access|account|api).?key"
_SECRET = re.compile(
    rf"passw|secret|token(?!.?file)|credential|jaas|authorization|connection.?string|\bheader\.|keystore\.key\b|key\.pem|\bsas\b|{_KEYS}",
    re.IGNORECASE,
)
_IN_URL = re.compile(rf"((?:passw\w*|secret\w*|token|{_KEYS})=)[^&;]*|(?<=//)[^/\s]*@", re.IGNORECASE)
_WHO = re.compile(r"(?<=://)[^/\s]*@")
_BLANK = re.compile(r"\s")

HIDDEN = "***"


class Secret(str):
    """A text that is shown as stars wherever an object that holds it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


class OpaqueSecret(Secret):
    """A secret whatever its option is called; nothing of it is shown, also where it is a URL."""

    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> OpaqueSecret:
        return OpaqueSecret(super().strip(chars))

    def lower(self) -> OpaqueSecret:
        return OpaqueSecret(super().lower())


def wrap_secret(name: str, value: str) -> str:
    """Return the value of an option, as a `Secret` if the option's name marks it as one.

    >>> {"user": wrap_secret("user", "reader"), "password": wrap_secret("password", "x")}
    {'user': 'reader', 'password': '***'}

    The name of a file that contains a secret is not a secret:

    >>> wrap_secret("token_file", "/etc/watersmeet/token")
    '/etc/watersmeet/token'
    """
    is_open = isinstance(value, Secret) or public(name, value) == value
    return value if is_open else Secret(value)


def public(name: str, value: str) -> str:
    """Return the printable part of an option's value; mask the user and password of a URL."""
    if isinstance(value, OpaqueSecret) or _SECRET.search(name):
        return HIDDEN
    return without_secrets(value) if name.lower().rpartition(".")[2] in ("url", "uri") else value


def without_value(message: str, name: str, value: str) -> str:
    """Return a message about an option's value, or, if that may not be shown, what can be said without it.

    >>> without_value("'abc' is no interval", "max_ahead", OpaqueSecret("abc"))
    '*** cannot be its value'
    """
    shown = public_option(name, value)
    return message if shown == value else f"{shown} cannot be its value"


def public_setting(name: str, value: str) -> str:
    """Return the printable part of a setting's value.

    Settings of Spark are included; their values may be Java options, or URLs.

    >>> public_setting("spark.driver.extraJavaOptions", "-Da=b -DtrustStorePassword=x")
    '-Da=b -DtrustStorePassword=***'
    >>> public_setting("spark.jars.repositories", "https://me:x@repository/jars")
    'https://***@repository/jars'
    """
    return without_secrets(public(name, value))


def public_option(name: str, value: str) -> str:
    """Return the printable part of a value that may be a URL, whatever the option's name is.

    Values that differ in other parts still differ.

    >>> public_option("path", "s3a://key:x@shop/token=5/in")
    's3a://***@shop/token=5/in'
    >>> public_option("spark.hadoop.x.ConnectionURL", "jdbc:mysql://db/shop?password=x&ssl=true")
    'jdbc:mysql://db/shop?password=***&ssl=true'
    """
    shown = _WHO.sub(f"{HIDDEN}@", public(name, value))
    if "://" not in shown or _BLANK.search(shown):  # a text, which may say "token = 5" of a column
        return shown
    first = min((place for sign in "?;" if (place := shown.find(sign)) >= 0), default=len(shown))
    return shown[:first] + without_secrets(shown[first:])


def secrets_of_url(url: str) -> list[str]:
    """Return what `public_option` hides of a URL, as it is written and decoded.

    >>> secrets_of_url("jdbc:postgresql://me:a%2Fb@db/shop?ssl=true&password=x")
    ['me:a%2Fb', 'me:a/b', 'a%2Fb', 'a/b', 'x']
    """
    parts: list[str] = []
    for match in _IN_URL.finditer(url):
        whole = match[0].removeprefix(match[1]) if match[1] else match[0].removesuffix("@")
        password = whole.partition(":")[2] if not match[1] else ""
        parts += [text for own in (whole, password) if own for text in (own, unquote(own))]
    return list(dict.fromkeys(parts))


def without_secrets(url: str) -> str:
    """Replace the user, the password and secret parameters of a URL by ``***``.

    >>> without_secrets("jdbc:postgresql://me:secret@db:5432/shop?ssl=true&password=x")
    'jdbc:postgresql://***@db:5432/shop?ssl=true&password=***'
    """
    return _IN_URL.sub(lambda match: f"{match[1]}{HIDDEN}" if match[1] else f"{HIDDEN}@", url)
