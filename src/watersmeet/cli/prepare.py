"""Define the command ``prepare``: a class archive with which later jobs start sooner."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.errors import EngineError

PATIENCE_S = 600
_WORDS = 600
"""Characters of what the child said last that are shown when it failed."""

Remove = Annotated[bool, typer.Option("--remove", help="Delete the archives of all Spark versions.")]
Again = Annotated[bool, typer.Option("--again", help="Recreate an archive that exists.")]


def prepare(remove: Remove = False, again: Again = False) -> None:
    """Build an archive of Spark's Java classes for faster starts (180 MB, half a minute, once)."""
    from watersmeet.runtime.spark.start_failures import check_pyspark

    check_pyspark("watersmeet prepare")
    from watersmeet.runtime.spark.job.class_archive import archive_path, cache_folder, is_complete
    from watersmeet.runtime.spark.job.class_archive import remove as remove_all

    if remove:
        deleted = remove_all()
        print(f"{cache_folder()}: no archive is left" + (f"; {deleted} deleted" if deleted else ""))
        return
    path = archive_path()
    if path is None:
        raise EngineError(
            "Java is not installed",
            code="no-java",
            hint="install Java 17, or set JAVA_HOME to its directory",
        )
    if os.pathsep in str(path):
        raise EngineError(
            f"the path {path} contains a separator, so Java would take it for several paths",
            code="not-prepared",
            hint=f"set XDG_CACHE_HOME to a directory without {os.pathsep} in its path",
        )
    if is_complete(path) and not again:
        print(f"{path}: exists already ({_megabytes(path)} MB)")
        return
    started = time.monotonic()
    print("Running a small job to record the classes that it loads …", file=sys.stderr)
    make(path)
    print(
        f"{path}: {_megabytes(path)} MB, made in {time.monotonic() - started:.0f} s; jobs use it from now on"
    )


def make(path: Path) -> None:
    """Make the file; it is there as a whole, or not at all. Raises: EngineError."""
    from watersmeet.runtime.spark.job.class_archive import STAGING_PREFIX, store_archive

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=STAGING_PREFIX) as making:
            made = Path(making) / path.name
            words = [sys.executable, "-m", "watersmeet.cli.archive_job", str(made)]
            child = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            if child.returncode or not made.exists():
                said = (child.stderr or child.stdout).strip()[-_WORDS:]
                raise EngineError(
                    f"the job that collects Java's classes failed: {said or 'it printed nothing'}",
                    code="not-prepared",
                    hint="jobs also run without this; check that `watersmeet demo` runs",
                )
            store_archive(made, path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(
            f"{path} cannot be made: {getattr(error, 'strerror', None) or error}",
            code="not-prepared",
            hint="it needs about 200 MB in the cache directory (XDG_CACHE_HOME); jobs also run without it",
        ) from None


def _megabytes(path: Path) -> int:
    return round(path.stat().st_size / 1e6)
