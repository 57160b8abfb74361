"""Exceptions of Spark, py4j and Python workers → one readable `WatersmeetError`; no stack traces for users.

A WatersmeetError raised inside a task arrives as itself: `carry` packs it into the message of the exception
that Spark hands on as text, `readable_error` finds it there.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

from watersmeet.errors import EngineError, WatersmeetError

_MARK = "watersmeet-error:"
_PACKED = re.compile(_MARK + r"([A-Za-z0-9+/=]+):")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*")
_EXCEPTION = re.compile(r"^(?:[\w.$]+\.)?(\w*(?:Exception|Error))(?::\s*(.*))?$", re.DOTALL)
_HEADER = re.compile(
    r"(?:CSV header does not conform to the schema"
    r"|Number of column in CSV header is not equal to number of fields in the schema)"
    r"\W*\n(?P<what>.*?)\n\s*CSV file: (?P<file>\S+)",
    re.DOTALL,
)
_PARQUET = re.compile(
    r"(?:reading file (?P<file>.+?)\. )?Data type mismatches when reading Parquet column"
    r" \[(?P<column>[^\]]*)\]\. Expected Spark type (?P<declared>.+?), actual Parquet type (?P<has>.+?)\. "
)
_WRAPPERS = ("FOREACH_BATCH_USER_FUNCTION_ERROR", "STREAM_FAILED", "TASK_WRITE_FAILED", "FAILED_READ_FILE")

# (text in Spark's message, code, what is wrong, hint)
_KNOWN: tuple[tuple[str, str, str, str | None], ...] = (
    (
        "Some data may have been lost",
        "offsets-expired",
        "Kafka no longer has offsets that the job still has to read",
        "rows are lost: raise the topic's retention; to go on without them set 'failOnDataLoss' = 'false'",
    ),
    ("UnknownTopicOrPartition", "topic-missing", "a Kafka topic or partition is not there any more", None),
    (
        "No space left on device",
        "disk-full",
        "the disk is full",
        "make room and run again: the tick is repeated",
    ),
    (
        "java.lang.OutOfMemoryError",
        "out-of-memory",
        "Spark ran out of memory",
        "--conf spark.driver.memory=4g, or fewer rows per tick",
    ),
    (
        "Failed to find data source: kafka",
        "kafka-connector-missing",
        "Spark's Kafka connector is not loaded",
        "name its jars: --jars DIR, SET jars = 'DIR', or the variable WATERSMEET_SPARK_JARS",
    ),
)  # fmt: skip


class TaskFailed(Exception):
    """A WatersmeetError on its way out of a Python worker."""


def carry(error: WatersmeetError) -> TaskFailed:
    """An exception whose text holds ``error``."""
    packed = base64.b64encode(pickle.dumps(error)).decode()
    return TaskFailed(f"{_MARK}{packed}: {error}")


def carrying(rows: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The rows of a task, with its WatersmeetErrors packed."""
    try:
        yield from rows()
    except WatersmeetError as error:
        raise carry(error) from None


def readable_error(error: BaseException, during: str | None = None) -> WatersmeetError:
    """What a user is shown for ``error``, whatever raised it. ``during`` says what was being done."""
    if isinstance(error, WatersmeetError):
        return error
    text = _text(error)
    packed = _PACKED.search(text)
    if packed:
        found = pickle.loads(base64.b64decode(packed.group(1)))
        if isinstance(found, WatersmeetError):
            return found
    where = f"{during}: " if during else ""
    if _is_gone(error):
        return EngineError(
            f"{where}Spark's Java process is gone",
            code="spark-gone",
            hint="run again: the job goes on where it stopped (killed for its memory? "
            "--conf spark.driver.memory=2g, or fewer rows per tick)",
        )
    header = _HEADER.search(text)
    if header is not None:
        what = "; ".join(line.strip() for line in header["what"].splitlines())
        return EngineError(
            f"{where}the header of {header['file']} does not name the columns as they are declared ({what})",
            code="wrong-columns",
            hint="declare them in the file's order; with 'enforceSchema' = 'true' the header is passed over",
        )
    parquet = _PARQUET.search(text)
    if parquet is not None:
        return EngineError(
            f"{where}column {parquet['column']} is declared {parquet['declared'].upper()}, and is"
            f" {parquet['has']} in {parquet['file'] or 'a Parquet file'}",
            code="column-type",
            hint="declare it as the file has it and cast in a view, or write the file with the declared type",
        )
    for sign, code, message, hint in _KNOWN:
        if sign in text:
            return EngineError(f"{where}{message}", code=code, hint=hint)
    return EngineError(f"{where}{readable(error)}", code="spark-failed")


def _is_gone(error: BaseException) -> bool:
    """Whether the JVM went away: py4j has nobody to talk to."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    if not type(error).__module__.startswith("py4j") or hasattr(error, "java_exception"):
        return False
    return "Trace:" not in str(error)  # with one, Java has answered


def readable(error: BaseException) -> str:
    """The innermost cause in one or two lines, without stack frames."""
    text = _text(error)
    causes = [line for line in _messages(text) if not any(wrapper in line for wrapper in _WRAPPERS)]
    message = causes[-1] if causes else (text.strip().splitlines() or [type(error).__name__])[0]
    message = _CONDITION.sub("", message, count=1)
    message = re.sub(r"\s*SQLSTATE: \w+.*$", "", message, flags=re.DOTALL)
    return message.strip()[:600] or type(error).__name__


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    parts = [str(error)]
    cause = getattr(error, "_cause", None) or error.__cause__
    while cause is not None and len(parts) < 10:
        parts.append(str(cause))
        cause = getattr(cause, "_cause", None) or cause.__cause__
    if java is not None:
        try:
            while java is not None and len(parts) < 20:
                parts.append(str(java.toString()))
                java = java.getCause()
        except Exception:  # the JVM may be what died
            pass
    return "\n".join(parts)


def _messages(text: str) -> Iterator[str]:
    """Lines that say what went wrong: first lines of exceptions, Java's and Python's."""
    for line in text.splitlines():
        stripped = line.removeprefix("Caused by: ").strip()
        if stripped.startswith(("at ", "File ", "Traceback", "...", "^", "~", "=== ")):
            continue
        found = _EXCEPTION.match(stripped)
        if found and found.group(2):
            yield found.group(2)
        elif _CONDITION.match(stripped):
            yield stripped
