"""Transactions on a PostgreSQL server, tried again while it is away, and given up where it does not answer.

A transaction here is a function of a cursor that may be called any number of times: what it does must be the
same whether an earlier call of it was committed or not, for the answer to a COMMIT may be lost.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential,
    wait_random,
)
from tenacity.wait import wait_base

from watersmeet.awaited import GivenUp, Steps, awaited
from watersmeet.errors import EngineError
from watersmeet.postgres_errors import MORE_ROOM, has_no_room, is_away, words

Cursor = Any
"""Of `adbc_driver_postgresql.dbapi`."""
Result = TypeVar("Result")

LOG = logging.getLogger("watersmeet.postgres")

RETRY_WAIT_S, MAX_RETRY_WAIT_S = 0.1, 10.0
"""Seconds before the first retry of a transaction, and the maximum before any later one."""
MIN_ANSWER_S = 60.0
"""Minimum seconds to wait for a connection or a COMMIT, however short the wait for a retry is."""


def client() -> Any:
    """The client library. Raises: EngineError when it is not installed."""
    try:
        from adbc_driver_manager import dbapi as manager
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise EngineError(
            "PostgreSQL needs a client library that is not installed",
            code="missing-library",
            hint="run `pip install 'watersmeet[postgres]'`, also on the machines of executors",
        ) from None
    # The library's own would take Ctrl-C for itself, ask a server that does not answer to cancel, and wait
    # for that; and a COMMIT that waits for a standby must not be cancelled: it would count here alone
    manager._blocking_call = _called  # type: ignore[attr-defined,assignment]
    return dbapi


def _called(work: Callable[..., Result], args: Any, kwargs: Any, cancel: Any) -> Result:
    return work(*args, **kwargs)


_IDLE: dict[tuple[int, str, str], Any] = {}
"""Connections of this process that nobody uses, one per URL and pool: to open one takes longer than a small
tick."""


def close_idle(url: str, pool: str = "") -> None:
    """Close the connection to ``url`` that is kept, if there is one."""
    connection = _IDLE.pop((os.getpid(), str(url), pool), None)
    if connection is not None:
        _closed(connection)


@atexit.register
def _close_all() -> None:
    for url, pool in [key[1:] for key in _IDLE if key[0] == os.getpid()]:
        close_idle(url, pool)


def _closed(connection: Any) -> None:
    try:
        connection.close()
    except Exception as error:  # it is gone already
        LOG.debug("closing: %s", type(error).__name__)


def _rolled_back(connection: Any) -> bool:
    try:
        connection.rollback()
    except Exception:
        return False
    return True


class Server:
    """A connection that comes back.

    Args:
        url: with the password; it is never shown.
        sink: its name, for messages.
        wait_s: for how long a server that is away is waited for, in each transaction.
        opened: what is done with each new connection first.
        pool: of whose idle connections one is taken: of those that were opened alike. None: a new one.

    Attributes:
        answers_within_s: what a transaction does is given up after so long; None: it takes as long as it
            takes, as does moving many rows, and only what the server has to answer soon is given up.
    """

    def __init__(
        self,
        url: str,
        sink: str,
        wait_s: float,
        opened: Callable[[Cursor], None] | None = None,
        pool: str | None = None,
    ) -> None:
        self._url, self._sink, self._wait_s = url, sink, wait_s
        self._opened = opened
        self._pool = "" if pool is None and opened is None else pool
        self._connection: Any = None
        self.answers_within_s: float | None = None

    def may_pass(self, error: BaseException) -> bool:
        """Whether the same may work later."""
        return is_away(error)

    def whose(self) -> str:
        """Whose server it is, in words."""
        return f'sink "{self._sink}"'

    def away(self, seconds: float, said: str) -> Exception:
        """What is raised when it was away for too long."""
        if has_no_room(said):
            return EngineError(
                f"the server of {self.whose()} had no free connection for {seconds:.0f} s: {said}",
                code="sink-unreachable",
                hint=MORE_ROOM,
            )
        return EngineError(
            f"the server of {self.whose()} did not answer for {seconds:.0f} s: {said}",
            code="sink-unreachable",
            hint="check 'url' and that the server runs, then run again; 'max_wait' sets how long to retry",
        )

    def run(self, work: Callable[[Cursor], Result], wait_s: float | None = None) -> Result:
        """Do ``work`` in one transaction; again, from its beginning, when the server was away.

        Raises:
            EngineError: it was away for too long, or what ``work`` raised.
            Exception: the client's error, of what the server refuses.
        """
        away_since = time.monotonic()

        def say(state: RetryCallState) -> None:
            if state.outcome is not None and state.next_action is not None:
                error = state.outcome.exception()
                assert error is not None
                said = words(error, self._url)
                LOG.warning(
                    "%s: %s (%s); tried again in %.1f s, for %.0f s in all",
                    self.whose(),
                    "the server has no connection left"
                    if has_no_room(said)
                    else "the server is away"
                    if is_away(error)
                    else "something is in the way",
                    said,
                    state.next_action.sleep,
                    limit_s,
                )

        limit_s = self._wait_s if wait_s is None else min(wait_s, self._wait_s)
        attempts = Retrying(
            retry=retry_if_exception(self.may_pass),
            wait=_within(limit_s, wait_exponential(multiplier=RETRY_WAIT_S, max=MAX_RETRY_WAIT_S)),
            stop=stop_after_delay(limit_s),
            before_sleep=say,
            reraise=True,
        )
        try:
            result: Result = attempts(self.run_once, work)
        except Exception as error:
            if not self.may_pass(error):
                raise
            raise self.away(time.monotonic() - away_since, words(error, self._url)) from None
        return result

    def run_once(self, work: Callable[[Cursor], Result]) -> Result:
        """Do ``work`` in one transaction, without retry.

        It runs in a thread that owns the connection until it answers, so that a call which is given up leaves
        no half-used connection behind.

        Raises:
            GivenUp: the server did not answer in time.
            Exception: whatever ``work`` or the client raised.
        """
        limit_s = max(self._wait_s, MIN_ANSWER_S)
        steps = Steps()
        connection, self._connection = self._connection, None
        if connection is None and self._pool is not None:
            connection = _IDLE.pop((os.getpid(), str(self._url), self._pool), None)

        def attempt() -> Result:
            nonlocal connection
            try:
                if connection is None:
                    steps.begin("to let in", limit_s)
                    connection = self._opened_anew()
                steps.begin("to what it was asked", self.answers_within_s)
                with connection.cursor() as cursor:
                    result = work(cursor)
                steps.begin("to COMMIT", limit_s)
                connection.commit()
                steps.begin("", None)
            except BaseException as error:
                gone = isinstance(error, GivenUp) or is_away(error)
                if connection is not None and (gone or not _rolled_back(connection)):
                    _closed(connection)
                    connection = None
                raise
            return result

        try:
            return awaited(attempt, steps, self._say_it_waits)
        finally:
            if not steps.given_up:
                self._connection = connection

    def _say_it_waits(self, step: str, seconds: float) -> None:
        LOG.warning("%s: the server has not answered %s for %.0f s", self.whose(), step, seconds)

    def _opened_anew(self) -> Any:
        connection = client().connect(str(self._url))
        try:
            if self._opened is not None:
                with connection.cursor() as cursor:
                    self._opened(cursor)
                connection.commit()
        except BaseException:
            _closed(connection)
            raise
        return connection

    def close(self) -> None:
        """Whatever the session held is free."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            _closed(connection)

    def keep(self) -> None:
        """Leave the connection to who comes next in this process: nothing was done with its session but what
        ``opened`` does."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            key = os.getpid(), str(self._url), self._pool or ""
            if _IDLE.setdefault(key, connection) is not connection:
                _closed(connection)


def _within(limit_s: float, wait: wait_base) -> Callable[[RetryCallState], float]:
    """Wait as ``wait`` and a random moment, but not past the last retry, at ``limit_s``."""
    jittered = wait + wait_random(0, RETRY_WAIT_S)
    return lambda state: min(jittered(state), max(limit_s - (state.seconds_since_start or 0.0), 0.0))


def rows_of(cursor: Cursor, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query; ``values`` are its $1, $2, …"""
    cursor.execute(sql, parameters=values or None)
    return [tuple(row) for row in cursor.fetchall()]


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
