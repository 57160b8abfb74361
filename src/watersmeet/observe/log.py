"""Log a run: its start, a record per query and tick, notices, and its end or error.

The records go to the logger ``watersmeet.run`` of Python's logging, with their data as fields (``job``,
``query``, ``tick``, …). A program that has configured logging receives them there; for others, `LogToStream`
configures it, as text or as one JSON object per line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, ClassVar, TextIO

from watersmeet.errors import WatersmeetError, without_hidden
from watersmeet.event_time import ENDED, NEVER
from watersmeet.observe.listeners import Listener, WatchedRun
from watersmeet.observe.metrics.figures import LOGGER, is_logging_set_up
from watersmeet.observe.progress import DROPPED, TickReport
from watersmeet.observe.reports import ObservedTick, account_of, input_name, split_by_alias
from watersmeet.observe.watermark_holders import WaitingInput
from watersmeet.spec.monitoring import LogFormat

LOG = logging.getLogger(f"{LOGGER}.run")

_FIELDS = "watersmeet"
"""The attribute of a record that has its fields."""


class LogWatcher(Listener):
    """Listener that writes events to the log; it costs nothing when no logger is enabled."""

    def __init__(self, run: WatchedRun) -> None:
        self._job = run.job
        self._tick: int | None = None
        self._last: ObservedTick | None = None

    def announce_page(self, url: str, access: str) -> None:
        self.note(f"the page of the job is at {url} ({access})")

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        self._log(logging.INFO, "the job has started")
        for wait in waiting:
            self._log(logging.INFO, wait.words().removeprefix("note: "), input=wait.input)

    def tick_begins(self, tick: int) -> None:
        self._tick = tick

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        self._last, self._tick = result, None
        if not LOG.isEnabledFor(logging.INFO):
            return
        for query, own in result.queries.items():
            late = sum(of.get("late", 0) for of in own.counts.values())
            rows_in = sum(of.get("in", 0) for of in own.counts.values())
            aside = {place: sum(of.get(place, 0) for of in own.counts.values()) for place in DROPPED}
            told = "".join(f"{rows:,} {DROPPED[place]}, " for place, rows in aside.items() if rows)
            kept = sum(own.state.values())
            self._log(
                logging.INFO,
                f"tick {report.tick:,} of {query}: {rows_in:,} rows in, {own.rows_out:,} out, {late:,} late, "
                f"{told}{kept:,} retained, {report.seconds:.2f} s",
                query=query,
                tick=report.tick,
                seconds=round(report.seconds, 4),
                phases={phase: round(seconds, 4) for phase, seconds in report.phases.items()},
                rows_in=rows_in,
                rows_out=own.rows_out,
                late=late,
                **aside,
                retained=kept,
                watermarks={
                    f"{alias}.{column}": _mark(mark)
                    for alias, marks in split_by_alias(own.input_watermarks, own.account).items()
                    for column, mark in marks.items()
                },
            )
            for alias, row in own.missing_deletes:
                self._log(
                    logging.WARNING,
                    f"delete of an absent row: {row}",
                    query=query,
                    tick=report.tick,
                    input=input_name(alias),
                )

    def notice(self, said: str) -> None:
        self._log(logging.WARNING, said)

    def note(self, said: str) -> None:
        """Log a message about the run at level INFO."""
        self._log(logging.INFO, said)

    def ended(self, error: BaseException | None) -> None:
        if error is not None:
            if not is_logging_set_up(LOG.name):
                return  # it is raised, or printed by who started the job: Python would print it once more
            message, more = _error_fields(error)
            self._log(logging.ERROR, message, **more, **({} if self._tick is None else {"tick": self._tick}))
            return
        account = {} if self._last is None else {"account": account_of(self._last).as_dict()}
        self._log(logging.INFO, "the job has ended", **account)

    def _log(self, level: int, message: str, **fields: Any) -> None:
        if LOG.isEnabledFor(level):
            LOG.log(level, "%s", without_hidden(message), extra={_FIELDS: {"job": self._job, **fields}})


def log_error(error: BaseException) -> None:
    """Log an error for which no run was started."""
    message, more = _error_fields(error)
    LOG.error("%s", message, extra={_FIELDS: more})


def _error_fields(error: BaseException) -> tuple[str, dict[str, Any]]:
    if not isinstance(error, WatersmeetError):
        return without_hidden(f"{type(error).__name__}: {error}"), {}
    more = {"code": error.code} | ({"hint": error.hint} if error.hint else {})
    return str(error.message), more


def _mark(mark: float) -> float | str | None:
    return None if mark == NEVER else "end" if mark == ENDED else mark


class JsonFormatter(logging.Formatter):
    """A record as an object of JSON on one line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class TextFormatter(logging.Formatter):
    """Format a record as a line for people: time, level, subject and message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, {})
        whose = " ".join(f"{name}={fields[name]}" for name in ("job", "query", "tick") if name in fields)
        code = f" [{fields['code']}]" if "code" in fields else ""
        hint = f"; {fields['hint']}" if "hint" in fields else ""
        line = f"{_time(record)} {record.levelname} {whose or record.name}: {record.getMessage()}{code}{hint}"
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return line.replace("\n", "\\n") + trace


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


class _Handler(logging.StreamHandler[TextIO]):
    errors = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.errors += record.levelno >= logging.ERROR
        super().emit(record)


class LogToStream:
    """Context in which everything that the package logs goes to one stream only.

    Several contexts may be open at once, as for several jobs in one process: then the stream of the first one
    receives everything, once.

    Args:
        form: a `LogFormat`'s value.
    """

    _open: ClassVar[list[LogToStream]] = []
    _lock = Lock()

    def __init__(self, form: str, out: TextIO) -> None:
        self._handler = _Handler(out)
        self._handler.setFormatter(JsonFormatter() if form == LogFormat.JSON.value else TextFormatter())

    @property
    def has_errors(self) -> bool:
        """True if an error was written."""
        return self._handler.errors > 0

    def __enter__(self) -> LogToStream:
        with self._lock:
            self._open.append(self)
            self._set()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            logging.getLogger(LOGGER).removeHandler(self._handler)
            self._open.remove(self)
            self._set()

    def _set(self) -> None:
        logger, first = logging.getLogger(LOGGER), self._open[0] if self._open else None
        for other in self._open[1:]:
            logger.removeHandler(other._handler)
        if first is not None:
            logger.addHandler(first._handler)
        logger.propagate = first is None
        logger.setLevel(logging.NOTSET if first is None else logging.INFO)
