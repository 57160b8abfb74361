"""The Spark session: what a tick needs of it, and what makes ticks cheap.

What settings were worth per tick of 1,000 rows, which took 550 ms with Spark's defaults:

* Python workers behind Unix sockets (Spark 4.1 and newer): 45 ms per job with Python in it. Over loopback
  TCP each such job waits for a delayed ACK.
* Hadoop's local file systems without checksum files, and renames by the one that asks for no status: 100 ms.
  Without Hadoop's native library every file made, renamed or looked at forks a process (``chmod``,
  ``stat``), and a tick makes four files before its own: offsets, commit, and a log per file source.
* The JVM's optimising compiler held back (`COMPILER`): it took nearly half of the JVM's time in the first
  dozen ticks, for code that runs for milliseconds a tick. Executors of a cluster have the same options: each
  has to compile by itself what one process compiles once.
* Only the quick compiler where no rows pass through Java (`tick.reading.java_rows`): 12.8 CPU seconds instead
  of 15.6 for twelve ticks of 100,000 rows a side with the start, and no more in ticks 67 to 89 either. And a
  heap that begins small (`SMALL_HEAP`), which takes 170 MB less of ticks of 1,000 rows. Else its young
  generation stays small where cores are few (`SERIAL_COLLECTOR`).
* A daemon that forks workers with libraries loaded and frozen: 25 to 50 ms of garbage collection per task,
  and a second per worker, once. Where the first tick needs it, it starts while the job is planned (`early`).
* No notes of which line of Python called each method of a frame (four calls of Java for one), for messages
  that watersmeet words itself; for them PySpark loads IPython, too, where that is installed.

And no task waits for a place: by default one that prefers an executor (of Kafka's partitions, of a file's
blocks) would wait for it for 3 s, several ticks long, beside others that have nothing to do.

This module reads no plan and starts no query.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from pyspark import __version__
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from watersmeet.errors import EngineError
from watersmeet.parallel import own_cores
from watersmeet.runtime.spark.catalog.package_functions import register_package_functions
from watersmeet.runtime.spark.configuration import context_settings
from watersmeet.runtime.spark.job import class_archive, gateway
from watersmeet.runtime.spark.job.external_session import hold_java, load_submit_settings
from watersmeet.runtime.spark.job.signals import keep_ctrl_c_ignored
from watersmeet.runtime.spark.start_failures import JARS_VARIABLE, VARIABLES, explain_start_failure
from watersmeet.runtime.spark.tick.reading.arrow_ingest import build_listing_frame
from watersmeet.spec.options.spark import FIXED, TIME_ZONE, problem_of
from watersmeet.spec.time_zones import UTC

OF_SQL = "SPARK_SIMPLIFIED_TRACEBACK"

_warmup_lock = threading.Lock()


def start_workers(session: SparkSession) -> threading.Thread:
    """Start Python workers with one small job, a task per core, in a thread; do not wait for it."""
    return _run_in_thread(_run, session, name="early-workers")


def load_planner(session: SparkSession) -> threading.Thread:
    """Plan an empty batch like those of a job's stream, in a thread of its own.

    Most of the time of the first plan is spent on loading Java classes, which this does in advance.
    """
    return _run_in_thread(_plan, session, name="early-planner")


def _run_in_thread(
    work: Callable[[SparkSession], object], session: SparkSession, *, name: str
) -> threading.Thread:
    def run_suppressing_errors() -> None:
        with contextlib.suppress(Exception):  # the session may have been stopped meanwhile
            work(session)

    thread = threading.Thread(target=run_suppressing_errors, name=name, daemon=True)
    thread.start()
    return thread


def _plan(session: SparkSession) -> None:
    build_listing_frame([session.range(0)] * 2)._jdf.queryExecution().executedPlan()


def _run(session: SparkSession) -> None:
    context = session.sparkContext
    tasks = context.defaultParallelism
    numbers = context.parallelize(range(tasks), tasks).mapPartitions(_pass_through)
    with _warmup_lock:
        environment = context.environment
        context.environment = {**environment, OF_SQL: "1"}
        try:
            planned = numbers._jrdd  # here the environment goes in
        finally:
            context.environment = environment
    planned.count()


def _pass_through(numbers: Iterable[int]) -> Iterable[int]:
    return numbers


LONGEST_SOCKET_FOLDER = 60
"""Paths of Unix sockets end at 108 bytes; Spark adds a file name to the folder."""

ROWS_PER_BATCH = 100_000
BYTES_PER_BATCH = 64 << 20
"""Of what Spark hands to Python; Spark 4.0 knows the number of rows alone."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
LANGUAGE = "-Duser.language=en"
"""Upper and lower case go by the machine's language, as Turkish has a dotted I. The last option counts."""
COLLECTOR = "-XX:+UseParallelGC"
SMALL_HEAP = "-XX:+UseSerialGC -XX:InitialHeapSize=64m -XX:MaxNewSize=12m"
"""Where no rows pass through Java its heap stays small: one thread collects it, it begins so, and what a tick
leaves behind goes through a young generation of no more than it needs."""
SMALL_FREE_RATIO = "-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20"
"""Of that heap, in percent. A JVM does not start with a least share above the greatest: where the user says
one, both are the user's."""
_SHARES = ("HeapFreeRatio", "-Xminf", "-Xmaxf")
SERIAL_COLLECTOR = "-XX:+UseSerialGC -XX:InitialHeapSize=256m -XX:MaxNewSize=128m"
"""Rows that pass through Java live for moments. Where few cores make them, one thread collects them as fast
as they come, and a young generation that may not grow takes 300 to 500 MB less."""
MAX_SERIAL_CORES = 4
COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""The optimising compiler comes ten times later than by default: only to what stays hot."""
QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Where no rows pass through Java, its optimising compiler takes more than it saves. Place for code as with
both: for one alone Java takes a fifth of it."""
_ONE_PROCESS = re.compile(r"local(\[.*\])?")
"""Masters by which Spark is one process."""
LOG_LEVEL = "FATAL"
OFF = logging.CRITICAL + 1


