"""What all tests share: the seed, one Spark session, one Kafka broker, one PostgreSQL server. Each is made
when first asked for.

PySpark is imported by the ``spark`` fixture alone, so that the tests of the core never load it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
DEFAULT_SEED = 20130101


def pytest_addoption(parser):
    parser.addoption(
        "--seed",
        default=os.environ.get("WATERSMEET_SEED", str(DEFAULT_SEED)),
        help="seed of the random tests: a number, or 'random' (also: WATERSMEET_SEED)",
    )


def pytest_configure(config):
    asked = config.getoption("--seed")
    try:
        config.watersmeet_seed = random.SystemRandom().randrange(2**31) if asked == "random" else int(asked)
    except ValueError:
        raise pytest.UsageError(f"--seed takes a number or 'random', not {asked!r}") from None
    config.option.seed = str(config.watersmeet_seed)  # that of the workers, too


def pytest_report_header(config):
    return f"seed: {config.watersmeet_seed} (again with --seed {config.watersmeet_seed})"


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """With -q there is no header; a failure must still name the seed."""
    if exitstatus != 0:
        terminalreporter.write_line(f"seed: {config.watersmeet_seed}")


@pytest.fixture(scope="session")
def seed(pytestconfig) -> int:
    """The seed of this run's random tests."""
    return pytestconfig.watersmeet_seed


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session that jobs get, on two cores, with the Kafka connector and PostgreSQL's driver if
    ``scripts/jars`` got them."""
    from watersmeet.engine.spark.session import settings, start

    scratch = tmp_path_factory.mktemp("spark")
    jars = [REPOSITORY / ".jars" / name for name in ("spark-kafka", "postgres-jdbc")]
    known = ",".join(str(folder) for folder in jars if folder.exists())
    conf = {
        "spark.app.name": "watersmeet-tests",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    session = start(settings(master="local[2]", conf=conf, jars=known or None))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka_broker():
    """One Kafka broker for all tests: take topic names of your own, and start your own to stop it."""
    from watersmeet.testing.kafka import KafkaBroker

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres():
    """One PostgreSQL server for all tests: take table names of your own."""
    from watersmeet.testing.postgres import Postgres

    with Postgres() as server:
        yield server
