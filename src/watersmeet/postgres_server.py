"""Transactions on a PostgreSQL server: retries, timeouts, errors."""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential,
    wait_random,
)
from tenacity.wait import wait_base

from watersmeet.errors import EngineError, near_names

CHECK_S = 0.2
"""So often it is looked whether the time is over."""

NOTICE_S = 15.0
"""After so long it is first said that something is waited for; then after twice as long, and so on."""


class StepTimeout(Exception):
    """A step has taken longer than its limit, and was given up: nobody can say what came of it."""


class WorkCancelled(Exception):
    """Error raised in the work when its caller no longer waits for it."""


class Steps:
    """Progress of cancellable work.

    The work reports each step and in doing so learns that its caller gave up.

    Attributes:
        step: a description of the current step.
    """

    def __init__(self) -> None:
        self.step = ""
        self.given_up = False
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._limit_s: float | None = None

    def begin(self, step: str, limit_s: float | None) -> None:
        """Begin ``step``; the caller gives up after ``limit_s`` seconds, or never if it is None.

        Raises:
            WorkCancelled: the caller no longer waits, so the step must not begin.
        """
        with self._lock:
            if self.given_up:
                raise WorkCancelled
            self.step, self._since, self._limit_s = step, time.monotonic(), limit_s

    def current_wait(self) -> tuple[str, float, bool]:
        """Return the current step, its duration in seconds, and True if it exceeds its limit."""
        with self._lock:
            seconds = time.monotonic() - self._since
            return self.step, seconds, self._limit_s is not None and seconds > self._limit_s

    def give_up(self) -> None:
        """Prevent all further steps."""
        with self._lock:
            self.given_up = True


def run_cancellable(work: Callable[[], Result], steps: Steps, notice: Callable[[str, float], None]) -> Result:
    """Run ``work`` in a thread; return its result or raise its error.

    Args:
        notice: called with the step and its seconds at intervals while one takes long.

    Raises:
        StepTimeout: a step took too long. The thread continues to the end of that step and then stops.
    """
    done = threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="watersmeet-awaited", daemon=True).start()
    next_notice, last_step = NOTICE_S, ""
    try:
        while not done.wait(CHECK_S):
            step, seconds, is_over = steps.current_wait()
            if step != last_step:
                next_notice, last_step = NOTICE_S, step
            if is_over:
                raise StepTimeout(f"no answer for {seconds:.0f} s ({step})")
            if seconds >= next_notice:
                notice(step, seconds)
                next_notice *= 2
    except BaseException:  # a signal, too
        steps.give_up()
        raise
    if errors:
        raise errors.pop()
    return results.pop()


# What an error of the PostgreSQL client means: whether the server is away, what it says, and what to do.
#
# The client gives no SQLSTATE while it connects, and one text of all that it tried. In that text each
# address has a part of its own; names in double quotes are the user's, and say nothing.

