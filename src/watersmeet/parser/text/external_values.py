"""Values of options and settings that stand elsewhere: in the environment, or in a file.

``${NAME}`` is a variable of the environment, and ``$${NAME}`` the text ``${NAME}``. SQL and TOML write them
alike, and what is wrong with them has the same codes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from watersmeet.errors import hide_in_errors
from watersmeet.regular_files import read_text
from watersmeet.spec.secrets import OpaqueSecret, public_option, secrets_of_url

REFERENCE = re.compile(r"\$(\$?)\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Report = Callable[[str, str, str | None], object]
"""Takes what is wrong: a message, a code, and a hint."""


def has_reference(text: str) -> bool:
    """Return True if some of the text is taken from the environment.

    >>> has_reference("${PASSWORD}"), has_reference("$${PASSWORD}")
    (True, False)
    """
    return any(not match[1] for match in REFERENCE.finditer(text))


def fill_references(text: str, report: Report) -> str:
    """Replace references by values of environment variables.

    A text with a variable whose name marks a secret is a secret, whatever the option's name is; of a
    URL, only the parts that are always secret. No error shows the variable's value.

    Args:
        report: Called for each variable that is not set, and for each reference that names no
            variable; an empty text replaces both.

    >>> os.environ["DOCTEST_HOST"] = "db"
    >>> fill_references("${DOCTEST_HOST}:$5, $${DOCTEST_HOST}", print)
    'db:$5, ${DOCTEST_HOST}'
    """
    is_secret, secrets = False, list[str]()

    def value(match: re.Match[str]) -> str:
        nonlocal is_secret
        escaped, name = match[1], match[2]
        if escaped:
            return match[0][1:]
        if not _NAME.fullmatch(name):
            message = f"does not name an environment variable: ${{{name}}}"
            report(message, "bad-value", "use ${NAME}, or $${…} for literal text")
            return ""
        content = os.environ.get(name)
        if content is None:
            report(f"{name} is not set in the environment", "not-set", f"export {name}=…")
            return ""
        if public_option(name, content) != content:
            is_secret = True
            secrets.extend(secrets_of_url(content) if "://" in content else [content])
        return content

    filled = REFERENCE.sub(value, text)
    for secret in secrets:
        hide_in_errors(secret, within=filled)
    return OpaqueSecret(filled) if is_secret and "://" not in filled else filled


def read_value(path: str, report: Report) -> OpaqueSecret:
    """Read a file's whole content, without the last line end, as a secret value.

    Args:
        path: Path of a UTF-8 file; it may contain references, and ``~``.
        report: Called with the reason if the file cannot be read; the value is empty then.
    """
    problems: list[tuple[str, str, str | None]] = []
    file = fill_references(path, lambda *problem: problems.append(problem))
    for problem in problems:
        report(*problem)
    if problems:
        return OpaqueSecret("")
    try:
        value = OpaqueSecret(read_text(os.path.expanduser(file)).removesuffix("\n").removesuffix("\r"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        report(f'"{path}" cannot be read: {reason}', "file-not-readable", None)
        return OpaqueSecret("")
    for secret in (value, *(secrets_of_url(value) if "://" in value else ())):
        hide_in_errors(secret)
    return value
