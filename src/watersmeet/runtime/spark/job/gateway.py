"""Start of the driver's JVM, and the connection of this process with it.

This process starts the JVM directly if the command is known (`java_command`), else by PySpark, whose
``spark-submit`` starts a JVM before it. The JVM is the same in both cases. It writes a file with its port and
its secret, and ends when its standard input ends, as when this process dies. It may be started ahead, while
the rest of the program loads and the job is checked; the first caller that needs a JVM of the same command
uses it.
"""

from __future__ import annotations

import codecs
import locale
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from time import sleep
from typing import IO, Any
from warnings import catch_warnings

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from watersmeet.runtime.spark.job.external_session import GATEWAY, OURS
from watersmeet.runtime.spark.job.java_command import Command, has_spark_env, java_command
from watersmeet.runtime.spark.job.signals import STOPPING, defer_signals
from watersmeet.runtime.spark.start_failures import check_bash, check_java, check_user
from watersmeet.spec.secrets import Secret, public_setting

_SECRET = "PYSPARK_GATEWAY_SECRET"
_WHERE, _NAME = "_PYSPARK_DRIVER_CONN_INFO_PATH", "gateway"
_ARGUMENTS = "arguments"
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"}
"""In quotes, in a file of arguments of Java's launcher."""
_LOADED = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")
_JAVA_SETTINGS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_STORE_SETTINGS = ("spark.hadoop.",)
"""Settings that ``spark-submit`` needs itself: of what it loads, of the JVM that it starts, and of the stores
from which it loads."""
_POLL_S = 0.02
_NEEDED_NEXT = "pyspark.testing"
"""What PySpark 4.2 imports when it first hands something to Java: pandas and more, for which the JVM, once it
is up, would wait."""