def build_session_settings(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    jars: str | None = None,
    kafka: bool = False,
    time_zone: str = UTC,
    java_rows: bool = True,
    submitted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Build Spark's configuration for a job: the project's settings, then those of the user.

    Args:
        submitted: the settings of ``spark-submit``; ``master`` and ``conf`` take precedence.
        jars: directory of jars, or jars separated by commas; None: the variable WATERSMEET_SPARK_JARS.
        kafka: the job needs Spark's Kafka connector: from ``jars``, else by Maven coordinates.
        time_zone: that of the job.
        java_rows: rows of the job pass through Java (`tick.reading.java_rows`).

    Raises:
        EngineError: ``conf`` sets an option that the correctness of rows depends on.
    """
    _refuse_fixed((conf or {}).items(), "", time_zone)
    _refuse_fixed(submitted.items(), " (it is set by spark-submit or its files)", time_zone)
    asked = {**submitted, **({"spark.master": master} if master else {}), **(conf or {})}
    defaults = {
        "spark.master": "local[*]",
        "spark.app.name": "watersmeet",
        "spark.pyspark.python": sys.executable,
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": str(_supports_unix_sockets()).lower(),
        "spark.python.daemon.module": "watersmeet.runtime.spark.tick.daemon",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        TIME_ZONE: time_zone,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(BYTES_PER_BATCH),
        **{name: only for name, (only, _) in FIXED.items()},
        "spark.locality.wait": "0s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # stopping waits for a request to Kafka that is under way, and without a broker that is for minutes
        "spark.sql.streaming.stopTimeout": "8s",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.sql.streaming.checkpointFileManagerClass": _file_manager(),
        "spark.log.level": LOG_LEVEL,
    }
    used_master = asked.get("spark.master") or defaults["spark.master"]
    if used_master.startswith("local"):
        defaults["spark.driver.host"] = defaults["spark.driver.bindAddress"] = "127.0.0.1"
    if _ONE_PROCESS.fullmatch(used_master):  # Spark draws a secret for it; other users reach loopback, too
        defaults["spark.authenticate"] = "true"
    local = local_jars(jars)
    if local:
        defaults["spark.jars"] = ",".join(local)
    elif kafka:
        defaults["spark.jars.packages"] = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{__version__}"
    for name in ("spark.jars", "spark.jars.packages"):
        if name in defaults and asked.get(name):
            asked[name] = f"{defaults[name]},{asked[name]}"
    return {**defaults, **asked, **_java_options(asked, java_rows)}


def _java_options(asked: Mapping[str, str], java_rows: bool) -> dict[str, str]:
    """Combine the project's Java options with those of the user; the last one wins.

    A JVM with two garbage collectors does not start, and of two class archives it would ignore one.
    Therefore an option of the user, wherever it is set, replaces the corresponding option of the
    project.
    """
    compiler = COMPILER if java_rows else QUICK_COMPILER
    own = {name: asked.get(name, "") for name in (JAVA_OPTIONS, EXECUTOR_OPTIONS)}
    told = {name: f"{asked.get(name.replace('extra', 'default'), '')} {own[name]}" for name in own}
    told[JAVA_OPTIONS] += "".join(f" {os.environ.get(name, '')}" for name in VARIABLES)
    ours = {
        JAVA_OPTIONS: (
            _collector_options(java_rows, told[JAVA_OPTIONS]),
            compiler,
            class_archive.options(told[JAVA_OPTIONS]),
        ),
        EXECUTOR_OPTIONS: (COLLECTOR, compiler),
    }
    return {
        name: " ".join(filter(None, ["" if "GC" in told[name] else collector, *others, own[name], LANGUAGE]))
        for name, (collector, *others) in ours.items()
    }


def _collector_options(java_rows: bool, told: str) -> str:
    """Return the driver's garbage collector option and initial heap size.

    Args:
        told: the user's options.
    """
    if not java_rows:
        return SMALL_HEAP if any(share in told for share in _SHARES) else f"{SMALL_HEAP} {SMALL_FREE_RATIO}"
    return SERIAL_COLLECTOR if own_cores() <= MAX_SERIAL_CORES else COLLECTOR


def local_jars(jars: str | None) -> list[str]:
    """Return the paths of the named jars.

    Raises:
        EngineError: a jar does not exist.
    """
    named = jars or os.environ.get(JARS_VARIABLE, "")
    paths: list[str] = []
    for part in filter(None, (jar.strip() for jar in named.split(","))):
        path = Path(os.path.expanduser(part))
        archives = sorted(path.glob("*.jar")) if path.is_dir() else [path] if path.is_file() else []
        if not archives:
            raise EngineError(
                f'there are no jars at "{part}"',
                code="jars-missing",
                hint="use a directory of jars, such as those of Spark's Kafka connector, or paths of"
                " jars separated by commas",
            )
        paths.extend(str(jar.resolve()) for jar in archives)
    return paths


def _refuse_fixed(conf: Iterable[tuple[str, str]], where: str, time_zone: str) -> None:
    for name, value in conf:
        if (name, value) == (TIME_ZONE, time_zone):  # the job's own, said once more
            continue
        problem = problem_of(name, value)
        if problem is not None:
            raise EngineError(f"{problem[0]}{where}", code="fixed-setting", hint=problem[1])


def start(conf: Mapping[str, str], *, workers: bool = True) -> SparkSession:
    """Start a session with ``conf``, or return the running session, set to the job's time zone.

    See `build_session_settings` for ``conf``.

    Args:
        workers: start Python workers with the session; else Spark starts them when it first needs them.

    Raises:
        EngineError: the packages cannot be resolved, Spark does not start, or a configuration file of
            Spark sets an option that the correctness of rows depends on.
    """
    gateway.forget_dead()
    running = SparkSession.getActiveSession()
    if running is not None:
        hold_fixed(running, conf[TIME_ZONE])
        hold_java(running.sparkContext._jvm)
        register_package_functions(running)
        return running
    is_submitted = bool(load_submit_settings())
    _prepare_environment(conf)
    builder: Any = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    _silence_loggers()
    with _open_java_output() as words, keep_ctrl_c_ignored():
        try:
            gateway.launch(conf, _choose_java_output(words, conf))
            session: SparkSession = builder.getOrCreate()
        except EngineError:
            raise
        except (Exception, SystemExit) as error:  # PySpark ends the process where it misses a library
            gateway.adopt_gateway(None)  # a gateway that died would be taken for a live one
            words.seek(0)
            raise explain_start_failure(error, conf, words.read().decode(errors="replace")) from None
        except BaseException as interrupt:
            gateway.end_half_started(interrupt)
            raise
    others = [setting for setting in context_settings(session.sparkContext).items() if setting[0] not in conf]
    try:
        _refuse_fixed(others, " (it is set by a file of Spark's own, spark-defaults.conf)", conf[TIME_ZONE])
    except EngineError:
        session.stop()
        raise
    if is_submitted:
        hold_java(session.sparkContext._jvm)
    session.sparkContext.setLogLevel(conf["spark.log.level"])
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None  # the JVM went away: whoever waits for it says so
    register_package_functions(session)
    load_planner(session)
    if workers and str(session.sparkContext.master).startswith("local"):
        start_workers(session)
    return session


_java_output: list[IO[bytes]] = []
"""What the JVM says that was begun."""


@contextmanager
def prestart_java(conf: Mapping[str, str]) -> Iterator[None]:
    """Start the JVM for `start` with the same ``conf``, in parallel with the block.

    Calling `start` is optional.
    """
    gateway.forget_dead()
    if SparkSession.getActiveSession() is not None:
        yield
        return
    with tempfile.TemporaryFile() as words:
        _prepare_environment(conf)
        gateway.start_ahead(conf, _choose_java_output(words, conf))
        _java_output.append(words)
        try:
            yield
        finally:
            _java_output.clear()
            gateway.end_unused()


def _open_java_output() -> AbstractContextManager[IO[bytes]]:
    return nullcontext(_java_output[0]) if _java_output else tempfile.TemporaryFile()


def _choose_java_output(words: IO[bytes], conf: Mapping[str, str]) -> IO[bytes] | None:
    """Return the file for the JVM's output; None: standard error, if the user wants its log."""
    return words if conf["spark.log.level"] == LOG_LEVEL else None


def _prepare_environment(conf: Mapping[str, str]) -> None:
    # The setting alone is for spark-submit: a session that Python makes starts what this variable names.
    os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    _let_workers_import()


def find_session() -> SparkSession | None:
    """Return the session of this process, whichever thread created it, or None."""
    gateway.forget_dead()
    session = SparkSession._instantiatedSession
    return None if session is None or session.sparkContext._jsc is None else session


def clone_session(running: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Create a session in the same application as the user's session, with its functions.

    The new session gets all session-level settings of ``conf``. The user's session stays unchanged;
    listeners of its streams also listen to those of the new session.

    Raises:
        EngineError: the Java process reads file names in another encoding than UTF-8, or its workers
            use
            another Python than this process.
    """
    context = running.sparkContext
    hold_java(context._jvm)
    if str(context.master).startswith("local"):
        _check_python(str(context.pythonExec))
    theirs: Any = running._jsparkSession
    session = SparkSession(context, theirs.cloneSession())
    _use_same_names(running, session)
    for name, value in conf.items():
        if name.startswith("spark.sql.") and session.conf.isModifiable(name):
            session.conf.set(name, value)
    streams: Any = session._jsparkSession.streams()
    for listener in theirs.streams().listListeners():
        streams.addListener(listener)
    register_package_functions(session)
    return session


def _use_same_names(running: SparkSession, session: SparkSession) -> None:
    """Set the user's current catalog and database, so that table names have the same meaning.

    A clone does not inherit the catalog that the user chose with USE.
    """
    wanted = running.catalog.currentCatalog()
    if session.catalog.currentCatalog() != wanted:
        session.catalog.setCurrentCatalog(wanted)
        session.catalog.setCurrentDatabase(running.catalog.currentDatabase())


def _check_python(worker: str) -> None:
    """Check that tasks on this machine use the Python environment of this process."""
    theirs = shutil.which(worker)
    if theirs is None or not _is_same_python(theirs, sys.executable):
        raise EngineError(
            f"the Spark session runs its Python workers with {theirs or worker}, not with"
            f" {sys.executable}, which has watersmeet",
            code="other-python",
            hint="before creating the session, set os.environ['PYSPARK_PYTHON'] = sys.executable",
        )


def _is_same_python(one: str, other: str) -> bool:
    """Return True if both are one Python with the same packages, as python and python3 can be."""
    return os.path.dirname(os.path.abspath(one)) == os.path.dirname(
        os.path.abspath(other)
    ) and os.path.realpath(one) == os.path.realpath(other)


def end_java(session: SparkSession, patience_s: float = 120) -> None:
    """Stop a session that this process has started, and wait until its JVM has ended."""
    started = gateway.current_gateway()
    java = started.proc
    session.stop()
    started.shutdown()
    java.stdin.close()  # it ends with the process that started it
    java.wait(patience_s)


def hold_fixed(session: SparkSession, time_zone: str) -> None:
    """Set an existing session's options so that expressions mean the same as in the job."""
    session.conf.set(TIME_ZONE, time_zone)
    for name, (only, _) in FIXED.items():
        session.conf.set(name, only)


def _silence_loggers() -> None:
    """Stop PySpark and py4j from logging the stack of an error that they raise.

    The code that catches the error shows it. This runs before their first call, because Ctrl-C may come
    while Spark starts.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(OFF)
    logging.getLogger("py4j").setLevel(OFF)
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _file_manager() -> str:
    package = "org.apache.spark.sql.execution.streaming"
    if tuple(int(part) for part in __version__.split(".")[:2]) >= (4, 1):
        package += ".checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def _supports_unix_sockets() -> bool:
    return len(tempfile.gettempdir()) <= LONGEST_SOCKET_FOLDER and sys.platform != "win32"


def _let_workers_import() -> None:
    """Make workers import this package from where this process did, installed or not."""
    (folder,) = sys.modules["watersmeet"].__path__
    root = str(Path(folder).resolve().parent)
    paths = [folder_path for folder_path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder_path]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])
