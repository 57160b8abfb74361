"""The command by which ``spark-submit`` would start the driver's JVM, found without it.

``spark-submit`` is a shell script that asks Python where Spark is and starts one JVM, Spark's launcher, which
does no more than print the command of the next. Here that command is put together by the same rules.

Asking the launcher once and keeping its answer would need no rules, but a place to keep it, which a container
does not have, and which passwords in the options of Java must not get into; and an answer would be good only
for as long as all that it came from was known to be as it was. So it is worked out each time, where that is
certain, and else left to ``spark-submit`` (None):

* The scripts and the launcher are those that this module was compared with, byte for byte
  (``tests/engine/spark/test_java_command.py``). Another Spark, or one that a vendor has changed, is not.
* The job's driver is this process: a local master, or a standalone cluster's.
* Nothing is there that only a shell or the launcher could tell the meaning of: ``spark-env.sh``,
  ``java-opts``, a line of ``spark-defaults.conf`` or an option of Java with a backslash, a directory of
  libraries, arguments in ``PYSPARK_SUBMIT_ARGS``, variables for Spark's own tests.
* Nothing is wrong: what is refused is refused in the words of ``spark-submit``.

One thing is added: the jars that have most classes of a start come first on the class path
(`JARS_BY_CLASSES`).

So the variable ``SPARK_LAUNCHER_OPTS`` with whatever in it is enough for a start by ``spark-submit``.

This module starts nothing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

MAIN = "org.apache.spark.deploy.SparkSubmit"
_OPTIONS, _DEFAULT_OPTIONS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"
_MEMORY, _MEMORY_VARIABLES, _MIN_MEMORY = "spark.driver.memory", ("SPARK_DRIVER_MEMORY", "SPARK_MEM"), "1g"
_CLASSES, _DEFAULT_CLASSES = "spark.driver.extraClassPath", "spark.driver.defaultExtraClassPath"
_LIBRARIES, _MODE = "spark.driver.extraLibraryPath", "spark.submit.deployMode"
_DIRECTORIES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_CONNECT_SETTINGS = ("spark.remote", "spark.api.mode")
_FOREIGN = (
    *("SPARK_TESTING", "SPARK_SQL_TESTING", "SPARK_PREPEND_CLASSES", "SPARK_ENV_LOADED"),
    *("SPARK_LAUNCHER_OPTS", "SPARK_PRINT_LAUNCH_COMMAND", "SPARK_REMOTE", "SPARK_API_MODE"),
    *("SPARK_CONNECT_MODE_ENABLED", "SPARK_SCALA_SHELL", "SPARK_CONNECT_BEELINE", "BASH_ENV"),
)
"""Variables by which the scripts or the launcher do something else than here."""
_SHELL, _SHELL_VARIABLE = "pyspark-shell", "PYSPARK_SUBMIT_ARGS"
_SCRIPTS = ("spark-submit", "spark-class", "load-spark-env.sh", "find-spark-home")
_SCALA = "2.13"
JARS_BY_CLASSES = (
    *("spark-catalyst_*", "scala-library-*", "scala-reflect-*", "spark-sql-api_*", "spark-core_*"),
    *("spark-sql_*", "log4j-core-*", "jackson-databind-*", "hadoop-client-api-*", "hadoop-client-runtime-*"),
    *("spark-network-common_*", "netty-common-*", "antlr4-runtime-*", "netty-transport-[0-9]*"),
    *("jackson-module-scala_*", "jackson-core-[0-9]*", "log4j-api-*", "spark-common-utils_*"),
    "json4s-core_*",
)
"""Jars of Spark's, by how many classes of a start each has (`-Xlog:class+load`). Java looks for a class in
one after the other of nearly 300, which it lists as the directory does: half a CPU second of a start. In
Spark 4.2 no class of these is in another, too, but one that Spark has its own of, which is now taken."""

_OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_OPEN = (
    *("-XX:+IgnoreUnrecognizedVMOptions", "--add-modules=jdk.incubator.vector"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
_HANDLES = "-Djdk.reflect.useDirectMethodHandle=false"
_NETTY = "-Dio.netty.tryReflectionSetAccessible=true"
_LATER_NETTY = (
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)
_NATIVE = "--enable-native-access=ALL-UNNAMED"


@dataclass(frozen=True)
class _Launcher:
    """Java options and classes that the launcher of one Spark version adds for each JVM."""

    options: tuple[str, ...]
    classes: str = ""


_LAUNCHER_4_0 = _Launcher((*_OPEN, _HANDLES, _NETTY), "hive-jackson/*")
_LAUNCHER_4_1 = _Launcher((*_OPEN, _HANDLES, _NETTY, *_LATER_NETTY, _NATIVE))
_LAUNCHER_4_2 = _Launcher((*_OPEN, _NETTY, *_LATER_NETTY, "--sun-misc-unsafe-memory-access=allow", _NATIVE))

_KNOWN_SCRIPTS = frozenset({"e8ca74f49d230ed639daa394"})
_KNOWN_LAUNCHERS = {
    "ceec97a5fc428cd056fba9f1": _LAUNCHER_4_0,
    "e13d492a258bd24883025d60": _LAUNCHER_4_0,
    "38322f20f7a693834171057f": _LAUNCHER_4_1,
    "07f2b1524c85a52dcbe53d43": _LAUNCHER_4_2,
}
"""By the digest of its classes."""

_SETTING = re.compile(r"[ \t\f]*([^ \t\f=:]+)[ \t\f]*[=:]?[ \t\f]*(.*)")
_TRIMMED = "".join(map(chr, range(33)))


@dataclass(frozen=True)
class Command:
    """Command of a process: its arguments, starting with the program, and its whole environment."""

    arguments: list[str]
    environment: dict[str, str]


class _UnknownCommand(Exception):
    """Only ``spark-submit`` knows."""


def java_command(conf: Mapping[str, str], environment: Mapping[str, str]) -> Command | None:
    """Build the command with which ``spark-submit`` would start a JVM for this process.

    Args:
        conf: all settings of the future session; the entries of ``spark-defaults.conf`` are looked up.
        environment: that of this process. The JVM's environment adds what the scripts add, without the
            variables that a shell sets about itself.

    Returns:
        The command; None if it cannot be determined, so that ``spark-submit`` must be used.
    """
    if os.name != "posix":
        return None
    try:
        home = _spark_home(environment)
        return Command(_arguments(home, conf, environment), _environment(home, environment))
    except (_UnknownCommand, OSError, ValueError, zipfile.BadZipFile):
        return None


def has_spark_env(environment: Mapping[str, str]) -> bool:
    """Return True if Spark's scripts run a ``spark-env.sh``, which may name another Java, or may do so."""
    try:
        folder = _conf_folder(_spark_home(environment), environment)
    except _UnknownCommand:
        return True
    return os.path.exists(os.path.join(folder, "spark-env.sh"))