class JavaEnded(PySparkRuntimeError):
    """The JVM ended before it said at which port it listens. ``status``: of its process."""

    def __init__(self, status: int) -> None:
        super().__init__(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        self.status = status


@dataclass(frozen=True)
class _StartedJava:
    """A JVM that was started, and the directory in which it will say where it listens."""

    command: Command
    proc: Popen[bytes]
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def by(cls, command: Command, words: IO[bytes] | None) -> _StartedJava:
        folder, proc = tempfile.TemporaryDirectory(), None
        try:
            environment = {**command.environment, _WHERE: str(Path(folder.name) / _NAME)}
            program, *arguments = command.arguments
            file = _write_arguments(arguments, Path(folder.name))
            with defer_signals():
                proc = Popen(
                    [program, f"@{file}"],
                    stdin=PIPE,
                    stderr=words,
                    env=environment,
                    preexec_fn=_ignore_stopping,
                )
        except BaseException:
            if proc is not None:
                end(proc)
            folder.cleanup()
            raise
        return cls(command, proc, folder)

    def end(self) -> None:
        end(self.proc)
        self.folder.cleanup()


def _write_arguments(arguments: Sequence[str], folder: Path) -> Path:
    """Write arguments into a file for Java's launcher to read (``java @file``), in a folder of this user's.

    Settings of Spark and options of Java may hold passwords, and all users of a machine can read the
    arguments of a process.
    """
    file = folder / _ARGUMENTS
    with open(file, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
        for argument in arguments:
            quoted = "".join(_ESCAPES.get(sign, sign) for sign in argument)
            written.write(os.fsencode(f'"{quoted}"\n'))
    return file


_started_java: list[_StartedJava] = []
"""At most one, that nobody has taken so far."""


def start_ahead(conf: Mapping[str, str], words: IO[bytes] | None) -> None:
    """Start the JVM that `launch` will need, if its command is known, without waiting for it.

    The arguments are those of `launch`. An error here is ignored: `launch` fails with it and reports
    it.
    """
    if current_gateway() is None and not _started_java:
        with suppress(Exception), use_utf8_file_names():
            command = _command(conf)
            if command is not None:
                _started_java.append(_StartedJava.by(command, words))


def end_unused() -> None:
    """Kill the JVM that was begun, if nobody has taken it."""
    while _started_java:
        _started_java.pop().end()


def launch(conf: Mapping[str, str], words: IO[bytes] | None) -> None:
    """Start the JVM, or take the one that was begun, unless there is one that is connected.

    Args:
        conf: all settings of the session that is to be.
        words: takes what the JVM says; None: standard error.

    Raises:
        EngineError: Java, or the shell that is to start it, is not there.
        Exception: it ended, or cannot be started; its process is gone.
    """
    if current_gateway() is not None:
        return
    with use_utf8_file_names():
        command = _command(conf)
        _check_programs(command)
        if command is None:
            asked = SparkConf(loadDefaults=False).setAll(list(_select_submit_settings(conf).items()))
            gateway: Any = launch_gateway(asked, popen_kwargs={"stderr": words})  # type: ignore[no-untyped-call]
        else:
            gateway = _launch_directly(command, words)
    adopt_gateway(gateway)


def forget_dead() -> None:
    """Forget a JVM that this process started and that has ended.

    PySpark's references to it are removed too; otherwise PySpark would send the next call to the dead
    JVM.
    """
    connected = current_gateway()
    process = getattr(connected, "proc", None)
    if process is None or process.poll() is None:
        return
    session, context = SparkSession._instantiatedSession, SparkContext._active_spark_context
    for left in (session, context):
        if left is not None:
            with suppress(Exception), catch_warnings(action="ignore"):
                left.stop()
    SparkSession._instantiatedSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None


def list_exposed_settings(conf: Mapping[str, str]) -> list[str]:
    """Return the names of settings with secrets that all users of this machine could read.

    They could read them in the arguments of ``spark-submit``; the list is empty unless ``spark-submit`` is to
    start the JVM.
    """
    names = [name for name, value in _select_submit_settings(conf).items() if _is_secret(name, value)]
    if not names or current_gateway() is not None or GATEWAY in os.environ:
        return []
    with use_utf8_file_names():
        return names if _command(conf) is None else []


def _select_submit_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Select the settings to pass to ``spark-submit`` as arguments.

    Secrets that only the session needs are omitted; the session receives all settings from its builder.
    """
    is_remote = any("://" in conf.get(name, "") for name in _LOADED)
    needed = (*_LOADED, *_JAVA_SETTINGS, *(_STORE_SETTINGS if is_remote else ()))
    return {
        name: value for name, value in conf.items() if name.startswith(needed) or not _is_secret(name, value)
    }


def _is_secret(name: str, value: str) -> bool:
    return isinstance(value, Secret) or public_setting(name, value) != value


def check_start(conf: Mapping[str, str]) -> None:
    """Check what `launch` would start, if there is no JVM yet. Raises: EngineError."""
    if current_gateway() is None:
        with use_utf8_file_names():
            _check_programs(_command(conf))


def has_ended(within_s: float) -> bool:
    """Return True if the JVM that PySpark uses was started by this process, and ends within the time."""
    process = getattr(current_gateway(), "proc", None)
    if process is None:
        return False
    with suppress(TimeoutExpired):
        process.wait(within_s)
    return process.poll() is not None


def current_gateway() -> Any:
    """Return PySpark's connection with the driver's JVM, None if there is none."""
    return SparkContext._gateway


def adopt_gateway(gateway: Any) -> None:
    """Let PySpark use ``gateway`` for all sessions; None: forget the one it has, whose JVM died."""
    if gateway is None:
        SparkContext._gateway = None
    else:
        SparkContext._ensure_initialized(gateway=gateway)


def _command(conf: Mapping[str, str]) -> Command | None:
    """Return the command that starts the JVM; None if PySpark has to start it."""
    environment = {**os.environ, "SPARK_CONNECT_MODE": "0"}
    return None if GATEWAY in os.environ else java_command(conf, environment)


def _check_programs(command: Command | None) -> None:
    """Check what a start needs. Raises: EngineError."""
    if GATEWAY in os.environ:
        return
    check_user()
    if not has_spark_env(os.environ):
        check_java(os.environ)
    if command is None:
        check_bash(os.environ)


def _launch_directly(command: Command, words: IO[bytes] | None) -> Any:
    if _started_java and _started_java[0].command != command:
        end_unused()
    begun = _started_java.pop() if _started_java else _StartedJava.by(command, words)
    try:
        with suppress(Exception):  # it is imported again, and then what is wrong is said
            import_module(_NEEDED_NEXT)
        gateway = _connect_gateway(*_await_java(begun.proc, Path(begun.folder.name) / _NAME))
    except BaseException:
        begun.end()
        raise
    begun.folder.cleanup()
    gateway.proc = begun.proc
    return gateway


def _ignore_stopping() -> None:
    """Make the JVM ignore the signals that stop a run.

    Terminals and supervisors send them to all processes of the run, and the running tick needs the JVM to
    finish. The JVM ends with its standard input, however Python ends.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _await_java(proc: Popen[bytes], where: Path) -> tuple[int, str]:
    """Wait for the JVM's connection file and return the port and the secret.

    The JVM gives the file its name when the file is complete.
    """
    while not where.is_file():
        if proc.poll() is not None:
            raise JavaEnded(proc.returncode)
        sleep(_POLL_S)
    with where.open("rb") as said:
        port: int = read_int(said)  # type: ignore[no-untyped-call]
        return port, str(UTF8Deserializer().loads(said))  # type: ignore[no-untyped-call]


def _connect_gateway(port: int, secret: str) -> Any:
    """Connect PySpark to the running JVM.

    PySpark finds the JVM through environment variables, as in a process that ``spark-submit`` started.
    """
    with OURS:
        os.environ[GATEWAY], os.environ[_SECRET] = str(port), secret
        try:
            return launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            del os.environ[GATEWAY], os.environ[_SECRET]


def end(proc: Popen[bytes]) -> None:
    """Kill a JVM that nobody is connected with, and wait for its end."""
    proc.kill()
    proc.wait()
    if proc.stdin is not None:
        proc.stdin.close()


def end_half_started(interrupt: BaseException) -> None:
    """Kill the JVM that PySpark was waiting for.

    It would never end: the directory for its port file is gone, so writing the file throws, and the thread
    that serves the port keeps the JVM alive.
    """
    for frame, _ in traceback.walk_tb(interrupt.__traceback__):
        process = frame.f_locals.get("proc")
        if isinstance(process, Popen):
            end(process)


@contextmanager
def use_utf8_file_names() -> Iterator[None]:
    """Set a locale, for the block, in which a new Java process reads all file names.

    In a locale such as C, Java reads only ASCII names and skips the other files of a directory.
    """
    before = os.environ.get("LC_ALL")
    if sys.platform == "linux" and codecs.lookup(locale.getencoding()).name != "utf-8":
        os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("LC_ALL", None)
        else:
            os.environ["LC_ALL"] = before
