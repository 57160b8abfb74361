"""Write a command's standard output and log; report what cannot be printed as an error of its own.

A full disk behind ``>`` and a closed pipe look like errors of a checkpoint or of Spark, but the job is
intact.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from watersmeet.errors import WatersmeetError, printable, without_hidden


class OutputError(WatersmeetError):
    """Standard output takes no more. ``closed``: by who read it (``watersmeet … | head``)."""

    def __init__(self, error: OSError, hint: str | None = None) -> None:
        self.closed = isinstance(error, BrokenPipeError)
        super().__init__(
            f"standard output cannot be written: {error.strerror or error}",
            code="output-closed" if self.closed else "output-failed",
            hint=hint
            if hint is not None
            else "whoever read it has gone; what was to be printed is lost"
            if self.closed
            else "what was to be printed is not all there: print to another place, or make room",
        )

    def __reduce__(self) -> tuple[object, ...]:
        kind = BrokenPipeError if self.closed else OSError
        return OutputError, (kind(0, self.message.partition(": ")[2]), self.hint)


def to_stderr(words: str) -> None:
    """Print a line for people to standard error, separate from the result."""
    try:
        print(printable(without_hidden(words)), file=sys.stderr)
    except OSError as error:
        if not _is_hung_up(error, sys.stderr):
            raise
        _discard_buffer(sys.stderr)


class _GuardedStdout:
    """A text stream that raises OutputError; all else is that of ``inner``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        return int(self._call_ignoring_hangup(lambda: self._inner.write(text)) or 0)

    def writelines(self, lines: Iterable[str]) -> None:
        self._call_ignoring_hangup(lambda: self._inner.writelines(lines))

    def flush(self) -> None:
        self._call_ignoring_hangup(self._inner.flush)

    def _call_ignoring_hangup(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except io.UnsupportedOperation:
            raise
        except OSError as error:
            if not _is_hung_up(error, self._inner):
                raise OutputError(error) from None
            _discard_buffer(self._inner)
            return None


class _ClosedStdout(io.TextIOBase):
    """Standard output where there is none (``>&-``)."""

    encoding = "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text:
            require_stdout()
        return 0


def format_json_value(value: Any) -> str | None:
    """Return a text as it is, and another value of JSON as JSON; None stays None."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def require_stdout() -> None:
    """Raise if there is no standard output: a command would do its work, and nobody see what came of it."""
    if sys.stdout is None or isinstance(sys.stdout, _ClosedStdout):
        raise OutputError(OSError(errno.EBADF, "it is closed"), hint="use >/dev/null to discard the output")


def _is_hung_up(error: OSError, stream: Any) -> bool:
    """Return True if ``stream`` is a terminal that was closed: nobody is there to read more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    return False


@contextlib.contextmanager
def guard_stdout() -> Iterator[None]:
    """Make `sys.stdout` raise OutputError within the block, and flush it at the end.

    Raises:
        OutputError: Not all output could be written.
    """
    inner = sys.stdout
    if inner is None:  # closed before the command began
        sys.stdout = _ClosedStdout()
        try:
            yield
        finally:
            sys.stdout = None  # as it was
        return
    sys.stdout = _GuardedStdout(inner)
    try:
        yield
        sys.stdout.flush()
    except OutputError:
        _discard_buffer(inner)
        raise
    finally:
        sys.stdout = inner


class _UntilClosed(_GuardedStdout):
    """Standard output that discards text once its reader has closed it."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OutputError as error:
            self._closed(error)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            super().flush()
        except OutputError as error:
            self._closed(error)

    def _closed(self, error: OutputError) -> None:
        if not error.closed:
            raise error
        _discard_buffer(self._inner)


@contextlib.contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """Let a closed pipe end only the printing, within `guard_stdout`.

    Used where the exit status is the answer.
    """
    inner = sys.stdout
    if inner is None or isinstance(inner, _ClosedStdout):
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield
        return
    sys.stdout = _UntilClosed(inner)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = inner


def _discard_buffer(stream: Any) -> None:
    """Discard the rest of the stream's buffer, which would fail again when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(words: object) -> None:
    """Print a line on standard error, or nothing if that cannot be written."""
    with contextlib.suppress(ValueError, AttributeError):
        try:
            print(printable(without_hidden(str(words))), file=sys.stderr, flush=True)
        except OSError:
            _discard_buffer(sys.stderr)


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
