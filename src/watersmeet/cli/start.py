"""Entry point of the installed command.

This module imports nothing of the package itself, so that Ctrl-C is quiet from the first moment, while all
other modules are still loading, to the last one, when the interpreter exits.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def main() -> int:
    """Run the command line; its exit status."""
    _open_closed_streams()
    quiet = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored (nohup, &)
    if quiet:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from watersmeet.cli.main import app_main

    try:
        if quiet:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return app_main()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if quiet:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device.

    Otherwise state files could get their file numbers, and receive what libraries and Java print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
