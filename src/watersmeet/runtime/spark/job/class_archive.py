"""Archive of parsed and verified Spark classes, which a driver's JVM loads at its start.

Class-data sharing (JEP 350) saves half of the JVM's start time.

``watersmeet prepare`` creates the archive in the user's cache directory, one per Java and Spark. A JVM
ignores an archive of another Java, of other jars, or of a heap that does not fit. The archive contains code,
so it is used only if no other user can have written it.
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

from watersmeet.runtime.spark.job.java_command import JARS_BY_CLASSES

OPTION, ARCHIVE_OPTION = "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"
_SILENT = "-Xlog:cds*=off"
"""What does not fit is no news: all runs as well without."""

_CACHE_FOLDER = "classes"

STAGING_PREFIX = ".making-"
"""How directories there begin in which a file is made."""


def options(told: str = "") -> str:
    """Return the driver JVM options that load the class archive.

    Args:
        told: all other options of the driver's JVM.

    Returns:
        The options; "" if there is no archive, or if ``told`` already names one.
    """
    if OPTION in told or ARCHIVE_OPTION in told:
        return ""
    if not cache_folder().is_dir():
        return ""  # as nearly always: what it would be called need not be known
    path = archive_path()
    return f'{OPTION}="{path}" {_SILENT}' if path is not None and is_complete(path) and _is_ours(path) else ""


def archive_path() -> Path | None:
    """Return the path of the archive for this Java and this Spark; None if there is no Java.

    The file may not exist.
    """
    java = _find_java()
    return None if java is None else cache_folder() / f"{_digest_classes(java)}.jsa"


def is_complete(path: Path) -> bool:
    """Return True if the archive has its recorded size and a path without a colon.

    A JVM crashes on a truncated archive, and it would read a path with a colon as two paths.
    """
    try:
        return path.stat().st_size == int(_size_file(path).read_text()) and os.pathsep not in str(path)
    except (OSError, ValueError):
        return False


def store_archive(made: Path, path: Path) -> None:
    """Move a new archive to its final path, readable and writable only by this user.

    The file is complete before it is visible, also after a power failure.
    """
    made.chmod(0o600)
    with made.open("rb+") as written:
        os.fsync(written.fileno())
    os.replace(made, path)
    _size_file(path).write_text(str(path.stat().st_size))


def remove() -> int:
    """Delete what is kept, and what was not made to its end. Returns how many files were found by jobs."""
    files = list(cache_folder().glob("*.jsa"))
    for one in [*files, *map(_size_file, files)]:
        one.unlink(missing_ok=True)
    for left in cache_folder().glob(f"{STAGING_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    return len(files)


def _size_file(path: Path) -> Path:
    return path.with_suffix(".size")


def cache_folder() -> Path:
    return platformdirs.user_cache_path("watersmeet", appauthor=False) / _CACHE_FOLDER


def _find_java() -> Path | None:
    """Return the path of the Java that PySpark starts, or None."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return Path(os.path.realpath(java)) if java and os.path.exists(java) else None


def _digest_classes(java: Path) -> str:
    """Compute a digest of the origin of the classes: the Java release and Spark's jars.

    It includes the jars that come first on the class path: a JVM ignores an archive that was made for
    another order.
    """
    spark = Path(_find_spark_home())
    jars = sorted((jar.name, jar.stat().st_size) for jar in (spark / "jars").glob("*.jar"))
    release = java.parent.parent / "release"
    said = release.read_bytes() if release.exists() else str(java.stat().st_mtime_ns).encode()
    made_of = repr((str(java), said, str(spark.resolve()), pyspark.__version__, jars, JARS_BY_CLASSES))
    return hashlib.blake2b(made_of.encode(), digest_size=12).hexdigest()


def _is_ours(path: Path) -> bool:
    """Return True if only this user or root can have written the file or placed it there."""
    for one in (path, path.parent):
        try:
            told = os.lstat(one)
        except OSError:
            return False
        if told.st_uid not in (0, os.geteuid()) or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return stat.S_ISREG(os.lstat(path).st_mode)