_AWAY = ("57P01", "57P02", "57P03", "57P05", "25P03", "40001", "40P01")
"""The server goes or comes, ends sessions that are idle, or a transaction was in the way of another."""
_AWAY_CLASSES = ("08", "53")
_NO_CONNECTION = re.compile(
    r"connection refused|closed the connection|no connection to the server|connection to"
    r" server|connection not open|could not receive data|could not send data|ssl connection has been closed"
    r"|connection reset|broken pipe|timed? ?out|eof detected|lost synchroni[sz]ation",
    re.IGNORECASE,
)
_STARTING_OR_STOPPING = re.compile(
    r"starting up|shutting down|recovery|too many (clients|connections)|connection slots|terminat"
    r"|crash of another|not yet accepting|system is not accepting|limit exceeded"
    # of poolers, which have no other word for a server that is away
    r"|server login (has been failing|failed: FATAL: the database system)|no more connections allowed"
    r"|query_wait_timeout|client_login_timeout|server_login_retry|cannot connect to server|conn crashed"
    r"|pgbouncer is shutting down",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(
    r"too many (clients|connections)|connection slots|no more connections allowed", re.IGNORECASE
)
MORE_ROOM = (
    "a run has one connection per sink, up to three for a state that is there, and of each task that runs at"
    " once one for rows and one for the state: raise max_connections (or CONNECTION LIMIT of the role or the"
    " database), or give the job fewer cores; then run again: nothing is lost"
)
"""What to do when a server has no connection left."""
IN_ROW = ("22", "23", "44", "P0", "21")
"""Classes of SQLSTATE: a value, a constraint, a view's check, a trigger, two rows of one key."""
OF_SERVER = (
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "24", "25", "26",
    "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "53", "54", "55", "57",
    "58", "72", "F0", "HV", "XX",
)  # fmt: skip
"""The classes that the server has for all else. Any other one is a user's own: of a trigger that raises."""

NO_RIGHT = "42501"
"""The SQLSTATE of a right that is lacking, and of a row that a policy (row-level security) does not allow."""

_CONNECTING = "Failed to connect: "
_QUESTION = "Is the server running on that host and accepting TCP/IP connections?"
"""The client's last sentence about a server that does not answer, which the hint says, too."""
_ADDRESS = re.compile(
    r'connection to server (?:at|on socket) "([^"]*)"(?: \([^)]*\))?(?:, port (\d+))? failed: '
)
_NAME_SERVICE = re.compile(r"could not (translate host name|look up)|out of memory", re.IGNORECASE)
"""The only thing that fails before a server is asked, and may pass."""
_SSL_BREAKS = re.compile(r"SSL error: (unexpected eof|internal error|decryption|bad record)", re.IGNORECASE)

_PARAMETERS = (
    "user", "password", "host", "hostaddr", "port", "dbname", "passfile", "require_auth", "channel_binding",
    "connect_timeout", "client_encoding", "options", "application_name", "keepalives", "keepalives_idle",
    "keepalives_interval", "keepalives_count", "tcp_user_timeout", "sslmode", "sslcert", "sslkey",
    "sslpassword", "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "sslnegotiation",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "gssencmode", "krbsrvname", "service",
    "target_session_attrs", "load_balance_hosts",
)  # fmt: skip
"""To say which one may be meant; whether one is known says the client."""

_IN_THE_URL = (
    "put the 'url' right: postgresql://user@host:5432/database?name=value&…, with the parameters of libpq; in"
    " values % is written %25, and & %26"
)
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"does not support SSL",
        "the url asks for TLS (sslmode), and the server has none: turn it on there (ssl = on), or leave"
        " sslmode out where the network is trusted",
    ),
    (
        r"does not match host name|could not get server's host name",
        "name the server in the url as its certificate does, or give it a certificate with that name; or"
        " sslmode=verify-ca, which looks at the authority alone",
    ),
    (
        r"root certificate|certificate verify failed",
        "sslrootcert in the url names a file with the certificate of the authority that signed the server's,"
        " on every machine that connects, workers too",
    ),
    (
        r"alert (unknown ca|bad certificate|certificate)|client certificate|private key|certificate",
        "sslcert and sslkey in the url name a certificate that the server's authority signed and its key, on"
        " every machine that connects, workers too; the key is readable by its owner alone (chmod 600)",
    ),
    (
        r"unsupported startup parameter",
        "a pooler does not take what the url says in 'options': leave it out, or name the server itself",
    ),
    (
        r"statement pooling mode",
        "the pooler ends a session with each statement: name the server itself, or a pooler with"
        " pool_mode = session",
    ),
    (
        r"SSL error|sslmode|invalid response to|expected authentication request|gssencmode",
        "check host and port, that a PostgreSQL server answers there, and the TLS parameters of the url",
    ),
    (
        r"pg_hba\.conf",
        "let the job's machines in, in pg_hba.conf of the server; if it says 'no encryption', it may ask for"
        " TLS: sslmode=require in the url",
    ),
    (
        r"not permitted to log in",
        "ALTER ROLE … LOGIN on the server, or correct the user in the url",
    ),
    (
        r"no password supplied|password authentication failed|role .* does not exist"
        r"|authentication|channel binding|SCRAM",
        "correct the user or the password: in the url, in PGUSER and PGPASSWORD, or in ~/.pgpass",
    ),
    (
        r"database .* does not exist|no such database|not currently accepting",
        "create the database (CREATE DATABASE), or correct its name in the url",
    ),
    (
        r"permission denied for database",
        "GRANT CONNECT ON DATABASE to the job's user; to make tables or schemas it needs CREATE, too",
    ),
    (
        r"read-only transaction",
        "the server is a standby, or its default is read-only: name the primary, or all servers with"
        " target_session_attrs=read-write in the url: then the one that takes writes is found and waited for",
    ),
    (
        r"row-level security policy",
        "let the job's user see all rows of the table (ALTER ROLE … BYPASSRLS), or leave out the PRIMARY KEY",
    ),
    (r"permission denied", "GRANT the job's user the right that the server names"),
    (
        r"invalid (integer )?value \S* ?for connection option",
        _IN_THE_URL,
    ),
    (
        r"configuration parameter|invalid value for parameter",
        "check 'options' in the url: the server does not take a setting there",
    ),
)
_REFUSED = re.compile(
    r"does not support SSL|SSL was required|certificate|private key|SSL error: |no password supplied"
    r"|authentication|channel binding|SCRAM|invalid response to|invalid (integer )?value|invalid port"
    r"|negotiation|sslmode|gssencmode",
    re.IGNORECASE,
)
"""What a client says of a server that stays so."""


