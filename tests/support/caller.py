"""Settings of the process that starts the tests, which its child processes inherit."""

from __future__ import annotations

import os
import signal

OUTPUT = {
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES", "TERMINAL_WIDTH"),
}
"""Variables by which Rich and Typer choose colours and widths."""

PROXIES = {f"{kind}_proxy" for kind in ("http", "https", "all", "no")}
"""Variables that lead requests to servers of tests elsewhere, in lower and upper case."""

OWN = {"PYTHONUNBUFFERED", "WATERSMEET_TRACEBACK"}
"""Variables that change how the command line prints errors."""

VARIABLES = OWN | OUTPUT | PROXIES | {name.upper() for name in PROXIES}
PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "PG")
"""Prefixes of variables that clients of object stores and of PostgreSQL read."""


def undo_settings() -> None:
    """Undo the caller's settings for this process and all that it starts.

    A shell starts a background job with SIGINT ignored, and child processes inherit that. SIGHUP stays
    ignored, so that `nohup make test` survives its terminal.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    for name in inherited_variables():
        del os.environ[name]


def inherited_variables() -> list[str]:
    """Return the names of the variables that would change results and are set."""
    return [name for name in os.environ if name in VARIABLES or name.startswith(PREFIXES)]
