"""What a run says beside its result: lines on standard error, or the log that was asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from watersmeet.cli.output import OutputError, to_stderr
from watersmeet.errors import WatersmeetError

USER_ERROR = 2
"""The exit status of an error of the user's, as of `cli.main`."""


class LogOutput:
    """``form``: of the log; None: there is none."""

    def __init__(self, form: str | None) -> None:
        self.to_log = form is not None

    def note(self, words: str) -> None:
        """What is good to know."""
        self._say("note: ", words)

    def warning(self, words: str) -> None:
        """What may not be what was meant."""
        self._say("warning: ", words)

    def notice(self, words: str) -> None:
        """What a run that goes on tells; its log has that already."""
        if not self.to_log:
            to_stderr(f"notice: {words}")

    def plain(self, words: str) -> None:
        """What needs no word before it."""
        self._say("", words)

    def _say(self, kind: str, words: str) -> None:
        if not self.to_log:
            to_stderr(f"{kind}{words}")
            return
        from watersmeet.observe.log import LOG

        (LOG.warning if kind.startswith("warning") else LOG.info)("%s", words)


@contextmanager
def log_to_stderr(form: str | None) -> Iterator[LogOutput]:
    """Within, what is logged goes to standard error in that form (``log_format``), and errors with it: they
    end the command, and nothing more is said of them."""
    if form is None or sys.stderr is None:
        with _silence_logger():
            yield LogOutput(None)
        return
    from watersmeet.observe.log import LogToStream, log_error

    with LogToStream(form, sys.stderr) as log:
        try:
            yield LogOutput(form)
        except OutputError:
            raise
        except WatersmeetError as error:
            if not log.has_errors:  # a run tells itself what it failed with
                log_error(error)
            raise typer.Exit(USER_ERROR) from None


@contextmanager
def _silence_logger() -> Iterator[None]:
    """Within, Python's logging shows no record of a run: it shows warnings of a program that has set up none,
    and they are said here."""
    from watersmeet.observe.metrics.figures import LOGGER

    logger, nowhere = logging.getLogger(LOGGER), logging.NullHandler()
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)
        logger.propagate = propagates