def is_away(error: BaseException) -> bool:
    """Return True if the server is unavailable, or was for a moment, and a retry may succeed."""
    if isinstance(error, StepTimeout):
        return True
    if not hasattr(error, "sqlstate"):  # not the client's
        return False
    text = _strip_quoted_names(str(error))
    state = error.sqlstate
    if state and state != "00000":
        if state == "08P01":  # the only one that poolers have
            return _STARTING_OR_STOPPING.search(text) is not None
        return state in _AWAY or state[:2] in _AWAY_CLASSES
    if _CONNECTING in text:
        return _may_connect(str(error).partition(_CONNECTING)[2])
    if "FATAL:" in text:  # and not PGRES_FATAL_ERROR
        return _STARTING_OR_STOPPING.search(text.replace("server terminated abnormally", "")) is not None
    return _NO_CONNECTION.search(text) is not None


def has_no_room(said: str) -> bool:
    """Return True if the server, or a pooler, reports that the user has no free connection."""
    return _NO_ROOM.search(_strip_quoted_names(said)) is not None


def _may_connect(text: str) -> bool:
    """Return True if one of the servers that were tried may accept a connection later.

    A server that answers with FATAL is the last one tried.
    """
    if "FATAL:" in _strip_quoted_names(text):  # a server that answers: a wrong password stays wrong
        return _STARTING_OR_STOPPING.search(_strip_quoted_names(text[text.rindex("FATAL:") :])) is not None
    first, *tried = _ADDRESS.split(text)
    if not tried:
        return _NAME_SERVICE.search(_strip_quoted_names(first)) is not None
    stays: dict[tuple[str, str], bool] = {}
    for host, port, said in zip(*[iter(tried)] * 3, strict=True):  # a name has several addresses
        stays[host, port] = stays.get((host, port), False) or _stays(_strip_quoted_names(said))
    is_unknown = _NAME_SERVICE.search(_strip_quoted_names(text)) is not None
    return is_unknown or not all(stays.values())


def _stays(said: str) -> bool:
    return _REFUSED.search(said) is not None and _SSL_BREAKS.search(said) is None


def _strip_quoted_names(text: str) -> str:
    """Remove quoted names from a text: a database may be called "recovery"."""
    return re.sub(r'"[^"]*"', '""', text)


def refuses_row(error: BaseException) -> bool:
    """Return True if the server rejected a row."""
    state = state_of(error) or "00000"
    return state[:2] in IN_ROW or state[:2] not in OF_SERVER


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of the client's error; None if it has none."""
    return getattr(error, "sqlstate", None) or None


def constraint_of(error: BaseException) -> str:
    """Return the name of the violated constraint; "" if the server names none."""
    details = dict(getattr(error, "details", ()))
    return str(details.get(b"PG_DIAG_CONSTRAINT_NAME", b"").decode(errors="replace"))


def table_of_error(error: BaseException) -> tuple[str, str] | None:
    """Return schema and name of the table that the server names in the error; None if none."""
    details = dict(getattr(error, "details", ()))
    schema, table = (
        bytes(details.get(key, b"")).decode(errors="replace")
        for key in (b"PG_DIAG_SCHEMA_NAME", b"PG_DIAG_TABLE_NAME")
    )
    return (schema, table) if table else None


def has_row_detail(error: BaseException) -> bool:
    """Return True if the server's error identifies the row."""
    return b"PG_DIAG_MESSAGE_DETAIL" in dict(getattr(error, "details", ()))


def advice(error: BaseException) -> str | None:
    """Suggest a fix for a server that rejects the connection, or for a missing privilege.

    Returns:
        The hint; None if none is known.
    """
    text = str(error)
    if _CONNECTING in text and _ADDRESS.search(text) is None and _NAME_SERVICE.search(text) is None:
        if (named := re.search(r'invalid URI query parameter: "([^"]*)"', text)) is not None:
            near = near_names(named[1], _PARAMETERS) or ""
            return f"{near} {_IN_THE_URL}" if near.startswith("did") else _IN_THE_URL
        return _IN_THE_URL
    said = _strip_quoted_names(text)
    return next((hint for pattern, hint in _ADVICE if re.search(pattern, said, re.IGNORECASE)), None)