def _spark_home(environment: Mapping[str, str]) -> str:
    """Find Spark's home as the script ``find-spark-home`` does from PySpark's ``spark-submit``."""
    home = environment.get("SPARK_HOME")
    if home:
        return home
    own = str(_find_spark_home())
    if os.path.exists(os.path.join(own, "bin", "find_spark_home.py")):
        raise _UnknownCommand  # the script asks a Python, which may have another Spark
    return own


def _arguments(home: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    folder = _conf_folder(home, environment)
    given = [name for name in _FOREIGN if name in environment]
    files = [name for name in ("spark-env.sh", "java-opts") if os.path.exists(os.path.join(folder, name))]
    if given or files or environment.get(_SHELL_VARIABLE, _SHELL).strip() != _SHELL:
        raise _UnknownCommand
    launcher = _launcher(home)
    file = _defaults(os.path.join(folder, "spark-defaults.conf"))
    settings = {_DEFAULT_CLASSES: launcher.classes, **file, **conf}
    master, mode = settings.get("spark.master", ""), settings.get(_MODE) or "client"
    if not master.startswith(("local", "spark://")) or mode != "client":
        raise _UnknownCommand
    if settings.get(_LIBRARIES) or any(name.lower() in _CONNECT_SETTINGS for name in settings):
        raise _UnknownCommand
    memories = [settings.get(_MEMORY), *(environment.get(name) for name in _MEMORY_VARIABLES), _MIN_MEMORY]
    options = [*_split(settings.get(_DEFAULT_OPTIONS)), *_split(settings.get(_OPTIONS))]
    arguments = [
        _java(environment),
        *("-cp", os.pathsep.join(_class_path(home, folder, settings, environment))),
        *_split(environment.get("SPARK_SUBMIT_OPTS")),
        f"-Xmx{next(filter(None, memories))}",
        *options,
        *launcher.options,
        *("-Dderby.connection.requireAuthentication=false", MAIN),
    ]
    for name, value in conf.items():
        arguments += ["--conf", f"{name}={value}"]
    signs = "".join(arguments)
    if any(option.startswith("-Xmx") for option in options) or "\r" in signs or "\0" in signs:
        raise _UnknownCommand  # the first and the last are refused, the other comes out of the script without
    return [*arguments, _SHELL]


def _environment(home: str, environment: Mapping[str, str]) -> dict[str, str]:
    return {
        **environment,
        "SPARK_HOME": home,
        "PYTHONHASHSEED": "0",
        "SPARK_ENV_LOADED": "1",
        "SPARK_CONF_DIR": _conf_folder(home, environment),
        "SPARK_SCALA_VERSION": _SCALA,
    }


def _conf_folder(home: str, environment: Mapping[str, str]) -> str:
    return environment.get("SPARK_CONF_DIR") or f"{home}/conf"


def _launcher(home: str) -> _Launcher:
    """Return the known launcher in a Spark home.

    Raises:
        _UnknownCommand: the launcher or the scripts are unknown.
    """
    scripts = hashlib.blake2b(digest_size=12)
    for name in _SCRIPTS:
        scripts.update(Path(home, "bin", name).read_bytes())
    jars = list(Path(home, "jars").glob("spark-launcher_*.jar"))
    if scripts.hexdigest() not in _KNOWN_SCRIPTS or len(jars) != 1:
        raise _UnknownCommand
    launcher = _KNOWN_LAUNCHERS.get(launcher_digest(jars[0]))
    if launcher is None:
        raise _UnknownCommand
    return launcher


def launcher_digest(jar: Path) -> str:
    """Compute a digest of the names, sizes and checksums of the launcher's classes.

    It does not read the classes themselves.
    """
    with zipfile.ZipFile(jar) as archive:
        classes = sorted((one.filename, one.file_size, one.CRC) for one in archive.infolist())
    told = repr([one for one in classes if one[0].startswith("org/apache/spark/launcher/")])
    return hashlib.blake2b(told.encode(), digest_size=12).hexdigest()


def _defaults(path: str) -> dict[str, str]:
    """Load the settings of Spark's own file, if each is on a line of its own."""
    if not os.path.isfile(path):
        return {}
    settings = {}
    for line in re.split(r"\r\n|\r|\n", Path(path).read_bytes().decode()):
        said = line.strip(" \t\f")
        if not said or said[0] in "#!":
            continue
        setting = _SETTING.fullmatch(line)
        if setting is None or "\\" in line:
            raise _UnknownCommand
        settings[setting[1]] = setting[2].strip(_TRIMMED)
    return settings


def _split(options: str | None) -> list[str]:
    """Split a text of Java options at quotes and spaces, as the launcher does.

    Backslashes and other white space are not supported, because the launcher has special rules for
    them.
    """
    if not options:
        return []
    if "\\" in options or any(sign.isspace() and sign != " " for sign in options):
        raise _UnknownCommand
    return shlex.split(options)


def _java(environment: Mapping[str, str]) -> str:
    """Return the path of the Java program as the launcher names it."""
    home = environment.get("JAVA_HOME")
    if home:
        java = f"{home}/bin/java"
        if not os.access(java, os.X_OK) or os.path.isdir(java):
            raise _UnknownCommand
        return java
    program = shutil.which("java", path=environment.get("PATH"))
    if program is None:
        raise _UnknownCommand
    # What a JVM takes for its home, unless the program is a script that starts one from elsewhere.
    place = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    library = os.path.join(place, "lib", "server", "libjvm.so")
    if os.path.realpath(library) != library or not os.path.isfile(library):
        raise _UnknownCommand
    return f"{place}/bin/java"


def _class_path(
    home: str, folder: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Iterable[str]:
    """Return the distinct entries of the class path; directories end with a slash."""
    extra, default = settings.get(_CLASSES), settings.get(_DEFAULT_CLASSES)
    theirs = [extra or "" if (extra or "").strip(_TRIMMED) else "", default or ""]
    there = sorted(os.listdir(f"{home}/jars"))
    (first,) = fnmatch.filter(there, "slf4j-api-*")
    most = [name for pattern in JARS_BY_CLASSES for name in fnmatch.filter(there, f"{pattern}.jar")]
    jars = [f"{home}/jars/{name}" for name in (first, *most, "*")]
    entries = [*theirs, folder, *jars, *(environment.get(name, "") for name in _DIRECTORIES)]
    once: dict[str, None] = {}
    for entry in os.pathsep.join(entries).split(os.pathsep):
        if entry:
            slash = "" if entry.endswith("/") or not os.path.isdir(entry) else "/"
            once[entry + slash] = None
    return once
