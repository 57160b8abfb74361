"""Why Spark does not start: what is known before it is tried, and what Java's last words mean.

It loads no PySpark: that may be what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from watersmeet.errors import EngineError, printable
from watersmeet.runtime.spark.errors import innermost_message

JARS_VARIABLE = "WATERSMEET_SPARK_JARS"
VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""By which the driver's JVM is told of options, too."""
MIN_JAVA = 17
MIN_PYSPARK, END_PYSPARK = 4, 5
"""Major versions of PySpark: from the first on, below the second."""
MAX_LINES = 5
"""Lines of what Java said last that an error shows."""

_INSTALL = f"install Java {MIN_JAVA} or newer, and set JAVA_HOME to its directory (the one with bin/java)"
SPARK_EXTRA = "pip install 'watersmeet[spark]'"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?([0-9]+)[^"]*"', re.MULTILINE)

# (what Java, its launcher or the operating system says, hint). They say it in English, whatever the locale.
_HINTS = (
    (
        re.compile(
            r"UnsupportedClassVersionError|class file version"
            r"|Unrecognized option: --(add-|sun-misc|enable-native)"
        ),
        f"Spark 4 needs Java {MIN_JAVA} or newer: {_INSTALL}",
    ),
    (
        re.compile(
            r"native thread|pthread_create failed|Resource temporarily unavailable|Cannot fork|fork: retry"
        ),
        "raise the limit of threads: `ulimit -u`, or the task limit of the container or service",
    ),
    (
        re.compile(
            r"(object|maximum|minimum|initial|Java) heap|heap size|Cannot allocate memory"
            r"|insufficient memory|OutOfMemoryError"
        ),
        "set a memory size that the machine and `ulimit -v` allow: --conf spark.driver.memory=2g",
    ),
    (re.compile(r"Too many open files"), "raise the limit of open files: `ulimit -n`"),
    (
        re.compile(r"No space left on device|Disk quota exceeded|Read-only file system"),
        "free some disk space for Java's files, or set TMPDIR and spark.local.dir to another directory",
    ),
    (
        re.compile(r"Exec format error"),
        "this Java was built for another kind of processor or system: " + _INSTALL,
    ),
    (
        re.compile(r"Unrecognized (VM )?option|Could not create the Java Virtual|initialization of VM"),
        "Java rejects an option: check spark.driver.extraJavaOptions and the environment variables"
        " JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, _JAVA_OPTIONS and SPARK_SUBMIT_OPTS",
    ),
    (
        re.compile(r"UnknownHostException|assign requested address|sparkDriver' (could not|failed)"),
        "add this machine's host name to /etc/hosts, or use --conf spark.driver.host=127.0.0.1 --conf"
        " spark.driver.bindAddress=127.0.0.1",
    ),
)  # fmt: skip
_UNKNOWN = "run with --conf spark.log.level=INFO to see all messages of Java"


@dataclass(frozen=True)
class JavaProgram:
    """A Java: its program, and the major version that its directory names; None: it names none."""

    program: str
    version: int | None


def check_pyspark(what: str) -> None:
    """Check that PySpark can be loaded, with what it needs, in a version that this package knows.

    Args:
        what: the command or function that needs it.

    Raises:
        EngineError: it cannot.
    """
    version = pyspark_version()
    problem = None
    if version is None:
        problem = f"{what} needs PySpark, which is not installed"
    elif version and not MIN_PYSPARK <= int(version.split(".")[0]) < END_PYSPARK:
        problem = f"{what} needs PySpark {MIN_PYSPARK}, but PySpark {version} is installed"
    elif find_spec("pandas") is None:
        problem = f"{what} needs pandas, which is not installed"
    if problem is not None:
        raise EngineError(problem, code="missing-library", hint=SPARK_EXTRA)


def pyspark_version() -> str | None:
    """Return the version of the PySpark that an import would load; empty if unknown, None without one."""
    spec = find_spec("pyspark")
    if spec is None:
        return None
    try:
        installed = distribution("pyspark")
    except PackageNotFoundError:  # spark-submit brings a PySpark that no installer knows
        return ""
    place = Path(str(installed.locate_file("pyspark"))) / "__init__.py"
    return installed.version if str(place) == spec.origin and installed.version[:1].isdigit() else ""


def check_java(environment: Mapping[str, str]) -> None:
    """Check that the Java that Spark's scripts would start can be started.

    Raises:
        EngineError: JAVA_HOME has no Java, there is none on the PATH, or it is too old.
    """
    if os.name == "posix":
        find_java(environment)


def find_java(environment: Mapping[str, str]) -> JavaProgram:
    """Return the Java that Spark's scripts would start.

    Raises:
        EngineError: as `check_java`.
    """
    home = environment.get("JAVA_HOME")
    if home:
        program: str | None = os.path.join(home, "bin", "java")
        if not os.path.isfile(program or "") or not os.access(program or "", os.X_OK):
            raise EngineError(
                f"JAVA_HOME is {printable(home)}, but {printable(str(program))} is not a program",
                code="no-java",
                hint=_INSTALL,
            )
    else:
        program = shutil.which("java", path=environment.get("PATH"))
        if program is None:
            raise EngineError(
                "Java is not installed: JAVA_HOME is not set, and the PATH has no java",
                code="no-java",
                hint=_INSTALL,
            )
    version = _read_version(str(program))
    if version is not None and version < MIN_JAVA:
        raise EngineError(
            f"{printable(str(program))} is Java {version}, but Spark 4 needs Java {MIN_JAVA} or newer",
            code="no-java",
            hint=_INSTALL,
        )
    return JavaProgram(str(program), version)


def check_user() -> str:
    """Return the name of this process's user, which Java asks the system for.

    Raises:
        EngineError: the system knows none, as in a container that runs under any number.
    """
    if os.name != "posix":
        return ""
    import pwd

    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        raise EngineError(
            f"the user with id {number} has no name, and Spark does not start without one",
            code="spark-not-started",
            hint=f"add the user to /etc/passwd, in a container image with: useradd --uid {number}"
            " --create-home NAME",
        ) from None


def check_bash(environment: Mapping[str, str]) -> None:
    """Check that Spark's scripts can be run.

    Raises:
        EngineError: bash is not on the PATH.
    """
    if os.name == "posix" and shutil.which("bash", path=environment.get("PATH")) is None:
        raise EngineError(
            "this job starts Java with spark-submit, which needs bash, but there is no bash on the PATH",
            code="spark-not-started",
            hint="install bash or add its directory to the PATH (docs/users/deployment.md lists when a"
            " job needs spark-submit)",
        )


def explain_start_failure(error: BaseException, conf: Mapping[str, str], words: str) -> EngineError:
    """Return the error for a Spark that did not start.

    Args:
        error: what was raised; `gateway.JavaEnded` has the status of Java's process.
        conf: the settings of the session.
        words: what Java wrote to standard error.
    """
    status = int(getattr(error, "status", 0))
    said = f"{error}\n{words}"
    hint = next((hint for sign, hint in _HINTS if sign.search(said)), None)
    if hint is None and status < 0:
        hint = "if the system killed it for its memory, lower --conf spark.driver.memory=1g"
    packages = conf.get("spark.jars.packages")
    if packages and hint is None:
        return EngineError(
            f"Spark did not start: could not resolve {packages}",
            code="packages-unresolved",
            hint="check the network and the Maven repositories (--conf spark.jars.ivySettings=…), or"
            " use a directory of jars: --jars DIR, SET jars = 'DIR', or the environment variable"
            f" {JARS_VARIABLE}",
        )
    lines = [line for line in words.splitlines() if not line.lstrip().startswith(("at ", "... "))]
    reason = innermost_message(error)
    if status:
        ended = f"by {_signal_name(-status)}" if status < 0 else f"with status {status}"
        reason = f"Java ended {ended} before watersmeet could connect to it"
    return EngineError(
        "\n".join([f"Spark did not start: {reason}", *map(printable, lines[-MAX_LINES:])]),
        code="spark-not-started",
        hint=hint or _UNKNOWN,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read_version(program: str) -> int | None:
    """Read the major version of a Java from its file `release`; None if it has none."""
    place = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "release")
    try:
        with open(place, encoding="utf-8", errors="replace") as file:
            version = _VERSION.search(file.read(10_000))
    except OSError:
        return None
    return None if version is None else int(version[1])
