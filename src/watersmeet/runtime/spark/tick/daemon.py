"""The process that Spark forks Python workers from, with the libraries of the tasks already loaded.

Spark runs this module instead of ``pyspark.daemon`` (``spark.python.daemon.module``). Each worker is a
fork, so what is imported here is imported once and not once per worker. And it is frozen: a reused worker
collects garbage after every task, which takes 25 to 50 ms with all of these modules to walk through, and
nothing without. What is loaded only later, in a worker, would be loaded by each and walked through.

Spark puts PySpark on the path as the archive that it comes with, whose modules each process compiles anew.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import zipfile
from pathlib import Path

_ARCHIVES = ("pyspark.zip", "py4j-")
_COMPARED_FILES = tuple(f"pyspark/{name}.py" for name in ("version", "daemon", "worker", "serializers"))
"""What speaks with the JVM, too: a distribution may have its own, and call it by Spark's version."""


def drop_spark_archives(path: list[str]) -> list[str]:
    """Drop Spark's archives of PySpark and Py4J from the module search path.

    This requires that the installed, compiled PySpark is the same version. Otherwise the path stays
    unchanged: on a cluster, Spark's own PySpark counts.
    """
    archives = [entry for entry in path if entry.endswith(".zip") and Path(entry).name.startswith(_ARCHIVES)]
    rest = [entry for entry in path if entry not in archives]
    try:
        with zipfile.ZipFile(next(entry for entry in archives if entry.endswith("pyspark.zip"))) as archive:
            theirs = [archive.read(name) for name in _COMPARED_FILES]
        installed = next(entry for entry in rest if _has_package(entry, "pyspark"))
        own = [Path(installed, name).read_bytes() for name in _COMPARED_FILES]
        same = own == theirs and any(_has_package(entry, "py4j") for entry in rest)
    except (StopIteration, OSError, KeyError, zipfile.BadZipFile):
        return path
    return rest if same else path


def _has_package(entry: str, package: str) -> bool:
    return Path(entry, package, "__init__.py").is_file()


def preload() -> None:
    """Import what tasks use. Nothing here may start threads: workers are forked."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    import duckdb  # noqa: F401
    import numpy  # noqa: F401
    import pyarrow.compute
    import pyarrow.ipc  # noqa: F401
    import pyspark.sql.pandas.serializers
    import pyspark.worker  # noqa: F401

    import watersmeet.runtime.spark.tick.ingest
    import watersmeet.runtime.spark.tick.nodes
    import watersmeet.sinks.parquet  # noqa: F401

    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401  (pyarrow loads it, if it is there, when it first makes an array)

    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # or libraries report at exit what was not collected


if __name__ == "__main__":
    sys.path[:] = drop_spark_archives(sys.path)
    from pyspark.daemon import manager

    with contextlib.suppress(ImportError):  # a worker will say what is missing, where it can be heard
        preload()
    manager()
