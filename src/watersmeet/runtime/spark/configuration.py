"""Settings of Spark, read and set in few calls.

PySpark takes six calls of Java for each setting. There are a hundred, and each job asks several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from watersmeet.runtime.files.long_lines import MAX_BYTES, SHARE

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_known: WeakKeyDictionary[SparkContext, Mapping[str, str]] = WeakKeyDictionary()


def context_settings(context: SparkContext) -> Mapping[str, str]:
    """Return all settings of a Spark context by name.

    They do not change during its lifetime, except the warehouse path, which Spark turns into a URL when
    it first needs it.
    """
    settings = _known.get(context)
    if settings is None:
        settings = _known[context] = dict(context.getConf().getAll())
    return settings


def count_driver_cores(context: SparkContext) -> int:
    """Return the number of the driver's cores; on a cluster, the number requested for it."""
    if str(context.master).startswith("local"):
        return int(context.defaultParallelism)
    return int(context_settings(context).get("spark.driver.cores", "1"))


def list_setting_names(session: SparkSession) -> list[str]:
    """List the names of all current settings of a session."""
    java: Any = session.sparkContext._jvm
    conf: Any = session.conf
    names: str = java.java.lang.String.join("\n", conf._jconf.getAllAsJava().keySet())
    return names.split("\n")


@contextmanager
def override_setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    """Give a setting of a session another value within the block."""
    before = session.conf.get(name, None)
    session.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, before)


def max_line_bytes(spark: SparkSession) -> int:
    """Return the bytes of a line that the Java that reads files has memory for."""
    context: Any = spark.sparkContext
    if context._jsc.sc().isLocal():
        memory = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())
    else:
        own = context_settings(context).get("spark.executor.memory", "1g")
        memory = int(context._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(own)) << 20
    return min(memory // SHARE, MAX_BYTES)