def refused_login(said: str) -> str | None:
    """Return why a server does not let the job in, and which server.

    Args:
        said: of `words`. None is returned if it is about something else.

    >>> refused_login('connection to server at "db", port 5432 failed: FATAL: password authentication failed')
    'password authentication failed (db:5432)'
    """
    addresses = _ADDRESS.findall(said)
    _, fatal, reason = said.rpartition("FATAL:")
    if not addresses or not fatal:
        return None
    host, port = addresses[-1]
    return f"{reason.strip()} ({host}{port and f':{port}'})"


def words(error: BaseException, url: str) -> str:
    """Format the server's message in one line, without the password."""
    told = {name.decode(): value.decode(errors="replace") for name, value in getattr(error, "details", ())}
    text = told.get("PG_DIAG_MESSAGE_PRIMARY")
    if text is None:
        text = str(error).partition("\n\nQuery was")[0]
        text = re.sub(r"^[A-Z_]+: (\[libpq\] )?|\. SQLSTATE: \w+$", "", text.strip())
    detail = told.get("PG_DIAG_MESSAGE_DETAIL")
    line = " ".join(f"{text}{f' ({detail})' if detail else ''}".split())
    line = line.removeprefix(_CONNECTING).removesuffix(_QUESTION).rstrip()
    return _without_password(line, url)


def _without_password(text: str, url: str) -> str:
    parts = urlsplit(url)
    hidden = re.findall(r"password=([^&]*)", parts.query) + ([parts.password] if parts.password else [])
    for secret in {form for one in hidden for form in (one, unquote(one)) if len(form) > 2}:
        text = text.replace(secret, "***")
    return text


# Transactions on a PostgreSQL server, tried again while it is away, and given up where it does not
# answer.
#
# A transaction here is a function of a cursor that may be called any number of times: what it does must
# be the same whether an earlier call of it was committed or not, for the answer to a COMMIT may be lost.

Cursor = Any
"""Of `adbc_driver_postgresql.dbapi`."""
Result = TypeVar("Result")

LOG = logging.getLogger("watersmeet.postgres")

RETRY_WAIT_S, MAX_RETRY_WAIT_S = 0.1, 10.0
"""Seconds before the first retry of a transaction, and the maximum before any later one."""
MIN_ANSWER_S = 60.0
"""Minimum seconds to wait for a connection or a COMMIT, however short the wait for a retry is."""


def client() -> Any:
    """Import the client library.

    Raises:
        EngineError: the library is not installed.
    """
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
    manager._blocking_call = _call_directly  # type: ignore[attr-defined,assignment]
    return dbapi


def _call_directly(work: Callable[..., Result], args: Any, kwargs: Any, cancel: Any) -> Result:
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
        """Return True if a retry may succeed."""
        return is_away(error)

    def whose(self) -> str:
        """Describe the owner of the server, for messages."""
        return f'sink "{self._sink}"'

    def away(self, seconds: float, said: str) -> Exception:
        """Build the error for a server that was unavailable for too long."""
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
                    connection = self._open_connection()
                steps.begin("to what it was asked", self.answers_within_s)
                with connection.cursor() as cursor:
                    result = work(cursor)
                steps.begin("to COMMIT", limit_s)
                connection.commit()
                steps.begin("", None)
            except BaseException as error:
                gone = isinstance(error, WorkCancelled) or is_away(error)
                if connection is not None and (gone or not _rolled_back(connection)):
                    _closed(connection)
                    connection = None
                raise
            return result

        try:
            return run_cancellable(attempt, steps, self._report_waiting)
        finally:
            if not steps.given_up:
                self._connection = connection

    def _report_waiting(self, step: str, seconds: float) -> None:
        LOG.warning("%s: the server has not answered %s for %.0f s", self.whose(), step, seconds)

    def _open_connection(self) -> Any:
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
        """Close the connection and so release everything that the session holds."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            _closed(connection)

    def keep(self) -> None:
        """Put the connection into this process's pool for the next user.

        Call it only if nothing but ``opened`` has changed the session.
        """
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
    """Return all rows of a query; ``values`` are its parameters $1, $2, and so on."""
    cursor.execute(sql, parameters=values or None)
    return [tuple(row) for row in cursor.fetchall()]


def quote_identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
