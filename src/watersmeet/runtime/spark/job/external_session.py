"""Run jobs in a process that ``spark-submit`` started, and reject Spark Connect.

In such a process the JVM exists before the job does, with settings of its own. A client of Spark Connect
cannot run a job.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watersmeet.errors import EngineError, SpecError
from watersmeet.spec.secrets import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GATEWAY = "PYSPARK_GATEWAY_PORT"
"""PySpark's variable: the port at which a JVM waits that started this process."""
OURS = threading.Lock()
"""Held while the variable names a JVM that this process has started."""
_REMOTES, _MODE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"), "SPARK_API_MODE"
_UTF_8 = "UTF-8"
_CONNECT_REASON = (
    "a job commits its own state in the driver's process, which a Spark Connect client cannot do"
)


def load_submit_settings() -> dict[str, str]:
    """Return the settings that ``spark-submit`` received or read from its files.

    They are empty if ``spark-submit`` did not start this process.
    """
    with OURS:
        is_there = GATEWAY in os.environ
    if not is_there:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def refuse_connect(conf: Mapping[str, str]) -> None:
    """Reject Spark Connect.

    Raises:
        EngineError: by ``conf`` or the environment, Spark would be reached through Spark Connect.
    """
    said = [f"{name}={os.environ[name]}" for name in _REMOTES if os.environ.get(name)]
    if os.environ.get(_MODE, "").lower() == "connect":
        said.append(f"{_MODE}={os.environ[_MODE]}")
    if conf.get("spark.remote"):
        said.append(f"spark.remote = {without_secrets(conf['spark.remote'])}")
    if conf.get("spark.api.mode", "").lower() == "connect":
        said.append("spark.api.mode = connect")
    if conf.get("spark.master", "").startswith("sc://"):
        said.append(f"spark.master = {without_secrets(conf['spark.master'])}")
    if said:
        raise EngineError(
            f"a job cannot run over Spark Connect ({', '.join(said)}): {_CONNECT_REASON}",
            code="spark-connect",
            hint="remove these settings and run the job with --master (spark://…, yarn, k8s://…) or"
            " with spark-submit",
        )


def find_frames_session(frames: Mapping[str, DataFrame]) -> SparkSession | None:
    """Return the Spark session of the user's DataFrames (by name); None if there are none.

    Raises:
        SpecError: a DataFrame belongs to Spark Connect.
    """
    from pyspark.sql import SparkSession

    session = None
    for name, frame in frames.items():
        if not isinstance(getattr(frame, "sparkSession", None), SparkSession) or not hasattr(frame, "_jdf"):
            raise SpecError(
                f'"{name}" is a Spark Connect DataFrame, which a job cannot use: {_CONNECT_REASON}',
                code="spark-connect",
                hint="create the session with SparkSession.builder.master(…) instead of remote(…)",
            )
        session = session or frame.sparkSession  # a process has one application
    return session


def hold_java(jvm: Any) -> None:
    """Make a JVM that someone else started read texts and names as the project's own JVMs do.

    Conversion between upper and lower case depends on the JVM's language; this sets it for everything
    that runs in the JVM. The encoding of file names cannot be changed after the start.

    Raises:
        EngineError: the JVM reads file names only in ASCII.
    """
    if jvm.java.util.Locale.getDefault().getLanguage() != "en":
        jvm.java.util.Locale.setDefault(jvm.java.util.Locale.ENGLISH)
    names = str(jvm.java.lang.System.getProperty("sun.jnu.encoding") or _UTF_8)
    if names.upper() != _UTF_8:
        raise EngineError(
            f"the running Java process decodes file names as {names}, so it would skip files with other"
            " names and lose their rows",
            code="file-names-of-java",
            hint="start it in a UTF-8 locale: LC_ALL=C.UTF-8 spark-submit …",
        )
