"""A file of the classes that Spark loads, parsed and verified, from which a driver's JVM takes them: class-
data sharing (JEP 350) spares half of what its start costs.

``watersmeet prepare`` makes it, in the user's cache directory, one per Java and Spark. A JVM that finds one
made by another Java, with other jars or a heap that it does not fit, passes over it. It holds code: it is
taken only where nobody else can have written it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

import platformdirs
import pyspark
from pyspark.find_spark_home import _find_spark_home

OPTION, MAKES = "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"
_SILENT = "-Xlog:cds*=off"
"""What does not fit is no news: all runs as well without."""

_KEPT = "classes"


def options() -> str:
    """Of the driver's JVM; none where there is no file, or the JVM is told of one otherwise."""
    told = os.environ.get("SPARK_SUBMIT_OPTS", "") + os.environ.get("JAVA_TOOL_OPTIONS", "")
    if OPTION in told or MAKES in told:
        return ""
    path = place()
    return f'{OPTION}="{path}" {_SILENT}' if path is not None and _is_ours(path) else ""


def place() -> Path | None:
    """Where the file for this Java and this Spark is, or would be; None: there is no Java."""
    java = _java()
    return None if java is None else folder() / f"{_made_of(java)}.jsa"


def folder() -> Path:
    return platformdirs.user_cache_path("watersmeet", appauthor=False) / _KEPT


def _java() -> Path | None:
    """The one that PySpark starts."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return Path(os.path.realpath(java)) if java and os.path.exists(java) else None


def _made_of(java: Path) -> str:
    """A digest of what classes come from: the Java by what it says of itself, and Spark's jars."""
    spark = Path(_find_spark_home())
    jars = sorted((jar.name, jar.stat().st_size) for jar in (spark / "jars").glob("*.jar"))
    release = java.parent.parent / "release"
    said = release.read_bytes() if release.exists() else str(java.stat().st_mtime_ns).encode()
    made_of = repr((str(java), said, str(spark.resolve()), pyspark.__version__, jars))
    return hashlib.blake2b(made_of.encode(), digest_size=12).hexdigest()


def _is_ours(path: Path) -> bool:
    """Whether nobody but this user, or root, can have written the file, or put it there."""
    for one in (path, path.parent):
        try:
            told = os.lstat(one)
        except OSError:
            return False
        if told.st_uid not in (0, os.geteuid()) or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return stat.S_ISREG(os.lstat(path).st_mode)
