"""What a database holds, as a table: Spark's JDBC reader, with Spark's own options.

Columns are found by name and cast to their declared types. Passwords go to the reader and nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from watersmeet.errors import EngineError, WatersmeetError, raise_all
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.errors import mentions_any, readable_error
from watersmeet.runtime.spark.sources.columns import check_columns
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.spec.model import Source
from watersmeet.spec.options.names import JDBC, JDBC_PROPERTIES, source_option_problems
from watersmeet.spec.secrets import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DRIVERS = {
    "jdbc:postgresql:": ("org.postgresql.Driver", "org.postgresql:postgresql:42.7.7"),
    "jdbc:mysql:": ("com.mysql.cj.jdbc.Driver", "com.mysql:mysql-connector-j:9.3.0"),
    "jdbc:mariadb:": ("org.mariadb.jdbc.Driver", "org.mariadb.jdbc:mariadb-java-client:3.5.3"),
}
"""Per beginning of the URL, the driver's class and where Maven has it."""

WAIT_S = 90.0
"""So long a database may be away that a tick asks."""

_AWAY_MESSAGES = (
    "The connection attempt failed",
    "Connection refused",
    "refused. Check that the hostname and port are correct",
    "Connection reset",
    "This connection has been closed",
    "An I/O error occurred while sending to the backend",
    "terminating connection due to",
    "the database system is",  # starting up, shutting down, in recovery mode
    "Communications link failure",
)

LOG = logging.getLogger("watersmeet.jdbc")

_Read = TypeVar("_Read")

_NO_DRIVER = ("No suitable driver", "ClassNotFoundException", "ClassNotFound")


def open_checked_table(spark: SparkSession, source: Source) -> Callable[[], DataFrame]:
    """Check that the table exists and has the columns; return a function that makes its frame.

    Raises:
        EngineError: the driver, the database, the table or a column does not exist.
        SpecError: an option is missing or wrong.
    """
    options = reader_options(source)

    def load_frame() -> DataFrame:
        frame = spark.read.format("jdbc").options(**options).load()
        where = options.get("dbtable", "the query")
        check_columns(f'table "{source.name}"', source, frame.columns, f"{where} has")
        columns_by_name = {name.lower(): name for name in frame.columns}
        return frame.select(
            *(
                F.col(quote_name(columns_by_name[column.name.lower()]))
                .cast(str(column.type))
                .alias(column.name)
                for column in source.columns
            )
        )

    try:
        load_frame()
    except Exception as error:
        raise explain_jdbc_error(source, error) from None
    return load_frame


def reader_options(source: Source) -> dict[str, str]:
    """Build the options for Spark's JDBC reader.

    Raises:
        SpecError: an option is wrong.
    """
    raise_all(source_option_problems(source))
    spelling = {name.lower(): name for name in JDBC}
    options: dict[str, str] = {}
    for name, value in source.options.items():
        if name.lower().startswith(JDBC_PROPERTIES):
            options[name[len(JDBC_PROPERTIES) :]] = str(value)
        else:
            options[spelling[name.lower()]] = str(value)
    driver = _find_driver(options["url"])
    if driver is not None:
        options.setdefault("driver", driver[0])
    # As an instant such a time would be read by the clock of the machine, and event times are UTC.
    options.setdefault("preferTimestampNTZ", "true")
    return options


def _find_driver(url: str) -> tuple[str, str] | None:
    return next((driver for start, driver in _DRIVERS.items() if url.startswith(start)), None)


def retry_while_away(source: Source, read: Callable[[], _Read]) -> _Read:
    """Return the result of ``read``, with retries while a running job's database is unreachable.

    Retries last at most `WAIT_S`, with a warning per attempt.

    Raises:
        Exception: the error of ``read``.
    """
    if not source.traits.snapshot:
        return read()
    began, pause_s = time.monotonic(), 0.5
    while True:
        try:
            return read()
        except Exception as error:
            if time.monotonic() - began + pause_s > WAIT_S or not mentions_any(error, _AWAY_MESSAGES):
                raise
            LOG.warning('table "%s": the database does not answer; retrying in %.1f s', source.name, pause_s)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 10.0)


def explain_jdbc_error(source: Source, error: Exception) -> WatersmeetError:
    """Convert an error of the reader to the error that the user sees."""
    if isinstance(error, WatersmeetError):
        return error
    url = next((str(value) for name, value in source.options.items() if name.lower() == "url"), "")
    text = f"{error} {getattr(error, 'java_exception', '')}"
    if any(sign in text for sign in _NO_DRIVER):
        driver = _find_driver(url)
        package = driver[1] if driver is not None else "group:artifact:version"
        return EngineError(
            f'table "{source.name}": no JDBC driver for {without_secrets(url)} is loaded',
            code="jdbc-driver-missing",
            hint=f"add its jar: --jars FILE, SET jars = 'FILE', or --conf spark.jars.packages={package}",
        )
    error_in_words = readable_error(error, f'table "{source.name}" ({without_secrets(url)})')
    password = next((str(v) for name, v in source.options.items() if name.lower() == "password"), "")
    if password and password in str(error_in_words):
        error_in_words = type(error_in_words)(
            error_in_words.message.replace(password, "***"),
            code=error_in_words.code,
            hint=error_in_words.hint,
        )
    return error_in_words
