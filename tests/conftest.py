"""What all tests share: the seed, one Spark session, one Kafka broker, one PostgreSQL server. Each is made
when first asked for.

PySpark is imported by the ``spark`` fixture alone, so that the tests of the core never load it.
"""

from __future__ import annotations

import gc
import os
import random
from collections import Counter, defaultdict

import pytest

from tests.support import caller, effort, in_memory, jvm_options, parallel
from tests.support.effort import at_effort
from tests.support.package_paths import REPOSITORY

DEFAULT_SEED = 20130101


def pytest_addoption(parser):
    parser.addoption(
        "--seed",
        default=os.environ.get("WATERSMEET_SEED", str(DEFAULT_SEED)),
        help="seed of the random tests: a number, or 'random' (also: WATERSMEET_SEED)",
    )
    parser.addoption("--slice", metavar="K/N", help="the K-th of N parts of what full effort adds")


@pytest.hookimpl(trylast=True)  # pytest has chosen its own colours by then
def pytest_configure(config):
    caller.undo_settings()
    in_memory.keep_temporary_files_in_memory()
    effort.check_options(config)
    asked = config.getoption("--seed")
    try:
        config.watersmeet_seed = random.SystemRandom().randrange(2**31) if asked == "random" else int(asked)
    except ValueError:
        raise pytest.UsageError(f"--seed takes a number or 'random', not {asked!r}") from None
    config.option.seed = str(config.watersmeet_seed)  # that of the workers, too
    os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options.ALL)


@pytest.hookimpl(trylast=True)  # of those that are not deselected
def pytest_collection_modifyitems(config, items):
    for item in items:
        for server in ("spark", "postgres"):
            if server in getattr(item, "fixturenames", ()):
                item.add_marker(server)
    effort.select(config, items)
    if hasattr(config, "workerinput"):
        items[:] = parallel.order_for_processes(items, config.workerinput["workercount"])


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nothing of what is imported and collected is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """What was imported and collected stays: the garbage collector need not look through it again. And it
    looks less often: trees of queries come and go by the million, and hardly any of them is garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


def pytest_unconfigure():
    """Libraries that look for leaks when the interpreter ends find what is frozen."""
    gc.unfreeze()


def pytest_report_header(config):
    number = config.watersmeet_seed
    return f"seed: {number} (again with --seed {number}), effort: {effort.EFFORT}"


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """With -q there is no header; a failure must still name the seed."""
    if exitstatus != 0:
        terminalreporter.write_line(f"seed: {config.watersmeet_seed}")
    if config.getoption("durations"):
        terminalreporter.write_line(_where_time_went(terminalreporter.stats))


def _where_time_went(reports):
    seconds, tests = Counter(), defaultdict(set)
    for report in (each for several in reports.values() for each in several if hasattr(each, "duration")):
        folder = report.nodeid.partition("::")[0].rpartition("/")[0]
        seconds[folder] += report.duration
        tests[folder].add(report.nodeid)
    return "\n".join(
        f"{took:6.0f} s  {len(tests[name]):5} tests  {name}" for name, took in seconds.most_common()
    )


@pytest.fixture(scope="session", autouse=True)
def user_configuration(tmp_path_factory):
    """Keep the token of pages and metrics out of the developer's own folder."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def seed(pytestconfig) -> int:
    """The seed of this run's random tests."""
    return pytestconfig.watersmeet_seed


def _look_up_once():
    """PySpark asks the JVM for a class by its name wherever it uses one, some fifty times a tick; the JVM
    looks through all packages and jars each time."""
    from py4j.java_gateway import JVMView

    ask = JVMView.__getattr__

    def look_up(view, name):
        found = view.__dict__[name] = ask(view, name)
        return found

    JVMView.__getattr__ = look_up


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session that jobs get, on two cores, with the Kafka connector and PostgreSQL's driver if
    ``scripts/jars`` got them."""
    from pyspark import SparkContext

    from watersmeet.runtime.spark.job.session import build_session_settings, start

    # Jars of a later session are not seen by a JVM that runs.
    assert SparkContext._gateway is None, "a test started a session of its own in this process"
    scratch = tmp_path_factory.mktemp("spark")
    jars = [REPOSITORY / ".jars" / name for name in ("spark-kafka", "postgres-jdbc")]
    known = ",".join(str(folder) for folder in jars if folder.exists())
    conf = {
        "spark.app.name": "watersmeet-tests",
        "spark.driver.memory": "2g",  # what a session keeps of hundreds of jobs fills one
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    _look_up_once()
    gc.set_threshold(20_000, 20, 20)  # what is garbage here holds queries there
    session = start(build_session_settings(master="local[2]", conf=conf, jars=known or None))
    # rows of tests are few: compiling Java for each query takes longer than interpreting it
    session.conf.set("spark.sql.codegen.wholeStage", at_effort(quick="false", full="true"))
    yield session
    session.stop()


def pytest_runtest_teardown(item):
    """Jobs set the session's time zone to theirs: the next test finds UTC."""
    session = getattr(item, "funcargs", {}).get("spark")
    if hasattr(session, "conf"):  # some tests have a parameter of that name
        session.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture(scope="session")
def kafka_broker():
    """One Kafka broker for all tests: take topic names of your own, and start your own to stop it."""
    from tests.support.kafka import KafkaBroker

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres():
    """One PostgreSQL server for all tests: take table names of your own."""
    from tests.support.postgres import Postgres

    with Postgres() as server:
        yield server
