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
        """Print a note with useful information."""
        self._say("note: ", words)

    def warning(self, words: str) -> None:
        """Print a warning about something that may not be intended."""
        self._say("warning: ", words)

    def notice(self, words: str) -> None:
        """Print a notice of a running job, unless the log already has it."""
        if not self.to_log:
            to_stderr(f"notice: {words}")

    def plain(self, words: str) -> None:
        """Print a message without a prefix."""
        self._say("", words)

    def _say(self, kind: str, words: str) -> None:
        if not self.to_log:
            to_stderr(f"{kind}{words}")
            return
        from watersmeet.observe.log import LOG

        (LOG.warning if kind.startswith("warning") else LOG.info)("%s", words)


@contextmanager
def log_to_stderr(form: str | None) -> Iterator[LogOutput]:
    """Write log records and errors within the block to standard error in that format.

    An error ends the command, and nothing else is printed about it.

    Args:
        form: The setting ``log_format``; None for no log.
    """
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
    """Hide a run's log records from Python's default logging within the block.

    Without logging set up, Python would print the warnings, which the command already prints itself.
    """
    from watersmeet.observe.metrics.figures import LOGGER

    logger, nowhere = logging.getLogger(LOGGER), logging.NullHandler()
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)
        logger.propagate = propagates
